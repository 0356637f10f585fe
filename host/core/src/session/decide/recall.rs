//! Taking a delegate request back, and stopping a delegate (S4, S90, S92).

use super::Out;
use super::delegate::Delegated;
use super::queue::cause_of;
use crate::abort::AbortReason;
use crate::command::{Agency, Cause, CommandBody};
use crate::event::CancelReason;
use crate::gate::CloseReason;
use crate::ids::{CommandId, LoopId};
use crate::provider::{CancelledAt, DelegationError};
use crate::session::{Answer, DelegateAnswer, Effect, RequestStage, Waiting};
use std::collections::BTreeSet;

impl Out<'_, '_> {
    /// Only this takes back what was accepted: that the caller is gone does not (S96).
    pub(super) fn cancel_request(&mut self, parent: LoopId, request: CommandId) -> Delegated {
        let (child, of) = self.request_of(parent, request)?;
        let at = match of.stage {
            RequestStage::Queued => CancelledAt::Queued,
            RequestStage::Open(_) => CancelledAt::Active,
            _ => return Ok(DelegateAnswer::Cancelled(CancelledAt::Noop)),
        };
        let Some(id) = self.cx.ids.mint().map(CommandId) else {
            return Err(DelegationError::Failed("no id could be made".into()));
        };
        let body = CommandBody::CancelDelegateRequest {
            session_id: self.session.state.id,
            loop_id: child,
            target_command_id: request,
        };
        self.machine_command(id, from(parent), body);
        match at {
            CancelledAt::Queued => {
                let queued = self.waiting_in(child, |w| w.command_id == request);
                for cause in queued {
                    self.cancel_input(child, cause, CancelReason::ClientRetracted);
                }
            }
            _ => self.claim_stop_of(id, self.session.state.subtree(child)),
        }
        Ok(DelegateAnswer::Cancelled(at))
    }

    /// The child stays what it is and can be told more (S92).
    pub(super) fn stop_delegate(
        &mut self,
        parent: LoopId,
        child: LoopId,
    ) -> Result<Answer, DelegationError> {
        if self.child_of(parent, child)?.closed {
            return Err(DelegationError::Exited);
        }
        let scope = self.session.state.subtree(child);
        if let Some(stop) = self.live.stops.iter().find(|s| s.loops.is_superset(&scope)) {
            return Ok(Answer::Stopping(stop.command_id));
        }
        if self.stop_targets(&scope).is_empty() {
            return Ok(Answer::Bool(false));
        }
        let Some(id) = self.cx.ids.mint().map(CommandId) else {
            return Err(DelegationError::Failed("no id could be made".into()));
        };
        self.machine_command(id, from(parent), CommandBody::Interrupt {});
        self.claim_stop_of(id, scope);
        Ok(Answer::Stopping(id))
    }

    fn claim_stop_of(&mut self, id: CommandId, scope: BTreeSet<LoopId>) {
        let targets = self.stop_targets(&scope);
        self.claim_stop(id, targets, AbortReason::UserStop, CloseReason::Abandoned);
        self.effect(Effect::WatchBarrier(id));
    }

    /// What machines said and no turn has taken goes with a stop; where a turn runs, its end takes
    /// it along (S44).
    pub(super) fn cancel_machine_inputs(&mut self, loop_id: LoopId) {
        if self.live.of(loop_id).owner.is_some() {
            return;
        }
        let gone = self.waiting_in(loop_id, is_machine);
        for cause in gone {
            self.cancel_input(loop_id, cause, CancelReason::TurnInterrupted);
        }
    }

    pub(super) fn has_machine_inputs(&self, loop_id: LoopId) -> bool {
        let of = self.loop_state(loop_id);
        of.is_some_and(|l| l.inbox.iter().any(is_machine))
    }

    fn waiting_in(&self, loop_id: LoopId, which: impl Fn(&Waiting) -> bool) -> Vec<Cause> {
        let of = self.loop_state(loop_id).into_iter();
        let waiting = of.flat_map(|l| l.inbox.iter());
        waiting.filter(|w| which(w)).map(cause_of).collect()
    }
}

fn is_machine(waiting: &Waiting) -> bool {
    !waiting.held && waiting.agency == Agency::Machine
}

/// The cause of what a loop does to a delegate of it.
fn from(parent: LoopId) -> Cause {
    Cause {
        loop_id: Some(parent),
        ..Cause::default()
    }
}
