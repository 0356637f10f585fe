//! Native commands: discovering them and running operations (R40-R42).

use super::sessions::check_settings;
use crate::auth::{Access, Invoke, Read};
use crate::extract::{InPath, Intent, NoQuery, Strict};
use crate::flight::{Cut, Done, perform};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use harness_core::ids::{HarnessId, ProjectId, WorkspaceId};
use harness_core::operation::{NativeCommand, NativeMode, Operation};
use harness_core::provider::{ParamValue, Params};
use harness_core::refusal::Refused;
use harness_core::view::OperationResult;
use harness_session::{CommandStateView, DraftRequest, OperationRequest};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Command state as the provider reads it back, with what the host adds (R1).
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StateView {
    /// The harness it was read from.
    harness_id: HarnessId,
    /// Digest over it; quote it as `expectedRevision`.
    revision: String,
    /// When the provider read ended.
    #[schema(value_type = String, format = DateTime)]
    as_of: Timestamp,
    /// Whether `command_state_changed` events tell when to read it again.
    push: bool,
    /// Leading "/word" text goes to the provider, listed or not.
    slash_commands: bool,
    /// Native commands. Help, not an allow-list.
    commands: Vec<NativeCommand>,
    /// Native modes.
    modes: Vec<NativeMode>,
    /// Why the lists are empty or partial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl From<CommandStateView> for StateView {
    fn from(view: CommandStateView) -> Self {
        Self {
            harness_id: view.harness_id,
            revision: view.revision,
            as_of: view.as_of,
            push: view.push,
            slash_commands: view.state.slash_commands,
            commands: view.state.commands,
            modes: view.state.modes,
            note: view.state.note,
        }
    }
}

/// What a session would be made with.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Draft {
    /// The project.
    project_id: ProjectId,
    /// Qualified id of the harness.
    agent: HarnessId,
    /// Where it would work; the project's default when absent.
    workspace_id: Option<WorkspaceId>,
    /// The model.
    model: Option<String>,
    /// Parameters over the harness's defaults.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, ParamValue>)]
    params: Params,
}

/// Commands and modes before a session exists. Leaves no trace.
#[utoipa::path(post, path = "/v1/sessions/harness-command-state", tag = "Native commands",
    request_body(content = Draft, example = json!({"project_id": "default", "agent": "demo/planner"})),
    responses((status = 200, body = StateView)))]
pub(crate) async fn draft(
    State(state): State<ApiState>,
    access: Access<Read>,
    _: NoQuery,
    Strict(draft): Strict<Draft>,
) -> Result<Json<StateView>, Problem> {
    check_settings(draft.model.as_deref(), &draft.params)?;
    access.reach(&draft.project_id)?;
    let request = DraftRequest {
        project_id: draft.project_id,
        agent: draft.agent,
        workspace_id: draft.workspace_id,
        model: draft.model,
        params: draft.params,
    };
    Ok(Json(
        state.plane().draft_command_state(request).await?.into(),
    ))
}

/// Commands and modes of a session, read live from the provider.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/harness-commands", tag = "Native commands",
    params(("session_id" = uuid::Uuid, Path)), responses((status = 200, body = StateView)))]
pub(crate) async fn show(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    _: NoQuery,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    let read = state.plane().command_state(id).await?;
    let body =
        read.written(|view| serde_json::to_vec(&StateView::from(view.clone())).map(Bytes::from));
    let body = body.map_err(|error| {
        tracing::error!(%error, "command state could not be written");
        Problem::internal()
    })?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// A native operation.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OperationBody {
    /// What to do.
    operation: Operation,
    /// The harness it was chosen for.
    harness_id: Option<HarnessId>,
    /// The revision of the command state it was chosen from.
    expected_revision: Option<String>,
}

/// An operation within its limits (R7).
pub(crate) fn wire_operation(operation: Operation) -> Result<Operation, Problem> {
    operation.check().map_err(Refused::from)?;
    Ok(operation)
}

/// Runs a native operation. A refusal before it began is a problem; afterwards it is a result.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/harness-commands", tag = "Native commands",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = OperationBody, examples(
        ("command" = (value = json!({"operation": {"kind": "command", "text": "/goal  ship it"}}))),
        ("mode action" = (value = json!({"operation": {"kind": "mode-action", "modeId": "plan", "actionId": "approve", "argument": "rev-7"},
            "harnessId": "demo/planner"})))
    )),
    responses((status = 200, body = OperationResult)))]
pub(crate) async fn invoke(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<OperationBody>,
) -> Result<Response, Problem> {
    let request = OperationRequest {
        operation: wire_operation(intent.body.operation)?,
        harness_id: intent.body.harness_id,
        expected_revision: intent.body.expected_revision,
    };
    let id = access.session(&state, &raw).await?;
    perform(
        &state,
        access.grant(),
        Some(id),
        intent.key,
        settled,
        move |plane, caller, gone| async move {
            Done::json(
                StatusCode::OK,
                &plane.invoke(id, caller, request, gone).await?,
            )
        },
    )
    .await
}

/// The result as the journal has it. Without one the operation is still on its way.
fn settled(cut: Cut) -> Result<Done, Refused> {
    match cut.result {
        Some(result) => Done::json(StatusCode::OK, &result),
        None => Err(Refused::SessionBusy(
            "the first request with this idempotency key has not settled; send it again shortly",
        )),
    }
}
