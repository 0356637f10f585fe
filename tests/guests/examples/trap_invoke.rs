//! Traps in `invoke`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-invoke";

    async fn invoke(_: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        panic!("trap in invoke, as it should")
    }
}

guests::export!(It);
