//! The abort of one call, invocation or activity, as the guest sees it.
//!
//! A guest's signal fires for several reasons: the session's own signal, the end of the instance,
//! a deadline, a caller that went away. Invariants: the first reason stays; after the call is over
//! the answer no longer changes and nobody waits (W6).

use crate::flag::Flag;
use harness_core::abort::{AbortHandle, AbortReason, AbortSignal};
use std::sync::{Arc, OnceLock};

/// See the module.
#[derive(Clone)]
pub(crate) struct CallAbort(Arc<Inner>);

struct Inner {
    own: AbortHandle,
    outer: AbortSignal,
    instance: AbortSignal,
    over: Flag,
    lasting: OnceLock<AbortSignal>,
}

impl CallAbort {
    /// Fires with `outer`, with `instance`, or by [`CallAbort::fire`].
    pub(crate) fn new(outer: AbortSignal, instance: AbortSignal) -> Self {
        Self(Arc::new(Inner {
            own: AbortHandle::new(),
            outer,
            instance,
            over: Flag::default(),
            lasting: OnceLock::new(),
        }))
    }

    /// Fires, unless it fired or the call is over.
    pub(crate) fn fire(&self, reason: AbortReason) {
        if self.reason().is_none() && !self.is_over() {
            self.0.own.abort(reason);
        }
    }

    /// The reason, once fired.
    pub(crate) fn reason(&self) -> Option<AbortReason> {
        if let Some(reason) = self.0.own.reason() {
            return Some(reason);
        }
        if self.is_over() {
            return None;
        }
        let reason = self.0.outer.reason().or_else(|| self.0.instance.reason())?;
        self.0.own.abort(reason);
        self.0.own.reason()
    }

    /// Resolves when it fires; never, when it does not.
    pub(crate) async fn fired(&self) -> AbortReason {
        let own = self.0.own.signal();
        let reason = tokio::select! {
            biased;
            reason = own.aborted() => reason,
            reason = self.0.outer.aborted() => reason,
            reason = self.0.instance.aborted() => reason,
        };
        self.0.own.abort(reason);
        self.0.own.reason().unwrap_or(reason)
    }

    /// The call has ended: the answer stays as it is.
    pub(crate) fn finish(&self) {
        let _ = self.reason();
        self.0.over.raise();
    }

    /// Whether the call has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.0.over.is_raised()
    }

    /// The signal for what belongs to this call: it fires with it, and when it is over. One task
    /// fires it, however often it is asked for.
    pub(crate) fn lasting(&self, runtime: &tokio::runtime::Handle) -> AbortSignal {
        let signal = self.0.lasting.get_or_init(|| {
            let handle = AbortHandle::new();
            let signal = handle.signal();
            let abort = self.clone();
            runtime.spawn(async move {
                let reason = tokio::select! {
                    biased;
                    () = abort.over() => abort.reason().unwrap_or(AbortReason::OwnerStopped),
                    reason = abort.fired() => reason,
                };
                handle.abort(reason);
            });
            signal
        });
        signal.clone()
    }

    /// Resolves when the call has ended.
    pub(crate) async fn over(&self) {
        self.0.over.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn w6_the_first_reason_stays_and_the_end_freezes_it() {
        let (outer, instance) = (AbortHandle::new(), AbortHandle::new());
        let abort = CallAbort::new(outer.signal(), instance.signal());
        assert_eq!(abort.reason(), None);
        assert!(abort.fired().now_or_never().is_none());
        instance.abort(AbortReason::Shutdown);
        outer.abort(AbortReason::UserStop);
        let first = abort.fired().await;
        abort.fire(AbortReason::Deadline);
        assert_eq!(abort.reason(), Some(first));

        let quiet = AbortHandle::new();
        let abort = CallAbort::new(quiet.signal(), AbortSignal::never());
        abort.finish();
        quiet.abort(AbortReason::UserStop);
        assert_eq!(abort.reason(), None);
        abort.over().await;
    }
}
