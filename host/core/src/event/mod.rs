//! Events: facts the host publishes (requirements-runtime §5).
//!
//! The union is closed; every type has exactly one class, one scope and one visibility, given by
//! [`EventBody::meta`], whose match is exhaustive: a type without them does not compile (S60).

mod meta;
mod words;

pub use meta::{Class, Meta, Scope, Visibility};
pub use words::*;

use crate::command::{Cause, ProcessState};
use crate::configuration::Configuration;
use crate::content::{Message, Part, Role, Usage};
use crate::gate::{AnswerSource, CloseReason, Gate, GateAsk};
use crate::ids::{
    EventId, GateId, HarnessId, LoopId, MessageId, ProjectId, RunId, SessionId, ToolExecutionId,
    TurnId, WorkspaceId,
};
use crate::provider::Params;
use crate::view::{OutcomeStatus, ParamsEffective, Status};
use crate::workspace::WorkspaceRef;
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
        /// What it is run with; later restores are compared with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        configuration: Option<Configuration>,
    },
    /// The session has work.
    SessionActive {},
    /// The session has none.
    SessionIdle {},
    /// The session was shut down; nothing follows until it is restored.
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
        /// What it is run with from now on; unchanged when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        configuration: Option<Configuration>,
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
    /// Another loop is the active one (S35).
    ActiveLoopChanged {
        /// The active loop from now on.
        active_loop_id: LoopId,
        /// The one before.
        previous_loop_id: LoopId,
    },
    /// A snapshot of the workspace was taken; its bytes were durable before (S98).
    WorkspaceCheckpointed {
        /// Its name.
        #[serde(rename = "ref")]
        reference: WorkspaceRef,
        /// Directories, files and symlinks in it.
        entries: u64,
        /// Bytes of file content in it.
        bytes: u64,
    },
    /// The workspace was made what a snapshot says (S99).
    WorkspaceRestored {
        /// The snapshot.
        #[serde(rename = "ref")]
        reference: WorkspaceRef,
        /// A checkpoint now would have the same ref. False only where rules of what is excluded
        /// were changed since.
        exact: bool,
    },
    /// A loop begins.
    LoopStarted {
        /// Its harness.
        harness_id: HarnessId,
        /// Its parent, for a delegate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_loop_id: Option<LoopId>,
        /// The model it was made with; the session's when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// The loop's mode is another from its next turn on (S20).
    LoopModeChanged {
        /// The mode before; empty is the base mode.
        previous: String,
        /// The mode from now on.
        mode: String,
        /// What the next turn uses.
        runtime: Runtime,
    },
    /// Model or effort of the loop are others from its next turn on (S21).
    LoopInferenceChanged {
        /// What the next turn uses.
        runtime: Runtime,
    },
    /// The provider compacts the conversation.
    CompactionStarted {},
    /// The conversation was compacted (S95).
    CompactionCommitted {
        /// Replaces the history before it; absent: the history stays.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// Tokens used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The conversation was not compacted.
    CompactionRejected {
        /// Why.
        reason: CompactionReason,
        /// The provider's words, if it said any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
    /// The compaction that a `Compact` asked for was committed.
    CompactWaiterResolved {},
    /// The compaction that a `Compact` asked for was not committed.
    CompactWaiterRejected {
        /// Why.
        reason: CompactionReason,
    },
    /// A loop's message to a child of it is durable and will be delivered (S96). `cause` names the
    /// request and the parent.
    DelegateRequestAccepted {
        /// Who sent it.
        parent_loop_id: LoopId,
        /// The result comes to the parent as an input of its own.
        background_hand_back: bool,
    },
    /// A delegate request came further, or settled. `cause` names the request and the parent.
    DelegateDeliveryStateChanged {
        /// How far.
        state: DeliveryState,
        /// Why, unless it completed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
    /// A delegate whose runtime could not be restored is closed for good (S77).
    LoopTombstoned {
        /// Why.
        error: Failure,
    },
    /// A loop has no turn and nothing to start.
    LoopIdle {},
    /// The native side accepted a conversation.
    NativeSessionBound {
        /// Native id.
        native_session_id: String,
    },
    /// A background process starts; written before it does (S97).
    ProcessStarted {
        /// Names it in its session.
        process_handle: String,
        /// The operator's name of the program.
        program: String,
    },
    /// A background process ended while its host lived.
    ProcessFinished {
        /// The process.
        process_handle: String,
        /// How.
        state: ProcessState,
        /// How, in words.
        reason: String,
        /// Exit code, or 128 + signal, when it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
    /// A background process ended with its host, or with what supervised it.
    ProcessLost {
        /// The process.
        process_handle: String,
        /// In words.
        reason: String,
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
