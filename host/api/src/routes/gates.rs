//! Gates: reading what waits for a person and answering it (S82, S105, S117, R44, R45).

use crate::auth::{Access, Invoke, Read};
use crate::code::Code;
use crate::extract::{Asked, InPath, Intent, NoQuery};
use crate::flight::{Cut, Done, change_session};
use crate::page::{Listed, PageQuery};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use harness_core::gate::{Gate, GatePolicy, GateReply, MAX_ANSWER};
use harness_core::refusal::Refused;
use harness_session::{Delivery, GateAnswer, OpenGate};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Every word a gate of some kind takes.
const ACTIONS: &str = "`approve_once`, `approve_always_workspace`, `deny`, `answer`, `decline`";

/// An open gate and the actions it takes.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct GateView {
    /// The gate.
    #[serde(flatten)]
    gate: Gate,
    /// Actions it takes, in the order to offer them.
    actions: Vec<String>,
    /// Who answers it when nobody does.
    policy: GatePolicy,
    /// The page to open, of an `open_url`; told here alone, while the gate is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl From<OpenGate> for GateView {
    fn from(open: OpenGate) -> Self {
        let OpenGate { gate, policy, url } = open;
        let actions = gate.ask.actions().into_iter().map(str::to_owned).collect();
        Self {
            gate,
            actions,
            policy,
            url,
        }
    }
}

/// Open gates, oldest first, each with all that is needed to answer it.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/gates", tag = "Gates",
    params(("session_id" = uuid::Uuid, Path), PageQuery), responses((status = 200, body = Listed<GateView>)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Listed<GateView>>, Problem> {
    let id = access.session(&state, &raw).await?;
    let gates = state.plane().gates(id).await?;
    let items = gates.into_iter().map(GateView::from).collect();
    page.of(items, |view: &GateView| view.gate.gate_id.to_string())
        .map(Json)
}

/// An answer to a gate.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// One of the gate's actions.
    action: String,
    /// With `deny`: why, at most 16 KiB.
    message: Option<String>,
    /// With `answer`. To an `ask_user`: `answers`, one list a question, in order; an empty list
    /// skips it. To a `form`: a value by the name of its field, of the field's type; fields that
    /// are left out have their defaults. To an `open_url`: none. A text has at most 16 KiB.
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>)]
    values: Option<Map<String, Value>>,
}

impl Answer {
    fn reply(self) -> Result<GateReply, Problem> {
        let belongs = |field: &str, action: &str| {
            Problem::invalid(format!(
                "`{field}` belongs to the action `{action}`; leave it out"
            ))
        };
        if self.message.is_some() && self.action != "deny" {
            return Err(belongs("message", "deny"));
        }
        if self.values.is_some() && self.action != "answer" {
            return Err(belongs("values", "answer"));
        }
        match self.action.as_str() {
            "approve_once" => Ok(GateReply::ApproveOnce),
            "approve_always_workspace" => Ok(GateReply::ApproveAlways),
            "deny" => match self.message {
                Some(message) if message.len() > MAX_ANSWER => Err(Problem::too_large(format!(
                    "`message` has {} bytes; at most {MAX_ANSWER} are taken",
                    message.len()
                ))),
                message => Ok(GateReply::Deny(message)),
            },
            "answer" => match self.values {
                Some(values) => Ok(by_shape(values)),
                None => Ok(GateReply::Confirm),
            },
            "decline" => Ok(GateReply::Decline),
            _ => Err(Problem::new(
                Code::GateActionInvalid,
                format!("the action is none of {ACTIONS}; send one of the gate's `actions`"),
            )),
        }
    }
}

/// Questions and forms take values of different shapes; which of them the gate takes it knows
/// itself.
fn by_shape(values: Map<String, Value>) -> GateReply {
    let lists = match values.get("answers") {
        Some(lists) if values.len() == 1 => Vec::<Vec<String>>::deserialize(lists).ok(),
        _ => None,
    };
    lists.map_or_else(|| GateReply::Fill(values), GateReply::Answer)
}

/// How an accepted answer reached who asked.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Delivered {
    /// `acknowledged`: the waiting ask got it; `uncertain`: the component was lost meanwhile.
    delivery: DeliveryView,
}

/// How an accepted answer reached who asked.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeliveryView {
    /// The waiting ask got it.
    Acknowledged,
    /// The component was lost meanwhile.
    Uncertain,
}

/// Answers a gate. The answer is durable before it is handed on.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/gates/{gate_id}", tag = "Gates",
    params(("session_id" = uuid::Uuid, Path), ("gate_id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes")),
    request_body(content = Answer, examples(
        ("approve" = (value = json!({"action": "approve_once"}))),
        ("deny" = (value = json!({"action": "deny", "message": "Not on a Friday."}))),
        ("answer" = (value = json!({"action": "answer", "values": {"answers": [["blue"], []]}}))),
        ("fill in a form" = (value = json!({"action": "answer", "values": {"name": "Ada", "port": 8080}}))),
        ("page opened" = (value = json!({"action": "answer"}))),
        ("decline" = (value = json!({"action": "decline"})))
    )),
    responses((status = 202, body = Delivered)))]
pub(crate) async fn answer(
    State(state): State<ApiState>,
    access: Access<Invoke>,
    InPath((raw, gate)): InPath<(String, String)>,
    _: NoQuery,
    intent: Intent<Answer>,
) -> Result<Response, Problem> {
    let reply = intent.body.reply()?;
    let id = access.session(&state, &raw).await?;
    let gate_id = gate.parse().map_err(|_| Refused::GateNotFound)?;
    change_session(
        &state,
        access.grant(),
        id,
        intent.key,
        StatusCode::ACCEPTED,
        answered_before,
        move |plane, caller| async move {
            let delivery = match plane
                .answer(id, caller, GateAnswer { gate_id, reply })
                .await?
            {
                Delivery::Acknowledged => DeliveryView::Acknowledged,
                Delivery::Uncertain => DeliveryView::Uncertain,
            };
            Ok(Delivered { delivery })
        },
    )
    .await
}

/// The answer was durable; the ask that waited for it went with the process.
fn answered_before(_: Cut) -> Result<Done, Refused> {
    Done::json(
        StatusCode::ACCEPTED,
        &Delivered {
            delivery: DeliveryView::Uncertain,
        },
    )
}
