//! The teardown of a session: one for all who ask, each phase with a bound of its own (S94).

use super::{Actor, Msg, ProcessMsg};
use crate::requests::ShutDown;
use harness_core::abort::AbortReason;
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Input, Origin};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Waiter = oneshot::Sender<Result<ShutDown, Refused>>;

/// A teardown under way.
#[derive(Default)]
pub(super) struct Shutting {
    waiters: Vec<Waiter>,
    result: ShutDown,
    /// Ends the phase of the loops, then that of background processes.
    timer: Option<JoinHandle<()>>,
}

impl Shutting {
    pub(super) fn is_under_way(&self) -> bool {
        !self.waiters.is_empty()
    }
}

impl Actor {
    pub(super) async fn shut_down(&mut self, origin: Origin, reply: Waiter) {
        match self.feed(Input::Shutdown(origin), None).await {
            // Already stopped: nothing is left to wait for.
            Answer::Bool(_) if !self.shutting.is_under_way() => {
                let _ = reply.send(Ok(ShutDown::default()));
            }
            Answer::ShuttingDown | Answer::Bool(_) => {
                self.shutting.waiters.push(reply);
                if self.session.live.shutdown.is_some() {
                    let (bound, mailbox) = (self.deps.config.shutdown_phase, self.mailbox.clone());
                    self.shutting.timer.get_or_insert_with(|| {
                        tokio::spawn(async move {
                            tokio::time::sleep(bound).await;
                            let _ = mailbox.send(Msg::ShutdownExpired).await;
                        })
                    });
                }
            }
            Answer::Refused(refused) => {
                let _ = reply.send(Err(*refused));
            }
            _ => {
                let _ = reply.send(Err(Refused::Internal));
            }
        }
    }

    pub(super) async fn shutdown_expired(&mut self) {
        let before = self.session.live.owners().count();
        let on_workspace = self.session.live.workspace.held;
        if self.feed(Input::ShutdownExpired, None).await == Answer::Bool(true) {
            tracing::warn!(session = %self.id, runs = before, "what runs did not end in time; the session stops without it");
            let expired = &mut self.shutting.result.expired_phases;
            expired.extend((before > 0).then_some("loops"));
            expired.extend(on_workspace.then_some("workspace"));
        }
    }

    /// The phase of the loops is over; that of the background processes begins.
    pub(super) fn await_processes(&mut self) {
        let (bound, mailbox) = (self.deps.config.shutdown_phase, self.mailbox.clone());
        let timer = tokio::spawn(async move {
            tokio::time::sleep(bound).await;
            let _ = mailbox.send(Msg::Process(ProcessMsg::Expired)).await;
        });
        if let Some(loops) = self.shutting.timer.replace(timer) {
            loops.abort();
        }
    }

    pub(super) async fn processes_expired(&mut self) {
        if self.feed(Input::ProcessesExpired, None).await == Answer::Bool(true) {
            tracing::warn!(session = %self.id, "background processes did not end in time; the session stops without them");
            self.shutting.result.expired_phases.push("processes");
        }
    }

    /// `SessionStopped` is durable, or the session is faulted: what is left is memory.
    pub(super) fn end_instances(&mut self) {
        if let Some(timer) = self.shutting.timer.take() {
            timer.abort();
        }
        // Of a faulted session they still run.
        drop(self.end_processes());
        let ended = self.dispose_all(AbortReason::Shutdown);
        let (bound, mailbox) = (self.deps.config.shutdown_phase, self.mailbox.clone());
        tokio::spawn(async move {
            let in_time = tokio::time::timeout(bound, ended).await.is_ok();
            let _ = mailbox.send(Msg::ShutDown { in_time }).await;
        });
    }

    pub(super) fn answer_shutdown(&mut self, in_time: bool) {
        let mut result = std::mem::take(&mut self.shutting.result);
        if !in_time {
            tracing::warn!(session = %self.id, "instances did not end in time");
            result.expired_phases.push("instances");
        }
        for waiter in std::mem::take(&mut self.shutting.waiters) {
            let _ = waiter.send(Ok(result.clone()));
        }
    }
}
