//! The durable state of a session: a fold over its journal, and nothing else.
//!
//! Invariant: it changes in [`super::apply`] alone, live and on restore alike, so that restored
//! state equals live state at every journal prefix (I39). What is only in memory is in
//! [`super::live`]. The saved conversation grows without bound and is kept beside it
//! ([`super::History`]), so that a decision's outcome can be looked at before it is durable.

use crate::command::{Agency, ProcessNotice, ProcessState};
use crate::configuration::{Configuration, Drift};
use crate::content::Block;
use crate::event::{DeliveryState, Failure, NativeOrigin, Runtime};
use crate::gate::Gate;
use crate::ids::{
    CommandId, GateId, HarnessId, LoopId, ProjectId, RunId, Seq, SessionId, TurnId, WorkspaceId,
};
use crate::operation::{Execution, Operation};
use crate::provider::{InputOrigin, MAX_SETTLED, Params};
use crate::view::{
    LoopStanding, LoopView, ProcessStatus, ProcessView, QueuedInput, RowError, SessionView, Status,
    UncertainOperation,
};
use indexmap::IndexMap;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Uncertain operations kept for display (S108).
pub const MAX_UNCERTAIN: usize = 64;
/// Ended background processes of a loop that are kept for display.
pub const MAX_ENDED_PROCESSES: usize = 16;

/// Durable state of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its id.
    pub id: SessionId,
    /// Its project.
    pub project_id: ProjectId,
    /// Its title.
    pub title: String,
    /// Its harness.
    pub agent: HarnessId,
    /// Selected model.
    pub model: Option<String>,
    /// Stored parameters.
    pub params: Params,
    /// Where it works.
    pub workspace_id: WorkspaceId,
    /// When it was created.
    pub created_at: Timestamp,
    /// Time of the newest record.
    pub updated_at: Timestamp,
    /// The active loop.
    pub active_loop: LoopId,
    /// Its loops, in order of creation.
    pub loops: IndexMap<LoopId, LoopState>,
    /// Open gates of the host, in order; they are no work of the session (S88).
    pub host_gates: IndexMap<GateId, Gate>,
    /// How the last unit of work settled.
    pub settled: Status,
    /// It was shut down and not restored since (S94).
    pub stopped: bool,
    /// Why it failed.
    pub error: Option<RowError>,
    /// Why it could not be taken up, until it is.
    pub restore_error: Option<RowError>,
    /// The last reserve.
    pub run_id: Option<RunId>,
    /// Between `SessionActive` and `SessionIdle`.
    pub active: bool,
    /// The last idle edge was followed by neither a checkpoint nor a rewind (S98).
    pub owes_checkpoint: bool,
    /// Adopted configurations.
    pub config_epoch: u64,
    /// The one that was adopted last; unknown in a journal from before it was recorded.
    pub configuration: Option<Configuration>,
    /// Counts changes of settings, for the comparison at reserve.
    pub settings_epoch: u64,
    /// Operations accepted so far (R49).
    pub accepted_operations: u64,
    /// Newest journal sequence.
    pub last_seq: Seq,
    /// The latest uncertain operations, oldest first.
    pub uncertain: VecDeque<UncertainOperation>,
    /// Digest of every process notification, to tell a retry from a collision (S97).
    pub notified: Arc<BTreeMap<CommandId, [u8; 32]>>,
}

/// Durable state of one loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopState {
    /// Its id.
    pub id: LoopId,
    /// The loop that started it, for a delegate; it alone addresses it (S96).
    pub parent: Option<LoopId>,
    /// Its harness.
    pub harness: HarnessId,
    /// Host-owned mode; empty is the base mode (S20).
    pub mode: String,
    /// The model it was made with.
    pub model: Option<String>,
    /// Model and effort that were set over that; a change of mode clears them (S71).
    pub inference: Runtime,
    /// `Compact` commands without a reply; true once their compaction was committed (S95).
    pub compact_waiters: IndexMap<CommandId, bool>,
    /// The native conversation.
    pub native_session_id: Option<String>,
    /// Turns begun.
    pub turns: u64,
    /// Inputs that wait, in order.
    pub inbox: VecDeque<Waiting>,
    /// The open turn.
    pub turn: Option<OpenTurn>,
    /// Between the first `TurnStarted` and `LoopIdle`.
    pub running: bool,
    /// It was stopped: its announcements answer `stopped` until a person reserves in it, or in a
    /// loop above it (N12).
    pub disarmed: bool,
    /// Operations without outcome.
    pub operations: IndexMap<CommandId, OpenOperation>,
    /// Open gates.
    pub gates: IndexMap<GateId, Gate>,
    /// Native turn ids that were announced; true once the turn was started (N10).
    pub native_turns: Arc<BTreeMap<String, bool>>,
    /// It was closed for good (S77).
    pub closed: bool,
    /// What its parent sent it, by request: all that has not settled, and the latest that has.
    pub requests: IndexMap<CommandId, DelegateRequest>,
    /// Background processes by handle, oldest first: those that run, and the newest that ended.
    pub processes: IndexMap<String, BackgroundProcess>,
    /// Ends of processes that the provider has not seen, in order (S72).
    pub notices: IndexMap<CommandId, ProcessNotice>,
}

/// A background process (S97).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundProcess {
    /// The operator's name of the program.
    pub program: String,
    /// When its start was written down.
    pub started_at: Timestamp,
    /// How it ended, if it has.
    pub end: Option<ProcessEnd>,
}

/// How a background process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnd {
    /// In a word.
    pub state: ProcessState,
    /// In more.
    pub reason: String,
    /// When it ended by itself.
    pub exit_code: Option<i32>,
    /// When that was written down.
    pub at: Timestamp,
}

/// An input that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its command id.
    pub command_id: CommandId,
    /// Who wanted it.
    pub agency: Agency,
    /// What it says.
    pub blocks: Arc<[Block]>,
    /// Never folds.
    pub no_fold: bool,
    /// Only folds.
    pub fold_only: bool,
    /// Held after a restore (S52).
    pub held: bool,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Where it came from, as a provider is told.
    pub origin: InputOrigin,
    /// The loop it came from, of what is sent between a loop and its delegates.
    pub from: Option<LoopId>,
    /// A restart delivers it, instead of holding it or giving it up (S72).
    pub redeliver: bool,
}

/// A message of a loop to a child of it (S96).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateRequest {
    /// Who sent it.
    pub parent: LoopId,
    /// The result comes to the parent as an input of its own.
    pub background: bool,
    /// Its parent took it back: no hand-back follows.
    pub withdrawn: bool,
    /// The hand-back was written.
    pub handed_back: bool,
    /// How far it has come.
    pub stage: RequestStage,
}

/// How far a delegate request has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestStage {
    /// Its intent is durable, its acceptance is not: a restart forgets it (S73).
    Intent(Waiting),
    /// It waits in the child's inbox.
    Queued,
    /// That turn is its.
    Open(TurnId),
    /// What it depended on ended; it is to be written down.
    Ended(RequestEnd),
    /// It is over.
    Settled(RequestEnd),
}

/// How a delegate request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestEnd {
    /// The turn it was in; zero: none.
    pub turn: TurnId,
    /// How.
    pub state: DeliveryState,
    /// Why, unless it completed.
    pub error: Option<Failure>,
}

impl DelegateRequest {
    /// Whether it is not over.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(
            self.stage,
            RequestStage::Intent(_) | RequestStage::Settled(_)
        )
    }

    /// Whether it was not accepted: then it was never sent (S73).
    #[must_use]
    pub fn is_intent(&self) -> bool {
        matches!(self.stage, RequestStage::Intent(_))
    }

    /// Whether its end brings the parent an input.
    #[must_use]
    pub fn owes_hand_back(&self) -> bool {
        let owed = self.background && !self.withdrawn && !self.handed_back;
        owed && !self.is_intent()
    }
}

/// A turn without terminal event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTurn {
    /// Its id.
    pub turn_id: TurnId,
    /// Its reserve.
    pub run_id: RunId,
    /// The command that opened it.
    pub cause: CommandId,
    /// Set for a native turn.
    pub native: Option<NativeOrigin>,
}

/// An operation without outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOperation {
    /// What was asked.
    pub operation: Operation,
    /// How it was classified.
    pub execution: Option<Execution>,
}

impl LoopState {
    pub(super) fn new(
        id: LoopId,
        parent: Option<LoopId>,
        harness: HarnessId,
        model: Option<String>,
    ) -> Self {
        Self {
            id,
            parent,
            harness,
            mode: String::new(),
            model,
            inference: Runtime::default(),
            compact_waiters: IndexMap::new(),
            native_session_id: None,
            turns: 0,
            inbox: VecDeque::new(),
            turn: None,
            running: false,
            disarmed: false,
            operations: IndexMap::new(),
            gates: IndexMap::new(),
            native_turns: Arc::default(),
            closed: false,
            requests: IndexMap::new(),
            processes: IndexMap::new(),
            notices: IndexMap::new(),
        }
    }

    /// Whether that input of its inbox came from its parent.
    #[must_use]
    pub fn is_request(&self, input: CommandId) -> bool {
        self.requests.contains_key(&input)
    }

    /// Whether a result of a delegate waits in its inbox: the loop will wake (S67).
    #[must_use]
    pub fn has_wake_token(&self) -> bool {
        let token = |w: &Waiting| w.from.is_some() && !self.is_request(w.command_id);
        self.inbox.iter().any(token)
    }

    /// Forgets the oldest settled requests beyond those that are kept.
    pub(super) fn prune_requests(&mut self) {
        let over = |r: &DelegateRequest| {
            matches!(r.stage, RequestStage::Settled(_)) && !r.owes_hand_back()
        };
        let settled = self.requests.values().filter(|r| over(r)).count();
        if settled > MAX_SETTLED
            && let Some(oldest) = self.requests.values().position(over)
        {
            self.requests.shift_remove_index(oldest);
        }
    }

    /// The first input that may start a turn: neither held nor meant to fold only.
    #[must_use]
    pub fn next_input(&self) -> Option<&Waiting> {
        self.inbox.iter().find(|w| !w.held && !w.fold_only)
    }

    pub(super) fn is_in_turn(&self, id: TurnId) -> bool {
        self.turn.as_ref().is_some_and(|t| t.turn_id == id)
    }

    pub(super) fn is_open_control(&self, id: CommandId) -> bool {
        let open = self.operations.get(&id);
        open.is_some_and(|o| o.execution == Some(Execution::Control))
    }

    /// Whether ends of its processes wait to be told. A closed loop is told nothing.
    #[must_use]
    pub fn has_notices(&self) -> bool {
        !self.closed && !self.notices.is_empty()
    }

    /// Its background processes as a client reads them.
    pub fn process_views(&self) -> impl Iterator<Item = ProcessView> {
        self.processes.iter().map(|(handle, process)| {
            let end = process.end.as_ref();
            ProcessView {
                process_handle: handle.clone(),
                loop_id: self.id,
                program: process.program.clone(),
                status: end.map_or(ProcessStatus::Running, |e| e.state.into()),
                exit_code: end.and_then(|e| e.exit_code),
                reason: end.map(|e| e.reason.clone()),
                started_at: process.started_at,
                ended_at: end.map(|e| e.at),
            }
        })
    }

    /// Background processes that run, by handle.
    pub fn running_processes(&self) -> impl Iterator<Item = (&String, &BackgroundProcess)> {
        self.processes.iter().filter(|(_, p)| p.end.is_none())
    }

    /// Whether work is open in it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.turn.is_some() || self.operations.values().any(|o| o.execution.is_some())
    }
}

impl State {
    /// A loop with all its delegates, and theirs.
    #[must_use]
    pub fn subtree(&self, root: LoopId) -> BTreeSet<LoopId> {
        let mut tree = BTreeSet::from([root]);
        // A parent is older than its children.
        for l in self.loops.values() {
            if l.parent.is_some_and(|parent| tree.contains(&parent)) {
                tree.insert(l.id);
            }
        }
        tree
    }

    /// Loops above that one.
    #[must_use]
    pub fn depth(&self, loop_id: LoopId) -> usize {
        let parent = |id: &LoopId| self.loops.get(id).and_then(|l| l.parent);
        // A parent is older than its children: this ends.
        std::iter::successors(parent(&loop_id), parent).count()
    }

    /// Delegates that were ever started (S76).
    #[must_use]
    pub fn spawned(&self) -> usize {
        self.loops.values().filter(|l| l.parent.is_some()).count()
    }

    /// The children of that loop, in order of creation.
    pub fn children(&self, parent: LoopId) -> impl Iterator<Item = &LoopState> {
        let of = move |l: &&LoopState| l.parent == Some(parent);
        self.loops.values().filter(of)
    }

    /// The loop that the session began with; its harness is the session's.
    #[must_use]
    pub fn primary_loop(&self) -> Option<&LoopState> {
        self.loops.values().next()
    }

    /// What the next turn of a loop uses: what was set last for it, else what it was made with,
    /// else what the session has.
    #[must_use]
    pub fn runtime_of(&self, l: &LoopState) -> Runtime {
        let own = l.inference.model.clone().or_else(|| l.model.clone());
        let primary = self.primary_loop().is_some_and(|p| p.id == l.id);
        Runtime {
            model: own.or_else(|| self.model.clone().filter(|_| primary)),
            effort: l.inference.effort.clone(),
        }
    }

    /// The active loop's state.
    #[must_use]
    pub fn active_loop(&self) -> Option<&LoopState> {
        self.loops.get(&self.active_loop)
    }

    /// Its status (S108): derived, never stored.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut loops = self.loops.values();
        let waits = |l: &LoopState| l.next_input().is_some() || l.has_notices();
        if self.stopped {
            Status::Stopped
        } else if self.loops.values().any(|l| !l.gates.is_empty()) {
            Status::AwaitingInput
        } else if loops.any(LoopState::is_open) {
            Status::InProgress
        } else if self.loops.values().any(waits) {
            Status::Queued
        } else {
            self.settled
        }
    }

    /// What has to be accepted before the session is taken up under this configuration (§6.1).
    #[must_use]
    pub fn drift(&self, now: &Configuration) -> Drift {
        let was = self.configuration.as_ref();
        was.map(|was| was.drift(now)).unwrap_or_default()
    }

    /// The configuration to adopt, if it is another one than was adopted last.
    #[must_use]
    pub fn adoption(&self, now: &Configuration) -> Option<Configuration> {
        let was = self.configuration.clone().unwrap_or_default();
        Some(was.adopting(now)).filter(|next| *next != was)
    }

    /// Whether the host must restore it at start (§6.1): something is open or unresolved.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        let open = |l: &LoopState| {
            l.turn.is_some()
                || !l.operations.is_empty()
                || !l.gates.is_empty()
                || !l.inbox.is_empty()
                || !l.compact_waiters.is_empty()
                || l.has_notices()
                || l.running_processes().next().is_some()
        };
        !self.host_gates.is_empty() || self.loops.values().any(open)
    }

    /// Whether a lost process left something that a restore writes down. Inputs that are held
    /// already are not: waking the session leaves them as they are.
    #[must_use]
    pub fn needs_repair(&self) -> bool {
        let owes = |r: &DelegateRequest| match r.stage {
            RequestStage::Ended(_) => true,
            RequestStage::Settled(_) => r.owes_hand_back(),
            _ => false,
        };
        let open = |l: &LoopState| {
            l.running
                || l.turn.is_some()
                || !l.operations.is_empty()
                || !l.gates.is_empty()
                || l.inbox.iter().any(|w| !w.held && !w.redeliver)
                || l.requests.values().any(owes)
                || !l.compact_waiters.is_empty()
                || l.running_processes().next().is_some()
        };
        let failed = self.restore_error.is_some() && !self.stopped;
        let asked = !self.host_gates.is_empty();
        self.active || failed || asked || self.loops.values().any(open)
    }

    /// Inputs that wait, in loop order then queue order.
    #[must_use]
    pub fn queued_inputs(&self) -> Vec<QueuedInput> {
        let of_loop = |l: &LoopState| {
            let loop_id = l.id;
            l.inbox
                .iter()
                .map(move |w| QueuedInput {
                    command_id: w.command_id,
                    loop_id,
                    held: w.held,
                    blocks: w.blocks.to_vec(),
                    created_at: w.created_at,
                })
                .collect::<Vec<_>>()
        };
        self.loops.values().flat_map(of_loop).collect()
    }

    /// Open gates, oldest first.
    #[must_use]
    pub fn gates(&self) -> Vec<Gate> {
        let of_loops = self.loops.values().flat_map(|l| l.gates.values());
        let mut gates: Vec<Gate> = of_loops.chain(self.host_gates.values()).cloned().collect();
        gates.sort_by_key(|g| g.opened_at);
        gates
    }

    /// Background processes that run, over all loops.
    pub fn running_processes(&self) -> impl Iterator<Item = (&String, &BackgroundProcess)> {
        self.loops.values().flat_map(LoopState::running_processes)
    }

    /// Background processes of all loops as a client reads them: those that run, and the newest
    /// that ended, oldest first in each loop.
    #[must_use]
    pub fn process_views(&self) -> Vec<ProcessView> {
        self.loops
            .values()
            .flat_map(LoopState::process_views)
            .collect()
    }

    /// Its loops as a client reads them.
    #[must_use]
    pub fn loop_views(&self) -> Vec<LoopView> {
        self.loops
            .values()
            .map(|l| LoopView {
                loop_id: l.id,
                agent: l.harness.clone(),
                parent_loop_id: l.parent,
                model: self.runtime_of(l).model,
                effort: l.inference.effort.clone(),
                mode: l.mode.clone(),
                running: l.turn.is_some(),
                state: if l.closed {
                    LoopStanding::Closed
                } else {
                    LoopStanding::Open
                },
            })
            .collect()
    }

    /// The row as the journal alone tells it.
    #[must_use]
    pub fn view(&self) -> SessionView {
        let waiting = || self.loops.values().flat_map(|l| l.inbox.iter());
        SessionView {
            id: self.id,
            project_id: self.project_id.clone(),
            title: self.title.clone(),
            status: self.status(),
            agent: self.agent.clone(),
            model: self.model.clone(),
            params: self.params.clone(),
            workspace_id: self.workspace_id.clone(),
            agent_session_id: self
                .primary_loop()
                .and_then(|l| l.native_session_id.clone()),
            active_loop_id: self.active_loop,
            open_gates: self.loops.values().map(|l| l.gates.len()).sum::<usize>()
                + self.host_gates.len(),
            queued: waiting().filter(|w| !w.held).count(),
            held: waiting().filter(|w| w.held).count(),
            activities: Vec::new(),
            last_seq: self.last_seq,
            run_id: self.run_id,
            error: self.restore_error.clone().or_else(|| self.error.clone()),
            checkpoint_fault: None,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}
