//! How a delegate request is folded: its intent, its acceptance, the turn that is its, its end, and
//! the hand-back (S72, S73, S96).
//!
//! A part of [`super::apply`], which calls it. A request ends where the journal says that its turn
//! ended, or that it left the inbox; that the end was written down, and handed back, are records of
//! their own, so that a crash between them is repaired and nothing is handed back twice.

use super::Contradiction;
use super::state::{DelegateRequest, LoopState, RequestEnd, RequestStage, State, Waiting};
use crate::command::{CommandHeader, DeliveryPhase};
use crate::content::Block;
use crate::event::{CancelReason, DeliveryState, Event, EventBody, Failure};
use crate::ids::{CommandId, LoopId, Seq, TurnId};
use crate::provider::InputOrigin;

/// What a message between loops adds to an input.
pub(super) struct Sent {
    pub(super) background: bool,
    pub(super) phase: Option<DeliveryPhase>,
}

fn contradiction<T>(seq: Seq, what: String) -> Result<T, Contradiction> {
    Err(Contradiction { seq, what })
}

impl State {
    /// An input that a loop sent to a child of it: an intent, or the second record of one.
    pub(super) fn apply_request(
        &mut self,
        child: LoopId,
        parent: LoopId,
        mut waiting: Waiting,
        sent: Sent,
        seq: Seq,
    ) -> Result<(), Contradiction> {
        let id = waiting.command_id;
        let of = self.loop_mut(child, seq)?;
        if of.parent != Some(parent) {
            return contradiction(seq, format!("request {id} does not come from the parent"));
        }
        if sent.phase == Some(DeliveryPhase::FallbackQueued) {
            let queued = of.inbox.iter_mut().find(|w| w.command_id == id);
            let Some(queued) = queued.filter(|w| w.from == Some(parent)) else {
                return contradiction(seq, format!("request {id} is queued that does not wait"));
            };
            queued.no_fold = true;
            return Ok(());
        }
        waiting.origin = InputOrigin::Delegate(id.to_string());
        waiting.from = Some(parent);
        waiting.redeliver = sent.phase.is_some();
        let request = DelegateRequest {
            parent,
            background: sent.background,
            withdrawn: false,
            handed_back: false,
            stage: RequestStage::Intent(waiting),
        };
        match of.requests.insert(id, request) {
            None => Ok(()),
            Some(_) => contradiction(seq, format!("request {id} is sent twice")),
        }
    }

    /// The intent counts from here. Record and command agree on the route (S73).
    pub(super) fn apply_accepted(
        &mut self,
        event: &Event,
        parent: LoopId,
        background: bool,
        seq: Seq,
    ) -> Result<(), Contradiction> {
        let id = event.cause.command_id.unwrap_or_default();
        let of = self.loop_mut(event.loop_id, seq)?;
        let request = of.requests.get_mut(&id);
        let fits = |r: &&mut DelegateRequest| r.parent == parent && r.background == background;
        let Some(request) = request.filter(fits) else {
            return contradiction(seq, format!("request {id} was accepted on another route"));
        };
        match std::mem::replace(&mut request.stage, RequestStage::Queued) {
            RequestStage::Intent(waiting) => {
                of.inbox.push_back(waiting);
                Ok(())
            }
            _ => contradiction(seq, format!("request {id} is accepted twice")),
        }
    }

    pub(super) fn apply_delivery(
        &mut self,
        event: &Event,
        state: DeliveryState,
        error: Option<Failure>,
        seq: Seq,
    ) -> Result<(), Contradiction> {
        let id = event.cause.command_id.unwrap_or_default();
        let of = self.loop_mut(event.loop_id, seq)?;
        let request = of.requests.get_mut(&id).map(|r| &mut r.stage);
        let turn = match request.as_deref() {
            Some(RequestStage::Queued) if !state.is_settled() => return Ok(()),
            Some(RequestStage::Ended(end)) if state.is_settled() => end.turn,
            _ => return contradiction(seq, format!("request {id} cannot be {}", state.as_str())),
        };
        if let Some(stage) = request {
            *stage = RequestStage::Settled(RequestEnd { turn, state, error });
        }
        of.prune_requests();
        Ok(())
    }

    pub(super) fn apply_withdrawn(
        &mut self,
        child: LoopId,
        id: CommandId,
        seq: Seq,
    ) -> Result<(), Contradiction> {
        if let Some(request) = self.loop_mut(child, seq)?.requests.get_mut(&id) {
            request.withdrawn = true;
        }
        Ok(())
    }

    /// A child's result comes to its parent, once.
    pub(super) fn apply_hand_back(
        &mut self,
        header: &CommandHeader,
        parent: LoopId,
        blocks: &[Block],
        seq: Seq,
    ) -> Result<(), Contradiction> {
        let child = header.cause.loop_id.unwrap_or_default();
        let id = header.cause.command_id.unwrap_or_default();
        let request = self
            .loops
            .get_mut(&child)
            .and_then(|l| l.requests.get_mut(&id));
        let owed = |r: &&mut DelegateRequest| {
            let settled = matches!(r.stage, RequestStage::Settled(_));
            settled && r.parent == parent && r.owes_hand_back()
        };
        let Some(request) = request.filter(owed) else {
            return contradiction(seq, format!("request {id} hands back what it does not owe"));
        };
        request.handed_back = true;
        if let Some(of) = self.loops.get_mut(&child) {
            of.prune_requests();
        }
        self.loop_mut(parent, seq)?.inbox.push_back(Waiting {
            command_id: header.command_id,
            agency: header.agency,
            blocks: blocks.into(),
            no_fold: false,
            fold_only: false,
            held: false,
            created_at: header.created_at,
            origin: InputOrigin::Delegate(id.to_string()),
            from: Some(child),
            redeliver: true,
        });
        Ok(())
    }

    /// Intents that a lost host did not accept were never sent (S73).
    pub(super) fn forget_intents(&mut self) {
        for l in self.loops.values_mut() {
            l.requests.retain(|_, r| !r.is_intent());
        }
    }
}

impl LoopState {
    /// The request of that input, if it is one, has its turn.
    pub(super) fn open_request(&mut self, input: CommandId, turn: TurnId) {
        if let Some(request) = self.requests.get_mut(&input)
            && matches!(request.stage, RequestStage::Queued)
        {
            request.stage = RequestStage::Open(turn);
        }
    }

    /// The request of that input, if it is one, left the inbox without a turn.
    pub(super) fn end_queued_request(&mut self, input: CommandId, reason: Option<CancelReason>) {
        let Some(request) = self.requests.get_mut(&input) else {
            return;
        };
        if !matches!(request.stage, RequestStage::Queued) {
            return;
        }
        let (state, error) = match reason {
            Some(CancelReason::ClientRetracted) => (DeliveryState::Cancelled, None),
            Some(CancelReason::ShuttingDown) => (DeliveryState::Cancelled, None),
            Some(CancelReason::TurnInterrupted) => (DeliveryState::Interrupted, None),
            Some(CancelReason::TurnFailed) => ended("turn_failed", "the turn before it failed"),
            Some(CancelReason::LoopExited) => ended(
                "loop_exited",
                "the delegate's runtime could not be restored",
            ),
            Some(CancelReason::TurnEnded | CancelReason::Internal) | None => {
                ended("internal", "the host could not start it")
            }
        };
        request.stage = RequestStage::Ended(RequestEnd {
            turn: TurnId::ZERO,
            state,
            error,
        });
    }

    /// The turn of these requests ended.
    pub(super) fn end_open_requests(&mut self, event: &Event) {
        let (state, error) = match &event.body {
            EventBody::TurnFailed { error, .. } => (DeliveryState::Failed, Some(error.clone())),
            EventBody::TurnInterrupted { .. } => (DeliveryState::Interrupted, None),
            _ => (DeliveryState::Completed, None),
        };
        for request in self.requests.values_mut() {
            if matches!(request.stage, RequestStage::Open(turn) if turn == event.turn_id) {
                request.stage = RequestStage::Ended(RequestEnd {
                    turn: event.turn_id,
                    state: if request.withdrawn && state == DeliveryState::Interrupted {
                        DeliveryState::Cancelled
                    } else {
                        state
                    },
                    error: error.clone(),
                });
            }
        }
    }
}

fn ended(code: &str, message: &str) -> (DeliveryState, Option<Failure>) {
    let error = Failure {
        code: code.into(),
        message: message.into(),
    };
    (DeliveryState::Failed, Some(error))
}
