//! Something that is told once, to all who wait for it, in the order in which they came.
//!
//! Tokio's `watch` wakes in a random order, which no seed decides.

use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// The latch.
pub(crate) struct Latch<T> {
    told: Mutex<Option<T>>,
    changed: Notify,
}

impl<T> Default for Latch<T> {
    fn default() -> Self {
        Self {
            told: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl<T: Clone> Latch<T> {
    /// Tells it; what was told first stays.
    pub(crate) fn set(&self, what: T) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.get_or_insert(what);
        drop(told);
        self.changed.notify_waiters();
    }

    /// What was told.
    pub(crate) fn get(&self) -> Option<T> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.clone()
    }

    /// Waits until it is told.
    pub(crate) async fn wait(&self) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(told) = self.get() {
                return told;
            }
            changed.await;
        }
    }
}
