//! What reaches a provider as input, wherever it waited: it starts a turn, or folds into the one
//! that runs. The two look the same from here on, whether a person or a machine said it.

use super::Out;
use crate::command::{Agency, Cause, ProcessNotice, ProcessState};
use crate::content::{Message, Part, Role};
use crate::event::EventBody;
use crate::ids::{CommandId, LoopId, MessageId, RunId, TurnId};
use crate::provider::{InputOrigin, PromptInput};
use crate::session::apply::input_parts;
use crate::session::decide::operation::Claim;
use crate::session::decide::queue::cause_of;
use crate::session::{Effect, Kind, LoopState, Waiting};

/// An input on its way into a turn.
pub(super) struct Arrival {
    /// The command that brought it.
    pub(super) command_id: CommandId,
    /// How what follows names it.
    pub(super) cause: Cause,
    /// Where it came from.
    pub(super) origin: InputOrigin,
    /// What it says.
    pub(super) parts: Vec<Part>,
}

impl Arrival {
    /// An entry of an inbox.
    pub(super) fn of_input(waiting: &Waiting) -> Self {
        Self {
            command_id: waiting.command_id,
            cause: cause_of(waiting),
            origin: waiting.origin.clone(),
            parts: input_parts(waiting),
        }
    }

    /// The end of a background process (S97).
    pub(super) fn of_notice(of: &LoopState, notice: &ProcessNotice) -> Self {
        let handle = &notice.process_handle;
        let process = of.processes.get(handle);
        let program = process.map_or_else(String::new, |p| format!(" `{}`", p.program));
        let how = match notice.state {
            ProcessState::Exited => "exited",
            ProcessState::Failed => "failed",
            ProcessState::Stopped => "was stopped",
            ProcessState::Lost => "was lost",
        };
        let reason = &notice.reason;
        let text = format!("The background process{program} ({handle}) {how}: {reason}.");
        Self {
            command_id: notice.command_id,
            cause: Cause::by_agency(notice.command_id, Agency::Machine),
            origin: InputOrigin::Process(handle.clone()),
            parts: vec![Part::Text { text }],
        }
    }

    fn message(&self, out: &Out<'_, '_>, turn_id: TurnId, id: MessageId) -> Message {
        Message {
            id,
            role: Role::User,
            turn_id: Some(turn_id),
            created_at: out.cx.now,
            parts: self.parts.clone(),
        }
    }

    fn input(self) -> PromptInput {
        PromptInput {
            command_id: self.command_id,
            origin: self.origin,
            parts: self.parts,
        }
    }
}

impl Out<'_, '_> {
    /// Starts a turn with it. The loop has a slot and nothing runs in it.
    pub(super) fn start_turn(
        &mut self,
        loop_id: LoopId,
        arrival: Arrival,
        (run_id, turn_id, message_id): (RunId, TurnId, MessageId),
    ) {
        self.activate();
        let message = arrival.message(self, turn_id, message_id);
        self.event(
            loop_id,
            turn_id,
            arrival.cause,
            EventBody::TurnStarted {
                run_id,
                message: Some(message),
                native: None,
            },
        );
        let invocation = self.claim(Claim {
            run_id,
            loop_id,
            turn: Some(turn_id),
            command_id: arrival.command_id,
            kind: Kind::Prompt,
            handle: false,
        });
        self.effect(Effect::StartPrompt {
            invocation,
            loop_id,
            input: arrival.input(),
        });
    }

    /// Folds it into the turn that runs; durable before the provider sees what is returned (N16).
    pub(super) fn fold(
        &mut self,
        loop_id: LoopId,
        turn_id: TurnId,
        arrival: Arrival,
        message_id: MessageId,
    ) -> PromptInput {
        let message = arrival.message(self, turn_id, message_id);
        self.event(
            loop_id,
            turn_id,
            arrival.cause,
            EventBody::TurnFoldedInto { message },
        );
        arrival.input()
    }
}
