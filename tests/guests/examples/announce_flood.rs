//! Announces native turns without end, many at once, as soon as its session lives.
use guests::*;
use harness_guest::task::spawn;
use std::rc::Rc;

struct It;

impl Guest for It {
    const NAME: &'static str = "announce-flood";

    async fn run(link: Link) -> Result<(), Error> {
        let link = Rc::new(link);
        let mut made = 0u64;
        loop {
            for _ in 0..32 {
                made += 1;
                let (link, id) = (Rc::clone(&link), format!("flood-{made}"));
                spawn(async move {
                    let turn = NativeTurn {
                        id,
                        start: TurnStart::Running,
                        reason: "flood".to_owned(),
                        cause: None,
                    };
                    drop(link.announce_turn(turn).await);
                });
            }
            host::sleep_ms(1).await;
        }
    }
}

guests::export!(It);
