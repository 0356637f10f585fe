//! What a session is and does: pure decisions over a state folded from its journal.
//!
//! [`Session::decide`] looks and answers with a [`Decision`]: records to append, the in-memory
//! state that follows, effects to perform, an answer. It changes nothing. [`Session::preview`]
//! folds the records; when they are durable the actor calls [`Session::commit`]; when they are not
//! it drops them.
//! So append comes before acknowledge, before fan-out and before every effect, and a failed
//! append leaves no trace. There is no second path: prompts, operations, gate replies, stops,
//! host imports, restore and recovery all come through here.

mod apply;
mod decide;
mod delegates;
mod history;
mod input;
mod live;
mod process;
mod settings;
mod sink;
mod state;

pub use apply::Contradiction;
pub use decide::{
    MAX_CHECKPOINT_WAITERS, MAX_COMPACT_WAITERS, MAX_HOST_GATES, MAX_LOOPS, MAX_NOTICES,
    MAX_SUMMARY,
};
pub use history::History;
pub use input::*;
pub use live::*;
pub use settings::{check_effort, check_model, effective_params, merge_params};
pub use sink::{Sink, SinkError};
pub use state::*;

use crate::codec::{self, CodecError, Encoded};
use crate::command::{Command, CommandBody, DeliveryPhase, ProcessNotice};
use crate::configuration::HarnessConfiguration;
use crate::event::{Event, Visibility};
use crate::ids::{CommandId, HarnessId, Ids, Seq};
use crate::provider::HarnessInfo;
use crate::view::{RowError, SessionView, Snapshot, Status};
use crate::workspace::CheckpointPolicy;
use jiff::Timestamp;
use std::sync::Arc;

/// A durable record of a session's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An intent.
    Command(Command),
    /// A fact.
    Event(Event),
}

impl Record {
    /// Its bytes and fingerprint.
    ///
    /// # Errors
    /// A record that breaks the codec's rules: a defect, or too large.
    pub fn encode(&self) -> Result<Encoded, CodecError> {
        match self {
            Self::Command(command) => codec::encode_command(command),
            Self::Event(event) => codec::encode_event(event),
        }
    }

    /// Its idempotency id in the journal (S65).
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Command(command) => match command.body {
                // The second record of a request is one of its own.
                CommandBody::UserInput {
                    delegate_delivery_phase: Some(DeliveryPhase::FallbackQueued),
                    ..
                } => format!("{}/fallback_queued", command.id()),
                _ => command.id().to_string(),
            },
            Self::Event(event) => event.id.to_string(),
        }
    }

    /// The event, if subscribers may see it.
    #[must_use]
    pub fn public_event(&self) -> Option<&Event> {
        match self {
            Self::Event(event) if event.body.meta().visibility == Visibility::Public => Some(event),
            _ => None,
        }
    }
}

/// What a decision may look at besides the session: time, ids, the harness and bounds.
pub struct Cx<'a> {
    /// Now.
    pub now: Timestamp,
    /// Fresh ids.
    pub ids: &'a mut dyn Ids,
    /// What a harness declares; `None` while it is not installed or not described.
    pub harness: &'a dyn Fn(&HarnessId) -> Option<Arc<HarnessInfo>>,
    /// What a harness is now, for the configuration of a session; `None` while it is not known.
    pub configuration: &'a dyn Fn(&HarnessId) -> Option<HarnessConfiguration>,
    /// Whether a free slot is offered.
    pub slot_free: bool,
    /// The operator allows native turns (N11).
    pub native_turns: bool,
    /// Inputs an inbox holds (S40).
    pub inbox: usize,
    /// Background processes that may run in a session at a time.
    pub processes: usize,
    /// What the session may do in its workspace.
    pub workspace: WorkspaceOffer,
}

/// What a decision may do in the session's workspace, which other sessions may use as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceOffer {
    /// Work may begin there: nobody else has it alone.
    pub open: bool,
    /// It can be had alone: no other session works there.
    pub alone: bool,
    /// Why no snapshot of it can be taken at all.
    pub unsupported: Option<&'static str>,
    /// When checkpoints are taken unasked (S98).
    pub policy: CheckpointPolicy,
}

/// What follows from an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// To be appended, all or nothing, before anything else happens.
    pub records: Vec<Record>,
    /// The in-memory state that follows.
    pub live: Live,
    /// To be performed in order, once the records are durable.
    pub effects: Vec<Effect>,
    /// For whoever asked.
    pub answer: Answer,
    /// Whether a failed append can be told to the asker and leaves nothing behind (S19). If not,
    /// it faults the session (S62).
    pub refusable: bool,
}

/// A session: durable state and what is only in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Folded from the journal.
    pub state: State,
    /// The saved conversations, folded from the journal.
    pub history: History,
    /// In memory.
    pub live: Live,
}

impl Session {
    /// A session whose first event is this one.
    ///
    /// # Errors
    /// Any event but `SessionStarted`.
    pub fn begin(event: &Event, seq: Seq) -> Result<Self, Contradiction> {
        Ok(Self {
            state: State::begin(event, seq)?,
            history: History::default(),
            live: Live::default(),
        })
    }

    /// The durable state as it will be when these records are, the first of them as `first_seq`.
    ///
    /// # Errors
    /// A record that contradicts the state: a defect, found before it is written.
    pub fn preview(&self, records: &[Record], first_seq: Seq) -> Result<State, Contradiction> {
        let mut next = self.state.clone();
        for (record, seq) in records.iter().zip(first_seq..) {
            next.apply(record, seq)?;
        }
        Ok(next)
    }

    /// Takes in a decision whose records are durable; `next` is their preview.
    pub fn commit(&mut self, records: &[Record], next: State, live: Live) {
        for record in records {
            self.history.apply(record, next.active_loop);
        }
        self.state = next;
        self.live = live;
    }

    /// Folds one record of a journal that is read back.
    ///
    /// # Errors
    /// A record that contradicts those before it (S75).
    pub fn replay(&mut self, record: &Record, seq: Seq) -> Result<(), Contradiction> {
        self.state.apply(record, seq)?;
        self.history.apply(record, self.state.active_loop);
        Ok(())
    }

    /// A notification whose dispatch ended `stopped` and for which there is room now: its source
    /// says it again, with the same id (S97).
    #[must_use]
    pub fn notice_to_retry(&self) -> Option<ProcessNotice> {
        let live = &self.live;
        if live.faulted.is_some() || live.closing || live.shutdown.is_some() || self.state.stopped {
            return None;
        }
        let mut open = self.state.loops.values().filter(|l| !l.closed);
        open.find_map(|l| {
            let live = self.live.of(l.id);
            let stopped = |id: &CommandId| live.undispatched.contains(id);
            let waits = l.notices.iter().find(|(id, _)| stopped(id));
            let room = live.dispatched(l) < MAX_NOTICES;
            waits.filter(|_| room).map(|(_, notice)| notice.clone())
        })
    }

    /// Its status, with what is only in memory.
    #[must_use]
    pub fn status(&self) -> Status {
        let status = self.state.status();
        if self.live.faulted.is_some() && self.live.owners().next().is_none() {
            Status::Failed
        } else {
            status
        }
    }

    /// The row, with what is only in memory.
    #[must_use]
    pub fn view(&self) -> SessionView {
        let mut view = self.state.view();
        view.status = self.status();
        if let Some(fault) = &self.live.faulted {
            let refused = fault.refused();
            view.error = Some(RowError {
                code: refused.code().into(),
                message: refused.to_string(),
            });
        }
        view.checkpoint_fault.clone_from(&self.live.workspace.fault);
        let loops = self.live.loops.values();
        view.activities = loops.flat_map(|l| l.activities.values().cloned()).collect();
        let programs = self.state.running_processes();
        view.activities
            .extend(programs.map(|(_, p)| format!("process {}", p.program)));
        if let Some(owner) = &self.live.of(self.state.active_loop).owner {
            view.run_id = Some(owner.run_id);
        }
        view
    }

    /// Everything a client needs to begin following it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            session: self.view(),
            loops: self.state.loop_views(),
            gates: self.state.gates(),
            queued_inputs: self.state.queued_inputs(),
            uncertain_operations: self.state.uncertain.iter().cloned().collect(),
        }
    }
}
