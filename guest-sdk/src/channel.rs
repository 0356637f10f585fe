//! The channel of one invocation: the conversation, people, inputs.
//!
//! Every invocation has its own, so that a control and a turn never share one.
//! It stays usable until the invocation ends, for a started turn until
//! [`Provider::done`](crate::Provider::done) returns; afterwards each function
//! answers `Closed`.

use crate::abort::{AbortSignal, Hold, Holds};
use crate::sys::{self, host};
use crate::types::{
    ApprovalDecision, ApprovalRequest, ChannelError, FormAnswer, HistoryEntry, Input, Message,
    MessagePart, OperationContext, QuestionForm, Role, Usage,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The way of one invocation to the host. Clones are the same channel.
#[derive(Clone, Debug)]
pub struct Channel(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: host::Channel,
    command_id: String,
    abort: AbortSignal,
    holds: Holds,
    taking: RefCell<Taking>,
}

/// Inputs that the host gave and the author has not received yet.
#[derive(Debug, Default)]
struct Taking {
    running: bool,
    arrived: VecDeque<Result<Vec<Input>, ChannelError>>,
    waiter: Option<Waker>,
}

impl Channel {
    pub(crate) fn new(raw: host::Channel, command_id: String) -> Self {
        let abort = AbortSignal::new(raw.abort());
        Self(Rc::new(Inner {
            raw,
            command_id,
            abort,
            holds: Holds::default(),
            taking: RefCell::default(),
        }))
    }

    pub(crate) fn raw(&self) -> &host::Channel {
        &self.0.raw
    }

    pub(crate) fn holds(&self) -> Holds {
        self.0.holds.clone()
    }

    /// The host's id of this invocation: the idempotency id of every native
    /// mutation it makes (R25).
    #[must_use]
    pub fn command_id(&self) -> &str {
        &self.0.command_id
    }

    /// The session with its settings at the start of this invocation.
    #[must_use]
    pub fn context(&self) -> OperationContext {
        self.0.raw.context()
    }

    /// The signal of this invocation.
    #[must_use]
    pub fn abort(&self) -> AbortSignal {
        self.0.abort.clone()
    }

    /// Keeps this invocation alive after an abort, see [`Hold`].
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.0.holds.hold()
    }

    /// Appends a whole message to the conversation.
    ///
    /// # Errors
    ///
    /// `Limit` for a message beyond [`limits`](crate::limits), `Stopped` or
    /// `Closed` at the end.
    pub async fn append(&self, message: Message) -> Result<(), ChannelError> {
        self.0.raw.append(message).await
    }

    /// Appends an assistant message of one text part.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub async fn say(&self, text: impl Into<String>) -> Result<(), ChannelError> {
        self.append(Message {
            role: Role::Assistant,
            parts: vec![MessagePart::Text(text.into())],
        })
        .await
    }

    /// Opens a message that is streamed part by part.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub async fn open_message(&self, role: Role) -> Result<MessageWriter, ChannelError> {
        Ok(MessageWriter(self.0.raw.open_message(role).await?))
    }

    /// The newest `limit` saved messages, oldest first, without the input of this
    /// turn.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Closed` at the end.
    pub async fn history(&self, limit: u32) -> Result<Vec<HistoryEntry>, ChannelError> {
        self.0.raw.history(limit).await
    }

    /// Reports what the turn has used so far.
    pub fn report_usage(&self, usage: Usage) {
        self.0.raw.report_usage(usage);
    }

    /// Restarts the inactivity bound: the native side is alive without output.
    pub fn touch(&self) {
        self.0.raw.touch();
    }

    /// Asks a person whether a tool may run. Dropping the call withdraws the
    /// question.
    ///
    /// # Errors
    ///
    /// `Stopped` on an abort, `Closed` after [`withdraw`](Self::withdraw) or the
    /// end, `Limit` beyond a bound.
    pub async fn request_approval(
        &self,
        request: ApprovalRequest,
    ) -> Result<ApprovalDecision, ChannelError> {
        self.0.raw.request_approval(request).await
    }

    /// Asks a person questions. Dropping the call withdraws them.
    ///
    /// # Errors
    ///
    /// As [`request_approval`](Self::request_approval).
    pub async fn ask(&self, form: QuestionForm) -> Result<FormAnswer, ChannelError> {
        self.0.raw.ask(form).await
    }

    /// The native side no longer waits for the approval or form of this id.
    pub fn withdraw(&self, id: &str) {
        self.0.raw.withdraw(id);
    }

    /// True as soon as an input waits. Takes nothing and may be dropped.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Closed` at the end.
    pub async fn input_ready(&self) -> Result<bool, ChannelError> {
        if !self.0.taking.borrow().arrived.is_empty() {
            return Ok(true);
        }
        self.0.raw.input_ready().await
    }

    /// The inputs that wait now, perhaps none. Each is durable as part of this
    /// turn before it arrives here, so it is owed to the native side.
    ///
    /// Dropping this future loses nothing: the host's call goes on by itself and
    /// the next `take_input` gives what it brought.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Closed` at the end.
    pub async fn take_input(&self) -> Result<Vec<Input>, ChannelError> {
        let start = {
            let mut taking = self.0.taking.borrow_mut();
            let idle = !taking.running && taking.arrived.is_empty();
            taking.running |= idle;
            idle
        };
        if start {
            let inner = Rc::clone(&self.0);
            sys::spawn(async move {
                let inputs = inner.raw.take_input().await;
                let waiter = {
                    let mut taking = inner.taking.borrow_mut();
                    taking.running = false;
                    taking.arrived.push_back(inputs);
                    taking.waiter.take()
                };
                if let Some(waiter) = waiter {
                    waiter.wake();
                }
            });
        }
        poll_fn(|cx| {
            let mut taking = self.0.taking.borrow_mut();
            if let Some(inputs) = taking.arrived.pop_front() {
                return Poll::Ready(inputs);
            }
            taking.waiter = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Ends a pending [`input_ready`](Self::input_ready).
    pub fn close_input(&self) {
        self.0.raw.close_input();
    }

    /// Reports the native conversation, as soon as the native side accepted it.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Closed` at the end, `Failed` when it could not be recorded.
    pub async fn bind_native_session(&self, id: impl Into<String>) -> Result<(), ChannelError> {
        self.0.raw.bind_native_session(id.into()).await
    }
}

/// An open message. The host closes it when it is dropped.
#[derive(Debug)]
pub struct MessageWriter(host::MessageWriter);

impl MessageWriter {
    /// Adds a part, or extends the last one when both are text, reasoning, plan or
    /// results of the same tool call. Returns the index of the part it went to.
    ///
    /// # Errors
    ///
    /// `Limit` beyond [`limits`](crate::limits), `Stopped` or `Closed` at the end.
    pub async fn delta(&self, part: MessagePart) -> Result<u32, ChannelError> {
        self.0.delta(part).await
    }

    /// Adds text.
    ///
    /// # Errors
    ///
    /// As [`delta`](Self::delta).
    pub async fn text(&self, text: impl Into<String>) -> Result<u32, ChannelError> {
        self.delta(MessagePart::Text(text.into())).await
    }

    /// Replaces an earlier part of this message.
    ///
    /// # Errors
    ///
    /// As [`delta`](Self::delta).
    pub async fn replace(&self, index: u32, part: MessagePart) -> Result<(), ChannelError> {
        self.0.replace(index, part).await
    }

    /// Finishes the message and waits until the host has it.
    ///
    /// # Errors
    ///
    /// As [`delta`](Self::delta).
    pub async fn finish(self) -> Result<(), ChannelError> {
        self.0.finish().await
    }
}
