//! Server-sent events: framing, how a filter is spelled, and the end of a stream (S63, S64, S106).
//!
//! Events arrive filtered and serialised and are only framed here. A stream ends when the
//! subscriber was too slow, when its token is revoked and when the server closes; the client
//! reconnects with the last id it saw and loses nothing.

use crate::auth::Grant;
use crate::frame::{LaggedData, SnapshotData};
use crate::plane::{Item, Loops};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, future};
use harness_core::ids::{LoopId, SessionId};
use http::header::{HeaderName, HeaderValue};
use std::collections::BTreeSet;
use std::convert::Infallible;

/// Most loop ids of a filter.
const MAX_FILTER: usize = 256;

/// Reads one class of a filter: `all`, which is also what an absent one means, `none`, or loop ids
/// separated by commas.
pub(crate) fn loops(name: &str, value: Option<&str>) -> Result<Loops, Problem> {
    match value {
        None | Some("all") => Ok(Loops::All),
        Some("none") => Ok(Loops::default()),
        Some(list) => {
            let ids: Result<BTreeSet<LoopId>, _> = list
                .split(',')
                .take(MAX_FILTER + 1)
                .map(str::parse)
                .collect();
            ids.ok().filter(|ids| ids.len() <= MAX_FILTER).map(Loops::These).ok_or_else(|| {
                Problem::invalid(format!(
                    "`{name}` is neither `all`, `none` nor a list of at most {MAX_FILTER} loop ids separated by commas; take them from GET …/loops, or leave it out for `all`"
                ))
            })
        }
    }
}

/// The event to send for an item.
fn event(session_id: SessionId, item: &Item) -> Option<Event> {
    match item {
        Item::Snapshot { seq, snapshot } => {
            let data = SnapshotData::new(*seq, snapshot);
            let text = serde_json::to_string(&data)
                .inspect_err(|error| tracing::error!(%error, "a snapshot could not be written"))
                .ok()?;
            Some(
                Event::default()
                    .event("snapshot")
                    .id(seq.to_string())
                    .data(text),
            )
        }
        Item::Frame(frame) => {
            let event = Event::default().event(frame.name);
            let event = match frame.seq {
                Some(seq) => event.id(seq.to_string()),
                None => event,
            };
            Some(event.data(&*frame.data))
        }
        Item::Lagged { last_seq } => {
            let data = LaggedData::new(session_id, *last_seq);
            let text = serde_json::to_string(&data).ok()?;
            Some(Event::default().event("lagged").data(text))
        }
    }
}

/// The stream of one session.
pub(crate) fn session_stream(
    state: &ApiState,
    grant: &Grant,
    session_id: SessionId,
    items: impl Stream<Item = Item> + Send + 'static,
) -> Response {
    let events = items
        .scan(false, |ended, item| {
            let last = std::mem::replace(ended, matches!(item, Item::Lagged { .. }));
            future::ready((!last).then_some(item))
        })
        .filter_map(move |item| future::ready(event(session_id, &item)));
    respond(state, grant, events)
}

/// Sends events until the source, the token or the server ends.
pub(crate) fn respond(
    state: &ApiState,
    grant: &Grant,
    events: impl Stream<Item = Event> + Send + 'static,
) -> Response {
    let (closing, revoked) = (state.closing(), grant.revoked());
    let end = async move {
        tokio::select! {
            _ = closing.aborted() => {}
            _ = revoked.aborted() => {}
        }
    };
    let events = events.take_until(Box::pin(end)).map(Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(state.ping()).text("ping");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // A reverse proxy that buffers would hold back what is meant to be live.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s106_a_filter_is_all_none_or_ids() {
        let a = LoopId::from(uuid::Uuid::from_u128(1));
        let b = LoopId::from(uuid::Uuid::from_u128(2));
        let parse = |text: &str| loops("enduring", Some(text));
        assert_eq!(loops("enduring", None).unwrap(), Loops::All);
        assert_eq!(parse("all").unwrap(), Loops::All);
        assert_eq!(parse("none").unwrap(), Loops::These([].into()));
        assert_eq!(
            parse(&format!("{b},{a},{b}")).unwrap(),
            Loops::These([a, b].into())
        );
        for bad in ["", "everything", "ALL", "all,none", &format!("{a},")] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let list = |ids: usize| {
            let ids = (0..ids).map(|n| uuid::Uuid::from_u128(n as u128).to_string());
            parse(&ids.collect::<Vec<_>>().join(","))
        };
        assert!(list(MAX_FILTER).is_ok() && list(MAX_FILTER + 1).is_err());
    }
}
