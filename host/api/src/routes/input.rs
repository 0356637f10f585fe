//! Prompts, the queue they wait in, and Stop.

use crate::auth::{Access, Invoke, Read};
use crate::blocks;
use crate::extract::{Asked, InPath, Intent, NoQuery};
use crate::flight::{Cut, Done, change_session, never_again};
use crate::page::{Listed, PageQuery};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use harness_core::content::Block;
use harness_core::ids::{CommandId, LoopId};
use harness_core::refusal::Refused;
use harness_core::view::QueuedInput;
use harness_session::InputRequest;
use http::StatusCode;
use serde::{Deserialize, Serialize};

/// Most ids of one release.
const MAX_IDS: usize = 256;

/// A prompt.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// What it says; 1 to 256 blocks.
    blocks: Vec<Block>,
    /// The loop; the active one when absent.
    loop_id: Option<LoopId>,
    /// Never folds into a running turn.
    #[serde(default)]
    no_fold: bool,
    /// Folds into a running turn or is refused.
    #[serde(default)]
    fold_only: bool,
}

/// An accepted prompt.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Accepted {
    /// Its command id: events name it as their cause.
    pub(super) command_id: CommandId,
}

/// Sends a prompt. It is durable when it is answered; what becomes of it follows as events.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/input", tag = "Prompts",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Input, example = json!({"blocks": [{"type": "text", "text": "Go on."}]})),
    responses((status = 202, body = Accepted)))]
pub(crate) async fn send(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<Input>,
) -> Result<Response, Problem> {
    let input = intent.body;
    blocks::check(&input.blocks, "blocks")?;
    if input.no_fold && input.fold_only {
        return Err(Problem::invalid(
            "`no_fold` and `fold_only` exclude each other; send one of them",
        ));
    }
    let id = access.session(&state, &raw).await?;
    let request = InputRequest {
        blocks: input.blocks,
        loop_id: input.loop_id,
        no_fold: input.no_fold,
        fold_only: input.fold_only,
    };
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::ACCEPTED,
        accepted,
        move |plane, caller| async move {
            let command_id = plane.submit(id, caller, request).await?;
            Ok(Accepted { command_id })
        },
    )
    .await
}

pub(super) fn accepted(cut: Cut) -> Result<Done, Refused> {
    Done::json(
        StatusCode::ACCEPTED,
        &Accepted {
            command_id: cut.command_id,
        },
    )
}

/// Queued and held inputs, in the order they will run.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/queue", tag = "Prompts",
    params(("session_id" = uuid::Uuid, Path), PageQuery), responses((status = 200, body = Listed<QueuedInput>)))]
pub(crate) async fn queue(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Listed<QueuedInput>>, Problem> {
    let id = access.session(&state, &raw).await?;
    let items = state.plane().queue(id).await?;
    page.of(items, |input: &QueuedInput| input.command_id.to_string())
        .map(Json)
}

/// What became of a retraction.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Retracted {
    /// The input's command id.
    command_id: CommandId,
    /// False: it was not waiting any more.
    retracted: bool,
}

/// Retracts an input that waits.
#[utoipa::path(delete, path = "/v1/sessions/{session_id}/queue/{command_id}", tag = "Prompts",
    params(("session_id" = uuid::Uuid, Path), ("command_id" = uuid::Uuid, Path)),
    responses((status = 200, body = Retracted)))]
pub(crate) async fn retract(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath((raw, command)): InPath<(String, String)>,
    _: NoQuery,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    let command_id: CommandId = command.parse().map_err(|_| {
        Problem::invalid("the command id in the path is not a UUID; take it from GET …/queue")
    })?;
    change_session(
        &state,
        access.grant(),
        id,
        None,
        StatusCode::OK,
        never_again,
        move |plane, caller| async move {
            let retracted = plane.retract(id, caller, command_id).await?;
            Ok(Retracted {
                command_id,
                retracted,
            })
        },
    )
    .await
}

/// Which held inputs to release; all of the loop when `command_ids` is absent.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    /// The loop; the active one when absent.
    loop_id: Option<LoopId>,
    /// The inputs' command ids, at most 256.
    command_ids: Option<Vec<CommandId>>,
}

/// What was released.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Released {
    /// Command ids of the inputs; those that were not held are left out.
    released: Vec<CommandId>,
}

/// Releases inputs that are held after a restore.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/queue/release", tag = "Prompts",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Release, example = json!({})),
    responses((status = 200, body = Released)))]
pub(crate) async fn release(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<Release>,
) -> Result<Response, Problem> {
    let Release {
        loop_id,
        command_ids,
    } = intent.body;
    let ids = match command_ids {
        None => Vec::new(),
        Some(ids) if ids.is_empty() => {
            return Err(Problem::invalid(
                "`command_ids` is empty; leave it out to release every held input",
            ));
        }
        Some(ids) if ids.len() > MAX_IDS => {
            return Err(Problem::invalid(format!(
                "`command_ids` has {} ids; at most {MAX_IDS} are taken",
                ids.len()
            )));
        }
        Some(ids) => ids,
    };
    let id = access.session(&state, &raw).await?;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::OK,
        released_before,
        move |plane, caller| async move {
            let released = plane.release(id, caller, loop_id, ids).await?;
            Ok(Released { released })
        },
    )
    .await
}

/// Which ones they were went with the process; none is held any more.
fn released_before(_: Cut) -> Result<Done, Refused> {
    Done::json(
        StatusCode::OK,
        &Released {
            released: Vec::new(),
        },
    )
}

/// What to stop.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interrupt {
    /// The loop; the whole session when absent.
    loop_id: Option<LoopId>,
}

/// Whether there was something to stop.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Interrupted {
    /// False: nothing ran, and nothing was changed.
    interrupted: bool,
}

/// Stops what runs. Queued prompts stay.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/interrupt", tag = "Prompts",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Interrupt, example = json!({})),
    responses((status = 200, body = Interrupted)))]
pub(crate) async fn interrupt(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<Interrupt>,
) -> Result<Response, Problem> {
    let loop_id = intent.body.loop_id;
    let id = access.session(&state, &raw).await?;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::OK,
        stopped_before,
        move |plane, caller| async move {
            let interrupted = plane.interrupt(id, caller, loop_id).await?;
            Ok(Interrupted { interrupted })
        },
    )
    .await
}

/// What ran then ended with the process at the latest.
fn stopped_before(_: Cut) -> Result<Done, Refused> {
    Done::json(StatusCode::OK, &Interrupted { interrupted: true })
}
