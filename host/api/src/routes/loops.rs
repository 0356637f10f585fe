//! Loops of a session: several conversations side by side, one of them active; and compaction of
//! one (S111, S112, S115, S116).

use super::input::{Accepted, accepted};
use crate::auth::{Access, Invoke, Read};
use crate::extract::{Asked, InPath, Intent, NoQuery};
use crate::flight::{Done, answer_lost, change_session};
use crate::page::{Listed, PageQuery};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use harness_core::ids::{HarnessId, LoopId};
use harness_core::provider::LoopMode;
use harness_session::{LoopRequest, LoopRuntime, LoopWithModes};
use http::StatusCode;
use serde::{Deserialize, Serialize};

/// A loop.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Loop {
    #[serde(flatten)]
    view: harness_core::view::LoopView,
    /// Whether it takes input: `open`, or `closed`.
    state: LoopStanding,
    /// Modes it can be set to, beside the base mode, whose name is empty.
    modes: Vec<LoopMode>,
}

/// Whether a loop takes input.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LoopStanding {
    /// It does.
    Open,
    /// It has ended for good.
    Closed,
}

impl From<LoopWithModes> for Loop {
    fn from(of: LoopWithModes) -> Self {
        Self {
            view: of.view,
            state: LoopStanding::Open,
            modes: of.modes,
        }
    }
}

/// The loops of a session, in order of creation.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/loops", tag = "Loops",
    params(("session_id" = uuid::Uuid, Path), PageQuery), responses((status = 200, body = Listed<Loop>)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Listed<Loop>>, Problem> {
    let id = access.session(&state, &raw).await?;
    let loops = state.plane().loops(id).await?;
    let loops = loops.into_iter().map(Loop::from).collect();
    page.of(loops, |of: &Loop| of.view.loop_id.to_string())
        .map(Json)
}

/// A loop to begin.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLoop {
    /// Qualified id of its harness.
    agent: HarnessId,
    /// Its model; the harness's default when absent.
    model: Option<String>,
    /// Its mode; the base mode when absent.
    mode: Option<String>,
}

/// A loop that was begun.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Begun {
    /// Its id.
    loop_id: LoopId,
}

/// Begins another loop. The active loop stays as it is.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/loops", tag = "Loops",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = NewLoop, example = json!({"agent": "demo/planner"})),
    responses((status = 201, body = Begun)))]
pub(crate) async fn create(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<NewLoop>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    let NewLoop { agent, model, mode } = intent.body;
    let request = LoopRequest { agent, model, mode };
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::CREATED,
        // A keyed loop's id is derived from its key, as the command's is.
        |cut| {
            let loop_id = LoopId(cut.command_id.0);
            Done::json(StatusCode::CREATED, &Begun { loop_id })
        },
        move |plane, caller| async move {
            let loop_id = plane.create_loop(id, caller, request).await?;
            Ok(Begun { loop_id })
        },
    )
    .await
}

/// The loop to make active.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Activate {
    /// Its id.
    loop_id: LoopId,
}

/// The active loop.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Active {
    /// Its id.
    active_loop_id: LoopId,
}

/// Makes a loop the active one: prompts without `loop_id`, commands and discovery go to it.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/active-loop", tag = "Loops",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Activate, example = json!({"loop_id": "01956c3e-6f02-7b8e-8a34-5d90c2e7f4ab"})),
    responses((status = 200, body = Active)))]
pub(crate) async fn activate(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<Activate>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    let active_loop_id = intent.body.loop_id;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::OK,
        answer_lost,
        move |plane, caller| async move {
            plane.activate_loop(id, caller, active_loop_id).await?;
            Ok(Active { active_loop_id })
        },
    )
    .await
}

/// What the next turn of a loop uses.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct NextTurn {
    /// Its mode; empty is the base mode.
    mode: String,
    /// Its model; null: what the harness chooses.
    model: Option<String>,
    /// Its effort; null: what the harness chooses.
    effort: Option<String>,
    /// Always `next_turn`: a running turn keeps what it started with.
    effective: Effective,
}

/// When a change of a loop takes effect.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effective {
    /// With the loop's next turn.
    NextTurn,
}

impl From<LoopRuntime> for NextTurn {
    fn from(of: LoopRuntime) -> Self {
        Self {
            mode: of.mode,
            model: of.runtime.model,
            effort: of.runtime.effort,
            effective: Effective::NextTurn,
        }
    }
}

/// A mode to set.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetMode {
    /// Its name; empty is the base mode.
    mode: String,
}

/// Sets the host-owned mode of a loop from its next turn on. It is not a native mode.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/loops/{loop_id}/mode", tag = "Loops",
    params(("session_id" = uuid::Uuid, Path), ("loop_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = SetMode, example = json!({"mode": ""})),
    responses((status = 200, body = NextTurn)))]
pub(crate) async fn set_mode(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath((raw, of)): InPath<(String, String)>,
    _: NoQuery,
    intent: Intent<SetMode>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    let loop_id = loop_id(&of)?;
    let mode = intent.body.mode;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::OK,
        answer_lost,
        move |plane, caller| async move {
            Ok(NextTurn::from(
                plane.set_loop_mode(id, caller, loop_id, mode).await?,
            ))
        },
    )
    .await
}

/// A model, an effort, or both to set.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetInference {
    /// The model; unchanged when absent. Another model forgets the effort.
    model: Option<String>,
    /// The effort; unchanged when absent.
    effort: Option<String>,
}

/// Sets model and effort of a loop from its next turn on, together or not at all.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/loops/{loop_id}/inference", tag = "Loops",
    params(("session_id" = uuid::Uuid, Path), ("loop_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = SetInference, example = json!({"model": "demo-small"})),
    responses((status = 200, body = NextTurn)))]
pub(crate) async fn set_inference(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath((raw, of)): InPath<(String, String)>,
    _: NoQuery,
    intent: Intent<SetInference>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    let loop_id = loop_id(&of)?;
    let SetInference { model, effort } = intent.body;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::OK,
        answer_lost,
        move |plane, caller| async move {
            Ok(NextTurn::from(
                plane
                    .change_inference(id, caller, loop_id, model, effort)
                    .await?,
            ))
        },
    )
    .await
}

fn loop_id(given: &str) -> Result<LoopId, Problem> {
    given.parse().map_err(|_| {
        Problem::invalid("the loop id in the path is not a UUID; take it from GET …/loops")
    })
}

/// The conversation to compact.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compact {
    /// The loop; the active one when absent.
    loop_id: Option<LoopId>,
}

/// Asks the harness to compact a conversation, between turns. The wish is durable when it is
/// answered; `CompactWaiterResolved` or `CompactWaiterRejected` tells what became of it.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/compact", tag = "Loops",
    params(("session_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Compact, example = json!({})),
    responses((status = 202, body = Accepted)))]
pub(crate) async fn compact(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath(raw): InPath<String>,
    _: NoQuery,
    intent: Intent<Compact>,
) -> Result<Response, Problem> {
    let id = access.session(&state, &raw).await?;
    let loop_id = intent.body.loop_id;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::ACCEPTED,
        accepted,
        move |plane, caller| async move {
            let command_id = plane.compact(id, caller, loop_id).await?;
            Ok(Accepted { command_id })
        },
    )
    .await
}
