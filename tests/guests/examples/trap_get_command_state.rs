//! Traps in `get-command-state`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-get-command-state";

    async fn get_command_state(_: Discovery) -> Result<Option<CommandState>, Error> {
        panic!("trap in get-command-state, as it should")
    }
}

guests::export!(It);
