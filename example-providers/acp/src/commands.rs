//! Native commands: how an agent's names are spelled in the host.
//!
//! The host knows a command by one word after a slash. ACP names may hold spaces
//! (`mcp list`), a sigil (`$review`) or what no word can hold. The text of an
//! operation still reaches the agent byte for byte; only the *listing* is mapped:
//!
//! - `mcp list`, `mcp add` → `/mcp`, once, with `list | add <name>` as help;
//! - `$review` → `/$review`; a leading slash of the agent's own is not doubled;
//! - a first word that is empty, too long, or holds a slash is left out and named
//!   in the note.

use crate::protocol::AvailableCommand;
use harness_guest::limits::{COMMANDS, NAME_BYTES, shorten};
use harness_guest::types::Command;
use std::collections::HashMap;

/// Names listed in a note before it says "and so many more".
const NAMED: usize = 10;
/// Bytes of a description or help text: 256 of them must fit the whole state.
const HELP_BYTES: usize = 1024;

/// The listing, and what is to be said about names that are not in it.
pub(crate) fn publish(commands: &[AvailableCommand]) -> (Vec<Command>, Option<String>) {
    let mut listed: Vec<Command> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut left_out: Vec<String> = Vec::new();
    for command in commands {
        let Some((name, rest)) = spell(&command.name) else {
            left_out.push(format!("{:?}", shorten(&command.name, 64)));
            continue;
        };
        let help = help(&rest, command);
        if let Some(first) = places.get(&name).and_then(|place| listed.get_mut(*place)) {
            first.argument_help = match (first.argument_help.take(), help) {
                (Some(one), Some(other)) => Some(shorten(&format!("{one} | {other}"), HELP_BYTES)),
                (one, other) => one.or(other),
            };
            continue;
        }
        if listed.len() >= COMMANDS {
            left_out.push(name);
            continue;
        }
        places.insert(name.clone(), listed.len());
        listed.push(Command {
            name,
            description: shorten(&command.description, HELP_BYTES),
            argument_help: help,
            composer: None,
            disabled_reason: None,
        });
    }
    (listed, note(&left_out))
}

/// The word of the host and the remaining words of the native name.
fn spell(native: &str) -> Option<(String, String)> {
    let mut words = native.split_whitespace();
    let first = words.next()?;
    let word = first.strip_prefix('/').unwrap_or(first);
    let legal = !word.is_empty()
        && word.len() < NAME_BYTES
        && !word.contains('/')
        && !word.contains(char::is_control);
    legal.then(|| (format!("/{word}"), words.collect::<Vec<_>>().join(" ")))
}

fn help(rest: &str, command: &AvailableCommand) -> Option<String> {
    let hint = command
        .input
        .as_ref()
        .map(|input| input.hint.trim())
        .filter(|hint| !hint.is_empty());
    let text = match (rest.is_empty(), hint) {
        (true, None) => return None,
        (true, Some(hint)) => hint.to_owned(),
        (false, None) => rest.to_owned(),
        (false, Some(hint)) => format!("{rest} <{hint}>"),
    };
    Some(shorten(&text, HELP_BYTES))
}

fn note(left_out: &[String]) -> Option<String> {
    if left_out.is_empty() {
        return None;
    }
    let named = left_out
        .iter()
        .take(NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let more = left_out.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Some(format!(
        "Commands that cannot be listed here: {named}{more}."
    ))
}

/// Whether `text` begins as a native command does: one word after a slash.
pub(crate) fn is_command(text: &str) -> bool {
    text.strip_prefix('/').is_some_and(|rest| {
        let word = rest.split(char::is_whitespace).next().unwrap_or_default();
        !word.is_empty() && !word.contains('/')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::CommandInput;

    fn native(name: &str, hint: Option<&str>) -> AvailableCommand {
        AvailableCommand {
            name: name.to_owned(),
            description: format!("about {name}"),
            input: hint.map(|hint| CommandInput {
                hint: hint.to_owned(),
            }),
        }
    }

    fn check(commands: &[AvailableCommand], expected: &[(&str, Option<&str>)]) {
        let (listed, _) = publish(commands);
        let listed: Vec<_> = listed
            .iter()
            .map(|c| (c.name.as_str(), c.argument_help.as_deref()))
            .collect();
        assert_eq!(listed, expected);
    }

    #[test]
    fn names_with_spaces_are_listed_once_by_their_first_word() {
        check(
            &[
                native("mcp list", None),
                native("mcp add", Some("name")),
                native("web", Some("query")),
                native("mcp", None),
            ],
            &[("/mcp", Some("list | add <name>")), ("/web", Some("query"))],
        );
    }

    #[test]
    fn sigils_stay_and_a_slash_is_not_doubled() {
        check(
            &[native("$review", None), native("/compact", None)],
            &[("/$review", None), ("/compact", None)],
        );
    }

    #[test]
    fn what_cannot_be_spelled_is_named_in_the_note() {
        let long = "x".repeat(200);
        let (listed, note) = publish(&[
            native("bad/name", None),
            native("", None),
            native("  ", None),
            native("/", None),
            native(&long, None),
            native("good", None),
        ]);
        assert_eq!(listed.len(), 1);
        let note = note.expect("a note");
        assert!(
            note.contains("\"bad/name\"") && note.contains("\"/\""),
            "{note}"
        );
    }

    #[test]
    fn r7_the_listing_stays_within_the_limits() {
        let many: Vec<_> = (0..1000)
            .map(|n| {
                let mut command = native(&format!("c{n}"), Some(&"h".repeat(10_000)));
                command.description = "d".repeat(10_000);
                command
            })
            .collect();
        let (listed, note) = publish(&many);
        assert_eq!(listed.len(), COMMANDS);
        assert!(listed.iter().all(|c| {
            c.description.len() <= HELP_BYTES
                && c.argument_help
                    .as_ref()
                    .is_some_and(|h| h.len() <= HELP_BYTES)
        }));
        assert!(note.is_some_and(|note| note.contains("and 734 more")));
    }

    #[test]
    fn r10_only_one_word_after_a_slash_is_a_command() {
        for text in ["/plan", "/plan x", "/$x\ny"] {
            assert!(is_command(text), "{text}");
        }
        for text in ["/usr/bin x", " /plan", "/", "/ x", "plan"] {
            assert!(!is_command(text), "{text}");
        }
    }
}
