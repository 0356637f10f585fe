//! Traps in `detect`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-detect";

    async fn detect(_: Discovery) -> Result<Readiness, Error> {
        panic!("trap in detect, as it should")
    }
}

guests::export!(It);
