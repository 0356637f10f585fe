//! Traps in `run`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-run";

    async fn run(_: Link) -> Result<(), Error> {
        panic!("trap in run, as it should")
    }
}

guests::export!(It);
