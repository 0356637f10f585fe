//! Installed components, for the operator. Grants and limits come from the configuration alone.

use crate::auth::HostAdmin;
use crate::blocks;
use crate::extract::{Asked, InPath, NoQuery, Strict};
use crate::page::{self, Listed, PageQuery};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use harness_core::admin::{LogLine, ProviderReport};
use harness_core::ids::HarnessId;
use http::StatusCode;
use serde::Deserialize;

const MAX_PATH: usize = 4096;

/// A component to install.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Component {
    /// A file the host can read.
    component: String,
    /// SHA-256 of the file, 64 lower-case hex digits.
    sha256: String,
}

fn id(publisher: &str, name: &str) -> Result<HarnessId, Problem> {
    let id = format!("{publisher}/{name}");
    id.parse().map_err(|_| Problem::provider_not_found(&id))
}

/// Installed providers, by id.
#[utoipa::path(get, path = "/v1/providers", tag = "Operator", params(PageQuery),
    responses((status = 200, body = Listed<ProviderReport>)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    _: HostAdmin,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Listed<ProviderReport>>, Problem> {
    page.of(state.providers().reports(), |report: &ProviderReport| {
        report.id.to_string()
    })
    .map(Json)
}

/// Installs a component.
#[utoipa::path(post, path = "/v1/providers", tag = "Operator",
    request_body(content = Component, example = json!({
        "component": "/opt/harness/acp.wasm",
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    })),
    responses((status = 201, body = ProviderReport)))]
pub(crate) async fn install(
    State(state): State<ApiState>,
    _: HostAdmin,
    _: NoQuery,
    Strict(body): Strict<Component>,
) -> Result<(StatusCode, Json<ProviderReport>), Problem> {
    blocks::text("component", &body.component, MAX_PATH)?;
    if body.sha256.len() != 64
        || !body
            .sha256
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        return Err(Problem::invalid(
            "`sha256` is not 64 lower-case hex digits; send what `sha256sum` prints for the file",
        ));
    }
    let providers = state.providers().clone();
    let task = tokio::spawn(async move { providers.install(&body.component, &body.sha256).await });
    let report = task.await.map_err(|_| Problem::internal())??;
    Ok((StatusCode::CREATED, Json(report)))
}

/// One installed provider.
#[utoipa::path(get, path = "/v1/providers/{publisher}/{name}", tag = "Operator",
    params(("publisher" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ProviderReport)))]
pub(crate) async fn show(
    State(state): State<ApiState>,
    _: HostAdmin,
    InPath((publisher, name)): InPath<(String, String)>,
    _: NoQuery,
) -> Result<Json<ProviderReport>, Problem> {
    let id = id(&publisher, &name)?;
    state
        .providers()
        .report(&id)
        .map(Json)
        .ok_or_else(|| Problem::provider_not_found(id.as_str()))
}

/// Removes a provider; its instances are disposed of.
#[utoipa::path(delete, path = "/v1/providers/{publisher}/{name}", tag = "Operator",
    params(("publisher" = String, Path), ("name" = String, Path)), responses((status = 204)))]
pub(crate) async fn remove(
    State(state): State<ApiState>,
    _: HostAdmin,
    InPath((publisher, name)): InPath<(String, String)>,
    _: NoQuery,
) -> Result<StatusCode, Problem> {
    let id = id(&publisher, &name)?;
    let providers = state.providers().clone();
    let task = tokio::spawn(async move { providers.remove(&id).await });
    task.await.map_err(|_| Problem::internal())??;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends a provider's quarantine.
#[utoipa::path(post, path = "/v1/providers/{publisher}/{name}/release", tag = "Operator",
    params(("publisher" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ProviderReport)))]
pub(crate) async fn release(
    State(state): State<ApiState>,
    _: HostAdmin,
    InPath((publisher, name)): InPath<(String, String)>,
    _: NoQuery,
    _: Strict<Nothing>,
) -> Result<Json<ProviderReport>, Problem> {
    let id = id(&publisher, &name)?;
    Ok(Json(state.providers().release(&id)?))
}

/// A body without members.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// How many lines.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogsQuery {
    /// Most lines, 1 to 1000; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// What a provider logged last, oldest first.
#[utoipa::path(get, path = "/v1/providers/{publisher}/{name}/logs", tag = "Operator",
    params(("publisher" = String, Path), ("name" = String, Path), LogsQuery),
    responses((status = 200, body = Listed<LogLine>)))]
pub(crate) async fn logs(
    State(state): State<ApiState>,
    _: HostAdmin,
    InPath((publisher, name)): InPath<(String, String)>,
    Asked(query): Asked<LogsQuery>,
) -> Result<Json<Listed<LogLine>>, Problem> {
    let limit = page::limit(query.limit)?;
    let items = state.providers().logs(&id(&publisher, &name)?, limit)?;
    Ok(Json(Listed {
        items,
        next_cursor: None,
    }))
}
