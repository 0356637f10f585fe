//! Gates: opened by a provider, answered once by a person or their policy, closed with their run (S80-S86).

use super::Out;
use crate::command::{Agency, Answer as Stored, Answers, ApproveAction, Cause, CommandBody};
use crate::event::{Decided, EventBody};
use crate::gate::{
    AnswerSource, ApprovalDecision, CloseReason, FormAnswer, Gate, GateAsk, GateReply, HostAnswer,
    QuestionForm, shown,
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
        if ask.is_hosts() {
            // No loop opens what the host resolves (S81).
            return Answer::Channel(ChannelError::Denied(
                "this kind of gate is the host's".into(),
            ));
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

    pub(super) fn open_gate(
        &mut self,
        loop_id: crate::ids::LoopId,
        turn: TurnId,
        cause: Cause,
        gate: Gate,
    ) {
        let gate_id = gate.gate_id;
        let prepared = EventBody::GatePrepared {
            gate_id,
            tool_execution_id: gate.tool_execution_id,
            ask: gate.ask.clone(),
        };
        let requested = match &gate.ask {
            GateAsk::Permission(request) => Some(EventBody::PermissionRequested {
                gate_id,
                tool_use_id: request.tool_use_id.clone(),
                tool_name: request.tool_name.clone(),
            }),
            GateAsk::AskUser(form) => Some(EventBody::UserInputRequested {
                gate_id,
                title: form.title.clone(),
            }),
            GateAsk::Form(_) | GateAsk::OpenUrl(_) => None,
        };
        let opened = EventBody::GateOpened { gate };
        for body in [Some(prepared), requested, Some(opened)]
            .into_iter()
            .flatten()
        {
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
        self.live.claimed.remove(&gate_id);
        if gate.ask.is_hosts() {
            let answer = HostAnswer::Closed(reason);
            self.effect(Effect::AnswerHostGate { gate_id, answer });
            return;
        }
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
        let state = &self.session.state;
        let of_a_loop = state.loops.values().find_map(|l| l.gates.get(&id));
        of_a_loop.or_else(|| state.host_gates.get(&id)).cloned()
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

    /// A gate that is being claimed belongs to whoever claimed it.
    pub(super) fn answer(&mut self, origin: Origin, gate_id: GateId, reply: GateReply) -> Answer {
        match self.answerable(gate_id, &reply) {
            Ok(gate) if self.live.claimed.contains(&gate.gate_id) => {
                self.refuse(Refused::GateNotReady)
            }
            Ok(gate) => self.take_answer(origin, &gate, reply),
            Err(refused) => self.refuse(refused),
        }
    }

    pub(super) fn answer_claimed(
        &mut self,
        origin: Origin,
        gate_id: GateId,
        reply: GateReply,
    ) -> Answer {
        match self.answerable(gate_id, &reply) {
            Ok(gate) => self.take_answer(origin, &gate, reply),
            Err(refused) => self.refuse(refused),
        }
    }

    fn take_answer(&mut self, origin: Origin, gate: &Gate, reply: GateReply) -> Answer {
        let cause = Cause::by(origin.command_id);
        let command = reply_command(self.session.state.id, gate, &reply);
        self.command(origin, Agency::User, command);
        let decision = decided(&reply);
        let value = value_of(reply, &gate.ask);
        self.answered(gate, cause, AnswerSource::Human, decision, value);
        Answer::Accepted
    }

    /// Claims a gate for an answer that needs something else first (S80, S83). In memory only.
    pub(super) fn claim_gate(&mut self, gate_id: GateId, reply: &GateReply) -> Answer {
        match self.answerable(gate_id, reply) {
            Ok(gate) if self.live.claimed.insert(gate.gate_id) => Answer::Claimed(Box::new(gate)),
            Ok(_) => self.refuse(Refused::GateNotReady),
            Err(refused) => self.refuse(refused),
        }
    }

    /// The open gate, if that answer fits it. A reply is routed by the gate, or else by the
    /// execution that it belongs to (S84).
    fn answerable(&self, id: GateId, reply: &GateReply) -> Result<Gate, Refused> {
        if let Some(fault) = &self.live.faulted {
            return Err(fault.refused());
        }
        let of_execution = |g: &Gate| g.tool_execution_id.0 == id.0;
        let found = self.gate(id);
        let found = found.or_else(|| self.session.state.gates().into_iter().find(of_execution));
        let gate = found.ok_or(Refused::GateNotFound)?;
        reply.check(&gate.ask)?;
        Ok(gate)
    }

    /// S86: the same path as an answer, without a person. A person who was earlier has won, also
    /// one whose answer is under way.
    pub(super) fn gate_timeout(&mut self, gate_id: GateId) -> Answer {
        if self.live.faulted.is_some() || self.live.claimed.contains(&gate_id) {
            return Answer::None;
        }
        let Some(gate) = self.gate(gate_id) else {
            return Answer::None;
        };
        let (decision, value) = match &gate.ask {
            GateAsk::Permission(_) => (
                Some(Decided::Timeout),
                Value::Loops(GateValue::Approval(ApprovalDecision::Timeout)),
            ),
            GateAsk::AskUser(_) => (None, Value::Loops(GateValue::Form(FormAnswer::Timeout))),
            GateAsk::Form(_) | GateAsk::OpenUrl(_) => (None, Value::Hosts(HostAnswer::Timeout)),
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
        value: Value,
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
        self.live.claimed.remove(&gate_id);
        self.effect(match value {
            Value::Loops(value) => Effect::AnswerGate { gate_id, value },
            Value::Hosts(answer) => Effect::AnswerHostGate { gate_id, answer },
        });
    }
}

/// What a gate is answered with, by who waits for it.
enum Value {
    Loops(GateValue),
    Hosts(HostAnswer),
}

fn decided(reply: &GateReply) -> Option<Decided> {
    match reply {
        GateReply::ApproveOnce => Some(Decided::ApproveOnce),
        GateReply::ApproveAlways => Some(Decided::ApproveAlwaysWorkspace),
        GateReply::Deny(_) => Some(Decided::Deny),
        GateReply::Answer(_) | GateReply::Fill(_) | GateReply::Confirm | GateReply::Decline => None,
    }
}

fn value_of(reply: GateReply, ask: &GateAsk) -> Value {
    if ask.is_hosts() {
        return Value::Hosts(match &reply {
            GateReply::Decline => HostAnswer::Declined,
            reply => match reply.values(ask) {
                Some(values) => HostAnswer::Filled(values),
                None => HostAnswer::Opened,
            },
        });
    }
    Value::Loops(match reply {
        GateReply::ApproveOnce => GateValue::Approval(ApprovalDecision::ApproveOnce),
        GateReply::ApproveAlways => GateValue::Approval(ApprovalDecision::ApproveAlways),
        GateReply::Deny(message) => GateValue::Approval(ApprovalDecision::Deny(message)),
        GateReply::Answer(lists) => GateValue::Form(FormAnswer::Submitted(lists)),
        // A form of the host alone takes these (`GateReply::check`).
        GateReply::Fill(_) | GateReply::Confirm | GateReply::Decline => {
            GateValue::Form(FormAnswer::Dismissed)
        }
    })
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
            answer: Some(Answers::Questions(redacted(lists, &gate.ask))),
            decline: false,
        },
        GateReply::Fill(_) | GateReply::Confirm => CommandBody::ProvideUserInput {
            session_id,
            loop_id,
            gate_id,
            tool_execution_id,
            answer: Some(match (&gate.ask, reply.values(&gate.ask)) {
                (GateAsk::Form(form), Some(values)) => {
                    Answers::Fields(shown(&form.fields, &values))
                }
                _ => Answers::Questions(Vec::new()),
            }),
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
        GateAsk::Permission(_) | GateAsk::Form(_) | GateAsk::OpenUrl(_) => &[],
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
