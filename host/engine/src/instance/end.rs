//! Why an instance ended, and what that means for its calls, its owner and its provider.

use harness_core::abort::AbortReason;
use harness_core::provider::{CallError, InstanceEnd};

/// The first cause wins; an instance ends once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// Asked to end, and everything in it returned in time.
    Disposed(AbortReason),
    /// Asked to end, and something in it did not return within the drain bound.
    Terminated(AbortReason),
    /// A call did not return within the drain bound after its abort (W5).
    Deaf {
        /// The call.
        call: &'static str,
        /// Why it was aborted.
        reason: AbortReason,
    },
    /// A call that takes no abort signal passed its deadline.
    Slow(&'static str),
    /// It was not instantiated within that many milliseconds.
    SlowStart(u128),
    /// The guest trapped (W1).
    Trap(String),
    /// The guest computed for a whole CPU slice without yielding.
    CpuSlice(String),
    /// The guest used more than its share of a core.
    CpuRate(String),
    /// The guest broke the contract so that its store cannot go on (W4).
    Violation(String),
    /// Host code panicked in the driver task.
    Panic(String),
    /// `run` returned an error (N2).
    Disconnected(String),
}

impl EndCause {
    /// How a call that was in flight then ended.
    pub(crate) fn call_error(&self) -> CallError {
        match self {
            Self::Trap(text) | Self::Panic(text) => CallError::Trap(text.clone()),
            Self::CpuSlice(text) | Self::CpuRate(text) => CallError::Timeout(text.clone()),
            Self::SlowStart(_) => CallError::Timeout(self.to_string()),
            Self::Violation(text) => CallError::Violation(text.clone()),
            Self::Terminated(reason) => CallError::Terminated(*reason),
            Self::Disposed(_) | Self::Deaf { .. } | Self::Slow(_) | Self::Disconnected(_) => {
                CallError::Lost(self.to_string())
            }
        }
    }

    /// Whether it counts as a failure of the provider.
    pub(crate) fn is_failure(&self) -> bool {
        !matches!(self, Self::Disposed(_))
    }

    /// For the owner of the instance.
    pub(crate) fn end(&self) -> InstanceEnd {
        InstanceEnd {
            clean: !self.is_failure(),
            disconnected: matches!(self, Self::Disconnected(_)),
            reason: self.to_string(),
        }
    }

    /// A label with few values, for metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Disposed(_) => "disposed",
            Self::Terminated(_) => "terminated",
            Self::Deaf { .. } => "abort_deaf",
            Self::Slow(_) | Self::SlowStart(_) => "timeout",
            Self::Trap(_) => "trap",
            Self::CpuSlice(_) => "cpu_slice",
            Self::CpuRate(_) => "cpu_rate",
            Self::Violation(_) => "violation",
            Self::Panic(_) => "panic",
            Self::Disconnected(_) => "disconnected",
        }
    }
}

impl std::fmt::Display for EndCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disposed(reason) => write!(f, "ended ({reason:?})"),
            Self::Terminated(reason) => {
                write!(
                    f,
                    "terminated: it did not end within the drain bound ({reason:?})"
                )
            }
            Self::Deaf { call, reason } => {
                write!(f, "terminated: `{call}` ignored its abort ({reason:?})")
            }
            Self::Slow(call) => write!(f, "terminated: `{call}` passed its deadline"),
            Self::SlowStart(limit) => write!(f, "it did not start within {limit} ms"),
            Self::Trap(text)
            | Self::CpuSlice(text)
            | Self::CpuRate(text)
            | Self::Violation(text) => f.write_str(text),
            Self::Panic(text) => write!(f, "host code failed: {text}"),
            Self::Disconnected(text) => write!(f, "the native connection was lost: {text}"),
        }
    }
}

/// The epoch callback's error: a CPU slice was used up.
#[derive(Debug, thiserror::Error)]
#[error("computed for {0} ms without yielding")]
pub(crate) struct SliceUsedUp(pub(crate) u128);

/// What ended `run_concurrent` or instantiation.
pub(crate) fn classify(error: &wasmtime::Error) -> EndCause {
    if let Some(slice) = error.downcast_ref::<SliceUsedUp>() {
        return EndCause::CpuSlice(slice.to_string());
    }
    if let Some(trap) = error.downcast_ref::<wasmtime::Trap>() {
        return EndCause::Trap(trap.to_string());
    }
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return EndCause::Trap(exit.to_string());
    }
    // The outermost context is a guest backtrace; the root cause says what was wrong.
    let cause = error.root_cause().to_string();
    EndCause::Violation(crate::convert::cut(
        cause,
        harness_core::operation::MAX_REASON,
    ))
}
