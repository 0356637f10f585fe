//! The one place where durable state changes: folding a record into [`State`] (S70).

use super::Record;
use super::delegates::Sent;
use super::process;
use super::state::{LoopState, MAX_UNCERTAIN, OpenOperation, OpenTurn, State, Waiting};
use crate::command::{Agency, Command, CommandBody};
use crate::content::parts_of;
use crate::event::{Event, EventBody, Failure, InterruptReason, Runtime};
use crate::ids::{CommandId, LoopId, Seq};
use crate::provider::InputOrigin;
use crate::view::{OutcomeStatus, RowError, Status, UncertainOperation};
use std::collections::VecDeque;
use std::sync::Arc;

/// A record that contradicts those before it (S75).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {seq} contradicts the journal: {what}")]
pub struct Contradiction {
    /// Its sequence.
    pub seq: Seq,
    /// How.
    pub what: String,
}

impl State {
    /// The state that a session's first event makes.
    ///
    /// # Errors
    /// Any event but `SessionStarted`.
    pub fn begin(event: &Event, seq: Seq) -> Result<Self, Contradiction> {
        let EventBody::SessionStarted {
            project_id,
            title,
            agent,
            model,
            params,
            workspace_id,
            configuration,
        } = &event.body
        else {
            return Err(Contradiction {
                seq,
                what: "a journal begins with SessionStarted".into(),
            });
        };
        Ok(Self {
            id: event.session_id,
            project_id: project_id.clone(),
            title: title.clone(),
            agent: agent.clone(),
            model: model.clone(),
            params: params.clone(),
            workspace_id: workspace_id.clone(),
            created_at: event.at,
            updated_at: event.at,
            active_loop: LoopId::ZERO,
            loops: indexmap::IndexMap::new(),
            host_gates: indexmap::IndexMap::new(),
            settled: Status::Completed,
            stopped: false,
            error: None,
            restore_error: None,
            run_id: None,
            active: false,
            owes_checkpoint: false,
            config_epoch: 0,
            configuration: configuration.clone(),
            settings_epoch: 0,
            accepted_operations: 0,
            last_seq: seq,
            uncertain: VecDeque::new(),
            notified: Arc::default(),
        })
    }

    /// Folds one record.
    ///
    /// # Errors
    /// A record that contradicts those before it.
    pub fn apply(&mut self, record: &Record, seq: Seq) -> Result<(), Contradiction> {
        match record {
            Record::Command(command) => self.apply_command(command, seq)?,
            Record::Event(event) => self.apply_event(event, seq)?,
        }
        self.last_seq = seq;
        Ok(())
    }

    pub(super) fn loop_mut(
        &mut self,
        id: LoopId,
        seq: Seq,
    ) -> Result<&mut LoopState, Contradiction> {
        let id = if id.is_zero() { self.active_loop } else { id };
        self.loops.get_mut(&id).ok_or_else(|| Contradiction {
            seq,
            what: format!("loop {id} does not exist"),
        })
    }

    fn primary_mut(&mut self, seq: Seq) -> Result<&mut LoopState, Contradiction> {
        let primary = self.loops.values_mut().next();
        primary.ok_or_else(|| Contradiction {
            seq,
            what: "the session has no loop yet".into(),
        })
    }

    /// A stop disarms what it was meant for, what a person begins arms it again (N12): the loop and
    /// its delegates, never a sibling.
    fn arm(&mut self, loop_id: LoopId, armed: bool) {
        let root = if loop_id.is_zero() {
            self.active_loop
        } else {
            loop_id
        };
        let changes = |l: &LoopState| l.disarmed == armed;
        if !self.loops.values().any(changes) {
            return;
        }
        let tree = self.subtree(root);
        let of_it = self.loops.values_mut().filter(|l| tree.contains(&l.id));
        of_it.for_each(|l| l.disarmed = !armed);
    }

    fn answer_waiter(
        &mut self,
        loop_id: LoopId,
        waiter: CommandId,
        resolved: bool,
        seq: Seq,
    ) -> Result<(), Contradiction> {
        let waiters = &mut self.loop_mut(loop_id, seq)?.compact_waiters;
        match waiters.shift_remove(&waiter) {
            Some(committed) if committed == resolved => Ok(()),
            _ => Err(Contradiction {
                seq,
                what: format!("compaction waiter {waiter} does not match its compaction"),
            }),
        }
    }

    fn apply_command(&mut self, command: &Command, seq: Seq) -> Result<(), Contradiction> {
        let header = &command.header;
        self.updated_at = header.created_at;
        match &command.body {
            CommandBody::UserInput {
                blocks,
                no_fold,
                fold_only,
                target_loop_id,
                background_hand_back,
                delegate_delivery_phase,
            } => {
                let waiting = Waiting {
                    command_id: header.command_id,
                    agency: header.agency,
                    blocks: blocks.as_slice().into(),
                    no_fold: *no_fold,
                    fold_only: *fold_only,
                    held: false,
                    created_at: header.created_at,
                    origin: InputOrigin::User,
                    from: None,
                    redeliver: false,
                };
                let sent = Sent {
                    background: *background_hand_back,
                    phase: *delegate_delivery_phase,
                };
                match header.cause.loop_id.filter(|_| header.agency.is_machine()) {
                    Some(parent) => {
                        self.apply_request(*target_loop_id, parent, waiting, sent, seq)?;
                    }
                    None => self
                        .loop_mut(*target_loop_id, seq)?
                        .inbox
                        .push_back(waiting),
                }
            }
            CommandBody::NativeOperation {
                loop_id,
                operation,
                execution,
                ..
            } => {
                if !header.agency.is_machine() {
                    self.arm(*loop_id, true);
                }
                let open = OpenOperation {
                    operation: operation.clone(),
                    execution: *execution,
                };
                self.loop_mut(*loop_id, seq)?
                    .operations
                    .insert(header.command_id, open);
            }
            CommandBody::NativeTurn {
                loop_id,
                native_turn_id,
                ..
            } => {
                let known = &mut self.loop_mut(*loop_id, seq)?.native_turns;
                Arc::make_mut(known).insert(native_turn_id.clone(), false);
            }
            CommandBody::Compact { loop_id, .. } => {
                let waiters = &mut self.loop_mut(*loop_id, seq)?.compact_waiters;
                waiters.insert(header.command_id, false);
            }
            // A loop that stops its own delegate disarms nothing.
            CommandBody::Interrupt {} if header.agency.is_machine() => {}
            CommandBody::Interrupt {} => match header.cause.loop_id {
                Some(loop_id) => self.arm(loop_id, false),
                None => self.loops.values_mut().for_each(|l| l.disarmed = true),
            },
            CommandBody::SubagentResult {
                loop_id, blocks, ..
            } => self.apply_hand_back(header, *loop_id, blocks, seq)?,
            CommandBody::CancelDelegateRequest {
                loop_id,
                target_command_id,
                ..
            } => self.apply_withdrawn(*loop_id, *target_command_id, seq)?,
            CommandBody::ProcessNotification { notification } => {
                let notices = &mut self.loop_mut(notification.loop_id, seq)?.notices;
                notices.insert(header.command_id, notification.clone());
                let digest = process::digest(notification);
                Arc::make_mut(&mut self.notified).insert(header.command_id, digest);
            }
            // Their consequences are events of their own (S19).
            CommandBody::CancelQueuedInput { .. }
            | CommandBody::ApproveToolCall { .. }
            | CommandBody::DenyToolCall { .. }
            | CommandBody::ProvideUserInput { .. }
            | CommandBody::Shutdown {}
            | CommandBody::ReleaseHeldInput { .. } => {}
        }
        Ok(())
    }

    fn apply_event(&mut self, event: &Event, seq: Seq) -> Result<(), Contradiction> {
        let wrong = |what: &str| {
            Err(Contradiction {
                seq,
                what: what.into(),
            })
        };
        self.updated_at = event.at;
        let cause = event.cause.command_id.unwrap_or_default();
        // A notification that any durable event answers is not brought back (S72).
        if let Some(l) = self.loops.get_mut(&event.loop_id) {
            l.notices.shift_remove(&cause);
        }
        match &event.body {
            EventBody::SessionStarted { .. } => return wrong("a second SessionStarted"),
            EventBody::SessionActive {} => self.active = true,
            EventBody::SessionIdle {} => {
                self.active = false;
                self.owes_checkpoint = true;
            }
            EventBody::WorkspaceCheckpointed { .. } | EventBody::WorkspaceRestored { .. } => {
                self.owes_checkpoint = false;
            }
            EventBody::SessionStopped {} => self.stopped = true,
            EventBody::RestoreDone {} => {
                self.stopped = false;
                self.restore_error = None;
                self.forget_intents();
            }
            EventBody::RestoreStarted {} => {}
            EventBody::RestoreErrored { error } => self.restore_error = Some(row_error(error)),
            EventBody::ConfigurationAdopted {
                epoch,
                configuration,
                ..
            } => {
                self.config_epoch = *epoch;
                if configuration.is_some() {
                    self.configuration.clone_from(configuration);
                }
            }
            EventBody::SessionParamsChanged {
                title,
                model,
                params,
                agent,
            } => {
                // A title is no input of a preparation (R79).
                if model.is_some() || params.is_some() || agent.is_some() {
                    self.settings_epoch += 1;
                }
                if let Some(title) = title {
                    self.title.clone_from(title);
                }
                if let Some(model) = model {
                    // The last write wins (S71), and another model does not take the old effort.
                    self.primary_mut(seq)?.inference = Runtime::default();
                    self.model = Some(model.clone()).filter(|m| !m.is_empty());
                }
                if let Some(params) = params {
                    self.params.clone_from(params);
                }
                if let Some(agent) = agent {
                    self.agent.clone_from(agent);
                    let primary = self.primary_mut(seq)?;
                    primary.harness.clone_from(agent);
                    primary.native_session_id = None;
                    primary.native_turns = Arc::default();
                    // Another harness does not know the old one's modes and models.
                    primary.mode.clear();
                    primary.inference = Runtime::default();
                }
            }
            EventBody::LoopStarted {
                harness_id,
                parent_loop_id,
                model,
            } => {
                let (id, harness) = (event.loop_id, harness_id.clone());
                let started = LoopState::new(id, *parent_loop_id, harness, model.clone());
                self.loops.insert(event.loop_id, started);
                if self.active_loop.is_zero() {
                    self.active_loop = event.loop_id;
                }
            }
            EventBody::ActiveLoopChanged { active_loop_id, .. } => {
                self.loop_mut(*active_loop_id, seq)?;
                self.active_loop = *active_loop_id;
                self.settings_epoch += 1;
            }
            EventBody::LoopModeChanged { mode, .. } => {
                let loop_state = self.loop_mut(event.loop_id, seq)?;
                loop_state.mode.clone_from(mode);
                loop_state.inference = Runtime::default();
                self.settings_epoch += 1;
            }
            EventBody::LoopInferenceChanged { runtime } => {
                self.loop_mut(event.loop_id, seq)?
                    .inference
                    .clone_from(runtime);
                self.settings_epoch += 1;
            }
            EventBody::CompactionCommitted { .. } => {
                let waiters = &mut self.loop_mut(event.loop_id, seq)?.compact_waiters;
                if waiters.is_empty() || waiters.values().any(|committed| *committed) {
                    return wrong("a compaction ends that nobody asked for");
                }
                waiters.values_mut().for_each(|committed| *committed = true);
            }
            EventBody::CompactionRejected { .. } => {
                let waiters = &self.loop_mut(event.loop_id, seq)?.compact_waiters;
                if waiters.is_empty() || waiters.values().any(|committed| *committed) {
                    return wrong("a compaction ends that nobody asked for");
                }
            }
            EventBody::CompactWaiterResolved {} => {
                self.answer_waiter(event.loop_id, cause, true, seq)?;
            }
            EventBody::CompactWaiterRejected { .. } => {
                self.answer_waiter(event.loop_id, cause, false, seq)?;
            }
            EventBody::DelegateRequestAccepted {
                parent_loop_id,
                background_hand_back,
            } => self.apply_accepted(event, *parent_loop_id, *background_hand_back, seq)?,
            EventBody::DelegateDeliveryStateChanged { state, error } => {
                self.apply_delivery(event, *state, error.clone(), seq)?;
            }
            EventBody::LoopTombstoned { .. } => {
                let loop_state = self.loop_mut(event.loop_id, seq)?;
                if loop_state.is_open() || !loop_state.inbox.is_empty() {
                    return wrong("a loop is closed with work in it");
                }
                loop_state.closed = true;
            }
            EventBody::LoopIdle {} => self.loop_mut(event.loop_id, seq)?.running = false,
            EventBody::NativeSessionBound { native_session_id } => {
                self.loop_mut(event.loop_id, seq)?.native_session_id =
                    Some(native_session_id.clone());
            }
            EventBody::ProcessStarted { .. }
            | EventBody::ProcessFinished { .. }
            | EventBody::ProcessLost { .. } => {
                let processes = &mut self.loop_mut(event.loop_id, seq)?.processes;
                if let Err(what) = process::apply(processes, event) {
                    return wrong(what);
                }
            }
            EventBody::TurnStarted { run_id, native, .. } => {
                self.run_id = Some(*run_id);
                self.error = None;
                if event.cause.agency == Some(Agency::User) {
                    self.arm(event.loop_id, true);
                }
                let loop_state = self.loop_mut(event.loop_id, seq)?;
                if loop_state.turn.is_some() {
                    return wrong("a turn starts inside another");
                }
                take_input(loop_state, cause);
                loop_state.open_request(cause, event.turn_id);
                if let Some(native) = native {
                    Arc::make_mut(&mut loop_state.native_turns)
                        .insert(native.native_turn_id.clone(), true);
                }
                loop_state.turns += 1;
                loop_state.running = true;
                loop_state.turn = Some(OpenTurn {
                    turn_id: event.turn_id,
                    run_id: *run_id,
                    cause,
                    native: native.clone(),
                });
            }
            EventBody::StepDone { .. } => {
                let loop_state = self.loop_mut(event.loop_id, seq)?;
                let fits = if event.turn_id.is_zero() {
                    // An idle control's group names it; a message outside any turn names nothing.
                    event.cause.command_id.is_none()
                        || loop_state.is_open_control(cause)
                        || loop_state.compact_waiters.contains_key(&cause)
                } else {
                    loop_state.is_in_turn(event.turn_id)
                };
                if !fits {
                    return wrong("a step group outside its turn and of no control operation");
                }
            }
            EventBody::TurnFoldedInto { .. } => {
                let loop_state = self.loop_mut(event.loop_id, seq)?;
                if !loop_state.is_in_turn(event.turn_id) {
                    return wrong("an input folds into a turn that is not open");
                }
                take_input(loop_state, cause);
                loop_state.open_request(cause, event.turn_id);
            }
            EventBody::InputCancelled { reason } => {
                let loop_state = self.loop_mut(event.loop_id, seq)?;
                take_input(loop_state, cause);
                loop_state.end_queued_request(cause, Some(*reason));
            }
            EventBody::TurnRejected { .. } => {
                let loop_state = self.loop_mut(event.loop_id, seq)?;
                take_input(loop_state, cause);
                loop_state.end_queued_request(cause, None);
            }
            EventBody::InputHeld {} => self.hold(event.loop_id, cause, true, seq)?,
            EventBody::InputReleased {} => self.hold(event.loop_id, cause, false, seq)?,
            EventBody::TurnDone { .. } => {
                self.close_turn(event, seq)?;
                self.settled = Status::Completed;
            }
            EventBody::TurnFailed { error, .. } => {
                self.close_turn(event, seq)?;
                self.settled = if error.code == "disconnected" {
                    Status::Disconnected
                } else {
                    Status::Failed
                };
                self.error = Some(row_error(error));
            }
            EventBody::TurnInterrupted { reason, .. } => {
                self.close_turn(event, seq)?;
                self.settled = match reason {
                    InterruptReason::HostLost => Status::Disconnected,
                    _ => Status::Cancelled,
                };
            }
            EventBody::NativeOperationResolved { .. } => self.apply_resolved(event, cause, seq)?,
            EventBody::GateOpened { gate } if gate.ask.is_hosts() => {
                self.host_gates.insert(gate.gate_id, gate.clone());
            }
            EventBody::GateOpened { gate } => {
                self.loop_mut(event.loop_id, seq)?
                    .gates
                    .insert(gate.gate_id, gate.clone());
            }
            EventBody::GateResolved { gate_id, .. } => {
                if self.host_gates.shift_remove(gate_id).is_none() {
                    let gates = &mut self.loop_mut(event.loop_id, seq)?.gates;
                    gates.shift_remove(gate_id);
                }
            }
            EventBody::GatePrepared { .. }
            | EventBody::PermissionRequested { .. }
            | EventBody::UserInputRequested { .. }
            | EventBody::PermissionDecided { .. } => {}
            EventBody::TokenDelta { .. }
            | EventBody::ToolStarted { .. }
            | EventBody::ToolCompleted { .. }
            | EventBody::InputQueued {}
            | EventBody::CompactionStarted {}
            | EventBody::CommandStateChanged { .. } => {
                return wrong("an ephemeral event in the journal");
            }
        }
        Ok(())
    }

    fn apply_resolved(
        &mut self,
        event: &Event,
        cause: CommandId,
        seq: Seq,
    ) -> Result<(), Contradiction> {
        let EventBody::NativeOperationResolved {
            outcome,
            reason,
            message,
            run_id,
            row,
            ..
        } = &event.body
        else {
            return Ok(());
        };
        let Some(open) = self
            .loop_mut(event.loop_id, seq)?
            .operations
            .shift_remove(&cause)
        else {
            return Err(Contradiction {
                seq,
                what: format!("operation {cause} has no open intent"),
            });
        };
        if *outcome != OutcomeStatus::Rejected {
            self.accepted_operations += 1;
        }
        if *outcome == OutcomeStatus::Uncertain {
            self.uncertain.push_back(UncertainOperation {
                command_id: cause,
                operation: open.operation,
                code: reason.clone().unwrap_or_default(),
            });
            if self.uncertain.len() > MAX_UNCERTAIN {
                self.uncertain.pop_front();
            }
        }
        if run_id.is_some() {
            self.run_id = *run_id;
        }
        if let Some(row) = row {
            self.settled = *row;
            self.error = match row {
                Status::Failed | Status::Disconnected => Some(RowError {
                    code: reason.clone().unwrap_or_default(),
                    message: message.clone().unwrap_or_default(),
                }),
                _ => None,
            };
        }
        Ok(())
    }

    fn close_turn(&mut self, event: &Event, seq: Seq) -> Result<(), Contradiction> {
        let loop_state = self.loop_mut(event.loop_id, seq)?;
        let turn = loop_state.turn.take();
        loop_state.end_open_requests(event);
        match turn {
            Some(turn) if turn.turn_id == event.turn_id => {
                if let (EventBody::TurnInterrupted { reason, .. }, Some(native)) =
                    (&event.body, turn.native)
                    && *reason == InterruptReason::HostLost
                {
                    // What the host lost may be announced again (N10).
                    let known = &mut self.loop_mut(event.loop_id, seq)?.native_turns;
                    Arc::make_mut(known).remove(&native.native_turn_id);
                }
                Ok(())
            }
            _ => Err(Contradiction {
                seq,
                what: format!("turn {} is not open", event.turn_id),
            }),
        }
    }

    fn hold(
        &mut self,
        loop_id: LoopId,
        input: CommandId,
        held: bool,
        seq: Seq,
    ) -> Result<(), Contradiction> {
        match self
            .loop_mut(loop_id, seq)?
            .inbox
            .iter_mut()
            .find(|w| w.command_id == input)
        {
            Some(waiting) => waiting.held = held,
            None => {
                return Err(Contradiction {
                    seq,
                    what: format!("input {input} does not wait"),
                });
            }
        }
        Ok(())
    }
}

fn row_error(error: &Failure) -> RowError {
    RowError {
        code: error.code.clone(),
        message: error.message.clone(),
    }
}

fn take_input(loop_state: &mut LoopState, command: CommandId) {
    loop_state.inbox.retain(|w| w.command_id != command);
}

/// The parts of an input's message.
pub(super) fn input_parts(waiting: &Waiting) -> Vec<crate::content::Part> {
    parts_of(&waiting.blocks)
}
