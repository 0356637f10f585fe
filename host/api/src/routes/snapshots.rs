//! Snapshots of a session's workspace, and the way back to one (S98, S99, S119).

use crate::auth::{Access, Invoke};
use crate::extract::{InPath, Intent, NoQuery};
use crate::flight::{Cut, Done, change_session};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::extract::State;
use axum::response::Response;
use harness_core::refusal::Refused;
use harness_core::workspace::WorkspaceRef;
use http::StatusCode;
use serde::{Deserialize, Serialize};

/// A snapshot of the workspace.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Taken {
    /// Its name: `v1:sha256:` and 64 lower-case hexadecimal digits.
    #[serde(rename = "ref")]
    reference: WorkspaceRef,
}

/// A checkpoint takes no settings.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Checkpoint {}

/// The repeat of a request whose own answer was lost with the host: its event has the ref.
fn recorded(cut: Cut) -> Result<Done, Refused> {
    match cut.reference {
        Some(reference) => Done::json(StatusCode::OK, &Taken { reference }),
        None => Err(Refused::Internal),
    }
}

/// Takes a snapshot of the workspace, while the session is idle and no other session works there.
/// The bytes are durable before it is answered. `.git` and what `.gitignore` files exclude are not
/// in it. Asked while another one is taken, it waits its turn.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/workspace/checkpoint", tag = "Workspaces",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Checkpoint, example = json!({})),
    responses((status = 200, body = Taken)))]
pub(crate) async fn checkpoint(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<Checkpoint>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    let Checkpoint {} = intent.body;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::OK,
        recorded,
        move |plane, caller| async move {
            let reference = plane.checkpoint(id, caller).await?;
            Ok(Taken { reference })
        },
    )
    .await
}

/// The snapshot to go back to.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rewind {
    /// Its name, as a checkpoint of this workspace returned it.
    #[serde(rename = "ref")]
    reference: WorkspaceRef,
}

/// Makes the workspace exactly what a snapshot of it says, while the session is idle and no other
/// session works there. After a problem the workspace is what it was.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/workspace/restore", tag = "Workspaces",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Rewind, example = json!({"ref":
        "v1:sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"})),
    responses((status = 200, body = Taken)))]
pub(crate) async fn restore(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<Rewind>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    let Rewind { reference } = intent.body;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::OK,
        recorded,
        move |plane, caller| async move {
            let reference = plane.rewind(id, caller, reference).await?;
            Ok(Taken { reference })
        },
    )
    .await
}
