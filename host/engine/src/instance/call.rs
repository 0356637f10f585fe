//! Watching one call from outside its store: deadline, abort, drain bound (W2, W5).

use super::abort::CallAbort;
use super::clock::{Bound, CallClock};
use super::end::EndCause;
use super::shared::Shared;
use harness_core::abort::AbortReason;
use harness_core::provider::CallError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Instrument;

/// What is known of a call while it is watched.
pub(crate) struct Call<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) name: &'static str,
    pub(crate) abort: &'a CallAbort,
    pub(crate) clock: &'a CallClock,
    pub(crate) bound: Bound,
}

impl Call<'_> {
    /// What the call answered, and whether it had been aborted by then.
    ///
    /// # Errors
    /// `Timeout` when its bound passed, whatever it answered afterwards; `Terminated` when it
    /// ignored its abort; else what ended the instance underneath it.
    pub(crate) async fn watch<T>(
        &self,
        reply: oneshot::Receiver<T>,
    ) -> Result<(T, bool), CallError> {
        tokio::pin!(reply);
        let passed = tokio::select! {
            biased;
            answer = &mut reply => return self.settled(answer).await,
            cause = self.shared.gone() => return Err(cause.call_error()),
            _ = self.abort.fired() => false,
            () = self.clock.passed(self.bound) => true,
        };
        if passed {
            self.abort.fire(AbortReason::Deadline);
        }
        let reason = self.abort.reason().unwrap_or(AbortReason::Deadline);
        tokio::select! {
            biased;
            answer = &mut reply => {
                let settled = self.settled(answer).await;
                if passed && settled.is_ok() { Err(self.timeout()) } else { settled }
            }
            cause = self.shared.gone() => Err(if passed { self.timeout() } else { cause.call_error() }),
            () = tokio::time::sleep(self.shared.installed.limits.drain) => {
                self.shared.kill(EndCause::Deaf { call: self.name, reason });
                Err(if passed { self.timeout() } else { CallError::Terminated(reason) })
            }
        }
    }

    async fn settled<T>(
        &self,
        answer: Result<T, oneshot::error::RecvError>,
    ) -> Result<(T, bool), CallError> {
        match answer {
            Ok(value) => Ok((value, self.abort.reason().is_some())),
            // The driver let go of the call: its end is on its way.
            Err(_) => Err(self.shared.gone().await.call_error()),
        }
    }

    fn timeout(&self) -> CallError {
        let name = self.name;
        CallError::Timeout(match self.bound {
            Bound::Deadline(limit) => {
                format!("no answer to `{name}` within {} ms", limit.as_millis())
            }
            Bound::Silence(limit) => {
                format!("no sign of life in `{name}` for {} ms", limit.as_millis())
            }
            Bound::Unbounded => format!("`{name}` was ended"),
        })
    }
}

/// Watches a call that takes no abort signal: at its deadline the instance ends.
pub(crate) async fn watch_plain<T>(
    shared: &Shared,
    name: &'static str,
    limit: Duration,
    reply: oneshot::Receiver<T>,
) -> Result<T, CallError> {
    tokio::select! {
        biased;
        answer = reply => match answer {
            Ok(value) => Ok(value),
            Err(_) => Err(shared.gone().await.call_error()),
        },
        cause = shared.gone() => Err(cause.call_error()),
        () = tokio::time::sleep(limit) => {
            shared.kill(EndCause::Slow(name));
            Err(CallError::Timeout(format!("no answer to `{name}` within {} ms", limit.as_millis())))
        }
    }
}

/// The future of a call as the caller holds it. Dropped before its end, it fires the call's abort
/// and goes on in the background: a call is never dropped.
pub(crate) struct Watched<T: Send + 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    started: bool,
    abort: CallAbort,
    runtime: Handle,
}

impl<T: Send + 'static> Watched<Result<T, CallError>> {
    /// `future`: makes and watches the call. It carries the call's span and is counted.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        name: &'static str,
        abort: CallAbort,
        future: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Self {
        let harness = shared.installed.id.to_string();
        let span = tracing::info_span!(
            "component_call",
            harness,
            session = shared.session(),
            call = name,
            instance = shared.number
        );
        let counted = async move {
            let start = Instant::now();
            let result = future.await;
            let outcome = result.as_ref().map_or_else(CallError::code, |_| "ok");
            if let Err(error) = &result {
                tracing::debug!(code = outcome, %error, "the call failed");
            }
            metrics::counter!("harness_component_calls_total",
                "harness" => harness.clone(), "call" => name, "outcome" => outcome)
            .increment(1);
            metrics::histogram!("harness_component_call_seconds", "harness" => harness, "call" => name)
                .record(start.elapsed().as_secs_f64());
            result
        };
        Self {
            future: Some(Box::pin(counted.instrument(span))),
            started: false,
            abort,
            runtime: shared.runtime.clone(),
        }
    }
}

impl<T: Send + 'static> Future for Watched<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        this.started = true;
        let Some(future) = this.future.as_mut() else {
            return Poll::Pending;
        };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            this.future = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Watched<T> {
    fn drop(&mut self) {
        // One that never started made no call.
        if let Some(future) = self.future.take()
            && self.started
        {
            self.abort.fire(AbortReason::CallerGone);
            self.runtime.spawn(async move { drop(future.await) });
        }
    }
}
