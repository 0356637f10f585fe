//! What a client can ask of the session layer, as parsed by its edge.

use bytes::Bytes;
use harness_core::content::Block;
use harness_core::event::Runtime;
use harness_core::gate::{Gate, GatePolicy, GateReply};
use harness_core::ids::{
    CommandId, GateId, HarnessId, LoopId, ProjectId, RunId, Seq, SessionId, WorkspaceId,
};
use harness_core::operation::{CommandState, Operation};
use harness_core::provider::{LoopMode, Params};
use harness_core::view::{LoopView, OperationResult, SessionView};
use jiff::Timestamp;
use serde::Serialize;
use std::sync::{Arc, OnceLock};

/// Who asks, and which intent it is when the caller can repeat it.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// Opaque authenticated identity, at most 256 bytes; recorded as `caller`.
    pub identity: Option<String>,
    /// Derived ids and body hash of a keyed request (G5, S120).
    pub key: Option<Keyed>,
}

/// A request that carried an `Idempotency-Key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keyed {
    /// Derived from caller, route, session and key (UUIDv8).
    pub command_id: CommandId,
    /// Derived the same way; the id of the session that a keyed creation makes.
    pub session_id: SessionId,
    /// SHA-256 of the request body.
    pub body_sha256: [u8; 32],
}

/// Draft discovery (R40).
#[derive(Debug, Clone)]
pub struct DraftRequest {
    /// The project.
    pub project_id: ProjectId,
    /// The harness.
    pub agent: HarnessId,
    /// The workspace; the project's default when absent.
    pub workspace_id: Option<WorkspaceId>,
    /// The model.
    pub model: Option<String>,
    /// Parameters over the harness's defaults.
    pub params: Params,
}

/// How a session was shut down (S118).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShutDown {
    /// Phases that did not end within their bound: `loops`, `workspace`, `instances`.
    pub expired_phases: Vec<&'static str>,
}

/// Another loop of a session (S30).
#[derive(Debug, Clone)]
pub struct LoopRequest {
    /// Its harness.
    pub agent: HarnessId,
    /// Its model; the harness's default when absent.
    pub model: Option<String>,
    /// Its mode; the base mode when absent.
    pub mode: Option<String>,
}

/// What the next turn of a loop uses (S20, S21).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopRuntime {
    /// Its mode; empty is the base mode.
    pub mode: String,
    /// Its model and effort.
    pub runtime: Runtime,
}

/// A loop with the modes that it can be set to (S112).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopWithModes {
    /// The loop.
    pub view: LoopView,
    /// Its mode catalogue, the base mode, whose name is empty, first (S36).
    pub modes: Vec<LoopMode>,
}

/// A new session (R43, S101).
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// What draft discovery resolves too.
    pub draft: DraftRequest,
    /// Its title.
    pub title: String,
    /// What it does first.
    pub first: First,
}

/// What a new session does first: exactly one of the two.
#[derive(Debug, Clone)]
pub enum First {
    /// A prompt.
    Prompt(Vec<Block>),
    /// A native operation.
    Operation {
        /// The operation.
        operation: Operation,
        /// Revision the client saw.
        expected_revision: Option<String>,
    },
}

/// What creation answers.
#[derive(Debug, Clone)]
pub struct Created {
    /// The row.
    pub session: SessionView,
    /// Command id of the first prompt or operation.
    pub command_id: CommandId,
    /// Result of a first operation.
    pub operation_result: Option<OperationResult>,
}

/// A prompt for a session (S103).
#[derive(Debug, Clone)]
pub struct InputRequest {
    /// What it says; not empty.
    pub blocks: Vec<Block>,
    /// The loop; the active one when absent.
    pub loop_id: Option<LoopId>,
    /// Never folds into a running turn.
    pub no_fold: bool,
    /// Only folds, never becomes a turn (R120).
    pub fold_only: bool,
}

/// A native operation (R42).
#[derive(Debug, Clone)]
pub struct OperationRequest {
    /// The operation.
    pub operation: Operation,
    /// The harness the client saw.
    pub harness_id: Option<HarnessId>,
    /// The revision the client saw.
    pub expected_revision: Option<String>,
}

/// Changed settings (PATCH).
#[derive(Debug, Clone, Default)]
pub struct SettingsRequest {
    /// New title.
    pub title: Option<String>,
    /// New model; `Some(None)` clears it.
    pub model: Option<Option<String>>,
    /// Parameters to merge over the stored ones.
    pub params: Option<Params>,
    /// Another harness.
    pub agent: Option<HarnessId>,
}

/// How an accepted gate answer reached the provider (R45, R76).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The pending ask was resolved with it.
    Acknowledged,
    /// The component was lost meanwhile.
    Uncertain,
}

/// An open gate with what only memory knows of it (S117).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenGate {
    /// The gate.
    pub gate: Gate,
    /// Who answers it when nobody does.
    pub policy: GatePolicy,
    /// The page to open, of an `open_url`; in no journal (S88).
    pub url: Option<String>,
}

/// A gate answer.
#[derive(Debug, Clone)]
pub struct GateAnswer {
    /// The gate.
    pub gate_id: GateId,
    /// The answer.
    pub reply: GateReply,
}

/// Command state with what the host adds (R1).
#[derive(Debug, Clone)]
pub struct CommandStateView {
    /// The harness it was read from.
    pub harness_id: HarnessId,
    /// Digest over it.
    pub revision: String,
    /// When the provider read ended.
    pub as_of: Timestamp,
    /// Whether the provider notifies changes.
    pub push: bool,
    /// The state.
    pub state: CommandState,
}

/// One read of command state, shared by all who waited for it (R41).
#[derive(Debug)]
pub struct CommandStateRead {
    /// What was read.
    pub view: CommandStateView,
    written: OnceLock<Bytes>,
}

impl From<CommandStateView> for CommandStateRead {
    fn from(view: CommandStateView) -> Self {
        Self {
            view,
            written: OnceLock::new(),
        }
    }
}

impl CommandStateRead {
    /// The answer as the edge writes it, written once for all who share the read.
    ///
    /// # Errors
    /// Those of `write`; then it is tried again.
    pub fn written<E>(
        &self,
        write: impl FnOnce(&CommandStateView) -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        if let Some(bytes) = self.written.get() {
            return Ok(bytes.clone());
        }
        let bytes = write(&self.view)?;
        Ok(self.written.get_or_init(|| bytes).clone())
    }
}

/// One event on its way to subscribers: serialised once, shared by all of them.
#[derive(Debug)]
pub struct Frame {
    /// Journal sequence; `None` for an ephemeral event.
    pub seq: Option<Seq>,
    /// The event's type: the SSE event name.
    pub name: &'static str,
    /// The loop it belongs to; `None` for session scope.
    pub loop_id: Option<LoopId>,
    /// JSON of the frame's `data`.
    pub data: Arc<str>,
}

/// What a run of a hook is told (R49).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The session.
    pub session_id: SessionId,
    /// The run, when the operation opened one.
    pub run_id: Option<RunId>,
    /// The operation's command id.
    pub command_id: CommandId,
}

/// What became of a session's row, for whoever keeps a list.
#[derive(Debug, Clone)]
pub enum RowChange {
    /// It is new, or is now this.
    Now(Arc<SessionView>),
    /// It was deleted with its session.
    Deleted {
        /// The session.
        id: SessionId,
        /// Its project.
        project_id: ProjectId,
    },
}

impl RowChange {
    /// The project of the session.
    #[must_use]
    pub fn project_id(&self) -> &ProjectId {
        match self {
            Self::Now(row) => &row.project_id,
            Self::Deleted { project_id, .. } => project_id,
        }
    }
}
