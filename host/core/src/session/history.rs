//! The saved conversation of each loop: a fold over the journal (S70), byte for byte what was live.

use super::Record;
use crate::command::CommandBody;
use crate::content::{Message, Part, Role};
use crate::event::EventBody;
use crate::ids::{CommandId, LoopId, MessageId, TurnId};
use std::collections::{BTreeMap, BTreeSet};

/// Saved conversations by loop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    loops: BTreeMap<LoopId, Vec<Message>>,
    /// Ids of the commands a provider has seen, by which it may name a cause (N10).
    commands: BTreeSet<CommandId>,
}

impl History {
    /// Adds what a record says. `active`: the loop of records that name none.
    pub(super) fn apply(&mut self, record: &Record, active: LoopId) {
        let event = match record {
            Record::Event(event) => event,
            Record::Command(command) => {
                if let CommandBody::UserInput { .. }
                | CommandBody::SubagentResult { .. }
                | CommandBody::NativeOperation { .. }
                | CommandBody::NativeTurn { .. }
                | CommandBody::ProcessNotification { .. } = command.body
                {
                    self.commands.insert(command.id());
                }
                return;
            }
        };
        let messages: &[Message] = match &event.body {
            EventBody::TurnStarted {
                message: Some(message),
                ..
            }
            | EventBody::TurnFoldedInto { message } => std::slice::from_ref(message),
            EventBody::StepDone { messages, .. } => messages,
            EventBody::CompactionCommitted {
                summary: Some(text),
                ..
            } => {
                let summary = Message {
                    id: MessageId(event.id.0),
                    role: Role::System,
                    turn_id: None,
                    created_at: event.at,
                    parts: vec![Part::Text { text: text.clone() }],
                };
                self.loops.insert(event.loop_id, vec![summary]);
                return;
            }
            _ => return,
        };
        let loop_id = if event.loop_id.is_zero() {
            active
        } else {
            event.loop_id
        };
        self.loops
            .entry(loop_id)
            .or_default()
            .extend_from_slice(messages);
    }

    /// Whether that is an input, operation or native turn of this session.
    #[must_use]
    pub fn knows(&self, command: CommandId) -> bool {
        self.commands.contains(&command)
    }

    /// The conversation of a loop, oldest first.
    #[must_use]
    pub fn of(&self, loop_id: LoopId) -> &[Message] {
        self.loops.get(&loop_id).map_or(&[], Vec::as_slice)
    }

    /// The newest `limit` messages of a loop, oldest first, without the inputs of `turn`.
    #[must_use]
    pub fn newest(&self, loop_id: LoopId, limit: usize, turn: Option<TurnId>) -> Vec<Message> {
        let is_input = |m: &&Message| turn.is_some() && m.turn_id == turn && m.role == Role::User;
        let mut newest: Vec<_> = self
            .of(loop_id)
            .iter()
            .rev()
            .filter(|m| !is_input(m))
            .take(limit)
            .cloned()
            .collect();
        newest.reverse();
        newest
    }
}
