//! Performing what a decision asked for.

use super::{Actor, Msg, Reserved};
use crate::requests::{Delivery, Hook};
use harness_core::abort::AbortReason;
use harness_core::ids::{CommandId, HarnessId, LoopId};
use harness_core::provider::{OperationContext, Params, Workspace, WorkspaceNeed};
use harness_core::refusal::Refused;
use harness_core::session::{Effect, InvocationId, effective_params};
use harness_core::view::OperationResult;

impl Actor {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::StartPrompt {
                invocation,
                loop_id,
                input,
            } => self.call_start_prompt(loop_id, invocation, input),
            Effect::Invoke {
                invocation,
                command_id,
            } => self.call_invoke(invocation, command_id),
            Effect::Adopt {
                invocation,
                loop_id,
                command_id,
                native_turn_id,
            } => {
                self.call_adopt(loop_id, invocation, native_turn_id, command_id);
            }
            Effect::Compact {
                invocation,
                loop_id,
                command_id,
            } => self.call_compact(loop_id, invocation, command_id),
            Effect::EnterWorkspace => self.place.enter(),
            Effect::LeaveWorkspace => self.place.leave(),
            Effect::WatchWorkspace => self.watch_workspace(),
            Effect::Checkpoint => self.take_checkpoint(),
            Effect::Rewind {
                command_id,
                reference,
            } => self.begin_rewind(command_id, reference),
            Effect::FinishRewind => self.finish_rewind(),
            Effect::AbandonWorkspaceJob => self.place.abandon(),
            Effect::FreeWorkspace => self.place.free(),
            Effect::AnswerWorkspace { command_id, result } => {
                self.answer_workspace(command_id, result.map_err(|refused| *refused));
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
            Effect::AnswerHostGate { gate_id, answer } => self.answer_host_gate(gate_id, answer),
            Effect::AnswerAnnouncement { id, result } => {
                if let Some(waiter) = self.announcements.remove(&id) {
                    let _ = waiter.send(result);
                }
            }
            Effect::AnswerAwait { id, result } => self.answer_await(id, result),
            Effect::AbortActivities(loop_id) => {
                let signals = &self.seat(loop_id).signals;
                let aborted = signals.abort_activities(AbortReason::UserStop);
                let (mailbox, drain) = (self.mailbox.clone(), self.deps.config.drain);
                tokio::spawn(async move {
                    tokio::time::sleep(drain).await;
                    let _ = mailbox.send(Msg::DrainExpired(loop_id, aborted)).await;
                });
            }
            Effect::Publish(event) => self.publish_ephemeral(&event),
            Effect::TakeSlot(loop_id) => {
                let slot = self.offered.take();
                let seat = self.seat(loop_id);
                seat.slot = slot;
                seat.forget_wish();
            }
            Effect::OverdrawSlot(loop_id) => {
                let slot = self.deps.slots.overdraw();
                let seat = self.seat(loop_id);
                seat.slot = Some(slot);
                seat.forget_wish();
            }
            Effect::WaitForSlot(loop_id) => self.wait_for_slot(loop_id),
            Effect::ReleaseSlot(loop_id) => {
                self.offered = None;
                let seat = self.seat(loop_id);
                seat.slot = None;
                seat.forget_wish();
            }
            Effect::RetryWaiting => self.retry_due = true,
            Effect::Stopped(command_id) => {
                let stop = self.stops.remove(&command_id).unwrap_or_default();
                if let Some(timer) = stop.timer {
                    timer.abort();
                }
                for waiter in stop.waiters {
                    let _ = waiter.send(Ok(true));
                }
            }
            Effect::EndProcesses => self.end_processes_in_time(),
            Effect::ShutDown => self.end_instances(),
            Effect::WatchBarrier(command_id) => self.watch_barrier(command_id),
            Effect::NotifyState(loop_id) => self.notify_state(loop_id),
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
            Effect::DisposeInstance(loop_id) => self.retire_instance(loop_id),
        }
    }

    fn resolve(&mut self, command_id: CommandId, result: Result<OperationResult, Box<Refused>>) {
        if let Some(reply) = self.results.remove(&command_id) {
            let _ = reply.send(Reserved::Ended(result.map_err(|refused| *refused), false));
        }
    }

    /// Queues for a slot, unless the loop does already.
    pub(super) fn wait_for_slot(&mut self, loop_id: LoopId) {
        let (slots, mailbox) = (self.deps.slots.clone(), self.mailbox.clone());
        self.seat(loop_id).slot_wait.get_or_insert_with(|| {
            tokio::spawn(async move {
                if let Some(slot) = slots.take().await {
                    let _ = mailbox.send(Msg::SlotGranted(loop_id, slot)).await;
                }
            })
        });
    }

    fn watch_barrier(&mut self, command_id: CommandId) {
        let (bound, mailbox) = (self.deps.config.interrupt_barrier, self.mailbox.clone());
        let timer = tokio::spawn(async move {
            tokio::time::sleep(bound).await;
            let _ = mailbox.send(Msg::BarrierExpired(command_id)).await;
        });
        self.stops.entry(command_id).or_default().timer = Some(timer);
    }

    pub(super) fn harness_of_invocation(&self, invocation: InvocationId) -> HarnessId {
        self.session
            .live
            .invocation(invocation)
            .map_or_else(|| self.session.state.agent.clone(), |i| i.harness.clone())
    }

    /// The workspace as that harness may see it (R78).
    pub(super) fn workspace_for(&self, harness: &HarnessId) -> Option<Workspace> {
        let info = self.deps.harnesses.get(harness).and_then(|h| h.info());
        match info.map(|i| i.workspace) {
            Some(WorkspaceNeed::None) => None,
            _ => self.workspace.clone(),
        }
    }

    /// The parameters of a turn on that harness: the session's, if it is the session's harness;
    /// any other has its defaults.
    pub(super) fn params_for(&self, harness: &HarnessId) -> Params {
        let state = &self.session.state;
        if *harness == state.agent {
            return state.params.clone();
        }
        let info = self.deps.harnesses.get(harness).and_then(|h| h.info());
        info.and_then(|i| effective_params(&i, &Params::new()).ok())
            .unwrap_or_default()
    }

    pub(super) fn operation_context(&self, loop_id: LoopId) -> OperationContext {
        let state = &self.session.state;
        let of = state.loops.get(&loop_id);
        let harness = of.map_or(&state.agent, |l| &l.harness);
        let runtime = of.map(|l| state.runtime_of(l)).unwrap_or_default();
        OperationContext {
            project_id: state.project_id.clone(),
            session_id: self.id,
            loop_id,
            native_session_id: of.and_then(|l| l.native_session_id.clone()),
            workspace: self.workspace_for(harness),
            model: runtime.model,
            effort: runtime.effort,
            loop_mode: of.map(|l| l.mode.clone()).filter(|m| !m.is_empty()),
            params: self.params_for(harness),
        }
    }

    /// Who closes the session learns that nothing runs any more.
    pub(super) fn answer_closes(&mut self) {
        let live = &self.session.live;
        let runs = live.owners().next().is_some() || !live.stops.is_empty() || live.workspace.held;
        if live.closing && !runs && !self.closes.is_empty() {
            let closes = std::mem::take(&mut self.closes);
            let ended = self.dispose_all(AbortReason::Shutdown);
            let processes = self.end_processes();
            tokio::spawn(async move {
                ended.await;
                processes.await;
                for close in closes {
                    let _ = close.send(());
                }
            });
        }
    }
}
