//! Decisions, one file a concern. All of them are pure: they read a session and write a
//! [`Decision`] through [`Out`].

mod admission;
mod advance;
mod arrival;
mod compact;
mod delegate;
mod ending;
mod gate;
mod hand_back;
mod host_gate;
mod loops;
mod native;
mod operation;
mod process;
mod prompt;
mod queue;
mod recall;
mod restore;
mod run;
mod settings;
mod shutdown;
mod stop;
mod workspace;

pub use compact::{MAX_COMPACT_WAITERS, MAX_SUMMARY};
pub use host_gate::MAX_HOST_GATES;
pub use loops::MAX_LOOPS;
pub use process::MAX_NOTICES;
pub use workspace::MAX_CHECKPOINT_WAITERS;

use super::{
    Answer, Cx, Decision, Effect, Fault, Input, InvocationId, Kind, Live, LoopState, Origin,
    Record, Session,
};
use crate::command::{Agency, Cause, Command, CommandBody, CommandHeader};
use crate::event::{Class, Event, EventBody};
use crate::ids::{CommandId, EventId, LoopId, TurnId};
use crate::provider::{ChannelError, HarnessInfo};
use crate::refusal::Refused;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use uuid::Uuid;

/// A decision in the making.
pub(super) struct Out<'a, 'c> {
    pub(super) session: &'a Session,
    pub(super) cx: &'a mut Cx<'c>,
    pub(super) live: Live,
    records: Vec<Record>,
    effects: Vec<Effect>,
    refusable: bool,
    /// Records whose consequences for delegate requests were looked at.
    settled: usize,
}

impl Session {
    /// Decides what follows from an input. Changes nothing.
    #[must_use]
    pub fn decide(&self, input: Input, cx: &mut Cx<'_>) -> Decision {
        let mut out = Out {
            session: self,
            cx,
            live: self.live.clone(),
            records: Vec::new(),
            effects: Vec::new(),
            refusable: is_refusable(&input),
            settled: 0,
        };
        let answer = out.dispatch(input);
        out.settle_requests();
        Decision {
            records: out.records,
            live: out.live,
            effects: out.effects,
            answer,
            refusable: out.refusable,
        }
    }
}

/// Inputs whose asker can be told that nothing was recorded. What a provider or the host itself
/// does has happened already: if it cannot be recorded, the session is faulted.
fn is_refusable(input: &Input) -> bool {
    matches!(
        input,
        Input::Submit { .. }
            | Input::Reserve(_)
            | Input::RejectFirst { .. }
            | Input::Answer { .. }
            | Input::AnswerClaimed { .. }
            | Input::OpenHostGate { .. }
            | Input::CloseHostGate(_)
            | Input::GateTimeout(_)
            | Input::Retract { .. }
            | Input::Release { .. }
            | Input::Settings { .. }
            | Input::CreateLoop { .. }
            | Input::SetActiveLoop(_)
            | Input::SetLoopMode { .. }
            | Input::ChangeInference { .. }
            | Input::Compact { .. }
            | Input::Checkpoint(_)
            | Input::Rewind { .. }
            | Input::Reopen(_)
            | Input::Announce { .. }
            | Input::Delegate(_)
            | Input::StartProcess { .. }
            | Input::NotifyProcess(_)
    )
}

impl Out<'_, '_> {
    fn dispatch(&mut self, input: Input) -> Answer {
        match input {
            Input::Submit {
                origin,
                blocks,
                loop_id,
                no_fold,
                fold_only,
            } => self.submit(origin, blocks, loop_id, no_fold, fold_only),
            Input::Reserve(reserve) => self.reserve(*reserve),
            Input::RejectFirst {
                origin,
                operation,
                execution,
                code,
                message,
            } => self.reject_first(origin, operation, execution, code, message),
            Input::Entered(invocation) => self.entered(invocation),
            Input::Started {
                invocation,
                result,
                messages,
            } => self.started(invocation, result, messages),
            Input::Invoked {
                invocation,
                result,
                messages,
            } => self.invoked(invocation, result, messages),
            Input::Done {
                invocation,
                result,
                messages,
            } => self.done(invocation, result, messages),
            Input::Step {
                invocation,
                messages,
            } => {
                self.step(invocation, messages);
                Answer::None
            }
            Input::Usage { invocation, usage } => self.usage(invocation, usage),
            Input::Bind {
                invocation,
                native_session_id,
            } => self.bind(invocation, native_session_id),
            Input::TakeInput(invocation) => self.take_input(invocation),
            Input::Ask {
                invocation,
                ask,
                stored_rules,
            } => self.ask(invocation, ask, stored_rules),
            Input::Withdraw {
                invocation,
                provider_id,
            } => self.withdraw(invocation, &provider_id),
            Input::Unasked(gate_id) => self.unasked(gate_id),
            Input::GateTimeout(gate_id) => self.gate_timeout(gate_id),
            Input::Answer {
                origin,
                gate_id,
                reply,
            } => self.answer(origin, gate_id, reply),
            Input::ClaimGate { gate_id, reply } => self.claim_gate(gate_id, &reply),
            Input::UnclaimGate(gate_id) => {
                self.live.claimed.remove(&gate_id);
                Answer::None
            }
            Input::AnswerClaimed {
                origin,
                gate_id,
                reply,
            } => self.answer_claimed(origin, gate_id, reply),
            Input::OpenHostGate { ask, loop_id } => self.open_host_gate(ask, loop_id),
            Input::CloseHostGate(gate_id) => self.close_host_gate(gate_id),
            Input::CreateLoop {
                loop_id,
                harness_id,
                model,
                mode,
            } => self.create_loop(loop_id, harness_id, model, mode),
            Input::SetActiveLoop(loop_id) => self.set_active_loop(loop_id),
            Input::SetLoopMode { loop_id, mode } => self.set_loop_mode(loop_id, mode),
            Input::ChangeInference {
                loop_id,
                native,
                model,
                effort,
            } => self.change_inference(loop_id, &native, model, effort),
            Input::Compact { origin, loop_id } => self.compact(origin, loop_id),
            Input::Compacted {
                invocation,
                result,
                messages,
            } => self.compacted(invocation, result, messages),
            Input::Checkpoint(origin) => self.checkpoint(origin),
            Input::Rewind { origin, reference } => self.rewind(origin, reference),
            Input::Checkpointed(result) => self.checkpointed(result),
            Input::Rewound(result) => self.rewound(result),
            Input::RewindFinished => self.rewind_finished(),
            Input::WorkspaceChanged => {
                self.live.workspace.watches = false;
                Answer::None
            }
            Input::Interrupt { origin, loop_id } => self.interrupt(origin, loop_id),
            Input::BarrierExpired(command_id) => self.barrier_expired(command_id),
            Input::ActivitiesSettled(loop_id) => self.activities_settled(loop_id),
            Input::CallerGone(command_id) => self.caller_gone(command_id),
            Input::Announce { loop_id, id, turn } => self.announce(loop_id, id, turn),
            Input::Unannounce(id) => {
                for live in self.live.loops.values_mut() {
                    live.announced.retain(|a| a.id != id);
                }
                Answer::None
            }
            Input::Paced {
                loop_id,
                announcements,
            } => {
                self.live.of_mut(loop_id).paced = announcements;
                Answer::None
            }
            Input::LinkAppend { loop_id, message } => self.link_append(loop_id, message),
            Input::ActivityBegan { loop_id, id, label } => self.activity_began(loop_id, id, label),
            Input::ActivityEnded { loop_id, id } => {
                self.live.of_mut(loop_id).activities.remove(&id);
                Answer::None
            }
            Input::StartProcess {
                loop_id,
                harness,
                program,
            } => self.start_process(loop_id, &harness, program),
            Input::ProcessEnded {
                loop_id,
                process_handle,
                end,
            } => self.process_ended(loop_id, process_handle, &end),
            Input::NotifyProcess(notice) => self.notify_process(notice),
            Input::ProcessesExpired => self.processes_expired(),
            Input::Retract { origin, target } => self.retract(origin, target),
            Input::Release {
                origin,
                loop_id,
                targets,
            } => self.release(origin, loop_id, &targets),
            Input::Settings {
                origin,
                title,
                model,
                params,
                agent,
            } => self.settings(origin, title, model, params, agent),
            Input::Delegate(call) => self.delegate(*call),
            Input::Unawait(id) => {
                self.live.awaits.remove(&id);
                Answer::None
            }
            Input::StateChanged(loop_id) => {
                self.live.of_mut(loop_id).state_epoch += 1;
                self.effect(Effect::NotifyState(loop_id));
                Answer::None
            }
            Input::Advance => self.advance(),
            Input::Restore { lost, now } => self.restore(&lost, now.as_deref()),
            Input::Shutdown(origin) => self.shutdown(origin),
            Input::ShutdownExpired => self.shutdown_expired(),
            Input::Reopen(now) => self.reopen(now.as_deref()),
            Input::Close => self.close(),
            Input::Fault(reason) => self.fault(Fault::Refused(reason)),
            Input::LeaseLost(holder) => self.fault(Fault::LeaseLost(holder)),
        }
    }

    // ---- building blocks --------------------------------------------------------------------

    fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn refuse(&self, refused: Refused) -> Answer {
        Answer::Refused(Box::new(refused))
    }

    /// Id of a new event. Without a working source it is derived from what it belongs to, which
    /// is as unique: the session, its next sequence and its place in this decision.
    fn event_id(&mut self) -> EventId {
        let place = (self.session.state.last_seq, self.records.len());
        EventId(self.cx.ids.mint().unwrap_or_else(|| {
            derived(
                self.session.state.id.0,
                &format!("event {} {}", place.0, place.1),
            )
        }))
    }

    fn push_event(
        &mut self,
        id: EventId,
        loop_id: LoopId,
        turn_id: TurnId,
        cause: Cause,
        body: EventBody,
    ) {
        let session_id = self.session.state.id;
        let event = Event {
            id,
            session_id,
            loop_id,
            turn_id,
            at: self.cx.now,
            cause,
            body,
        };
        if event.body.meta().class == Class::Ephemeral {
            self.effects.push(Effect::Publish(Box::new(Event {
                id: EventId::ZERO,
                ..event
            })));
        } else {
            self.records.push(Record::Event(event));
        }
    }

    /// An event of a loop.
    fn event(&mut self, loop_id: LoopId, turn_id: TurnId, cause: Cause, body: EventBody) {
        let id = self.event_id();
        self.push_event(id, loop_id, turn_id, cause, body);
    }

    /// An event of session scope.
    fn session_event(&mut self, body: EventBody) {
        self.event(LoopId::ZERO, TurnId::ZERO, Cause::default(), body);
    }

    fn command(&mut self, origin: Origin, agency: Agency, body: CommandBody) {
        self.command_about(origin, agency, Cause::default(), body);
    }

    fn command_about(&mut self, origin: Origin, agency: Agency, cause: Cause, body: CommandBody) {
        let header = CommandHeader {
            command_id: origin.command_id,
            cause,
            agency,
            created_at: self.cx.now,
            caller: origin.caller,
        };
        self.records.push(Record::Command(Command { header, body }));
    }

    /// A command of the host or of a provider, with a cause.
    fn machine_command(&mut self, command_id: CommandId, cause: Cause, body: CommandBody) {
        let header = CommandHeader {
            command_id,
            cause,
            agency: Agency::Machine,
            created_at: self.cx.now,
            caller: None,
        };
        self.records.push(Record::Command(Command { header, body }));
    }

    fn loop_state(&self, id: LoopId) -> Option<&LoopState> {
        self.session.state.loops.get(&id)
    }

    fn active(&self) -> LoopId {
        self.session.state.active_loop
    }

    /// What the harness of that loop declares.
    fn harness_of(&self, id: LoopId) -> Option<Arc<HarnessInfo>> {
        self.loop_state(id)
            .and_then(|l| (self.cx.harness)(&l.harness))
    }

    /// The session has no work any more (S67).
    fn go_quiet(&mut self) {
        self.session_event(EventBody::SessionIdle {});
        self.checkpoint_is_due();
    }

    /// The session begins to have work (S67).
    fn activate(&mut self) {
        let pending = self.records.iter().any(|r| {
            matches!(
                r,
                Record::Event(Event {
                    body: EventBody::SessionActive {},
                    ..
                })
            )
        });
        if !self.session.state.active && !pending {
            self.session_event(EventBody::SessionActive {});
        }
    }

    /// Why the session admits no work at all, whatever it is.
    fn closed(&self) -> Option<Refused> {
        if let Some(fault) = &self.live.faulted {
            Some(fault.refused())
        } else if self.session.state.stopped {
            Some(Refused::SessionStopped)
        } else if self.live.shutdown.is_some() {
            Some(Refused::SessionStopping)
        } else if self.live.closing {
            Some(Refused::HostShuttingDown)
        } else {
            None
        }
    }

    /// Whether session or host end, or have ended.
    fn is_leaving(&self) -> bool {
        self.live.closing || self.live.shutdown.is_some() || self.session.state.stopped
    }

    fn invocation(&self, id: InvocationId) -> Option<(CommandId, Kind)> {
        self.live.invocation(id).map(|i| (i.command_id, i.kind))
    }

    fn channel_closed(&self, id: InvocationId) -> Option<ChannelError> {
        match self.live.invocation(id) {
            None => Some(ChannelError::Closed),
            Some(i) if i.aborted.is_some() => Some(ChannelError::Stopped),
            Some(_) if self.live.faulted.is_some() => {
                Some(ChannelError::Failed("the session is faulted".into()))
            }
            Some(_) => None,
        }
    }
}

/// A UUIDv8 from a namespace and a name: the same inputs give the same id (S75, S120).
pub(crate) fn derived(namespace: Uuid, name: &str) -> Uuid {
    let digest = Sha256::new()
        .chain_update(namespace.as_bytes())
        .chain_update(name.as_bytes())
        .finalize();
    let mut bytes = [0u8; 16];
    bytes
        .iter_mut()
        .zip(digest.iter())
        .for_each(|(b, d)| *b = *d);
    Uuid::new_v8(bytes)
}
