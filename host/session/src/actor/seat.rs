//! What an actor keeps of each loop beside the session: its instance, its slot, its provider's
//! board.

use super::Actor;
use super::instance::InstanceSlot;
use crate::signals::Signals;
use crate::slots::Slot;
use harness_core::ids::LoopId;
use harness_core::refusal::Refused;
use std::sync::Arc;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// One loop's part of an actor.
pub(super) struct Seat {
    pub(super) instance: InstanceSlot,
    pub(super) signals: Arc<Signals>,
    /// The execution slot that the loop holds.
    pub(super) slot: Option<Slot>,
    /// Waits for a slot.
    pub(super) slot_wait: Option<JoinHandle<()>>,
    /// Whether an input that may fold waits (R120).
    pub(super) input_waits: watch::Sender<bool>,
    /// When clients were last told that the command state changed (G7).
    pub(super) notified: Option<Instant>,
    /// When they are to be told again.
    pub(super) notify_due: Option<Instant>,
    /// Since when nothing keeps the loop's instance busy (N5).
    pub(super) quiet_since: Option<Instant>,
}

impl Seat {
    fn new(wake: Arc<Notify>) -> Self {
        let (input_waits, _) = watch::channel(false);
        Self {
            instance: InstanceSlot::default(),
            signals: Arc::new(Signals::new(wake)),
            slot: None,
            slot_wait: None,
            input_waits,
            notified: None,
            notify_due: None,
            quiet_since: None,
        }
    }

    /// A slot granted meanwhile comes as a message all the same, and goes back.
    pub(super) fn forget_wish(&mut self) {
        if let Some(wait) = self.slot_wait.take() {
            wait.abort();
        }
    }
}

/// A stop under way.
#[derive(Default)]
pub(super) struct PendingStop {
    /// Who waits for its end.
    pub(super) waiters: Vec<oneshot::Sender<Result<bool, Refused>>>,
    /// Opens its barrier when it takes too long (S91).
    pub(super) timer: Option<JoinHandle<()>>,
}

impl Actor {
    /// What is kept of that loop.
    pub(super) fn seat(&mut self, loop_id: LoopId) -> &mut Seat {
        let wake = &self.wake;
        self.seats
            .entry(loop_id)
            .or_insert_with(|| Seat::new(wake.clone()))
    }
}
