//! After `/go` it announces native turns for ever, also when the answer is
//! `stopped`, and none of its turns looks at its abort.
use guests::*;
use std::cell::Cell;

thread_local!(static ARMED: Cell<bool> = const { Cell::new(false) });

struct It;

impl Guest for It {
    const NAME: &'static str = "ignores-stopped";

    async fn run(link: Link) -> Result<(), Error> {
        let mut made = 0u64;
        loop {
            host::sleep_ms(50).await;
            if ARMED.get() {
                made += 1;
                let turn = NativeTurn {
                    id: format!("again-{made}"),
                    start: TurnStart::Running,
                    reason: "again".to_owned(),
                    cause: None,
                };
                let answer = link.announce_turn(turn).await;
                host::log(
                    LogLevel::Info,
                    &format!("announced again-{made}: {answer:?}"),
                );
            }
        }
    }

    async fn invoke(prep: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        ARMED.set(true);
        Ok(Answer::Completed(Some(prep.text)))
    }

    async fn done(_: Sess) -> Result<Outcome, Error> {
        loop {
            host::sleep_ms(1_000).await;
        }
    }
}

guests::export!(It);
