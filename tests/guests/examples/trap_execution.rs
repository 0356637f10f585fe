//! Traps in `prepared.execution`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-execution";

    fn execution(_: &Prep) -> Execution {
        panic!("trap in prepared.execution, as it should")
    }
}

guests::export!(It);
