//! Cancellation: the abort signal of a call, and the hold that delays its effect.
//!
//! The host cannot cancel a call; it fires a signal and waits a few seconds (the
//! drain bound), then it ends the whole instance. This crate therefore races
//! every call against its signal and drops the author's future when it fires.
//!
//! Dropping is wrong while a native side still works for the call: the turn must
//! be interrupted *there*, and its end awaited. A [`Hold`] says so. While one
//! is alive the call goes on after an abort, and the author's code is expected
//! to watch the signal.

use crate::sys;
use crate::types::AbortReason;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Tells when the host wants a call, an activity or the instance to end.
///
/// Cheap to clone; all clones watch the same signal.
#[derive(Clone, Debug)]
pub struct AbortSignal(Rc<sys::host::AbortSignal>);

impl AbortSignal {
    pub(crate) fn new(raw: sys::host::AbortSignal) -> Self {
        Self(Rc::new(raw))
    }

    /// Why it fired, or `None` while it has not.
    #[must_use]
    pub fn aborted(&self) -> Option<AbortReason> {
        self.0.aborted()
    }

    /// Resolves when the signal fires, at once if it already has. May be dropped
    /// and called again at any time.
    pub async fn wait(&self) -> AbortReason {
        match self.0.wait().await {
            Some(reason) => reason,
            // The signal was closed: it can never fire, and nobody in this crate
            // closes one.
            None => std::future::pending().await,
        }
    }

    /// The handle itself, for imports that take one (`process.spawn`, `fetch`).
    #[cfg(target_family = "wasm")]
    #[must_use]
    pub fn raw(&self) -> &sys::host::AbortSignal {
        &self.0
    }
}

/// Keeps a call alive after its abort signal fired, see the [module](self).
///
/// Take one for as long as a native side works for the call, and no longer: an
/// instance whose call outlasts the drain bound (5 s) is ended as a whole.
#[derive(Debug)]
pub struct Hold(Holds);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The holds of one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds(Rc<HoldState>);

#[derive(Debug, Default)]
struct HoldState {
    count: Cell<usize>,
    waiter: RefCell<Option<Waker>>,
}

impl Holds {
    pub(crate) fn hold(&self) -> Hold {
        self.0.count.set(self.0.count.get() + 1);
        Hold(self.clone())
    }

    fn release(&self) {
        self.0.count.set(self.0.count.get().saturating_sub(1));
        if self.0.count.get() == 0
            && let Some(waiter) = self.0.waiter.take()
        {
            waiter.wake();
        }
    }

    /// Resolves when no hold is alive.
    pub(crate) async fn released(&self) {
        poll_fn(|cx| {
            if self.0.count.get() == 0 {
                return Poll::Ready(());
            }
            self.0.waiter.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}
