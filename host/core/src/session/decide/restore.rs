//! Repairs of what a lost process left open (§6.1, S52, S54, S72, S78).
//!
//! The repairs have deterministic ids, so that a restore that was itself cut can be retried.

use super::Out;
use super::ending::failure;
use super::queue::cause_of;
use crate::command::{Agency, Cause};
use crate::configuration::Configuration;
use crate::event::{CancelReason, CompactionReason, EventBody, InterruptReason};
use crate::gate::CloseReason;
use crate::ids::{EventId, LoopId, TurnId};
use crate::session::{Answer, LoopState};
use crate::view::{OutcomeStatus, Status};

impl Out<'_, '_> {
    /// A session that was shut down adopts nothing by being read: that is for [`Self::reopen`].
    ///
    /// [`Self::reopen`]: Self::reopen
    pub(super) fn restore(&mut self, lost: &[LoopId], now: Option<&Configuration>) -> Answer {
        if !self.session.state.stopped {
            self.checkpoint_is_owed();
        }
        self.bring_notices_back();
        let now = now.filter(|_| !self.session.state.stopped);
        let adopted = now.and_then(|now| self.session.state.adoption(now));
        if adopted.is_none() && !self.session.state.needs_repair() {
            return Answer::None;
        }
        let at = self.session.state.last_seq;
        let loops: Vec<LoopState> = self.session.state.loops.values().cloned().collect();
        self.repair(
            &format!("started {at}"),
            LoopId::ZERO,
            TurnId::ZERO,
            Cause::default(),
            EventBody::RestoreStarted {},
        );
        if let Some(configuration) = adopted {
            let what = format!("configuration {at}");
            let body = self.adopts(configuration);
            self.repair(&what, LoopId::ZERO, TurnId::ZERO, Cause::default(), body);
        }
        for l in &loops {
            for (waiter, committed) in &l.compact_waiters {
                let lost = CompactionReason::Interrupted;
                let how = if *committed { Ok(()) } else { Err(lost) };
                self.answer_compact(l.id, *waiter, how);
            }
        }
        // Whoever waited for their answers went with the process (S87).
        for gate in self.session.state.gates() {
            let gate_id = gate.gate_id;
            let body = EventBody::GateResolved {
                gate_id,
                reason: CloseReason::RestoreUnavailable,
                source: None,
            };
            let turn = gate.turn_id.unwrap_or_default();
            let what = format!("gate {gate_id}");
            self.repair(&what, gate.loop_id, turn, Cause::default(), body);
        }
        for l in &loops {
            self.repair_operations(l);
        }
        for l in &loops {
            if let Some(turn) = &l.turn {
                let body = EventBody::TurnInterrupted {
                    run_id: turn.run_id,
                    reason: InterruptReason::HostLost,
                    usage: None,
                };
                let what = format!("turn {}", turn.turn_id);
                self.repair(&what, l.id, turn.turn_id, Cause::by(turn.cause), body);
            }
        }
        let active = self.active();
        let is_lost = |l: &LoopState| {
            lost.contains(&l.id) && l.parent.is_some() && !l.closed && l.id != active
        };
        for l in &loops {
            self.repair_processes(l, !is_lost(l));
        }
        for l in &loops {
            if is_lost(l) {
                self.bury(l);
            } else {
                self.repair_inbox(l);
            }
            if l.running {
                self.repair(
                    &format!("idle {} {at}", l.id),
                    l.id,
                    TurnId::ZERO,
                    Cause::default(),
                    EventBody::LoopIdle {},
                );
            }
        }
        if self.session.state.active {
            self.repair(
                &format!("idle {at}"),
                LoopId::ZERO,
                TurnId::ZERO,
                Cause::default(),
                EventBody::SessionIdle {},
            );
            self.checkpoint_is_due();
        }
        self.settle_requests();
        self.repair(
            &format!("done {at}"),
            LoopId::ZERO,
            TurnId::ZERO,
            Cause::default(),
            EventBody::RestoreDone {},
        );
        Answer::Accepted
    }

    pub(super) fn adopts(&self, configuration: Configuration) -> EventBody {
        EventBody::ConfigurationAdopted {
            epoch: self.session.state.config_epoch + 1,
            agent: self.session.state.agent.clone(),
            configuration: Some(configuration),
        }
    }

    /// An intent without outcome is never re-sent: its effect is unknown (R80, S54).
    fn repair_operations(&mut self, l: &LoopState) {
        for (command_id, open) in &l.operations {
            let turn = l.turn.as_ref().filter(|t| t.cause == *command_id);
            // An exclusive's turn decides the row; an idle control does it itself.
            let row = (turn.is_none() && open.execution.is_some() && l.turn.is_none())
                .then_some(Status::Disconnected);
            let body = EventBody::NativeOperationResolved {
                outcome: OutcomeStatus::Uncertain,
                reason: Some("host_lost".into()),
                message: Some("the host was lost while the operation was under way".into()),
                run_id: turn.map(|t| t.run_id),
                row,
                effective: None,
                native_session_id: l.native_session_id.clone(),
            };
            let turn_id = turn.map(|t| t.turn_id).unwrap_or_default();
            self.repair(
                &format!("operation {command_id}"),
                l.id,
                turn_id,
                Cause::by(*command_id),
                body,
            );
        }
    }

    /// Closes a delegate whose harness is gone, with all that waits for it (S77).
    fn bury(&mut self, l: &LoopState) {
        for waiting in &l.inbox {
            let what = format!("cancel {}", waiting.command_id);
            let body = EventBody::InputCancelled {
                reason: CancelReason::LoopExited,
            };
            self.repair(&what, l.id, TurnId::ZERO, cause_of(waiting), body);
        }
        for id in l.notices.keys() {
            let body = EventBody::InputCancelled {
                reason: CancelReason::LoopExited,
            };
            let cause = Cause::by_agency(*id, Agency::Machine);
            self.repair(&format!("cancel {id}"), l.id, TurnId::ZERO, cause, body);
        }
        let error = failure(
            "harness_not_found",
            format!("no harness `{}` is installed", l.harness),
        );
        let body = EventBody::LoopTombstoned { error };
        let what = format!("tombstone {}", l.id);
        self.repair(&what, l.id, TurnId::ZERO, Cause::default(), body);
    }

    /// Nothing a person typed disappears: what had no resolution is held, one hold each (S52).
    fn repair_inbox(&mut self, l: &LoopState) {
        for waiting in l.inbox.iter().filter(|w| !w.held && !w.redeliver) {
            let cause = cause_of(waiting);
            // What a delegate was told and had not begun is not begun by another life (S73).
            if waiting.fold_only || waiting.agency.is_machine() {
                let reason = if waiting.fold_only {
                    CancelReason::TurnEnded
                } else {
                    CancelReason::TurnInterrupted
                };
                let body = EventBody::InputCancelled { reason };
                self.repair(
                    &format!("cancel {}", waiting.command_id),
                    l.id,
                    TurnId::ZERO,
                    cause,
                    body,
                );
            } else {
                // A crash after a release holds it again: the sequence makes that hold its own.
                let what = format!(
                    "hold {} {}",
                    waiting.command_id, self.session.state.last_seq
                );
                self.repair(
                    &what,
                    l.id,
                    TurnId::ZERO,
                    Cause::by(waiting.command_id),
                    EventBody::InputHeld {},
                );
            }
        }
    }

    pub(super) fn repair(
        &mut self,
        what: &str,
        loop_id: LoopId,
        turn_id: TurnId,
        cause: Cause,
        body: EventBody,
    ) {
        let id = EventId(self.repair_id(what));
        self.push_event(id, loop_id, turn_id, cause, body);
    }
}
