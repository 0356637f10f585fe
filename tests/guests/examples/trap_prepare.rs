//! Traps in `prepare-operation`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-prepare";

    async fn prepare(_: Preparation, _: Operation) -> Result<Prep, Error> {
        panic!("trap in prepare-operation, as it should")
    }
}

guests::export!(It);
