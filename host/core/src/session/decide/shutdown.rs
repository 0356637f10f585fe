//! Shutting a session down for good, and taking it up again (S94, S102).
//!
//! The latch goes first: from then on nothing is admitted. What runs is aborted; when it has ended,
//! or the bound of that phase has passed, background processes are ended within a phase of their
//! own, whoever still waits is told, and `SessionStopped` is the last record. All callers share the one teardown.

use super::Out;
use super::ending::cancelled;
use crate::abort::AbortReason;
use crate::command::{Agency, Cause, CommandBody};
use crate::configuration::Configuration;
use crate::event::{CancelReason, CompactionReason, EventBody, InterruptReason};
use crate::gate::CloseReason;
use crate::ids::{LoopId, TurnId};
use crate::operation::Execution;
use crate::provider::{ChannelError, DelegationError};
use crate::refusal::Refused;
use crate::session::{Answer, Effect, Ending, InvocationId, Kind, LiveLoop, Origin};
use crate::view::OutcomeStatus;

impl Out<'_, '_> {
    pub(super) fn shutdown(&mut self, origin: Origin) -> Answer {
        if self.session.state.stopped {
            return Answer::Bool(true);
        }
        if self.live.shutdown.is_some() {
            return Answer::ShuttingDown;
        }
        if let Some(fault) = &self.live.faulted {
            // Its runners were aborted by the fault, and nothing can be written.
            let refused = fault.refused();
            self.effect(Effect::ShutDown);
            return self.refuse(refused);
        }
        let command_id = origin.command_id;
        self.live.shutdown = Some(command_id);
        self.command(origin, Agency::User, CommandBody::Shutdown {});
        // Whoever waits for a delegate has no authority over it any more.
        self.end_awaits(None, &DelegationError::Stopped);
        self.close_host_gates();
        self.stop_checkpoints(&Refused::SessionStopping);
        let loops = self.busy_loops();
        if !loops.is_empty() {
            self.claim_stop(
                command_id,
                loops,
                AbortReason::Shutdown,
                CloseReason::OwnerClosed,
            );
        }
        self.effect(Effect::RetryWaiting);
        Answer::ShuttingDown
    }

    /// A wedged loop costs at most its phase: what it runs ends here, whatever it still returns.
    pub(super) fn shutdown_expired(&mut self) -> Answer {
        if self.live.shutdown.is_none() || self.live.faulted.is_some() {
            return Answer::Bool(false);
        }
        let owners: Vec<(LoopId, Vec<InvocationId>)> = self
            .live
            .owners()
            .map(|o| (o.loop_id, o.invocations.keys().copied().collect()))
            .collect();
        let wedged = self.abandon_workspace_job(&Refused::SessionStopping) || !owners.is_empty();
        for (loop_id, invocations) in owners {
            for invocation in invocations {
                self.give_up(loop_id, invocation);
            }
            if let Some(owner) = &mut self.live.of_mut(loop_id).owner {
                owner.ended = Some(Ending::Interrupted(InterruptReason::Shutdown));
            }
            self.finish_owner(loop_id);
        }
        for live in self.live.loops.values_mut() {
            live.activities.clear();
        }
        Answer::Bool(wedged)
    }

    /// An invocation whose return nobody waits for any more.
    fn give_up(&mut self, loop_id: LoopId, invocation: InvocationId) {
        let Some(entry) = self.live.invocation(invocation).cloned() else {
            return;
        };
        self.close_gates(invocation, CloseReason::OwnerClosed, &ChannelError::Closed);
        self.effect(Effect::CloseChannel(invocation));
        match entry.kind {
            Kind::Operation(how) if !entry.started || entry.ending_as.is_some() => {
                let mut resolution = cancelled();
                resolution.outcome = OutcomeStatus::Uncertain;
                resolution.code = Some("session_stopping".into());
                resolution.message = Some("the session was shut down before it returned".into());
                let exclusive = how == Execution::Exclusive;
                self.write_resolution(invocation, &entry, resolution, exclusive, None);
            }
            Kind::Compaction => {
                self.reject_compaction(loop_id, CompactionReason::ShuttingDown, None);
            }
            Kind::Operation(_) | Kind::Prompt | Kind::Native => {}
        }
    }

    /// The last records of a session, when nothing runs any more.
    pub(super) fn finish_shutdown(&mut self) {
        let rests = self.live.loops.values().all(LiveLoop::rests);
        if self.live.shutdown.is_none() || !rests || self.live.workspace.held {
            return;
        }
        if !self.processes_have_ended() {
            return;
        }
        let session = self.session;
        for l in session.state.loops.values() {
            self.cancel_notices(l);
            for waiter in l.compact_waiters.keys() {
                self.answer_compact(l.id, *waiter, Err(CompactionReason::ShuttingDown));
            }
            for input in &l.inbox {
                self.event(
                    l.id,
                    TurnId::ZERO,
                    Cause::by_agency(input.command_id, input.agency),
                    EventBody::InputCancelled {
                        reason: CancelReason::ShuttingDown,
                    },
                );
            }
        }
        let since = self.records.len();
        self.settle_requests();
        self.cancel_hand_backs(since);
        self.session_event(EventBody::SessionStopped {});
        self.live.shutdown = None;
        self.live.ending_processes = false;
        self.effect(Effect::ShutDown);
    }

    /// `stopped` ends here; what was cancelled stays so.
    pub(super) fn reopen(&mut self, now: Option<&Configuration>) -> Answer {
        if let Some(fault) = &self.live.faulted {
            return self.refuse(fault.refused());
        }
        if self.live.closing {
            return self.refuse(Refused::HostShuttingDown);
        }
        if self.live.shutdown.is_some() {
            return self.refuse(Refused::SessionStopping);
        }
        if self.session.state.stopped {
            self.session_event(EventBody::RestoreStarted {});
            // What drifted since the session was loaded is left for the next load to decide.
            let state = &self.session.state;
            let now = now.filter(|now| state.drift(now).is_empty());
            if let Some(configuration) = now.and_then(|now| state.adoption(now)) {
                self.session_event(self.adopts(configuration));
            }
            self.session_event(EventBody::RestoreDone {});
            self.checkpoint_is_owed();
        }
        Answer::Accepted
    }
}
