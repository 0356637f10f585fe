//! Event streams: one session, or the list of sessions.

use crate::auth::{Access, Read};
use crate::extract::{Asked, InPath};
use crate::frame::{FrameData, ListData};
use crate::plane::{EventFilter, Follow, Start};
use crate::problem::Problem;
use crate::sse::{loops, respond, session_stream};
use crate::state::ApiState;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures::{StreamExt, future};
use harness_core::ids::ProjectId;
use harness_session::RowChange;
use http::HeaderMap;
use serde::Deserialize;

/// Where to begin and what to see.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Last journal sequence already seen; from now on, after one snapshot, when absent.
    after: Option<u64>,
    /// Enduring events: `all`, `none`, or loop ids separated by commas.
    enduring: Option<String>,
    /// Ephemeral events: `all`, `none`, or loop ids separated by commas.
    ephemeral: Option<String>,
}

/// Where a stream begins. A client that reconnects repeats its first URL, so the header, which
/// moves on, wins over `after`.
fn start(headers: &HeaderMap, after: Option<u64>) -> Result<Start, Problem> {
    match headers.get("last-event-id") {
        None => Ok(after.map_or(Start::Now, Start::After)),
        Some(value) => value.to_str().ok().and_then(|value| value.parse().ok()).map(Start::After).ok_or_else(|| {
            Problem::invalid("`Last-Event-ID` is not a journal sequence number; send the last `id:` of the stream, or leave it out")
        }),
    }
}

/// Events of a session as server-sent events: replay from where the client stopped, then live,
/// without gap or duplicate. Events of the session itself and the snapshot pass every filter.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/events", tag = "Events",
    params(("session_id" = uuid::Uuid, Path), EventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "As `after`, which it overrules")),
    responses((status = 200, body = FrameData, content_type = "text/event-stream")))]
pub(crate) async fn session(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    Asked(query): Asked<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let follow = Follow {
        start: start(&headers, query.after)?,
        filter: EventFilter {
            enduring: loops("enduring", query.enduring.as_deref())?,
            ephemeral: loops("ephemeral", query.ephemeral.as_deref())?,
        },
    };
    let id = access.session(&state, &raw).await?;
    let items = state.plane().subscribe(id, follow).await?;
    Ok(session_stream(&state, access.grant(), id, items))
}

/// Whose sessions.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListsQuery {
    /// Only those of this project.
    project_id: Option<ProjectId>,
}

/// Sessions as they change, as server-sent events: `session` with the session, and
/// `session_deleted` with the ids of one that is gone. No replay: read the list after connecting.
#[utoipa::path(get, path = "/v1/events", tag = "Events", params(ListsQuery),
    responses((status = 200, body = ListData, content_type = "text/event-stream")))]
pub(crate) async fn lists(
    State(state): State<ApiState>,
    access: Access<Read>,
    Asked(query): Asked<ListsQuery>,
) -> Result<Response, Problem> {
    let project = match query.project_id {
        Some(id) => Some(access.project(&state, id).await?),
        None => None,
    };
    let grant = access.grant().clone();
    let events = state
        .plane()
        .subscribe_lists(project)
        .filter_map(move |change| {
            let (name, data) = match &change {
                RowChange::Now(session) => ("session", ListData::Session(session)),
                RowChange::Deleted { id, project_id } => (
                    "session_deleted",
                    ListData::Deleted {
                        id: *id,
                        project_id,
                    },
                ),
            };
            let event = grant
                .sees(change.project_id())
                .then(|| serde_json::to_string(&data).ok())
                .flatten();
            future::ready(event.map(|data| Event::default().event(name).data(data)))
        });
    Ok(respond(&state, access.grant(), events))
}
