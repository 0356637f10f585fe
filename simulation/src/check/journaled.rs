//! A session's journal, folded by the product and compared with what it showed.

use super::Found;
use super::rules::Rules;
use crate::world::World;
use harness_core::codec::{decode_command, decode_event};
use harness_core::content::Message;
use harness_core::ids::{LoopId, Seq};
use harness_core::session::{Record, Session};
use harness_core::view::{SessionView, Snapshot};
use harness_journal::{self as journal, Projection, RecordKind};

/// One session's journal.
#[derive(Default)]
pub struct Journaled {
    fold: Option<Session>,
    last: Seq,
    /// The type of each public event, by its place.
    shown: std::collections::BTreeMap<Seq, &'static str>,
    pub(super) rules: Rules,
}

impl Journaled {
    pub(super) fn next_seq(&self) -> Seq {
        self.last + 1
    }

    /// The type of every public event, in order.
    pub(super) fn events(&self) -> impl Iterator<Item = &'static str> {
        self.shown.values().copied()
    }

    /// The type of the public event at a place.
    pub(super) fn event_at(&self, seq: Seq) -> Option<&'static str> {
        self.shown.get(&seq).copied()
    }

    /// How many public events there are between two places.
    #[must_use]
    pub fn events_between(&self, after: Seq, before: Seq) -> usize {
        if before <= after + 1 {
            return 0;
        }
        self.shown.range(after + 1..before).count()
    }

    pub(super) fn take_in(&mut self, stored: &journal::Record) -> Found {
        if stored.seq != self.last + 1 {
            return Err(format!("it follows {} with a gap (S65)", self.last));
        }
        self.last = stored.seq;
        let Some(record) = decode(stored)? else {
            if let Some(fold) = &mut self.fold {
                fold.state.last_seq = stored.seq;
            }
            return Ok(());
        };
        if let Some(event) = record.public_event() {
            self.shown.insert(stored.seq, event.body.meta().name);
        }
        match (&mut self.fold, &record) {
            (Some(fold), _) => fold
                .replay(&record, stored.seq)
                .map_err(|e| format!("S75: {e}"))?,
            (none, Record::Event(event)) => {
                *none = Some(Session::begin(event, stored.seq).map_err(|e| e.to_string())?);
            }
            _ => return Err("a journal begins with an event".into()),
        }
        self.rules.take_in(&record)
    }

    /// The row is what the journal says.
    pub(super) fn check_row(&self, row: Option<&Projection>) -> Found {
        let (Some(row), Some(fold)) = (row, &self.fold) else {
            return Ok(());
        };
        let stored: SessionView = serde_json::from_slice(&row.body).map_err(|e| e.to_string())?;
        let folded = fold.state.view();
        if stored != folded {
            return Err(format!(
                "S108: the row is {stored:?}, the journal says {folded:?}"
            ));
        }
        if row.status != folded.status.as_str() {
            return Err(format!(
                "S108: the row is {}, the journal says {:?}",
                row.status, folded.status
            ));
        }
        let needs = fold.state.needs_recovery() || fold.state.active;
        if row.needs_recovery != needs {
            return Err(format!("§6.1: needs_recovery is {}", row.needs_recovery));
        }
        Ok(())
    }

    /// The session as its journal tells it up to a place.
    fn up_to(&self, world: &World, shown: &Snapshot) -> Result<Session, String> {
        let seq = shown.session.last_seq;
        if seq > self.last {
            return Err(format!(
                "a picture shows sequence {seq}, which is not durable"
            ));
        }
        if let Some(fold) = self.fold.as_ref().filter(|_| seq == self.last) {
            return Ok(fold.clone());
        }
        let mut session: Option<Session> = None;
        for stored in world.store.records(shown.session.id, 1) {
            if stored.seq > seq {
                break;
            }
            match (decode(&stored)?, &mut session) {
                (None, Some(session)) => session.state.last_seq = stored.seq,
                (Some(record), Some(session)) => {
                    session
                        .replay(&record, stored.seq)
                        .map_err(|e| e.to_string())?;
                }
                (Some(Record::Event(event)), none) => {
                    *none = Some(Session::begin(&event, stored.seq).map_err(|e| e.to_string())?);
                }
                _ => {}
            }
        }
        session.ok_or_else(|| "the journal is empty".into())
    }

    /// Live equals restored: what a live session shows is what its journal says.
    pub(super) fn check_snapshot(&self, world: &World, shown: &Snapshot) -> Found {
        if shown
            .session
            .error
            .as_ref()
            .is_some_and(|e| e.code == "session_faulted")
        {
            // It is behind its journal by what it could not write, and says so.
            return Ok(());
        }
        let mut folded = self.up_to(world, shown)?.snapshot();
        // What is only in memory.
        folded
            .session
            .activities
            .clone_from(&shown.session.activities);
        folded.session.run_id = shown.session.run_id;
        if folded == *shown {
            return Ok(());
        }
        Err(format!(
            "I39: live is {shown:?}, its journal says {folded:?}"
        ))
    }

    /// Live equals restored: the conversation of a loop, if nothing was appended since.
    ///
    /// # Errors
    /// It is another one.
    pub fn check_messages(&self, seq: Seq, loop_id: LoopId, shown: &[Message]) -> Found {
        let Some(fold) = self.fold.as_ref().filter(|_| seq == self.last) else {
            return Ok(());
        };
        let kept = fold.history.of(loop_id);
        if kept.len() == shown.len() && kept.iter().eq(shown) {
            return Ok(());
        }
        Err(format!(
            "S70: {} messages live, {} by the journal",
            shown.len(),
            kept.len()
        ))
    }
}

fn decode(stored: &journal::Record) -> Result<Option<Record>, String> {
    Ok(match stored.kind {
        RecordKind::Fence => None,
        RecordKind::Command => Some(Record::Command(
            decode_command(&stored.bytes).map_err(|e| e.to_string())?,
        )),
        RecordKind::Event | RecordKind::GatePrepared => Some(Record::Event(
            decode_event(&stored.bytes).map_err(|e| e.to_string())?,
        )),
    })
}
