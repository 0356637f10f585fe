//! What the `data` of each frame of an event stream holds, as documented.
//!
//! Events come serialised from the layer below, which writes the same types: a test holds the two
//! together. Here is what the API frames itself: the snapshot and the end of a slow subscriber.

use harness_core::command::Cause;
use harness_core::event::EventBody;
use harness_core::ids::{EventId, LoopId, ProjectId, SessionId, TurnId};
use harness_core::view::{SessionView, Snapshot};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An event of a session; `event:` is its `type`.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct EventData {
    /// Version of the frame, 1.
    v: u8,
    /// Journal sequence, as in `id:`; only on enduring events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// Identity; only on enduring events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<EventId>,
    /// The session.
    session_id: SessionId,
    /// The loop; absent for session scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loop_id: Option<LoopId>,
    /// The turn; absent outside any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn_id: Option<TurnId>,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// What led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
    /// What happened, by `type`.
    #[serde(flatten)]
    body: EventBody,
}

/// What the `data` of each frame of the stream of lists holds.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(crate) enum ListData<'a> {
    /// `event: session`.
    #[schema(value_type = SessionView)]
    Session(&'a SessionView),
    /// `event: session_deleted`.
    Deleted {
        /// The session.
        id: SessionId,
        /// Its project.
        #[schema(value_type = ProjectId)]
        project_id: &'a ProjectId,
    },
}

/// Where a stream without `after` begins: `event: snapshot`, `id:` = `seq`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SnapshotData<'a> {
    /// Version of the frame, 1.
    v: u8,
    /// `snapshot`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Newest journal sequence it contains.
    seq: u64,
    /// The state that everything after it builds on.
    #[serde(flatten)]
    #[schema(value_type = Snapshot)]
    snapshot: &'a Snapshot,
}

impl<'a> SnapshotData<'a> {
    pub(crate) fn new(seq: u64, snapshot: &'a Snapshot) -> Self {
        Self {
            v: 1,
            kind: "snapshot",
            seq,
            snapshot,
        }
    }
}

/// The last frame of a subscriber that was too slow: `event: lagged`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LaggedData {
    /// Version of the frame, 1.
    v: u8,
    /// `lagged`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The session.
    session_id: SessionId,
    /// The last sequence that was sent; reconnect with it.
    last_seq: u64,
}

impl LaggedData {
    pub(crate) fn new(session_id: SessionId, last_seq: u64) -> Self {
        Self {
            v: 1,
            kind: "lagged",
            session_id,
            last_seq,
        }
    }
}

/// The `data` of one frame.
#[derive(utoipa::ToSchema)]
#[allow(
    dead_code,
    reason = "documentation of a stream, which is written frame by frame"
)]
pub(crate) enum FrameData {
    Event(Box<EventData>),
    Snapshot(SnapshotData<'static>),
    Lagged(LaggedData),
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness_core::codec::{encode_ephemeral, encode_event, event_frame};
    use harness_core::event::Event;
    use harness_core::ids::{HarnessId, RunId};
    use serde_json::Value;
    use uuid::Uuid;

    fn event(body: EventBody, scope: u128) -> Event {
        Event {
            id: Uuid::from_u128(1).into(),
            session_id: Uuid::from_u128(2).into(),
            loop_id: Uuid::from_u128(scope).into(),
            turn_id: Uuid::from_u128(scope).into(),
            at: "2026-01-02T03:04:05Z".parse().unwrap(),
            cause: Cause::by(Uuid::from_u128(5).into()),
            body,
        }
    }

    /// Reads a frame with the documented type, and writes it again as it was.
    fn check(data: &str) {
        let frame: Value = serde_json::from_str(data).unwrap();
        let read: EventData = serde_json::from_value(frame.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), frame);
    }

    #[test]
    fn g1_the_documented_frame_is_the_one_that_is_written() {
        let done = EventBody::TurnDone {
            run_id: RunId::from(Uuid::from_u128(6)),
            usage: None,
        };
        for event in [event(done, 3), event(EventBody::SessionIdle {}, 0)] {
            check(&event_frame(&encode_event(&event).unwrap().bytes, 18).unwrap());
        }
        let harness_id: HarnessId = "demo/planner".parse().unwrap();
        let mut ephemeral = event(EventBody::CommandStateChanged { harness_id }, 0);
        ephemeral.id = EventId::ZERO;
        check(&encode_ephemeral(&ephemeral).unwrap());
    }
}
