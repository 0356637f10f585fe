//! What a client reads of a session: the row and its parts, exactly as they go over the wire.
//!
//! Views are projections of the journal (S108); nothing here is stored on its own.

use crate::command::ProcessState;
use crate::gate::Gate;
use crate::ids::{CommandId, HarnessId, LoopId, ProjectId, RunId, Seq, SessionId, WorkspaceId};
use crate::operation::Operation;
use crate::provider::Params;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Status of a session (requirements-operations §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Status {
    /// A prompt waits for a slot or for its turn.
    Queued,
    /// An owner is live.
    InProgress,
    /// As `in_progress`, with at least one open gate.
    AwaitingInput,
    /// The last run ended normally, or nothing ran yet.
    Completed,
    /// The last run ended in error or was rejected after reserve.
    Failed,
    /// The last run was stopped or aborted.
    Cancelled,
    /// The native side or the host process was lost during the run.
    Disconnected,
    /// The session was shut down.
    Stopped,
}

impl Status {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::AwaitingInput => "awaiting_input",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Disconnected => "disconnected",
            Self::Stopped => "stopped",
        }
    }
}

/// An error kept on the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RowError {
    /// Stable code.
    pub code: String,
    /// For a person, at most 4 KiB.
    pub message: String,
}

/// The Session resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// The project that owns it.
    pub project_id: ProjectId,
    /// For a person.
    pub title: String,
    /// Where it stands.
    pub status: Status,
    /// Qualified harness id of the session.
    pub agent: HarnessId,
    /// Selected model.
    pub model: Option<String>,
    /// Stored parameters.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, crate::provider::ParamValue>))]
    pub params: Params,
    /// Where it works.
    pub workspace_id: WorkspaceId,
    /// The native conversation, once there is one.
    pub agent_session_id: Option<String>,
    /// The active loop.
    pub active_loop_id: LoopId,
    /// Open gates.
    pub open_gates: usize,
    /// Unheld inputs that wait.
    pub queued: usize,
    /// Held inputs (S52).
    pub held: usize,
    /// Labels of open activities, and the programs of background processes as
    /// `process PROGRAM`; from memory.
    pub activities: Vec<String>,
    /// Newest journal sequence.
    pub last_seq: Seq,
    /// The last reserve that changed the status.
    pub run_id: Option<RunId>,
    /// Why the last run failed.
    pub error: Option<RowError>,
    /// Why its last required checkpoint failed. While it is set prompts wait, and operations are
    /// refused, until a checkpoint succeeds (S98).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_fault: Option<RowError>,
    /// When it was created.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: Timestamp,
    /// When it changed last.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub updated_at: Timestamp,
}

/// A loop of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoopView {
    /// Its id.
    pub loop_id: LoopId,
    /// Its harness.
    pub agent: HarnessId,
    /// The loop that started it, for a delegate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_loop_id: Option<LoopId>,
    /// Model of its next turn.
    pub model: Option<String>,
    /// Effort of its next turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Host-owned loop mode; empty is the base mode.
    pub mode: String,
    /// Whether a turn is live.
    pub running: bool,
    /// Whether it takes work; a closed loop never does again.
    pub state: LoopStanding,
}

/// Whether a loop takes work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum LoopStanding {
    /// It does.
    Open,
    /// It is a delegate whose runtime could not be restored.
    Closed,
}

/// Where a background process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ProcessStatus {
    /// It runs.
    Running,
    /// It ended by itself, with exit code 0.
    Exited,
    /// It ended by itself otherwise, or could not be started.
    Failed,
    /// It was stopped.
    Stopped,
    /// It was lost with its host.
    Lost,
}

impl From<ProcessState> for ProcessStatus {
    fn from(state: ProcessState) -> Self {
        match state {
            ProcessState::Exited => Self::Exited,
            ProcessState::Failed => Self::Failed,
            ProcessState::Stopped => Self::Stopped,
            ProcessState::Lost => Self::Lost,
        }
    }
}

/// A background process of a loop (S97).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessView {
    /// Names it in its session.
    pub process_handle: String,
    /// The loop whose harness started it.
    pub loop_id: LoopId,
    /// The operator's name of the program.
    pub program: String,
    /// Where it stands.
    pub status: ProcessStatus,
    /// Exit code, or 128 + signal, when it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How it ended, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When its start was written down.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub started_at: Timestamp,
    /// When its end was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended_at: Option<Timestamp>,
}

/// An input that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueuedInput {
    /// The input's command id.
    pub command_id: CommandId,
    /// The loop it waits for.
    pub loop_id: LoopId,
    /// Whether it is held after a restore (S52).
    pub held: bool,
    /// What it says.
    pub blocks: Vec<crate::content::Block>,
    /// When it was accepted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: Timestamp,
}

/// An operation whose native effect is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UncertainOperation {
    /// The operation's command id.
    pub command_id: CommandId,
    /// What was asked.
    pub operation: Operation,
    /// Why it is uncertain: a stable code.
    pub code: String,
}

/// Everything a client needs to begin following a session (the `snapshot` frame).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Snapshot {
    /// The row.
    pub session: SessionView,
    /// Its loops.
    pub loops: Vec<LoopView>,
    /// Open gates.
    pub gates: Vec<Gate>,
    /// Queued and held inputs, in order.
    pub queued_inputs: Vec<QueuedInput>,
    /// The latest 64 uncertain operations, oldest first.
    pub uncertain_operations: Vec<UncertainOperation>,
}

/// Outcome of an operation (R42).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OutcomeStatus {
    /// Native action done, params saved.
    Completed,
    /// The native side accepted; the turn goes on.
    Started,
    /// Refused with nothing mutated natively.
    Rejected,
    /// Aborted before it completed.
    Cancelled,
    /// Its native effect is unknown.
    Uncertain,
}

/// When a settings patch takes effect (R30).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ParamsEffective {
    /// At once.
    Now,
    /// With the next turn.
    NextTurn,
}

/// Result of an operation (R42 body and `operation_result`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperationResult {
    /// How it ended.
    pub status: OutcomeStatus,
    /// Native reply, or the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Stable code; accompanies `rejected` and `uncertain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The operation's command id.
    pub command_id: CommandId,
    /// Set when the operation changed the row's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// When its settings patch takes effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_effective: Option<ParamsEffective>,
}
