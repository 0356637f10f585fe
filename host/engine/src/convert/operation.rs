//! Contexts, operations, command states and outcomes.

use super::message::usage;
use crate::bindings::exports::harness::provider::provider as out;
use crate::bindings::harness::provider::types as wit;
use harness_core::operation::{
    ActionArgument, CommandState, Composer, Confirmation, Execution, Indicator, MAX_REPLY,
    ModeAction, NativeCommand, NativeMode, Operation, Tone,
};
use harness_core::provider::{
    ChannelError, Compaction, DiscoveryContext, NativeTurn, OperationContext, Outcome, ParamValue,
    Params, TurnStart, Workspace,
};
use std::collections::btree_map::Entry;

/// Largest number of entries of a params patch.
const MAX_PARAMS: usize = 256;
/// Largest parameter id and text value, in bytes.
const MAX_PARAM_ID: usize = 128;
const MAX_PARAM_VALUE: usize = 16 * 1024;

fn workspace(workspace: Workspace) -> wit::Workspace {
    match workspace {
        Workspace::Local { id, root_path } => wit::Workspace::Local(wit::LocalWorkspace {
            id: id.to_string(),
            root_path,
        }),
        Workspace::Remote { id, host, path } => wit::Workspace::Remote(wit::RemoteWorkspace {
            id: id.to_string(),
            host,
            path,
        }),
    }
}

/// The workspace a guest names. Only its kind and root path count; an id that is none is refused.
pub(crate) fn workspace_from(workspace: wit::Workspace) -> Option<Workspace> {
    Some(match workspace {
        wit::Workspace::Local(local) => Workspace::Local {
            id: local.id.parse().ok()?,
            root_path: local.root_path,
        },
        wit::Workspace::Remote(remote) => Workspace::Remote {
            id: remote.id.parse().ok()?,
            host: remote.host,
            path: remote.path,
        },
    })
}

fn params(params: Params) -> Vec<wit::Param> {
    let value = |value| match value {
        ParamValue::Boolean(value) => wit::ParamValue::Boolean(value),
        ParamValue::Text(value) => wit::ParamValue::Text(value),
    };
    params
        .into_iter()
        .map(|(id, v)| wit::Param {
            id,
            value: value(v),
        })
        .collect()
}

/// A params patch of a provider.
///
/// # Errors
/// A sentence on a duplicate, an empty or oversize id or an oversize value (W4).
pub(crate) fn params_from(list: Vec<wit::Param>) -> Result<Params, String> {
    if list.len() > MAX_PARAMS {
        return Err(format!(
            "a params patch has {} entries; the limit is {MAX_PARAMS}",
            list.len()
        ));
    }
    let mut patch = Params::new();
    for wit::Param { id, value } in list {
        if id.is_empty() || id.len() > MAX_PARAM_ID {
            return Err(format!(
                "a parameter id has {} bytes; 1 to {MAX_PARAM_ID} are expected",
                id.len()
            ));
        }
        let value = match value {
            wit::ParamValue::Boolean(value) => ParamValue::Boolean(value),
            wit::ParamValue::Text(text) if text.len() > MAX_PARAM_VALUE => {
                return Err(format!(
                    "parameter `{id}` has {} bytes; the limit is {MAX_PARAM_VALUE}",
                    text.len()
                ));
            }
            wit::ParamValue::Text(text) => ParamValue::Text(text),
        };
        match patch.entry(id) {
            Entry::Occupied(entry) => {
                return Err(format!("parameter `{}` is given twice", entry.key()));
            }
            Entry::Vacant(entry) => entry.insert(value),
        };
    }
    Ok(patch)
}

/// Input of discovery and of the link.
pub(crate) fn discovery_context(context: DiscoveryContext) -> wit::DiscoveryContext {
    wit::DiscoveryContext {
        project_id: context.project_id.into(),
        session_id: context.session_id.map(|id| id.to_string()),
        native_session_id: context.native_session_id,
        workspace: context.workspace.map(workspace),
        model: context.model,
        effort: context.effort,
        loop_mode: context.loop_mode,
        params: params(context.params),
    }
}

/// Input of preparation and invocation.
pub(crate) fn operation_context(context: OperationContext) -> wit::OperationContext {
    wit::OperationContext {
        project_id: context.project_id.into(),
        session_id: context.session_id.to_string(),
        loop_id: context.loop_id.to_string(),
        native_session_id: context.native_session_id,
        workspace: context.workspace.map(workspace),
        model: context.model,
        effort: context.effort,
        loop_mode: context.loop_mode,
        params: params(context.params),
    }
}

/// An operation for the guest, byte for byte (R10).
pub(crate) fn operation(operation: Operation) -> wit::Operation {
    match operation {
        Operation::Command { text } => wit::Operation::Command(text),
        Operation::ModeAction {
            mode_id,
            action_id,
            argument,
        } => wit::Operation::ModeAction(wit::ModeActionOperation {
            mode_id,
            action_id,
            argument,
        }),
    }
}

/// How an operation runs.
pub(crate) fn execution(execution: out::Execution) -> Execution {
    match execution {
        out::Execution::Control => Execution::Control,
        out::Execution::Exclusive => Execution::Exclusive,
    }
}

/// What a completed operation or turn reports.
///
/// # Errors
/// A sentence on an oversize message or a malformed patch (W3, W4).
pub(crate) fn outcome(outcome: wit::Outcome) -> Result<Outcome, String> {
    if let Some(message) = &outcome.message
        && message.len() > MAX_REPLY
    {
        return Err(format!(
            "the reply message has {} bytes; the limit is {MAX_REPLY}",
            message.len()
        ));
    }
    Ok(Outcome {
        message: outcome.message,
        params: params_from(outcome.params)?,
    })
}

/// Largest summary of a compaction, in bytes.
const MAX_SUMMARY: usize = 1024 * 1024;

/// What `compact` returned.
///
/// # Errors
/// A sentence on an oversize summary.
pub(crate) fn compaction(compaction: wit::Compaction) -> Result<Compaction, String> {
    if let Some(summary) = &compaction.summary
        && summary.len() > MAX_SUMMARY
    {
        return Err(format!(
            "the summary has {} bytes; the limit is {MAX_SUMMARY}",
            summary.len()
        ));
    }
    Ok(Compaction {
        summary: compaction.summary,
        usage: compaction.usage.map(usage),
    })
}

/// An announcement.
///
/// # Errors
/// `Limit` for an id, reason or cause out of bounds.
pub(crate) fn native_turn(turn: wit::NativeTurn) -> Result<NativeTurn, ChannelError> {
    let bound = |what: &str, text: &str, limit: usize| {
        if text.is_empty() || text.len() > limit {
            let bytes = text.len();
            return Err(ChannelError::Limit(format!(
                "{what} has {bytes} bytes; 1 to {limit} are expected"
            )));
        }
        Ok(())
    };
    bound("a native turn id", &turn.id, 256)?;
    bound("the reason of a native turn", &turn.reason, 128)?;
    if let Some(cause) = &turn.cause {
        bound("the cause of a native turn", cause, 256)?;
    }
    Ok(NativeTurn {
        id: turn.id,
        start: match turn.start {
            wit::TurnStart::Running => TurnStart::Running,
            wit::TurnStart::Wanted => TurnStart::Wanted,
        },
        reason: turn.reason,
        cause: turn.cause,
    })
}

/// A command state, unchanged (R6); its limits (R7) are checked by the caller.
pub(crate) fn command_state(state: wit::CommandState) -> CommandState {
    CommandState {
        commands: state.commands.into_iter().map(command).collect(),
        modes: state.modes.into_iter().map(mode).collect(),
        slash_commands: state.slash_commands,
        note: state.note,
    }
}

fn command(command: wit::Command) -> NativeCommand {
    NativeCommand {
        name: command.name,
        description: command.description,
        argument_help: command.argument_help,
        composer: command.composer.map(|tag| Composer {
            label: tag.label,
            mode_id: tag.mode_id,
            reserved_arguments: tag.reserved_arguments,
        }),
        disabled_reason: command.disabled_reason,
    }
}

fn mode(mode: wit::Mode) -> NativeMode {
    NativeMode {
        id: mode.id,
        label: mode.label,
        description: mode.description,
        state: mode.state,
        tag_text: mode.tag_text,
        indicator: mode.indicator.map(|i| Indicator {
            label: i.label,
            tone: tone(i.tone),
        }),
        close_action_id: mode.close_action_id,
        actions: mode
            .actions
            .into_iter()
            .map(|a| ModeAction {
                id: a.id,
                label: a.label,
                icon: a.icon,
                argument: a.argument.map(|a| ActionArgument {
                    label: a.label,
                    value: a.value,
                }),
            })
            .collect(),
        confirmation: mode.confirmation.map(|c| Confirmation {
            id: c.id,
            title: c.title,
            action_id: c.action_id,
            cancel_label: c.cancel_label,
            model: c.model,
        }),
    }
}

fn tone(tone: wit::Tone) -> Tone {
    match tone {
        wit::Tone::Neutral => Tone::Neutral,
        wit::Tone::Info => Tone::Info,
        wit::Tone::Success => Tone::Success,
        wit::Tone::Warning => Tone::Warning,
        wit::Tone::Error => Tone::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w3_a_reply_beyond_64_kib_is_refused() {
        let reply = |n: usize| wit::Outcome {
            message: Some("x".repeat(n)),
            params: vec![],
        };
        assert!(outcome(reply(MAX_REPLY)).is_ok());
        assert!(outcome(reply(MAX_REPLY + 1)).unwrap_err().contains("65537"));
    }

    #[test]
    fn w4_a_patch_names_each_parameter_once() {
        let param = |id: &str| wit::Param {
            id: id.into(),
            value: wit::ParamValue::Boolean(true),
        };
        assert_eq!(params_from(vec![param("a"), param("b")]).unwrap().len(), 2);
        assert!(
            params_from(vec![param("a"), param("a")])
                .unwrap_err()
                .contains("twice")
        );
        assert!(params_from(vec![param("")]).is_err());
    }

    #[test]
    fn announcements_out_of_bounds_are_refused() {
        let turn = |id: &str, reason: &str| wit::NativeTurn {
            id: id.into(),
            start: wit::TurnStart::Running,
            reason: reason.into(),
            cause: None,
        };
        assert!(native_turn(turn("t", "goal")).is_ok());
        assert!(native_turn(turn("", "goal")).is_err());
        assert!(native_turn(turn("t", &"x".repeat(129))).is_err());
    }
}
