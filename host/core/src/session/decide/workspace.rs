//! Checkpoints and rewinds of the workspace (S67, S98, S99).
//!
//! A session works *in* its workspace while it has a run, and many sessions may. It works *on* it
//! while it takes a snapshot or rewinds, alone and idle: then nothing of its own starts, and other
//! sessions' starts wait. What the store did comes back as an input; its event is appended after
//! the bytes are durable, and who asked is answered after that.
//!
//! Checkpoints that are asked for meanwhile wait: under `required` each gets a snapshot of its own,
//! in order; otherwise all of them share the next one. A rewind never waits.

use super::Out;
use super::ending::bounded;
use crate::command::Cause;
use crate::event::EventBody;
use crate::ids::{CommandId, LoopId, TurnId};
use crate::refusal::Refused;
use crate::session::{Answer, Effect, Fault, LoopState, Origin, WorkspaceJob};
use crate::view::RowError;
use crate::workspace::{CheckpointPolicy, Rewound, Snapshot, SnapshotError, WorkspaceRef};

/// Checkpoints that may wait in one session.
pub const MAX_CHECKPOINT_WAITERS: usize = 64;

const BUSY: &str = "the session has work; wait for its end or stop it";
const SHARED: &str = "another session works in this workspace; wait for its end or stop it";

impl Out<'_, '_> {
    pub(super) fn checkpoint(&mut self, origin: Origin) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        if let Some(why) = self.cx.workspace.unsupported {
            return self.refuse(Refused::SnapshotsUnsupported(why));
        }
        let workspace = &mut self.live.workspace;
        if workspace.job.is_some() || !workspace.waiting.is_empty() {
            if workspace.waiting.len() >= MAX_CHECKPOINT_WAITERS {
                return self.refuse(Refused::SessionBusy(
                    "64 checkpoints wait already; try again when one has ended",
                ));
            }
            workspace.waiting.push_back(origin.command_id);
            return Answer::AtWork;
        }
        if let Some(refused) = self.not_alone() {
            return self.refuse(refused);
        }
        self.begin_checkpoint(vec![origin.command_id]);
        Answer::AtWork
    }

    pub(super) fn rewind(&mut self, origin: Origin, reference: WorkspaceRef) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        if let Some(why) = self.cx.workspace.unsupported {
            return self.refuse(Refused::SnapshotsUnsupported(why));
        }
        if self.works_on_workspace() {
            return self.refuse(Refused::NotIdle(
                "a checkpoint or rewind of the workspace is under way; try again when it has ended",
            ));
        }
        if let Some(refused) = self.not_alone() {
            return self.refuse(refused);
        }
        let asked = origin.command_id;
        let workspace = &mut self.live.workspace;
        workspace.held = true;
        workspace.job = Some(WorkspaceJob::Rewind {
            asked,
            reference: reference.clone(),
            recorded: false,
        });
        self.effect(Effect::Rewind {
            command_id: asked,
            reference,
        });
        Answer::AtWork
    }

    /// The snapshot is durable, or there is none.
    pub(super) fn checkpointed(&mut self, result: Result<Snapshot, SnapshotError>) -> Answer {
        let job = self.live.workspace.job.take();
        let Some(WorkspaceJob::Checkpoint { asked }) = job else {
            self.live.workspace.job = job;
            return Answer::None;
        };
        match result {
            Ok(snapshot) => {
                self.live.workspace.due = false;
                self.live.workspace.fault = None;
                let policy_alone = asked.is_empty().then_some(Cause::default());
                let causes = asked.iter().map(|id| Cause::by(*id)).chain(policy_alone);
                for cause in causes.collect::<Vec<_>>() {
                    let body = EventBody::WorkspaceCheckpointed {
                        reference: snapshot.reference.clone(),
                        entries: snapshot.entries,
                        bytes: snapshot.bytes,
                    };
                    self.event(LoopId::ZERO, TurnId::ZERO, cause, body);
                }
                for id in asked {
                    self.answer_workspace(id, Ok(snapshot.reference.clone()));
                }
                Answer::Accepted
            }
            Err(error) => {
                self.live.workspace.due &= !asked.is_empty();
                if self.cx.workspace.policy == CheckpointPolicy::Required {
                    self.live.workspace.due = false;
                    self.live.workspace.fault = Some(row_error(&error));
                }
                for id in asked {
                    self.answer_workspace(id, Err(refused(error.clone())));
                }
                Answer::None
            }
        }
    }

    /// The workspace is what the snapshot says, or was left as it was. `Accepted`: the event is
    /// part of this decision.
    pub(super) fn rewound(&mut self, result: Result<Rewound, SnapshotError>) -> Answer {
        let job = &mut self.live.workspace.job;
        let Some(WorkspaceJob::Rewind {
            asked, recorded, ..
        }) = job
        else {
            return Answer::None;
        };
        let asked = *asked;
        match result {
            Ok(rewound) => {
                *recorded = true;
                self.live.workspace.due = false;
                let body = EventBody::WorkspaceRestored {
                    reference: rewound.reference,
                    exact: rewound.exact,
                };
                self.event(LoopId::ZERO, TurnId::ZERO, Cause::by(asked), body);
                self.effect(Effect::FinishRewind);
                Answer::Accepted
            }
            Err(error) => {
                *job = None;
                let lost = matches!(error, SnapshotError::RollbackFailed(_));
                let reason = error.to_string();
                self.answer_workspace(asked, Err(refused(error)));
                if lost {
                    // Nobody knows what the workspace is (S99).
                    self.fault(Fault::Refused(bounded(reason)));
                }
                Answer::None
            }
        }
    }

    pub(super) fn rewind_finished(&mut self) -> Answer {
        let job = self.live.workspace.job.take();
        match job {
            Some(WorkspaceJob::Rewind {
                asked,
                reference,
                recorded: true,
            }) => self.answer_workspace(asked, Ok(reference)),
            other => self.live.workspace.job = other,
        }
        Answer::None
    }

    /// What goes on with the workspace before anything else may begin. True: something did.
    pub(super) fn advance_workspace(&mut self) -> bool {
        let workspace = &mut self.live.workspace;
        if workspace.job.is_some() {
            return false;
        }
        if !workspace.waiting.is_empty() {
            let asked = match self.cx.workspace.policy {
                CheckpointPolicy::Required => workspace.waiting.pop_front().into_iter().collect(),
                _ => std::mem::take(&mut workspace.waiting).into(),
            };
            self.begin_checkpoint(asked);
            return true;
        }
        if workspace.due && !workspace.inside {
            if workspace.held || self.cx.workspace.alone {
                self.begin_checkpoint(Vec::new());
                return true;
            }
            match self.cx.workspace.policy {
                CheckpointPolicy::Required => self.watch_workspace(),
                // Made up for at the next idle edge.
                _ => workspace.due = false,
            }
        }
        if self.live.workspace.held {
            self.live.workspace.held = false;
            self.effect(Effect::FreeWorkspace);
            return true;
        }
        false
    }

    /// The last run has ended and nothing began: others may have the workspace alone.
    pub(super) fn leave_workspace(&mut self) {
        if self.live.workspace.inside && self.live.owners().next().is_none() {
            self.live.workspace.inside = false;
            self.effect(Effect::LeaveWorkspace);
        }
    }

    pub(super) fn enter_workspace(&mut self) {
        if !self.live.workspace.inside {
            self.live.workspace.inside = true;
            self.effect(Effect::EnterWorkspace);
        }
    }

    /// Looks again when somebody leaves, if that is what something waits for.
    pub(super) fn watch_for(&mut self, loop_id: LoopId) {
        let live = self.live.of(loop_id);
        let waits = |l: &LoopState| live.wants_a_turn(l) || !l.compact_waiters.is_empty();
        let waits = self.loop_state(loop_id).is_some_and(waits);
        if waits && self.closed().is_none() && !self.works_on_workspace() && !self.is_let_in() {
            self.watch_workspace();
        }
    }

    /// Whether another session alone keeps an operation from beginning there; looks again when it
    /// leaves.
    pub(super) fn is_kept_out(&mut self, loop_id: LoopId) -> bool {
        let own = self.works_on_workspace() || self.live.workspace.fault.is_some();
        let begins = self.live.of(loop_id).owner.is_none();
        let kept_out = begins && !own && !self.is_let_in();
        if kept_out {
            self.watch_workspace();
        }
        kept_out
    }

    fn watch_workspace(&mut self) {
        if !self.live.workspace.watches {
            self.live.workspace.watches = true;
            self.effect(Effect::WatchWorkspace);
        }
    }

    /// The session goes idle, or is found idle: the policy may want a checkpoint of that (S98).
    pub(super) fn checkpoint_is_due(&mut self) {
        let offer = self.cx.workspace;
        let wanted = offer.policy != CheckpointPolicy::Off && offer.unsupported.is_none();
        let goes_on = !self.is_leaving() && self.live.workspace.fault.is_none();
        if wanted && goes_on {
            self.live.workspace.due = true;
        }
    }

    /// A restart does not forget a checkpoint that was required and not taken.
    pub(super) fn checkpoint_is_owed(&mut self) {
        let offer = self.cx.workspace;
        let required = offer.policy == CheckpointPolicy::Required && offer.unsupported.is_none();
        self.live.workspace.due |= required && self.session.state.owes_checkpoint;
    }

    /// Whether who waits for idle waits for a checkpoint, too (S67, S91).
    pub(super) fn idle_waits_for_checkpoint(&self) -> bool {
        let workspace = &self.live.workspace;
        let runs = matches!(workspace.job, Some(WorkspaceJob::Checkpoint { .. }));
        self.cx.workspace.policy == CheckpointPolicy::Required && (workspace.due || runs)
    }

    /// The session works on its workspace, or is about to.
    pub(super) fn works_on_workspace(&self) -> bool {
        let workspace = &self.live.workspace;
        let required = self.cx.workspace.policy == CheckpointPolicy::Required;
        workspace.job.is_some()
            || workspace.held
            || !workspace.waiting.is_empty()
            || workspace.due && required
    }

    /// Whether work may begin there as far as other sessions are concerned.
    pub(super) fn is_let_in(&self) -> bool {
        self.live.workspace.inside || self.cx.workspace.open
    }

    /// The session or the host ends: who waits for a checkpoint to begin is told, one that runs is
    /// waited for (S94).
    pub(super) fn stop_checkpoints(&mut self, why: &Refused) {
        let workspace = &mut self.live.workspace;
        workspace.due = false;
        workspace.watches = false;
        for id in std::mem::take(&mut workspace.waiting) {
            self.answer_workspace(id, Err(why.clone()));
        }
    }

    /// Nobody waits for the job any more. What it still gives is taken back. True: there was one.
    pub(super) fn abandon_workspace_job(&mut self, why: &Refused) -> bool {
        self.stop_checkpoints(why);
        let job = self.live.workspace.job.take();
        let was = job.is_some();
        if was {
            self.effect(Effect::AbandonWorkspaceJob);
        }
        match job {
            None => {}
            Some(WorkspaceJob::Checkpoint { asked }) => {
                for id in asked {
                    self.answer_workspace(id, Err(why.clone()));
                }
            }
            Some(WorkspaceJob::Rewind {
                asked,
                reference,
                recorded,
            }) => {
                let told = if recorded {
                    Ok(reference)
                } else {
                    Err(why.clone())
                };
                self.answer_workspace(asked, told);
            }
        }
        if std::mem::take(&mut self.live.workspace.held) {
            self.effect(Effect::FreeWorkspace);
        }
        was
    }

    /// Why the session cannot have its workspace alone.
    fn not_alone(&self) -> Option<Refused> {
        let runs = self.session.state.active || self.live.owners().next().is_some();
        if runs || !self.live.stops.is_empty() {
            Some(Refused::NotIdle(BUSY))
        } else if self.cx.workspace.alone {
            None
        } else {
            Some(Refused::NotIdle(SHARED))
        }
    }

    fn begin_checkpoint(&mut self, asked: Vec<CommandId>) {
        self.live.workspace.held = true;
        self.live.workspace.job = Some(WorkspaceJob::Checkpoint { asked });
        self.effect(Effect::Checkpoint);
    }

    fn answer_workspace(&mut self, command_id: CommandId, result: Result<WorkspaceRef, Refused>) {
        let result = result.map_err(Box::new);
        self.effect(Effect::AnswerWorkspace { command_id, result });
    }
}

fn refused(error: SnapshotError) -> Refused {
    match error {
        SnapshotError::RefNotFound(reference) => Refused::RefNotFound(reference),
        SnapshotError::Busy(_) => Refused::NotIdle(SHARED),
        SnapshotError::RollbackFailed(message) | SnapshotError::Failed { message, .. } => {
            Refused::SnapshotFailed(bounded(message))
        }
    }
}

fn row_error(error: &SnapshotError) -> RowError {
    let code = match error {
        SnapshotError::RefNotFound(_) => "ref_not_found",
        SnapshotError::Busy(_) => "busy",
        SnapshotError::RollbackFailed(_) => "rollback_failed",
        SnapshotError::Failed { code, .. } => code.as_str(),
    };
    RowError {
        code: code.to_owned(),
        message: bounded(error.to_string()),
    }
}
