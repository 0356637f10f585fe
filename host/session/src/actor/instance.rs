//! The loop's one instance: opened when somebody needs it, dropped when nobody does (W7, N5).

use super::{Actor, Msg};
use crate::link::SessionLink;
use harness_core::abort::AbortReason;
use harness_core::ids::LoopId;
use harness_core::provider::{CallError, Instance, InstanceScope};
use harness_core::session::LinkId;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::oneshot;

type Waiter = oneshot::Sender<Result<Arc<dyn Instance>, CallError>>;

/// Where the instance stands.
#[derive(Default)]
pub(super) struct InstanceSlot {
    current: Option<Arc<dyn Instance>>,
    /// Who waits for the one that is being opened; empty: none is.
    waiters: Vec<Waiter>,
    /// Counts openings, so that a late answer to an earlier one is told apart.
    generation: u64,
    /// Instances of an earlier harness that still finish their calls.
    retired: Vec<Arc<dyn Instance>>,
    /// Instances that are being disposed of; the next one waits for their end (N3).
    leaving: Vec<Arc<dyn Instance>>,
}

impl Drop for InstanceSlot {
    /// The actor is gone, by a panic too: nobody else would end what it ran.
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            for instance in self
                .current
                .take()
                .into_iter()
                .chain(self.retired.drain(..))
            {
                runtime.spawn(instance.dispose(AbortReason::OwnerStopped));
            }
        }
    }
}

impl InstanceSlot {
    pub(super) fn is_some(&self) -> bool {
        self.current.is_some() || !self.waiters.is_empty()
    }

    pub(super) fn is_opening(&self) -> bool {
        !self.waiters.is_empty()
    }

    pub(super) fn live(&self) -> Option<Arc<dyn Instance>> {
        self.current.clone().filter(|i| i.is_live())
    }
}

impl Actor {
    pub(super) fn need_instance(&mut self, loop_id: LoopId, reply: Waiter) {
        self.dirty = true;
        let slot = &mut self.seat(loop_id).instance;
        if let Some(instance) = slot.live() {
            let _ = reply.send(Ok(instance));
            return;
        }
        let opening = !slot.waiters.is_empty();
        slot.waiters.push(reply);
        if opening {
            return;
        }
        slot.generation += 1;
        let generation = slot.generation;
        let mut old = std::mem::take(&mut slot.leaving);
        old.extend(slot.current.take());
        let signals = self.seat(loop_id).signals.clone();
        let state = &self.session.state;
        let harness_id = state
            .loops
            .get(&loop_id)
            .map_or_else(|| state.agent.clone(), |l| l.harness.clone());
        let scope = InstanceScope::Loop {
            project: state.project_id.clone(),
            session: self.id,
            loop_id,
        };
        let harness = self.deps.harnesses.get(&harness_id);
        let link = Arc::new(SessionLink::new(
            loop_id,
            harness_id.clone(),
            self.mailbox.clone(),
            signals,
            self.published.clone(),
            self.deps.clone(),
        ));
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            // N3: the next instance starts only when the old one's processes are reaped.
            for old in old {
                old.ended().await;
            }
            let result = match harness {
                Some(harness) => harness.open(scope, link).await,
                None => Err(CallError::Unavailable {
                    reason: format!("no harness `{harness_id}` is installed"),
                    loading: false,
                }),
            };
            let _ = mailbox
                .send(Msg::Opened {
                    loop_id,
                    generation,
                    result,
                })
                .await;
        });
    }

    pub(super) fn opened(
        &mut self,
        loop_id: LoopId,
        generation: u64,
        result: Result<Arc<dyn Instance>, CallError>,
    ) {
        self.dirty = true;
        let slot = &mut self.seat(loop_id).instance;
        if generation != slot.generation {
            // The harness changed meanwhile: this one serves nobody.
            if let Ok(instance) = result {
                tokio::spawn(instance.dispose(AbortReason::Superseded));
            }
            return;
        }
        if let Ok(instance) = &result {
            slot.current = Some(instance.clone());
        }
        for waiter in std::mem::take(&mut slot.waiters) {
            let _ = waiter.send(result.clone());
        }
        if self.session.live.closing {
            // It came up while the host went down.
            drop(self.dispose_current(loop_id, AbortReason::Shutdown));
        }
    }

    /// The loop has another harness: its instance takes no new calls here, and is disposed of
    /// when the calls it runs have ended.
    pub(super) fn retire_instance(&mut self, loop_id: LoopId) {
        let slot = &mut self.seat(loop_id).instance;
        slot.generation += 1;
        let unserved = CallError::Unavailable {
            reason: "the harness changed".into(),
            loading: false,
        };
        for waiter in std::mem::take(&mut slot.waiters) {
            let _ = waiter.send(Err(unserved.clone()));
        }
        slot.retired.extend(slot.current.take());
        self.dispose_retired();
    }

    pub(super) fn dispose_retired(&mut self) {
        if self.runs.is_empty() {
            for seat in self.seats.values_mut() {
                for instance in std::mem::take(&mut seat.instance.retired) {
                    seat.instance.leaving.push(instance.clone());
                    tokio::spawn(instance.dispose(AbortReason::Superseded));
                }
            }
        }
    }

    /// Drops an instance that nobody uses. One that a request took up meanwhile stays.
    pub(super) fn drop_idle_instance(&mut self, loop_id: LoopId) {
        let Some(instance) = self.seat(loop_id).instance.current.take() else {
            return;
        };
        // Hidden first, counted then: a request counts itself before it looks.
        self.publish();
        if self.uses.in_flight() == 0 {
            self.seat(loop_id).instance.leaving.push(instance.clone());
            tokio::spawn(instance.dispose(AbortReason::Idle));
        } else {
            self.seat(loop_id).instance.current = Some(instance);
            self.publish();
        }
    }

    /// Begins to end the instance; what is returned waits for its end.
    pub(super) fn dispose_current(
        &mut self,
        loop_id: LoopId,
        reason: AbortReason,
    ) -> impl Future<Output = ()> + Send + use<> {
        self.dirty = true;
        let slot = &mut self.seat(loop_id).instance;
        let current = slot.current.take();
        slot.leaving.extend(current.clone());
        let ending = current.map(|instance| tokio::spawn(instance.dispose(reason)));
        async move {
            if let Some(ending) = ending {
                let _ = ending.await;
            }
        }
    }

    /// Begins to end every loop's instance; what is returned waits for their end.
    pub(super) fn dispose_all(
        &mut self,
        reason: AbortReason,
    ) -> impl Future<Output = ()> + Send + use<> {
        let loops: Vec<LoopId> = self.seats.keys().copied().collect();
        let endings: Vec<_> = loops
            .into_iter()
            .map(|loop_id| self.dispose_current(loop_id, reason))
            .collect();
        async move {
            for ending in endings {
                ending.await;
            }
        }
    }

    /// Activities that ignored their abort: the instance is consumed (N13, W5). Later activities
    /// are none of this abort's business.
    pub(super) fn drain_expired(&mut self, loop_id: LoopId, aborted: &[LinkId]) {
        let open = &self.session.live.of(loop_id).activities;
        if !aborted.iter().any(|id| open.contains_key(id)) {
            return;
        }
        tracing::warn!(session = %self.id, "activities ignored their abort; the instance is ended");
        let ended = self.dispose_current(loop_id, AbortReason::UserStop);
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            ended.await;
            let _ = mailbox.send(Msg::Drained(loop_id)).await;
        });
    }
}
