//! What of a session is only in memory: who owns it now, what is being stopped, what waits.
//!
//! It is small and cloned by each decision; streamed text is not in it (see [`super::sink`]).
//! Nothing of it survives the process: a restore starts from [`Live::default`].

use crate::abort::AbortReason;
use crate::content::Usage;
use crate::event::{Failure, InterruptReason};
use crate::ids::{CommandId, GateId, HarnessId, LoopId, RunId, TurnId};
use crate::operation::Execution;
use crate::provider::NativeTurn;
use std::collections::{BTreeMap, VecDeque};

/// Number of an invocation, unique in the life of a session's actor.
pub type InvocationId = u64;
/// Number of an announcement or activity, unique in the life of a session's actor.
pub type LinkId = u64;

/// In-memory state of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// The journal refused an enduring event; why (S62).
    pub faulted: Option<String>,
    /// The host shuts down: nothing new is admitted.
    pub closing: bool,
    /// The live turn or idle control.
    pub owner: Option<Owner>,
    /// A stop was claimed and has not finished (R67).
    pub stop: Option<Stop>,
    /// Whether the session holds an execution slot.
    pub slot: bool,
    /// The slot it holds overdraws the pool; it is repaid when its run ends (N8).
    pub overdrawn: bool,
    /// Whether it waits for one.
    pub waits_for_slot: bool,
    /// Which invocation each open gate belongs to.
    pub gates: BTreeMap<GateId, InvocationId>,
    /// Announcements that are held back by their rate and have not arrived (N11).
    pub paced: usize,
    /// Announcements that wait.
    pub announced: VecDeque<Announced>,
    /// Open activities by number, with their labels.
    pub activities: BTreeMap<LinkId, String>,
    /// Counts notifications of changed command state (G7).
    pub state_epoch: u64,
    /// Last invocation number given.
    pub last_invocation: InvocationId,
}

/// A claimed stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The interrupt command.
    pub command_id: CommandId,
    /// Why the run ends.
    pub reason: InterruptReason,
}

/// An announcement that waits for its turn to be possible (N6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Its number.
    pub id: LinkId,
    /// What was announced.
    pub turn: NativeTurn,
}

/// The in-memory entry of a session's current run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The reserve.
    pub run_id: RunId,
    /// The loop.
    pub loop_id: LoopId,
    /// The turn; `None` for an idle control.
    pub turn: Option<TurnId>,
    /// The command that claimed it.
    pub cause: CommandId,
    /// The invocation that runs the turn, or the idle control.
    pub runner: InvocationId,
    /// Whether controls may attach (R65).
    pub handle: bool,
    /// Set when the runner ended and controls are still in flight (R66).
    pub ended: Option<Ending>,
    /// Invocations in flight.
    pub invocations: BTreeMap<InvocationId, Invocation>,
    /// Tokens used so far.
    pub usage: Option<Usage>,
}

/// What kind of call an invocation makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An ordinary prompt.
    Prompt,
    /// A native operation.
    Operation(Execution),
    /// An adopted native turn.
    Native,
}

/// One invocation in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The command it performs.
    pub command_id: CommandId,
    /// What it calls.
    pub kind: Kind,
    /// The component's export was entered (N7).
    pub entered: bool,
    /// The provider accepted it and `done` was called.
    pub started: bool,
    /// The harness it was prepared on.
    pub harness: HarnessId,
    /// Its abort was fired.
    pub aborted: Option<AbortReason>,
    /// What it returned is being ended by `done`; the operation resolves as this afterwards.
    pub ending_as: Option<Late>,
}

/// Why a started session is ended at once instead of being run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Late {
    /// It came back after its abort (R68).
    Cancelled,
    /// It broke the contract (R26, W4).
    Violation(String),
}

/// How a run will end once its controls have settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// `TurnDone`
    Done,
    /// `TurnFailed`
    Failed(Failure),
    /// `TurnInterrupted`
    Interrupted(InterruptReason),
}

impl Live {
    /// An invocation in flight.
    #[must_use]
    pub fn invocation(&self, id: InvocationId) -> Option<&Invocation> {
        self.owner.as_ref().and_then(|o| o.invocations.get(&id))
    }

    /// Whether nothing keeps an instance busy (N5), apart from open gates.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.owner.is_none()
            && self.stop.is_none()
            && self.announced.is_empty()
            && self.paced == 0
            && self.activities.is_empty()
    }

    pub(super) fn next_invocation(&mut self) -> InvocationId {
        self.last_invocation += 1;
        self.last_invocation
    }
}

impl Owner {
    /// Whether a turn's startup call or `done` has not returned.
    #[must_use]
    pub fn turn_is_running(&self) -> bool {
        self.turn.is_some() && self.ended.is_none()
    }
}
