//! The one owner of a live session: a task that takes messages, asks `harness-core` what follows,
//! makes it durable, and performs it.
//!
//! Invariants: everything that changes the session goes decide → append → commit → effects, in
//! [`Actor::feed`]; nothing is shown or acknowledged before its records are durable; component
//! calls run in tasks of their own and come back as messages, so that the actor never waits for a
//! provider. Not here: admission before reserve (see `operations`) and the decisions themselves.

mod append;
mod calls;
mod delegates;
mod effects;
mod host_gates;
mod instance;
mod load;
mod message;
mod processes;
mod publish;
mod restore;
mod seat;
mod shutdown;
mod sink;
mod timers;
mod workspace;

pub(crate) use host_gates::Opened;
pub(crate) use load::{Birth, Origin as Source};
pub(crate) use message::*;
pub(crate) use processes::ProcessMsg;

use crate::deps::Deps;
use crate::drift::configuration;
use crate::fanout::Fanout;
use crate::handle::{Handle, Published, Readiness, ReadinessCell, Uses};
use crate::requests::{Delivery, Keyed};
use crate::rounds::Rounds;
use crate::signals::Marks;
use crate::slots::Slot;
use crate::surroundings::Minting;
use arc_swap::ArcSwap;
use calls::Run;
use delegates::Waits;
use harness_core::ids::{CommandId, GateId, LoopId, SessionId};
use harness_core::operation::Execution;
use harness_core::provider::{ChannelError, Workspace};
use harness_core::refusal::Refused;
use harness_core::session::{
    Answer, Cx, Decision, Effect, GateValue, Input, InvocationId, LinkId, Session,
};
use harness_journal::{Epoch, IdempotencyScope};
use host_gates::HostSlot;
use processes::Kept;
use seat::{PendingStop, Seat};
use shutdown::Shutting;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use workspace::{Asker, Place};

/// Messages that may wait for an actor: what a provider streams is held back beyond it (W9).
const MAILBOX: usize = 256;
/// Stops and shutdowns that may wait (S29).
const PRIORITY: usize = 16;
/// Takes the session out of the directory when its actor ends, by a panic too: the next request
/// reads the journal again.
struct Forget {
    deps: Arc<Deps>,
    id: SessionId,
    handle: Weak<Handle>,
    readiness: Arc<ReadinessCell>,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.deps.directory.forget(self.id, &self.handle);
        self.readiness.end();
    }
}

/// A live session.
pub(crate) struct Actor {
    deps: Arc<Deps>,
    id: SessionId,
    session: Session,
    epoch: Epoch,
    /// Records of a session that is not in the journal yet; they go with its first append.
    birth: Option<Birth>,
    workspace: Option<Workspace>,
    ordinary: mpsc::Receiver<Msg>,
    priority: mpsc::Receiver<Msg>,
    mailbox: mpsc::Sender<Msg>,
    /// Wakes the actor when a provider marked something.
    wake: Arc<Notify>,
    /// What it keeps of each loop.
    seats: BTreeMap<LoopId, Seat>,
    published: Arc<ArcSwap<Published>>,
    fanout: Fanout,
    runs: BTreeMap<InvocationId, Run>,
    /// Operations between their reserve and the call of `invoke`.
    prepared: BTreeMap<CommandId, Box<ReserveCall>>,
    /// Who gets an operation's result.
    results: BTreeMap<CommandId, oneshot::Sender<Reserved>>,
    /// Controls that wait for a starting prompt (R65).
    waiting: Vec<(Box<ReserveCall>, Instant)>,
    /// Operations that wait until others leave the workspace (S99).
    outside: Vec<(Box<ReserveCall>, Instant)>,
    /// Open gates of the host.
    host_gates: BTreeMap<GateId, HostSlot>,
    gates: BTreeMap<GateId, oneshot::Sender<GateValue>>,
    announcements: BTreeMap<LinkId, oneshot::Sender<Result<(), ChannelError>>>,
    last_announcement: LinkId,
    /// Calls that wait for a delegate's result.
    waits: Waits,
    stops: BTreeMap<CommandId, PendingStop>,
    /// Background processes that it started, and the newest of them that ended.
    processes: Vec<Kept>,
    closes: Vec<oneshot::Sender<()>>,
    shutting: Shutting,
    uses: Arc<Uses>,
    /// Its part in the workspace.
    place: Place,
    /// The store could not tell whether an append was written; the session is faulted since.
    unsure: bool,
    /// A free slot that decisions may take, one at a time.
    offered: Option<Slot>,
    /// Inputs the actor feeds itself after the present one.
    own: VecDeque<Input>,
    delivery: Delivery,
    /// Since when nothing runs, waits or is open.
    quiet_since: Option<Instant>,
    handle: Weak<Handle>,
    /// Controls that wait for a handle are to ask again.
    retry_due: bool,
    /// Something that is published may have changed.
    dirty: bool,
    deleted: bool,
}

impl Actor {
    /// Starts the actor of a session and gives its handle.
    pub(crate) fn spawn(deps: Arc<Deps>, source: Source) -> Arc<Handle> {
        let (ordinary_tx, ordinary) = mpsc::channel(MAILBOX);
        let (priority_tx, priority) = mpsc::channel(PRIORITY);
        let readiness = Arc::<ReadinessCell>::default();
        let ready = readiness.clone();
        let published = Arc::new(OnceLock::new());
        let uses = Arc::<Uses>::default();
        let id = source.id();
        let handle = Arc::new(Handle {
            ordinary: ordinary_tx.clone(),
            priority: priority_tx,
            published: published.clone(),
            readiness,
            uses: uses.clone(),
            reads: Rounds::default(),
        });
        let weak = Arc::downgrade(&handle);
        let lanes = load::Lanes {
            ordinary,
            priority,
            mailbox: ordinary_tx,
            published,
            handle: weak.clone(),
            uses,
        };
        tokio::spawn(async move {
            let _forget = Forget {
                deps: deps.clone(),
                id,
                handle: weak,
                readiness: ready.clone(),
            };
            match load::load(deps, source, lanes).await {
                Ok(mut actor) => {
                    actor.settle().await;
                    ready.set(Readiness::Ready);
                    actor.run().await;
                    if actor.deleted {
                        // Said before the mailbox closes: who waits there learns why.
                        let gone = Refused::SessionNotFound(id.to_string());
                        ready.set(Readiness::Failed(Box::new(gone)));
                    }
                }
                Err(refused) => {
                    ready.set(Readiness::Failed(Box::new(refused)));
                }
            }
        });
        handle
    }

    async fn run(&mut self) {
        self.look_whether_quiet();
        // Whether a message was taken since the last look at what is due.
        let mut took = false;
        loop {
            let wake = self.next_wake();
            // The priority lane is looked at before each ordinary message (S29). Nothing starves
            // behind a full mailbox: signals are taken in with every message, and what is due is
            // looked at between two of them.
            let due = std::mem::take(&mut took) && wake.is_some_and(|at| at <= Instant::now());
            let message = if due {
                if self.timers().await {
                    return;
                }
                None
            } else {
                tokio::select! {
                    biased;
                    Some(message) = self.priority.recv() => Some(message),
                    message = self.ordinary.recv() => match message {
                        Some(message) => Some(message),
                        None => return,
                    },
                    () = self.wake.notified() => {
                        self.take_signals().await;
                        None
                    }
                    () = sleep_until(wake) => {
                        if self.timers().await {
                            return;
                        }
                        None
                    }
                }
            };
            if let Some(message) = message {
                took = true;
                // Marks were set before the message that follows them was sent.
                self.take_signals().await;
                self.take(message).await;
            }
            while std::mem::take(&mut self.retry_due) {
                self.retry_waiting().await;
            }
            if std::mem::take(&mut self.dirty) {
                self.publish();
            }
            self.look_whether_quiet();
            self.answer_closes();
            if self.deleted {
                return;
            }
        }
    }

    async fn take(&mut self, message: Msg) {
        match message {
            Msg::Feed {
                input,
                keyed,
                reply,
            } => {
                let answer = self.feed(input, keyed).await;
                let _ = reply.send(Fed {
                    answer,
                    delivery: self.delivery,
                });
            }
            Msg::Import { input, reply } => {
                let answer = self.feed(input, None).await;
                let _ = reply.send(Ok(answer));
            }
            Msg::OnWorkspace {
                input,
                command_id,
                keyed,
                reply,
            } => {
                let asker = Asker::new(keyed, reply);
                self.on_workspace(input, command_id, asker).await;
            }
            Msg::Checkpointed { job, result } => self.checkpointed(job, result).await,
            Msg::Rewound { job, result, alone } => self.rewound(job, result, alone).await,
            Msg::RewindFinished { job } => self.rewind_finished(job).await,
            Msg::WorkspaceChanged => {
                self.feed(Input::WorkspaceChanged, None).await;
                self.retry_outside().await;
            }
            Msg::Reserve(call) => self.reserve(call, false).await,
            Msg::CallerGone(command) => {
                self.feed(Input::CallerGone(command), None).await;
            }
            Msg::Interrupt {
                origin,
                loop_id,
                reply,
            } => self.interrupt(origin, loop_id, reply).await,
            Msg::Await {
                parent,
                invocation,
                request,
                reply,
            } => self.await_result(parent, invocation, request, reply).await,
            Msg::StopDelegate { call, reply } => self.stop_delegate(call, reply).await,
            Msg::BarrierExpired(command) => self.barrier_expired(command).await,
            Msg::Sink {
                invocation,
                op,
                reply,
            } => self.write(invocation, op, reply).await,
            Msg::Ask {
                invocation,
                ask,
                stored_rules,
                reply,
            } => {
                self.ask(invocation, ask, stored_rules, reply).await;
            }
            Msg::OpenHostGate {
                ask,
                secrets,
                policy,
                loop_id,
                reply,
            } => {
                self.open_host_gate(ask, secrets, policy, loop_id, reply)
                    .await;
            }
            Msg::HostGateTimeout(gate_id) => {
                self.feed(Input::GateTimeout(gate_id), None).await;
            }
            Msg::Gates { reply } => {
                let _ = reply.send(self.open_gates());
            }
            Msg::Announce {
                loop_id,
                turn,
                reply,
            } => self.announce(loop_id, turn, reply).await,
            Msg::History {
                invocation,
                limit,
                reply,
            } => {
                let _ = reply.send(self.history(invocation, limit));
            }
            Msg::Messages {
                loop_id,
                from,
                limit,
                reply,
            } => {
                let _ = reply.send(self.messages(loop_id, from, limit));
            }
            Msg::Snapshot { reply } => {
                let _ = reply.send(self.session.snapshot());
            }
            Msg::Subscribe { filter, reply } => {
                let tip = self.session.state.last_seq;
                let feed = self.fanout.subscribe(tip, filter);
                let _ = reply.send((feed, self.session.snapshot()));
            }
            Msg::NeedInstance { loop_id, reply } => {
                let loop_id = loop_id.unwrap_or(self.session.state.active_loop);
                self.need_instance(loop_id, reply);
            }
            Msg::Opened {
                loop_id,
                generation,
                result,
            } => self.opened(loop_id, generation, result),
            Msg::Ran {
                invocation,
                instance,
            } => {
                if let Some(run) = self.runs.get_mut(&invocation) {
                    run.instance = Some(instance);
                }
            }
            Msg::Returned {
                invocation,
                returned,
            } => self.returned(invocation, returned).await,
            Msg::SlotGranted(loop_id, slot) => {
                self.offered = Some(slot);
                self.seat(loop_id).slot_wait = None;
                self.settle().await;
            }
            Msg::DrainExpired(loop_id, aborted) => self.drain_expired(loop_id, &aborted),
            Msg::Drained(loop_id) => {
                self.take_signals().await;
                self.feed(Input::ActivitiesSettled(loop_id), None).await;
            }
            Msg::Answered {
                scope,
                key,
                response,
                reply,
            } => {
                self.keep_answer(scope, key, response).await;
                let _ = reply.send(());
            }
            Msg::Delete { reply } => {
                let _ = reply.send(self.delete().await);
            }
            Msg::Process(message) => self.process(message).await,
            Msg::Shutdown { origin, reply } => self.shut_down(origin, reply).await,
            Msg::ShutdownExpired => self.shutdown_expired().await,
            Msg::ShutDown { in_time } => self.answer_shutdown(in_time),
            Msg::Close { reply } => {
                self.feed(Input::Close, None).await;
                self.closes.push(reply);
            }
        }
    }

    /// An input, everything it makes possible, and what the actor owes itself afterwards.
    pub(super) async fn feed(
        &mut self,
        input: Input,
        keyed: Option<(IdempotencyScope, Keyed)>,
    ) -> Answer {
        self.feed_all(input, keyed.into_iter().collect()).await
    }

    /// As [`Self::feed`], for an input that ends several requests.
    pub(super) async fn feed_all(
        &mut self,
        input: Input,
        keyed: Vec<(IdempotencyScope, Keyed)>,
    ) -> Answer {
        let answer = self.step(input, keyed).await;
        self.settle().await;
        answer
    }

    /// One decision. The return of a component call comes only once: when it cannot be written
    /// down, it is taken in again under the fault, which frees owner, slot and caller (S62).
    async fn step(&mut self, input: Input, keyed: Vec<(IdempotencyScope, Keyed)>) -> Answer {
        let returned = matches!(
            input,
            Input::Started { .. }
                | Input::Invoked { .. }
                | Input::Done { .. }
                | Input::Compacted { .. }
        );
        let again = (returned && self.session.live.faulted.is_none()).then(|| input.clone());
        let decision = self.decide(input);
        match self.execute(decision, keyed).await {
            Ok(answer) => answer,
            Err(refused) => {
                self.own.extend(again);
                Answer::Refused(Box::new(refused))
            }
        }
    }

    /// Feeds what the actor owes itself and `Advance`, until nothing changes any more.
    pub(super) async fn settle(&mut self) {
        loop {
            if let Some(input) = self.own.pop_front() {
                self.step(input, Vec::new()).await;
                continue;
            }
            let decision = self.decide(Input::Advance);
            let idle = decision.records.is_empty()
                && decision.effects.is_empty()
                && decision.live == self.session.live;
            if idle {
                // The source of a notification that found no room says it again (S97).
                match self.session.notice_to_retry() {
                    Some(notice) => drop(self.step(Input::NotifyProcess(notice), Vec::new()).await),
                    None => break,
                }
                continue;
            }
            // A failed append has left its fault among what the actor owes itself.
            let _ = self.execute(decision, Vec::new()).await;
        }
        // A slot that was offered and not taken goes back to the pool.
        self.offered = None;
        self.place.take_back();
        // A slot that was wished for came while an idle control ran, or another loop took it: wish
        // again.
        let loops = self.session.live.loops.iter();
        let wishes = loops.filter(|(_, l)| l.waits_for_slot && l.owner.is_none());
        for loop_id in wishes.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.wait_for_slot(loop_id);
        }
    }

    pub(super) fn decide(&mut self, mut input: Input) -> Decision {
        if let Input::Reopen(now) = &mut input {
            let (state, workspace) = (&self.session.state, self.workspace.as_ref());
            *now = Some(Box::new(configuration(&self.deps, state, workspace)));
        }
        if self.may_take_slot(&input) && self.offered.is_none() {
            self.offered = self.deps.slots.try_take();
        }
        let policy = self.deps.config.checkpoint;
        let (state, live) = (&self.session.state, &self.session.live);
        let workspace = self.place.offer(&input, state, live, policy);
        let harnesses = self.deps.harnesses.clone();
        let surroundings = self.deps.surroundings.clone();
        let mut ids = Minting(surroundings.as_ref());
        let mut cx = Cx {
            now: surroundings.now(),
            ids: &mut ids,
            harness: &|id| harnesses.get(id)?.info(),
            configuration: &|id| harnesses.get(id)?.configuration(),
            slot_free: self.offered.is_some(),
            native_turns: self.deps.config.native_turns,
            inbox: self.deps.config.inbox,
            workspace,
            processes: self.deps.config.background_processes,
        };
        self.session.decide(input, &mut cx)
    }

    /// Whether a decision over this input may take a slot. Nothing else is offered one, so that
    /// no other session sees the pool exhausted for the length of an append.
    fn may_take_slot(&self, input: &Input) -> bool {
        let (state, live) = (&self.session.state, &self.session.live);
        if live.faulted.is_some() {
            return false;
        }
        let free = |id: LoopId| {
            let l = live.of(id);
            !l.slot && l.owner.is_none() && !live.is_marked(id)
        };
        match input {
            Input::Advance => {
                let mut loops = state.loops.values();
                loops.any(|l| live.of(l.id).wants_a_turn(l) && free(l.id))
            }
            Input::Reserve(reserve) => {
                reserve.execution == Execution::Exclusive && free(reserve.loop_id)
            }
            Input::Submit { loop_id, .. } => free(loop_id.unwrap_or(state.active_loop)),
            _ => false,
        }
    }

    async fn execute(
        &mut self,
        decision: Decision,
        keyed: Vec<(IdempotencyScope, Keyed)>,
    ) -> Result<Answer, Refused> {
        let Decision {
            records,
            live,
            effects,
            answer,
            refusable,
        } = decision;
        self.dirty |= !records.is_empty() || !effects.is_empty() || live != self.session.live;
        if records.is_empty() {
            self.session.live = live;
        } else {
            self.append(records, live, refusable, keyed).await?;
        }
        // Shown before anybody is told, so that who was told reads what follows from it.
        if std::mem::take(&mut self.dirty) {
            self.publish();
        }
        for effect in effects {
            self.perform(effect);
        }
        Ok(answer)
    }

    /// Takes in what providers marked without waiting.
    async fn take_signals(&mut self) {
        let seats = self.seats.iter();
        let marked = seats.filter_map(|(id, seat)| Some((*id, seat.signals.take()?)));
        for (loop_id, marks) in marked.collect::<Vec<_>>() {
            self.take_marks(loop_id, marks).await;
        }
    }

    async fn take_marks(&mut self, loop_id: LoopId, marks: Marks) {
        for invocation in marks.entered {
            self.feed(Input::Entered(invocation), None).await;
        }
        for (invocation, usage) in marks.usage {
            self.feed(Input::Usage { invocation, usage }, None).await;
        }
        for (invocation, writer) in marks.abandoned {
            self.finish_writer(invocation, writer).await;
        }
        for (invocation, provider_id) in marks.withdrawn {
            self.feed(
                Input::Withdraw {
                    invocation,
                    provider_id,
                },
                None,
            )
            .await;
        }
        for gate_id in marks.unasked {
            self.gates.remove(&gate_id);
            self.feed(Input::Unasked(gate_id), None).await;
        }
        for id in marks.unannounced {
            self.announcements.remove(&id);
            self.feed(Input::Unannounce(id), None).await;
        }
        for id in marks.unawaited {
            self.unawait(id).await;
        }
        if marks.paced != self.session.live.of(loop_id).paced {
            let announcements = marks.paced;
            self.feed(
                Input::Paced {
                    loop_id,
                    announcements,
                },
                None,
            )
            .await;
        }
        if marks.activities_changed {
            self.compare_activities(loop_id).await;
        }
        if marks.state_changed {
            self.feed(Input::StateChanged(loop_id), None).await;
        }
    }

    async fn compare_activities(&mut self, loop_id: LoopId) {
        let open = self.seat(loop_id).signals.activities();
        let known = self.session.live.of(loop_id).activities.clone();
        for (id, label) in &open {
            if !known.contains_key(id) {
                self.feed(
                    Input::ActivityBegan {
                        loop_id,
                        id: *id,
                        label: label.clone(),
                    },
                    None,
                )
                .await;
                if self.session.live.is_marked(loop_id) {
                    self.perform(Effect::AbortActivities(loop_id));
                }
            }
        }
        for id in known.into_keys().filter(|id| !open.contains_key(id)) {
            self.feed(Input::ActivityEnded { loop_id, id }, None).await;
        }
    }
}

/// What a planted defect looks at and changes.
#[cfg(feature = "planted-faults")]
impl Actor {
    pub(crate) fn planted(&self) -> Option<crate::planted::Planted> {
        self.deps.planted
    }

    pub(crate) fn fresh_id(&self) -> uuid::Uuid {
        self.deps.surroundings.id()
    }

    /// A record that no decision made.
    pub(crate) async fn write_beside(&mut self, record: &harness_core::session::Record) {
        let Ok(encoded) = record.encode() else { return };
        let append = harness_journal::Append {
            session: self.id,
            epoch: self.epoch,
            expected_next: None,
            create: None,
            records: vec![harness_journal::NewRecord {
                kind: harness_journal::RecordKind::Command,
                key: record.key(),
                fingerprint: encoded.fingerprint,
                bytes: encoded.bytes.into(),
            }],
            projection: None,
            idempotency: Vec::new(),
        };
        if self.deps.journal.append(append).await.is_ok() {
            self.session.state.last_seq += 1;
        }
    }

    pub(crate) fn lose_held_inputs(&mut self) {
        for l in self.session.state.loops.values_mut() {
            l.inbox.retain(|w| !w.held);
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
