//! Turns that the native side begins by itself, and messages outside any turn (N6-N12).

use super::{Out, derived};
use crate::command::{Agency, Cause, CommandBody};
use crate::content::{MAX_WRITE_BYTES, Message, NewMessage, Part};
use crate::event::{EventBody, NativeOrigin};
use crate::ids::{CommandId, LoopId, MessageId, RunId, TurnId};
use crate::provider::{ChannelError, NativeTurn, TurnStart};
use crate::session::decide::operation::Claim;
use crate::session::{Announced, Answer, Effect, Kind, LinkId, Origin};

/// Announcements that may wait in one session.
const MAX_ANNOUNCED: usize = 16;

impl Out<'_, '_> {
    /// The order of N6. Accepted means: it waits, and [`Input::Advance`] decides.
    ///
    /// [`Input::Advance`]: crate::session::Input::Advance
    pub(super) fn announce(&mut self, loop_id: LoopId, id: LinkId, turn: NativeTurn) -> Answer {
        let denied = |why: &str| Answer::Channel(ChannelError::Denied(why.into()));
        if self.is_leaving() {
            return Answer::Channel(ChannelError::Closed);
        }
        if self.live.faulted.is_some() {
            return Answer::Channel(ChannelError::Failed("the session is faulted".into()));
        }
        let disarmed = self.loop_state(loop_id).is_some_and(|l| l.disarmed);
        if self.live.is_marked(loop_id) || disarmed {
            return Answer::Channel(ChannelError::Stopped);
        }
        if !self.cx.native_turns {
            return denied("native turns are switched off by the operator");
        }
        let info = self.harness_of(loop_id);
        if !info.is_some_and(|h| h.features.native_turns) {
            return denied("the provider does not declare the feature `native-turns`");
        }
        if !(1..=256).contains(&turn.id.len()) || !(1..=128).contains(&turn.reason.len()) {
            return Answer::Channel(ChannelError::Limit(
                "a native turn id has 1 to 256 bytes, a reason 1 to 128".into(),
            ));
        }
        if self.is_spent(loop_id, &turn.id) {
            return Answer::Channel(ChannelError::Closed);
        }
        // One is decided at a time; more wait (N11).
        let announced = &mut self.live.of_mut(loop_id).announced;
        if announced.len() >= MAX_ANNOUNCED {
            return Answer::Channel(ChannelError::Limit(format!(
                "{MAX_ANNOUNCED} announcements are pending"
            )));
        }
        announced.push_back(Announced { id, turn });
        Answer::Accepted
    }

    /// Answers `busy` to what runs inside the live turn (N6, N7).
    pub(super) fn settle_announcements(&mut self, loop_id: LoopId) {
        let entered = self.live.of(loop_id).owner.as_ref().is_some_and(|o| {
            o.turn_is_running() && o.invocations.get(&o.runner).is_some_and(|i| i.entered)
        });
        if !entered {
            return;
        }
        let live = self.live.of_mut(loop_id);
        let (busy, wait) = std::mem::take(&mut live.announced)
            .into_iter()
            .partition::<Vec<_>, _>(|a| a.turn.start == TurnStart::Running);
        live.announced = wait.into();
        for announced in busy {
            self.effect(Effect::AnswerAnnouncement {
                id: announced.id,
                result: Err(ChannelError::Busy),
            });
        }
    }

    /// Reserves the first announcement of that kind. True if one was, or waits for a slot.
    pub(super) fn start_native(&mut self, loop_id: LoopId, start: TurnStart) -> bool {
        let Some(at) = self
            .live
            .of(loop_id)
            .announced
            .iter()
            .position(|a| a.turn.start == start)
        else {
            return false;
        };
        if self.spent(loop_id, at) {
            return true;
        }
        match start {
            TurnStart::Wanted => {
                if !self.have_slot(loop_id) {
                    return false;
                }
            }
            // Never refused for want of a slot (N8).
            TurnStart::Running => {
                if !self.live.of(loop_id).slot && !self.take_slot(loop_id) {
                    self.install_slot(loop_id);
                    self.live.of_mut(loop_id).overdrawn = true;
                    self.effect(Effect::OverdrawSlot(loop_id));
                }
            }
        }
        let (Some(run), Some(turn), Some(command)) =
            (self.cx.ids.mint(), self.cx.ids.mint(), self.cx.ids.mint())
        else {
            let failed = ChannelError::Failed("no id could be made".into());
            self.answer_announcement(loop_id, at, Err(failed));
            return true;
        };
        if let Some(announced) = self.live.of_mut(loop_id).announced.remove(at) {
            self.reserve_native(
                loop_id,
                announced,
                RunId(run),
                TurnId(turn),
                CommandId(command),
            );
        }
        true
    }

    /// Answers `closed` to an announcement whose native id was started meanwhile (N10).
    fn spent(&mut self, loop_id: LoopId, at: usize) -> bool {
        let announced = self.live.of(loop_id).announced.get(at);
        let spent = announced.is_some_and(|a| self.is_spent(loop_id, &a.turn.id));
        if spent {
            self.answer_announcement(loop_id, at, Err(ChannelError::Closed));
        }
        spent
    }

    fn is_spent(&self, loop_id: LoopId, native_turn: &str) -> bool {
        self.loop_state(loop_id)
            .is_some_and(|l| l.native_turns.get(native_turn) == Some(&true))
    }

    fn answer_announcement(
        &mut self,
        loop_id: LoopId,
        at: usize,
        result: Result<(), ChannelError>,
    ) {
        if let Some(announced) = self.live.of_mut(loop_id).announced.remove(at) {
            self.effect(Effect::AnswerAnnouncement {
                id: announced.id,
                result,
            });
        }
    }

    fn reserve_native(
        &mut self,
        loop_id: LoopId,
        announced: Announced,
        run_id: RunId,
        turn_id: TurnId,
        command_id: CommandId,
    ) {
        let session_id = self.session.state.id;
        let turn = announced.turn;
        let cause_command_id = turn
            .cause
            .as_deref()
            .and_then(|c| c.parse::<CommandId>().ok())
            .filter(|id| self.session.history.knows(*id));
        self.command(
            Origin {
                command_id,
                caller: None,
            },
            Agency::Machine,
            CommandBody::NativeTurn {
                session_id,
                loop_id,
                native_turn_id: turn.id.clone(),
                reason: turn.reason.clone(),
                start: turn.start,
                cause_command_id,
            },
        );
        self.activate();
        self.event(
            loop_id,
            turn_id,
            Cause::by_agency(command_id, Agency::Machine),
            EventBody::TurnStarted {
                run_id,
                message: None,
                native: Some(NativeOrigin {
                    native_turn_id: turn.id.clone(),
                    reason: turn.reason,
                    start: turn.start,
                    cause_command_id,
                }),
            },
        );
        let invocation = self.claim(Claim {
            run_id,
            loop_id,
            turn: Some(turn_id),
            command_id,
            kind: Kind::Native,
            handle: true,
        });
        self.effect(Effect::AnswerAnnouncement {
            id: announced.id,
            result: Ok(()),
        });
        self.effect(Effect::Adopt {
            invocation,
            loop_id,
            command_id,
            native_turn_id: turn.id,
        });
    }

    /// One step group of its own, with zero turn id and no cause (N11).
    pub(super) fn link_append(&mut self, loop_id: LoopId, message: NewMessage) -> Answer {
        if self.live.closing || self.session.state.stopped {
            return Answer::Channel(ChannelError::Closed);
        }
        if self.live.faulted.is_some() {
            return Answer::Channel(ChannelError::Failed("the session is faulted".into()));
        }
        let bytes: usize = message.parts.iter().map(Part::bytes).sum();
        if bytes > MAX_WRITE_BYTES
            || message
                .parts
                .iter()
                .any(|p| p.bytes() > crate::content::MAX_PART_BYTES)
            || message.parts.len() > crate::content::MAX_PARTS
        {
            return Answer::Channel(ChannelError::Limit(format!(
                "a message has at most {MAX_WRITE_BYTES} bytes in {} parts, a part {}",
                crate::content::MAX_PARTS,
                crate::content::MAX_PART_BYTES
            )));
        }
        let place = format!("message {}", self.session.state.last_seq);
        let id = MessageId(
            self.cx
                .ids
                .mint()
                .unwrap_or_else(|| derived(self.session.state.id.0, &place)),
        );
        let saved = Message {
            id,
            role: message.role,
            turn_id: None,
            created_at: self.cx.now,
            parts: message.parts,
        };
        self.event(
            loop_id,
            TurnId::ZERO,
            Cause::default(),
            EventBody::StepDone {
                messages: vec![saved],
                usage: None,
            },
        );
        Answer::Accepted
    }
}
