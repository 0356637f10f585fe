//! An abort: one reason, fired once, seen by everybody who holds the signal.
//!
//! The pair belongs to the provider port: the session fires it, the engine hands it to the guest.
//! It needs no runtime; cloning a signal is one reference count.

use futures::channel::oneshot;
use futures::future::{FutureExt, Shared};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Why a call is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortReason {
    /// A person pressed Stop.
    UserStop,
    /// The HTTP request that wanted the result is gone.
    CallerGone,
    /// The owner of the run was stopped.
    OwnerStopped,
    /// The call's deadline passed.
    Deadline,
    /// The host shuts down.
    Shutdown,
    /// The instance was idle.
    Idle,
    /// A newer instance or provider takes over.
    Superseded,
}

struct Shot {
    reason: OnceLock<AbortReason>,
    fire: Mutex<Option<oneshot::Sender<()>>>,
    fired: Shared<oneshot::Receiver<()>>,
}

/// The firing side.
#[derive(Clone)]
pub struct AbortHandle(Arc<Shot>);

/// The waiting side.
#[derive(Clone)]
pub struct AbortSignal(Arc<Shot>);

impl Default for AbortHandle {
    fn default() -> Self {
        Self::new()
    }
}

impl AbortHandle {
    /// A signal that has not fired.
    #[must_use]
    pub fn new() -> Self {
        let (fire, fired) = oneshot::channel();
        Self(Arc::new(Shot {
            reason: OnceLock::new(),
            fire: Mutex::new(Some(fire)),
            fired: fired.shared(),
        }))
    }

    /// Fires; the first reason stays.
    pub fn abort(&self, reason: AbortReason) {
        if self.0.reason.set(reason).is_ok() {
            // A std mutex: held for one take, never across an await.
            let fire = self
                .0
                .fire
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(fire) = fire {
                let _ = fire.send(());
            }
        }
    }

    /// The side to hand out.
    #[must_use]
    pub fn signal(&self) -> AbortSignal {
        AbortSignal(self.0.clone())
    }

    /// The reason, once fired.
    #[must_use]
    pub fn reason(&self) -> Option<AbortReason> {
        self.0.reason.get().copied()
    }
}

impl AbortSignal {
    /// A signal that never fires.
    #[must_use]
    pub fn never() -> Self {
        AbortHandle::new().signal()
    }

    /// The reason, once fired.
    #[must_use]
    pub fn reason(&self) -> Option<AbortReason> {
        self.0.reason.get().copied()
    }

    /// Resolves when it fires.
    pub async fn aborted(&self) -> AbortReason {
        let fired = self.0.fired.clone();
        // The sender lives in the shot that `self` holds, so this resolves only by firing.
        let _ = fired.await;
        self.reason().unwrap_or(AbortReason::OwnerStopped)
    }
}

impl std::fmt::Debug for AbortSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AbortSignal({:?})", self.reason())
    }
}

impl std::fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AbortHandle({:?})", self.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    #[test]
    fn the_first_reason_stays() {
        let handle = AbortHandle::new();
        let signal = handle.signal();
        assert_eq!(signal.reason(), None);
        assert!(signal.aborted().now_or_never().is_none());
        handle.abort(AbortReason::UserStop);
        handle.abort(AbortReason::Deadline);
        assert_eq!(block_on(signal.aborted()), AbortReason::UserStop);
        assert_eq!(block_on(signal.clone().aborted()), AbortReason::UserStop);
    }
}
