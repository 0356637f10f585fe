//! Native commands, modes and operations, as a provider publishes and takes them.
//!
//! Invariants: a command state is data, relayed unchanged (R6), never stored (R12), refused as a
//! whole when it breaks a limit (R7, I44). Wire names are the provider vocabulary in camelCase.
//! Not here: what any command means (G3).

use crate::ids::HarnessId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// Largest command text (R7), in bytes.
pub const MAX_COMMAND_TEXT: usize = 1024 * 1024;
/// Largest mode-action argument (R7), in bytes.
pub const MAX_ARGUMENT: usize = 256 * 1024;
/// Largest native reply in a result (R26), in bytes.
pub const MAX_REPLY: usize = 64 * 1024;
/// Largest reason or error text from a provider (§3), in bytes.
pub const MAX_REASON: usize = 4 * 1024;

/// A request for something native (R20): a closed, strict union.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Operation {
    /// Raw native text, byte for byte (R10). 1 B to 1 MiB.
    #[serde(rename = "command")]
    Command {
        /// The text with its sigil, e.g. `/goal ship it`.
        text: String,
    },
    /// An advertised action of a native mode.
    #[serde(rename = "mode-action", rename_all = "camelCase")]
    ModeAction {
        /// The mode.
        mode_id: String,
        /// The action.
        action_id: String,
        /// Its one text argument, up to 256 KiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argument: Option<String>,
    },
}

/// An operation that breaks R7.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationLimit {
    /// Empty text or id.
    #[error("`{field}` must not be empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// Too long.
    #[error("`{field}` has {bytes} bytes; at most {limit} are taken")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// What was given.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

impl Operation {
    /// Checks the input limits of R7.
    ///
    /// # Errors
    /// The first limit that is broken.
    pub fn check(&self) -> Result<(), OperationLimit> {
        let at_most = |field, text: &str, limit| {
            if text.len() > limit {
                Err(OperationLimit::TooLarge {
                    field,
                    bytes: text.len(),
                    limit,
                })
            } else {
                Ok(())
            }
        };
        let some = |field, text: &str| {
            if text.is_empty() {
                Err(OperationLimit::Empty { field })
            } else {
                Ok(())
            }
        };
        match self {
            Self::Command { text } => {
                some("text", text)?;
                at_most("text", text, MAX_COMMAND_TEXT)
            }
            Self::ModeAction {
                mode_id,
                action_id,
                argument,
            } => {
                some("modeId", mode_id)?;
                some("actionId", action_id)?;
                at_most("modeId", mode_id, MAX_ID)?;
                at_most("actionId", action_id, MAX_ID)?;
                at_most("argument", argument.as_deref().unwrap_or(""), MAX_ARGUMENT)
            }
        }
    }
}

/// How an operation runs, as the provider's preparation classified it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Execution {
    /// May run beside a turn, takes no slot, always completes within its call.
    Control,
    /// Needs a slot and the session to itself; completes at once or starts a turn.
    Exclusive,
}

/// Lets the composer tag an existing draft with the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Composer {
    /// Label of the tag.
    pub label: String,
    /// Native mode that can confirm the submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_id: Option<String>,
    /// Native action words that cannot be a draft objective.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved_arguments: Vec<String>,
}

/// A native command (R2). Help, not an allow-list (R10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NativeCommand {
    /// With its sigil; matches `^/[^\s/]+$`.
    pub name: String,
    /// For a person.
    pub description: String,
    /// How its arguments look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument_help: Option<String>,
    /// Composer tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composer: Option<Composer>,
    /// Why it cannot be used right now (R23).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
}

/// Tone of a status dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Tone {
    /// No judgement.
    Neutral,
    /// For information.
    Info,
    /// Well.
    Success,
    /// Look here.
    Warning,
    /// Failed.
    Error,
}

/// A small status dot with its accessible label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Indicator {
    /// Accessible label.
    pub label: String,
    /// Its tone.
    pub tone: Tone,
}

/// The one text argument an action can request (R4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActionArgument {
    /// Label of the field.
    pub label: String,
    /// Prefill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// An action of a native mode (R4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModeAction {
    /// Unique within its mode.
    pub id: String,
    /// For a person.
    pub label: String,
    /// Name from the shared icon set; implies no behaviour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// Its argument, if it takes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<ActionArgument>,
}

/// A native decision that takes over the composer (R5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Confirmation {
    /// Native revision; passed back as the action's argument.
    pub id: String,
    /// What is to be decided.
    pub title: String,
    /// One of the mode's advertised actions.
    pub action_id: String,
    /// Label of the button that goes on without approving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_label: Option<String>,
    /// Authoritative read-back of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Native state worth showing (R3). Never stored by the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NativeMode {
    /// Unique in the state.
    pub id: String,
    /// For a person.
    pub label: String,
    /// May hold a whole plan.
    pub description: String,
    /// Native word for its state.
    pub state: String,
    /// Short summary for the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag_text: Option<String>,
    /// Status dot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indicator: Option<Indicator>,
    /// Action that closing the tag invokes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close_action_id: Option<String>,
    /// What can be done with it.
    pub actions: Vec<ModeAction>,
    /// An open native decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
}

/// What discovery reads back from a provider (R1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommandState {
    /// Native commands.
    pub commands: Vec<NativeCommand>,
    /// Native modes.
    pub modes: Vec<NativeMode>,
    /// Leading "/word" text goes to the provider, listed or not.
    pub slash_commands: bool,
    /// Why the lists are empty or partial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

const MAX_ID: usize = 128;
const MAX_TEXT: usize = 4 * 1024;
const MAX_MODE_DESCRIPTION: usize = 256 * 1024;
const MAX_STATE: usize = 4 * 1024 * 1024;

impl CommandState {
    /// Checks every limit of R7. One breach refuses the whole state.
    ///
    /// # Errors
    /// A sentence that names the first breach, its place and the limit.
    pub fn check(&self) -> Result<(), String> {
        count("commands", self.commands.len(), 256)?;
        count("modes", self.modes.len(), 64)?;
        optional("note", self.note.as_deref())?;
        let mut names = HashSet::new();
        for command in &self.commands {
            command.check()?;
            if !names.insert(command.name.as_str()) {
                return Err(format!("command `{}` is listed twice", command.name));
            }
        }
        let mut ids = HashSet::new();
        for mode in &self.modes {
            mode.check()?;
            if !ids.insert(mode.id.as_str()) {
                return Err(format!("mode `{}` is listed twice", mode.id));
            }
        }
        let bytes = serde_json::to_vec(self).map_err(|e| e.to_string())?.len();
        if bytes > MAX_STATE {
            return Err(format!(
                "the serialised state has {bytes} bytes; the limit is {MAX_STATE}"
            ));
        }
        Ok(())
    }

    /// The revision token of R1: equal inputs give equal tokens, across sessions and restarts.
    #[must_use]
    pub fn revision(&self, harness: &HarnessId) -> String {
        #[derive(Serialize)]
        struct CommandView<'a>(&'a str, &'a Option<Composer>, &'a Option<String>);
        #[derive(Serialize)]
        struct ModeView<'a>(
            &'a str,
            &'a str,
            &'a [ModeAction],
            &'a Option<String>,
            &'a Option<Confirmation>,
        );
        let commands: Vec<_> = self
            .commands
            .iter()
            .map(|c| CommandView(&c.name, &c.composer, &c.disabled_reason))
            .collect();
        let modes: Vec<_> = self
            .modes
            .iter()
            .map(|m| {
                ModeView(
                    &m.id,
                    &m.description,
                    &m.actions,
                    &m.close_action_id,
                    &m.confirmation,
                )
            })
            .collect();
        let mut digest = Sha256::new();
        // A JSON array is an unambiguous encoding of the inputs in list order.
        if let Ok(bytes) =
            serde_json::to_vec(&(harness.as_str(), self.slash_commands, commands, modes))
        {
            digest.update(bytes);
        }
        hex::encode(digest.finalize())
    }
}

impl NativeCommand {
    fn check(&self) -> Result<(), String> {
        id("command name", &self.name)?;
        let rest = self.name.strip_prefix('/').unwrap_or("");
        if rest.is_empty() || rest.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err(format!(
                "command name `{}` does not match ^/[^\\s/]+$",
                self.name
            ));
        }
        text("command description", &self.description, MAX_TEXT)?;
        optional("argumentHelp", self.argument_help.as_deref())?;
        optional("disabledReason", self.disabled_reason.as_deref())?;
        if let Some(composer) = &self.composer {
            id("composer label", &composer.label)?;
            optional_id("composer modeId", composer.mode_id.as_deref())?;
            count("reservedArguments", composer.reserved_arguments.len(), 64)?;
            for word in &composer.reserved_arguments {
                id("reserved argument", word)?;
            }
        }
        Ok(())
    }
}

impl NativeMode {
    fn check(&self) -> Result<(), String> {
        id("mode id", &self.id)?;
        id("mode label", &self.label)?;
        text("mode description", &self.description, MAX_MODE_DESCRIPTION)?;
        text("mode state", &self.state, MAX_TEXT)?;
        optional("tagText", self.tag_text.as_deref())?;
        optional_id("closeActionId", self.close_action_id.as_deref())?;
        if let Some(indicator) = &self.indicator {
            id("indicator label", &indicator.label)?;
        }
        count("actions", self.actions.len(), 64)?;
        let mut ids = HashSet::new();
        for action in &self.actions {
            id("action id", &action.id)?;
            id("action label", &action.label)?;
            optional_id("icon", action.icon.as_deref())?;
            if let Some(argument) = &action.argument {
                id("argument label", &argument.label)?;
                text(
                    "argument value",
                    argument.value.as_deref().unwrap_or(""),
                    MAX_ARGUMENT,
                )?;
            }
            if !ids.insert(action.id.as_str()) {
                return Err(format!(
                    "action `{}` of mode `{}` is listed twice",
                    action.id, self.id
                ));
            }
        }
        if let Some(confirmation) = &self.confirmation {
            id("confirmation id", &confirmation.id)?;
            id("confirmation title", &confirmation.title)?;
            id("confirmation actionId", &confirmation.action_id)?;
            optional_id("cancelLabel", confirmation.cancel_label.as_deref())?;
            optional_id("confirmation model", confirmation.model.as_deref())?;
        }
        Ok(())
    }
}

fn count(what: &str, n: usize, limit: usize) -> Result<(), String> {
    if n > limit {
        Err(format!("{n} {what}; the limit is {limit}"))
    } else {
        Ok(())
    }
}

fn text(what: &str, value: &str, limit: usize) -> Result<(), String> {
    if value.len() > limit {
        Err(format!(
            "{what} has {} bytes; the limit is {limit}",
            value.len()
        ))
    } else {
        Ok(())
    }
}

fn optional(what: &str, value: Option<&str>) -> Result<(), String> {
    text(what, value.unwrap_or(""), MAX_TEXT)
}

fn id(what: &str, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!("{what} is empty; 1 to {MAX_ID} bytes are expected"));
    }
    text(what, value, MAX_ID)
}

fn optional_id(what: &str, value: Option<&str>) -> Result<(), String> {
    value.map_or(Ok(()), |value| id(what, value))
}

#[cfg(test)]
mod tests;
