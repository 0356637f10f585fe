//! Answers `cancelled` although nothing was aborted: discovery (setting `case` =
//! `discover`), preparation (`/go prepare`), a control (`/go`).
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "cancelled-without-abort";

    async fn get_command_state(_: Discovery) -> Result<Option<CommandState>, Error> {
        match harness_guest::config_value("case").as_deref() {
            Some("discover") => Err(Error::Cancelled),
            _ => Ok(Some(command_state())),
        }
    }

    async fn prepare(_: Preparation, operation: Operation) -> Result<Prep, Error> {
        match operation {
            Operation::Command(text) if text != "/go prepare" => Ok(Prep {
                execution: Execution::Control,
                text,
            }),
            _ => Err(Error::Cancelled),
        }
    }

    async fn invoke(_: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        Err(Error::Cancelled)
    }
}

guests::export!(It);
