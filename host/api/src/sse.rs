//! Server-sent events: framing, filters and the end of a stream (S63, S64, S106).
//!
//! The data of an event arrives serialised and is only framed here. A stream ends when the
//! subscriber was too slow, when its token is revoked and when the server closes; the client
//! reconnects with the last id it saw and loses nothing.

use crate::auth::Grant;
use crate::frame::{LaggedData, SnapshotData};
use crate::plane::Item;
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

/// Which loops' events of one class pass. Session-scoped events pass every filter (S63).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Loops {
    All,
    These(BTreeSet<LoopId>),
}

impl Loops {
    /// `all`, `none` or loop ids separated by commas.
    pub(crate) fn parse(name: &str, value: Option<&str>) -> Result<Self, Problem> {
        match value {
            None | Some("all") => Ok(Self::All),
            Some("none") => Ok(Self::These(BTreeSet::new())),
            Some(list) => {
                let ids: Result<BTreeSet<LoopId>, _> = list
                    .split(',')
                    .take(MAX_FILTER + 1)
                    .map(str::parse)
                    .collect();
                ids.ok().filter(|ids| ids.len() <= MAX_FILTER).map(Self::These).ok_or_else(|| {
                    Problem::invalid(format!(
                        "`{name}` is neither `all`, `none` nor a list of at most {MAX_FILTER} loop ids separated by commas"
                    ))
                })
            }
        }
    }

    fn passes(&self, loop_id: Option<LoopId>) -> bool {
        match (self, loop_id) {
            (Self::All, _) | (_, None) => true,
            (Self::These(ids), Some(id)) => ids.contains(&id),
        }
    }
}

/// What a subscriber wants to see.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) enduring: Loops,
    pub(crate) ephemeral: Loops,
}

impl Filter {
    /// The event to send for an item, if it passes.
    fn event(&self, session_id: SessionId, item: &Item) -> Option<Event> {
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
                let loops = if frame.seq.is_some() {
                    &self.enduring
                } else {
                    &self.ephemeral
                };
                if !loops.passes(frame.loop_id) {
                    return None;
                }
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
}

/// The stream of one session.
pub(crate) fn session_stream(
    state: &ApiState,
    grant: &Grant,
    session_id: SessionId,
    filter: Filter,
    items: impl Stream<Item = Item> + Send + 'static,
) -> Response {
    let events = items
        .scan(false, |ended, item| {
            let last = std::mem::replace(ended, matches!(item, Item::Lagged { .. }));
            future::ready((!last).then_some(item))
        })
        .filter_map(move |item| future::ready(filter.event(session_id, &item)));
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
        let parse = |text: &str| Loops::parse("enduring", Some(text));
        assert_eq!(Loops::parse("enduring", None).unwrap(), Loops::All);
        assert_eq!(parse("all").unwrap(), Loops::All);
        assert!(parse("").is_err());
        assert!(parse("everything").is_err());
        assert!(parse(&format!("{a},")).is_err());
        let one = parse(&a.to_string()).unwrap();
        assert!(one.passes(Some(a)) && !one.passes(Some(b)));
        // S63: a public event of session scope passes every filter.
        assert!(one.passes(None) && parse("none").unwrap().passes(None));
        assert!(!parse("none").unwrap().passes(Some(a)));
    }
}
