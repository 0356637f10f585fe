//! Durable commands: small typed intents, journaled before they act (requirements-runtime §1).
//!
//! The set is closed. A command is flat on the wire: `type`, `v`, header and payload fields side
//! by side. Reply channels are no part of it. Encoding and decoding are in [`crate::codec`].

mod validate;

pub use validate::InvalidField;

use crate::content::Block;
use crate::gate::Shown;
use crate::ids::{CommandId, GateId, HarnessId, LoopId, SessionId, ToolExecutionId};
use crate::operation::{Execution, Operation};
use crate::provider::TurnStart;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whether a person or a machine wanted it. Stamped by the host, never by a caller (S31).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Agency {
    /// A provider, a delegate, the host.
    #[default]
    Machine,
    /// A person.
    User,
}

impl Agency {
    /// Whether it is the default, which is omitted on the wire.
    #[must_use]
    pub fn is_machine(&self) -> bool {
        *self == Self::Machine
    }
}

/// What led to a command or an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cause {
    /// The command it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
    /// The loop it came from, or that it is meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_id: Option<LoopId>,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agency: Option<Agency>,
}

impl Cause {
    /// Caused by that command.
    #[must_use]
    pub fn by(command_id: CommandId) -> Self {
        Self {
            command_id: Some(command_id),
            ..Self::default()
        }
    }

    /// Caused by that command of a loop.
    #[must_use]
    pub fn from_loop(command_id: CommandId, loop_id: LoopId) -> Self {
        Self {
            command_id: Some(command_id),
            loop_id: Some(loop_id),
            agency: None,
        }
    }

    /// Caused by that command, with the agency shown (S50).
    #[must_use]
    pub fn by_agency(command_id: CommandId, agency: Agency) -> Self {
        Self {
            command_id: Some(command_id),
            loop_id: None,
            agency: Some(agency),
        }
    }

    /// Whether nothing is known; then it is omitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Header of every durable command (§1.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandHeader {
    /// Correlation and idempotency key; never zero (S12).
    pub command_id: CommandId,
    /// What led to it.
    #[serde(default, skip_serializing_if = "Cause::is_empty")]
    pub cause: Cause,
    /// Who wanted it.
    #[serde(default, skip_serializing_if = "Agency::is_machine")]
    pub agency: Agency,
    /// When; no part of any fingerprint.
    pub created_at: Timestamp,
    /// Opaque authenticated identity, at most 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
}

/// A durable command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Its header.
    pub header: CommandHeader,
    /// What is wanted.
    pub body: CommandBody,
}

impl Command {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> CommandId {
        self.header.command_id
    }
}

/// How far the delivery of a delegate's message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryPhase {
    /// Announced.
    Intent,
    /// Queued as a fallback.
    FallbackQueued,
}

/// The two ways to approve durably (S5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApproveAction {
    /// This once.
    ApproveOnce,
    /// And whenever its rules match.
    ApproveAlwaysWorkspace,
}

/// How a background process ended (S11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ProcessState {
    /// By itself, with exit code 0.
    Exited,
    /// By itself with another exit code or by a signal, or it could not be started.
    Failed,
    /// It was stopped.
    Stopped,
    /// With its host.
    Lost,
}

/// Payload of [`CommandBody::ProcessNotification`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessNotice {
    /// Equal to the header's.
    pub command_id: CommandId,
    /// The session.
    pub session_id: SessionId,
    /// The loop.
    pub loop_id: LoopId,
    /// The process, 1 to 128 bytes.
    pub process_handle: String,
    /// How it ended.
    pub state: ProcessState,
    /// Why.
    pub reason: String,
}

/// One value or its redaction (S81).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Answer {
    /// The values given to one question.
    Values(Vec<String>),
    /// A secret was given; it is nowhere in what the host stores.
    Redacted {
        /// Always true.
        redacted: bool,
    },
}

/// What answers a gate, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Answers {
    /// One entry a question, in order; none for a page that was opened.
    Questions(Vec<Answer>),
    /// Values of a form, by field.
    Fields(BTreeMap<String, Shown>),
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// The closed set of durable commands (S1-S18).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum CommandBody {
    /// S1: an input for a loop.
    UserInput {
        /// What it says.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocks: Vec<Block>,
        /// Never folds.
        #[serde(default, skip_serializing_if = "is_false")]
        no_fold: bool,
        /// Only folds.
        #[serde(default, skip_serializing_if = "is_false")]
        fold_only: bool,
        /// The loop.
        #[serde(default, skip_serializing_if = "LoopId::is_zero")]
        target_loop_id: LoopId,
        /// Hand-back of a background delegate.
        #[serde(default, skip_serializing_if = "is_false")]
        background_hand_back: bool,
        /// Phase of a delegate delivery.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delegate_delivery_phase: Option<DeliveryPhase>,
    },
    /// S2: a child's result for its parent.
    SubagentResult {
        /// The session.
        session_id: SessionId,
        /// The parent.
        #[serde(default)]
        loop_id: LoopId,
        /// What it says.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocks: Vec<Block>,
    },
    /// S3: takes a queued input back.
    CancelQueuedInput {
        /// The session.
        #[serde(default)]
        session_id: SessionId,
        /// The loop.
        #[serde(default)]
        loop_id: LoopId,
        /// The input.
        #[serde(default)]
        target_command_id: CommandId,
    },
    /// S4: takes a delegate request back.
    CancelDelegateRequest {
        /// The session.
        #[serde(default)]
        session_id: SessionId,
        /// The loop.
        #[serde(default)]
        loop_id: LoopId,
        /// The request.
        #[serde(default)]
        target_command_id: CommandId,
    },
    /// S5: approves.
    ApproveToolCall {
        /// The session of the gate route.
        #[serde(default)]
        session_id: SessionId,
        /// The loop of the gate route.
        #[serde(default)]
        loop_id: LoopId,
        /// The gate.
        #[serde(default)]
        gate_id: GateId,
        /// The execution it belongs to.
        #[serde(default)]
        tool_execution_id: ToolExecutionId,
        /// How.
        action: ApproveAction,
    },
    /// S6: denies.
    DenyToolCall {
        /// The session of the gate route.
        #[serde(default)]
        session_id: SessionId,
        /// The loop of the gate route.
        #[serde(default)]
        loop_id: LoopId,
        /// The gate.
        #[serde(default)]
        gate_id: GateId,
        /// The execution it belongs to.
        #[serde(default)]
        tool_execution_id: ToolExecutionId,
        /// The person's reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// S7: answers or declines a question; secrets are redacted before this value is made.
    ProvideUserInput {
        /// The session of the gate route.
        #[serde(default)]
        session_id: SessionId,
        /// The loop of the gate route.
        #[serde(default)]
        loop_id: LoopId,
        /// The gate.
        #[serde(default)]
        gate_id: GateId,
        /// The execution it belongs to.
        #[serde(default)]
        tool_execution_id: ToolExecutionId,
        /// What was given; absent when declined.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<Answers>,
        /// Declined.
        #[serde(default, skip_serializing_if = "is_false")]
        decline: bool,
    },
    /// S8: compacts a loop's context.
    Compact {
        /// The session.
        #[serde(default)]
        session_id: SessionId,
        /// The loop.
        #[serde(default)]
        loop_id: LoopId,
    },
    /// S9: stops what runs: the loop of `cause.loop_id` with its delegates, or all of the session.
    Interrupt {},
    /// S10: shuts the session down.
    Shutdown {},
    /// S11: a background process ended.
    ProcessNotification {
        /// How.
        notification: ProcessNotice,
    },
    /// S17: a native operation.
    NativeOperation {
        /// The session.
        #[serde(default)]
        session_id: SessionId,
        /// The loop.
        #[serde(default)]
        loop_id: LoopId,
        /// The harness it is for.
        harness_id: HarnessId,
        /// What is asked.
        operation: Operation,
        /// How it was classified; absent only when it never was (R50).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<Execution>,
        /// Revision the client saw.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_revision: Option<String>,
    },
    /// S17a: a turn that the native side began (N10).
    NativeTurn {
        /// The session.
        #[serde(default)]
        session_id: SessionId,
        /// The loop.
        #[serde(default)]
        loop_id: LoopId,
        /// Native id, 1 to 256 bytes.
        native_turn_id: String,
        /// Why it began, 1 to 128 bytes.
        reason: String,
        /// Whether it ran already.
        start: TurnStart,
        /// The operation that set it going.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause_command_id: Option<CommandId>,
    },
    /// S18: releases held inputs.
    ReleaseHeldInput {
        /// The session.
        #[serde(default)]
        session_id: SessionId,
        /// The loop.
        #[serde(default)]
        loop_id: LoopId,
        /// Empty: every held input of the loop.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        target_command_ids: Vec<CommandId>,
    },
}

/// What a failed append of a command means (S19). A property of the type, not of the call site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendClass {
    /// No dispatch and no acknowledgement without the append.
    Required,
    /// A failed append is logged; the durable consequence is an event of its own.
    Audit,
}

impl CommandBody {
    /// Every wire tag of the closed set, in the order of the requirements.
    pub const TYPES: [&'static str; 14] = [
        "UserInput",
        "SubagentResult",
        "CancelQueuedInput",
        "CancelDelegateRequest",
        "ApproveToolCall",
        "DenyToolCall",
        "ProvideUserInput",
        "Compact",
        "Interrupt",
        "Shutdown",
        "ProcessNotification",
        "NativeOperation",
        "NativeTurn",
        "ReleaseHeldInput",
    ];

    /// The wire tag.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::UserInput { .. } => "UserInput",
            Self::SubagentResult { .. } => "SubagentResult",
            Self::CancelQueuedInput { .. } => "CancelQueuedInput",
            Self::CancelDelegateRequest { .. } => "CancelDelegateRequest",
            Self::ApproveToolCall { .. } => "ApproveToolCall",
            Self::DenyToolCall { .. } => "DenyToolCall",
            Self::ProvideUserInput { .. } => "ProvideUserInput",
            Self::Compact { .. } => "Compact",
            Self::Interrupt {} => "Interrupt",
            Self::Shutdown {} => "Shutdown",
            Self::ProcessNotification { .. } => "ProcessNotification",
            Self::NativeOperation { .. } => "NativeOperation",
            Self::NativeTurn { .. } => "NativeTurn",
            Self::ReleaseHeldInput { .. } => "ReleaseHeldInput",
        }
    }

    /// Its append class (S19).
    #[must_use]
    pub fn append_class(&self) -> AppendClass {
        match self {
            Self::UserInput { .. }
            | Self::SubagentResult { .. }
            | Self::Compact { .. }
            | Self::ProcessNotification { .. }
            | Self::NativeOperation { .. }
            | Self::NativeTurn { .. } => AppendClass::Required,
            Self::CancelQueuedInput { .. }
            | Self::CancelDelegateRequest { .. }
            | Self::ApproveToolCall { .. }
            | Self::DenyToolCall { .. }
            | Self::ProvideUserInput { .. }
            | Self::ReleaseHeldInput { .. }
            | Self::Interrupt {}
            | Self::Shutdown {} => AppendClass::Audit,
        }
    }
}
