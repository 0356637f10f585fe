//! The rules a run is held against.
//!
//! Twice, so that a defect in the product's own fold does not hide itself: every journal is folded
//! by `harness-core` and compared with what live actors showed and with the stored row
//! (`Journaled`), and it is read record by record by a model that shares nothing with it
//! (`rules::Rules`). Beside both stands what the outside world saw: what providers were sent,
//! what clients were told.

mod journaled;
mod requests;
mod rules;

pub use journaled::Journaled;

use crate::world::World;
use harness_core::ids::{CommandId, GateId, LoopId, Seq, SessionId};
use harness_core::view::{SessionView, Snapshot};
use harness_journal::Projection;
use std::collections::{BTreeMap, BTreeSet};

/// A call that does something natively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sent {
    /// `invoke`
    Operation,
    /// `start-prompt`, or a folded input.
    Input,
    /// `adopt-turn`
    Adoption,
}

/// Everything that was seen, over all processes.
#[derive(Default)]
pub struct Ledger {
    sessions: BTreeMap<SessionId, Journaled>,
    sent: BTreeMap<(Sent, CommandId), u32>,
    answered: BTreeSet<GateId>,
}

type Found = Result<(), String>;

impl Ledger {
    /// Something is durable that was not before; `row`: the row that came with it.
    ///
    /// # Errors
    /// A rule that the journal breaks now.
    pub fn appended(&mut self, world: &World, id: SessionId, row: Option<&Projection>) -> Found {
        let session = self.sessions.entry(id).or_default();
        for record in world.store.records(id, session.next_seq()) {
            world.note(format_args!(
                "{} {:?} {}",
                record.seq,
                record.kind,
                String::from_utf8_lossy(&record.bytes)
            ));
            session
                .take_in(&record)
                .map_err(|what| format!("{id} record {}: {what}", record.seq))?;
        }
        session.check_row(row)
    }

    /// A session's journal.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&Journaled> {
        self.sessions.get(&id)
    }

    /// Every type of event that came up.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<&'static str> {
        self.sessions.values().flat_map(Journaled::events).collect()
    }

    /// The newest durable sequence of a session.
    #[must_use]
    pub fn tail(&self, id: SessionId) -> Seq {
        self.session(id).map_or(0, |s| s.next_seq() - 1)
    }

    fn known(&self, id: SessionId) -> Result<&Journaled, String> {
        let known = self.sessions.get(&id);
        known.ok_or_else(|| format!("session {id} was shown and is not durable"))
    }

    /// A client was shown this row.
    ///
    /// # Errors
    /// It shows what is not durable.
    pub fn row_shown(&self, row: &SessionView) -> Found {
        let session = self.known(row.id)?;
        if row.last_seq < session.next_seq() {
            return Ok(());
        }
        Err(format!(
            "a row shows sequence {}, which is not durable",
            row.last_seq
        ))
    }

    /// A client was shown this event.
    ///
    /// # Errors
    /// It is not durable, or the journal has another one there.
    pub fn event_shown(&self, id: SessionId, seq: Seq, name: &str) -> Found {
        let stored = self.known(id)?.event_at(seq);
        match stored {
            Some(stored) if stored == name => Ok(()),
            Some(stored) => Err(format!("{name} was shown as {seq}, which is {stored}")),
            None => Err(format!("{name} was shown as {seq} before it was durable")),
        }
    }

    /// A client was shown this picture of a live session.
    ///
    /// # Errors
    /// It is not what the journal says up to there.
    pub fn snapshot_shown(&self, world: &World, shown: &Snapshot) -> Found {
        self.known(shown.session.id)?.check_snapshot(world, shown)
    }

    /// A client was told that this command was accepted.
    ///
    /// # Errors
    /// It is not durable.
    pub fn accepted(&self, id: SessionId, command: CommandId) -> Found {
        if self.known(id)?.rules.has_command(command) {
            return Ok(());
        }
        Err(format!(
            "command {command} was acknowledged and is not durable"
        ))
    }

    /// A client was told that its answer to a gate was taken.
    ///
    /// # Errors
    /// It was told so before, or the gate is open.
    pub fn answered(&mut self, id: SessionId, gate: GateId) -> Found {
        if !self.answered.insert(gate) {
            return Err(format!("two answers to gate {gate} were taken (S82)"));
        }
        if self.known(id)?.rules.is_closed(gate) {
            return Ok(());
        }
        Err(format!(
            "the answer to gate {gate} was acknowledged and is not durable (S82)"
        ))
    }

    /// A provider is sent something. Each is sent once, and not before it is durable.
    ///
    /// # Errors
    /// It was sent before, or nothing durable says so.
    pub fn sent(&mut self, id: SessionId, what: Sent, command: CommandId) -> Found {
        let times = self.sent.entry((what, command)).or_default();
        *times += 1;
        if *times > 1 {
            return Err(format!("{what:?} {command} was sent {times} times"));
        }
        let rules = &self.known(id)?.rules;
        let durable = match what {
            Sent::Operation => rules.has_command(command),
            Sent::Input | Sent::Adoption => rules.has_turn_of(command),
        };
        if durable {
            return Ok(());
        }
        Err(format!("{what:?} {command} was sent before it was durable"))
    }

    /// A provider was told that this text of a turn is kept.
    ///
    /// # Errors
    /// It is not durable.
    pub fn kept(&self, id: SessionId, text: &str) -> Found {
        if self.known(id)?.rules.has_text(text) {
            return Ok(());
        }
        Err(format!(
            "the write of {text:?} was acknowledged and is not durable"
        ))
    }

    /// Everything has come to its end: nothing may be left open anywhere.
    ///
    /// # Errors
    /// What is.
    pub fn settled(&self) -> Found {
        for (id, session) in &self.sessions {
            session
                .rules
                .settled()
                .map_err(|what| format!("{id} at the end: {what}"))?;
        }
        Ok(())
    }

    /// Commands of a session by which a client may name something.
    #[must_use]
    pub fn inputs(&self, id: SessionId) -> Vec<CommandId> {
        self.session(id)
            .map(|s| s.rules.open_inputs())
            .unwrap_or_default()
    }

    /// Loops of a session.
    #[must_use]
    pub fn loops(&self, id: SessionId) -> Vec<LoopId> {
        self.session(id)
            .map(|s| s.rules.loops())
            .unwrap_or_default()
    }
}
