//! What events are made of: reasons, outcomes and other closed sets that a payload names.

use crate::ids::CommandId;
use crate::provider::TurnStart;
use serde::{Deserialize, Serialize};

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

/// How far a delegate request has come (S96).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DeliveryState {
    /// No running turn took it: it waits for a turn of its own.
    FallbackQueued,
    /// Its turn ended normally.
    Completed,
    /// Its turn failed, or it could not be started.
    Failed,
    /// Its turn was interrupted, or it was left in the inbox by a stop or a lost host.
    Interrupted,
    /// It was taken back before it opened a turn, or its parent gave it up.
    Cancelled,
}

impl DeliveryState {
    /// Whether nothing follows it.
    #[must_use]
    pub fn is_settled(self) -> bool {
        self != Self::FallbackQueued
    }

    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FallbackQueued => "fallback_queued",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a compaction, or a wait for one, came to nothing (S95).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CompactionReason {
    /// A person stopped it, or the host was lost.
    Interrupted,
    /// The session shuts down.
    ShuttingDown,
    /// The native side gave it up.
    Cancelled,
    /// The provider could not be called.
    Unavailable,
    /// The provider failed.
    ExecutionFailed,
    /// It answered a summary without text.
    InvalidSummary,
    /// It answered a summary beyond 1 MiB.
    SummaryTooLarge,
    /// 64 wait already; the wait was refused.
    LaneFull,
    /// The host could not start it.
    Internal,
}

/// What a loop's next turn uses; absent: what the session or the harness has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Runtime {
    /// Its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
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
