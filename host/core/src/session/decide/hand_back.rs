//! What becomes of a delegate request: its end is written down, who waits for it is told, and a
//! background one is handed back to the parent, once (S41, S67, S72, S96).
//!
//! Found by what the decision wrote, whichever decision that was: the end of a turn, a stop, a
//! retraction, a restore. Ids derive from the request, so that nothing is handed back twice.

use super::{Out, derived};
use crate::command::{Agency, Cause, CommandBody, DeliveryPhase};
use crate::content::{Block, Message, Part, Role};
use crate::event::{CancelReason, DeliveryState, Event, EventBody};
use crate::ids::{CommandId, EventId, LoopId, TurnId};
use crate::provider::{DelegateResult, MAX_RESULT_BYTES};
use crate::session::{DelegateRequest, Effect, Record, RequestEnd, RequestStage, State};

impl Out<'_, '_> {
    /// Settles every request that the records written so far ended.
    pub(super) fn settle_requests(&mut self) {
        let new = self.records.iter().skip(self.settled);
        let may_end = self.live.faulted.is_none() && new.into_iter().any(ends_something);
        self.settled = self.records.len();
        let mut loops = self.session.state.loops.values();
        let owes = |r: &DelegateRequest| r.is_open() || r.owes_hand_back();
        if !may_end || !loops.any(|l| l.requests.values().any(owes)) {
            return;
        }
        let first = self.session.state.last_seq + 1;
        let Ok(next) = self.session.preview(&self.records, first) else {
            // The append finds the same contradiction and tells of it.
            return;
        };
        for l in next.loops.values() {
            for (id, request) in &l.requests {
                self.settle_request(&next, l.id, *id, request);
            }
        }
        self.settled = self.records.len();
    }

    fn settle_request(
        &mut self,
        next: &State,
        child: LoopId,
        id: CommandId,
        request: &DelegateRequest,
    ) {
        let end = match &request.stage {
            RequestStage::Ended(end) => {
                self.push_event(
                    EventId(derived(self.session.state.id.0, &format!("settled {id}"))),
                    child,
                    end.turn,
                    Cause::from_loop(id, request.parent),
                    EventBody::DelegateDeliveryStateChanged {
                        state: end.state,
                        error: end.error.clone(),
                    },
                );
                end
            }
            // A lost host wrote the end and not the hand-back.
            RequestStage::Settled(end) if request.owes_hand_back() => end,
            _ => return,
        };
        let result = self.result_of(child, id, end);
        let waiting = self.live.awaits.iter().filter(|(_, a)| a.request == id);
        for wait in waiting.map(|(wait, _)| *wait).collect::<Vec<_>>() {
            self.live.awaits.remove(&wait);
            let result = Ok(Box::new(result.clone()));
            self.effect(Effect::AnswerAwait { id: wait, result });
        }
        if request.owes_hand_back() {
            self.hand_back(next, child, request.parent, &result);
        }
    }

    fn hand_back(&mut self, next: &State, child: LoopId, parent: LoopId, result: &DelegateResult) {
        let (session_id, id) = (self.session.state.id, result.request_id);
        let command_id = CommandId(derived(session_id.0, &format!("hand-back {id}")));
        let blocks = vec![Block::Text {
            text: report(result),
        }];
        self.machine_command(
            command_id,
            Cause::from_loop(id, child),
            CommandBody::SubagentResult {
                session_id,
                loop_id: parent,
                blocks,
            },
        );
        let cause = Cause {
            command_id: Some(command_id),
            loop_id: Some(child),
            agency: Some(Agency::Machine),
        };
        // Who was stopped together with the delegate is not woken by it.
        if next.loops.get(&parent).is_none_or(|l| l.closed) {
            self.cancel_input(parent, cause, CancelReason::LoopExited);
        } else if self.live.is_marked(parent) && !self.is_leaving() {
            self.cancel_input(parent, cause, CancelReason::TurnInterrupted);
        } else if self.live.of(parent).owner.is_some() {
            let cause = Cause::from_loop(command_id, child);
            self.event(parent, TurnId::ZERO, cause, EventBody::InputQueued {});
        }
    }

    /// What hands back at the very end of a session leaves the inbox with all that waits there.
    pub(super) fn cancel_hand_backs(&mut self, since: usize) {
        let handed = self.records.iter().skip(since).filter_map(|r| match r {
            Record::Command(command) => match &command.body {
                CommandBody::SubagentResult { loop_id, .. } => {
                    let cause = Cause {
                        command_id: Some(command.id()),
                        loop_id: command.header.cause.loop_id,
                        agency: Some(Agency::Machine),
                    };
                    Some((*loop_id, cause))
                }
                _ => None,
            },
            Record::Event(_) => None,
        });
        for (parent, cause) in handed.collect::<Vec<_>>() {
            self.cancel_input(parent, cause, CancelReason::ShuttingDown);
        }
    }

    /// A foldable request that no turn took gets one of its own: its second record (S65).
    pub(super) fn fall_back(&mut self, loop_id: LoopId) {
        let Some(of) = self.loop_state(loop_id) else {
            return;
        };
        let unfolded = of.inbox.iter().filter(|w| !w.no_fold && !w.held);
        let requests = unfolded.filter(|w| of.is_request(w.command_id));
        let requests: Vec<_> = requests
            .filter_map(|w| Some((w.command_id, w.from?)))
            .collect();
        for (request, parent) in requests {
            self.queue_instead(loop_id, request, parent);
        }
    }

    pub(super) fn queue_instead(&mut self, child: LoopId, request: CommandId, parent: LoopId) {
        let Some((cause, mut body)) = self.intent_of(child, request) else {
            return;
        };
        if let CommandBody::UserInput {
            no_fold,
            delegate_delivery_phase,
            ..
        } = &mut body
        {
            *no_fold = true;
            *delegate_delivery_phase = Some(DeliveryPhase::FallbackQueued);
        }
        self.machine_command(request, cause, body);
        self.event(
            child,
            TurnId::ZERO,
            Cause::from_loop(request, parent),
            EventBody::DelegateDeliveryStateChanged {
                state: DeliveryState::FallbackQueued,
                error: None,
            },
        );
    }

    /// The first record of a request: of this decision, or made again from what waits.
    fn intent_of(&self, child: LoopId, request: CommandId) -> Option<(Cause, CommandBody)> {
        let written = self.records.iter().find_map(|r| match r {
            Record::Command(c) if c.id() == request => Some((c.header.cause, c.body.clone())),
            _ => None,
        });
        written.or_else(|| {
            let of = self.loop_state(child)?;
            let waiting = of.inbox.iter().find(|w| w.command_id == request)?;
            let background = of.requests.get(&request)?.background;
            let cause = Cause {
                loop_id: waiting.from,
                ..Cause::default()
            };
            let body = CommandBody::UserInput {
                blocks: waiting.blocks.to_vec(),
                no_fold: waiting.no_fold,
                fold_only: waiting.fold_only,
                target_loop_id: child,
                background_hand_back: background,
                delegate_delivery_phase: Some(DeliveryPhase::Intent),
            };
            Some((cause, body))
        })
    }

    /// How a request ended, as its parent is told.
    pub(super) fn result_of(
        &self,
        child: LoopId,
        request_id: CommandId,
        end: &RequestEnd,
    ) -> DelegateResult {
        let error = end.error.as_ref();
        DelegateResult {
            request_id,
            loop_id: child,
            state: end.state,
            text: self.last_text(child, end.turn),
            error: error.map(|e| (e.code.clone(), e.message.clone())),
        }
    }

    /// Text of the last message of a turn that has any: of what this decision writes, else of what
    /// is saved.
    fn last_text(&self, loop_id: LoopId, turn: TurnId) -> String {
        let written = self.records.iter().rev().filter_map(|r| match r {
            Record::Event(Event {
                loop_id: of,
                turn_id,
                body: EventBody::StepDone { messages, .. },
                ..
            }) if *of == loop_id && *turn_id == turn => Some(messages.iter().rev()),
            _ => None,
        });
        let saved = self.session.history.of(loop_id).iter().rev();
        let of_turn = saved
            .skip_while(|m| m.turn_id != Some(turn))
            .take_while(|m| m.turn_id.is_none_or(|t| t == turn));
        let said = |m: &&Message| m.role == Role::Assistant && m.turn_id == Some(turn);
        let mut messages = written.flatten().chain(of_turn).filter(said);
        cut(messages.find_map(text_of).unwrap_or_default())
    }
}

fn ends_something(record: &Record) -> bool {
    let Record::Event(event) = record else {
        return false;
    };
    matches!(
        event.body,
        EventBody::TurnDone { .. }
            | EventBody::TurnFailed { .. }
            | EventBody::TurnInterrupted { .. }
            | EventBody::TurnRejected { .. }
            | EventBody::InputCancelled { .. }
            | EventBody::RestoreStarted {}
    )
}

fn text_of(message: &Message) -> Option<String> {
    let texts = message.parts.iter().filter_map(|p| match p {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    Some(texts.collect::<String>()).filter(|text| !text.trim().is_empty())
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_RESULT_BYTES {
        let mut end = MAX_RESULT_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

/// What the parent reads.
fn report(result: &DelegateResult) -> String {
    let head = match (result.state, &result.error) {
        (DeliveryState::Completed, _) if result.text.is_empty() => {
            "The delegate ended without an answer.".to_owned()
        }
        (DeliveryState::Completed, _) => return result.text.clone(),
        (DeliveryState::Failed, Some((code, message))) => {
            format!("The delegate failed ({code}): {message}")
        }
        (DeliveryState::Cancelled, _) => "The request was taken back.".to_owned(),
        (DeliveryState::Interrupted, _) => "The delegate was interrupted.".to_owned(),
        _ => "The delegate failed.".to_owned(),
    };
    if result.text.is_empty() {
        head
    } else {
        format!("{head}\n\nIt had said:\n\n{}", result.text)
    }
}
