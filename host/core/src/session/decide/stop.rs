//! Stop and shutdown: claim first, then abort everything (R67, S58, S90, S91, N12-N14).
//!
//! A stop marks all its loops before anything is sent to any of them. A marked loop starts nothing;
//! the mark goes when everything that the stop aborted has ended and the idle edges are durable,
//! or when the bound of the barrier has passed. A stop over loops that are marked already adds its
//! own mark: a loop is free when the last of them is gone.

use super::Out;
use crate::abort::AbortReason;
use crate::command::{Agency, Cause, CommandBody};
use crate::gate::CloseReason;
use crate::ids::{CommandId, LoopId};
use crate::provider::{ChannelError, DelegationError};
use crate::refusal::Refused;
use crate::session::{Answer, Effect, InvocationId, LinkId, Origin, Stop};
use std::collections::BTreeSet;

impl Out<'_, '_> {
    pub(super) fn interrupt(&mut self, origin: Origin, loop_id: Option<LoopId>) -> Answer {
        let scope = match loop_id {
            None => self.session.state.loops.keys().copied().collect(),
            Some(id) if self.loop_state(id).is_some() => self.session.state.subtree(id),
            Some(id) => return self.refuse(Refused::LoopNotFound(id.to_string())),
        };
        if self.live.shutdown.is_some() || self.session.state.stopped {
            // It joins the teardown, which ends whatever runs.
            return Answer::Bool(false);
        }
        if self.live.faulted.is_some() {
            // Its runners were aborted by the fault; nothing can be written.
            let turn = |o: &crate::session::Owner| o.turn.is_some() && scope.contains(&o.loop_id);
            return Answer::Bool(self.live.owners().any(turn));
        }
        // Who stops what is being stopped joins that stop.
        if let Some(stop) = self.live.stops.iter().find(|s| s.loops.is_superset(&scope)) {
            return Answer::Stopping(stop.command_id);
        }
        let targets = self.stop_targets(&scope);
        if targets.is_empty() {
            return Answer::Bool(false);
        }
        let command_id = origin.command_id;
        // The scope is part of the record: a restart disarms what the stop disarmed (N12).
        let scope = Cause {
            loop_id,
            ..Cause::default()
        };
        self.command_about(origin, Agency::User, scope, CommandBody::Interrupt {});
        self.claim_stop(
            command_id,
            targets,
            AbortReason::UserStop,
            CloseReason::Abandoned,
        );
        self.effect(Effect::WatchBarrier(command_id));
        Answer::Stopping(command_id)
    }

    /// Loops of a scope that a stop marks: those in which something runs, is being stopped or was
    /// queued by a machine, and those above them, which must not be woken by what becomes of it.
    pub(super) fn stop_targets(&self, scope: &BTreeSet<LoopId>) -> BTreeSet<LoopId> {
        let ends = |id: &&LoopId| {
            let live = self.live.of(**id);
            live.owner.is_some()
                || live.has_more()
                || self.live.is_marked(**id)
                || self.has_machine_inputs(**id)
        };
        let mut targets: BTreeSet<LoopId> = scope.iter().filter(ends).copied().collect();
        // A parent is older than its children.
        for l in self.session.state.loops.values().rev() {
            if let Some(parent) = l.parent.filter(|p| scope.contains(p))
                && targets.contains(&l.id)
            {
                targets.insert(parent);
            }
        }
        targets
    }

    pub(super) fn claim_stop(
        &mut self,
        command_id: CommandId,
        loops: BTreeSet<LoopId>,
        abort: AbortReason,
        gates: CloseReason,
    ) {
        self.live.stops.push(Stop {
            command_id,
            loops: loops.clone(),
        });
        for loop_id in loops {
            self.abort_loop(loop_id, abort, gates);
            if abort == AbortReason::UserStop {
                self.cancel_machine_inputs(loop_id);
            }
        }
        // Controls that wait for a starting prompt learn that the session is stopping.
        self.effect(Effect::RetryWaiting);
    }

    /// Aborts what runs in a loop: its controls, its activities, its runner, in this order (R67).
    fn abort_loop(&mut self, loop_id: LoopId, abort: AbortReason, gates: CloseReason) {
        let live = self.live.of_mut(loop_id);
        let runner = live.owner.as_ref().map(|o| o.runner);
        let invocations = live
            .owner
            .iter()
            .flat_map(|o| o.invocations.keys().copied());
        let controls: Vec<InvocationId> = invocations.filter(|id| Some(*id) != runner).collect();
        let announced = std::mem::take(&mut live.announced);
        let has_activities = !live.activities.is_empty();
        for invocation in &controls {
            self.abort_one(*invocation, abort);
        }
        if has_activities {
            self.effect(Effect::AbortActivities(loop_id));
        }
        if let Some(runner) = runner {
            self.abort_one(runner, abort);
        }
        self.end_awaits(Some(loop_id), &DelegationError::Stopped);
        for announced in announced {
            let result = Err(ChannelError::Stopped);
            self.effect(Effect::AnswerAnnouncement {
                id: announced.id,
                result,
            });
        }
        for invocation in controls.into_iter().chain(runner) {
            self.close_gates(invocation, gates, &ChannelError::Stopped);
        }
    }

    /// Ends the stops whose loops have come to rest.
    pub(super) fn end_stops(&mut self) {
        let live = &self.live;
        if self.idle_waits_for_checkpoint() {
            return;
        }
        let ended = |stop: &Stop| stop.loops.iter().all(|id| live.of(*id).rests());
        let ended: Vec<CommandId> = live
            .stops
            .iter()
            .filter(|s| ended(s))
            .map(|s| s.command_id)
            .collect();
        for command_id in ended {
            self.end_stop(command_id);
        }
    }

    fn end_stop(&mut self, command_id: CommandId) {
        self.live.stops.retain(|s| s.command_id != command_id);
        self.effect(Effect::Stopped(command_id));
    }

    /// The barrier fails open: what waits behind it may go on where nothing runs (S91).
    pub(super) fn barrier_expired(&mut self, command_id: CommandId) -> Answer {
        if self.live.stops.iter().any(|s| s.command_id == command_id) {
            self.end_stop(command_id);
            return Answer::Bool(true);
        }
        Answer::Bool(false)
    }

    /// Loops in which something runs that a stop ends.
    pub(super) fn busy_loops(&self) -> BTreeSet<LoopId> {
        let busy = |id: &LoopId| {
            let live = self.live.of(*id);
            live.owner.is_some() || live.has_more()
        };
        self.live.loops.keys().copied().filter(busy).collect()
    }

    /// One that begins while everything is being stopped is stopped with the others (N13).
    pub(super) fn activity_began(&mut self, loop_id: LoopId, id: LinkId, label: String) -> Answer {
        self.live.of_mut(loop_id).activities.insert(id, label);
        if self.live.is_marked(loop_id) || self.live.faulted.is_some() {
            self.effect(Effect::AbortActivities(loop_id));
        }
        Answer::Accepted
    }

    pub(super) fn activities_settled(&mut self, loop_id: LoopId) -> Answer {
        self.live.of_mut(loop_id).activities.clear();
        Answer::None
    }

    /// The host shuts down. Waiting inputs stay without resolution; the next start holds them.
    pub(super) fn close(&mut self) -> Answer {
        if self.live.closing {
            return Answer::None;
        }
        self.live.closing = true;
        if self.live.faulted.is_none() {
            self.close_host_gates();
        }
        self.stop_checkpoints(&Refused::HostShuttingDown);
        // They go with their host: the next start tells their loops (§6.1).
        self.effect(Effect::EndProcesses);
        let loops = self.busy_loops();
        let unmarked = |id: &LoopId| !self.live.is_marked(*id);
        if self.live.faulted.is_none() && loops.iter().any(unmarked) {
            self.claim_stop(
                CommandId::ZERO,
                loops,
                AbortReason::Shutdown,
                CloseReason::OwnerClosed,
            );
        }
        Answer::None
    }
}
