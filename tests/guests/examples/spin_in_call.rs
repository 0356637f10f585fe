//! Computes without yielding: in a control (`/go`), in preparation
//! (`/go prepare`) and in a turn (any prompt).
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "spin-in-call";

    async fn prepare(_: Preparation, operation: Operation) -> Result<Prep, Error> {
        match operation {
            Operation::Command(text) if text == "/go prepare" => spin(),
            Operation::Command(text) => Ok(Prep {
                execution: Execution::Control,
                text,
            }),
            Operation::ModeAction(_) => Err(Error::Unsupported("no actions".to_owned())),
        }
    }

    async fn invoke(_: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        spin()
    }

    async fn done(_: Sess) -> Result<Outcome, Error> {
        spin()
    }
}

guests::export!(It);
