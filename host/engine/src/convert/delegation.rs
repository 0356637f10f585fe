//! Delegates: tasks in, results and refusals out.

use super::message::part;
use crate::bindings::harness::provider::delegation as wit;
use crate::bindings::harness::provider::types::MessagePart;
use harness_core::event::DeliveryState;
use harness_core::provider::{
    CancelledAt, ChannelError, DelegateInfo, DelegateResult, DelegateTask, DelegationError,
    MAX_TASK_PARTS,
};

/// A task; how much text it may hold is the session's to say.
pub(crate) fn delegate_task(task: wit::Task) -> Result<DelegateTask, DelegationError> {
    if task.parts.len() > MAX_TASK_PARTS {
        return Err(DelegationError::Limit(format!(
            "a task has 1 to {MAX_TASK_PARTS} parts"
        )));
    }
    let told = |given: MessagePart| {
        part(given).map_err(|error| match error {
            ChannelError::Limit(text) => DelegationError::Limit(text),
            other => DelegationError::Invalid(other.to_string()),
        })
    };
    Ok(DelegateTask {
        parts: task.parts.into_iter().map(told).collect::<Result<_, _>>()?,
        background: task.background,
        fold: task.fold,
    })
}

pub(crate) fn delegate_result(result: DelegateResult) -> wit::DelegateResult {
    let failure = result.error;
    wit::DelegateResult {
        request_id: result.request_id.to_string(),
        loop_id: result.loop_id.to_string(),
        state: match result.state {
            DeliveryState::Completed => wit::ResultState::Completed,
            DeliveryState::Interrupted => wit::ResultState::Interrupted,
            DeliveryState::Cancelled => wit::ResultState::Cancelled,
            // A result is never `fallback_queued`.
            DeliveryState::Failed | DeliveryState::FallbackQueued => wit::ResultState::Failed,
        },
        text: result.text,
        failure: failure.map(|(code, message)| wit::DelegateFailure { code, message }),
    }
}

pub(crate) fn delegate_info(info: DelegateInfo) -> wit::Delegate {
    let open = info.open_requests.iter();
    wit::Delegate {
        loop_id: info.loop_id.to_string(),
        harness_id: info.harness.to_string(),
        closed: info.closed,
        running: info.running,
        open_requests: open.map(ToString::to_string).collect(),
    }
}

pub(crate) fn cancelled_at(at: CancelledAt) -> wit::CancelledAt {
    match at {
        CancelledAt::Noop => wit::CancelledAt::Noop,
        CancelledAt::Queued => wit::CancelledAt::Queued,
        CancelledAt::Active => wit::CancelledAt::Active,
    }
}

pub(crate) fn delegation_error(error: DelegationError) -> wit::DelegationError {
    match error {
        DelegationError::Stopped => wit::DelegationError::Stopped,
        DelegationError::Closed => wit::DelegationError::Closed,
        DelegationError::Stopping => wit::DelegationError::Stopping,
        DelegationError::Denied(text) => wit::DelegationError::Denied(text),
        DelegationError::UnknownHarness(id) => wit::DelegationError::UnknownHarness(id),
        DelegationError::Unavailable(text) => wit::DelegationError::Unavailable(text),
        DelegationError::Depth => wit::DelegationError::Depth,
        DelegationError::Quota => wit::DelegationError::Quota,
        DelegationError::NotParent => wit::DelegationError::NotParent,
        DelegationError::Exited => wit::DelegationError::Exited,
        DelegationError::QueueFull => wit::DelegationError::QueueFull,
        DelegationError::Invalid(text) => wit::DelegationError::Invalid(text),
        DelegationError::Limit(text) => wit::DelegationError::Limit(text),
        DelegationError::Failed(text) => wit::DelegationError::Failed(text),
    }
}
