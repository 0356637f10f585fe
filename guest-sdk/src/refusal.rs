//! Refusals that every provider with native commands makes alike.

use crate::types::{CommandState, Error};

/// Refuses a command that is listed as disabled, with its own reason (R23).
/// Call it first in [`Provider::prepare`](crate::Provider::prepare) with the state
/// that discovery would answer now.
///
/// Only the first token counts, compared exactly: `/plan x` is `/plan`, `/planner`
/// and ` /plan` are not.
///
/// # Errors
///
/// `NotAllowed` with the command's `disabled_reason`.
pub fn refuse_disabled(state: &CommandState, text: &str) -> Result<(), Error> {
    let Some(name) = command_name(text) else {
        return Ok(());
    };
    let reason = state
        .commands
        .iter()
        .find(|command| command.name == name)
        .and_then(|command| command.disabled_reason.clone());
    match reason {
        Some(reason) => Err(Error::NotAllowed(reason)),
        None => Ok(()),
    }
}

/// The leading `/word` of a command text, slash included.
#[must_use]
pub fn command_name(text: &str) -> Option<&str> {
    let name = text.split(char::is_whitespace).next()?;
    (name.len() > 1 && name.starts_with('/')).then_some(name)
}

/// What follows the leading `/word`: everything after the one whitespace character
/// that ends it, byte for byte. Empty when there is nothing.
#[must_use]
pub fn command_argument(text: &str) -> &str {
    text.split_once(char::is_whitespace)
        .map_or("", |(_, argument)| argument)
}

#[cfg(test)]
mod tests {
    use super::{command_argument, command_name, refuse_disabled};
    use crate::types::{Command, CommandState, Error};

    fn state() -> CommandState {
        let command = |name: &str, reason: Option<&str>| Command {
            name: name.to_owned(),
            description: String::new(),
            argument_help: None,
            composer: None,
            disabled_reason: reason.map(str::to_owned),
        };
        CommandState {
            commands: vec![
                command("/goal", None),
                command("/plan", Some("a goal is active")),
            ],
            modes: Vec::new(),
            slash_commands: true,
            note: None,
        }
    }

    #[test]
    fn r23_a_disabled_command_is_refused_with_its_own_reason() {
        let refused = Err(Error::NotAllowed("a goal is active".to_owned()));
        for text in ["/plan", "/plan x", "/plan\nx", "/plan  "] {
            assert_eq!(refuse_disabled(&state(), text), refused, "{text:?}");
        }
        for text in ["/goal", "/planner", " /plan", "plan", "/", "", "/PLAN"] {
            assert_eq!(refuse_disabled(&state(), text), Ok(()), "{text:?}");
        }
    }

    #[test]
    fn r10_the_argument_keeps_its_bytes() {
        assert_eq!(command_argument("/note  a\n b "), " a\n b ");
        assert_eq!(command_argument("/note"), "");
        assert_eq!(command_name("/note\tx"), Some("/note"));
    }
}
