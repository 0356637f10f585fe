//! The session's side of one invocation's channel: every import becomes a message to the actor.
//!
//! A pending approval or question withdraws its gate when its future is dropped (N17). After the
//! invocation ended the actor answers `closed` to everything (W6).

use crate::actor::{Asked, Msg, SinkOp, SinkReply};
use crate::delegation::LoopDelegates;
use crate::deps::Deps;
use crate::signals::Signals;
use harness_core::abort::{AbortHandle, AbortSignal};
use harness_core::content::{Message, NewMessage, Part, Role, Usage};
use harness_core::gate::{ApprovalDecision, ApprovalRequest, FormAnswer, GateAsk, QuestionForm};
use harness_core::provider::{
    BoxFuture, Channel, ChannelError, Delegation, OperationContext, PromptInput, WriterId,
};
use harness_core::session::{Answer, GateValue, Input, InvocationId};
use harness_journal::PermissionRule;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// One invocation's channel.
pub(crate) struct RunChannel {
    pub(crate) invocation: InvocationId,
    pub(crate) context: OperationContext,
    pub(crate) harness: harness_core::ids::HarnessId,
    pub(crate) workspace: harness_core::ids::WorkspaceId,
    pub(crate) abort: AbortHandle,
    pub(crate) mailbox: mpsc::Sender<Msg>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) deps: Arc<Deps>,
    /// Whether an input that may fold waits.
    pub(crate) input: watch::Receiver<bool>,
    pub(crate) input_closed: AtomicBool,
    pub(crate) input_wake: Notify,
}

impl RunChannel {
    async fn ask_actor<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<T, ChannelError>>) -> Msg,
    ) -> Result<T, ChannelError> {
        let (reply, answer) = oneshot::channel();
        self.mailbox
            .send(message(reply))
            .await
            .map_err(|_| ChannelError::Closed)?;
        answer.await.unwrap_or(Err(ChannelError::Closed))
    }

    async fn sink(&self, op: SinkOp) -> Result<SinkReply, ChannelError> {
        self.ask_actor(|reply| Msg::Sink {
            invocation: self.invocation,
            op,
            reply,
        })
        .await
    }

    async fn feed(&self, input: Input) -> Result<Answer, ChannelError> {
        match self.ask_actor(|reply| Msg::Import { input, reply }).await? {
            Answer::Channel(error) => Err(error),
            answer => Ok(answer),
        }
    }

    async fn gate(&self, ask: GateAsk, stored_rules: bool) -> Result<GateValue, ChannelError> {
        let policies = self.deps.config.gates;
        let timeout = match ask {
            GateAsk::Permission(_) => policies.permission,
            GateAsk::AskUser(_) => policies.ask_user,
            GateAsk::Form(_) | GateAsk::OpenUrl(_) => None,
        };
        let asked = self
            .ask_actor(|reply| Msg::Ask {
                invocation: self.invocation,
                ask,
                stored_rules,
                reply,
            })
            .await?;
        match asked {
            Asked::Decided(value) => Ok(value),
            Asked::Open {
                gate_id,
                mut answer,
                guard,
            } => {
                let value = match timeout {
                    None => answer.await,
                    // The policy's answer comes the usual way, and so does that of a person who
                    // was earlier. One that could not be recorded is tried again.
                    Some(timeout) => loop {
                        match tokio::time::timeout(timeout, &mut answer).await {
                            Ok(value) => break value,
                            Err(_) => drop(self.feed(Input::GateTimeout(gate_id)).await),
                        }
                    },
                };
                let value = value.unwrap_or(GateValue::Rejected(ChannelError::Closed));
                guard.disarm();
                Ok(value)
            }
        }
    }

    async fn rules_stored(&self, rules: &[String]) -> bool {
        if rules.is_empty() {
            return false;
        }
        let rules = rules
            .iter()
            .map(|rule| PermissionRule {
                harness_id: self.harness.clone(),
                workspace_id: self.workspace.clone(),
                rule: rule.clone(),
            })
            .collect();
        // A store that cannot tell has not remembered: a person is asked.
        self.deps.catalog.rules_stored(rules).await.unwrap_or(false)
    }
}

impl Channel for RunChannel {
    fn context(&self) -> OperationContext {
        self.context.clone()
    }

    fn abort(&self) -> AbortSignal {
        self.abort.signal()
    }

    fn entered(&self) {
        self.signals.mark(|m| {
            m.entered.insert(self.invocation);
        });
    }

    fn append(&self, message: NewMessage) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async move { self.sink(SinkOp::Append(message)).await.map(drop) })
    }

    fn open_message(&self, role: Role) -> BoxFuture<'_, Result<WriterId, ChannelError>> {
        Box::pin(async move {
            match self.sink(SinkOp::Open(role)).await? {
                SinkReply::Writer(writer) => Ok(writer),
                _ => Err(ChannelError::Closed),
            }
        })
    }

    fn delta(&self, writer: WriterId, part: Part) -> BoxFuture<'_, Result<u32, ChannelError>> {
        Box::pin(async move {
            match self.sink(SinkOp::Delta(writer, part)).await? {
                SinkReply::Index(index) => Ok(index),
                _ => Err(ChannelError::Closed),
            }
        })
    }

    fn replace(
        &self,
        writer: WriterId,
        index: u32,
        part: Part,
    ) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async move {
            self.sink(SinkOp::Replace(writer, index, part))
                .await
                .map(drop)
        })
    }

    fn finish(&self, writer: WriterId) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async move { self.sink(SinkOp::Finish(writer)).await.map(drop) })
    }

    fn abandon_writer(&self, writer: WriterId) {
        self.signals.mark(|m| {
            m.abandoned.insert((self.invocation, writer));
        });
    }

    fn history(&self, limit: u32) -> BoxFuture<'_, Result<Vec<Message>, ChannelError>> {
        Box::pin(async move {
            self.ask_actor(|reply| Msg::History {
                invocation: self.invocation,
                limit: limit as usize,
                reply,
            })
            .await
        })
    }

    fn report_usage(&self, usage: Usage) {
        self.signals.mark(|m| {
            m.usage.insert(self.invocation, usage);
        });
    }

    fn request_approval(
        &self,
        request: ApprovalRequest,
    ) -> BoxFuture<'_, Result<ApprovalDecision, ChannelError>> {
        Box::pin(async move {
            let stored = self.rules_stored(&request.rules).await;
            match self.gate(GateAsk::Permission(request), stored).await? {
                GateValue::Approval(decision) => Ok(decision),
                GateValue::Rejected(error) => Err(error),
                GateValue::Form(_) => Err(ChannelError::Failed(
                    "an approval got a form's answer".into(),
                )),
            }
        })
    }

    fn ask(&self, form: QuestionForm) -> BoxFuture<'_, Result<FormAnswer, ChannelError>> {
        Box::pin(async move {
            match self.gate(GateAsk::AskUser(form), false).await? {
                GateValue::Form(answer) => Ok(answer),
                GateValue::Rejected(error) => Err(error),
                GateValue::Approval(_) => Err(ChannelError::Failed(
                    "a form got an approval's answer".into(),
                )),
            }
        })
    }

    fn withdraw(&self, id: String) {
        self.signals.withdraw(self.invocation, id);
    }

    fn input_ready(&self) -> BoxFuture<'_, Result<bool, ChannelError>> {
        Box::pin(async move {
            let mut input = self.input.clone();
            loop {
                let closed = self.input_wake.notified();
                if self.input_closed.load(Ordering::Acquire) {
                    return Ok(false);
                }
                if *input.borrow_and_update() {
                    return Ok(true);
                }
                tokio::select! {
                    biased;
                    changed = input.changed() => changed.map_err(|_| ChannelError::Closed)?,
                    () = closed => {}
                }
            }
        })
    }

    fn take_input(&self) -> BoxFuture<'_, Result<Vec<PromptInput>, ChannelError>> {
        Box::pin(async move {
            match self.feed(Input::TakeInput(self.invocation)).await? {
                Answer::Inputs(inputs) => Ok(inputs),
                _ => Ok(Vec::new()),
            }
        })
    }

    fn close_input(&self) {
        self.input_closed.store(true, Ordering::Release);
        self.input_wake.notify_waiters();
    }

    fn bind_native_session(&self, id: String) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async move {
            let input = Input::Bind {
                invocation: self.invocation,
                native_session_id: id,
            };
            self.feed(input).await.map(drop)
        })
    }

    fn delegation(&self) -> Option<Arc<dyn Delegation>> {
        Some(Arc::new(LoopDelegates {
            parent: self.context.loop_id,
            invocation: Some(self.invocation),
            mailbox: self.mailbox.clone(),
            deps: self.deps.clone(),
        }))
    }
}
