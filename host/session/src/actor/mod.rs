//! The one owner of a live session: a task that takes messages, asks `harness-core` what follows,
//! makes it durable, and performs it.
//!
//! Invariants: everything that changes the session goes decide → append → commit → effects, in
//! [`Actor::feed`]; nothing is shown or acknowledged before its records are durable; component
//! calls run in tasks of their own and come back as messages, so that the actor never waits for a
//! provider. Not here: admission before reserve (see `operations`) and the decisions themselves.

mod append;
mod calls;
mod effects;
mod instance;
mod load;
mod message;
mod sink;

pub(crate) use load::{Birth, Origin as Source};
pub(crate) use message::*;

use crate::deps::{Deps, TimeOrdered};
use crate::fanout::Fanout;
use crate::handle::{Handle, Published, Readiness, Uses};
use crate::requests::{Delivery, Keyed};
use crate::signals::Signals;
use crate::slots::Slot;
use arc_swap::ArcSwap;
use calls::Run;
use harness_core::ids::{CommandId, GateId, SessionId};
use harness_core::operation::Execution;
use harness_core::provider::{ChannelError, HarnessInfo, Workspace};
use harness_core::refusal::Refused;
use harness_core::session::{
    Answer, Cx, Decision, Effect, GateValue, Input, InvocationId, LinkId, Session,
};
use harness_journal::{Epoch, IdempotencyScope};
use instance::InstanceSlot;
use jiff::Timestamp;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Messages that may wait for an actor: what a provider streams is held back beyond it (W9).
const MAILBOX: usize = 256;
/// Stops and shutdowns that may wait (S29).
const PRIORITY: usize = 16;
/// Shortest time between two notifications of changed command state (G7).
const NOTIFY_EVERY: Duration = Duration::from_millis(250);

/// Takes the session out of the directory when its actor ends, by a panic too: the next request
/// reads the journal again.
struct Forget {
    deps: Arc<Deps>,
    id: SessionId,
    handle: Weak<Handle>,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.deps.directory.forget(self.id, &self.handle);
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
    signals: Arc<Signals>,
    published: Arc<ArcSwap<Published>>,
    fanout: Fanout,
    runs: HashMap<InvocationId, Run>,
    /// Operations between their reserve and the call of `invoke`.
    prepared: HashMap<CommandId, Box<ReserveCall>>,
    /// Who gets an operation's result.
    results: HashMap<CommandId, oneshot::Sender<Reserved>>,
    /// Controls that wait for a starting prompt (R65).
    waiting: Vec<(Box<ReserveCall>, Instant)>,
    gates: HashMap<GateId, oneshot::Sender<GateValue>>,
    announcements: HashMap<LinkId, oneshot::Sender<Result<(), ChannelError>>>,
    last_announcement: LinkId,
    stops: Vec<oneshot::Sender<Result<bool, Refused>>>,
    closes: Vec<oneshot::Sender<()>>,
    instance: InstanceSlot,
    uses: Arc<Uses>,
    slot: Option<Slot>,
    offered: Option<Slot>,
    slot_wait: Option<tokio::task::JoinHandle<()>>,
    /// Inputs the actor feeds itself after the present one.
    own: VecDeque<Input>,
    delivery: Delivery,
    notified: Option<Instant>,
    notify_due: Option<Instant>,
    input_waits: watch::Sender<bool>,
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
        let (ready, readiness) = watch::channel(Readiness::Loading);
        let published = Arc::new(OnceLock::new());
        let uses = Arc::<Uses>::default();
        let id = source.id();
        let handle = Arc::new(Handle {
            ordinary: ordinary_tx.clone(),
            priority: priority_tx,
            published: published.clone(),
            readiness,
            uses: uses.clone(),
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
            };
            match load::load(deps, source, lanes).await {
                Ok(mut actor) => {
                    actor.settle().await;
                    ready.send_replace(Readiness::Ready);
                    actor.run().await;
                    if actor.deleted {
                        // Said before the mailbox closes: who waits there learns why.
                        let gone = Refused::SessionNotFound(id.to_string());
                        ready.send_replace(Readiness::Failed(Box::new(gone)));
                    }
                }
                Err(refused) => {
                    ready.send_replace(Readiness::Failed(Box::new(refused)));
                }
            }
        });
        handle
    }

    async fn run(&mut self) {
        self.look_whether_quiet();
        loop {
            let wake = self.next_wake();
            // The priority lane is looked at before each ordinary message (S29); the rest is left
            // to chance, so that no provider's signals keep clients waiting.
            let message = if let Ok(urgent) = self.priority.try_recv() {
                Some(urgent)
            } else {
                tokio::select! {
                    Some(message) = self.priority.recv() => Some(message),
                    () = self.signals.woken() => {
                        self.take_signals().await;
                        None
                    }
                    message = self.ordinary.recv() => match message {
                        Some(message) => Some(message),
                        None => return,
                    },
                    () = sleep_until(wake) => {
                        if self.timers().await {
                            return;
                        }
                        None
                    }
                }
            };
            if let Some(message) = message {
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
            Msg::Reserve(call) => self.reserve(call, false).await,
            Msg::CallerGone(command) => {
                self.feed(Input::CallerGone(command), None).await;
            }
            Msg::Interrupt { origin, reply } => self.interrupt(origin, reply).await,
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
            Msg::Announce { turn, reply } => self.announce(turn, reply).await,
            Msg::History {
                invocation,
                limit,
                reply,
            } => {
                let _ = reply.send(self.history(invocation, limit));
            }
            Msg::Messages { from, limit, reply } => {
                let saved = self.session.history.of(self.session.state.active_loop);
                let _ = reply.send(saved.iter().skip(from).take(limit).cloned().collect());
            }
            Msg::Snapshot { reply } => {
                let _ = reply.send(self.session.snapshot());
            }
            Msg::Subscribe { reply } => {
                let feed = self.fanout.subscribe(self.session.state.last_seq);
                let _ = reply.send((feed, self.session.snapshot()));
            }
            Msg::NeedInstance { reply } => self.need_instance(reply),
            Msg::Opened { generation, result } => self.opened(generation, result),
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
            Msg::SlotGranted(slot) => {
                self.offered = Some(slot);
                self.slot_wait = None;
                self.settle().await;
            }
            Msg::DrainExpired(aborted) => self.drain_expired(&aborted),
            Msg::Drained => {
                self.take_signals().await;
                self.feed(Input::ActivitiesSettled, None).await;
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
        let answer = self.step(input, keyed).await;
        self.settle().await;
        answer
    }

    /// One decision. The return of a component call comes only once: when it cannot be written
    /// down, it is taken in again under the fault, which frees owner, slot and caller (S62).
    async fn step(&mut self, input: Input, keyed: Option<(IdempotencyScope, Keyed)>) -> Answer {
        let returned = matches!(
            input,
            Input::Started { .. } | Input::Invoked { .. } | Input::Done { .. }
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
                self.step(input, None).await;
                continue;
            }
            let decision = self.decide(Input::Advance);
            let idle = decision.records.is_empty()
                && decision.effects.is_empty()
                && decision.live == self.session.live;
            if idle {
                break;
            }
            // A failed append has left its fault among what the actor owes itself.
            let _ = self.execute(decision, None).await;
        }
        // A slot that was offered and not taken goes back to the pool.
        self.offered = None;
        let live = &self.session.live;
        if live.waits_for_slot && live.owner.is_none() && self.slot_wait.is_none() {
            // The slot that was wished for came while an idle control ran: wish again.
            self.wait_for_slot();
        }
    }

    pub(super) fn decide(&mut self, input: Input) -> Decision {
        if self.may_take_slot(&input) && self.offered.is_none() {
            self.offered = self.deps.slots.try_take();
        }
        let info: Option<Arc<HarnessInfo>> = self.harness_info();
        let mut ids = TimeOrdered;
        let mut cx = Cx {
            now: Timestamp::now(),
            ids: &mut ids,
            harness: info.as_deref(),
            slot_free: self.offered.is_some(),
            native_turns: self.deps.config.native_turns,
            inbox: self.deps.config.inbox,
        };
        self.session.decide(input, &mut cx)
    }

    /// Whether a decision over this input may take a slot. Nothing else is offered one, so that
    /// no other session sees the pool exhausted for the length of an append.
    fn may_take_slot(&self, input: &Input) -> bool {
        let (state, live) = (&self.session.state, &self.session.live);
        if live.slot || live.owner.is_some() || live.stop.is_some() || live.faulted.is_some() {
            return false;
        }
        match input {
            Input::Advance => {
                !live.announced.is_empty() || state.loops.values().any(|l| l.next_input().is_some())
            }
            Input::Reserve(reserve) => reserve.execution == Execution::Exclusive,
            Input::Submit { .. } => true,
            _ => false,
        }
    }

    fn harness_info(&self) -> Option<Arc<HarnessInfo>> {
        let harness = &self.session.state.active_loop()?.harness;
        self.deps.harnesses.get(harness)?.info()
    }

    async fn execute(
        &mut self,
        decision: Decision,
        keyed: Option<(IdempotencyScope, Keyed)>,
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

    /// Takes in what the provider marked without waiting.
    async fn take_signals(&mut self) {
        let marks = self.signals.take();
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
        if marks.paced != self.session.live.paced {
            self.feed(Input::Paced(marks.paced), None).await;
        }
        if marks.activities_changed {
            self.compare_activities().await;
        }
        if marks.state_changed {
            self.feed(Input::StateChanged, None).await;
        }
    }

    async fn compare_activities(&mut self) {
        let open = self.signals.activities();
        let known = self.session.live.activities.clone();
        for (id, label) in &open {
            if !known.contains_key(id) {
                self.feed(
                    Input::ActivityBegan {
                        id: *id,
                        label: label.clone(),
                    },
                    None,
                )
                .await;
                if self.session.live.stop.is_some() {
                    self.perform(Effect::AbortActivities);
                }
            }
        }
        for id in known.keys().filter(|id| !open.contains_key(id)) {
            self.feed(Input::ActivityEnded(*id), None).await;
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().map(|(_, deadline)| *deadline).min();
        let quiet = self.quiet_since.map(|since| {
            since
                + if self.instance.is_some() {
                    self.deps.config.instance_idle
                } else {
                    self.deps.config.park_after
                }
        });
        [waiting, quiet, self.notify_due]
            .into_iter()
            .flatten()
            .min()
    }

    /// What is due. True: the session is parked and the actor ends.
    async fn timers(&mut self) -> bool {
        let now = Instant::now();
        if self.notify_due.is_some_and(|due| due <= now) {
            self.notify_now(now);
        }
        let (late, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, at)| *at <= now);
        self.waiting = waiting;
        let late: Vec<(Box<ReserveCall>, Instant)> = late;
        for (call, _) in late {
            self.reserve(call, true).await;
        }
        let Some(since) = self.quiet_since else {
            return false;
        };
        if self.instance.is_some() {
            if now >= since + self.deps.config.instance_idle {
                // Discovery and preparation run outside the actor and count as well (N5).
                let used = self.uses.last().max(since);
                if self.uses.in_flight() > 0 || now < used + self.deps.config.instance_idle {
                    self.quiet_since = Some(if self.uses.in_flight() > 0 { now } else { used });
                    return false;
                }
                self.drop_idle_instance();
                self.quiet_since = Some(now);
            }
            return false;
        }
        now >= since + self.deps.config.park_after && self.park().await
    }

    /// Shows what others may read without asking, and tells list readers of a changed row.
    fn publish(&mut self) {
        let before = self.published.load();
        let view = self.session.view();
        let state = &self.session.state;
        let changed = *before.view != view;
        let instance = self.instance.live();
        let same_instance = match (&before.instance, &instance) {
            (Some(shown), Some(now)) => Arc::ptr_eq(shown, now),
            (shown, now) => shown.is_none() && now.is_none(),
        };
        let active = state.active_loop();
        let next = Published {
            view: if changed {
                Arc::new(view)
            } else {
                before.view.clone()
            },
            loop_id: state.active_loop,
            harness: active.map_or_else(|| state.agent.clone(), |l| l.harness.clone()),
            native_session_id: active.and_then(|l| l.native_session_id.clone()),
            workspace: self.workspace_for_harness(),
            settings_epoch: state.settings_epoch,
            state_epoch: self.session.live.state_epoch,
            run_id: state.run_id,
            stopping: self.session.live.stop.is_some(),
            faulted: self.session.live.faulted.is_some(),
            instance,
            born: self.birth.is_none(),
        };
        let unchanged = !changed
            && same_instance
            && before.born == next.born
            && before.state_epoch == next.state_epoch
            && before.settings_epoch == next.settings_epoch
            && before.workspace == next.workspace
            && before.stopping == next.stopping
            && before.native_session_id == next.native_session_id
            && before.faulted == next.faulted;
        if !unchanged {
            if changed && next.born {
                let _ = self.deps.rows.send(next.view.clone());
            }
            self.published.store(Arc::new(next));
        }
        let waits =
            active.is_some_and(|l| l.inbox.iter().find(|w| !w.held).is_some_and(|w| !w.no_fold));
        self.input_waits
            .send_if_modified(|now| std::mem::replace(now, waits) != waits);
    }

    /// Notes since when nothing keeps the session live. A prompt that waits for a slot does: a
    /// parked session has no actor to be granted one.
    fn look_whether_quiet(&mut self) {
        let live = &self.session.live;
        let quiet = live.is_quiet()
            && !live.waits_for_slot
            && self.gates.is_empty()
            && self.waiting.is_empty();
        match (quiet, self.quiet_since) {
            (true, None) => self.quiet_since = Some(Instant::now()),
            (false, Some(_)) => self.quiet_since = None,
            _ => {}
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
