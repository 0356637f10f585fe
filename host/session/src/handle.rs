//! A live session as others see it: its mailbox, and what its actor published last.
//!
//! Reading what is published takes no lock and no message. Whoever holds the handle keeps the
//! session from being parked.

use crate::actor::Msg;
use crate::operations::before_reserve;
use crate::requests::CommandStateRead;
use crate::rounds::Rounds;
use arc_swap::ArcSwap;
use harness_core::event::Runtime;
use harness_core::ids::{HarnessId, LoopId, RunId};
use harness_core::provider::{DiscoveryContext, Instance, OperationContext, Params, Workspace};
use harness_core::refusal::Refused;
use harness_core::view::{SessionView, Status};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

/// State of an actor as others see it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Readiness {
    /// It reads its journal.
    Loading,
    /// It takes requests.
    Ready,
    /// It could not be loaded.
    Failed(Box<Refused>),
}

/// What an actor says of its state, and those who wait for it. They go on in the order in which
/// they came; a `watch` would wake them in a random one.
pub(crate) struct ReadinessCell {
    // A std mutex: held for a copy.
    now: Mutex<Readiness>,
    changed: Notify,
}

impl Default for ReadinessCell {
    fn default() -> Self {
        Self {
            now: Mutex::new(Readiness::Loading),
            changed: Notify::new(),
        }
    }
}

impl ReadinessCell {
    pub(crate) fn now(&self) -> Readiness {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    pub(crate) fn set(&self, next: Readiness) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = next;
        self.changed.notify_waiters();
    }

    /// The actor is gone; one that never became ready failed.
    pub(crate) fn end(&self) {
        if self.now() == Readiness::Loading {
            self.set(Readiness::Failed(Box::new(Refused::Internal)));
        }
    }
}

/// Counts the requests that use a session's instance outside its actor: discovery, preparation.
pub(crate) struct Uses {
    in_flight: AtomicUsize,
    // A std mutex: held for a copy.
    last: Mutex<Instant>,
}

impl Default for Uses {
    fn default() -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
        }
    }
}

impl Uses {
    /// Requests that use the instance now.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// When the last of them ended.
    pub(crate) fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An instance on loan to a request; while it is, the instance is not idle (N5).
pub(crate) struct Lent {
    instance: Arc<dyn Instance>,
    _in_use: InUse,
}

impl std::ops::Deref for Lent {
    type Target = Arc<dyn Instance>;

    fn deref(&self) -> &Self::Target {
        &self.instance
    }
}

struct InUse(Arc<Uses>);

impl InUse {
    fn begin(uses: &Arc<Uses>) -> Self {
        uses.in_flight.fetch_add(1, Ordering::SeqCst);
        Self(uses.clone())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A session's mailbox and what it published.
pub(crate) struct Handle {
    pub(crate) ordinary: mpsc::Sender<Msg>,
    /// Stop and shutdown overtake everything else (S29).
    pub(crate) priority: mpsc::Sender<Msg>,
    /// Set before the session is ready.
    pub(crate) published: Arc<OnceLock<Arc<ArcSwap<Published>>>>,
    pub(crate) readiness: Arc<ReadinessCell>,
    pub(crate) uses: Arc<Uses>,
    /// Reads of its command state.
    pub(crate) reads: Rounds<Result<Arc<CommandStateRead>, Refused>>,
}

/// What an actor publishes after each decision.
pub(crate) struct Published {
    pub(crate) view: Arc<SessionView>,
    /// The active loop.
    pub(crate) active: Arc<PublishedLoop>,
    /// Every loop, in order of creation, the active one included.
    pub(crate) loops: Vec<Arc<PublishedLoop>>,
    pub(crate) settings_epoch: u64,
    /// The last durable reserve.
    pub(crate) run_id: Option<RunId>,
    pub(crate) faulted: bool,
    /// Its first append is durable.
    pub(crate) born: bool,
}

/// What an actor publishes of one loop.
pub(crate) struct PublishedLoop {
    pub(crate) id: LoopId,
    pub(crate) harness: HarnessId,
    pub(crate) native_session_id: Option<String>,
    /// The workspace as the harness may see it (R78).
    pub(crate) workspace: Option<Workspace>,
    /// Model and effort of its next turn.
    pub(crate) runtime: Runtime,
    /// Its host-owned mode; empty is the base mode.
    pub(crate) mode: String,
    pub(crate) params: Params,
    pub(crate) state_epoch: u64,
    pub(crate) stopping: bool,
    /// The loop's instance, if one is open.
    pub(crate) instance: Option<Arc<dyn Instance>>,
}

impl PublishedLoop {
    fn loop_mode(&self) -> Option<String> {
        Some(self.mode.clone()).filter(|m| !m.is_empty())
    }
}

impl PartialEq for PublishedLoop {
    fn eq(&self, other: &Self) -> bool {
        let same_instance = match (&self.instance, &other.instance) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same_instance
            && self.id == other.id
            && self.harness == other.harness
            && self.native_session_id == other.native_session_id
            && self.workspace == other.workspace
            && self.runtime == other.runtime
            && self.mode == other.mode
            && self.params == other.params
            && self.state_epoch == other.state_epoch
            && self.stopping == other.stopping
    }
}

impl Published {
    /// A loop; the active one if it is not known yet.
    fn loop_or_active(&self, loop_id: LoopId) -> &PublishedLoop {
        self.loops
            .iter()
            .find(|l| l.id == loop_id)
            .unwrap_or(&self.active)
    }

    /// Context of discovery and of the link.
    pub(crate) fn discovery_context(&self, loop_id: LoopId) -> DiscoveryContext {
        let of = self.loop_or_active(loop_id);
        DiscoveryContext {
            project_id: self.view.project_id.clone(),
            session_id: Some(self.view.id),
            native_session_id: of.native_session_id.clone(),
            workspace: of.workspace.clone(),
            model: of.runtime.model.clone(),
            effort: of.runtime.effort.clone(),
            loop_mode: of.loop_mode(),
            params: of.params.clone(),
        }
    }

    /// Context of preparation (R22).
    pub(crate) fn operation_context(&self) -> OperationContext {
        let of = &self.active;
        OperationContext {
            project_id: self.view.project_id.clone(),
            session_id: self.view.id,
            loop_id: of.id,
            native_session_id: of.native_session_id.clone(),
            workspace: of.workspace.clone(),
            model: of.runtime.model.clone(),
            effort: of.runtime.effort.clone(),
            loop_mode: of.loop_mode(),
            params: of.params.clone(),
        }
    }

    /// Why no operation can be admitted now, as far as it can be told before preparation.
    pub(crate) fn refuses_operations(&self) -> Option<Refused> {
        if self.faulted {
            Some(Refused::SessionFaulted)
        } else if self.view.status == Status::Stopped {
            Some(Refused::SessionStopped)
        } else if let Some(fault) = &self.view.checkpoint_fault {
            Some(Refused::CheckpointFaulted {
                reason: fault.code.clone(),
            })
        } else if self.active.stopping {
            Some(Refused::SessionStopping)
        } else {
            None
        }
    }
}

impl Handle {
    /// Waits until the journal is read.
    pub(crate) async fn ready(&self) -> Result<(), Refused> {
        loop {
            // Listened to before the look, so that no change comes in between.
            let mut changed = std::pin::pin!(self.readiness.changed.notified());
            changed.as_mut().enable();
            match self.readiness.now() {
                Readiness::Ready => return Ok(()),
                Readiness::Failed(refused) => return Err(*refused),
                Readiness::Loading => changed.await,
            }
        }
    }

    /// What was published last.
    pub(crate) fn published(&self) -> Result<Arc<Published>, Refused> {
        self.published
            .get()
            .map(|p| p.load_full())
            .ok_or(Refused::Restoring)
    }

    /// Sends a message that is answered.
    pub(crate) async fn call<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> Msg,
    ) -> Result<T, Refused> {
        self.send_to(&self.ordinary, message).await
    }

    /// As [`Self::call`], ahead of everything else.
    pub(crate) async fn urgent<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> Msg,
    ) -> Result<T, Refused> {
        self.send_to(&self.priority, message).await
    }

    async fn send_to<T>(
        &self,
        lane: &mpsc::Sender<Msg>,
        message: impl FnOnce(oneshot::Sender<T>) -> Msg,
    ) -> Result<T, Refused> {
        let (reply, answer) = oneshot::channel();
        lane.send(message(reply)).await.map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())
    }

    /// Why the actor answers nobody any more.
    pub(crate) fn gone(&self) -> Refused {
        match self.readiness.now() {
            Readiness::Failed(refused) => *refused,
            Readiness::Loading | Readiness::Ready => Refused::Internal,
        }
    }

    /// The loop's instance, opened when there is none.
    pub(crate) async fn instance(&self) -> Result<Lent, Refused> {
        // Counted first: the actor hides an instance before it looks whether anybody uses it.
        let in_use = InUse::begin(&self.uses);
        let known = self
            .published()
            .ok()
            .and_then(|p| p.active.instance.clone())
            .filter(|i| i.is_live());
        let instance = match known {
            Some(instance) => instance,
            None => {
                let opened = self
                    .call(|reply| Msg::NeedInstance {
                        loop_id: None,
                        reply,
                    })
                    .await?;
                opened.map_err(before_reserve)?
            }
        };
        Ok(Lent {
            instance,
            _in_use: in_use,
        })
    }
}
