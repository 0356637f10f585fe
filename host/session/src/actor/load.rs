//! Making an actor: a session read back from its journal, or a new one (§6.1, S70, S78).

use super::{Actor, Place, restore};
use crate::deps::Deps;
use crate::fanout::Fanout;
use crate::handle::{Handle, Published, PublishedLoop, Uses};
use crate::requests::{Delivery, RowChange};
use arc_swap::ArcSwap;
use harness_core::abort::AbortReason;
use harness_core::codec::{decode_command, decode_event};
use harness_core::event::{Event, Runtime};
use harness_core::ids::SessionId;
use harness_core::provider::Workspace;
use harness_core::refusal::Refused;
use harness_core::session::{Record, Session};
use harness_journal::{Epoch, JournalError, Record as StoredRecord, RecordKind, WorkspaceTarget};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::mpsc;

/// A session that is not in the journal yet.
pub(crate) struct Birth {
    /// `SessionStarted`, `LoopStarted`.
    pub(crate) records: Vec<Record>,
}

/// Where a session comes from.
pub(crate) enum Origin {
    /// Its journal.
    Journal(SessionId),
    /// A request: these events begin it.
    New {
        /// Its id.
        id: SessionId,
        /// `SessionStarted`.
        started: Box<Event>,
        /// `LoopStarted`.
        loop_started: Box<Event>,
    },
}

impl Origin {
    pub(crate) fn id(&self) -> SessionId {
        match self {
            Self::Journal(id) | Self::New { id, .. } => *id,
        }
    }
}

/// The ends of an actor's channels.
pub(crate) struct Lanes {
    pub(crate) ordinary: mpsc::Receiver<super::Msg>,
    pub(crate) priority: mpsc::Receiver<super::Msg>,
    pub(crate) mailbox: mpsc::Sender<super::Msg>,
    pub(crate) published: Arc<OnceLock<Arc<ArcSwap<Published>>>>,
    pub(crate) handle: Weak<Handle>,
    pub(crate) uses: Arc<Uses>,
}

/// Reads or begins a session and repairs what a lost process left.
pub(super) async fn load(deps: Arc<Deps>, origin: Origin, lanes: Lanes) -> Result<Actor, Refused> {
    let published = lanes.published.clone();
    let mut actor = match origin {
        Origin::Journal(id) => restore::restore(deps, id, lanes).await?,
        Origin::New {
            id,
            started,
            loop_started,
        } => {
            // With `create` the journal writes its fence first, then these.
            let records = vec![Record::Event(*started), Record::Event(*loop_started)];
            let session = fold(&records, 2).map_err(|what| unfit(id, &what))?;
            let workspace = workspace_of(&deps, &session).await?;
            let birth = Some(Birth { records });
            assemble(deps, id, session, Epoch::FIRST, birth, workspace, lanes).await
        }
    };
    actor.publish();
    // Set once, here: readers come after the session is ready.
    let _ = published.set(actor.published.clone());
    Ok(actor)
}

/// An actor around a session.
pub(super) async fn assemble(
    deps: Arc<Deps>,
    id: SessionId,
    session: Session,
    epoch: Epoch,
    birth: Option<Birth>,
    workspace: Option<Workspace>,
    lanes: Lanes,
) -> Actor {
    let workplace = match &workspace {
        Some(Workspace::Local { root_path, .. }) => Some(deps.workplaces.at(root_path).await),
        _ => None,
    };
    let place = Place::new(workplace, workspace.as_ref(), deps.snapshots.as_ref());
    let published = Published::of(&session, workspace.clone());
    Actor {
        deps,
        id,
        session,
        epoch,
        birth,
        workspace,
        ordinary: lanes.ordinary,
        priority: lanes.priority,
        mailbox: lanes.mailbox,
        wake: Arc::default(),
        seats: BTreeMap::new(),
        published: Arc::new(ArcSwap::from_pointee(published)),
        fanout: Fanout::default(),
        runs: BTreeMap::new(),
        prepared: BTreeMap::new(),
        results: BTreeMap::new(),
        waiting: Vec::new(),
        outside: Vec::new(),
        gates: BTreeMap::new(),
        host_gates: BTreeMap::new(),
        announcements: BTreeMap::new(),
        last_announcement: 0,
        waits: Default::default(),
        stops: BTreeMap::new(),
        processes: Vec::new(),
        closes: Vec::new(),
        shutting: Default::default(),
        uses: lanes.uses,
        place,
        unsure: false,
        offered: None,
        own: VecDeque::new(),
        delivery: Delivery::Uncertain,
        quiet_since: None,
        handle: lanes.handle,
        dirty: true,
        retry_due: false,
        deleted: false,
    }
}

impl Published {
    /// What is known before anything was published.
    fn of(session: &Session, workspace: Option<Workspace>) -> Self {
        let state = &session.state;
        Self {
            view: Arc::new(session.view()),
            active: Arc::new(PublishedLoop {
                id: state.active_loop,
                harness: state.agent.clone(),
                native_session_id: None,
                workspace,
                runtime: Runtime::default(),
                mode: String::new(),
                params: state.params.clone(),
                state_epoch: 0,
                stopping: false,
                instance: None,
            }),
            loops: Vec::new(),
            settings_epoch: state.settings_epoch,
            run_id: state.run_id,
            faulted: false,
            born: false,
        }
    }
}

fn unfit(id: SessionId, what: &dyn std::fmt::Display) -> Refused {
    tracing::error!(session = %id, reason = %what, "a new session does not begin as one");
    Refused::Internal
}

fn fold(records: &[Record], first: u64) -> Result<Session, String> {
    let mut rest = records.iter().zip(first..);
    let Some((Record::Event(begin), seq)) = rest.next() else {
        return Err("a session begins with an event".into());
    };
    let mut session = Session::begin(begin, seq).map_err(|e| e.to_string())?;
    for (record, seq) in rest {
        session.replay(record, seq).map_err(|e| e.to_string())?;
    }
    Ok(session)
}

/// Takes one stored record into the session that those before it made.
///
/// # Errors
/// Why it is no record of this session.
pub(super) fn fold_record(
    session: &mut Option<Session>,
    stored: &StoredRecord,
) -> Result<(), String> {
    let seq = stored.seq;
    let record = match stored.kind {
        RecordKind::Fence => {
            if let Some(session) = session {
                session.state.last_seq = seq;
            }
            return Ok(());
        }
        RecordKind::Command => {
            Record::Command(decode_command(&stored.bytes).map_err(|e| e.to_string())?)
        }
        RecordKind::Event | RecordKind::GatePrepared => {
            Record::Event(decode_event(&stored.bytes).map_err(|e| e.to_string())?)
        }
    };
    match (session, &record) {
        (Some(session), _) => session.replay(&record, seq).map_err(|e| e.to_string()),
        (none, Record::Event(event)) => {
            *none = Some(Session::begin(event, seq).map_err(|e| e.to_string())?);
            Ok(())
        }
        (_, Record::Command(_)) => Err("a journal begins with an event".into()),
    }
}

pub(super) async fn workspace_of(
    deps: &Deps,
    session: &Session,
) -> Result<Option<Workspace>, Refused> {
    let id = session.state.workspace_id.clone();
    let stored = deps
        .catalog
        .workspace(id)
        .await
        .map_err(|_| Refused::StoreUnavailable)?;
    Ok(stored.map(|w| match w.target {
        WorkspaceTarget::Local { root_path } => Workspace::Local {
            id: w.id,
            root_path,
        },
        WorkspaceTarget::Remote { host, path } => Workspace::Remote {
            id: w.id,
            host,
            path,
        },
    }))
}

impl Actor {
    /// Ends the actor of a quiet session, unless somebody holds its handle. A parked session
    /// costs a database row, not memory.
    pub(super) async fn park(&mut self) -> bool {
        self.quiet_since = Some(tokio::time::Instant::now());
        self.fanout.sweep();
        // The row of a faulted session is behind what its actor knows. One that was taken over is
        // somebody else's to show.
        let faulted = self.session.live.faulted.is_some() && !self.is_taken_over();
        let wanted = !self.fanout.is_empty() || !self.ordinary.is_empty();
        if faulted || wanted || !self.priority.is_empty() {
            return false;
        }
        let Some(handle) = self.handle.upgrade() else {
            return true;
        };
        if !self.deps.directory.retire(self.id, &handle) {
            return false;
        }
        if self.birth.is_none()
            && let Err(error) = self.deps.journal.release(self.id, self.epoch).await
        {
            tracing::debug!(session = %self.id, %error, "the lease was not given back");
        }
        metrics::counter!("harness_sessions_parked_total").increment(1);
        true
    }

    pub(super) async fn delete(&mut self) -> Result<(), Refused> {
        let live = &self.session.live;
        let activities = live.loops.values().any(|l| !l.activities.is_empty());
        let works = live.owners().next().is_some() || live.workspace.held;
        if works || !live.stops.is_empty() || activities {
            return Err(Refused::SessionBusy("the session is live; stop it first"));
        }
        let processes = self.end_processes();
        self.dispose_all(AbortReason::OwnerStopped).await;
        processes.await;
        match self.deps.journal.delete(self.id).await {
            Ok(()) | Err(JournalError::NotFound { .. }) => {
                self.deleted = true;
                // Before the answer: nobody who was told finds it again.
                self.deps.directory.forget(self.id, &self.handle);
                let _ = self.deps.rows.send(RowChange::Deleted {
                    id: self.id,
                    project_id: self.published.load().view.project_id.clone(),
                });
                Ok(())
            }
            Err(error) => {
                tracing::error!(session = %self.id, %error, "the session was not deleted");
                Err(Refused::StoreUnavailable)
            }
        }
    }
}
