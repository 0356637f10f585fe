//! Events: facts the host publishes (requirements-runtime §5).
//!
//! The union is closed; every type has exactly one class, one scope and one visibility, given by
//! [`EventBody::meta`], whose match is exhaustive: a type without them does not compile (S60).

use crate::command::Cause;
use crate::content::{Message, Part, Role, Usage};
use crate::gate::{AnswerSource, CloseReason, Gate, GateAsk};
use crate::ids::{
    CommandId, EventId, GateId, HarnessId, LoopId, MessageId, ProjectId, RunId, SessionId,
    ToolExecutionId, TurnId, WorkspaceId,
};
use crate::provider::{Params, TurnStart};
use crate::view::{OutcomeStatus, ParamsEffective, Status};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An enduring event, or the ephemeral frame of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Identity, minted at creation; zero on ephemeral events (S61).
    pub id: EventId,
    /// The session.
    pub session_id: SessionId,
    /// The loop; zero for session scope.
    pub loop_id: LoopId,
    /// The turn; zero outside any.
    pub turn_id: TurnId,
    /// When.
    pub at: Timestamp,
    /// What led to it.
    pub cause: Cause,
    /// What happened.
    pub body: EventBody,
}

/// Whether an event is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Stored before it is shown; has a journal sequence.
    Enduring,
    /// Enduring, and the last of its unit.
    Terminal,
    /// Shown to who listens now.
    Ephemeral,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The session.
    Session,
    /// One loop.
    Loop,
}

/// Who sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Every subscriber.
    Public,
    /// The host alone.
    Internal,
}

/// Fixed properties of an event type (S60).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// The wire tag.
    pub name: &'static str,
    /// Its class.
    pub class: Class,
    /// Its scope.
    pub scope: Scope,
    /// Its visibility.
    pub visibility: Visibility,
}

/// An error in a stored event: a kind and bounded text (S68).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// Stable code.
    pub code: String,
    /// For a person, at most 4 KiB.
    pub message: String,
}

/// Why an input left its inbox without a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CancelReason {
    /// The turn before it failed (S44).
    TurnFailed,
    /// A machine input, and its turn was interrupted.
    TurnInterrupted,
    /// The session shut down.
    ShuttingDown,
    /// A client took it back (S46).
    ClientRetracted,
    /// Its loop is gone.
    LoopExited,
    /// It could only fold, and the turn ended (R120).
    TurnEnded,
    /// The host could not start it.
    Internal,
}

/// Why an input was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum RejectReason {
    /// The inbox holds 64.
    QueueFull,
    /// The session shuts down.
    ShuttingDown,
    /// The host could not start it.
    Internal,
}

/// Why a turn was interrupted (S69a).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum InterruptReason {
    /// A person stopped it.
    User,
    /// Its caller went away.
    CallerGone,
    /// The native side ended it by itself.
    Native,
    /// The session or host shut down.
    Shutdown,
    /// The host process was lost.
    HostLost,
}

/// What a native turn was announced as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NativeOrigin {
    /// Native id.
    pub native_turn_id: String,
    /// Why it began.
    pub reason: String,
    /// Whether it ran already.
    pub start: TurnStart,
    /// The operation that set it going.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause_command_id: Option<CommandId>,
}

/// How a delta changes its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DeltaOp {
    /// The message begins.
    Open,
    /// A part is added or extended.
    Append,
    /// A part is replaced.
    Replace,
    /// The message is complete.
    Finish,
}

/// How a permission was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Decided {
    /// This once.
    ApproveOnce,
    /// And whenever its rules match.
    ApproveAlwaysWorkspace,
    /// No.
    Deny,
    /// Closed by a policy.
    Timeout,
}

/// The closed union of events used so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum EventBody {
    /// A session begins.
    SessionStarted {
        /// Its project.
        project_id: ProjectId,
        /// Its title.
        title: String,
        /// Its harness.
        agent: HarnessId,
        /// Selected model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Effective parameters.
        #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, crate::provider::ParamValue>))]
        params: Params,
        /// Where it works.
        workspace_id: WorkspaceId,
    },
    /// The session has work.
    SessionActive {},
    /// The session has none.
    SessionIdle {},
    /// The session was shut down.
    SessionStopped {},
    /// A restore writes its repairs.
    RestoreStarted {},
    /// The restore is committed.
    RestoreDone {},
    /// The restore failed.
    RestoreErrored {
        /// Why.
        error: Failure,
    },
    /// The session's configuration changed and was adopted.
    ConfigurationAdopted {
        /// Counts up.
        epoch: u64,
        /// The harness.
        agent: HarnessId,
    },
    /// Settings of the row changed.
    SessionParamsChanged {
        /// New title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// New model; an empty string clears it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// All parameters after the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<std::collections::HashMap<String, crate::provider::ParamValue>>))]
        params: Option<Params>,
        /// Another harness.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<HarnessId>,
    },
    /// A loop begins.
    LoopStarted {
        /// Its harness.
        harness_id: HarnessId,
        /// Its parent, for a delegate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_loop_id: Option<LoopId>,
    },
    /// A loop has no turn and nothing to start.
    LoopIdle {},
    /// The native side accepted a conversation.
    NativeSessionBound {
        /// Native id.
        native_session_id: String,
    },
    /// A turn begins.
    TurnStarted {
        /// The reserve.
        run_id: RunId,
        /// The input's message; absent for operations and native turns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Message>,
        /// Set for a native turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<NativeOrigin>,
    },
    /// Messages committed together.
    StepDone {
        /// In order.
        messages: Vec<Message>,
        /// Tokens used so far in the turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// An input was folded into the running turn.
    TurnFoldedInto {
        /// The input's message.
        message: Message,
    },
    /// An input left its inbox.
    InputCancelled {
        /// Why.
        reason: CancelReason,
    },
    /// An input is held after a restore (S52).
    InputHeld {},
    /// A held input may start.
    InputReleased {},
    /// An input was not accepted.
    TurnRejected {
        /// Why.
        reason: RejectReason,
        /// Whether trying again may help.
        retryable: bool,
    },
    /// A turn ended normally.
    TurnDone {
        /// The reserve.
        run_id: RunId,
        /// Tokens used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// A turn ended in error.
    TurnFailed {
        /// The reserve.
        run_id: RunId,
        /// Why; code `disconnected` when the native side was lost.
        error: Failure,
        /// Tokens used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// A turn was interrupted.
    TurnInterrupted {
        /// The reserve.
        run_id: RunId,
        /// Why.
        reason: InterruptReason,
        /// Tokens used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The one outcome of an operation (S54).
    NativeOperationResolved {
        /// How it ended.
        outcome: OutcomeStatus,
        /// Stable code, with `rejected` and `uncertain`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Native reply, or the reason in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The reserve, when the operation changed the row's status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// Status of the row afterwards, when the operation alone decides it (an idle control,
        /// an operation that was never reserved).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        row: Option<Status>,
        /// When its settings patch takes effect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effective: Option<ParamsEffective>,
        /// Native conversation known then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native_session_id: Option<String>,
    },
    /// A gate is being prepared; private.
    GatePrepared {
        /// The gate.
        gate_id: GateId,
        /// The execution it belongs to.
        tool_execution_id: ToolExecutionId,
        /// What it asks.
        ask: GateAsk,
    },
    /// A tool wants approval.
    PermissionRequested {
        /// The gate.
        gate_id: GateId,
        /// Native id of the call.
        tool_use_id: String,
        /// Tool name.
        tool_name: String,
    },
    /// The native side asks a person.
    UserInputRequested {
        /// The gate.
        gate_id: GateId,
        /// Heading of the form.
        title: String,
    },
    /// A gate can be answered.
    GateOpened {
        /// All that is needed to answer it.
        gate: Gate,
    },
    /// A gate closed.
    GateResolved {
        /// The gate.
        gate_id: GateId,
        /// Why.
        reason: CloseReason,
        /// Who answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<AnswerSource>,
    },
    /// A permission was decided.
    PermissionDecided {
        /// The gate; zero when a stored rule answered without one.
        #[serde(default, skip_serializing_if = "GateId::is_zero")]
        gate_id: GateId,
        /// Native id of the call.
        tool_use_id: String,
        /// How.
        decision: Decided,
        /// Who.
        source: AnswerSource,
    },
    /// A message streams.
    TokenDelta {
        /// The message.
        message_id: MessageId,
        /// Who it is from, with `open`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
        /// The part.
        index: u32,
        /// What happens to it.
        op: DeltaOp,
        /// The text to add, or the whole part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<Part>,
    },
    /// A native tool began.
    ToolStarted {
        /// Native id of the call.
        tool_use_id: String,
        /// Tool name.
        tool_name: String,
    },
    /// A native tool answered.
    ToolCompleted {
        /// Native id of the call.
        tool_use_id: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// An input waits.
    InputQueued {},
    /// The command state changed (G7); carries no state.
    #[serde(rename = "command_state_changed")]
    CommandStateChanged {
        /// The harness.
        #[serde(rename = "harnessId")]
        harness_id: HarnessId,
    },
}

impl EventBody {
    /// Class, scope and visibility of the type (S60).
    #[must_use]
    pub fn meta(&self) -> Meta {
        use Class::{Enduring, Ephemeral, Terminal};
        use Scope::{Loop, Session};
        use Visibility::{Internal, Public};
        let (name, class, scope, visibility) = match self {
            Self::SessionStarted { .. } => ("SessionStarted", Enduring, Session, Public),
            Self::SessionActive {} => ("SessionActive", Enduring, Session, Public),
            Self::SessionIdle {} => ("SessionIdle", Enduring, Session, Public),
            Self::SessionStopped {} => ("SessionStopped", Terminal, Session, Public),
            Self::RestoreStarted {} => ("RestoreStarted", Enduring, Session, Public),
            Self::RestoreDone {} => ("RestoreDone", Enduring, Session, Public),
            Self::RestoreErrored { .. } => ("RestoreErrored", Terminal, Session, Public),
            Self::ConfigurationAdopted { .. } => {
                ("ConfigurationAdopted", Enduring, Session, Public)
            }
            Self::SessionParamsChanged { .. } => {
                ("SessionParamsChanged", Enduring, Session, Public)
            }
            Self::LoopStarted { .. } => ("LoopStarted", Enduring, Loop, Public),
            Self::LoopIdle {} => ("LoopIdle", Enduring, Loop, Public),
            Self::NativeSessionBound { .. } => ("NativeSessionBound", Enduring, Loop, Public),
            Self::TurnStarted { .. } => ("TurnStarted", Enduring, Loop, Public),
            Self::StepDone { .. } => ("StepDone", Enduring, Loop, Public),
            Self::TurnFoldedInto { .. } => ("TurnFoldedInto", Enduring, Loop, Public),
            Self::InputCancelled { .. } => ("InputCancelled", Enduring, Loop, Public),
            Self::InputHeld {} => ("InputHeld", Enduring, Loop, Public),
            Self::InputReleased {} => ("InputReleased", Enduring, Loop, Public),
            Self::TurnRejected { .. } => ("TurnRejected", Enduring, Loop, Public),
            Self::TurnDone { .. } => ("TurnDone", Terminal, Loop, Public),
            Self::TurnFailed { .. } => ("TurnFailed", Terminal, Loop, Public),
            Self::TurnInterrupted { .. } => ("TurnInterrupted", Terminal, Loop, Public),
            Self::NativeOperationResolved { .. } => {
                ("NativeOperationResolved", Enduring, Loop, Public)
            }
            Self::GatePrepared { .. } => ("GatePrepared", Enduring, Loop, Internal),
            Self::PermissionRequested { .. } => ("PermissionRequested", Enduring, Loop, Public),
            Self::UserInputRequested { .. } => ("UserInputRequested", Enduring, Loop, Public),
            Self::GateOpened { .. } => ("GateOpened", Enduring, Loop, Public),
            Self::GateResolved { .. } => ("GateResolved", Enduring, Loop, Public),
            Self::PermissionDecided { .. } => ("PermissionDecided", Enduring, Loop, Public),
            Self::TokenDelta { .. } => ("TokenDelta", Ephemeral, Loop, Public),
            Self::ToolStarted { .. } => ("ToolStarted", Ephemeral, Loop, Public),
            Self::ToolCompleted { .. } => ("ToolCompleted", Ephemeral, Loop, Public),
            Self::InputQueued {} => ("InputQueued", Ephemeral, Loop, Public),
            Self::CommandStateChanged { .. } => {
                ("command_state_changed", Ephemeral, Session, Public)
            }
        };
        Meta {
            name,
            class,
            scope,
            visibility,
        }
    }

    /// Every wire tag of the union.
    pub const TYPES: [&'static str; 34] = [
        "SessionStarted",
        "SessionActive",
        "SessionIdle",
        "SessionStopped",
        "RestoreStarted",
        "RestoreDone",
        "RestoreErrored",
        "ConfigurationAdopted",
        "SessionParamsChanged",
        "LoopStarted",
        "LoopIdle",
        "NativeSessionBound",
        "TurnStarted",
        "StepDone",
        "TurnFoldedInto",
        "InputCancelled",
        "InputHeld",
        "InputReleased",
        "TurnRejected",
        "TurnDone",
        "TurnFailed",
        "TurnInterrupted",
        "NativeOperationResolved",
        "GatePrepared",
        "PermissionRequested",
        "UserInputRequested",
        "GateOpened",
        "GateResolved",
        "PermissionDecided",
        "TokenDelta",
        "ToolStarted",
        "ToolCompleted",
        "InputQueued",
        "command_state_changed",
    ];
}
