//! Ordinary prompts: accepted, queued, started (S32, S40, S43).

use super::Out;
use crate::command::Cause;
use crate::command::{Agency, CommandBody};
use crate::content::Block;
use crate::event::{EventBody, RejectReason};
use crate::ids::{LoopId, TurnId};
use crate::refusal::Refused;
use crate::session::{Answer, LoopState, Origin, Owner, State};

impl Out<'_, '_> {
    pub(super) fn submit(
        &mut self,
        origin: Origin,
        blocks: Vec<Block>,
        loop_id: Option<LoopId>,
        no_fold: bool,
        fold_only: bool,
    ) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        if blocks.is_empty() {
            return self.refuse(Refused::InvalidRequest(
                "`blocks` must hold at least one block".into(),
            ));
        }
        if no_fold && fold_only {
            return self.refuse(Refused::InvalidRequest(
                "`no_fold` and `fold_only` exclude each other".into(),
            ));
        }
        let target = loop_id.unwrap_or(self.active());
        let Some(loop_state) = self.session.state.loops.get(&target) else {
            return self.refuse(Refused::LoopNotFound(target.to_string()));
        };
        if let Some(refused) = addressed(loop_state) {
            return self.refuse(refused);
        }
        if fold_only && !self.turn_takes_input(target) {
            return self.refuse(Refused::FoldingUnavailable);
        }
        let full = loop_state.inbox.len() >= self.cx.inbox;
        let held: Vec<_> = loop_state
            .inbox
            .iter()
            .filter(|w| w.held)
            .map(|w| w.command_id)
            .collect();
        let command_id = origin.command_id;
        let live = self.live.of(target);
        let waits = self.can_admit(target).is_err()
            || !held.is_empty()
            || loop_state.next_input().is_some()
            || !(live.slot || self.cx.slot_free);
        self.command(
            origin,
            Agency::User,
            CommandBody::UserInput {
                blocks,
                no_fold,
                fold_only,
                target_loop_id: target,
                background_hand_back: false,
                delegate_delivery_phase: None,
            },
        );
        if full {
            // A submit that is rejected releases nothing (S52).
            self.event(
                target,
                TurnId::ZERO,
                Cause::by(command_id),
                EventBody::TurnRejected {
                    reason: RejectReason::QueueFull,
                    retryable: true,
                },
            );
            return Answer::Accepted;
        }
        for id in held {
            self.event(
                target,
                TurnId::ZERO,
                Cause::by(id),
                EventBody::InputReleased {},
            );
        }
        if waits {
            self.event(
                target,
                TurnId::ZERO,
                Cause::by(command_id),
                EventBody::InputQueued {},
            );
        }
        Answer::Accepted
    }

    /// Whether a turn of that loop runs whose provider takes folded input (R120).
    pub(super) fn turn_takes_input(&self, loop_id: LoopId) -> bool {
        let folding = self.harness_of(loop_id).is_some_and(|h| h.features.folding);
        let owner = self.live.of(loop_id).owner.as_ref();
        folding && !self.live.is_marked(loop_id) && owner.is_some_and(Owner::turn_is_running)
    }
}

/// Why a client cannot address that loop: its parent alone does (S96).
pub(super) fn addressed(of: &LoopState) -> Option<Refused> {
    let delegate = || {
        let what = "loop {} is a delegate: the loop that started it addresses it";
        Refused::InvalidRequest(what.replace("{}", &of.id.to_string()))
    };
    if of.closed {
        Some(Refused::LoopExited)
    } else {
        of.parent.is_some().then(delegate)
    }
}

impl State {
    /// Whether any prompt is queued, held ones included (R60).
    #[must_use]
    pub fn has_waiting_input(&self) -> bool {
        self.loops.values().any(|l| !l.inbox.is_empty())
    }
}
