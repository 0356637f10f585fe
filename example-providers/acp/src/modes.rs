//! Session modes and config options, as native modes with actions.
//!
//! ACP has two ways to offer a choice: *session modes* (one current of several)
//! and *config options* (a select or a switch each). Both become native modes of
//! the host: the current choice is the mode's state, every other one an action.
//! An agent that also offers its modes as a config option of category `mode` is
//! shown by that one alone, as the protocol asks.

use crate::protocol::{ConfigOption, ConfigValue, SessionModes};
use harness_guest::limits::{ACTIONS, MODES, NAME_BYTES, TEXT_BYTES, shorten};
use harness_guest::types::{Error, Indicator, Mode, ModeAction, ModeActionOperation, Tone};
use std::collections::HashSet;

/// Mode id of the session modes.
const SESSION_MODE: &str = "mode";
/// Before the id of a config option.
const OPTION_PREFIX: &str = "config:";
/// Before the value that an action chooses.
const SET_PREFIX: &str = "set:";
const ON: &str = "on";
const OFF: &str = "off";

/// What the agent said last about the choices of this conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    pub(crate) modes: Option<SessionModes>,
    pub(crate) options: Vec<ConfigOption>,
}

/// A validated choice: what is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choose {
    Mode {
        id: String,
        name: String,
    },
    Select {
        option: String,
        value: String,
        name: String,
    },
    Switch {
        option: String,
        on: bool,
        name: String,
    },
}

impl Choose {
    /// For the reply: what is set to what.
    pub(crate) fn reply(&self) -> String {
        match self {
            Self::Mode { name, .. } => format!("Mode: {name}"),
            Self::Select { name, .. } => name.clone(),
            Self::Switch { name, on, .. } => format!("{name}: {}", if *on { ON } else { OFF }),
        }
    }
}

impl Choices {
    /// The native modes, and what is to be said about choices that are not shown.
    pub(crate) fn publish(&self) -> (Vec<Mode>, Option<String>) {
        let mut left_out = 0_usize;
        let mut published: Vec<Mode> = Vec::new();
        if let Some(modes) = self.session_modes() {
            published.extend(session_mode(modes, &mut left_out));
        }
        let mut seen = HashSet::new();
        for option in &self.options {
            if published.len() < MODES && seen.insert(&option.id) {
                published.extend(config_mode(option, &mut left_out));
            } else {
                left_out += 1;
            }
        }
        let note = (left_out > 0)
            .then(|| format!("{left_out} modes or choices of the agent cannot be shown here."));
        (published, note)
    }

    /// The session modes, unless a config option stands for them.
    fn session_modes(&self) -> Option<&SessionModes> {
        let replaced = self
            .options
            .iter()
            .any(|option| option.category.as_deref() == Some("mode"));
        self.modes.as_ref().filter(|_| !replaced)
    }

    /// What an operation asks for.
    ///
    /// # Errors
    ///
    /// `invalid-operation` for a mode, action or argument that is not offered.
    pub(crate) fn choose(&self, operation: &ModeActionOperation) -> Result<Choose, Error> {
        let action = operation.action_id.as_str();
        let invalid = |what: &str| Error::InvalidOperation(what.to_owned());
        if operation.argument.is_some() {
            return Err(invalid("this action takes no argument"));
        }
        let no_action = || {
            invalid(&format!(
                "mode {:?} has no action {action:?}",
                operation.mode_id
            ))
        };
        if operation.mode_id == SESSION_MODE {
            let modes = self
                .session_modes()
                .ok_or_else(|| invalid("the agent has no session modes"))?;
            let id = action.strip_prefix(SET_PREFIX).ok_or_else(no_action)?;
            let mode = modes
                .available_modes
                .iter()
                .find(|mode| mode.id == id)
                .ok_or_else(no_action)?;
            return Ok(Choose::Mode {
                id: mode.id.clone(),
                name: mode.name.clone(),
            });
        }
        let option = operation
            .mode_id
            .strip_prefix(OPTION_PREFIX)
            .and_then(|id| self.options.iter().find(|option| option.id == id))
            .ok_or_else(|| invalid(&format!("there is no mode {:?}", operation.mode_id)))?;
        match &option.value {
            ConfigValue::Boolean { .. } if action == ON || action == OFF => Ok(Choose::Switch {
                option: option.id.clone(),
                on: action == ON,
                name: option.name.clone(),
            }),
            ConfigValue::Boolean { .. } => Err(no_action()),
            ConfigValue::Select { options, .. } => action
                .strip_prefix(SET_PREFIX)
                .and_then(|value| options.iter().find(|choice| choice.value == value))
                .map(|choice| Choose::Select {
                    option: option.id.clone(),
                    value: choice.value.clone(),
                    name: format!("{}: {}", option.name, choice.name),
                })
                .ok_or_else(no_action),
        }
    }
}

fn session_mode(modes: &SessionModes, left_out: &mut usize) -> Option<Mode> {
    let current = modes
        .available_modes
        .iter()
        .find(|mode| mode.id == modes.current_mode_id);
    let name = current.map_or(modes.current_mode_id.as_str(), |mode| mode.name.as_str());
    let choices = modes
        .available_modes
        .iter()
        .map(|mode| (mode.id.as_str(), mode.name.as_str()));
    Some(Mode {
        id: SESSION_MODE.to_owned(),
        label: "Mode".to_owned(),
        description: current
            .and_then(|mode| mode.description.as_deref())
            .map(|text| shorten(text, TEXT_BYTES))
            .unwrap_or_default(),
        state: shorten(name, TEXT_BYTES),
        tag_text: Some(shorten(name, TEXT_BYTES)),
        indicator: None,
        actions: set_actions(choices, &modes.current_mode_id, left_out),
        close_action_id: None,
        confirmation: None,
    })
}

fn config_mode(option: &ConfigOption, left_out: &mut usize) -> Option<Mode> {
    let id = format!("{OPTION_PREFIX}{}", option.id);
    if id.len() > NAME_BYTES || option.id.is_empty() {
        *left_out += 1;
        return None;
    }
    let (state, indicator, actions) = match &option.value {
        ConfigValue::Boolean { current_value } => {
            let on = *current_value;
            let (next, label) = if on {
                (OFF, "Turn off")
            } else {
                (ON, "Turn on")
            };
            let tone = if on { Tone::Info } else { Tone::Neutral };
            let state = if on { ON } else { OFF };
            (
                state.to_owned(),
                Some(Indicator {
                    label: state.to_owned(),
                    tone,
                }),
                vec![action(next.to_owned(), label.to_owned())],
            )
        }
        ConfigValue::Select {
            current_value,
            options,
        } => {
            let name = options
                .iter()
                .find(|choice| choice.value == *current_value)
                .map_or(current_value.as_str(), |choice| choice.name.as_str());
            let choices = options
                .iter()
                .map(|choice| (choice.value.as_str(), choice.name.as_str()));
            (
                shorten(name, TEXT_BYTES),
                None,
                set_actions(choices, current_value, left_out),
            )
        }
    };
    Some(Mode {
        id,
        label: named(&option.name, &option.id),
        description: option
            .description
            .as_deref()
            .map(|text| shorten(text, TEXT_BYTES))
            .unwrap_or_default(),
        tag_text: Some(state.clone()),
        state,
        indicator,
        actions,
        close_action_id: None,
        confirmation: None,
    })
}

/// One action for each choice but the current one.
fn set_actions<'a>(
    choices: impl Iterator<Item = (&'a str, &'a str)>,
    current: &str,
    left_out: &mut usize,
) -> Vec<ModeAction> {
    let mut seen = HashSet::new();
    let mut actions = Vec::new();
    for (value, name) in choices {
        if value == current || !seen.insert(value) {
            continue;
        }
        let id = format!("{SET_PREFIX}{value}");
        if id.len() > NAME_BYTES || actions.len() >= ACTIONS {
            *left_out += 1;
            continue;
        }
        actions.push(action(id, named(name, value)));
    }
    actions
}

fn action(id: String, label: String) -> ModeAction {
    ModeAction {
        id,
        label,
        icon: None,
        argument: None,
    }
}

/// A label within the limits that is never empty.
fn named(name: &str, id: &str) -> String {
    let name = if name.trim().is_empty() { id } else { name };
    let name = if name.trim().is_empty() {
        "unnamed"
    } else {
        name
    };
    shorten(name, NAME_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn choices() -> Choices {
        Choices {
            modes: serde_json::from_value(json!({
                "currentModeId": "ask",
                "availableModes": [{"id": "ask", "name": "Ask", "description": "asks first"},
                    {"id": "code", "name": "Code"}],
            }))
            .expect("modes"),
            options: serde_json::from_value(json!([
                {"id": "model", "name": "Model", "type": "select", "currentValue": "s",
                 "options": [{"value": "s", "name": "Small"}, {"value": "l", "name": "Large"}]},
                {"id": "verbose", "name": "Verbose", "type": "boolean", "currentValue": true},
            ]))
            .expect("options"),
        }
    }

    fn operation(mode: &str, action: &str, argument: Option<&str>) -> ModeActionOperation {
        ModeActionOperation {
            mode_id: mode.to_owned(),
            action_id: action.to_owned(),
            argument: argument.map(str::to_owned),
        }
    }

    #[test]
    fn each_choice_is_a_mode_whose_actions_are_the_others() {
        let (modes, note) = choices().publish();
        let seen: Vec<_> = modes
            .iter()
            .map(|mode| {
                let actions: Vec<_> = mode.actions.iter().map(|a| a.id.as_str()).collect();
                (mode.id.as_str(), mode.state.as_str(), actions)
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("mode", "Ask", vec!["set:code"]),
                ("config:model", "Small", vec!["set:l"]),
                ("config:verbose", "on", vec!["off"]),
            ]
        );
        assert_eq!(note, None);
    }

    #[test]
    fn an_option_of_category_mode_stands_for_the_session_modes() {
        let mut choices = choices();
        if let Some(option) = choices.options.first_mut() {
            option.category = Some("mode".to_owned());
        }
        let (modes, _) = choices.publish();
        assert!(modes.iter().all(|mode| mode.id != SESSION_MODE));
        assert!(
            choices
                .choose(&operation("mode", "set:code", None))
                .is_err()
        );
    }

    #[test]
    fn r21_only_offered_choices_are_valid() {
        let valid = [
            ("mode", "set:code"),
            ("config:model", "set:l"),
            ("config:verbose", "off"),
        ];
        for (mode, action) in valid {
            assert!(
                choices().choose(&operation(mode, action, None)).is_ok(),
                "{mode} {action}"
            );
        }
        let invalid = [
            ("mode", "set:nope"),
            ("mode", "code"),
            ("config:model", "on"),
            ("config:verbose", "set:true"),
            ("config:nope", "on"),
            ("nope", "x"),
        ];
        for (mode, action) in invalid {
            assert!(
                matches!(
                    choices().choose(&operation(mode, action, None)),
                    Err(Error::InvalidOperation(_))
                ),
                "{mode} {action}"
            );
        }
        assert!(
            choices()
                .choose(&operation("mode", "set:code", Some("x")))
                .is_err()
        );
    }

    #[test]
    fn r7_modes_and_actions_stay_within_the_limits() {
        let options: Vec<_> = (0..100)
            .map(|n| {
                let values: Vec<_> = (0..200)
                    .map(|v| json!({"value": format!("v{v}"), "name": ""}))
                    .collect();
                json!({"id": format!("o{n}"), "name": "n".repeat(500), "type": "select",
                       "currentValue": "v0", "options": values})
            })
            .collect();
        let choices = Choices {
            modes: None,
            options: serde_json::from_value(json!(options)).expect("options"),
        };
        let (modes, note) = choices.publish();
        assert_eq!(modes.len(), MODES);
        assert!(modes.iter().all(|mode| mode.actions.len() == ACTIONS
            && mode.label.len() <= NAME_BYTES
            && mode.actions.iter().all(|a| !a.label.is_empty())));
        assert!(note.is_some());
    }
}
