//! A condition that becomes true once and that any number of tasks may wait for.
//!
//! Invariant: a waiter that starts before, during or after `raise` sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Flag {
    raised: AtomicBool,
    waiters: Notify,
}

impl Flag {
    /// Makes it true.
    pub(crate) fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.waiters.notify_waiters();
    }

    /// Whether it is true.
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Resolves once it is true.
    pub(crate) async fn wait(&self) {
        let notified = self.waiters.notified();
        tokio::pin!(notified);
        // Registered before the check, so that a raise between the two is not lost.
        notified.as_mut().enable();
        if !self.is_raised() {
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn waiters_before_and_after_the_raise_resolve() {
        let flag = Flag::default();
        let mut early = Box::pin(flag.wait());
        assert!((&mut early).now_or_never().is_none());
        flag.raise();
        early.await;
        flag.wait().await;
        assert!(flag.is_raised());
    }
}
