//! Delegates: loops of the same session that this provider's loop starts and
//! alone addresses, if the operator granted it. Using this module makes a
//! provider import the `delegation` interface, i.e. ask for the grant; it also
//! declares [`Features::DELEGATION`](crate::types::Features::DELEGATION).
//!
//! ```text
//! let delegates = Delegates::of_channel(&channel);
//! let child = delegates.start(Start::own(Task::text("look around"))).await?;
//! match delegates.result(&child.request_id, Duration::from_secs(60)).await? {
//!     Some(result) => channel.say(result.text).await?,
//!     None => { /* it takes longer, and goes on */ }
//! }
//! ```
//!
//! A task sent in the [background](Task::in_background) needs no waiting: its
//! result comes to this loop as an input whose origin is
//! [`Delegate`](crate::types::InputOrigin::Delegate) with the request's id, also
//! after a restart of the host, and once. A delegate is told its tasks with the
//! same origin.

use crate::sys::delegation as raw;
use crate::types::MessagePart;
use crate::{Channel, Link};
use std::time::Duration;

pub use crate::bindings::harness::provider::delegation::{
    CancelledAt, Delegate, DelegateFailure, DelegateResult, DelegateStart as Start,
    DelegationError, ResultState, StartedDelegate, Task,
};

impl Task {
    /// A task of one text, whose result is asked for with
    /// [`result`](Delegates::result).
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::parts(vec![MessagePart::Text(text.into())])
    }

    /// A task of texts and files.
    #[must_use]
    pub fn parts(parts: Vec<MessagePart>) -> Self {
        Self {
            parts,
            background: false,
            fold: false,
        }
    }

    /// Its result comes to this loop by itself.
    #[must_use]
    pub fn in_background(mut self) -> Self {
        self.background = true;
        self
    }

    /// Offered to a turn of the delegate that runs already.
    #[must_use]
    pub fn folded(mut self) -> Self {
        self.fold = true;
        self
    }
}

impl Start {
    /// A delegate on this provider's own harness.
    #[must_use]
    pub fn own(task: Task) -> Self {
        Self {
            harness_id: None,
            model: None,
            loop_mode: None,
            task,
        }
    }

    /// A delegate on that harness, which the grant must name.
    #[must_use]
    pub fn on(harness_id: impl Into<String>, task: Task) -> Self {
        Self {
            harness_id: Some(harness_id.into()),
            ..Self::own(task)
        }
    }
}

/// The authority of an invocation, or of the instance, over the delegates of its
/// loop. It dies with what it was made of.
#[derive(Debug)]
pub struct Delegates(raw::Delegates);

impl Delegates {
    /// Of an invocation: its calls end with `Stopped` when that is aborted.
    #[must_use]
    pub fn of_channel(channel: &Channel) -> Self {
        Self(raw::Delegates::of_channel(channel.raw()))
    }

    /// Of the instance: its calls end with `Closed` when that ends.
    #[must_use]
    pub fn of_link(link: &Link) -> Self {
        Self(raw::Delegates::of_link(link.raw()))
    }

    /// Starts a delegate with its first task.
    ///
    /// # Errors
    ///
    /// Why it was not started; nothing was then.
    pub async fn start(&self, start: Start) -> Result<StartedDelegate, DelegationError> {
        self.0.start(start).await
    }

    /// Tells a delegate more. Answers the id of the request.
    ///
    /// # Errors
    ///
    /// Why it was not told.
    pub async fn send(&self, loop_id: &str, task: Task) -> Result<String, DelegationError> {
        self.0.send(loop_id.to_owned(), task).await
    }

    /// Waits for the result of a request, at most that long; `None`: it takes
    /// longer, and goes on. May be dropped and asked again.
    ///
    /// # Errors
    ///
    /// `NotParent` for a request that is not this loop's, `Stopped` and `Closed`
    /// at the end.
    pub async fn result(
        &self,
        request_id: &str,
        timeout: Duration,
    ) -> Result<Option<DelegateResult>, DelegationError> {
        let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        self.0.await_result(request_id.to_owned(), ms).await
    }

    /// Takes a request back; tells where it was. No hand-back follows.
    ///
    /// # Errors
    ///
    /// As [`result`](Self::result).
    pub async fn cancel(&self, request_id: &str) -> Result<CancelledAt, DelegationError> {
        self.0.cancel(request_id.to_owned()).await
    }

    /// Stops what runs in a delegate and below it. Returns when it is idle; it can
    /// be told more. False: nothing ran.
    ///
    /// # Errors
    ///
    /// As [`result`](Self::result).
    pub async fn stop(&self, loop_id: &str) -> Result<bool, DelegationError> {
        self.0.stop(loop_id.to_owned()).await
    }

    /// The delegates of this loop, in the order in which they were started.
    ///
    /// # Errors
    ///
    /// `Stopped` and `Closed` at the end.
    pub async fn children(&self) -> Result<Vec<Delegate>, DelegationError> {
        self.0.children().await
    }
}

/// So that a provider can pass a refusal on with `?`.
impl From<DelegationError> for crate::types::Error {
    fn from(error: DelegationError) -> Self {
        use crate::types::ChannelError;
        match error {
            DelegationError::Stopped | DelegationError::Stopping => {
                Self::Channel(ChannelError::Stopped)
            }
            DelegationError::Closed => Self::Channel(ChannelError::Closed),
            DelegationError::Denied(text) => Self::Channel(ChannelError::Denied(text)),
            DelegationError::Limit(text) => Self::Channel(ChannelError::Limit(text)),
            DelegationError::Failed(text) => Self::Channel(ChannelError::Failed(text)),
            other => Self::Native(describe(&other)),
        }
    }
}

/// A refusal in words.
#[must_use]
pub fn describe(error: &DelegationError) -> String {
    match error {
        DelegationError::Stopped => "the caller was stopped".to_owned(),
        DelegationError::Closed => "the caller is over".to_owned(),
        DelegationError::Stopping => "a stop is under way".to_owned(),
        DelegationError::Denied(text) => format!("denied: {text}"),
        DelegationError::UnknownHarness(id) => format!("no harness {id} is installed"),
        DelegationError::Unavailable(text) => format!("the harness is not available: {text}"),
        DelegationError::Depth => "delegates nest three deep at most".to_owned(),
        DelegationError::Quota => "the session has started all its delegates".to_owned(),
        DelegationError::NotParent => "no such delegate or request of this loop".to_owned(),
        DelegationError::Exited => "the delegate is closed".to_owned(),
        DelegationError::QueueFull => "the delegate's inbox is full".to_owned(),
        DelegationError::Invalid(text)
        | DelegationError::Limit(text)
        | DelegationError::Failed(text) => text.clone(),
    }
}
