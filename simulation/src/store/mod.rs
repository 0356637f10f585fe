//! A store in memory: what a process leaves on the disk, without a disk.
//!
//! It keeps what `harness_journal` promises (the conformance suite is run against it) and holds
//! only what is durable: a new process opens it again with `MemoryStore::reopen`, which ends
//! every lease. Latency, faults and crashes are put around it (see `crate::flaky`).

mod append;
mod catalog;
mod page;
mod sessions;
mod state;

use bytes::Bytes;
use harness_core::ids::{
    CommandId, HarnessId, LoopId, ProjectId, Seq, SessionId, TokenId, WorkspaceId,
};
use harness_journal::{
    Epoch, Holder, NewToken, PermissionRule, Project, Projection, Record, StoredResponse, Workspace,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The store; clones share it.
#[derive(Clone, Default)]
pub struct MemoryStore {
    // A std mutex: held for one operation, never across an await.
    content: Arc<Mutex<Content>>,
}

#[derive(Default)]
struct Content {
    sessions: BTreeMap<SessionId, Stored>,
    answers: BTreeMap<(SessionId, CommandId), Kept>,
    projects: BTreeMap<ProjectId, Project>,
    workspaces: BTreeMap<WorkspaceId, Workspace>,
    tokens: BTreeMap<(i64, TokenId), NewToken>,
    rules: HashSet<PermissionRule>,
    named: BTreeMap<String, Bytes>,
    state: BTreeMap<Place, Vec<u8>>,
}

/// One session: its journal and its row.
struct Stored {
    created_at_ms: i64,
    epoch: Epoch,
    fence_seq: Seq,
    holder: Option<Holder>,
    records: Vec<Record>,
    /// Where a key is in the journal, with its fingerprint.
    places: HashMap<String, (Seq, [u8; 32])>,
    row: Projection,
}

/// A stored answer.
struct Kept {
    session: SessionId,
    body_sha256: [u8; 32],
    response: Option<StoredResponse>,
}

/// Whose state, and its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    provider: HarnessId,
    scope: Scope,
    key: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Provider,
    Project(ProjectId),
    Loop(SessionId, LoopId),
}

impl MemoryStore {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another process opens it: every lease in it ends (S66).
    pub fn reopen(&self) {
        for stored in self.content().sessions.values_mut() {
            stored.holder = None;
        }
    }

    /// Every session, by id.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionId> {
        self.content().sessions.keys().copied().collect()
    }

    /// The records of a session from a sequence on.
    #[must_use]
    pub fn records(&self, session: SessionId, from: Seq) -> Vec<Record> {
        let content = self.content();
        let records = content.sessions.get(&session).map(|s| s.records.as_slice());
        let records = records.unwrap_or_default().iter();
        records.filter(|r| r.seq >= from).cloned().collect()
    }

    /// The row of a session.
    #[must_use]
    pub fn row(&self, session: SessionId) -> Option<Projection> {
        let content = self.content();
        content.sessions.get(&session).map(|s| s.row.clone())
    }
}

impl Stored {
    fn next_seq(&self) -> Seq {
        self.records.len() as Seq + 1
    }
}

/// Who this process is.
fn holder() -> Holder {
    Holder {
        host: "simulated".to_owned(),
        pid: std::process::id(),
    }
}
