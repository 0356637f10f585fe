//! The life of a run: what its calls return, what they write, and its single end (R26-R30,
//! R65-R72, S54-S57).

use super::ending::{
    Problem, Resolution, bounded, cancelled, ending_of, ending_of_resolution, failed, failure,
    interrupt_reason, row_of, violation,
};
use super::{Out, derived};
use crate::abort::AbortReason;
use crate::command::Cause;
use crate::content::{Message, Usage};
use crate::event::EventBody;
use crate::gate::{CloseReason, HostAnswer};
use crate::ids::{CommandId, LoopId};
use crate::operation::Execution;
use crate::provider::{CallError, ChannelError, DelegationError, Outcome, Params, Refusal};
use crate::refusal::Refused;
use crate::session::{
    Answer, Effect, Ending, Fault, Invocation, InvocationId, Invoked, Kind, Late,
};
use crate::view::{OperationResult, OutcomeStatus, ParamsEffective, Status};

/// Largest step group, in bytes of its stored form. Any message fits one.
const MAX_GROUP_BYTES: usize = 12 * 1024 * 1024;

impl Out<'_, '_> {
    pub(super) fn entered(&mut self, invocation: InvocationId) -> Answer {
        if let Some(owner) = self.live.owner_of_mut(invocation)
            && let Some(entry) = owner.invocations.get_mut(&invocation)
        {
            entry.entered = true;
        }
        Answer::None
    }

    pub(super) fn usage(&mut self, invocation: InvocationId, usage: Usage) -> Answer {
        if let Some(owner) = self.live.owner_of_mut(invocation) {
            owner.usage = Some(usage);
        }
        Answer::None
    }

    /// A step group of an invocation (S56). After a fault nothing is written any more.
    pub(super) fn step(&mut self, invocation: InvocationId, messages: Vec<Message>) {
        let Some(owner) = self.live.owner_of(invocation) else {
            return;
        };
        let Some(entry) = owner.invocations.get(&invocation) else {
            return;
        };
        if messages.is_empty() || self.live.faulted.is_some() {
            return;
        }
        let cause = match entry.kind {
            Kind::Operation(Execution::Control) | Kind::Compaction => Cause::by(entry.command_id),
            _ => Cause::default(),
        };
        let usage = owner.usage.filter(|_| owner.runner == invocation);
        let (loop_id, turn_id) = (owner.loop_id, owner.turn.unwrap_or_default());
        for messages in groups(messages) {
            self.event(
                loop_id,
                turn_id,
                cause,
                EventBody::StepDone { messages, usage },
            );
        }
    }

    /// The id is durable before anything depends on it, a late one after an abort too (R68).
    pub(super) fn bind(&mut self, invocation: InvocationId, native_session_id: String) -> Answer {
        let Some(owner) = self.live.owner_of(invocation).cloned() else {
            return Answer::Channel(ChannelError::Closed);
        };
        let Some(entry) = owner.invocations.get(&invocation) else {
            return Answer::Channel(ChannelError::Closed);
        };
        if self.live.faulted.is_some() {
            return Answer::Channel(ChannelError::Failed("the session is faulted".into()));
        }
        if native_session_id.is_empty() || native_session_id.len() > 1024 {
            return Answer::Channel(ChannelError::Limit(
                "a native session id has 1 to 1024 bytes".into(),
            ));
        }
        let Some(loop_state) = self.loop_state(owner.loop_id) else {
            return Answer::Channel(ChannelError::Closed);
        };
        if loop_state.harness != entry.harness {
            return Answer::Channel(ChannelError::Closed);
        }
        if loop_state.native_session_id.as_deref() != Some(native_session_id.as_str()) {
            let cause = Cause::by(entry.command_id);
            self.event(
                owner.loop_id,
                owner.turn.unwrap_or_default(),
                cause,
                EventBody::NativeSessionBound { native_session_id },
            );
        }
        Answer::Accepted
    }

    /// `start-prompt` or `adopt-turn` returned.
    pub(super) fn started(
        &mut self,
        invocation: InvocationId,
        result: Result<Params, CallError>,
        messages: Vec<Message>,
    ) -> Answer {
        let Some(entry) = self.live.invocation(invocation).cloned() else {
            return Answer::None;
        };
        match result {
            Ok(params) => {
                // A session that comes back after its abort is ended at once (R68).
                let late = if entry.aborted.is_some() {
                    Some(Late::Cancelled)
                } else {
                    let bad = self.patch_of(invocation, &entry, &params, true).err();
                    bad.map(Late::Violation)
                };
                self.mark_started(invocation, late);
                self.effect(Effect::CallDone(invocation));
            }
            Err(error) => {
                self.step(invocation, messages);
                let ending = ending_of(&error, entry.aborted, false);
                self.end_runner(invocation, ending);
            }
        }
        self.effect(Effect::RetryWaiting);
        Answer::None
    }

    fn mark_started(&mut self, invocation: InvocationId, late: Option<Late>) {
        let violated = late.is_some();
        if let Some(owner) = self.live.owner_of_mut(invocation) {
            owner.handle = true;
            if let Some(entry) = owner.invocations.get_mut(&invocation) {
                entry.started = true;
                entry.ending_as = late;
            }
        }
        if violated {
            self.abort_one(invocation, AbortReason::OwnerStopped);
        }
    }

    /// `invoke` returned.
    pub(super) fn invoked(
        &mut self,
        invocation: InvocationId,
        result: Result<Invoked, CallError>,
        messages: Vec<Message>,
    ) -> Answer {
        let Some(entry) = self.live.invocation(invocation).cloned() else {
            return Answer::None;
        };
        match result {
            Ok(Invoked::Started(params)) => self.invoked_started(invocation, &entry, &params),
            Ok(Invoked::Completed(outcome)) => {
                self.step(invocation, messages);
                let resolution = self.completed(invocation, &entry, outcome);
                self.resolve(invocation, &entry, resolution);
            }
            Err(error) => {
                self.step(invocation, messages);
                self.resolve(invocation, &entry, failed(&error, entry.aborted));
            }
        }
        Answer::None
    }

    fn invoked_started(&mut self, invocation: InvocationId, entry: &Invocation, params: &Params) {
        let late = if entry.kind == Kind::Operation(Execution::Control) {
            Some(Late::Violation("a control answered `started`".into()))
        } else if entry.aborted.is_some() {
            Some(Late::Cancelled)
        } else {
            None
        };
        if late.is_some() || self.live.faulted.is_some() {
            // The session that came back is ended by `done` under a fired abort (R26, R68).
            self.mark_started(invocation, late.or(Some(Late::Cancelled)));
            self.effect(Effect::CallDone(invocation));
            return;
        }
        match self.patch_of(invocation, entry, params, true) {
            Ok(effective) => {
                self.mark_started(invocation, None);
                let resolution = Resolution {
                    outcome: OutcomeStatus::Started,
                    code: None,
                    message: None,
                    effective,
                    problem: None,
                    lost: false,
                };
                self.write_resolution(invocation, entry, resolution, true, None);
                self.effect(Effect::CallDone(invocation));
            }
            Err(reason) => {
                self.mark_started(invocation, Some(Late::Violation(reason)));
                self.effect(Effect::CallDone(invocation));
            }
        }
    }

    /// A completed operation's outcome stands, whatever came after it (R70).
    fn completed(
        &mut self,
        invocation: InvocationId,
        entry: &Invocation,
        outcome: Outcome,
    ) -> Resolution {
        let message = outcome.message;
        if self.harness_changed(invocation, entry) && !outcome.params.is_empty() {
            return Resolution {
                outcome: OutcomeStatus::Completed,
                code: Some("harness_changed".into()),
                message,
                effective: None,
                problem: Some(Problem::HarnessChanged),
                lost: false,
            };
        }
        let owner = self.live.owner_of(invocation);
        let attached = owner.is_some_and(|o| o.turn.is_some())
            && entry.kind == Kind::Operation(Execution::Control);
        match self.patch_of(invocation, entry, &outcome.params, attached) {
            Ok(effective) => Resolution {
                outcome: OutcomeStatus::Completed,
                code: None,
                message,
                effective,
                problem: None,
                lost: false,
            },
            Err(reason) => violation(reason),
        }
    }

    fn harness_changed(&self, invocation: InvocationId, entry: &Invocation) -> bool {
        self.live
            .owner_of(invocation)
            .and_then(|o| self.loop_state(o.loop_id))
            .is_some_and(|l| l.harness != entry.harness)
            // Settings belong to the session's harness alone (S55).
            || self.session.state.agent != entry.harness
    }

    fn patch_of(
        &mut self,
        invocation: InvocationId,
        entry: &Invocation,
        params: &Params,
        turn_goes_on: bool,
    ) -> Result<Option<ParamsEffective>, String> {
        if self.harness_changed(invocation, entry) || self.live.faulted.is_some() {
            return Ok(None);
        }
        self.patch(&entry.harness, params, entry.command_id, turn_goes_on)
    }

    /// `done` returned.
    pub(super) fn done(
        &mut self,
        invocation: InvocationId,
        result: Result<Outcome, CallError>,
        messages: Vec<Message>,
    ) -> Answer {
        let Some(entry) = self.live.invocation(invocation).cloned() else {
            return Answer::None;
        };
        self.step(invocation, messages);
        if let Some(late) = &entry.ending_as {
            let lost = match &result {
                Err(CallError::Refused(Refusal::Disconnected(text))) => Some(text.clone()),
                _ => None,
            };
            self.done_late(invocation, &entry, late, lost);
            return Answer::None;
        }
        let ending = match result {
            Ok(outcome) => match self.patch_of(invocation, &entry, &outcome.params, false) {
                Ok(_) => Ending::Done,
                Err(reason) => Ending::Failed(failure("provider_contract_violation", reason)),
            },
            Err(error) => ending_of(&error, entry.aborted, true),
        };
        self.end_runner(invocation, ending);
        Answer::None
    }

    /// What an operation or prompt that was ended instead of run resolves as. `lost`: the native
    /// side was lost meanwhile, which decides the row (R51).
    fn done_late(
        &mut self,
        invocation: InvocationId,
        entry: &Invocation,
        late: &Late,
        lost: Option<String>,
    ) {
        match (late, entry.kind) {
            (Late::Cancelled, Kind::Operation(_)) => {
                let resolution = Resolution {
                    lost: lost.is_some(),
                    message: lost.map(bounded),
                    ..cancelled()
                };
                self.resolve(invocation, entry, resolution);
            }
            (Late::Violation(reason), Kind::Operation(_)) => {
                self.resolve(invocation, entry, violation(reason.clone()));
            }
            (Late::Cancelled, _) => {
                let ending = match lost {
                    Some(text) => Ending::Failed(failure("disconnected", text)),
                    None => Ending::Interrupted(interrupt_reason(entry.aborted)),
                };
                self.end_runner(invocation, ending);
            }
            (Late::Violation(reason), _) => {
                let failure = failure("provider_contract_violation", reason.clone());
                self.end_runner(invocation, Ending::Failed(failure));
            }
        }
    }

    /// Writes the one outcome of an operation and ends its invocation.
    fn resolve(&mut self, invocation: InvocationId, entry: &Invocation, resolution: Resolution) {
        let exclusive = entry.kind == Kind::Operation(Execution::Exclusive);
        let idle = self
            .live
            .owner_of(invocation)
            .is_some_and(|o| o.turn.is_none() && o.runner == invocation);
        let ending = ending_of_resolution(&resolution, entry.aborted);
        let row = idle.then(|| row_of(&ending));
        self.close_gates(invocation, CloseReason::Abandoned, &ChannelError::Closed);
        self.write_resolution(invocation, entry, resolution, exclusive || idle, row);
        if exclusive {
            self.end_runner(invocation, ending);
        } else {
            self.end_control(invocation);
        }
    }

    pub(super) fn write_resolution(
        &mut self,
        invocation: InvocationId,
        entry: &Invocation,
        resolution: Resolution,
        changed_row: bool,
        row: Option<Status>,
    ) {
        let Some(owner) = self.live.owner_of(invocation).cloned() else {
            return;
        };
        let run_id = changed_row.then_some(owner.run_id);
        let result = OperationResult {
            status: resolution.outcome,
            message: resolution.message,
            code: resolution.code,
            command_id: entry.command_id,
            run_id,
            params_effective: resolution.effective,
        };
        if let Some(fault) = &self.live.faulted {
            // Nothing can be written: the caller must not take it for an outcome.
            let result = Err(Box::new(fault.refused()));
            self.effect(Effect::Resolve {
                command_id: entry.command_id,
                result,
            });
            return;
        }
        let native = self
            .loop_state(owner.loop_id)
            .and_then(|l| l.native_session_id.clone());
        self.event(
            owner.loop_id,
            owner.turn.unwrap_or_default(),
            Cause::by(entry.command_id),
            EventBody::NativeOperationResolved {
                outcome: result.status,
                reason: result.code.clone(),
                message: result.message.clone(),
                run_id,
                row,
                effective: result.params_effective,
                native_session_id: native,
            },
        );
        if result.status != OutcomeStatus::Rejected {
            let first = self.session.state.accepted_operations == 0;
            self.effect(Effect::Hook {
                first,
                command_id: entry.command_id,
            });
        }
        let answer = match resolution.problem {
            None => Ok(result),
            Some(Problem::Violation(reason)) => Err(Box::new(Refused::Violation {
                reason,
                result: Box::new(result),
            })),
            Some(Problem::HarnessChanged) => Err(Box::new(Refused::HarnessChanged {
                result: Some(Box::new(result)),
            })),
        };
        self.effect(Effect::Resolve {
            command_id: entry.command_id,
            result: answer,
        });
        self.effect(Effect::NotifyState(owner.loop_id));
    }

    pub(super) fn end_control(&mut self, invocation: InvocationId) {
        self.effect(Effect::CloseChannel(invocation));
        let Some(owner) = self.live.owner_of_mut(invocation) else {
            return;
        };
        owner.invocations.remove(&invocation);
        let loop_id = owner.loop_id;
        if owner.invocations.is_empty() && (owner.ended.is_some() || owner.turn.is_none()) {
            self.finish_owner(loop_id);
        }
    }

    /// The turn's runner ended: its terminal waits for every accepted control (R66, S57).
    fn end_runner(&mut self, invocation: InvocationId, ending: Ending) {
        self.close_gates(invocation, CloseReason::Abandoned, &ChannelError::Closed);
        self.effect(Effect::CloseChannel(invocation));
        let Some(owner) = self.live.owner_of_mut(invocation) else {
            return;
        };
        owner.invocations.remove(&invocation);
        let loop_id = owner.loop_id;
        owner.ended = Some(ending);
        owner.handle = true;
        if owner.invocations.is_empty() {
            self.finish_owner(loop_id);
        }
    }

    /// The single end of a run.
    pub(super) fn finish_owner(&mut self, loop_id: LoopId) {
        let Some(owner) = self.live.of_mut(loop_id).owner.take() else {
            return;
        };
        if self.live.of(loop_id).overdrawn {
            // Repaid before the next grant (N8).
            self.give_slot_back(loop_id);
        }
        if self.live.faulted.is_some() {
            self.effect(Effect::RetryWaiting);
            return;
        }
        if let Some(turn_id) = owner.turn {
            let (run_id, usage) = (owner.run_id, owner.usage);
            let ending = owner.ended.unwrap_or(Ending::Done);
            let failed = matches!(ending, Ending::Failed(_));
            let interrupted = matches!(ending, Ending::Interrupted(_));
            let body = match ending {
                Ending::Done => EventBody::TurnDone { run_id, usage },
                Ending::Failed(error) => EventBody::TurnFailed {
                    run_id,
                    error,
                    usage,
                },
                Ending::Interrupted(reason) => EventBody::TurnInterrupted {
                    run_id,
                    reason,
                    usage,
                },
            };
            self.event(owner.loop_id, turn_id, Cause::by(owner.cause), body);
            self.cancel_waiting(owner.loop_id, failed, interrupted);
            if !failed && !interrupted {
                self.fall_back(owner.loop_id);
            }
            self.effect(Effect::NotifyState(loop_id));
            self.rest_after(loop_id, true, failed, interrupted);
        } else {
            self.rest_after(loop_id, false, false, false);
        }
        self.effect(Effect::RetryWaiting);
    }

    /// The HTTP request of an operation is gone; void once `started` was returned (R69).
    pub(super) fn caller_gone(&mut self, command_id: CommandId) -> Answer {
        let found = self.live.owners().find_map(|o| {
            o.invocations
                .iter()
                .find(|(_, i)| i.command_id == command_id && !i.started)
                .map(|(id, _)| *id)
        });
        if let Some(invocation) = found {
            self.abort_one(invocation, AbortReason::CallerGone);
        }
        Answer::None
    }

    /// Fires an invocation's abort; the first reason stays.
    pub(super) fn abort_one(&mut self, invocation: InvocationId, reason: AbortReason) {
        if let Some(owner) = self.live.owner_of_mut(invocation)
            && let Some(entry) = owner.invocations.get_mut(&invocation)
        {
            entry.aborted.get_or_insert(reason);
            self.effect(Effect::Abort { invocation, reason });
        }
    }

    /// The journal refused an enduring event: nothing more is admitted, everybody who waits is
    /// told, what runs is aborted (S62).
    pub(super) fn fault(&mut self, fault: Fault) -> Answer {
        if self.live.faulted.is_some() {
            return Answer::None;
        }
        let why = fault.refused();
        self.live.faulted = Some(fault);
        self.abandon_workspace_job(&why);
        let error = ChannelError::Failed("the session is faulted".into());
        let ids: Vec<InvocationId> = self
            .live
            .owners()
            .flat_map(|o| o.invocations.keys().copied())
            .collect();
        for invocation in ids {
            self.abort_one(invocation, AbortReason::OwnerStopped);
        }
        for gate_id in std::mem::take(&mut self.live.gates).into_keys() {
            let value = crate::session::GateValue::Rejected(error.clone());
            self.effect(Effect::AnswerGate { gate_id, value });
        }
        let faulted = DelegationError::Failed("the session is faulted".into());
        self.end_awaits(None, &faulted);
        for gate_id in self
            .session
            .state
            .host_gates
            .keys()
            .copied()
            .collect::<Vec<_>>()
        {
            let answer = HostAnswer::Closed(CloseReason::OwnerClosed);
            self.effect(Effect::AnswerHostGate { gate_id, answer });
        }
        let loops: Vec<LoopId> = self.live.loops.keys().copied().collect();
        for loop_id in loops {
            for announced in std::mem::take(&mut self.live.of_mut(loop_id).announced) {
                let result = Err(error.clone());
                self.effect(Effect::AnswerAnnouncement {
                    id: announced.id,
                    result,
                });
            }
            if !self.live.of(loop_id).activities.is_empty() {
                self.effect(Effect::AbortActivities(loop_id));
            }
        }
        for stop in std::mem::take(&mut self.live.stops) {
            self.effect(Effect::Stopped(stop.command_id));
        }
        self.effect(Effect::RetryWaiting);
        Answer::None
    }

    /// Deterministic id for what a lost process left (S75).
    pub(super) fn repair_id(&self, what: &str) -> uuid::Uuid {
        derived(self.session.state.id.0, &format!("repair {what}"))
    }
}

/// Cuts messages into groups that fit a record each (S68).
fn groups(messages: Vec<Message>) -> Vec<Vec<Message>> {
    let (mut groups, mut bytes) = (Vec::<Vec<Message>>::new(), usize::MAX);
    for message in messages {
        let more = message.stored_bytes();
        match groups.last_mut() {
            Some(group) if bytes + more <= MAX_GROUP_BYTES => {
                bytes += more;
                group.push(message);
            }
            _ => {
                bytes = more;
                groups.push(vec![message]);
            }
        }
    }
    groups
}
