//! Background processes of a session: what its harnesses started, read and ended (S97).

use super::sessions::Nothing;
use crate::auth::{Access, Invoke, Read};
use crate::extract::{Asked, InPath, Intent, NoQuery};
use crate::flight::{answer_lost, change_session};
use crate::page::{Listed, PageQuery};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use harness_core::view::ProcessView;
use http::StatusCode;
use serde::{Deserialize, Serialize};

/// Background processes of a session's loops: those that run, and the newest 16 of each loop that
/// ended, oldest first in each loop.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/processes", tag = "Processes",
    params(("session_id" = uuid::Uuid, Path), PageQuery), responses((status = 200, body = Listed<ProcessView>)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Listed<ProcessView>>, Problem> {
    let id = access.session(&state, &raw).await?;
    let processes = state.plane().processes(id).await?;
    page.of(processes, |view: &ProcessView| view.process_handle.clone())
        .map(Json)
}

/// A process that is to end.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Ending {
    /// Its handle.
    process_handle: String,
}

/// Ends a background process with everything it started. Its end follows as `ProcessFinished`, and
/// its harness is told. Nothing happens when it has ended already.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/processes/{process_handle}/stop", tag = "Processes",
    params(("session_id" = uuid::Uuid, Path), ("process_handle" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Nothing, example = json!({})),
    responses((status = 202, body = Ending)))]
pub(crate) async fn stop(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath((raw, process_handle)): InPath<(String, String)>,
    _: NoQuery,
    intent: Intent<Nothing>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::ACCEPTED,
        answer_lost,
        move |plane, caller| async move {
            let handle = process_handle.clone();
            plane.stop_process(id, caller, handle).await?;
            Ok(Ending { process_handle })
        },
    )
    .await
}
