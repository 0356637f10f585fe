//! One invocation as its channel sees it: from the call that starts it to the end of `done`.
//!
//! Invariants
//! - After the end every host call answers `closed` and reaches nobody (W6); the session's channel
//!   is let go of, so that a guest that keeps its handle keeps nothing alive.
//! - After an abort every pending and every later host call answers `stopped` (N14), except those
//!   whose effect is already durable: binding the native conversation and taking input.
//! - Pending calls and written bytes are bounded.

use super::abort::CallAbort;
use super::clock::CallClock;
use crate::imports::delegation::not_made;
use harness_core::provider::{
    BoxFuture, Channel, ChannelError, Delegated, Delegation, DelegationError, OperationContext,
};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::Instrument;

/// See the module.
pub(crate) struct Invocation {
    // A std mutex: held for one clone or take, never across an await.
    port: Mutex<Option<Arc<dyn Channel>>>,
    pub(crate) context: OperationContext,
    pub(crate) abort: CallAbort,
    pub(crate) clock: CallClock,
    pending: AtomicUsize,
    max_pending: usize,
    written: AtomicU64,
    max_written: u64,
    span: tracing::Span,
}

struct Pending<'a>(&'a AtomicUsize);

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Invocation {
    pub(crate) fn new(
        port: Arc<dyn Channel>,
        abort: CallAbort,
        max_pending: usize,
        max_written: u64,
        span: tracing::Span,
    ) -> Self {
        Self {
            context: port.context(),
            port: Mutex::new(Some(port)),
            abort,
            clock: CallClock::new(),
            pending: AtomicUsize::new(0),
            max_pending,
            written: AtomicU64::new(0),
            max_written,
            span,
        }
    }

    /// The session's side, while the invocation lasts.
    pub(crate) fn port(&self) -> Option<Arc<dyn Channel>> {
        self.port
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The export is about to be entered (N7).
    pub(crate) fn entered(&self) {
        if let Some(port) = self.port() {
            port.entered();
        }
    }

    /// The invocation is over.
    pub(crate) fn finish(&self) {
        self.abort.finish();
        self.port
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    fn enter(&self) -> Result<(Arc<dyn Channel>, Pending<'_>), ChannelError> {
        let port = self.port().ok_or(ChannelError::Closed)?;
        let pending = self.pending.fetch_add(1, Ordering::AcqRel);
        let guard = Pending(&self.pending);
        if pending >= self.max_pending {
            return Err(ChannelError::Limit(format!(
                "{} host calls are pending already",
                self.max_pending
            )));
        }
        Ok((port, guard))
    }

    /// Makes one call of the session's side; rejected as soon as the invocation is aborted.
    pub(crate) async fn call<T: Send>(
        &self,
        import: &'static str,
        call: impl for<'a> FnOnce(&'a dyn Channel) -> BoxFuture<'a, Result<T, ChannelError>>,
    ) -> Result<T, ChannelError> {
        let (port, _pending) = self.enter()?;
        if self.abort.reason().is_some() {
            return Err(ChannelError::Stopped);
        }
        let span = tracing::debug_span!(parent: &self.span, "host_import", import);
        tokio::select! {
            biased;
            result = call(port.as_ref()).instrument(span) => result,
            _ = self.abort.fired() => Err(ChannelError::Stopped),
            () = self.abort.over() => Err(ChannelError::Closed),
        }
    }

    /// Makes one call that an abort must not tear from its effect.
    pub(crate) async fn settle<T: Send>(
        &self,
        import: &'static str,
        call: impl for<'a> FnOnce(&'a dyn Channel) -> BoxFuture<'a, Result<T, ChannelError>>,
    ) -> Result<T, ChannelError> {
        let (port, _pending) = self.enter()?;
        let span = tracing::debug_span!(parent: &self.span, "host_import", import);
        call(port.as_ref()).instrument(span).await
    }

    /// Makes one call about delegates; rejected as soon as the invocation is aborted. What the
    /// session accepted by then stays accepted (S96).
    pub(crate) async fn delegate<T: Send>(
        &self,
        call: impl for<'a> FnOnce(&'a dyn Delegation) -> Delegated<'a, T>,
    ) -> Result<T, DelegationError> {
        let (port, _pending) = self.enter().map_err(not_made)?;
        if self.abort.reason().is_some() {
            return Err(DelegationError::Stopped);
        }
        let of = port.delegation().ok_or(DelegationError::Closed)?;
        let span = tracing::debug_span!(parent: &self.span, "host_import", import = "delegates");
        tokio::select! {
            biased;
            result = call(of.as_ref()).instrument(span) => result,
            _ = self.abort.fired() => Err(DelegationError::Stopped),
            () = self.abort.over() => Err(DelegationError::Closed),
        }
    }

    /// Counts bytes written to the sink.
    ///
    /// # Errors
    /// `Limit` beyond the turn's output bound; nothing is counted then.
    pub(crate) fn write(&self, bytes: usize) -> Result<(), ChannelError> {
        self.clock.touch();
        let bytes = bytes as u64;
        let max = self.max_written;
        let add = |written: u64| written.checked_add(bytes).filter(|sum| *sum <= max);
        self.written
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
            .map(drop)
            .map_err(|_| {
                ChannelError::Limit(format!("the output of one turn is limited to {max} bytes"))
            })
    }
}
