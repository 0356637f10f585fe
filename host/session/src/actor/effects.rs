//! Performing what a decision asked for.

use super::{Actor, Msg, NOTIFY_EVERY, Reserved};
use crate::requests::{Delivery, Hook};
use harness_core::abort::AbortReason;
use harness_core::command::Cause;
use harness_core::event::{Event, EventBody};
use harness_core::ids::{CommandId, EventId, HarnessId, LoopId, TurnId};
use harness_core::provider::{OperationContext, WorkspaceNeed};
use harness_core::refusal::Refused;
use harness_core::session::{Effect, InvocationId};
use harness_core::view::OperationResult;
use jiff::Timestamp;
use tokio::time::Instant;

impl Actor {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::StartPrompt {
                invocation, input, ..
            } => self.call_start_prompt(invocation, input),
            Effect::Invoke {
                invocation,
                command_id,
            } => self.call_invoke(invocation, command_id),
            Effect::Adopt {
                invocation,
                command_id,
                native_turn_id,
                ..
            } => {
                self.call_adopt(invocation, native_turn_id, command_id);
            }
            Effect::CallDone(invocation) => self.call_done(invocation),
            Effect::Abort { invocation, reason } => self.abort_run(invocation, reason),
            Effect::CloseChannel(invocation) => {
                self.runs.remove(&invocation);
                self.dispose_retired();
            }
            Effect::Resolve { command_id, result } => self.resolve(command_id, result),
            Effect::AnswerGate { gate_id, value } => {
                self.delivery = match self.gates.remove(&gate_id).map(|waiter| waiter.send(value)) {
                    Some(Ok(())) => Delivery::Acknowledged,
                    Some(Err(_)) | None => Delivery::Uncertain,
                };
            }
            Effect::AnswerAnnouncement { id, result } => {
                if let Some(waiter) = self.announcements.remove(&id) {
                    let _ = waiter.send(result);
                }
            }
            Effect::AbortActivities => {
                let aborted = self.signals.abort_activities(AbortReason::UserStop);
                let (mailbox, drain) = (self.mailbox.clone(), self.deps.config.drain);
                tokio::spawn(async move {
                    tokio::time::sleep(drain).await;
                    let _ = mailbox.send(Msg::DrainExpired(aborted)).await;
                });
            }
            Effect::Publish(event) => self.publish_ephemeral(&event),
            Effect::TakeSlot => {
                self.slot = self.offered.take();
                self.forget_wish();
            }
            Effect::OverdrawSlot => {
                self.slot = Some(self.deps.slots.overdraw());
                self.forget_wish();
            }
            Effect::WaitForSlot => self.wait_for_slot(),
            Effect::ReleaseSlot => {
                self.slot = None;
                self.offered = None;
                self.forget_wish();
            }
            Effect::RetryWaiting => self.retry_due = true,
            Effect::Stopped => {
                for stop in std::mem::take(&mut self.stops) {
                    let _ = stop.send(Ok(true));
                }
            }
            Effect::NotifyState => self.notify_state(),
            Effect::Hook { first, command_id } => {
                let run_id = self.session.state.run_id;
                let hook = Hook {
                    session_id: self.id,
                    run_id,
                    command_id,
                };
                if first {
                    self.deps.observer.started(&hook);
                } else {
                    self.deps.observer.resumed(&hook);
                }
            }
            Effect::DisposeInstance => self.retire_instance(),
        }
    }

    fn resolve(&mut self, command_id: CommandId, result: Result<OperationResult, Box<Refused>>) {
        if let Some(reply) = self.results.remove(&command_id) {
            let _ = reply.send(Reserved::Ended(result.map_err(|refused| *refused), false));
        }
    }

    /// A slot granted meanwhile comes as a message all the same, and goes back.
    fn forget_wish(&mut self) {
        if let Some(wait) = self.slot_wait.take() {
            wait.abort();
        }
    }

    pub(super) fn wait_for_slot(&mut self) {
        let (slots, mailbox) = (self.deps.slots.clone(), self.mailbox.clone());
        self.slot_wait = Some(tokio::spawn(async move {
            if let Some(slot) = slots.take().await {
                let _ = mailbox.send(Msg::SlotGranted(slot)).await;
            }
        }));
    }

    /// At most one frame in 250 ms, the last one always delivered (G7).
    fn notify_state(&mut self) {
        let now = Instant::now();
        match self.notified {
            Some(last) if now < last + NOTIFY_EVERY => {
                self.notify_due.get_or_insert(last + NOTIFY_EVERY);
            }
            _ => self.notify_now(now),
        }
    }

    pub(super) fn notify_now(&mut self, now: Instant) {
        self.notify_due = None;
        self.notified = Some(now);
        let harness_id = self.session.state.agent.clone();
        let event = Event {
            id: EventId::ZERO,
            session_id: self.id,
            loop_id: LoopId::ZERO,
            turn_id: TurnId::ZERO,
            at: Timestamp::now(),
            cause: Cause::default(),
            body: EventBody::CommandStateChanged { harness_id },
        };
        self.publish_ephemeral(&event);
    }

    pub(super) fn harness_of_invocation(&self, invocation: InvocationId) -> HarnessId {
        self.session
            .live
            .invocation(invocation)
            .map_or_else(|| self.session.state.agent.clone(), |i| i.harness.clone())
    }

    /// The workspace as the loop's harness may see it (R78).
    pub(super) fn workspace_for_harness(&self) -> Option<harness_core::provider::Workspace> {
        let need = self
            .session
            .state
            .active_loop()
            .and_then(|l| self.deps.harnesses.get(&l.harness))
            .and_then(|h| h.info())
            .map(|i| i.workspace);
        match need {
            Some(WorkspaceNeed::None) => None,
            _ => self.workspace.clone(),
        }
    }

    pub(super) fn operation_context(&self) -> OperationContext {
        let state = &self.session.state;
        OperationContext {
            project_id: state.project_id.clone(),
            session_id: self.id,
            loop_id: state.active_loop,
            native_session_id: state
                .active_loop()
                .and_then(|l| l.native_session_id.clone()),
            workspace: self.workspace_for_harness(),
            model: state.model.clone(),
            effort: None,
            loop_mode: None,
            params: state.params.clone(),
        }
    }

    /// Who closes the session learns that nothing runs any more.
    pub(super) fn answer_closes(&mut self) {
        if self.session.live.closing
            && self.session.live.owner.is_none()
            && self.session.live.stop.is_none()
            && !self.closes.is_empty()
        {
            let closes = std::mem::take(&mut self.closes);
            let ended = self.dispose_current(AbortReason::Shutdown);
            tokio::spawn(async move {
                ended.await;
                for close in closes {
                    let _ = close.send(());
                }
            });
        }
    }
}
