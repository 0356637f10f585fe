//! Sessions: creating, listing, reading, changing and deleting them, and their conversation.

use super::commands::wire_operation;
use crate::auth::{Access, Invoke, Read};
use crate::blocks;
use crate::extract::{Asked, InPath, Intent, NoQuery, Strict};
use crate::flight::{Cut, Done, answer_lost, change_session, never_again, perform};
use crate::page::{self, Listed};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use harness_core::content::{Block, Message};
use harness_core::ids::{CommandId, HarnessId, LoopId, ProjectId, WorkspaceId};
use harness_core::operation::Operation;
use harness_core::provider::{ParamValue, Params};
use harness_core::refusal::Refused;
use harness_core::view::{OperationResult, SessionView, Status};
use harness_journal::SessionFilter;
use harness_session::{CreateRequest, DraftRequest, First, SettingsRequest, ShutDown};
use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};

/// Most parameters of a request.
const MAX_PARAMS: usize = 256;
const MAX_MODEL: usize = 128;

/// A session to be made: exactly one of `prompt` and `operation` says what it does first (R43).
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// Its project.
    project_id: ProjectId,
    /// For a person, at most 1 KiB.
    title: String,
    /// Qualified id of its harness.
    agent: HarnessId,
    /// Where it works; the project's default when absent.
    workspace_id: Option<WorkspaceId>,
    /// Its model; the harness's own choice when absent.
    model: Option<String>,
    /// Parameters over the harness's defaults.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, ParamValue>)]
    params: Params,
    /// A first prompt.
    prompt: Option<Vec<Block>>,
    /// A first native operation.
    operation: Option<Operation>,
    /// With `operation`: the revision of the command state it was chosen from.
    #[serde(rename = "expectedRevision")]
    expected_revision: Option<String>,
}

/// What creation is answered with: the session, and what became of its first request.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct CreatedView {
    /// The session.
    #[serde(flatten)]
    session: SessionView,
    /// Command id of the first prompt or operation.
    command_id: CommandId,
    /// What became of a first operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation_result: Option<OperationResult>,
}

pub(crate) fn check_settings(model: Option<&str>, params: &Params) -> Result<(), Problem> {
    if let Some(model) = model {
        blocks::text("model", model, MAX_MODEL)?;
    }
    if params.len() > MAX_PARAMS {
        return Err(Problem::invalid(format!(
            "`params` has {} members; at most {MAX_PARAMS} are taken",
            params.len()
        )));
    }
    Ok(())
}

impl NewSession {
    fn checked(self) -> Result<CreateRequest, Problem> {
        blocks::title(&self.title)?;
        check_settings(self.model.as_deref(), &self.params)?;
        let first = match (self.prompt, self.operation) {
            (Some(prompt), None) => {
                if self.expected_revision.is_some() {
                    return Err(Problem::invalid(
                        "`expectedRevision` belongs to an `operation`; leave it out with a `prompt`",
                    ));
                }
                blocks::check(&prompt, "prompt")?;
                First::Prompt(prompt)
            }
            (None, Some(operation)) => First::Operation {
                operation: wire_operation(operation)?,
                expected_revision: self.expected_revision,
            },
            _ => {
                return Err(Problem::invalid(
                    "send exactly one of `prompt` and `operation`",
                ));
            }
        };
        let draft = DraftRequest {
            project_id: self.project_id,
            agent: self.agent,
            workspace_id: self.workspace_id,
            model: self.model,
            params: self.params,
        };
        Ok(CreateRequest {
            draft,
            title: self.title,
            first,
        })
    }
}

/// Makes a session and has it do its first prompt or operation.
#[utoipa::path(post, path = "/v1/sessions", tag = "Sessions",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = NewSession, examples(
        ("prompt" = (value = json!({"project_id": "default", "title": "Ship it", "agent": "demo/planner",
            "prompt": [{"type": "text", "text": "What is left to do?"}]}))),
        ("operation" = (value = json!({"project_id": "default", "title": "Ship it", "agent": "demo/planner",
            "operation": {"kind": "command", "text": "/goal  ship it"}})))
    )),
    responses((status = 201, body = CreatedView)))]
pub(crate) async fn create(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    _: NoQuery,
    intent: Intent<NewSession>,
) -> Result<Response, Problem> {
    let request = intent.body.checked()?;
    access.reach(&request.draft.project_id)?;
    perform(
        &state,
        access.grant(),
        None,
        intent.key,
        created,
        move |plane, caller, gone| async move {
            let made = plane.create(caller, request, gone).await?;
            created(Cut {
                session: made.session,
                command_id: made.command_id,
                result: made.operation_result,
                reference: None,
            })
        },
    )
    .await
}

/// The same whether the session was made just now or by a request that was cut off.
fn created(made: Cut) -> Result<Done, Refused> {
    let id = made.session.id;
    Done::created(
        id,
        &CreatedView {
            session: made.session,
            command_id: made.command_id,
            operation_result: made.result,
        },
    )
}

/// Which sessions.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionsQuery {
    /// Only those of this project.
    project_id: Option<ProjectId>,
    /// Only those of this status.
    #[param(inline)]
    status: Option<Status>,
    /// Most items, 1 to 1000; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the page before, unchanged.
    cursor: Option<String>,
}

/// Sessions within the token's reach, newest first.
#[utoipa::path(get, path = "/v1/sessions", tag = "Sessions", params(SessionsQuery),
    responses((status = 200, body = Listed<SessionView>)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    access: Access<Read>,
    Asked(query): Asked<SessionsQuery>,
) -> Result<Json<Listed<SessionView>>, Problem> {
    let page = page::request(query.limit, query.cursor)?;
    let projects = match query.project_id {
        Some(id) => vec![access.project(&state, id).await?],
        None => access.projects().iter().cloned().collect(),
    };
    let status = query.status.map(|status| status.as_str().to_owned());
    let found = state
        .plane()
        .sessions(SessionFilter {
            projects,
            status,
            page,
        })
        .await?;
    Ok(Json(Listed::from_page(found, |session| session)))
}

/// One session.
#[utoipa::path(get, path = "/v1/sessions/{session_id}", tag = "Sessions",
    params(("session_id" = uuid::Uuid, Path)), responses((status = 200, body = SessionView)))]
pub(crate) async fn show(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    _: NoQuery,
) -> Result<Json<SessionView>, Problem> {
    let id = raw.parse().map_err(|_| Problem::session_not_found(&raw))?;
    let session = state.plane().session(id).await?;
    if !access.sees(&session.project_id) {
        return Err(Problem::session_not_found(&raw));
    }
    Ok(Json(session))
}

/// Changed settings of a session; what is absent stays.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// New title, at most 1 KiB.
    title: Option<String>,
    /// New model; null for the harness's own choice.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    model: Option<Option<String>>,
    /// Parameters to merge over the stored ones.
    #[schema(value_type = Option<std::collections::HashMap<String, ParamValue>>)]
    params: Option<Params>,
    /// Another harness; clears the native conversation.
    agent: Option<HarnessId>,
}

/// Tells `null` from absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Changes settings. `model` and `agent` only while nothing runs or waits.
#[utoipa::path(patch, path = "/v1/sessions/{session_id}", tag = "Sessions",
    params(("session_id" = uuid::Uuid, Path)),
    request_body(content = Settings, example = json!({"title": "Ship it today", "params": {"planning": true}})),
    responses((status = 200, body = SessionView)))]
pub(crate) async fn change(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    Strict(settings): Strict<Settings>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    if let Some(title) = &settings.title {
        blocks::title(title)?;
    }
    let none = Params::new();
    check_settings(
        settings.model.as_ref().and_then(Option::as_deref),
        settings.params.as_ref().unwrap_or(&none),
    )?;
    let request = SettingsRequest {
        title: settings.title,
        model: settings.model,
        params: settings.params,
        agent: settings.agent,
    };
    if request.title.is_none()
        && request.model.is_none()
        && request.params.is_none()
        && request.agent.is_none()
    {
        return Err(Problem::invalid(
            "nothing to change; send `title`, `model`, `params` or `agent`",
        ));
    }
    change_session(
        &state,
        access.grant(),
        id,
        None,
        StatusCode::OK,
        never_again,
        move |plane, caller| async move { plane.patch(id, caller, request).await },
    )
    .await
}

/// Nothing to say: the body is empty or `{}`.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// A session that was shut down.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Stopped {
    /// Always true.
    stopped: bool,
    /// Phases that did not end within their bound of 10 s and were left behind: `loops`,
    /// `instances`.
    expired_phases: Vec<String>,
}

impl From<ShutDown> for Stopped {
    fn from(how: ShutDown) -> Self {
        let expired = how.expired_phases.into_iter();
        Self {
            stopped: true,
            expired_phases: expired.map(str::to_owned).collect(),
        }
    }
}

/// Shuts a session down: what runs is stopped, what waits is cancelled, nothing is admitted until
/// it is restored. Concurrent calls share the one result.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/shutdown", tag = "Sessions",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Nothing, example = json!({})),
    responses((status = 200, body = Stopped)))]
pub(crate) async fn shutdown(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<Nothing>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::OK,
        answer_lost,
        move |plane, caller| async move { plane.shutdown(id, caller).await.map(Stopped::from) },
    )
    .await
}

/// Takes a session up: one that was shut down becomes usable again. Any other is left as it is.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/restore", tag = "Sessions",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Nothing, example = json!({})),
    responses((status = 200, body = SessionView)))]
pub(crate) async fn restore(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<Nothing>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::OK,
        answer_lost,
        move |plane, caller| async move { plane.restore(id, caller).await },
    )
    .await
}

/// Deletes a session with its journal. Only while nothing runs; background processes are ended.
#[utoipa::path(delete, path = "/v1/sessions/{session_id}", tag = "Sessions",
    params(("session_id" = uuid::Uuid, Path)), responses((status = 204)))]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
) -> Result<StatusCode, Problem> {
    let id = access.session(&state, &raw).await?;
    let plane = state.plane().clone();
    let task = tokio::spawn(async move { plane.delete(id).await });
    task.await.map_err(|_| Problem::internal())??;
    Ok(StatusCode::NO_CONTENT)
}

/// Which part of which conversation.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessagesQuery {
    /// The loop; the active one when absent.
    loop_id: Option<LoopId>,
    /// Most messages, 1 to 1000; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the page before, unchanged.
    cursor: Option<String>,
}

/// The saved conversation of a loop, oldest first.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/messages", tag = "Sessions",
    params(("session_id" = uuid::Uuid, Path), MessagesQuery), responses((status = 200, body = Listed<Message>)))]
pub(crate) async fn messages(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    Asked(asked): Asked<MessagesQuery>,
) -> Result<Json<Listed<Message>>, Problem> {
    let page = page::request(asked.limit, asked.cursor)?;
    let id = access.session(&state, &raw).await?;
    let found = state.plane().messages(id, asked.loop_id, page).await?;
    Ok(Json(Listed::from_page(found, |message| message)))
}
