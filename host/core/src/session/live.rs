//! What of a session is only in memory: who owns it now, what is being stopped, what waits.
//!
//! It is small and cloned by each decision; streamed text is not in it (see [`super::sink`]).
//! Nothing of it survives the process: a restore starts from [`Live::default`].

use super::state::LoopState;
use crate::abort::AbortReason;
use crate::command::ProcessNotice;
use crate::content::Usage;
use crate::event::{Failure, InterruptReason};
use crate::ids::{CommandId, GateId, HarnessId, LoopId, RunId, TurnId};
use crate::operation::Execution;
use crate::provider::NativeTurn;
use crate::refusal::Refused;
use crate::view::RowError;
use crate::workspace::WorkspaceRef;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of an invocation, unique in the life of a session's actor.
pub type InvocationId = u64;
/// Number of an announcement or activity, unique in the life of a session's actor.
pub type LinkId = u64;

/// In-memory state of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// The journal refused an enduring event (S62).
    pub faulted: Option<Fault>,
    /// The host shuts down: nothing new is admitted.
    pub closing: bool,
    /// The session shuts down by this command: nothing new is admitted (S94).
    pub shutdown: Option<CommandId>,
    /// What runs in each loop, and what waits for it. A loop that is not in it is at rest.
    pub loops: BTreeMap<LoopId, LiveLoop>,
    /// Stops that were claimed and have not ended (R67, S91): a loop is marked while one of them
    /// names it.
    pub stops: Vec<Stop>,
    /// Which invocation each open gate belongs to.
    pub gates: BTreeMap<GateId, InvocationId>,
    /// Calls that wait for a delegate's result, by number.
    pub awaits: BTreeMap<LinkId, Await>,
    /// Gates that are being answered, and wait for what has to come first (S80).
    pub claimed: BTreeSet<GateId>,
    /// What the session does in its workspace.
    pub workspace: LiveWorkspace,
    /// Background processes are being ended before `SessionStopped` (S94).
    pub ending_processes: bool,
    /// Last invocation number given.
    pub last_invocation: InvocationId,
}

/// Why a session writes nothing any more (S62, S66).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The journal refused an enduring event; why.
    Refused(String),
    /// Another holder took the session over; who, in words.
    LeaseLost(String),
}

impl Fault {
    /// What whoever asks for something is told.
    #[must_use]
    pub fn refused(&self) -> Refused {
        match self {
            Self::Refused(_) => Refused::SessionFaulted,
            Self::LeaseLost(holder) => Refused::SessionTakenOver {
                holder: holder.clone(),
            },
        }
    }

    /// Whether another holder has the session.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        matches!(self, Self::LeaseLost(_))
    }
}

/// What a session does in its workspace, which it shares with other sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveWorkspace {
    /// It works there: nobody has the workspace alone meanwhile.
    pub inside: bool,
    /// It has the workspace alone.
    pub held: bool,
    /// The checkpoint or rewind that runs. Nothing else starts meanwhile.
    pub job: Option<WorkspaceJob>,
    /// Checkpoints that clients asked for and that wait, in order.
    pub waiting: VecDeque<CommandId>,
    /// The policy wants one, because an idle edge was written.
    pub due: bool,
    /// Why the last required checkpoint failed (S98).
    pub fault: Option<RowError>,
    /// It looks again when somebody else leaves the workspace.
    pub watches: bool,
}

/// What is done to a workspace by a session that has it alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceJob {
    /// A snapshot is taken.
    Checkpoint {
        /// Who asked for it; empty: the policy alone.
        asked: Vec<CommandId>,
    },
    /// The tree becomes that of a snapshot.
    Rewind {
        /// Who asked.
        asked: CommandId,
        /// The snapshot.
        reference: WorkspaceRef,
        /// Its event is durable; what a way back would need is being dropped.
        recorded: bool,
    },
}

/// In-memory state of one loop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveLoop {
    /// The live turn or idle control.
    pub owner: Option<Owner>,
    /// Whether the loop holds an execution slot.
    pub slot: bool,
    /// The slot it holds overdraws the pool; it is repaid when its run ends (N8).
    pub overdrawn: bool,
    /// Whether it waits for one.
    pub waits_for_slot: bool,
    /// Announcements that are held back by their rate and have not arrived (N11).
    pub paced: usize,
    /// Announcements that wait.
    pub announced: VecDeque<Announced>,
    /// Open activities by number, with their labels.
    pub activities: BTreeMap<LinkId, String>,
    /// Counts notifications of changed command state (G7).
    pub state_epoch: u64,
    /// Process notifications whose dispatch ended `stopped` (S97).
    pub undispatched: BTreeSet<CommandId>,
}

/// A claimed stop. It ends when everything in its loops has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The interrupt command; zero for a shutdown.
    pub command_id: CommandId,
    /// The loops it marked, all of them before anything was sent to any (S90).
    pub loops: BTreeSet<LoopId>,
}

/// A call that waits for a delegate's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Await {
    /// The loop that waits.
    pub parent: LoopId,
    /// The request.
    pub request: CommandId,
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
    /// A compaction; it is no turn and takes no slot (S95).
    Compaction,
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

/// A loop at rest.
static AT_REST: LiveLoop = LiveLoop {
    owner: None,
    slot: false,
    overdrawn: false,
    waits_for_slot: false,
    paced: 0,
    announced: VecDeque::new(),
    activities: BTreeMap::new(),
    state_epoch: 0,
    undispatched: BTreeSet::new(),
};

impl Live {
    /// What runs in that loop.
    #[must_use]
    pub fn of(&self, loop_id: LoopId) -> &LiveLoop {
        self.loops.get(&loop_id).unwrap_or(&AT_REST)
    }

    pub(super) fn of_mut(&mut self, loop_id: LoopId) -> &mut LiveLoop {
        self.loops.entry(loop_id).or_default()
    }

    /// The owner that an invocation in flight belongs to.
    #[must_use]
    pub fn owner_of(&self, id: InvocationId) -> Option<&Owner> {
        self.owners().find(|o| o.invocations.contains_key(&id))
    }

    pub(super) fn owner_of_mut(&mut self, id: InvocationId) -> Option<&mut Owner> {
        let mut owners = self.loops.values_mut().filter_map(|l| l.owner.as_mut());
        owners.find(|o| o.invocations.contains_key(&id))
    }

    /// Every owner, in the order of the loops' ids.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.loops.values().filter_map(|l| l.owner.as_ref())
    }

    /// An invocation in flight.
    #[must_use]
    pub fn invocation(&self, id: InvocationId) -> Option<&Invocation> {
        self.owner_of(id).and_then(|o| o.invocations.get(&id))
    }

    /// Whether a stop was claimed that has not ended there (S91).
    #[must_use]
    pub fn is_marked(&self, loop_id: LoopId) -> bool {
        self.stops.iter().any(|s| s.loops.contains(&loop_id))
    }

    /// Whether nothing keeps an instance of the session busy (N5), apart from open gates.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let workspace = &self.workspace;
        let works = workspace.held || workspace.due || workspace.watches;
        // Who looks at a checkpoint fault reads it from the live session.
        self.stops.is_empty()
            && !works
            && workspace.fault.is_none()
            && self.loops.values().all(LiveLoop::is_quiet)
    }

    pub(super) fn next_invocation(&mut self) -> InvocationId {
        self.last_invocation += 1;
        self.last_invocation
    }
}

impl LiveLoop {
    /// Whether nothing keeps the loop's instance busy (N5), apart from open gates.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.owner.is_none() && !self.has_more()
    }

    /// Whether a turn may follow of itself once nothing is in its way: a prompt, news of a process,
    /// an announced turn.
    #[must_use]
    pub fn wants_a_turn(&self, of: &LoopState) -> bool {
        of.next_input().is_some() || self.next_notice(of).is_some() || !self.announced.is_empty()
    }

    /// The oldest process notification that waits to reach the provider.
    #[must_use]
    pub fn next_notice<'a>(&self, of: &'a LoopState) -> Option<&'a ProcessNotice> {
        self.notices(of).next()
    }

    /// Process notifications that wait to reach the provider, in order: the bounded set of S97.
    pub fn notices<'a>(&self, of: &'a LoopState) -> impl Iterator<Item = &'a ProcessNotice> {
        let waits = |id: &CommandId| !self.undispatched.contains(id);
        let waiting = of.notices.iter().filter(move |(id, _)| waits(id));
        waiting.map(|(_, notice)| notice)
    }

    /// How many there are.
    pub(super) fn dispatched(&self, of: &LoopState) -> usize {
        self.notices(of).count()
    }

    /// Whether all that a stop aborts has ended. An announcement that is held back is none of it:
    /// it is answered when it comes.
    pub(super) fn rests(&self) -> bool {
        self.owner.is_none() && self.activities.is_empty()
    }

    /// Whether something that a stop ends goes on beside the owner.
    pub(super) fn has_more(&self) -> bool {
        !self.activities.is_empty() || !self.announced.is_empty() || self.paced > 0
    }
}

impl Owner {
    /// Whether it is a compaction.
    #[must_use]
    pub fn compacts(&self) -> bool {
        let runner = self.invocations.get(&self.runner);
        runner.is_some_and(|i| i.kind == Kind::Compaction)
    }

    /// Whether a turn's startup call or `done` has not returned.
    #[must_use]
    pub fn turn_is_running(&self) -> bool {
        self.turn.is_some() && self.ended.is_none()
    }
}
