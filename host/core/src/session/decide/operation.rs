//! Native operations: reserve, attach, refuse (requirements-operations §7.1, R60-R65).

use super::Out;
use super::ending::bounded;
use crate::command::{Agency, Cause, CommandBody};
use crate::event::EventBody;
use crate::ids::{CommandId, HarnessId, LoopId, RunId, TurnId};
use crate::operation::{Execution, Operation};
use crate::refusal::Refused;
use crate::session::{Answer, Effect, Invocation, InvocationId, Kind, Origin, Owner, Reserve};
use crate::view::{OutcomeStatus, Status};
use std::collections::BTreeMap;

impl Out<'_, '_> {
    /// Steps 6 and 7 of §7.1, in the session's actor.
    pub(super) fn reserve(&mut self, reserve: Reserve) -> Answer {
        if let Some(refused) = self.refuse_operation(&reserve) {
            return self.refuse(refused);
        }
        if reserve
            .state_epoch
            .is_some_and(|seen| seen != self.live.of(reserve.loop_id).state_epoch)
        {
            return Answer::Reread;
        }
        if self.is_kept_out(reserve.loop_id) {
            return Answer::WaitForWorkspace;
        }
        match reserve.execution {
            Execution::Exclusive => self.reserve_exclusive(reserve),
            Execution::Control => self.reserve_control(reserve),
        }
    }

    /// What forbids any operation now.
    fn refuse_operation(&self, reserve: &Reserve) -> Option<Refused> {
        let state = &self.session.state;
        if let Some(refused) = self.closed() {
            return Some(refused);
        }
        if self.live.is_marked(reserve.loop_id) {
            return Some(Refused::SessionStopping);
        }
        let Some(loop_state) = self.loop_state(reserve.loop_id) else {
            return Some(Refused::LoopNotFound(reserve.loop_id.to_string()));
        };
        if loop_state.harness != reserve.harness_id {
            return Some(Refused::HarnessChanged { result: None });
        }
        if state.active_loop != reserve.loop_id {
            return Some(Refused::StatusChanged(
                "the active loop changed meanwhile; try again",
            ));
        }
        if state.settings_epoch != reserve.settings_epoch {
            return Some(Refused::StatusChanged(
                "the session's settings changed meanwhile; try again",
            ));
        }
        None
    }

    fn reserve_exclusive(&mut self, reserve: Reserve) -> Answer {
        let loop_state = self.loop_state(reserve.loop_id);
        let busy = loop_state.is_some_and(|l| l.is_open() || !l.gates.is_empty());
        if busy || self.live.of(reserve.loop_id).owner.is_some() {
            return self.refuse(Refused::SessionBusy(
                "a run is live; wait for its end or stop it",
            ));
        }
        if let Err(refused) = self.can_admit(reserve.loop_id) {
            return self.refuse(refused);
        }
        if loop_state.is_some_and(|l| !l.inbox.is_empty()) {
            return self.refuse(Refused::SessionBusy(
                "prompts wait in the queue; release or retract them first",
            ));
        }
        if !self.live.of(reserve.loop_id).slot && !self.cx.slot_free {
            return self.refuse(Refused::NoFreeSlot);
        }
        if self.session.state.run_id != reserve.run_id {
            return self.refuse(Refused::StatusChanged(
                "another run came between; read the session again",
            ));
        }
        let (Some(run), Some(turn)) = (self.cx.ids.mint(), self.cx.ids.mint()) else {
            return self.refuse(Refused::Internal);
        };
        let (run_id, turn_id) = (RunId(run), TurnId(turn));
        let command_id = reserve.origin.command_id;
        let loop_id = reserve.loop_id;
        self.operation_command(reserve);
        self.activate();
        self.event(
            loop_id,
            turn_id,
            Cause::by_agency(command_id, Agency::User),
            EventBody::TurnStarted {
                run_id,
                message: None,
                native: None,
            },
        );
        if !self.live.of(loop_id).slot {
            self.take_slot(loop_id);
        }
        // The placeholder handle of R65: controls attach at once.
        let invocation = self.claim(Claim {
            run_id,
            loop_id,
            turn: Some(turn_id),
            command_id,
            kind: Kind::Operation(Execution::Exclusive),
            handle: true,
        });
        self.effect(Effect::Invoke {
            invocation,
            command_id,
        });
        Answer::Reserved(invocation)
    }

    fn reserve_control(&mut self, reserve: Reserve) -> Answer {
        let command_id = reserve.origin.command_id;
        let loop_id = reserve.loop_id;
        match &self.live.of(loop_id).owner {
            Some(owner) if owner.compacts() => self.refuse(Refused::SessionBusy(
                "the conversation is being compacted; try again when it has ended",
            )),
            Some(owner) if owner.handle => {
                let harness = reserve.harness_id.clone();
                self.operation_command(reserve);
                let invocation = self.live.next_invocation();
                if let Some(owner) = &mut self.live.of_mut(loop_id).owner {
                    let kind = Kind::Operation(Execution::Control);
                    owner
                        .invocations
                        .insert(invocation, new_invocation(command_id, kind, harness));
                }
                self.effect(Effect::Invoke {
                    invocation,
                    command_id,
                });
                Answer::Reserved(invocation)
            }
            Some(_) if reserve.waited => self.refuse(Refused::SessionBusy(
                "a prompt is starting; try again when it runs",
            )),
            Some(_) => Answer::WaitForHandle,
            // The prompt it waited for never ran (R65).
            None if reserve.waited => {
                self.refuse(Refused::SessionBusy("the prompt that was starting failed"))
            }
            None => {
                if let Err(refused) = self.can_admit(loop_id) {
                    return self.refuse(refused);
                }
                let Some(run) = self.cx.ids.mint() else {
                    return self.refuse(Refused::Internal);
                };
                let run_id = RunId(run);
                self.operation_command(reserve);
                self.activate();
                let invocation = self.claim(Claim {
                    run_id,
                    loop_id,
                    turn: None,
                    command_id,
                    kind: Kind::Operation(Execution::Control),
                    handle: true,
                });
                self.effect(Effect::Invoke {
                    invocation,
                    command_id,
                });
                Answer::Reserved(invocation)
            }
        }
    }

    fn operation_command(&mut self, reserve: Reserve) {
        let session_id = self.session.state.id;
        self.command(
            reserve.origin,
            Agency::User,
            CommandBody::NativeOperation {
                session_id,
                loop_id: reserve.loop_id,
                harness_id: reserve.harness_id,
                operation: reserve.operation,
                execution: Some(reserve.execution),
                expected_revision: reserve.expected_revision,
            },
        );
    }

    /// R50: a first operation that met a problem before reserve leaves a failed row.
    pub(super) fn reject_first(
        &mut self,
        origin: Origin,
        operation: Operation,
        execution: Option<Execution>,
        code: String,
        message: String,
    ) -> Answer {
        if let Some(fault) = &self.live.faulted {
            return self.refuse(fault.refused());
        }
        let state = &self.session.state;
        let (session_id, loop_id, harness_id) = (state.id, state.active_loop, state.agent.clone());
        let command_id = origin.command_id;
        self.command(
            origin,
            Agency::User,
            CommandBody::NativeOperation {
                session_id,
                loop_id,
                harness_id,
                operation,
                execution,
                expected_revision: None,
            },
        );
        self.event(
            loop_id,
            TurnId::ZERO,
            Cause::by(command_id),
            EventBody::NativeOperationResolved {
                outcome: OutcomeStatus::Rejected,
                reason: Some(code),
                message: Some(bounded(message)),
                run_id: None,
                row: Some(Status::Failed),
                effective: None,
                native_session_id: None,
            },
        );
        Answer::Accepted
    }

    /// Installs an owner with its runner.
    pub(super) fn claim(&mut self, claim: Claim) -> InvocationId {
        self.enter_workspace();
        let runner = self.live.next_invocation();
        let harness = self
            .loop_state(claim.loop_id)
            .map_or_else(|| self.session.state.agent.clone(), |l| l.harness.clone());
        let invocations = BTreeMap::from([(
            runner,
            new_invocation(claim.command_id, claim.kind, harness),
        )]);
        self.live.of_mut(claim.loop_id).owner = Some(Owner {
            run_id: claim.run_id,
            loop_id: claim.loop_id,
            turn: claim.turn,
            cause: claim.command_id,
            runner,
            handle: claim.handle,
            ended: None,
            invocations,
            usage: None,
        });
        runner
    }
}

/// What an owner is claimed for.
pub(super) struct Claim {
    pub(super) run_id: RunId,
    pub(super) loop_id: LoopId,
    pub(super) turn: Option<TurnId>,
    pub(super) command_id: CommandId,
    pub(super) kind: Kind,
    pub(super) handle: bool,
}

fn new_invocation(command_id: CommandId, kind: Kind, harness: HarnessId) -> Invocation {
    Invocation {
        command_id,
        kind,
        entered: false,
        started: false,
        harness,
        aborted: None,
        ending_as: None,
    }
}
