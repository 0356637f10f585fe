//! Traps in `describe`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-describe";

    fn describe() -> HarnessInfo {
        panic!("trap in describe, as it should")
    }
}

guests::export!(It);
