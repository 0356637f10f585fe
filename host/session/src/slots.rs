//! The host-wide pool of execution slots shared by prompts and exclusive operations (R60).
//!
//! Fair: who waits is served in order. A native turn that runs already may overdraw the pool by
//! one; the next slot that comes back repays it before anybody is granted one (N8).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The pool.
#[derive(Clone)]
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    debt: Arc<AtomicUsize>,
}

/// One slot; given back when dropped.
pub(crate) struct Slot {
    pool: Slots,
    permit: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(size)),
            debt: Arc::new(AtomicUsize::new(0)),
        }
    }

    /// A slot if one is free now.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        Some(Slot {
            pool: self.clone(),
            permit: Some(permit),
        })
    }

    /// Waits for a slot, in order.
    pub(crate) async fn take(&self) -> Option<Slot> {
        let permit = self.free.clone().acquire_owned().await.ok()?;
        Some(Slot {
            pool: self.clone(),
            permit: Some(permit),
        })
    }

    /// A slot that is not there.
    pub(crate) fn overdraw(&self) -> Slot {
        self.debt.fetch_add(1, Ordering::AcqRel);
        metrics::counter!("harness_slots_overdrawn_total").increment(1);
        Slot {
            pool: self.clone(),
            permit: None,
        }
    }

    /// Slots free now.
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Repays one overdraft, if there is one.
    fn repay(&self) -> bool {
        self.debt
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |debt| {
                debt.checked_sub(1)
            })
            .is_ok()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        match (self.permit.take(), self.pool.repay()) {
            // What comes back pays for what was overdrawn.
            (Some(permit), true) => permit.forget(),
            (Some(permit), false) => drop(permit),
            (None, true) => {}
            // Another's slot paid for this one; it returns in its place.
            (None, false) => self.pool.free.add_permits(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n8_an_overdraft_is_repaid_before_the_next_grant() {
        let slots = Slots::new(1);
        let first = slots.try_take().unwrap();
        let native = slots.overdraw();
        drop(first);
        assert!(
            slots.try_take().is_none(),
            "the slot that came back repaid the overdraft"
        );
        drop(native);
        assert_eq!(slots.free(), 1);
    }

    #[test]
    fn n8_an_overdraft_that_ends_first_leaves_the_pool_whole() {
        let slots = Slots::new(1);
        let first = slots.try_take().unwrap();
        drop(slots.overdraw());
        drop(first);
        assert_eq!(slots.free(), 1);
    }
}
