//! Liveness, readiness, metrics and what this server can do.

use crate::auth::{Access, HostAdmin, Read};
use crate::code::Code;
use crate::extract::{NoQuery, no_path};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A store that takes longer is not reachable.
const STORE_ANSWERS: Duration = Duration::from_secs(2);

/// How the host is.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `live` or `ready`.
    status: String,
}

/// The process runs.
#[utoipa::path(get, path = "/healthz", tag = "Host", responses((status = 200, body = Health)))]
pub(crate) async fn live() -> Json<Health> {
    Json(Health {
        status: "live".into(),
    })
}

/// The store can be reached, providers are compiled and interrupted sessions are restored.
#[utoipa::path(get, path = "/readyz", tag = "Host", responses((status = 200, body = Health)))]
pub(crate) async fn ready(State(state): State<ApiState>) -> Result<Json<Health>, Problem> {
    if state.closing().reason().is_some() {
        return Err(
            Problem::with_remedy(Code::HostShuttingDown, "the host is shutting down").retryable(),
        );
    }
    state.plane().ready().map_err(|reason| {
        tracing::info!(%reason, "not ready");
        Problem::with_remedy(Code::HostNotReady, "the host does not take work now").retryable()
    })?;
    let stored = tokio::time::timeout(STORE_ANSWERS, state.plane().catalog().meta("ready")).await;
    if !matches!(stored, Ok(Ok(_))) {
        tracing::warn!("not ready: the store does not answer");
        return Err(
            Problem::with_remedy(Code::HostNotReady, "the store does not answer").retryable(),
        );
    }
    Ok(Json(Health {
        status: "ready".into(),
    }))
}

/// Metrics of the host in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "Host", security(("token" = ["admin"])),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(
    State(state): State<ApiState>,
    _: HostAdmin,
) -> Result<Response, Problem> {
    let render = state.metrics().ok_or_else(no_path)?;
    Ok((
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        render(),
    )
        .into_response())
}

/// What this server can do (S100).
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Capabilities {
    /// Version of this API.
    protocol: u32,
    /// Version of the host.
    version: String,
    /// What is there, e.g. `operations`.
    features: Vec<String>,
}

/// Parts of the plane that are there (S100).
const FEATURES: [&str; 11] = [
    "journal",
    "sessions",
    "input",
    "queue",
    "gates",
    "events",
    "loops",
    "compaction",
    "workspace",
    "shutdown",
    "operations",
];

/// What this server can do.
#[utoipa::path(get, path = "/v1/capabilities", tag = "Host", responses((status = 200, body = Capabilities)))]
pub(crate) async fn capabilities(_: Access<Read>, _: NoQuery) -> Json<Capabilities> {
    Json(Capabilities {
        protocol: 1,
        version: env!("CARGO_PKG_VERSION").into(),
        features: FEATURES.iter().map(|&feature| feature.into()).collect(),
    })
}
