//! The inbox as a client handles it: retract and release (S46, S52), and folding (S42).

use super::Out;
use super::arrival::Arrival;
use crate::command::{Agency, Cause, CommandBody};
use crate::event::{CancelReason, EventBody};
use crate::ids::{CommandId, LoopId, MessageId, TurnId};
use crate::refusal::Refused;
use crate::session::{Answer, InvocationId, Origin, Waiting};

impl Out<'_, '_> {
    pub(super) fn retract(&mut self, origin: Origin, target: CommandId) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        let found = self.session.state.loops.values().find_map(|l| {
            l.inbox
                .iter()
                .find(|w| w.command_id == target)
                .map(|w| (l.id, cause_of(w)))
        });
        let Some((loop_id, cause)) = found else {
            return Answer::Bool(false);
        };
        let session_id = self.session.state.id;
        self.command(
            origin,
            Agency::User,
            CommandBody::CancelQueuedInput {
                session_id,
                loop_id,
                target_command_id: target,
            },
        );
        self.event(
            loop_id,
            TurnId::ZERO,
            cause,
            EventBody::InputCancelled {
                reason: CancelReason::ClientRetracted,
            },
        );
        Answer::Bool(true)
    }

    pub(super) fn release(
        &mut self,
        origin: Origin,
        loop_id: Option<LoopId>,
        targets: &[CommandId],
    ) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        if let Some(id) = loop_id
            && self.loop_state(id).is_none()
        {
            return self.refuse(Refused::LoopNotFound(id.to_string()));
        }
        let released: Vec<(LoopId, CommandId)> = self
            .session
            .state
            .loops
            .values()
            .filter(|l| loop_id.is_none_or(|id| id == l.id))
            .flat_map(|l| {
                l.inbox
                    .iter()
                    .filter(|w| w.held)
                    .map(move |w| (l.id, w.command_id))
            })
            .filter(|(_, id)| targets.is_empty() || targets.contains(id))
            .collect();
        let ids: Vec<CommandId> = released.iter().map(|(_, id)| *id).collect();
        if !ids.is_empty() {
            let session_id = self.session.state.id;
            let target_loop = loop_id.unwrap_or(self.active());
            self.command(
                origin,
                Agency::User,
                CommandBody::ReleaseHeldInput {
                    session_id,
                    loop_id: target_loop,
                    target_command_ids: ids.clone(),
                },
            );
        }
        for (loop_id, id) in released {
            self.event(
                loop_id,
                TurnId::ZERO,
                Cause::by(id),
                EventBody::InputReleased {},
            );
        }
        Answer::Released(ids)
    }

    /// Folds the inputs at the head of the inbox into the running turn, up to the first that must
    /// not fold, and the ends of background processes, which are in no inbox (S97). Each is durable
    /// as folded before the provider sees it (N16).
    pub(super) fn take_input(&mut self, invocation: InvocationId) -> Answer {
        if let Some(error) = self.channel_closed(invocation) {
            return Answer::Channel(error);
        }
        let Some(owner) = self
            .live
            .owner_of(invocation)
            .filter(|o| o.runner == invocation)
            .cloned()
        else {
            return Answer::Inputs(Vec::new());
        };
        let info = self.harness_of(owner.loop_id);
        if !info.is_some_and(|h| h.features.folding) {
            return Answer::Inputs(Vec::new());
        }
        let (Some(turn_id), Some(loop_state)) = (owner.turn, self.loop_state(owner.loop_id)) else {
            return Answer::Inputs(Vec::new());
        };
        let inbox = loop_state.inbox.iter();
        let said = inbox.filter(|w| !w.held).take_while(|w| !w.no_fold);
        let ended = self.live.of(owner.loop_id).notices(loop_state);
        let waiting: Vec<Arrival> = said
            .map(Arrival::of_input)
            .chain(ended.map(|notice| Arrival::of_notice(loop_state, notice)))
            .collect();
        let mut inputs = Vec::new();
        for arrival in waiting {
            let Some(id) = self.cx.ids.mint() else { break };
            inputs.push(self.fold(owner.loop_id, turn_id, arrival, MessageId(id)));
        }
        Answer::Inputs(inputs)
    }

    /// Empties the inbox of what does not outlive the end of a turn (S44).
    pub(super) fn cancel_waiting(&mut self, loop_id: LoopId, failed: bool, interrupted: bool) {
        let Some(loop_state) = self.loop_state(loop_id) else {
            return;
        };
        let closing = self.live.closing;
        // A host that shuts down leaves what the next start delivers.
        let outlives = |w: &Waiting| !w.agency.is_machine() || closing && w.redeliver;
        let gone: Vec<_> = loop_state
            .inbox
            .iter()
            .filter(|w| !w.held)
            .filter_map(|w| {
                let reason = if failed {
                    CancelReason::TurnFailed
                } else if interrupted && !outlives(w) {
                    CancelReason::TurnInterrupted
                } else if w.fold_only {
                    CancelReason::TurnEnded
                } else {
                    return None;
                };
                Some((cause_of(w), reason))
            })
            .collect();
        for (cause, reason) in gone {
            self.cancel_input(loop_id, cause, reason);
        }
    }

    /// An input leaves its inbox without a turn.
    pub(super) fn cancel_input(&mut self, loop_id: LoopId, cause: Cause, reason: CancelReason) {
        let body = EventBody::InputCancelled { reason };
        self.event(loop_id, TurnId::ZERO, cause, body);
    }
}

/// The cause that an input's resolution names (S50): its command, who wanted it, and the loop it
/// came from, if it did.
pub(super) fn cause_of(waiting: &Waiting) -> Cause {
    Cause {
        command_id: Some(waiting.command_id),
        loop_id: waiting.from,
        agency: Some(waiting.agency),
    }
}
