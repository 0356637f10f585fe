//! Refusals and channel errors.

use crate::bindings::harness::provider::types as wit;
use crate::native::IoError;
use harness_core::abort::AbortReason;
use harness_core::operation::MAX_REASON;
use harness_core::provider::{CallError, ChannelError, Refusal};
use harness_core::state_store::StateError;

/// Cuts to `limit` bytes at a character boundary.
pub(crate) fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
    }
    text
}

fn bounded(text: String) -> Result<String, CallError> {
    if text.len() > MAX_REASON {
        return Err(CallError::Violation(format!(
            "a refusal text has {} bytes; the limit is {MAX_REASON}",
            text.len()
        )));
    }
    Ok(text)
}

/// A provider's refusal as a call error; an oversize text is a violation (W3).
///
/// `aborted`: the abort signal had fired, so that `cancelled` is legal and a channel's `stopped` or
/// `closed` counts as it (§3.1). `done`: `cancelled` is legal without abort (W4).
pub(crate) fn refusal(error: wit::Error, aborted: bool, done: bool) -> CallError {
    let refusal = match map(error) {
        Ok(refusal) => refusal,
        Err(violation) => return violation,
    };
    match refusal {
        Refusal::Cancelled if !aborted && !done => CallError::Violation(
            "`cancelled` was answered although nothing had been aborted".to_owned(),
        ),
        Refusal::Channel(ChannelError::Stopped | ChannelError::Closed) if aborted => {
            CallError::Refused(Refusal::Cancelled)
        }
        other => CallError::Refused(other),
    }
}

fn map(error: wit::Error) -> Result<Refusal, CallError> {
    Ok(match error {
        wit::Error::InvalidOperation(text) => Refusal::InvalidOperation(bounded(text)?),
        wit::Error::NotAllowed(text) => Refusal::NotAllowed(bounded(text)?),
        wit::Error::StaleRevision(text) => Refusal::StaleRevision(bounded(text)?),
        wit::Error::Unsupported(text) => Refusal::Unsupported(bounded(text)?),
        wit::Error::Unavailable(text) => Refusal::Unavailable(bounded(text)?),
        wit::Error::Disconnected(text) => Refusal::Disconnected(bounded(text)?),
        wit::Error::Cancelled => Refusal::Cancelled,
        wit::Error::Channel(error) => Refusal::Channel(match error {
            wit::ChannelError::Stopped => ChannelError::Stopped,
            wit::ChannelError::Closed => ChannelError::Closed,
            wit::ChannelError::Denied(text) => ChannelError::Denied(bounded(text)?),
            wit::ChannelError::Limit(text) => ChannelError::Limit(bounded(text)?),
            wit::ChannelError::Busy => ChannelError::Busy,
            wit::ChannelError::Failed(text) => ChannelError::Failed(bounded(text)?),
        }),
        wit::Error::Native(text) => Refusal::Native(bounded(text)?),
    })
}

/// A host refusal for the guest.
pub(crate) fn channel_error(error: ChannelError) -> wit::ChannelError {
    match error {
        ChannelError::Stopped => wit::ChannelError::Stopped,
        ChannelError::Closed => wit::ChannelError::Closed,
        ChannelError::Denied(text) => wit::ChannelError::Denied(text),
        ChannelError::Limit(text) => wit::ChannelError::Limit(text),
        ChannelError::Busy => wit::ChannelError::Busy,
        ChannelError::Failed(text) => wit::ChannelError::Failed(text),
    }
}

/// A store's refusal for the guest. What failed inside the store stays in the host's log.
pub(crate) fn state_error(error: &StateError) -> wit::ChannelError {
    match error {
        StateError::Limit { .. } => wit::ChannelError::Limit(error.to_string()),
        StateError::Gone => wit::ChannelError::Closed,
        StateError::Failed(cause) => {
            tracing::error!(%cause, "provider state could not be read or written");
            wit::ChannelError::Failed("the state store failed".to_owned())
        }
    }
}

/// A refusal of a program or origin for the guest.
pub(crate) fn io_error(error: IoError) -> wit::IoError {
    match error {
        IoError::Denied(text) => wit::IoError::Denied(text),
        IoError::NotFound(text) => wit::IoError::NotFound(text),
        IoError::Failed(text) => wit::IoError::Failed(text),
        IoError::Limit(text) => wit::IoError::Limit(text),
        IoError::Closed => wit::IoError::Closed,
    }
}

/// Why a call is aborted, for the guest.
pub(crate) fn abort_reason(reason: AbortReason) -> wit::AbortReason {
    match reason {
        AbortReason::UserStop => wit::AbortReason::UserStop,
        AbortReason::CallerGone => wit::AbortReason::CallerGone,
        AbortReason::OwnerStopped => wit::AbortReason::OwnerStopped,
        AbortReason::Deadline => wit::AbortReason::Deadline,
        AbortReason::Shutdown => wit::AbortReason::Shutdown,
        AbortReason::Idle => wit::AbortReason::Idle,
        AbortReason::Superseded => wit::AbortReason::Superseded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w3_an_oversize_refusal_text_is_a_violation() {
        let fits = wit::Error::Native("x".repeat(MAX_REASON));
        assert!(matches!(
            refusal(fits, false, false),
            CallError::Refused(Refusal::Native(_))
        ));
        for error in [
            wit::Error::Native("x".repeat(MAX_REASON + 1)),
            wit::Error::Channel(wit::ChannelError::Denied("x".repeat(MAX_REASON + 1))),
        ] {
            assert!(matches!(
                refusal(error, false, false),
                CallError::Violation(_)
            ));
        }
    }

    #[test]
    fn w4_cancelled_needs_an_abort_except_from_done() {
        let cancelled = CallError::Refused(Refusal::Cancelled);
        assert!(matches!(
            refusal(wit::Error::Cancelled, false, false),
            CallError::Violation(_)
        ));
        assert_eq!(refusal(wit::Error::Cancelled, true, false), cancelled);
        assert_eq!(refusal(wit::Error::Cancelled, false, true), cancelled);
    }

    #[test]
    fn channel_stopped_counts_as_cancelled_after_an_abort() {
        let stopped = || wit::Error::Channel(wit::ChannelError::Stopped);
        assert_eq!(
            refusal(stopped(), true, true),
            CallError::Refused(Refusal::Cancelled)
        );
        assert_eq!(
            refusal(stopped(), false, true),
            CallError::Refused(Refusal::Channel(ChannelError::Stopped))
        );
    }

    #[test]
    fn texts_are_cut_at_a_character() {
        assert_eq!(cut("aä".to_owned(), 2), "a");
        assert_eq!(cut("aä".to_owned(), 3), "aä");
    }
}
