//! Traps in `done`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-done";

    async fn done(_: Sess) -> Result<Outcome, Error> {
        panic!("trap in done, as it should")
    }
}

guests::export!(It);
