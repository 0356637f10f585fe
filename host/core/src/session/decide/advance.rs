//! What can go on now: the end of a stop, announced turns, queued prompts, idleness.
//!
//! Fed after every other input, until it changes nothing. One step a decision, so that what a step
//! depends on is durable before the next one (a first prompt after a stop starts only when
//! `SessionIdle` is durable, I32).

use super::Out;
use crate::command::Cause;
use crate::content::{Message, Role};
use crate::event::{EventBody, RejectReason};
use crate::ids::{LoopId, MessageId, RunId, TurnId};
use crate::provider::{InputOrigin, PromptInput, TurnStart};
use crate::session::apply::input_parts;
use crate::session::decide::operation::Claim;
use crate::session::{Answer, Effect, Kind, LoopState, Waiting};

impl Out<'_, '_> {
    pub(super) fn advance(&mut self) -> Answer {
        if self.live.faulted.is_some() {
            if self.live.owner.is_none() {
                self.give_slot_back();
            }
            return Answer::None;
        }
        self.settle_announcements();
        if self.live.owner.is_some() {
            return Answer::None;
        }
        if self.live.stop.is_some() {
            self.give_slot_back();
            if self.live.activities.is_empty() {
                self.go_idle();
                self.live.stop = None;
                self.effect(Effect::Stopped);
            }
            return Answer::None;
        }
        if !self.live.closing {
            if self.start_native(TurnStart::Running)
                || self.start_next_prompt()
                || self.start_native(TurnStart::Wanted)
            {
                return Answer::None;
            }
            if self.live.waits_for_slot && self.wants_slot() {
                self.go_idle();
                return Answer::None;
            }
        }
        self.go_idle();
        self.give_slot_back();
        Answer::None
    }

    /// Starts the oldest prompt that may start, or asks for a slot. True if either was done.
    fn start_next_prompt(&mut self) -> bool {
        let session = self.session;
        let Some((loop_id, next)) = session
            .state
            .loops
            .values()
            .find_map(|l| l.next_input().map(|w| (l.id, w.clone())))
        else {
            return false;
        };
        if !self.have_slot() {
            return false;
        }
        let (Some(run), Some(turn), Some(message)) =
            (self.cx.ids.mint(), self.cx.ids.mint(), self.cx.ids.mint())
        else {
            self.event(
                loop_id,
                TurnId::ZERO,
                Cause::by(next.command_id),
                EventBody::TurnRejected {
                    reason: RejectReason::Internal,
                    retryable: true,
                },
            );
            return true;
        };
        self.start_prompt(loop_id, &next, RunId(run), TurnId(turn), MessageId(message));
        true
    }

    fn start_prompt(
        &mut self,
        loop_id: LoopId,
        next: &Waiting,
        run_id: RunId,
        turn_id: TurnId,
        id: MessageId,
    ) {
        self.activate();
        let message = Message {
            id,
            role: Role::User,
            turn_id: Some(turn_id),
            created_at: self.cx.now,
            parts: input_parts(next),
        };
        self.event(
            loop_id,
            turn_id,
            Cause::by_agency(next.command_id, next.agency),
            EventBody::TurnStarted {
                run_id,
                message: Some(message.clone()),
                native: None,
            },
        );
        let invocation = self.claim(Claim {
            run_id,
            loop_id,
            turn: Some(turn_id),
            command_id: next.command_id,
            kind: Kind::Prompt,
            handle: false,
        });
        let input = PromptInput {
            command_id: next.command_id,
            origin: InputOrigin::User,
            parts: message.parts,
        };
        self.effect(Effect::StartPrompt {
            invocation,
            loop_id,
            input,
        });
    }

    /// Makes sure of a slot: the one held, the one offered, or a wish for one.
    pub(super) fn have_slot(&mut self) -> bool {
        if self.live.slot {
            return true;
        }
        if self.cx.slot_free {
            self.live.slot = true;
            self.live.waits_for_slot = false;
            self.effect(Effect::TakeSlot);
            return true;
        }
        if !self.live.waits_for_slot {
            self.live.waits_for_slot = true;
            self.effect(Effect::WaitForSlot);
        }
        false
    }

    /// Whether what the slot was wished for is still there.
    fn wants_slot(&self) -> bool {
        let mut loops = self.session.state.loops.values();
        loops.any(|l| l.next_input().is_some()) || !self.live.announced.is_empty()
    }

    pub(super) fn give_slot_back(&mut self) {
        if self.live.slot || self.live.waits_for_slot {
            self.live.slot = false;
            self.live.overdrawn = false;
            self.live.waits_for_slot = false;
            self.effect(Effect::ReleaseSlot);
        }
    }

    fn idle_loop(&mut self) {
        let running: Vec<_> = self
            .session
            .state
            .loops
            .values()
            .filter(|l| l.running && l.turn.is_none())
            .map(|l| l.id)
            .collect();
        for loop_id in running {
            self.event(
                loop_id,
                TurnId::ZERO,
                Cause::default(),
                EventBody::LoopIdle {},
            );
        }
    }

    /// Writes the idle edges together with the end of a run when nothing can follow it, which
    /// saves an append. What may follow is left to [`Self::advance`].
    pub(super) fn rest_after(&mut self, ended: Option<LoopId>, failed: bool, interrupted: bool) {
        let stays = |w: &Waiting| !(failed || interrupted && w.agency.is_machine());
        let follows = |l: &LoopState| l.inbox.iter().any(|w| !w.held && !w.fold_only && stays(w));
        let waits =
            self.session.state.loops.values().any(follows) || !self.live.announced.is_empty();
        if waits || self.live.stop.is_some() || !self.session.state.active {
            return;
        }
        if let Some(loop_id) = ended {
            self.event(
                loop_id,
                TurnId::ZERO,
                Cause::default(),
                EventBody::LoopIdle {},
            );
        }
        self.session_event(EventBody::SessionIdle {});
        self.give_slot_back();
    }

    /// Nothing runs and nothing starts: the running→idle edges (S43, S67).
    fn go_idle(&mut self) {
        self.idle_loop();
        if self.session.state.active {
            self.session_event(EventBody::SessionIdle {});
        }
    }
}
