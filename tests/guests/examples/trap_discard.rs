//! Traps in `discard`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-discard";

    fn discard(_: Prep) {
        panic!("trap in discard, as it should")
    }
}

guests::export!(It);
