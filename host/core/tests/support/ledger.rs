//! What must hold at every committed prefix of a journal, whatever happened (S45, S54, S70, R71).

use super::{Sim, reread};
use harness_core::command::{CommandBody, DeliveryPhase};
use harness_core::event::{Event, EventBody};
use harness_core::ids::{CommandId, EventId, LoopId, TurnId};
use harness_core::session::{Kind, LoopState, MAX_NOTICES, Record, RequestStage, Session};
use harness_core::view::Status;
use std::collections::{BTreeMap, BTreeSet};

/// An auditor with books of its own.
pub(crate) struct Ledger {
    /// The session as a restart would find it now.
    shadow: Session,
    ids: BTreeSet<EventId>,
    /// Inputs, and what resolved them.
    inputs: BTreeMap<CommandId, Option<&'static str>>,
    /// Operations, and whether their outcome is written.
    operations: BTreeMap<CommandId, bool>,
    /// Turns, and whether they have ended.
    turns: BTreeMap<TurnId, bool>,
    /// Loops with an open turn.
    open: BTreeSet<LoopId>,
    /// Process notifications, and what answered them.
    notices: BTreeMap<CommandId, Option<&'static str>>,
    /// `Compact` commands, and whether they were answered.
    compacts: BTreeMap<CommandId, bool>,
    /// Delegate requests, and whether their end is written.
    requests: BTreeMap<CommandId, bool>,
    /// Delegate requests that were handed back.
    handed_back: BTreeSet<CommandId>,
}

impl Ledger {
    pub(crate) fn new(journal: &[Record]) -> Self {
        Self {
            shadow: super::restore_of(journal),
            ids: BTreeSet::new(),
            inputs: BTreeMap::new(),
            operations: BTreeMap::new(),
            turns: BTreeMap::new(),
            open: BTreeSet::new(),
            notices: BTreeMap::new(),
            compacts: BTreeMap::new(),
            requests: BTreeMap::new(),
            handed_back: BTreeSet::new(),
        }
    }

    /// Books one record, read back from its bytes.
    pub(crate) fn record(&mut self, record: &Record, seq: u64) {
        let read = reread(record);
        assert_eq!(read, *record, "a record decodes to itself");
        self.shadow.replay(&read, seq).unwrap();
        match record {
            Record::Command(command) => match &command.body {
                CommandBody::UserInput {
                    delegate_delivery_phase: Some(DeliveryPhase::FallbackQueued),
                    ..
                } => assert_eq!(
                    self.inputs.get(&command.id()),
                    Some(&None),
                    "the second record of a request comes while it waits (S65)"
                ),
                // A message to a delegate counts when it is accepted (S73).
                CommandBody::UserInput { .. } if command.header.cause.loop_id.is_some() => {}
                CommandBody::UserInput { .. } => {
                    self.inputs.insert(command.id(), None);
                }
                CommandBody::ProcessNotification { .. } => {
                    let earlier = self.notices.insert(command.id(), None);
                    assert_eq!(earlier, None, "an end is told once (S97)");
                }
                CommandBody::SubagentResult { .. } => {
                    self.inputs.insert(command.id(), None);
                    let request = command.header.cause.command_id.unwrap();
                    assert_eq!(self.requests.get(&request), Some(&true), "it has ended");
                    let first = self.handed_back.insert(request);
                    assert!(first, "{request} is handed back once (S96)");
                }
                CommandBody::Compact { .. } => {
                    self.compacts.insert(command.id(), false);
                }
                CommandBody::NativeOperation { .. } => {
                    self.operations.insert(command.id(), false);
                }
                _ => {}
            },
            Record::Event(event) => self.event(event),
        }
    }

    fn event(&mut self, event: &Event) {
        assert!(
            self.ids.insert(event.id),
            "event id {} is used twice",
            event.id
        );
        let name = event.body.meta().name;
        let cause = event.cause.command_id.unwrap_or_default();
        match &event.body {
            EventBody::TurnStarted { .. } => {
                let open = self.turns.insert(event.turn_id, false);
                assert_eq!(open, None, "turn {} starts once", event.turn_id);
                assert!(self.open.insert(event.loop_id), "one turn at a time");
                self.resolve(cause, name);
            }
            EventBody::TurnFoldedInto { .. }
            | EventBody::InputCancelled { .. }
            | EventBody::TurnRejected { .. } => self.resolve(cause, name),
            EventBody::TurnDone { .. }
            | EventBody::TurnFailed { .. }
            | EventBody::TurnInterrupted { .. } => {
                let earlier = self.turns.insert(event.turn_id, true);
                self.open.remove(&event.loop_id);
                assert_eq!(
                    earlier,
                    Some(false),
                    "turn {} ends once, after its start",
                    event.turn_id
                );
            }
            EventBody::DelegateRequestAccepted { .. } => {
                let earlier = self.requests.insert(cause, false);
                assert_eq!(earlier, None, "request {cause} is accepted once");
                self.inputs.insert(cause, None);
            }
            EventBody::DelegateDeliveryStateChanged { state, .. } if state.is_settled() => {
                let earlier = self.requests.insert(cause, true);
                assert_eq!(earlier, Some(false), "request {cause} settles once");
            }
            EventBody::CompactWaiterResolved {} | EventBody::CompactWaiterRejected { .. } => {
                let earlier = self.compacts.insert(cause, true);
                assert_eq!(earlier, Some(false), "a waiter is told once (S95)");
            }
            EventBody::NativeOperationResolved { .. } => {
                let earlier = self.operations.insert(cause, true);
                assert_eq!(
                    earlier,
                    Some(false),
                    "operation {cause} has one outcome (S54)"
                );
            }
            _ => {}
        }
    }

    fn resolve(&mut self, input: CommandId, how: &'static str) {
        let input_or_notice = match self.inputs.get_mut(&input) {
            Some(input) => Some(input),
            None => self.notices.get_mut(&input),
        };
        if let Some(resolution) = input_or_notice {
            assert_eq!(
                *resolution, None,
                "input {input} is resolved once (S45), again by {how}"
            );
            *resolution = Some(how);
        }
    }

    /// What the journal says an input became.
    pub(crate) fn resolution(&self, input: CommandId) -> Option<&'static str> {
        self.inputs.get(&input).copied().flatten()
    }

    /// What the journal says became of a process notification; `None` before it was said.
    pub(crate) fn notice(&self, id: CommandId) -> Option<Option<&'static str>> {
        self.notices.get(&id).copied()
    }

    /// Inputs without resolution.
    pub(crate) fn unresolved(&self) -> impl Iterator<Item = CommandId> {
        let open = self.inputs.iter().filter(|(_, how)| how.is_none());
        open.map(|(id, _)| *id)
    }

    /// I39, S70: a restart here would find exactly this.
    pub(crate) fn restored_equals_live(&self, session: &Session) {
        assert_eq!(
            self.shadow.state, session.state,
            "restored state differs from live state"
        );
        assert_eq!(
            self.shadow.history, session.history,
            "restored history differs"
        );
    }

    /// What holds once nothing more follows from an input.
    pub(crate) fn at_rest(&self, sim: &Sim) {
        let (state, live) = (&sim.session.state, &sim.session.live);
        for l in live.loops.values() {
            let turn = l.owner.as_ref().is_some_and(|o| o.turn.is_some());
            assert_eq!(l.slot, turn, "a slot is held iff a turn is live (R60)");
            assert!(!(l.slot && l.waits_for_slot), "who has a slot wants none");
        }
        let wishes = live.loops.iter().filter(|(_, l)| l.waits_for_slot);
        assert_eq!(
            wishes.map(|(id, _)| *id).collect::<BTreeSet<_>>(),
            sim.wants_slot,
            "the wish for a slot is known"
        );
        assert!(
            sim.free >= 0 || live.loops.values().any(|l| l.overdrawn && l.slot),
            "overdrawn by a live native turn only (N8)"
        );
        let works = live.owners().next().is_some();
        let workspace = &live.workspace;
        assert_eq!(workspace.inside, works, "who works is in the workspace");
        assert_eq!(
            workspace.held,
            workspace.job.is_some(),
            "who works on the workspace has it alone"
        );
        assert!(
            !(works && workspace.held),
            "nobody works in and on it (S98)"
        );
        assert!(
            workspace.job.is_some() || workspace.waiting.is_empty(),
            "a checkpoint waits for another one alone"
        );
        if live.faulted.is_some() {
            return;
        }
        let open = self
            .inputs
            .iter()
            .filter(|(_, how)| how.is_none())
            .map(|(id, _)| *id);
        let waiting = state
            .queued_inputs()
            .iter()
            .map(|q| q.command_id)
            .collect::<BTreeSet<_>>();
        assert_eq!(
            open.collect::<BTreeSet<_>>(),
            waiting,
            "what has no resolution waits (S45)"
        );
        let untold = self.notices.iter().filter(|(_, how)| how.is_none());
        let kept = state.loops.values().flat_map(|l| l.notices.keys().copied());
        assert_eq!(
            untold.map(|(id, _)| *id).collect::<BTreeSet<_>>(),
            kept.collect::<BTreeSet<_>>(),
            "what nothing answered waits to be delivered (S72)"
        );
        let mut gates = BTreeSet::new();
        for l in state.loops.values() {
            assert!(
                live.of(l.id).notices(l).count() <= MAX_NOTICES,
                "the set of notifications is bounded (S97)"
            );
            let owner = live.of(l.id).owner.as_ref();
            assert_eq!(
                l.turn.as_ref().map(|t| t.turn_id),
                owner.and_then(|o| o.turn),
                "one owner a turn"
            );
            let in_flight = owner.iter().flat_map(|o| o.invocations.values());
            let unresolved = in_flight
                .filter(|i| {
                    matches!(i.kind, Kind::Operation(_)) && (!i.started || i.ending_as.is_some())
                })
                .map(|i| i.command_id);
            let operations = l.operations.keys().copied().collect::<BTreeSet<_>>();
            assert_eq!(
                unresolved.collect::<BTreeSet<_>>(),
                operations,
                "an open operation is in flight"
            );
            gates.extend(l.gates.keys().copied());
            assert!(
                !l.running || owner.is_some(),
                "a loop at rest is idle (S43)"
            );
        }
        assert_eq!(
            live.gates.keys().copied().collect::<BTreeSet<_>>(),
            gates,
            "an open gate has a waiter (S87)"
        );
        let open: BTreeSet<_> = state.gates().iter().map(|g| g.gate_id).collect();
        assert!(
            live.claimed.is_subset(&open),
            "only an open gate is being claimed (S80)"
        );
        let works = live.owners().next().is_some();
        let ends = live.closing || live.shutdown.is_some() || state.stopped;
        let wakes = !ends && state.loops.values().any(LoopState::has_wake_token);
        assert_eq!(
            state.active,
            works || wakes,
            "who works is active, who rests is idle (S67)"
        );
        for l in state.loops.values() {
            for (id, request) in l.requests.iter().filter(|(_, r)| !r.is_intent()) {
                let open = !matches!(request.stage, RequestStage::Settled(_));
                assert_eq!(
                    self.requests.get(id),
                    Some(&!open),
                    "a request's end is written"
                );
                assert!(open || !request.owes_hand_back(), "and handed back");
            }
        }
        for wait in live.awaits.values() {
            let open = self.requests.get(&wait.request) == Some(&false);
            assert!(open, "who waits for a settled request is told");
        }
        self.status(sim);
    }

    fn status(&self, sim: &Sim) {
        let (state, live) = (&sim.session.state, &sim.session.live);
        let notices = state.loops.values().any(LoopState::has_notices);
        let unheld = notices || state.queued_inputs().iter().any(|q| !q.held);
        if state.stopped {
            assert_eq!(sim.session.status(), Status::Stopped);
            assert!(
                live.owners().next().is_none(),
                "nothing runs in a stopped session"
            );
            return;
        }
        // A compaction is no unit of work of the row (S108).
        let mut units = live.owners().filter(|o| !o.compacts());
        let expected = match (units.next(), live.gates.is_empty()) {
            (_, false) => Status::AwaitingInput,
            (Some(_), true) => Status::InProgress,
            (None, true) if unheld => Status::Queued,
            (None, true) => state.settled,
        };
        assert_eq!(
            sim.session.status(),
            expected,
            "status follows from what is live (S108)"
        );
    }
}
