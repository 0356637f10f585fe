//! Uses the CPU all the time, yet yields: computes between sleeps of no length, in
//! every turn.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "spin-zero-sleeps";

    async fn done(_: Sess) -> Result<Outcome, Error> {
        loop {
            for n in 0..100_000u32 {
                std::hint::black_box(n);
            }
            host::sleep_ms(0).await;
        }
    }
}

guests::export!(It);
