//! Making an actor: a session read back from its journal, or a new one (§6.1, S70, S78).

use super::Actor;
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
use harness_core::session::{Input, Record, Session};
use harness_journal::{Epoch, JournalError, RecordKind, WorkspaceTarget};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::mpsc;

/// Records read at a time.
const PAGE: usize = 1000;

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
    let id = origin.id();
    let (session, epoch, birth) = match origin {
        Origin::Journal(id) => {
            let (session, epoch) = replay(&deps, id).await?;
            (session, epoch, None)
        }
        Origin::New {
            started,
            loop_started,
            ..
        } => {
            // With `create` the journal writes its fence first, then these.
            let records = vec![Record::Event(*started), Record::Event(*loop_started)];
            let session = fold(&records, 2).map_err(|what| failed(id, &what))?;
            (session, Epoch::FIRST, Some(Birth { records }))
        }
    };
    let workspace = workspace_of(&deps, &session).await?;
    let published = Arc::new(ArcSwap::from_pointee(Published::of(
        &session,
        workspace.clone(),
    )));
    let mut actor = Actor {
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
        published,
        fanout: Fanout::default(),
        runs: HashMap::new(),
        prepared: HashMap::new(),
        results: HashMap::new(),
        waiting: Vec::new(),
        gates: HashMap::new(),
        announcements: HashMap::new(),
        last_announcement: 0,
        waits: Default::default(),
        stops: HashMap::new(),
        closes: Vec::new(),
        shutting: Default::default(),
        uses: lanes.uses,
        offered: None,
        own: VecDeque::new(),
        delivery: Delivery::Uncertain,
        quiet_since: None,
        handle: lanes.handle,
        dirty: true,
        retry_due: false,
        deleted: false,
    };
    if actor.birth.is_none() {
        let lost = actor.lost_delegates();
        let decision = actor.decide(Input::Restore { lost });
        if !decision.records.is_empty() {
            actor
                .append(decision.records, decision.live, false, None)
                .await?;
            actor.own.clear();
        }
    }
    actor.publish();
    // Set once, here: readers come after the session is ready.
    let _ = lanes.published.set(actor.published.clone());
    Ok(actor)
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

fn failed(id: SessionId, what: &dyn std::fmt::Display) -> Refused {
    tracing::error!(session = %id, reason = %what, "the session could not be restored");
    metrics::counter!("harness_restore_failures_total").increment(1);
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

/// Takes the lease, then reads every record up to its fence.
async fn replay(deps: &Deps, id: SessionId) -> Result<(Session, Epoch), Refused> {
    let lease = match deps
        .journal
        .open(id, Timestamp::now().as_millisecond())
        .await
    {
        Ok(lease) => lease,
        Err(JournalError::NotFound { .. }) => return Err(Refused::SessionNotFound(id.to_string())),
        Err(error) => {
            tracing::error!(session = %id, %error, "the session's journal could not be opened");
            return Err(Refused::StoreUnavailable);
        }
    };
    let mut session: Option<Session> = None;
    let mut next = Some(1);
    while let Some(from) = next {
        let page = deps
            .journal
            .read(id, from, PAGE)
            .await
            .map_err(|e| failed(id, &e))?;
        for stored in page.records {
            let record = match stored.kind {
                RecordKind::Fence => {
                    if let Some(session) = &mut session {
                        session.state.last_seq = stored.seq;
                    }
                    continue;
                }
                RecordKind::Command => {
                    Record::Command(decode_command(&stored.bytes).map_err(|e| failed(id, &e))?)
                }
                RecordKind::Event | RecordKind::GatePrepared => {
                    Record::Event(decode_event(&stored.bytes).map_err(|e| failed(id, &e))?)
                }
            };
            match (&mut session, &record) {
                (Some(session), _) => session
                    .replay(&record, stored.seq)
                    .map_err(|e| failed(id, &e))?,
                (none, Record::Event(event)) => {
                    *none = Some(Session::begin(event, stored.seq).map_err(|e| failed(id, &e))?);
                }
                (_, Record::Command(_)) => {
                    return Err(failed(id, &"a journal begins with an event"));
                }
            }
        }
        next = page.next;
    }
    let session = session.ok_or_else(|| failed(id, &"the journal holds no session"))?;
    Ok((session, lease.epoch))
}

async fn workspace_of(deps: &Deps, session: &Session) -> Result<Option<Workspace>, Refused> {
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
        // The row of a faulted session is behind what its actor knows.
        let faulted = self.session.live.faulted.is_some();
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
        if live.owners().next().is_some() || !live.stops.is_empty() || activities {
            return Err(Refused::SessionBusy("the session is live; stop it first"));
        }
        self.dispose_all(AbortReason::OwnerStopped).await;
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
