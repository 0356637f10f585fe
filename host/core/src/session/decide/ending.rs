//! What a provider call that returned means for its run and its operation: the tables of
//! requirements-operations §3.1, R42, R51, W4 and W5, as functions of the call's error and of the
//! abort that came before it. What is done about it is in [`super::run`].

use crate::abort::AbortReason;
use crate::event::{Failure, InterruptReason};
use crate::provider::{CallError, ChannelError, Refusal};
use crate::session::Ending;
use crate::view::{OutcomeStatus, ParamsEffective, Status};

/// How an operation resolved, before it is written down.
pub(super) struct Resolution {
    pub(super) outcome: OutcomeStatus,
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
    pub(super) effective: Option<ParamsEffective>,
    /// The problem document that replaces the result (§6), made from the result.
    pub(super) problem: Option<Problem>,
    /// The native conversation was lost with it; that decides the row (§3.1, R51).
    pub(super) lost: bool,
}

pub(super) enum Problem {
    Violation(String),
    HarnessChanged,
}

/// A stored failure: a code and bounded text (S68).
pub(super) fn failure(code: &str, message: String) -> Failure {
    Failure {
        code: code.into(),
        message: bounded(message),
    }
}

/// Cuts a text to 4 KiB at a character boundary.
pub(super) fn bounded(mut text: String) -> String {
    if text.len() > crate::operation::MAX_REASON {
        let mut end = crate::operation::MAX_REASON;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

pub(super) fn interrupt_reason(aborted: Option<AbortReason>) -> InterruptReason {
    match aborted {
        Some(AbortReason::CallerGone) => InterruptReason::CallerGone,
        Some(AbortReason::Shutdown) => InterruptReason::Shutdown,
        _ => InterruptReason::User,
    }
}

pub(super) fn is_stop(aborted: Option<AbortReason>) -> bool {
    matches!(
        aborted,
        Some(AbortReason::UserStop | AbortReason::Shutdown | AbortReason::CallerGone)
    )
}

/// Whether a failed call counts as cancelled (§3.1 and its last sentence).
pub(super) fn counts_as_cancelled(error: &CallError, aborted: Option<AbortReason>) -> bool {
    aborted.is_some()
        && matches!(
            error,
            CallError::Refused(
                Refusal::Cancelled | Refusal::Channel(ChannelError::Stopped | ChannelError::Closed)
            )
        )
}

/// How a run ends whose startup call or `done` failed.
pub(super) fn ending_of(error: &CallError, aborted: Option<AbortReason>, done: bool) -> Ending {
    if counts_as_cancelled(error, aborted) {
        return Ending::Interrupted(interrupt_reason(aborted));
    }
    match error {
        // There it means that the native side was interrupted by itself.
        CallError::Refused(Refusal::Cancelled) if done => {
            Ending::Interrupted(InterruptReason::Native)
        }
        CallError::Refused(Refusal::Cancelled) => Ending::Failed(failure(
            "provider_contract_violation",
            "`cancelled` without an abort".into(),
        )),
        CallError::Refused(Refusal::Disconnected(text)) => {
            Ending::Failed(failure("disconnected", text.clone()))
        }
        CallError::Violation(_) if done => Ending::Failed(failure(error.code(), error.to_string())),
        // A stop that had to terminate the instance is a stop (W5).
        _ if is_stop(aborted) => Ending::Interrupted(interrupt_reason(aborted)),
        _ => Ending::Failed(failure(error.code(), error.to_string())),
    }
}

pub(super) fn cancelled() -> Resolution {
    Resolution {
        outcome: OutcomeStatus::Cancelled,
        code: None,
        message: None,
        effective: None,
        problem: None,
        lost: false,
    }
}

pub(super) fn violation(reason: String) -> Resolution {
    let reason = bounded(reason);
    Resolution {
        outcome: OutcomeStatus::Uncertain,
        code: Some("provider_contract_violation".into()),
        message: Some(reason.clone()),
        effective: None,
        problem: Some(Problem::Violation(reason)),
        lost: false,
    }
}

/// What a failed `invoke` means for its operation (§3.1, S54).
pub(super) fn failed(error: &CallError, aborted: Option<AbortReason>) -> Resolution {
    if counts_as_cancelled(error, aborted) {
        return cancelled();
    }
    let with = |outcome, code: &str, message: String| Resolution {
        outcome,
        code: Some(code.into()),
        message: Some(bounded(message)),
        effective: None,
        problem: None,
        lost: false,
    };
    match error {
        CallError::Refused(Refusal::Cancelled) => violation("`cancelled` without an abort".into()),
        CallError::Violation(reason) => violation(reason.clone()),
        CallError::Refused(
            refusal @ (Refusal::Unsupported(_)
            | Refusal::InvalidOperation(_)
            | Refusal::NotAllowed(_)
            | Refusal::StaleRevision(_)),
        ) => with(OutcomeStatus::Rejected, refusal.code(), refusal.to_string()),
        // No call was made (R31).
        CallError::Unavailable { reason, .. } => {
            with(OutcomeStatus::Rejected, error.code(), reason.clone())
        }
        CallError::Refused(Refusal::Disconnected(text)) => Resolution {
            lost: true,
            ..with(OutcomeStatus::Uncertain, error.code(), text.clone())
        },
        _ => with(OutcomeStatus::Uncertain, error.code(), error.to_string()),
    }
}

/// How the run of an operation ends that resolved without starting a turn.
pub(super) fn ending_of_resolution(
    resolution: &Resolution,
    aborted: Option<AbortReason>,
) -> Ending {
    let text = || resolution.message.clone().unwrap_or_default();
    if resolution.lost {
        return Ending::Failed(failure("disconnected", text()));
    }
    match resolution.outcome {
        OutcomeStatus::Completed | OutcomeStatus::Started => Ending::Done,
        OutcomeStatus::Cancelled => Ending::Interrupted(interrupt_reason(aborted)),
        OutcomeStatus::Uncertain if is_stop(aborted) && resolution.problem.is_none() => {
            Ending::Interrupted(interrupt_reason(aborted))
        }
        OutcomeStatus::Rejected | OutcomeStatus::Uncertain => Ending::Failed(failure(
            resolution.code.as_deref().unwrap_or("internal"),
            text(),
        )),
    }
}

pub(super) fn row_of(ending: &Ending) -> Status {
    match ending {
        Ending::Done => Status::Completed,
        Ending::Failed(failure) if failure.code == "disconnected" => Status::Disconnected,
        Ending::Failed(_) => Status::Failed,
        Ending::Interrupted(InterruptReason::HostLost) => Status::Disconnected,
        Ending::Interrupted(_) => Status::Cancelled,
    }
}
