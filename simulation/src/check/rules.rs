//! What a journal may say, record after record, in a model of its own.

use super::Found;
use super::requests::Requests;
use harness_core::command::{Agency, Command, CommandBody, DeliveryPhase};
use harness_core::content::Part;
use harness_core::event::{Event, EventBody};
use harness_core::ids::{CommandId, GateId, LoopId, TurnId};
use harness_core::session::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Where an input stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Queued,
    Held,
    Resolved,
}

struct InputOf {
    loop_id: LoopId,
    order: usize,
    fold_only: bool,
    /// A restore leaves it in the queue: a machine's, delivered again (S72).
    redeliver: bool,
    stands: Stands,
}

#[derive(Default)]
struct LoopOf {
    running: bool,
    turn: Option<TurnId>,
}

/// The model of one session.
#[derive(Default)]
pub(super) struct Rules {
    loops: BTreeMap<LoopId, LoopOf>,
    active_loop: LoopId,
    active: bool,
    stopped: bool,
    restoring: bool,
    commands: BTreeSet<CommandId>,
    inputs: BTreeMap<CommandId, InputOf>,
    /// Operations; true once their outcome is recorded.
    operations: BTreeMap<CommandId, bool>,
    /// Commands that opened a turn or were folded into one.
    turns_of: BTreeSet<CommandId>,
    /// Open gates with their turn; closed ones without.
    gates: BTreeMap<GateId, Option<TurnId>>,
    closed_gates: BTreeSet<GateId>,
    compactions: BTreeMap<CommandId, bool>,
    requests: Requests,
    texts: BTreeSet<String>,
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Found {
    if holds { Ok(()) } else { Err(what()) }
}

impl Rules {
    pub(super) fn has_command(&self, id: CommandId) -> bool {
        self.commands.contains(&id)
    }

    pub(super) fn has_turn_of(&self, id: CommandId) -> bool {
        self.turns_of.contains(&id)
    }

    pub(super) fn has_text(&self, text: &str) -> bool {
        self.texts.contains(text)
    }

    pub(super) fn is_closed(&self, id: GateId) -> bool {
        self.closed_gates.contains(&id)
    }

    pub(super) fn open_inputs(&self) -> Vec<CommandId> {
        let open = self
            .inputs
            .iter()
            .filter(|(_, i)| i.stands != Stands::Resolved);
        open.map(|(id, _)| *id).collect()
    }

    pub(super) fn loops(&self) -> Vec<LoopId> {
        self.loops.keys().copied().collect()
    }

    pub(super) fn take_in(&mut self, record: &Record) -> Found {
        match record {
            Record::Command(command) => self.command(command),
            Record::Event(event) => self.event(event),
        }
    }

    fn command(&mut self, command: &Command) -> Found {
        let id = command.id();
        check(!self.stopped, || {
            "a command after SessionStopped (S94)".into()
        })?;
        let phase = match &command.body {
            CommandBody::UserInput {
                delegate_delivery_phase,
                ..
            } => *delegate_delivery_phase,
            _ => None,
        };
        if phase == Some(DeliveryPhase::FallbackQueued) {
            // The second record of a request (S65).
            return check(self.commands.contains(&id), || {
                format!("{id} falls back to nothing")
            });
        }
        check(self.commands.insert(id), || format!("{id} twice"))?;
        match &command.body {
            CommandBody::UserInput {
                fold_only,
                target_loop_id,
                background_hand_back,
                ..
            } => {
                check(!target_loop_id.is_zero(), || {
                    "an input without loop (S1)".into()
                })?;
                self.queue(id, *target_loop_id, *fold_only, phase.is_some());
                if command.header.agency == Agency::Machine {
                    self.requests.sent(id, *background_hand_back);
                }
            }
            CommandBody::SubagentResult { loop_id, .. } => {
                self.queue(id, *loop_id, false, true);
                self.requests.handed_back(command.header.cause.command_id)?;
            }
            CommandBody::CancelDelegateRequest {
                target_command_id, ..
            } => self.requests.withdrawn(*target_command_id)?,
            CommandBody::NativeOperation { .. } => {
                self.operations.insert(id, false);
            }
            CommandBody::Compact { .. } => {
                self.compactions.insert(id, false);
            }
            _ => {}
        }
        Ok(())
    }

    fn queue(&mut self, id: CommandId, loop_id: LoopId, fold_only: bool, redeliver: bool) {
        let input = InputOf {
            loop_id,
            order: self.inputs.len(),
            fold_only,
            redeliver,
            stands: Stands::Queued,
        };
        self.inputs.insert(id, input);
    }

    fn event(&mut self, event: &Event) -> Found {
        let body = &event.body;
        let wakes = matches!(
            body,
            EventBody::RestoreStarted {} | EventBody::RestoreErrored { .. }
        );
        check(!self.stopped || wakes, || {
            format!("{} after SessionStopped (S94)", body.meta().name)
        })?;
        let cause = event.cause.command_id;
        match body {
            EventBody::LoopStarted { .. } => {
                let fresh = self
                    .loops
                    .insert(event.loop_id, LoopOf::default())
                    .is_none();
                check(fresh, || format!("loop {} began twice", event.loop_id))?;
                if self.active_loop.is_zero() {
                    self.active_loop = event.loop_id;
                }
            }
            EventBody::ActiveLoopChanged {
                active_loop_id,
                previous_loop_id,
            } => {
                check(self.loops.contains_key(active_loop_id), || {
                    "an unknown loop is active".into()
                })?;
                check(*previous_loop_id == self.active_loop, || {
                    "another loop was active (S35)".into()
                })?;
                self.active_loop = *active_loop_id;
            }
            EventBody::SessionActive {} => {
                check(!self.active, || "SessionActive twice (S67)".into())?;
                self.active = true;
            }
            EventBody::SessionIdle {} => self.session_idle()?,
            EventBody::LoopIdle {} => {
                let of = self.of(event.loop_id)?;
                check(of.running && of.turn.is_none(), || {
                    "LoopIdle without an edge (S43)".into()
                })?;
                of.running = false;
            }
            EventBody::SessionStopped {} => self.stop()?,
            EventBody::RestoreStarted {} => {
                check(!self.restoring, || "RestoreStarted twice".into())?;
                (self.stopped, self.restoring) = (false, true);
            }
            EventBody::RestoreDone {} => self.restored()?,
            EventBody::TurnStarted { message, .. } => {
                let cause = cause.ok_or("a turn without cause (S50)")?;
                self.turn_started(event, cause, message.is_some())?;
            }
            EventBody::TurnFoldedInto { .. } => {
                let cause = cause.ok_or("a fold without cause (S50)")?;
                let turn = self.of(event.loop_id)?.turn;
                check(turn == Some(event.turn_id), || {
                    "a fold into no open turn (S42)".into()
                })?;
                self.start(cause, true)?;
                self.turns_of.insert(cause);
            }
            EventBody::TurnDone { .. }
            | EventBody::TurnFailed { .. }
            | EventBody::TurnInterrupted { .. } => self.turn_ended(event)?,
            EventBody::StepDone { messages, .. } => {
                let turn = self.of(event.loop_id)?.turn;
                let in_turn = event.turn_id.is_zero() || turn == Some(event.turn_id);
                check(in_turn, || "a step group of no open turn (S48)".into())?;
                let parts = messages.iter().flat_map(|m| &m.parts);
                self.texts.extend(parts.filter_map(|p| match p {
                    Part::Text { text } => Some(text.clone()),
                    _ => None,
                }));
            }
            EventBody::InputCancelled { .. } | EventBody::TurnRejected { .. } => {
                let cause = cause.ok_or("a resolution without cause (S50)")?;
                self.input(cause)?.stands = Stands::Resolved;
            }
            EventBody::InputHeld {} => {
                let input = self.input(cause.ok_or("a hold without cause")?)?;
                check(input.stands == Stands::Queued, || "held twice (S52)".into())?;
                input.stands = Stands::Held;
            }
            EventBody::InputReleased {} => {
                let input = self.input(cause.ok_or("a release without cause")?)?;
                check(input.stands == Stands::Held, || {
                    "released and not held (S52)".into()
                })?;
                input.stands = Stands::Queued;
            }
            EventBody::NativeOperationResolved { .. } => {
                let cause = cause.ok_or("an outcome without cause (S50)")?;
                let open = self.operations.get_mut(&cause);
                let open =
                    open.ok_or_else(|| format!("the outcome of an unknown operation {cause}"))?;
                check(!*open, || format!("a second outcome of {cause} (S54)"))?;
                *open = true;
            }
            EventBody::CompactWaiterResolved {} | EventBody::CompactWaiterRejected { .. } => {
                let cause = cause.ok_or("a reply without cause (S50)")?;
                let open = self.compactions.get_mut(&cause);
                let open = open.ok_or("the reply to an unknown compaction")?;
                check(!*open, || format!("a second reply to {cause} (S95)"))?;
                *open = true;
            }
            EventBody::DelegateRequestAccepted { .. } => {
                self.requests
                    .accepted(cause.ok_or("an acceptance without cause")?)?;
            }
            EventBody::DelegateDeliveryStateChanged { state, .. } if state.is_settled() => {
                self.requests
                    .settled_as(cause.ok_or("an end without cause")?)?;
            }
            EventBody::GateOpened { gate } => {
                let known = self.gates.contains_key(&gate.gate_id);
                let closed = self.closed_gates.contains(&gate.gate_id);
                check(!known && !closed, || "a gate opened twice (S80)".into())?;
                self.gates.insert(gate.gate_id, gate.turn_id);
            }
            EventBody::GateResolved { gate_id, .. } => {
                let open = self.gates.remove(gate_id).is_some();
                check(open, || format!("gate {gate_id} closed and not open (S82)"))?;
                self.closed_gates.insert(*gate_id);
            }
            _ => {}
        }
        Ok(())
    }

    fn of(&mut self, id: LoopId) -> Result<&mut LoopOf, String> {
        // Turnless steps of the active loop may name none.
        let id = if id.is_zero() { self.active_loop } else { id };
        self.loops
            .get_mut(&id)
            .ok_or_else(|| format!("unknown loop {id}"))
    }

    /// An input that has no resolution yet.
    fn input(&mut self, id: CommandId) -> Result<&mut InputOf, String> {
        let input = self.inputs.get_mut(&id);
        let input = input.ok_or_else(|| format!("unknown input {id}"))?;
        check(input.stands != Stands::Resolved, || {
            format!("a second resolution of {id} (S45)")
        })?;
        Ok(input)
    }

    /// An input leaves its inbox for a turn: it is not held, and nothing that may go waits before
    /// it (S40, S42, S52).
    fn start(&mut self, id: CommandId, folds: bool) -> Found {
        let input = self.input(id)?;
        check(input.stands == Stands::Queued, || {
            format!("{id} is held and starts (S52)")
        })?;
        let (loop_id, order) = (input.loop_id, input.order);
        input.stands = Stands::Resolved;
        let before = |i: &&InputOf| {
            let waits = i.stands == Stands::Queued && (folds || !i.fold_only);
            i.loop_id == loop_id && i.order < order && waits
        };
        check(!self.inputs.values().any(|i| before(&i)), || {
            format!("{id} overtook another (S40)")
        })
    }

    fn turn_started(&mut self, event: &Event, cause: CommandId, prompt: bool) -> Found {
        check(self.active, || {
            "a turn in a session that is idle (S67)".into()
        })?;
        check(!self.restoring, || "a turn within a restore".into())?;
        check(self.commands.contains(&cause), || {
            "a turn without intent (S48)".into()
        })?;
        check(self.turns_of.insert(cause), || {
            format!("a second turn of {cause}")
        })?;
        if prompt {
            self.start(cause, false)?;
        }
        let of = self.of(event.loop_id)?;
        check(of.turn.is_none(), || "two turns at once".into())?;
        of.turn = Some(event.turn_id);
        of.running = true;
        Ok(())
    }

    fn turn_ended(&mut self, event: &Event) -> Found {
        let of = self.of(event.loop_id)?;
        check(of.turn == Some(event.turn_id), || {
            "the end of no open turn (S75)".into()
        })?;
        of.turn = None;
        let open = self.gates.values().any(|turn| *turn == Some(event.turn_id));
        check(!open, || "a turn ended with a gate open (S85)".into())
    }

    fn session_idle(&mut self) -> Found {
        check(self.active, || "SessionIdle twice (S67)".into())?;
        let running = self.loops.values().any(|l| l.running || l.turn.is_some());
        check(!running, || "SessionIdle while a loop runs (S67)".into())?;
        self.active = false;
        Ok(())
    }

    fn stop(&mut self) -> Found {
        check(!self.active && !self.restoring, || {
            "SessionStopped while it works (S94)".into()
        })?;
        self.settled()?;
        self.stopped = true;
        Ok(())
    }

    fn restored(&mut self) -> Found {
        check(self.restoring, || {
            "RestoreDone without RestoreStarted".into()
        })?;
        self.restoring = false;
        let queued = |i: &&InputOf| i.stands == Stands::Queued && !i.redeliver;
        let queued = self.inputs.values().find(queued);
        check(queued.is_none(), || {
            "an input is not held after a restore (S52)".into()
        })?;
        check(!self.active, || "active after a restore".into())?;
        self.closed()
    }

    /// Nothing is open but inputs.
    fn closed(&self) -> Found {
        let turn = self.loops.values().any(|l| l.turn.is_some() || l.running);
        check(!turn, || "a turn is open".into())?;
        check(self.gates.is_empty(), || "a gate is open (S87)".into())?;
        check(self.operations.values().all(|done| *done), || {
            "an operation has no outcome (S54)".into()
        })?;
        check(self.compactions.values().all(|done| *done), || {
            "a compaction has no reply (S95)".into()
        })
    }

    /// Nothing is open.
    pub(super) fn settled(&self) -> Found {
        self.closed()?;
        let open = self.open_inputs();
        check(open.is_empty(), || {
            format!("inputs without resolution (S45): {open:?}")
        })?;
        self.requests.settled()?;
        check(!self.active, || "the session is active".into())
    }
}
