//! The session's part in its workspace: in it with its runs, on it with a checkpoint or a rewind
//! (S98, S99).
//!
//! What the store is asked runs off the async threads with a bound; what it did comes back as a
//! message. The workspace is kept from others as long as anything is done to it, by a guard that
//! the work itself holds.

use super::{Actor, Msg};
use crate::requests::Keyed;
use crate::snapshots::{Tag, blocking, settle, settle_until_done};
use crate::workplaces::{Alone, Comings, Inside, Workplace};
use harness_core::ids::CommandId;
use harness_core::provider::Workspace;
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Input, Live, State, WorkspaceJob, WorkspaceOffer};
use harness_core::workspace::{
    Allowance, CheckpointPolicy, OpenRewind, Snapshot, SnapshotError, SnapshotStore, WorkspaceRef,
};
use harness_journal::IdempotencyScope;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long a store may stay over the bound of a snapshot before it is left to itself.
const GRACE: Duration = Duration::from_secs(5);

/// Who asked for a checkpoint or a rewind.
pub(super) struct Asker {
    keyed: Option<(IdempotencyScope, Keyed)>,
    reply: oneshot::Sender<Result<WorkspaceRef, Refused>>,
}

/// What an actor keeps of its workspace.
#[derive(Default)]
pub(super) struct Place {
    workplace: Option<Arc<Workplace>>,
    /// Why no snapshot of it can be taken at all.
    unsupported: Option<&'static str>,
    inside: Option<Inside>,
    alone: Option<Arc<Alone>>,
    /// What decisions may take, one at a time.
    offered_inside: Option<Inside>,
    offered_alone: Option<Alone>,
    /// Since a decision could not have it.
    comings: Option<Comings>,
    watch: Option<Watch>,
    /// Counts jobs, so that what an abandoned one still gives is told apart.
    job: u64,
    cancelled: Arc<AtomicBool>,
    askers: BTreeMap<CommandId, Asker>,
    /// A rewind whose event is being appended.
    rewind: Option<Box<dyn OpenRewind>>,
}

impl Place {
    pub(super) fn new(
        workplace: Option<Arc<Workplace>>,
        workspace: Option<&Workspace>,
        store: Option<&Arc<dyn SnapshotStore>>,
    ) -> Self {
        let unsupported = match (workspace, store) {
            (None, _) => {
                Some("the session has no workspace, so there is nothing to take a snapshot of")
            }
            (Some(Workspace::Remote { .. }), _) => Some(
                "snapshots need a workspace on the host's own machine, and this session's is remote",
            ),
            (Some(Workspace::Local { .. }), None) => Some("this host keeps no snapshots"),
            (Some(Workspace::Local { .. }), Some(_)) => None,
        };
        Self {
            workplace,
            unsupported,
            ..Self::default()
        }
    }

    /// What a decision over this input may do in the workspace. Nothing is taken that it has no
    /// use for, so that no other session finds the workspace in use for the length of an append.
    pub(super) fn offer(
        &mut self,
        input: &Input,
        state: &State,
        live: &Live,
        policy: CheckpointPolicy,
    ) -> WorkspaceOffer {
        let Some(place) = &self.workplace else {
            return WorkspaceOffer {
                open: true,
                alone: true,
                unsupported: self.unsupported,
                policy,
            };
        };
        let now = &live.workspace;
        let wants_alone = match input {
            Input::Checkpoint(_) | Input::Rewind { .. } => true,
            Input::Advance => now.due && !now.inside,
            _ => false,
        };
        let starts = match input {
            Input::Reserve(_) | Input::Submit { .. } => true,
            Input::Advance => state
                .loops
                .values()
                .any(|l| live.of(l.id).wants_a_turn(l) || !l.compact_waiters.is_empty()),
            _ => false,
        };
        let comings = place.comings();
        if wants_alone && self.alone.is_none() && self.offered_alone.is_none() {
            // Its own presence must not be in the way.
            self.offered_inside = None;
            self.offered_alone = place.take_alone();
        }
        let alone = self.alone.is_some() || self.offered_alone.is_some();
        if starts && !alone && !now.inside && self.offered_inside.is_none() {
            self.offered_inside = place.enter();
        }
        self.comings = Some(comings);
        WorkspaceOffer {
            open: now.inside || self.offered_inside.is_some(),
            alone,
            unsupported: self.unsupported,
            policy,
        }
    }

    /// What was offered and not taken.
    pub(super) fn take_back(&mut self) {
        self.offered_inside = None;
        self.offered_alone = None;
    }

    pub(super) fn enter(&mut self) {
        self.inside = self.offered_inside.take();
    }

    pub(super) fn leave(&mut self) {
        self.inside = None;
    }

    pub(super) fn free(&mut self) {
        self.alone = None;
    }

    pub(super) fn abandon(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.job += 1;
    }

    fn begin(&mut self) -> Option<(Arc<Workplace>, Arc<Alone>, Allowance, u64)> {
        if let Some(alone) = self.offered_alone.take() {
            self.alone = Some(Arc::new(alone));
        }
        self.job += 1;
        self.cancelled = Arc::default();
        let allowed = Allowance {
            time: None,
            cancelled: self.cancelled.clone(),
        };
        let place = self.workplace.clone()?;
        Some((place, self.alone.clone()?, allowed, self.job))
    }
}

impl Actor {
    /// A client's checkpoint or rewind; answered when it has ended.
    pub(super) async fn on_workspace(&mut self, input: Input, command_id: CommandId, asker: Asker) {
        self.place.askers.insert(command_id, asker);
        let refused = match self.feed(input, None).await {
            Answer::AtWork => return,
            Answer::Refused(refused) => *refused,
            _ => Refused::Internal,
        };
        self.answer_workspace(command_id, Err(refused));
    }

    pub(super) fn answer_workspace(
        &mut self,
        command_id: CommandId,
        result: Result<WorkspaceRef, Refused>,
    ) {
        if let Some(asker) = self.place.askers.remove(&command_id) {
            let _ = asker.reply.send(result);
        }
    }

    pub(super) fn watch_workspace(&mut self) {
        self.place.watch = None;
        let (Some(place), Some(comings)) =
            (self.place.workplace.clone(), self.place.comings.take())
        else {
            return;
        };
        let mailbox = self.mailbox.clone();
        self.place.watch = Some(Watch(tokio::spawn(async move {
            comings.next().await;
            drop(place);
            let _ = mailbox.send(Msg::WorkspaceChanged).await;
        })));
    }

    pub(super) fn take_checkpoint(&mut self) {
        let bound = self.deps.config.snapshot;
        let Some((place, alone, mut allowed, job)) = self.place.begin() else {
            tracing::error!(session = %self.id, "a checkpoint without a workspace");
            return;
        };
        allowed.time = Some(bound);
        let (deps, mailbox) = (self.deps.clone(), self.mailbox.clone());
        tokio::spawn(async move {
            let begun = std::time::Instant::now();
            let cancelled = allowed.cancelled.clone();
            let work = tokio::spawn(async move {
                let taken = match deps.snapshots.clone() {
                    None => Err(gone()),
                    Some(store) => match settle(&deps, &place).await {
                        Err(error) => Err(error),
                        Ok(()) => {
                            let root = place.root().to_owned();
                            blocking(&store, root, move |store, root| {
                                store.checkpoint(root, &allowed)
                            })
                            .await
                        }
                    },
                };
                // Kept to the end, however long that takes.
                drop(alone);
                taken
            });
            let result = match tokio::time::timeout(bound + GRACE, work).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(gone()),
                Err(_) => {
                    cancelled.store(true, Ordering::Relaxed);
                    Err(SnapshotError::Failed {
                        code: "deadline".into(),
                        message: "the workspace does not answer; the snapshot ran out of time"
                            .into(),
                    })
                }
            };
            measure(&result, begun.elapsed());
            let _ = mailbox.send(Msg::Checkpointed { job, result }).await;
        });
    }

    pub(super) async fn checkpointed(&mut self, job: u64, result: Result<Snapshot, SnapshotError>) {
        if job != self.place.job {
            return;
        }
        if let Err(error) = &result {
            tracing::warn!(session = %self.id, %error, "a checkpoint failed");
        }
        let asked = match &self.session.live.workspace.job {
            Some(WorkspaceJob::Checkpoint { asked }) => asked.clone(),
            _ => Vec::new(),
        };
        let keyed = self.keyed_of(&asked);
        self.feed_all(Input::Checkpointed(result), keyed).await;
    }

    pub(super) fn begin_rewind(&mut self, command: CommandId, reference: WorkspaceRef) {
        let tag = Tag {
            session: self.id,
            command,
            after: self.session.state.last_seq,
        };
        let Some((place, alone, mut allowed, job)) = self.place.begin() else {
            tracing::error!(session = %self.id, "a rewind without a workspace");
            return;
        };
        allowed.time = Some(self.deps.config.snapshot);
        let (deps, mailbox) = (self.deps.clone(), self.mailbox.clone());
        tokio::spawn(async move {
            let result = match deps.snapshots.clone() {
                None => Err(gone()),
                Some(store) => match settle(&deps, &place).await {
                    Err(error) => Err(error),
                    Ok(()) => {
                        let root = place.root().to_owned();
                        blocking(&store, root, move |store, root| {
                            store.rewind(root, &reference, &tag.text(), &allowed)
                        })
                        .await
                    }
                },
            };
            let lost = matches!(result, Err(SnapshotError::RollbackFailed(_)));
            let kept = alone.clone();
            let sent = mailbox.send(Msg::Rewound { job, result, alone }).await;
            if lost {
                settle_until_done(deps, place, kept).await;
            } else if let Err(unsent) = sent
                && let Msg::Rewound {
                    result: Ok(rewind), ..
                } = unsent.0
            {
                // Nobody is there to write it down.
                take_back(deps, place, kept, rewind, true).await;
            }
        });
    }

    pub(super) async fn rewound(
        &mut self,
        job: u64,
        result: Result<Box<dyn OpenRewind>, SnapshotError>,
        alone: Arc<Alone>,
    ) {
        let (rewind, outcome) = match result {
            Ok(rewind) => {
                let rewound = rewind.rewound();
                (Some(rewind), Ok(rewound))
            }
            Err(error) => (None, Err(error)),
        };
        let outcome_word = if outcome.is_ok() { "done" } else { "failed" };
        metrics::counter!("harness_rewinds_total", "outcome" => outcome_word).increment(1);
        if job != self.place.job {
            if let Some(rewind) = rewind {
                self.give_up_rewind(rewind, alone, true);
            }
            return;
        }
        if let Err(error) = &outcome {
            tracing::warn!(session = %self.id, %error, "a rewind failed");
        }
        let asked = match &self.session.live.workspace.job {
            Some(WorkspaceJob::Rewind { asked, .. }) => vec![*asked],
            _ => Vec::new(),
        };
        let keyed = self.keyed_of(&asked);
        self.place.rewind = rewind;
        self.feed_all(Input::Rewound(outcome), keyed).await;
        // Its event is not durable: nothing has happened. Where the store cannot tell, it stays on
        // record until the journal can be read.
        if let Some(rewind) = self.place.rewind.take() {
            let definite = !self.unsure;
            self.give_up_rewind(rewind, alone, definite);
        }
    }

    fn give_up_rewind(&self, rewind: Box<dyn OpenRewind>, alone: Arc<Alone>, definite: bool) {
        if let Some(place) = self.place.workplace.clone() {
            tokio::spawn(take_back(self.deps.clone(), place, alone, rewind, definite));
        }
    }

    /// The rewind's event is durable.
    pub(super) fn finish_rewind(&mut self) {
        let Some(rewind) = self.place.rewind.take() else {
            return;
        };
        let (job, alone, mailbox) = (
            self.place.job,
            self.place.alone.clone(),
            self.mailbox.clone(),
        );
        let id = self.id;
        tokio::spawn(async move {
            match tokio::task::spawn_blocking(move || rewind.finish()).await {
                Ok(Ok(())) => {}
                // Still on record: whoever works on the workspace next ends it first.
                Ok(Err(error)) => {
                    tracing::warn!(session = %id, %error, "what a rewind left could not be removed");
                }
                Err(error) => tracing::error!(session = %id, %error, "a rewind was cut off"),
            }
            drop(alone);
            let _ = mailbox.send(Msg::RewindFinished { job }).await;
        });
    }

    pub(super) async fn rewind_finished(&mut self, job: u64) {
        if job == self.place.job {
            self.feed(Input::RewindFinished, None).await;
        }
    }

    fn keyed_of(&self, asked: &[CommandId]) -> Vec<(IdempotencyScope, Keyed)> {
        let askers = asked.iter().filter_map(|id| self.place.askers.get(id));
        askers.filter_map(|asker| asker.keyed).collect()
    }
}

/// Takes a rewind back whose event is not durable. If the store cannot tell whether it is, it stays
/// on record, and the workspace closed, until the journal says so.
async fn take_back(
    deps: Arc<crate::deps::Deps>,
    place: Arc<Workplace>,
    alone: Arc<Alone>,
    rewind: Box<dyn OpenRewind>,
    definite: bool,
) {
    let back = tokio::task::spawn_blocking(move || {
        if definite {
            return rewind.rollback();
        }
        drop(rewind);
        Err(gone())
    });
    if let Ok(Ok(())) = back.await {
        return;
    }
    tracing::error!(root = %place.root().display(), "a rewind could not be written down; the workspace is kept closed until it is ended");
    settle_until_done(deps, place, alone).await;
}

fn gone() -> SnapshotError {
    SnapshotError::Failed {
        code: "internal".into(),
        message: "the snapshot was cut off; the log has more".into(),
    }
}

fn measure(result: &Result<Snapshot, SnapshotError>, took: Duration) {
    let outcome = if result.is_ok() { "taken" } else { "failed" };
    metrics::counter!("harness_checkpoints_total", "outcome" => outcome).increment(1);
    metrics::histogram!("harness_checkpoint_seconds").record(took.as_secs_f64());
}

impl Asker {
    pub(super) fn new(
        keyed: Option<(IdempotencyScope, Keyed)>,
        reply: oneshot::Sender<Result<WorkspaceRef, Refused>>,
    ) -> Self {
        Self { keyed, reply }
    }
}

/// A task that ends with who wants it.
struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
