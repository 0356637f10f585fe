//! Installed harnesses as a client sees them.

use crate::auth::{Access, Read};
use crate::extract::{Asked, InPath, NoQuery};
use crate::page::{Listed, PageQuery};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use harness_core::ids::HarnessId;
use harness_core::provider::{
    Compatibility, Features, Harness, ModelSpec, ParamSpec, ProviderState, WorkspaceNeed,
};
use serde::{Deserialize, Serialize};

/// A harness.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct HarnessView {
    /// Qualified id; opaque.
    id: HarnessId,
    /// For a person; the id until the provider has described itself.
    label: String,
    /// Version of the provider; empty until it has described itself.
    version: String,
    /// Whether it takes work.
    state: ProviderState,
    /// Why it does not, or why its native harness does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Version of the native harness, once detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    native_version: Option<String>,
    /// Whether that version fits, once detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compatibility: Option<Fit>,
    /// Models it offers.
    models: Vec<ModelSpec>,
    /// Parameters a session can set.
    params: Vec<ParamSpec>,
    /// What kind of workspace it needs.
    workspace: WorkspaceNeed,
    /// What it can do.
    features: Features,
}

/// Whether a native version fits (G8).
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fit {
    /// Known to work.
    Supported,
    /// Works as far as is known.
    Untested,
    /// Does not work.
    Incompatible,
}

fn view(harness: &dyn Harness) -> HarnessView {
    let status = harness.status();
    let info = harness.info();
    let info = info.as_deref();
    let readiness = status.readiness;
    let mut reason = status.reason;
    let compatibility = readiness
        .as_ref()
        .map(|readiness| match &readiness.compatibility {
            Compatibility::Supported => Fit::Supported,
            Compatibility::Untested => Fit::Untested,
            Compatibility::Incompatible(why) => {
                reason.get_or_insert_with(|| why.clone());
                Fit::Incompatible
            }
        });
    let detected = readiness
        .as_ref()
        .map(|readiness| readiness.models.clone())
        .filter(|models| !models.is_empty());
    HarnessView {
        id: harness.id().clone(),
        label: info.map_or_else(|| harness.id().to_string(), |info| info.label.clone()),
        version: info.map(|info| info.version.clone()).unwrap_or_default(),
        state: status.state,
        reason,
        native_version: readiness.and_then(|readiness| readiness.native_version),
        compatibility,
        models: detected
            .or_else(|| info.map(|info| info.models.clone()))
            .unwrap_or_default(),
        params: info.map(|info| info.params.clone()).unwrap_or_default(),
        workspace: info.map_or(WorkspaceNeed::None, |info| info.workspace),
        features: info.map(|info| info.features).unwrap_or_default(),
    }
}

/// Every installed harness, by id.
#[utoipa::path(get, path = "/v1/harnesses", tag = "Harnesses", params(PageQuery),
    responses((status = 200, body = Listed<HarnessView>)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    _: Access<Read>,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Listed<HarnessView>>, Problem> {
    let harnesses = state.plane().harnesses().list();
    let items = harnesses
        .iter()
        .map(|harness| view(harness.as_ref()))
        .collect();
    page.of(items, |harness: &HarnessView| harness.id.to_string())
        .map(Json)
}

/// One harness.
#[utoipa::path(get, path = "/v1/harnesses/{publisher}/{name}", tag = "Harnesses",
    params(("publisher" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = HarnessView)))]
pub(crate) async fn show(
    State(state): State<ApiState>,
    _: Access<Read>,
    InPath((publisher, name)): InPath<(String, String)>,
    _: NoQuery,
) -> Result<Json<HarnessView>, Problem> {
    let id = format!("{publisher}/{name}");
    let harness = id
        .parse()
        .ok()
        .and_then(|id| state.plane().harnesses().get(&id));
    harness
        .map(|harness| Json(view(harness.as_ref())))
        .ok_or_else(|| Problem::harness_not_found(&id))
}
