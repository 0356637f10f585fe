//! The loop's one instance: opened when somebody needs it, dropped when nobody does (W7, N5).

use super::{Actor, Msg};
use crate::link::SessionLink;
use harness_core::abort::AbortReason;
use harness_core::provider::{CallError, Instance, InstanceScope};
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
}

impl InstanceSlot {
    pub(super) fn is_some(&self) -> bool {
        self.current.is_some() || !self.waiters.is_empty()
    }

    pub(super) fn live(&self) -> Option<Arc<dyn Instance>> {
        self.current.clone().filter(|i| i.is_live())
    }
}

impl Actor {
    pub(super) fn need_instance(&mut self, reply: Waiter) {
        self.dirty = true;
        if let Some(instance) = self.instance.live() {
            let _ = reply.send(Ok(instance));
            return;
        }
        let opening = !self.instance.waiters.is_empty();
        self.instance.waiters.push(reply);
        if opening {
            return;
        }
        self.instance.generation += 1;
        let generation = self.instance.generation;
        let old = self.instance.current.take();
        let state = &self.session.state;
        let harness_id = state
            .active_loop()
            .map_or_else(|| state.agent.clone(), |l| l.harness.clone());
        let scope = InstanceScope::Loop {
            project: state.project_id.clone(),
            session: self.id,
            loop_id: state.active_loop,
        };
        let harness = self.deps.harnesses.get(&harness_id);
        let link = Arc::new(SessionLink::new(
            self.mailbox.clone(),
            self.signals.clone(),
            self.published.clone(),
            self.deps.clone(),
        ));
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            // N3: the next instance starts only when the old one's processes are reaped.
            if let Some(old) = old {
                old.ended().await;
            }
            let result = match harness {
                Some(harness) => harness.open(scope, link).await,
                None => Err(CallError::Unavailable {
                    reason: format!("no harness `{harness_id}` is installed"),
                    loading: false,
                }),
            };
            let _ = mailbox.send(Msg::Opened { generation, result }).await;
        });
    }

    pub(super) fn opened(&mut self, generation: u64, result: Result<Arc<dyn Instance>, CallError>) {
        self.dirty = true;
        if generation != self.instance.generation {
            // The harness changed meanwhile: this one serves nobody.
            if let Ok(instance) = result {
                tokio::spawn(instance.dispose(AbortReason::Superseded));
            }
            return;
        }
        if let Ok(instance) = &result {
            self.instance.current = Some(instance.clone());
        }
        for waiter in std::mem::take(&mut self.instance.waiters) {
            let _ = waiter.send(result.clone());
        }
    }

    /// The loop has another harness: its instance takes no new calls here, and is disposed of
    /// when the calls it runs have ended.
    pub(super) fn retire_instance(&mut self) {
        self.instance.generation += 1;
        let unserved = CallError::Unavailable {
            reason: "the harness changed".into(),
            loading: false,
        };
        for waiter in std::mem::take(&mut self.instance.waiters) {
            let _ = waiter.send(Err(unserved.clone()));
        }
        self.instance.retired.extend(self.instance.current.take());
        self.dispose_retired();
    }

    pub(super) fn dispose_retired(&mut self) {
        if self.runs.is_empty() {
            for instance in std::mem::take(&mut self.instance.retired) {
                tokio::spawn(instance.dispose(AbortReason::Superseded));
            }
        }
    }

    pub(super) fn drop_idle_instance(&mut self) {
        self.dirty = true;
        if let Some(instance) = self.instance.current.take() {
            tokio::spawn(instance.dispose(AbortReason::Idle));
        }
    }

    /// Ends the instance now and waits for it.
    pub(super) async fn end_instance(&mut self, reason: AbortReason) {
        self.dirty = true;
        if let Some(instance) = self.instance.current.take() {
            instance.dispose(reason).await;
        }
    }

    /// Activities ignored their abort: the instance is consumed (N13, W5).
    pub(super) async fn drain_expired(&mut self) {
        if self.session.live.activities.is_empty() {
            return;
        }
        tracing::warn!(session = %self.id, "activities ignored their abort; the instance is ended");
        self.end_instance(AbortReason::UserStop).await;
        self.take_signals().await;
        self.feed(harness_core::session::Input::ActivitiesSettled, None)
            .await;
    }
}
