//! Component calls of the session's invocations: started here, awaited in tasks, returned as
//! messages.

use super::{Actor, Announced, Asked, Msg, Reply, ReserveCall, Reserved, Returned};
use crate::channel::RunChannel;
use crate::signals::{Guard, Pending};
use futures::FutureExt;
use harness_core::abort::{AbortHandle, AbortReason};
use harness_core::content::Message;
use harness_core::gate::GateAsk;
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::{
    CallError, Channel, ChannelError, Instance, Invocation, NativeTurn, PromptInput, Refusal,
    Started,
};
use harness_core::refusal::Refused;
use harness_core::session::{Answer, GateValue, Input, InvocationId, Invoked, Origin, Sink};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What the actor keeps of one invocation.
pub(super) struct Run {
    pub(super) abort: AbortHandle,
    pub(super) sink: Sink,
    pub(super) channel: Arc<RunChannel>,
    pub(super) instance: Option<Arc<dyn Instance>>,
    pub(super) started: Option<Started>,
}

impl Actor {
    /// Steps 6 to 8 of §7.1 for an operation that passed preparation.
    pub(super) async fn reserve(&mut self, call: Box<ReserveCall>, waited: bool) {
        let until = Instant::now() + self.deps.config.handle_wait;
        self.reserve_until(call, waited, until).await;
    }

    async fn reserve_until(&mut self, call: Box<ReserveCall>, waited: bool, until: Instant) {
        let mut reserve = call.reserve.clone();
        reserve.waited = waited;
        let command_id = reserve.origin.command_id;
        let keyed = call.keyed;
        if call.gone.reason().is_some() {
            // Nobody waits for it and nothing was recorded.
            self.refuse_call(call, Refused::CallerGone);
            return;
        }
        self.prepared.insert(command_id, call);
        let answer = self.feed(Input::Reserve(Box::new(reserve)), keyed).await;
        if matches!(answer, Answer::Reserved(_)) {
            return;
        }
        let Some(call) = self.prepared.remove(&command_id) else {
            return;
        };
        match answer {
            Answer::WaitForHandle => {
                self.waiting.push((call, until));
            }
            Answer::WaitForWorkspace => self.outside.push((call, until)),
            Answer::Reread => {
                let ReserveCall {
                    prepared, reply, ..
                } = *call;
                let _ = reply.send(Reserved::Reread(prepared));
            }
            Answer::Refused(refused) => self.refuse_call(call, *refused),
            _ => self.refuse_call(call, Refused::Internal),
        }
    }

    pub(super) fn refuse_call(&mut self, call: Box<ReserveCall>, refused: Refused) {
        let ReserveCall {
            prepared,
            instance,
            reply,
            ..
        } = *call;
        instance.discard(prepared);
        let _ = reply.send(Reserved::Ended(Err(refused), true));
    }

    /// Controls that waited for a starting prompt ask again; without one they are refused (R65).
    pub(super) async fn retry_waiting(&mut self) {
        for (call, _) in std::mem::take(&mut self.waiting) {
            let (live, loop_id) = (&self.session.live, call.reserve.loop_id);
            let started = live.of(loop_id).owner.as_ref().is_some_and(|o| o.handle);
            let stopping = live.is_marked(loop_id) || live.faulted.is_some();
            self.reserve(call, !started && !stopping).await;
        }
        self.retry_outside().await;
    }

    /// Operations that waited until others left the workspace ask again.
    pub(super) async fn retry_outside(&mut self) {
        for (call, until) in std::mem::take(&mut self.outside) {
            self.reserve_until(call, false, until).await;
        }
    }

    /// The channel, sink and abort of a new invocation.
    pub(super) fn open_run(
        &mut self,
        invocation: InvocationId,
        instance: Option<Arc<dyn Instance>>,
    ) {
        let owner = self.session.live.owner_of(invocation);
        let (turn, loop_id) = owner.map_or((None, self.session.state.active_loop), |o| {
            (o.turn, o.loop_id)
        });
        let seat = self.seat(loop_id);
        let (signals, input) = (seat.signals.clone(), seat.input_waits.subscribe());
        let abort = AbortHandle::new();
        let channel = Arc::new(RunChannel {
            invocation,
            context: self.operation_context(loop_id),
            harness: self.harness_of_invocation(invocation),
            workspace: self.session.state.workspace_id.clone(),
            abort: abort.clone(),
            mailbox: self.mailbox.clone(),
            signals,
            deps: self.deps.clone(),
            input,
            input_closed: false.into(),
            input_wake: tokio::sync::Notify::new(),
        });
        self.runs.insert(
            invocation,
            Run {
                abort,
                sink: Sink::new(turn),
                channel,
                instance,
                started: None,
            },
        );
    }

    pub(super) fn call_start_prompt(
        &mut self,
        loop_id: LoopId,
        invocation: InvocationId,
        input: PromptInput,
    ) {
        let start = move |instance: Arc<dyn Instance>, channel| {
            async move { instance.start_prompt(input, channel).await }.boxed()
        };
        self.call_with_instance(loop_id, invocation, Returned::Started, start);
    }

    pub(super) fn call_adopt(
        &mut self,
        loop_id: LoopId,
        invocation: InvocationId,
        native_turn_id: String,
        command_id: CommandId,
    ) {
        let start = move |instance: Arc<dyn Instance>, channel| {
            let adopt = async move {
                instance
                    .adopt_turn(native_turn_id, command_id, channel)
                    .await
            };
            adopt.boxed()
        };
        self.call_with_instance(loop_id, invocation, Returned::Started, start);
    }

    pub(super) fn call_compact(
        &mut self,
        loop_id: LoopId,
        invocation: InvocationId,
        command_id: CommandId,
    ) {
        let compact = move |instance: Arc<dyn Instance>, channel| {
            async move { instance.compact(command_id, channel).await }.boxed()
        };
        self.call_with_instance(loop_id, invocation, Returned::Compacted, compact);
    }

    /// Makes a call on the loop's instance, opened first when there is none.
    fn call_with_instance<T: Send + 'static>(
        &mut self,
        loop_id: LoopId,
        invocation: InvocationId,
        returned: fn(Result<T, CallError>) -> Returned,
        call: impl FnOnce(Arc<dyn Instance>, Arc<dyn Channel>) -> Called<T> + Send + 'static,
    ) {
        self.open_run(invocation, None);
        let Some(channel) = self.runs.get(&invocation).map(|r| r.channel.clone()) else {
            return;
        };
        let (reply, opened) = oneshot::channel();
        self.need_instance(loop_id, reply);
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            let abort = channel.abort();
            let opened = tokio::select! {
                biased;
                // Stopped while its instance was opened: it is not called (R70).
                _ = abort.aborted() => Err(CallError::Refused(Refusal::Cancelled)),
                opened = opened => opened.unwrap_or_else(|_| Err(gone())),
            };
            let result = match opened {
                Ok(instance) => {
                    let _ = mailbox
                        .send(Msg::Ran {
                            invocation,
                            instance: instance.clone(),
                        })
                        .await;
                    call(instance, channel).await
                }
                Err(error) => Err(error),
            };
            let returned = returned(result);
            let _ = mailbox
                .send(Msg::Returned {
                    invocation,
                    returned,
                })
                .await;
        });
    }

    /// Calls `invoke` on what was prepared, unless its caller is gone already (R70).
    pub(super) fn call_invoke(&mut self, invocation: InvocationId, command_id: CommandId) {
        let Some(call) = self.prepared.remove(&command_id) else {
            return;
        };
        let ReserveCall {
            prepared,
            instance,
            gone: caller,
            reply,
            #[cfg(feature = "planted-faults")]
            reserve,
            ..
        } = *call;
        self.results.insert(command_id, reply);
        self.open_run(invocation, Some(instance.clone()));
        let Some(run) = self.runs.get(&invocation) else {
            return;
        };
        if caller.reason().is_some() {
            instance.discard(prepared);
            self.own.push_back(Input::CallerGone(command_id));
            self.own.push_back(Input::Invoked {
                invocation,
                result: Err(CallError::Refused(Refusal::Cancelled)),
                messages: Vec::new(),
            });
            return;
        }
        if !instance.is_live() {
            // Disposed of after preparation: the operation was not performed (R31).
            let reason = "the provider was replaced before the operation was invoked".into();
            self.own.push_back(Input::Invoked {
                invocation,
                result: Err(CallError::Unavailable {
                    reason,
                    loading: false,
                }),
                messages: Vec::new(),
            });
            return;
        }
        let channel: Arc<dyn Channel> = run.channel.clone();
        let mailbox = self.mailbox.clone();
        #[cfg(feature = "planted-faults")]
        let planted = (self.deps.planted, reserve.operation, channel.clone());
        tokio::spawn(async move {
            let invoked = instance.invoke(prepared, command_id, channel).await;
            #[cfg(feature = "planted-faults")]
            let invoked = crate::planted::resend(invoked, instance, command_id, planted).await;
            let returned = Returned::Invoked(invoked);
            let _ = mailbox
                .send(Msg::Returned {
                    invocation,
                    returned,
                })
                .await;
        });
    }

    pub(super) fn call_done(&mut self, invocation: InvocationId) {
        let Some(run) = self.runs.get_mut(&invocation) else {
            return;
        };
        let (Some(started), Some(instance)) = (run.started.take(), run.instance.clone()) else {
            return;
        };
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            let returned = Returned::Done(instance.done(started).await);
            let _ = mailbox
                .send(Msg::Returned {
                    invocation,
                    returned,
                })
                .await;
        });
    }

    pub(super) async fn returned(&mut self, invocation: InvocationId, returned: Returned) {
        let input = match returned {
            Returned::Started(Ok(started)) => {
                let params = started.params.clone();
                self.keep_started(invocation, started);
                Input::Started {
                    invocation,
                    result: Ok(params),
                    messages: Vec::new(),
                }
            }
            Returned::Started(Err(error)) => {
                let messages = self.close_sink(invocation, true);
                Input::Started {
                    invocation,
                    result: Err(error),
                    messages,
                }
            }
            Returned::Invoked(Ok(Invocation::Started(started))) => {
                let params = started.params.clone();
                self.keep_started(invocation, started);
                Input::Invoked {
                    invocation,
                    result: Ok(Invoked::Started(params)),
                    messages: Vec::new(),
                }
            }
            Returned::Invoked(Ok(Invocation::Completed(outcome))) => {
                let messages = self.close_sink(invocation, false);
                Input::Invoked {
                    invocation,
                    result: Ok(Invoked::Completed(outcome)),
                    messages,
                }
            }
            Returned::Invoked(Err(error)) => {
                let messages = self.close_sink(invocation, true);
                Input::Invoked {
                    invocation,
                    result: Err(error),
                    messages,
                }
            }
            Returned::Compacted(result) => {
                let messages = self.close_sink(invocation, result.is_err());
                Input::Compacted {
                    invocation,
                    result,
                    messages,
                }
            }
            Returned::Done(result) => {
                let messages = self.close_sink(invocation, result.is_err());
                Input::Done {
                    invocation,
                    result,
                    messages,
                }
            }
        };
        self.feed(input, None).await;
    }

    fn keep_started(&mut self, invocation: InvocationId, started: Started) {
        if let Some(run) = self.runs.get_mut(&invocation) {
            run.started = Some(started);
        }
    }

    fn close_sink(&mut self, invocation: InvocationId, cut: bool) -> Vec<Message> {
        self.runs
            .get_mut(&invocation)
            .map(|r| r.sink.close(cut))
            .unwrap_or_default()
    }

    pub(super) async fn interrupt(
        &mut self,
        origin: Origin,
        loop_id: Option<LoopId>,
        reply: oneshot::Sender<Result<bool, Refused>>,
    ) {
        // An activity that the provider opened a moment ago counts.
        let answer = self.feed(Input::Interrupt { origin, loop_id }, None).await;
        self.answer_stop(answer, reply);
    }

    /// Who stops is told at once, or when that stop has ended.
    pub(super) fn answer_stop(
        &mut self,
        answer: Answer,
        reply: oneshot::Sender<Result<bool, Refused>>,
    ) {
        match answer {
            Answer::Stopping(command_id) => {
                let mut stops = self.session.live.stops.iter();
                if stops.any(|s| s.command_id == command_id) {
                    self.stops
                        .entry(command_id)
                        .or_default()
                        .waiters
                        .push(reply);
                } else {
                    let _ = reply.send(Ok(true));
                }
            }
            Answer::Bool(interrupted) => {
                let _ = reply.send(Ok(interrupted));
            }
            Answer::Refused(refused) => {
                let _ = reply.send(Err(*refused));
            }
            _ => {
                let _ = reply.send(Err(Refused::Internal));
            }
        }
    }

    /// A stop that did not end within its bound is logged, and its loops are freed (S91).
    pub(super) async fn barrier_expired(&mut self, command_id: CommandId) {
        let expired = self.feed(Input::BarrierExpired(command_id), None).await;
        if expired == Answer::Bool(true) {
            tracing::warn!(session = %self.id, command = %command_id, "a stop did not end in time; its loops are freed");
        }
    }

    pub(super) async fn ask(
        &mut self,
        invocation: InvocationId,
        ask: GateAsk,
        stored_rules: bool,
        reply: oneshot::Sender<Result<Asked, ChannelError>>,
    ) {
        let answer = self
            .feed(
                Input::Ask {
                    invocation,
                    ask,
                    stored_rules,
                },
                None,
            )
            .await;
        let result = match answer {
            Answer::Asked(gate_id) => {
                let (sender, answer) = oneshot::channel();
                self.gates.insert(gate_id, sender);
                let owner = self.session.live.owner_of(invocation);
                let loop_id = owner.map_or(self.session.state.active_loop, |o| o.loop_id);
                let signals = self.seat(loop_id).signals.clone();
                let guard = Guard::new(signals, Pending::Gate(gate_id));
                Ok(Asked::Open {
                    gate_id,
                    answer,
                    guard,
                })
            }
            Answer::Approved(decision) => Ok(Asked::Decided(GateValue::Approval(decision))),
            Answer::Channel(error) => Err(error),
            Answer::Refused(_) => Err(ChannelError::Failed(
                "the request could not be recorded".into(),
            )),
            _ => Err(ChannelError::Closed),
        };
        let _ = reply.send(result);
    }

    pub(super) async fn announce(
        &mut self,
        loop_id: LoopId,
        turn: NativeTurn,
        reply: Reply<Announced>,
    ) {
        self.last_announcement += 1;
        let id = self.last_announcement;
        let (sender, decided) = oneshot::channel();
        self.announcements.insert(id, sender);
        let result = match self.feed(Input::Announce { loop_id, id, turn }, None).await {
            Answer::Accepted => {
                let pending = Pending::Announcement(id);
                let signals = self.seat(loop_id).signals.clone();
                Ok((decided, Guard::new(signals, pending)))
            }
            Answer::Channel(error) => {
                self.announcements.remove(&id);
                Err(error)
            }
            _ => {
                self.announcements.remove(&id);
                Err(ChannelError::Failed(
                    "the announcement could not be recorded".into(),
                ))
            }
        };
        let _ = reply.send(result);
    }

    pub(super) fn history(
        &self,
        invocation: InvocationId,
        limit: usize,
    ) -> Result<Vec<Message>, ChannelError> {
        let owner = self.session.live.owner_of(invocation);
        let owner = owner.ok_or(ChannelError::Closed)?;
        Ok(self
            .session
            .history
            .newest(owner.loop_id, limit, owner.turn))
    }

    /// Saved messages of a loop.
    pub(super) fn messages(
        &self,
        loop_id: Option<LoopId>,
        from: usize,
        limit: usize,
    ) -> Result<Vec<Message>, Refused> {
        let loop_id = loop_id.unwrap_or(self.session.state.active_loop);
        if !self.session.state.loops.contains_key(&loop_id) {
            return Err(Refused::LoopNotFound(loop_id.to_string()));
        }
        let saved = self.session.history.of(loop_id).iter();
        Ok(saved.skip(from).take(limit).cloned().collect())
    }

    /// Fires an invocation's abort.
    pub(super) fn abort_run(&mut self, invocation: InvocationId, reason: AbortReason) {
        if let Some(run) = self.runs.get(&invocation) {
            run.abort.abort(reason);
        }
    }
}

type Called<T> = harness_core::provider::BoxFuture<'static, Result<T, CallError>>;

fn gone() -> CallError {
    CallError::Unavailable {
        reason: "the session ended".into(),
        loading: false,
    }
}
