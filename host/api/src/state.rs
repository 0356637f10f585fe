//! What every handler shares.

use crate::auth::Tokens;
use crate::flight::Flights;
use crate::plane::Plane;
use crate::policy::Policy;
use harness_core::abort::{AbortHandle, AbortReason, AbortSignal};
use harness_core::admin::ProviderAdmin;
use harness_journal::TokenHash;
use http::HeaderMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Largest request body by default (http-api "Conventions"), in bytes.
pub(crate) const MAX_BODY: usize = 2 * 1024 * 1024;

/// Renders the metrics of the process in the Prometheus text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Ties a request's span to the caller's trace, given headers with a valid `traceparent`.
pub type JoinTrace = Arc<dyn Fn(&tracing::Span, &HeaderMap) + Send + Sync>;

/// What the API is built from.
pub struct ApiParts {
    /// Sessions and everything around them.
    pub plane: Arc<dyn Plane>,
    /// Operator's view of providers.
    pub providers: Arc<dyn ProviderAdmin>,
    /// Accepted hosts and origins.
    pub policy: Policy,
    /// SHA-256 of a token that is not in the catalogue and may do everything ([`crate::hash_token`]).
    pub bootstrap: Option<TokenHash>,
    /// Serves `/metrics` when there is one.
    pub metrics: Option<RenderMetrics>,
    /// Joins the caller's trace when there is a tracer.
    pub join_trace: Option<JoinTrace>,
    /// Directories beneath which a token that is limited to projects may make local workspaces;
    /// none: nowhere. One without that limit may make them anywhere.
    pub workspace_roots: Vec<PathBuf>,
    /// Largest request body in bytes; 2 MiB when `None`.
    pub max_body: Option<usize>,
    /// Pause after which a silent event stream sends a ping; 15 s when `None` (S106).
    pub ping: Option<Duration>,
}

/// Shared state; cloning counts a reference.
#[derive(Clone)]
pub struct ApiState(Arc<Inner>);

struct Inner {
    plane: Arc<dyn Plane>,
    providers: Arc<dyn ProviderAdmin>,
    policy: Policy,
    tokens: Tokens,
    flights: Flights,
    metrics: Option<RenderMetrics>,
    join_trace: Option<JoinTrace>,
    workspace_roots: Vec<PathBuf>,
    max_body: usize,
    ping: Duration,
    closing: AbortHandle,
}

impl ApiState {
    /// The state of one server.
    #[must_use]
    pub fn new(parts: ApiParts) -> Self {
        let tokens = Tokens::new(parts.plane.catalog(), parts.bootstrap);
        Self(Arc::new(Inner {
            plane: parts.plane,
            providers: parts.providers,
            policy: parts.policy,
            tokens,
            flights: Flights::default(),
            metrics: parts.metrics,
            join_trace: parts.join_trace,
            workspace_roots: parts.workspace_roots,
            max_body: parts.max_body.unwrap_or(MAX_BODY),
            ping: parts.ping.unwrap_or(Duration::from_secs(15)),
            closing: AbortHandle::new(),
        }))
    }

    /// Ends event streams and turns `/readyz` away; requests under way go on. Idempotent.
    pub fn close(&self) {
        self.0.closing.abort(AbortReason::Shutdown);
    }

    /// Fires when the server closes.
    pub(crate) fn closing(&self) -> AbortSignal {
        self.0.closing.signal()
    }

    pub(crate) fn plane(&self) -> &Arc<dyn Plane> {
        &self.0.plane
    }

    pub(crate) fn providers(&self) -> &Arc<dyn ProviderAdmin> {
        &self.0.providers
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.0.policy
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn flights(&self) -> &Flights {
        &self.0.flights
    }

    pub(crate) fn metrics(&self) -> Option<&RenderMetrics> {
        self.0.metrics.as_ref()
    }

    pub(crate) fn join_trace(&self) -> Option<&JoinTrace> {
        self.0.join_trace.as_ref()
    }

    pub(crate) fn workspace_roots(&self) -> &[PathBuf] {
        &self.0.workspace_roots
    }

    pub(crate) fn max_body(&self) -> usize {
        self.0.max_body
    }

    pub(crate) fn ping(&self) -> Duration {
        self.0.ping
    }
}
