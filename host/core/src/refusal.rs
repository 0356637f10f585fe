//! Why the host refuses a request: one closed set for admission, with the stable codes of
//! requirements-operations §3. Statuses and problem documents are the API's business.

use crate::gate::{PolicyError, ReplyError};
use crate::operation::OperationLimit;
use crate::provider::CallError;
use crate::view::OperationResult;

/// A refused request. `retryable()` promises that nothing was executed and that the unchanged
/// request may succeed later.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The request itself is wrong.
    #[error("{0}")]
    InvalidRequest(String),
    /// `params` or `model` fail the declared schema.
    #[error("{0}")]
    InvalidParams(String),
    /// An operation's input breaks its limits.
    #[error("{0}")]
    OperationLimit(#[from] OperationLimit),
    /// Something is too large.
    #[error("{0}")]
    TooLarge(String),
    /// A harness without preparation.
    #[error("the harness has no native commands")]
    UnsupportedOperation,
    /// A remote workspace with a harness that needs a local one.
    #[error("the harness needs a local workspace; select or create one with a `local` target")]
    WorkspaceUnsupported,
    /// Unknown project.
    #[error("no project `{0}`")]
    ProjectNotFound(String),
    /// Unknown workspace.
    #[error("no workspace `{0}` in this project")]
    WorkspaceNotFound(String),
    /// The id is taken.
    #[error("a {0} of that id exists already; choose another id")]
    AlreadyExists(&'static str),
    /// Unknown session.
    #[error("no session `{0}`")]
    SessionNotFound(String),
    /// Unknown harness.
    #[error("no harness `{0}` is installed")]
    HarnessNotFound(String),
    /// Unknown loop.
    #[error("no loop `{0}` in this session")]
    LoopNotFound(String),
    /// A loop mode that its harness does not declare (S27).
    #[error("{0}")]
    InvalidMode(String),
    /// A model that its harness does not offer (S27).
    #[error("{0}")]
    InvalidModel(String),
    /// An effort that its model does not take (S27).
    #[error("{0}")]
    InvalidEffort(String),
    /// A change that names nothing to change (S27).
    #[error("nothing is to be changed; name `model`, `effort` or both")]
    NoChanges,
    /// The loop is closed for good (S77).
    #[error("the loop is closed; its runtime could not be restored")]
    LoopExited,
    /// The session or host shuts down (S27).
    #[error("the loop is shutting down")]
    LoopShuttingDown,
    /// The loop's provider does not compact (S34).
    #[error("the loop's harness cannot compact its conversation")]
    CompactionUnsupported,
    /// Unknown, resolved or abandoned gate.
    #[error("no open gate of that id; it may have been answered already")]
    GateNotFound,
    /// A policy that a gate cannot have (S86).
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// Something has as many as it may have.
    #[error("{0}; try again when there are fewer")]
    Capacity(&'static str),
    /// Unknown background process, or one that ended long ago.
    #[error("no background process `{0}` in this session")]
    ProcessNotFound(String),
    /// The gate is being claimed.
    #[error("the gate is being resolved; ask again for its state")]
    GateNotReady,
    /// The answer does not fit the gate.
    #[error("{0}")]
    GateReply(#[from] ReplyError),
    /// `harnessId` differs from the session's harness.
    #[error("the session's harness is `{current}`; read its commands again")]
    StaleHarness {
        /// The current harness.
        current: String,
    },
    /// `expectedRevision` is not current.
    #[error("the command state has moved on; read it again and decide anew")]
    StaleState,
    /// The provider is not ready.
    #[error("the provider is not ready: {reason}")]
    ProviderNotReady {
        /// Why.
        reason: String,
        /// Whether it is loading.
        loading: bool,
    },
    /// The workspace is initialising.
    #[error("the workspace is still being set up")]
    WorkspaceNotReady,
    /// The workspace could not be set up.
    #[error("the workspace could not be set up: {0}")]
    WorkspaceFailed(String),
    /// The session has work.
    #[error("{0}")]
    SessionBusy(&'static str),
    /// A stop is under way.
    #[error("the session is being stopped; try again when it has ended")]
    SessionStopping,
    /// The session was shut down.
    #[error("the session is stopped; restore it first")]
    SessionStopped,
    /// The journal refused a durable event.
    #[error(
        "the session's journal refused a durable event; it admits no work until the host is restarted"
    )]
    SessionFaulted,
    /// Another holder took the session over (S66).
    #[error(
        "the session was taken over: {holder}; nothing more is written here, and the next request looks whether it can be opened again"
    )]
    SessionTakenOver {
        /// Who holds it, in words.
        holder: String,
    },
    /// The session cannot be opened, because another holder has it (S66, S102).
    #[error(
        "the session is held elsewhere: {holder}; use it there, or wait until it is given back"
    )]
    LeaseHeld {
        /// Who holds it, in words.
        holder: String,
    },
    /// The session is being restored.
    #[error("the session is being restored")]
    Restoring,
    /// The session could not be restored, and is not opened (§6.1).
    #[error("the session could not be restored: {0}")]
    RestoreFailed(String),
    /// The slot pool is exhausted.
    #[error("all execution slots are taken; try again when another run has ended")]
    NoFreeSlot,
    /// A checkpoint or rewind needs an idle session that is alone in its workspace (S98, S99).
    #[error("{0}")]
    NotIdle(&'static str),
    /// A required checkpoint failed (S98).
    #[error(
        "the session's last required checkpoint failed ({reason}); take one with POST …/workspace/checkpoint"
    )]
    CheckpointFaulted {
        /// Why it failed.
        reason: String,
    },
    /// No snapshot of that name of this workspace.
    #[error(
        "no snapshot `{0}` of this workspace is stored; use a ref that a checkpoint of it returned"
    )]
    RefNotFound(String),
    /// The session has no workspace whose snapshots could be taken.
    #[error("{0}")]
    SnapshotsUnsupported(&'static str),
    /// A checkpoint or rewind failed; the workspace is what it was.
    #[error("{0}")]
    SnapshotFailed(String),
    /// Something changed between prepare and reserve.
    #[error("{0}")]
    StatusChanged(&'static str),
    /// The harness changed underneath the operation.
    #[error("the session's harness changed meanwhile")]
    HarnessChanged {
        /// What was executed natively, if it was.
        result: Option<Box<OperationResult>>,
    },
    /// Text that must fold has nowhere to fold into (R120).
    #[error("no running turn takes this input; send it without `fold_only`")]
    FoldingUnavailable,
    /// The store could not make the intent durable.
    #[error("the store could not record the request; nothing was executed")]
    StoreUnavailable,
    /// The session could not be recorded at its workspace (R52).
    #[error("the session could not be recorded at its workspace: {reason}")]
    WorkspaceLinkFailed {
        /// The session's id.
        session_id: crate::ids::SessionId,
        /// Why.
        reason: String,
    },
    /// The caller went away before anything was recorded.
    #[error("the request was withdrawn")]
    CallerGone,
    /// The host shuts down.
    #[error("the host is shutting down")]
    HostShuttingDown,
    /// A provider call before reserve failed.
    #[error("{0}")]
    Provider(CallError),
    /// A contract violation after reserve (W4).
    #[error("the provider broke its contract: {reason}")]
    Violation {
        /// How.
        reason: String,
        /// The recorded result.
        result: Box<OperationResult>,
    },
    /// Same key, other body (G5).
    #[error("this idempotency key was used with another body; use a fresh key")]
    IdempotencyConflict,
    /// A defect of the host.
    #[error("internal error")]
    Internal,
}

impl Refused {
    /// Stable snake_case code (requirements §3).
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidRequest(_) => "invalid_request",
            Self::InvalidParams(_) => "invalid_params",
            Self::OperationLimit(OperationLimit::Empty { .. }) => "invalid_request",
            Self::OperationLimit(OperationLimit::TooLarge { .. }) | Self::TooLarge(_) => {
                "payload_too_large"
            }
            Self::UnsupportedOperation => "unsupported_operation",
            Self::WorkspaceUnsupported => "workspace_unsupported",
            Self::ProjectNotFound(_) => "project_not_found",
            Self::WorkspaceNotFound(_) => "workspace_not_found",
            Self::AlreadyExists(_) => "already_exists",
            Self::SessionNotFound(_) => "session_not_found",
            Self::HarnessNotFound(_) => "harness_not_found",
            Self::LoopNotFound(_) => "loop_not_found",
            Self::InvalidMode(_) => "invalid_mode",
            Self::InvalidModel(_) => "invalid_model",
            Self::InvalidEffort(_) => "invalid_effort",
            Self::NoChanges => "no_changes",
            Self::LoopExited => "loop_exited",
            Self::LoopShuttingDown => "loop_shutting_down",
            Self::CompactionUnsupported => "compaction_unsupported",
            Self::GateNotFound => "gate_not_found",
            Self::Policy(PolicyError::Unsupported(_)) => "policy_unsupported",
            Self::Policy(PolicyError::Timeout) => "invalid_request",
            Self::Capacity(_) => "capacity",
            Self::ProcessNotFound(_) => "process_not_found",
            Self::GateNotReady => "gate_not_ready",
            Self::GateReply(ReplyError::KindMismatch { .. }) => "gate_kind_mismatch",
            Self::GateReply(ReplyError::ActionInvalid { .. }) => "gate_action_invalid",
            Self::GateReply(ReplyError::Invalid(_)) => "invalid_request",
            Self::GateReply(ReplyError::TooLarge { .. }) => "payload_too_large",
            Self::StaleHarness { .. } => "stale_harness",
            Self::StaleState => "stale_state",
            Self::ProviderNotReady { .. } => "provider_not_ready",
            Self::WorkspaceNotReady => "workspace_not_ready",
            Self::WorkspaceFailed(_) => "workspace_failed",
            Self::SessionBusy(_) => "session_busy",
            Self::SessionStopping => "session_stopping",
            Self::SessionStopped => "session_stopped",
            Self::SessionFaulted | Self::SessionTakenOver { .. } => "session_faulted",
            Self::LeaseHeld { .. } => "lease_held",
            Self::RestoreFailed(_) => "restore_failed",
            Self::Restoring => "restoring",
            Self::NoFreeSlot => "no_free_slot",
            Self::NotIdle(_) => "not_idle",
            Self::CheckpointFaulted { .. } => "checkpoint_faulted",
            Self::RefNotFound(_) => "ref_not_found",
            Self::SnapshotsUnsupported(_) => "workspace_unsupported",
            Self::SnapshotFailed(_) => "snapshot_failed",
            Self::StatusChanged(_) => "status_changed",
            Self::HarnessChanged { .. } => "harness_changed",
            Self::FoldingUnavailable => "folding_unavailable",
            Self::StoreUnavailable => "store_unavailable",
            Self::WorkspaceLinkFailed { .. } => "workspace_link_failed",
            Self::CallerGone => "request_withdrawn",
            Self::HostShuttingDown => "host_shutting_down",
            Self::Provider(error) => error.code(),
            Self::Violation { .. } => "provider_contract_violation",
            Self::IdempotencyConflict => "idempotency_conflict",
            Self::Internal => "internal",
        }
    }

    /// Whether the unchanged request may succeed later; nothing was executed.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::ProviderNotReady { loading, .. } => *loading,
            Self::Provider(error) => {
                matches!(
                    error.code(),
                    "provider_unavailable" | "provider_timeout" | "session_stopping"
                )
            }
            _ => matches!(
                self.code(),
                "restoring"
                    | "lease_held"
                    | "workspace_not_ready"
                    | "session_busy"
                    | "session_stopping"
                    | "no_free_slot"
                    | "not_idle"
                    | "status_changed"
                    | "gate_not_ready"
                    | "capacity"
                    | "store_unavailable"
                    | "host_shutting_down"
                    | "request_withdrawn"
            ),
        }
    }
}
