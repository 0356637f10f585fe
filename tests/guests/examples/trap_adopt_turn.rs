//! Announces one native turn as soon as its session does anything, then traps in
//! `adopt-turn`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-adopt-turn";

    async fn run(link: Link) -> Result<(), Error> {
        let turn = NativeTurn {
            id: "native-1".to_owned(),
            start: TurnStart::Running,
            reason: "trap".to_owned(),
            cause: None,
        };
        let answer = link.announce_turn(turn).await;
        host::log(LogLevel::Info, &format!("announced: {answer:?}"));
        Ok(())
    }

    async fn adopt_turn(_: String, _: String, _: Channel) -> Result<Sess, Error> {
        panic!("trap in adopt-turn, as it should")
    }
}

guests::export!(It);
