//! The rules of requirements-runtime §1.2: what a command must hold beside its shape.

use super::{Agency, Command, CommandBody};
use crate::ids::{LoopId, ToolExecutionId};

/// A rule of §1.2 that a command breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` of {command}: {rule}")]
pub struct InvalidField {
    /// Type of the command.
    pub command: &'static str,
    /// The field.
    pub field: &'static str,
    /// The rule in words.
    pub rule: &'static str,
}

impl Command {
    /// Checks every rule of §1.2; runs at decode and before any re-enqueue.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn validate(&self) -> Result<(), InvalidField> {
        let command = self.body.type_name();
        let rule = |ok: bool, field, rule| {
            if ok {
                Ok(())
            } else {
                Err(InvalidField {
                    command,
                    field,
                    rule,
                })
            }
        };
        let machine = self.header.agency == Agency::Machine;
        rule(
            !self.header.command_id.is_zero(),
            "command_id",
            "must not be zero",
        )?;
        rule(
            self.header.caller.as_ref().is_none_or(|c| c.len() <= 256),
            "caller",
            "at most 256 bytes",
        )?;
        match &self.body {
            CommandBody::UserInput {
                no_fold,
                fold_only,
                target_loop_id,
                background_hand_back,
                delegate_delivery_phase,
                ..
            } => {
                let phased = delegate_delivery_phase.is_some();
                rule(
                    !(*no_fold && *fold_only),
                    "fold_only",
                    "not together with no_fold",
                )?;
                rule(
                    !(*background_hand_back || phased) || machine,
                    "agency",
                    "a hand-back or phase is machine input",
                )?;
                rule(
                    !((*no_fold && machine) || *background_hand_back || phased)
                        || !target_loop_id.is_zero(),
                    "target_loop_id",
                    "required for machine input that does not fold, a hand-back or a phase",
                )?;
                rule(
                    !*background_hand_back || *no_fold || phased,
                    "background_hand_back",
                    "requires no_fold or a phase",
                )
            }
            CommandBody::SubagentResult { loop_id, .. } => {
                rule(!loop_id.is_zero(), "loop_id", "must not be zero")
            }
            CommandBody::CancelQueuedInput {
                session_id,
                loop_id,
                target_command_id,
            }
            | CommandBody::CancelDelegateRequest {
                session_id,
                loop_id,
                target_command_id,
            } => {
                rule(!session_id.is_zero(), "session_id", "must not be zero")?;
                rule(!loop_id.is_zero(), "loop_id", "must not be zero")?;
                rule(
                    !target_command_id.is_zero(),
                    "target_command_id",
                    "must not be zero",
                )
            }
            CommandBody::ApproveToolCall {
                loop_id,
                tool_execution_id,
                ..
            } => check_route(command, loop_id, tool_execution_id),
            CommandBody::DenyToolCall {
                loop_id,
                tool_execution_id,
                message,
                ..
            } => {
                check_route(command, loop_id, tool_execution_id)?;
                rule(
                    message
                        .as_ref()
                        .is_none_or(|m| m.len() <= crate::gate::MAX_ANSWER),
                    "message",
                    "at most 16 KiB",
                )
            }
            CommandBody::ProvideUserInput {
                loop_id,
                tool_execution_id,
                answer,
                decline,
                ..
            } => {
                check_route(command, loop_id, tool_execution_id)?;
                rule(
                    answer.is_some() != *decline,
                    "answer",
                    "exactly one of answer and decline",
                )
            }
            CommandBody::Compact {
                session_id,
                loop_id,
            } => {
                rule(!session_id.is_zero(), "session_id", "must not be zero")?;
                rule(!loop_id.is_zero(), "loop_id", "must not be zero")
            }
            CommandBody::Interrupt {} | CommandBody::Shutdown {} => Ok(()),
            CommandBody::ProcessNotification { notification } => {
                rule(
                    notification.command_id == self.header.command_id,
                    "notification.command_id",
                    "equals the header's",
                )?;
                rule(
                    !notification.session_id.is_zero(),
                    "notification.session_id",
                    "must not be zero",
                )?;
                rule(
                    !notification.loop_id.is_zero(),
                    "notification.loop_id",
                    "must not be zero",
                )?;
                rule(
                    (1..=128).contains(&notification.process_handle.len()),
                    "notification.process_handle",
                    "1 to 128 bytes",
                )
            }
            CommandBody::NativeOperation {
                session_id,
                loop_id,
                operation,
                ..
            } => {
                rule(!session_id.is_zero(), "session_id", "must not be zero")?;
                rule(!loop_id.is_zero(), "loop_id", "must not be zero")?;
                rule(
                    operation.check().is_ok(),
                    "operation",
                    "text 1 B to 1 MiB, argument at most 256 KiB",
                )
            }
            CommandBody::NativeTurn {
                session_id,
                loop_id,
                native_turn_id,
                reason,
                ..
            } => {
                rule(!session_id.is_zero(), "session_id", "must not be zero")?;
                rule(!loop_id.is_zero(), "loop_id", "must not be zero")?;
                rule(
                    (1..=256).contains(&native_turn_id.len()),
                    "native_turn_id",
                    "1 to 256 bytes",
                )?;
                rule(
                    (1..=128).contains(&reason.len()),
                    "reason",
                    "1 to 128 bytes",
                )?;
                rule(machine, "agency", "always machine")
            }
            CommandBody::ReleaseHeldInput {
                session_id,
                loop_id,
                target_command_ids,
            } => {
                rule(!session_id.is_zero(), "session_id", "must not be zero")?;
                rule(!loop_id.is_zero(), "loop_id", "must not be zero")?;
                rule(
                    target_command_ids.iter().all(|id| !id.is_zero()),
                    "target_command_ids",
                    "must not hold zero",
                )
            }
        }
    }
}

fn check_route(
    command: &'static str,
    loop_id: &LoopId,
    tool_execution_id: &ToolExecutionId,
) -> Result<(), InvalidField> {
    let zero = "must not be zero";
    if loop_id.is_zero() {
        return Err(InvalidField {
            command,
            field: "loop_id",
            rule: zero,
        });
    }
    if tool_execution_id.is_zero() {
        return Err(InvalidField {
            command,
            field: "tool_execution_id",
            rule: zero,
        });
    }
    Ok(())
}
