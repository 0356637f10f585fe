//! A session driven by hand: what an actor does around [`Session::decide`], without its I/O.
//!
//! [`Sim::feed`] decides, "appends", commits, performs the effects that are bookkeeping and feeds
//! [`Input::Advance`] until it changes nothing, as the real actor does. After every commit the
//! [`Ledger`] checks what must hold at every journal prefix, whatever the test is about.

mod ledger;
mod script;
mod values;

pub(crate) use ledger::Ledger;
pub(crate) use values::*;

use harness_core::codec;
use harness_core::configuration::HarnessConfiguration;
use harness_core::event::{Event, EventBody};
use harness_core::gate::HostAnswer;
use harness_core::ids::{CommandId, EventId, GateId, HarnessId, Ids, LoopId, SessionId, TurnId};
use harness_core::provider::{
    ChannelError, DelegateResult, DelegationError, Features, HarnessInfo,
};
use harness_core::refusal::Refused;
use harness_core::session::{
    Answer, Cx, Decision, Effect, GateValue, Input, InvocationId, LinkId, LiveLoop, Record,
    Session, WorkspaceOffer,
};
use harness_core::view::OperationResult;
use harness_core::workspace::{CheckpointPolicy, WorkspaceRef};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// Ids that count, so that a failing test reads the same every time.
pub(crate) struct Counter {
    next: u128,
    /// No id can be made (S40).
    pub(crate) broken: bool,
}

impl Ids for Counter {
    fn mint(&mut self) -> Option<Uuid> {
        if self.broken {
            return None;
        }
        self.next += 1;
        Some(Uuid::from_u128(self.next))
    }
}

/// Result of an operation as its caller gets it.
pub(crate) type Resolved = Result<OperationResult, Box<Refused>>;

/// Result of a checkpoint or rewind as its caller gets it.
pub(crate) type Snapped = Result<WorkspaceRef, Box<Refused>>;

/// One session with its surroundings.
pub(crate) struct Sim {
    pub(crate) session: Session,
    pub(crate) journal: Vec<Record>,
    pub(crate) ledger: Ledger,
    pub(crate) ids: Counter,
    pub(crate) now: Timestamp,
    pub(crate) harness: Option<HarnessInfo>,
    /// What harnesses are now, for the configuration of the session.
    pub(crate) configurations: BTreeMap<HarnessId, HarnessConfiguration>,
    /// Slots of the pool nobody holds; negative while overdrawn (N8).
    pub(crate) free: i32,
    /// Loops that wish for one.
    pub(crate) wants_slot: BTreeSet<LoopId>,
    pub(crate) native_turns: bool,
    pub(crate) inbox: usize,
    /// Another session works in the workspace.
    pub(crate) others_work: bool,
    /// Another session has the workspace alone.
    pub(crate) others_hold: bool,
    pub(crate) policy: CheckpointPolicy,
    pub(crate) no_snapshots: Option<&'static str>,
    pub(crate) snapped: BTreeMap<CommandId, Snapped>,
    /// Background processes that may run at a time.
    pub(crate) processes: usize,
    /// The next append fails.
    pub(crate) disk_full: bool,
    /// Every effect so far, in order.
    pub(crate) effects: Vec<Effect>,
    pub(crate) results: BTreeMap<CommandId, Resolved>,
    pub(crate) gates: BTreeMap<GateId, GateValue>,
    /// What openers of host gates were told.
    pub(crate) host_gates: BTreeMap<GateId, HostAnswer>,
    pub(crate) announcements: BTreeMap<LinkId, Result<(), ChannelError>>,
    pub(crate) delegated: BTreeMap<LinkId, Result<Box<DelegateResult>, DelegationError>>,
    /// Commands that were handed to a provider, in any life of the host.
    sent: BTreeSet<CommandId>,
    /// Invocations whose `done` was called in this life.
    ended: BTreeSet<InvocationId>,
}

/// The loop a session begins with.
pub(crate) const LOOP: LoopId = LoopId(Uuid::from_u128(2));

pub(crate) const HARNESS: &str = "demo/planner";

pub(crate) fn harness(id: &str) -> HarnessInfo {
    use harness_core::provider::{
        LoopMode, ParamChoice, ParamControl, ParamSpec, ParamValue, TimeoutStrategy, WorkspaceNeed,
    };
    let choice = |value: &str| ParamChoice {
        value: value.into(),
        label: value.into(),
    };
    HarnessInfo {
        id: id.parse().unwrap(),
        label: "Planner".into(),
        version: "1".into(),
        models: Vec::new(),
        loop_modes: vec![LoopMode {
            name: "review".into(),
            label: "Review".into(),
        }],
        params: vec![ParamSpec {
            id: "mode".into(),
            label: "Mode".into(),
            description: None,
            control: ParamControl::Command,
            default: ParamValue::Text("work".into()),
            choices: vec![choice("work"), choice("plan")],
        }],
        workspace: WorkspaceNeed::None,
        timeout: TimeoutStrategy::Activity,
        features: Features {
            commands: true,
            native_turns: true,
            ..Features::default()
        },
    }
}

impl Sim {
    /// A new session with one loop and one free slot.
    pub(crate) fn new() -> Self {
        let session_id = SessionId(Uuid::from_u128(1));
        let loop_id = LOOP;
        let now: Timestamp = "2026-03-01T09:00:00Z".parse().unwrap();
        let event = |id, loop_id, body| Event {
            id: EventId(Uuid::from_u128(id)),
            session_id,
            loop_id,
            turn_id: TurnId::ZERO,
            at: now,
            cause: harness_core::command::Cause::default(),
            body,
        };
        let begin = event(
            3,
            LoopId::ZERO,
            EventBody::SessionStarted {
                project_id: "default".parse().unwrap(),
                title: "Test".into(),
                agent: HARNESS.parse().unwrap(),
                model: None,
                params: harness_core::provider::Params::new(),
                workspace_id: "main".parse().unwrap(),
                configuration: None,
            },
        );
        let looped = event(
            4,
            loop_id,
            EventBody::LoopStarted {
                harness_id: HARNESS.parse().unwrap(),
                parent_loop_id: None,
                model: None,
            },
        );
        let journal = vec![Record::Event(begin), Record::Event(looped)];
        let session = restore_of(&journal);
        Self {
            ledger: Ledger::new(&journal),
            session,
            journal,
            ids: Counter {
                next: 100,
                broken: false,
            },
            now,
            harness: Some(harness(HARNESS)),
            configurations: BTreeMap::new(),
            free: 1,
            wants_slot: BTreeSet::new(),
            native_turns: true,
            inbox: 64,
            others_work: false,
            others_hold: false,
            policy: CheckpointPolicy::Off,
            no_snapshots: None,
            snapped: BTreeMap::new(),
            processes: 4,
            disk_full: false,
            effects: Vec::new(),
            results: BTreeMap::new(),
            gates: BTreeMap::new(),
            host_gates: BTreeMap::new(),
            announcements: BTreeMap::new(),
            delegated: BTreeMap::new(),
            sent: BTreeSet::new(),
            ended: BTreeSet::new(),
        }
    }

    pub(crate) fn decide(&mut self, input: Input) -> Decision {
        self.now += SignedDuration::from_millis(1);
        let harness = self.harness.clone().map(Arc::new);
        let configurations = self.configurations.clone();
        self.session.decide(
            input,
            &mut Cx {
                now: self.now,
                ids: &mut self.ids,
                harness: &|_| harness.clone(),
                configuration: &|id| configurations.get(id).cloned(),
                slot_free: self.free > 0,
                native_turns: self.native_turns,
                inbox: self.inbox,
                workspace: WorkspaceOffer {
                    open: !self.others_hold,
                    alone: !self.others_hold && !self.others_work,
                    unsupported: self.no_snapshots,
                    policy: self.policy,
                },
                processes: self.processes,
            },
        )
    }

    /// Whether any loop waits for a slot.
    pub(crate) fn wishes(&self) -> bool {
        !self.wants_slot.is_empty()
    }

    /// What runs in the one loop it began with.
    pub(crate) fn live(&self) -> &LiveLoop {
        self.session.live.of(LOOP)
    }

    /// One input, and everything that goes on because of it.
    pub(crate) fn feed(&mut self, input: Input) -> Answer {
        let answer = self.step(input);
        for _ in 0..32 {
            let before = (self.journal.len(), self.effects.len());
            let live = self.session.live.clone();
            self.step(Input::Advance);
            // The source of a notification that found no room says it again (S97).
            if let Some(notice) = self.session.notice_to_retry() {
                self.step(Input::NotifyProcess(notice));
            }
            if before == (self.journal.len(), self.effects.len()) && live == self.session.live {
                self.ledger.at_rest(self);
                return answer;
            }
        }
        panic!("advance never comes to rest: {:?}", self.session.live);
    }

    fn step(&mut self, input: Input) -> Answer {
        let decision = self.decide(input);
        if self.disk_full && !decision.records.is_empty() {
            if decision.refusable {
                return Answer::Refused(Box::new(Refused::StoreUnavailable));
            }
            let fault = self.decide(Input::Fault("disk full".into()));
            assert!(fault.records.is_empty(), "a fault writes nothing (S62)");
            self.take_in(fault);
            return Answer::None;
        }
        let answer = decision.answer.clone();
        self.take_in(decision);
        answer
    }

    fn take_in(&mut self, decision: Decision) {
        let first = self.journal.len() as u64 + 1;
        let next = self
            .session
            .preview(&decision.records, first)
            .expect("what is decided fits the journal");
        self.session.commit(&decision.records, next, decision.live);
        for record in decision.records {
            self.ledger.record(&record, self.journal.len() as u64 + 1);
            self.journal.push(record);
        }
        self.ledger.restored_equals_live(&self.session);
        for effect in decision.effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match &effect {
            Effect::TakeSlot(id) => {
                assert!(self.free > 0, "no slot was offered");
                self.free -= 1;
                self.wants_slot.remove(id);
            }
            Effect::OverdrawSlot(id) => {
                assert!(self.free <= 0, "a free slot is taken, not overdrawn");
                self.free -= 1;
                self.wants_slot.remove(id);
            }
            Effect::WaitForSlot(id) => {
                assert!(self.wants_slot.insert(*id), "one wish is enough");
            }
            Effect::ReleaseSlot(id) if self.wants_slot.remove(id) => {}
            Effect::ReleaseSlot(_) => self.free += 1,
            Effect::Resolve { command_id, result } => {
                let earlier = self.results.insert(*command_id, result.clone());
                assert_eq!(earlier, None, "{command_id} is answered once (S54)");
            }
            Effect::AnswerGate { gate_id, value } => {
                let earlier = self.gates.insert(*gate_id, value.clone());
                assert_eq!(earlier, None, "{gate_id} is answered once (S82)");
            }
            Effect::AnswerHostGate { gate_id, answer } => {
                let earlier = self.host_gates.insert(*gate_id, answer.clone());
                assert_eq!(earlier, None, "{gate_id} is answered once (S88)");
            }
            Effect::AnswerAnnouncement { id, result } => {
                let earlier = self.announcements.insert(*id, result.clone());
                assert_eq!(earlier, None, "announcement {id} is answered once");
            }
            Effect::AnswerAwait { id, result } => {
                let earlier = self.delegated.insert(*id, result.clone());
                assert_eq!(earlier, None, "wait {id} is answered once");
            }
            Effect::AnswerWorkspace { command_id, result } => {
                let earlier = self.snapped.insert(*command_id, result.clone());
                assert_eq!(earlier, None, "{command_id} is answered once");
            }
            Effect::StartPrompt { input, .. } => self.send(input.command_id),
            Effect::Compact { command_id, .. }
            | Effect::Invoke { command_id, .. }
            | Effect::Adopt { command_id, .. } => {
                self.send(*command_id);
            }
            Effect::CallDone(invocation) => {
                assert!(self.ended.insert(*invocation), "done is called once (R28)");
            }
            _ => {}
        }
        self.effects.push(effect);
    }

    fn send(&mut self, command: CommandId) {
        assert!(
            self.sent.insert(command),
            "{command} is sent once, ever (S54)"
        );
    }

    /// The host dies here and starts again: memory is gone, the journal is read back and repaired.
    pub(crate) fn crash(&mut self) {
        let slots = self.session.live.loops.values().filter(|l| l.slot).count();
        self.free += i32::try_from(slots).unwrap();
        self.wants_slot.clear();
        self.disk_full = false;
        self.ended.clear();
        self.session = restore_of(&self.journal);
        self.feed(Input::Restore {
            lost: Vec::new(),
            now: None,
        });
    }

    /// Another session gives its slot back.
    pub(crate) fn slot_comes_free(&mut self) {
        self.free += 1;
        self.feed(Input::Advance);
    }
}

/// The session that a journal's bytes tell of.
pub(crate) fn restore_of(journal: &[Record]) -> Session {
    let mut records = journal.iter().map(reread).zip(1..);
    let Some((Record::Event(begin), seq)) = records.next() else {
        panic!("a journal begins with an event");
    };
    let mut session = Session::begin(&begin, seq).unwrap();
    for (record, seq) in records {
        session.replay(&record, seq).unwrap();
    }
    session
}

/// A record as it is read back from its bytes.
pub(crate) fn reread(record: &Record) -> Record {
    let bytes = record.encode().unwrap().bytes;
    match record {
        Record::Command(_) => Record::Command(codec::decode_command(&bytes).unwrap()),
        Record::Event(_) => Record::Event(codec::decode_event(&bytes).unwrap()),
    }
}

impl Sim {
    /// Puts another journal in the place of this one's, as a crash at its end would leave it.
    pub(crate) fn replace_journal(&mut self, journal: &[Record]) {
        self.journal = journal[..2].to_vec();
        self.ledger = Ledger::new(&self.journal);
        for record in &journal[2..] {
            self.ledger.record(record, self.journal.len() as u64 + 1);
            self.journal.push(record.clone());
        }
        self.ids.next = 1_000_000;
    }
}
