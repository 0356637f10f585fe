//! The requests of one instance: counted, bounded and ended together.

use super::{HttpRequest, HttpResponse, Origins, body, fetch, headers};
use crate::native::IoError;
use futures::FutureExt;
use harness_core::abort::AbortSignal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bounds of one instance's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Requests at a time, until their bodies have ended. Default 8.
    pub concurrent: usize,
    /// Bytes of a response body. Default 16 MiB.
    pub response_bytes: u64,
    /// Bytes of a request body. Default 16 MiB.
    pub request_bytes: usize,
    /// Time until a response begins, redirects included, for a request without a timeout of its
    /// own. Default 120 s.
    pub head_timeout: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            concurrent: 8,
            response_bytes: 16 * MIB as u64,
            request_bytes: 16 * MIB,
            head_timeout: Duration::from_secs(120),
        }
    }
}

/// The way of one instance to its provider's origins. Clones share the bounds.
#[derive(Debug, Clone)]
pub struct Http {
    origins: Arc<Origins>,
    limits: HttpLimits,
    slots: Arc<Semaphore>,
    ended: CancellationToken,
}

impl Http {
    /// No request yet.
    #[must_use]
    pub fn new(origins: Arc<Origins>, limits: HttpLimits) -> Self {
        Self {
            origins,
            limits,
            slots: Arc::new(Semaphore::new(
                limits.concurrent.min(Semaphore::MAX_PERMITS),
            )),
            ended: CancellationToken::new(),
        }
    }

    /// Sends a request, follows redirects among the granted origins, and returns with the head of
    /// the response. Dropping the future, the abort and [`Self::close`] close the connection.
    ///
    /// # Errors
    /// [`IoError::Denied`] for what is not granted, [`IoError::NotFound`] for an unknown host,
    /// [`IoError::Limit`] for sizes, counts and time, [`IoError::Closed`] after the abort or
    /// [`Self::close`], else [`IoError::Failed`].
    pub async fn fetch(
        &self,
        request: HttpRequest,
        abort: Option<AbortSignal>,
    ) -> Result<HttpResponse, IoError> {
        let slot = self.slots.clone().try_acquire_owned();
        let slot = slot.map_err(|_| {
            IoError::Limit(format!(
                "at most {} requests at a time",
                self.limits.concurrent
            ))
        })?;
        let started = Instant::now();
        let timeout = request.timeout;
        let head = timeout.unwrap_or(self.limits.head_timeout);
        let mut ended = ended(self.ended.clone(), abort).boxed();
        let response = tokio::select! {
            biased;
            why = &mut ended => return Err(why),
            response = fetch::exchange(&self.origins, request, &self.limits) => response?,
            () = tokio::time::sleep(head) => return Err(too_late(head)),
        };
        let status = response.status().as_u16();
        let headers = headers::for_guest(response.headers())?;
        let ended = async move {
            match timeout {
                None => ended.await,
                Some(timeout) => tokio::select! {
                    why = ended => why,
                    () = tokio::time::sleep(timeout.saturating_sub(started.elapsed())) => too_late(timeout),
                },
            }
        };
        let (body, done) = body::read(response, self.limits.response_bytes, ended, slot);
        Ok(HttpResponse {
            status,
            headers,
            body,
            done,
        })
    }

    /// Ends all requests and sends no more. Returns at once.
    pub fn close(&self) {
        self.ended.cancel();
    }
}

/// Resolves when a request must end although it is not done.
async fn ended(instance: CancellationToken, abort: Option<AbortSignal>) -> IoError {
    match abort {
        None => instance.cancelled().await,
        Some(abort) => tokio::select! {
            () = instance.cancelled() => {}
            _ = abort.aborted() => {}
        },
    }
    IoError::Closed
}

fn too_late(bound: Duration) -> IoError {
    IoError::Limit(format!("the exchange took longer than {bound:?}"))
}
