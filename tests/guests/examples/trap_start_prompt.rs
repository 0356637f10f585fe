//! Traps in `start-prompt`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-start-prompt";

    async fn start_prompt(_: Input, _: Channel) -> Result<Sess, Error> {
        panic!("trap in start-prompt, as it should")
    }
}

guests::export!(It);
