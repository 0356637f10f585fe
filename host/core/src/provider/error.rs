//! Why a provider call or a host import failed. Closed sets: text is payload, never meaning.

use crate::abort::AbortReason;

/// A provider's typed refusal (requirements §3.1), with its text cut to 4 KiB.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The text, mode, action or argument is not valid natively.
    #[error("{0}")]
    InvalidOperation(String),
    /// Native state forbids it at present.
    #[error("{0}")]
    NotAllowed(String),
    /// The revision the action names is no longer current.
    #[error("{0}")]
    StaleRevision(String),
    /// This harness does not implement it.
    #[error("{0}")]
    Unsupported(String),
    /// The native harness cannot be reached.
    #[error("{0}")]
    Unavailable(String),
    /// The native conversation was lost.
    #[error("{0}")]
    Disconnected(String),
    /// The abort signal ended it; or, from `done`, the native side was interrupted by itself.
    #[error("cancelled")]
    Cancelled,
    /// A host channel failed underneath.
    #[error("{0}")]
    Channel(ChannelError),
    /// Anything else the native side reported.
    #[error("{0}")]
    Native(String),
}

/// Why a host import refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The owner was stopped.
    #[error("the run was stopped")]
    Stopped,
    /// The invocation or its conversation is over.
    #[error("the invocation is over")]
    Closed,
    /// Not granted, or refused by policy.
    #[error("denied: {0}")]
    Denied(String),
    /// A size, count or rate bound.
    #[error("limit: {0}")]
    Limit(String),
    /// An invocation holds the session: its channel is the way.
    #[error("an invocation holds the session")]
    Busy,
    /// The host failed.
    #[error("host failure: {0}")]
    Failed(String),
}

/// How a call into a component ended, other than well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The provider said no.
    #[error("{0}")]
    Refused(Refusal),
    /// The component trapped (W1); the instance is gone.
    #[error("the provider trapped: {0}")]
    Trap(String),
    /// The deadline or the CPU slice passed (W2).
    #[error("the provider did not answer in time: {0}")]
    Timeout(String),
    /// The component broke the contract (W4).
    #[error("the provider broke its contract: {0}")]
    Violation(String),
    /// An aborted call did not return within the drain bound (W5); the instance is gone.
    #[error("the provider ignored its abort ({0:?}) and was terminated")]
    Terminated(AbortReason),
    /// The instance ended underneath the call for another reason.
    #[error("the provider instance ended: {0}")]
    Lost(String),
    /// No call was made: not loaded, quarantined, backing off or disposed (R31).
    #[error("the provider is not available: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
        /// Whether it is still loading (then it may be retried, `provider_not_ready`).
        loading: bool,
    },
}

impl CallError {
    /// Stable code of requirements §3, as used in problems and results.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Trap(_) => "provider_trap",
            Self::Timeout(_) => "provider_timeout",
            Self::Violation(_) => "provider_contract_violation",
            Self::Terminated(_) | Self::Lost(_) | Self::Unavailable { .. } => {
                "provider_unavailable"
            }
        }
    }
}

impl Refusal {
    /// Stable code of requirements §3.1.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsupported(_) => "unsupported_operation",
            Self::InvalidOperation(_) => "invalid_argument",
            Self::NotAllowed(_) => "command_disabled",
            Self::StaleRevision(_) => "stale_state",
            Self::Unavailable(_) | Self::Disconnected(_) => "provider_unavailable",
            Self::Native(_) | Self::Channel(_) => "provider_failed",
            Self::Cancelled => "session_stopping",
        }
    }
}
