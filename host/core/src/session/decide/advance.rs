//! What can go on now: the end of a stop, announced turns, queued prompts, idleness.
//!
//! Fed after every other input, until it changes nothing. One step a decision, so that what a step
//! depends on is durable before the next one (a first prompt after a stop starts only when
//! `SessionIdle` is durable, I32).

use super::Out;
use super::arrival::Arrival;
use crate::command::Cause;
use crate::event::{CancelReason, EventBody, RejectReason};
use crate::ids::{LoopId, MessageId, RunId, TurnId};
use crate::provider::TurnStart;
use crate::session::{Answer, DelegateRequest, Effect, LoopState, Waiting};

impl Out<'_, '_> {
    pub(super) fn advance(&mut self) -> Answer {
        if self.live.faulted.is_none() && self.advance_workspace() {
            return Answer::None;
        }
        let session = self.session;
        for loop_id in session.state.loops.keys() {
            if self.advance_loop(*loop_id) {
                return Answer::None;
            }
        }
        if self.live.faulted.is_none() {
            self.go_idle();
            self.end_stops();
            self.finish_shutdown();
        }
        self.leave_workspace();
        Answer::None
    }

    /// What a loop can go on with. True: something was started, or waits for a slot since now.
    fn advance_loop(&mut self, loop_id: LoopId) -> bool {
        if self.live.faulted.is_none() {
            self.settle_announcements(loop_id);
        }
        if self.live.of(loop_id).owner.is_some() {
            return false;
        }
        if self.can_compact(loop_id).is_ok() && self.start_compaction(loop_id) {
            return true;
        }
        if self.can_admit(loop_id).is_ok() {
            if self.start_native(loop_id, TurnStart::Running)
                || self.start_next_prompt(loop_id)
                || self.start_next_notice(loop_id)
                || self.start_native(loop_id, TurnStart::Wanted)
            {
                return true;
            }
            if self.live.of(loop_id).waits_for_slot && self.wants_slot(loop_id) {
                return false;
            }
        } else {
            self.watch_for(loop_id);
        }
        self.give_slot_back(loop_id);
        false
    }

    /// Starts the oldest prompt of the loop that may start. True if it was started or rejected.
    fn start_next_prompt(&mut self, loop_id: LoopId) -> bool {
        let state = self.loop_state(loop_id);
        let Some(next) = state.and_then(LoopState::next_input).cloned() else {
            return false;
        };
        if !self.have_slot(loop_id) {
            return false;
        }
        let (Some(run), Some(turn), Some(message)) =
            (self.cx.ids.mint(), self.cx.ids.mint(), self.cx.ids.mint())
        else {
            let of = self.loop_state(loop_id);
            let hand_back =
                next.from.is_some() && !of.is_some_and(|l| l.is_request(next.command_id));
            let body = if hand_back {
                // It has no rejection path (S41).
                EventBody::InputCancelled {
                    reason: CancelReason::Internal,
                }
            } else {
                EventBody::TurnRejected {
                    reason: RejectReason::Internal,
                    retryable: true,
                }
            };
            let cause = Cause {
                loop_id: next.from,
                ..Cause::by(next.command_id)
            };
            self.event(loop_id, TurnId::ZERO, cause, body);
            return true;
        };
        let ids = (RunId(run), TurnId(turn), MessageId(message));
        self.start_turn(loop_id, Arrival::of_input(&next), ids);
        true
    }

    /// Starts a turn with the oldest end of a background process that the provider has not seen
    /// (S97). People come first. True if it was started.
    fn start_next_notice(&mut self, loop_id: LoopId) -> bool {
        let Some(state) = self.loop_state(loop_id) else {
            return false;
        };
        let next = self.live.of(loop_id).next_notice(state);
        let Some(arrival) = next.map(|notice| Arrival::of_notice(state, notice)) else {
            return false;
        };
        // Without ids it waits: it has no rejection.
        let (Some(run), Some(turn), Some(message)) =
            (self.cx.ids.mint(), self.cx.ids.mint(), self.cx.ids.mint())
        else {
            return false;
        };
        if !self.have_slot(loop_id) {
            return false;
        }
        let ids = (RunId(run), TurnId(turn), MessageId(message));
        self.start_turn(loop_id, arrival, ids);
        true
    }

    /// Makes sure of a slot: the one held, the one offered, or a wish for one.
    pub(super) fn have_slot(&mut self, loop_id: LoopId) -> bool {
        if self.live.of(loop_id).slot || self.take_slot(loop_id) || self.borrow_slot(loop_id) {
            return true;
        }
        let live = self.live.of_mut(loop_id);
        if !live.waits_for_slot {
            live.waits_for_slot = true;
            self.effect(Effect::WaitForSlot(loop_id));
        }
        false
    }

    /// Takes the slot that is offered, if one is. There is one offer to a decision.
    pub(super) fn take_slot(&mut self, loop_id: LoopId) -> bool {
        if !std::mem::take(&mut self.cx.slot_free) {
            return false;
        }
        self.install_slot(loop_id);
        self.effect(Effect::TakeSlot(loop_id));
        true
    }

    pub(super) fn install_slot(&mut self, loop_id: LoopId) {
        let live = self.live.of_mut(loop_id);
        live.slot = true;
        live.waits_for_slot = false;
    }

    /// Whether what the slot was wished for is still there.
    fn wants_slot(&self, loop_id: LoopId) -> bool {
        let live = self.live.of(loop_id);
        self.loop_state(loop_id)
            .is_some_and(|l| live.wants_a_turn(l))
    }

    pub(super) fn give_slot_back(&mut self, loop_id: LoopId) {
        if self.live.of(loop_id).slot || self.live.of(loop_id).waits_for_slot {
            let live = self.live.of_mut(loop_id);
            live.slot = false;
            live.overdrawn = false;
            live.waits_for_slot = false;
            self.effect(Effect::ReleaseSlot(loop_id));
        }
    }

    /// Writes the idle edges together with the end of a run when nothing can follow it, which
    /// saves an append. What may follow is left to [`Self::advance`].
    pub(super) fn rest_after(
        &mut self,
        loop_id: LoopId,
        turn: bool,
        failed: bool,
        interrupted: bool,
    ) {
        let stays = |w: &Waiting| !(failed || interrupted && w.agency.is_machine());
        let prompt = |w: &Waiting| !w.held && !w.fold_only && stays(w);
        let follows = |l: &LoopState| {
            !l.compact_waiters.is_empty() || l.inbox.iter().any(prompt) || l.has_notices()
        };
        let waits = self.loop_state(loop_id).is_some_and(follows)
            || !self.live.of(loop_id).announced.is_empty();
        if waits || self.live.is_marked(loop_id) || !self.session.state.active {
            return;
        }
        if turn {
            self.idle_event(loop_id);
        }
        self.give_slot_back(loop_id);
        let others = |l: &LoopState| {
            let live = self.live.of(l.id);
            l.id != loop_id
                && (l.running
                    || l.next_input().is_some()
                    || l.has_notices()
                    || live.owner.is_some()
                    || !live.announced.is_empty())
        };
        let hand_back = |r: &DelegateRequest| r.is_open() && r.owes_hand_back();
        let state = self.loop_state(loop_id);
        let wakes = state.is_some_and(|l| l.requests.values().any(hand_back));
        if !wakes && !self.session.state.loops.values().any(others) {
            self.go_quiet();
        }
    }

    fn idle_event(&mut self, loop_id: LoopId) {
        self.event(
            loop_id,
            TurnId::ZERO,
            Cause::default(),
            EventBody::LoopIdle {},
        );
    }

    /// The running→idle edges of loops where nothing runs and nothing starts, and of the session
    /// when that is all of them (S43, S67).
    fn go_idle(&mut self) {
        let idle = |l: &&LoopState| l.running && self.live.of(l.id).owner.is_none();
        let loops = self.session.state.loops.values().filter(idle);
        for loop_id in loops.map(|l| l.id).collect::<Vec<_>>() {
            self.idle_event(loop_id);
        }
        let loops = &self.session.state.loops;
        // A result that is on its way to a loop keeps the session active (S67).
        let wakes = self.closed().is_none() && loops.values().any(LoopState::has_wake_token);
        let works = wakes || self.live.owners().next().is_some();
        if works {
            self.activate();
        } else if self.session.state.active {
            self.go_quiet();
        }
    }
}
