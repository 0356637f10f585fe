//! The journal of a session, page by page (S107).

use crate::auth::{Access, Read};
use crate::extract::{Asked, InPath};
use crate::frame::EventData;
use crate::page;
use crate::plane::JournalPage;
use crate::problem::Problem;
use crate::state::ApiState;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};

/// Which part of the journal.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct JournalQuery {
    /// First sequence number, inclusive; 1 when absent.
    from_journal_seq: Option<u64>,
    /// Most events, 1 to 1000; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of the journal.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct JournalView {
    /// Public events, each as the `data` of its frame.
    events: Vec<EventData>,
    /// Where the next page begins.
    next_seq: u64,
    /// Whether the newest event was reached.
    done: bool,
}

/// Enduring events in order. Gaps between sequence numbers are normal: other records share them.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/journal", tag = "Events",
    params(("session_id" = uuid::Uuid, Path), JournalQuery), responses((status = 200, body = JournalView)))]
pub(crate) async fn show(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    Asked(query): Asked<JournalQuery>,
) -> Result<Response, Problem> {
    let limit = page::limit(query.limit)?;
    let id = access.session(&state, &raw).await?;
    let page = state
        .plane()
        .journal(id, query.from_journal_seq.unwrap_or(1), limit)
        .await?;
    Ok(([(CONTENT_TYPE, "application/json")], write(&page)).into_response())
}

/// The events are JSON already; they are joined, not written again.
fn write(page: &JournalPage) -> String {
    let size: usize = page.events.iter().map(|event| event.len() + 1).sum();
    let mut out = String::with_capacity(size + 64);
    out.push_str("{\"events\":[");
    for (index, event) in page.events.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(event);
    }
    out.push_str(&format!(
        "],\"next_seq\":{},\"done\":{}}}",
        page.next_seq, page.done
    ));
    out
}
