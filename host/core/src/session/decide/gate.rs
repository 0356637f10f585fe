//! Gates: opened by a provider, answered once by a person or their policy, closed with their run (S80-S86).

use super::Out;
use crate::command::{Agency, Answer as Stored, ApproveAction, Cause, CommandBody};
use crate::event::{Decided, EventBody};
use crate::gate::{
    AnswerSource, ApprovalDecision, CloseReason, FormAnswer, Gate, GateAsk, GateReply, QuestionForm,
};
use crate::ids::{GateId, ToolExecutionId, TurnId};
use crate::provider::ChannelError;
use crate::refusal::Refused;
use crate::session::{Answer, Effect, GateValue, InvocationId, Origin};

/// Gates one invocation may hold open.
const MAX_OPEN_GATES: usize = 64;

impl Out<'_, '_> {
    pub(super) fn ask(
        &mut self,
        invocation: InvocationId,
        ask: GateAsk,
        stored_rules: bool,
    ) -> Answer {
        if let Some(error) = self.channel_closed(invocation) {
            return Answer::Channel(error);
        }
        if let Err(reason) = ask.check() {
            return Answer::Channel(ChannelError::Limit(reason));
        }
        if self
            .live
            .gates
            .values()
            .filter(|i| **i == invocation)
            .count()
            >= MAX_OPEN_GATES
        {
            return Answer::Channel(ChannelError::Limit(format!(
                "{MAX_OPEN_GATES} requests are open"
            )));
        }
        let Some(owner) = self.live.owner_of(invocation) else {
            return Answer::Channel(ChannelError::Closed);
        };
        let (loop_id, turn_id) = (owner.loop_id, owner.turn);
        let turn = turn_id.unwrap_or_default();
        let cause = self
            .invocation(invocation)
            .map(|(id, _)| Cause::by(id))
            .unwrap_or_default();
        if let GateAsk::Permission(request) = &ask
            && stored_rules
            && !request.rules.is_empty()
        {
            self.event(
                loop_id,
                turn,
                cause,
                EventBody::PermissionDecided {
                    gate_id: GateId::ZERO,
                    tool_use_id: request.tool_use_id.clone(),
                    decision: Decided::ApproveAlwaysWorkspace,
                    source: AnswerSource::Policy,
                },
            );
            return Answer::Approved(ApprovalDecision::ApproveAlways);
        }
        let (Some(gate), Some(execution)) = (self.cx.ids.mint(), self.cx.ids.mint()) else {
            return Answer::Channel(ChannelError::Failed("no id could be made".into()));
        };
        let (gate_id, tool_execution_id) = (GateId(gate), ToolExecutionId(execution));
        self.open_gate(
            loop_id,
            turn,
            cause,
            Gate {
                gate_id,
                ask,
                loop_id,
                turn_id,
                tool_execution_id,
                opened_at: self.cx.now,
            },
        );
        self.live.gates.insert(gate_id, invocation);
        Answer::Asked(gate_id)
    }

    fn open_gate(&mut self, loop_id: crate::ids::LoopId, turn: TurnId, cause: Cause, gate: Gate) {
        let gate_id = gate.gate_id;
        let prepared = EventBody::GatePrepared {
            gate_id,
            tool_execution_id: gate.tool_execution_id,
            ask: gate.ask.clone(),
        };
        let requested = match &gate.ask {
            GateAsk::Permission(request) => EventBody::PermissionRequested {
                gate_id,
                tool_use_id: request.tool_use_id.clone(),
                tool_name: request.tool_name.clone(),
            },
            GateAsk::AskUser(form) => EventBody::UserInputRequested {
                gate_id,
                title: form.title.clone(),
            },
        };
        for body in [prepared, requested, EventBody::GateOpened { gate }] {
            self.event(loop_id, turn, cause, body);
        }
    }

    /// Closes a gate that nobody answered and tells who waits.
    pub(super) fn close_gate(&mut self, gate_id: GateId, reason: CloseReason, error: ChannelError) {
        let Some(gate) = self.gate(gate_id) else {
            return;
        };
        self.event(
            gate.loop_id,
            gate.turn_id.unwrap_or_default(),
            Cause::default(),
            EventBody::GateResolved {
                gate_id,
                reason,
                source: None,
            },
        );
        self.live.gates.remove(&gate_id);
        self.effect(Effect::AnswerGate {
            gate_id,
            value: GateValue::Rejected(error),
        });
    }

    /// Closes the gates of one invocation.
    pub(super) fn close_gates(
        &mut self,
        of: InvocationId,
        reason: CloseReason,
        error: &ChannelError,
    ) {
        let gates: Vec<_> = self
            .live
            .gates
            .iter()
            .filter(|(_, invocation)| of == **invocation)
            .map(|(gate, _)| *gate)
            .collect();
        for gate_id in gates {
            self.close_gate(gate_id, reason, error.clone());
        }
    }

    pub(super) fn gate(&self, id: GateId) -> Option<Gate> {
        self.session
            .state
            .loops
            .values()
            .find_map(|l| l.gates.get(&id).cloned())
    }

    pub(super) fn withdraw(&mut self, invocation: InvocationId, provider_id: &str) -> Answer {
        let found = self.live.gates.iter().find_map(|(gate_id, owner)| {
            let gate = self.gate(*gate_id)?;
            (*owner == invocation && gate.ask.provider_id() == provider_id).then_some(*gate_id)
        });
        if let Some(gate_id) = found {
            self.close_gate(gate_id, CloseReason::Withdrawn, ChannelError::Closed);
        }
        Answer::None
    }

    pub(super) fn unasked(&mut self, gate_id: GateId) -> Answer {
        if self.live.gates.contains_key(&gate_id) {
            self.close_gate(gate_id, CloseReason::Withdrawn, ChannelError::Closed);
        }
        Answer::None
    }

    pub(super) fn answer(&mut self, origin: Origin, gate_id: GateId, reply: GateReply) -> Answer {
        if let Some(fault) = &self.live.faulted {
            return self.refuse(fault.refused());
        }
        let Some(gate) = self.gate(gate_id) else {
            return self.refuse(Refused::GateNotFound);
        };
        if let Err(error) = reply.check(&gate.ask) {
            return self.refuse(Refused::GateReply(error));
        }
        let cause = Cause::by(origin.command_id);
        let command = reply_command(self.session.state.id, &gate, &reply);
        self.command(origin, Agency::User, command);
        let decision = decided(&reply);
        self.answered(&gate, cause, AnswerSource::Human, decision, value_of(reply));
        Answer::Accepted
    }

    /// S86: the same path as an answer, without a person. A person who was earlier has won.
    pub(super) fn gate_timeout(&mut self, gate_id: GateId) -> Answer {
        let Some(gate) = self.gate(gate_id).filter(|_| self.live.faulted.is_none()) else {
            return Answer::None;
        };
        let (decision, value) = match &gate.ask {
            GateAsk::Permission(_) => (
                Some(Decided::Timeout),
                GateValue::Approval(ApprovalDecision::Timeout),
            ),
            GateAsk::AskUser(_) => (None, GateValue::Form(FormAnswer::Timeout)),
        };
        let cause = Cause::default();
        self.answered(&gate, cause, AnswerSource::Policy, decision, value);
        Answer::Accepted
    }

    /// Closes a gate with its answer and hands that to who waits.
    fn answered(
        &mut self,
        gate: &Gate,
        cause: Cause,
        source: AnswerSource,
        decision: Option<Decided>,
        value: GateValue,
    ) {
        let (gate_id, turn) = (gate.gate_id, gate.turn_id.unwrap_or_default());
        let reason = match source {
            AnswerSource::Human => CloseReason::Answered,
            AnswerSource::Policy | AnswerSource::Classifier => CloseReason::PolicyResponse,
        };
        self.event(
            gate.loop_id,
            turn,
            cause,
            EventBody::GateResolved {
                gate_id,
                reason,
                source: Some(source),
            },
        );
        if let (GateAsk::Permission(request), Some(decision)) = (&gate.ask, decision) {
            self.event(
                gate.loop_id,
                turn,
                cause,
                EventBody::PermissionDecided {
                    gate_id,
                    tool_use_id: request.tool_use_id.clone(),
                    decision,
                    source,
                },
            );
        }
        self.live.gates.remove(&gate_id);
        self.effect(Effect::AnswerGate { gate_id, value });
    }
}

fn decided(reply: &GateReply) -> Option<Decided> {
    match reply {
        GateReply::ApproveOnce => Some(Decided::ApproveOnce),
        GateReply::ApproveAlways => Some(Decided::ApproveAlwaysWorkspace),
        GateReply::Deny(_) => Some(Decided::Deny),
        GateReply::Answer(_) | GateReply::Decline => None,
    }
}

fn value_of(reply: GateReply) -> GateValue {
    match reply {
        GateReply::ApproveOnce => GateValue::Approval(ApprovalDecision::ApproveOnce),
        GateReply::ApproveAlways => GateValue::Approval(ApprovalDecision::ApproveAlways),
        GateReply::Deny(message) => GateValue::Approval(ApprovalDecision::Deny(message)),
        GateReply::Answer(lists) => GateValue::Form(FormAnswer::Submitted(lists)),
        GateReply::Decline => GateValue::Form(FormAnswer::Dismissed),
    }
}

/// The durable command of an answer; secret values are not in it (S81).
fn reply_command(session_id: crate::ids::SessionId, gate: &Gate, reply: &GateReply) -> CommandBody {
    let (loop_id, gate_id, tool_execution_id) =
        (gate.loop_id, gate.gate_id, gate.tool_execution_id);
    match reply {
        GateReply::ApproveOnce | GateReply::ApproveAlways => CommandBody::ApproveToolCall {
            session_id,
            loop_id,
            gate_id,
            tool_execution_id,
            action: if matches!(reply, GateReply::ApproveOnce) {
                ApproveAction::ApproveOnce
            } else {
                ApproveAction::ApproveAlwaysWorkspace
            },
        },
        GateReply::Deny(message) => CommandBody::DenyToolCall {
            session_id,
            loop_id,
            gate_id,
            tool_execution_id,
            message: message.clone(),
        },
        GateReply::Answer(lists) => CommandBody::ProvideUserInput {
            session_id,
            loop_id,
            gate_id,
            tool_execution_id,
            answer: Some(redacted(lists, &gate.ask)),
            decline: false,
        },
        GateReply::Decline => CommandBody::ProvideUserInput {
            session_id,
            loop_id,
            gate_id,
            tool_execution_id,
            answer: None,
            decline: true,
        },
    }
}

fn redacted(lists: &[Vec<String>], ask: &GateAsk) -> Vec<Stored> {
    let questions: &[_] = match ask {
        GateAsk::AskUser(QuestionForm { questions, .. }) => questions,
        GateAsk::Permission(_) => &[],
    };
    lists
        .iter()
        .zip(questions)
        .map(|(values, question)| {
            if question.secret {
                Stored::Redacted { redacted: true }
            } else {
                Stored::Values(values.clone())
            }
        })
        .collect()
}
