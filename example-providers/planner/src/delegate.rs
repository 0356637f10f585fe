//! Delegates: other loops of the session that the demo lets work for it.

use harness_guest::delegation::{Delegates, DelegationError, ResultState, Start, Task, describe};
use harness_guest::prelude::*;
use std::time::Duration;

/// How long the demo waits for an answer. What takes longer goes on.
const PATIENCE: Duration = Duration::from_secs(600);

/// A task for a delegate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its harness; the demo's own when absent.
    pub harness: Option<String>,
    /// What it is told.
    pub task: String,
    /// Its answer comes by itself.
    pub background: bool,
}

/// Starts a delegate and tells what it answered, or that it is under way.
///
/// # Errors
///
/// As [`Channel::say`].
pub async fn order(order: Order, channel: &Channel) -> Result<(), Error> {
    let text = match carry_out(order, channel).await {
        Ok(text) => text,
        // Not of the delegate: the turn itself is over.
        Err(error @ (DelegationError::Stopped | DelegationError::Closed)) => {
            return Err(error.into());
        }
        Err(error) => format!("No delegate: {}.", describe(&error)),
    };
    channel.say(text).await?;
    Ok(())
}

async fn carry_out(order: Order, channel: &Channel) -> Result<String, DelegationError> {
    let delegates = Delegates::of_channel(channel);
    let task = Task {
        background: order.background,
        ..Task::text(order.task)
    };
    let start = Start {
        harness_id: order.harness,
        ..Start::own(task)
    };
    let started = delegates.start(start).await?;
    if order.background {
        return Ok("A delegate works on it; its answer comes by itself.".to_owned());
    }
    let result = delegates.result(&started.request_id, PATIENCE).await?;
    Ok(match result {
        Some(result) => {
            let text = harness_guest::limits::shorten(result.text.trim(), 4_096);
            match result.state {
                ResultState::Completed => format!("The delegate answered: “{text}”."),
                ResultState::Failed => "The delegate failed.".to_owned(),
                ResultState::Interrupted => "The delegate was interrupted.".to_owned(),
                ResultState::Cancelled => "The request was taken back.".to_owned(),
            }
        }
        None => "The delegate takes longer, and goes on.".to_owned(),
    })
}

/// Whether that input is the result of a request that this loop made; else it is a
/// task from the loop above. What a delegate says is never read as a prompt.
///
/// # Errors
///
/// The invocation is over.
pub async fn is_result(input: &Input, channel: &Channel) -> Result<bool, Error> {
    let InputOrigin::Delegate(request) = &input.origin else {
        return Ok(false);
    };
    let delegates = Delegates::of_channel(channel);
    match delegates.result(request, Duration::ZERO).await {
        Ok(result) => Ok(result.is_some()),
        Err(DelegationError::NotParent) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
