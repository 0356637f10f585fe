//! Stop and shutdown: claim first, then abort everything (R67, S58, N12-N14).

use super::Out;
use crate::abort::AbortReason;
use crate::command::{Agency, CommandBody};
use crate::event::InterruptReason;
use crate::gate::CloseReason;
use crate::ids::CommandId;
use crate::provider::ChannelError;
use crate::session::{Answer, Effect, InvocationId, LinkId, Origin, Stop};

impl Out<'_, '_> {
    pub(super) fn interrupt(&mut self, origin: Origin) -> Answer {
        if self.live.faulted.is_some() {
            // Its runners were aborted by the fault; nothing can be written.
            return Answer::Bool(self.live.owner.as_ref().is_some_and(|o| o.turn.is_some()));
        }
        if self.live.stop.is_some() {
            return Answer::Stopping;
        }
        let something = self.live.owner.is_some()
            || !self.live.activities.is_empty()
            || !self.live.announced.is_empty()
            || self.live.paced > 0;
        if !something {
            return Answer::Bool(false);
        }
        let command_id = origin.command_id;
        self.command(origin, Agency::User, CommandBody::Interrupt {});
        self.claim_stop(
            command_id,
            InterruptReason::User,
            AbortReason::UserStop,
            CloseReason::Abandoned,
        );
        Answer::Stopping
    }

    fn claim_stop(
        &mut self,
        command_id: CommandId,
        reason: InterruptReason,
        abort: AbortReason,
        gates: CloseReason,
    ) {
        self.live.stop = Some(Stop { command_id, reason });
        let runner = self.live.owner.as_ref().map(|o| o.runner);
        let controls: Vec<InvocationId> = self
            .live
            .owner
            .iter()
            .flat_map(|o| o.invocations.keys().copied())
            .filter(|id| Some(*id) != runner)
            .collect();
        for invocation in controls {
            self.abort_one(invocation, abort);
        }
        if !self.live.activities.is_empty() {
            self.effect(Effect::AbortActivities);
        }
        if let Some(runner) = runner {
            self.abort_one(runner, abort);
        }
        for announced in std::mem::take(&mut self.live.announced) {
            let result = Err(ChannelError::Stopped);
            self.effect(Effect::AnswerAnnouncement {
                id: announced.id,
                result,
            });
        }
        self.close_gates(None, gates, &ChannelError::Stopped);
        // Controls that wait for a starting prompt learn that the session is stopping.
        self.effect(Effect::RetryWaiting);
    }

    /// One that begins while everything is being stopped is stopped with the others (N13).
    pub(super) fn activity_began(&mut self, id: LinkId, label: String) -> Answer {
        self.live.activities.insert(id, label);
        if self.live.stop.is_some() || self.live.faulted.is_some() {
            self.effect(Effect::AbortActivities);
        }
        Answer::Accepted
    }

    pub(super) fn activities_settled(&mut self) -> Answer {
        self.live.activities.clear();
        Answer::None
    }

    /// The host shuts down. Waiting inputs stay without resolution; the next start holds them.
    pub(super) fn close(&mut self) -> Answer {
        if self.live.closing {
            return Answer::None;
        }
        self.live.closing = true;
        let live = self.live.owner.is_some()
            || !self.live.activities.is_empty()
            || !self.live.announced.is_empty();
        if live && self.live.stop.is_none() && self.live.faulted.is_none() {
            self.claim_stop(
                CommandId::ZERO,
                InterruptReason::Shutdown,
                AbortReason::Shutdown,
                CloseReason::OwnerClosed,
            );
        }
        Answer::None
    }
}
