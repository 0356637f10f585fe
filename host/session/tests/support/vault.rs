//! A snapshot store that the test scripts: it answers by itself unless it is held, and writes down
//! what it is asked.

use super::patient;
use harness_core::workspace::*;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, mpsc as sync};
use std::time::Duration;
use tokio::sync::mpsc;

/// The ref of a tree.
pub fn reference(tree: u8) -> WorkspaceRef {
    let hex = format!("{tree:02x}").repeat(32);
    format!("v1:sha256:{hex}").parse().unwrap()
}

/// What a store says when it has no room.
pub fn full() -> SnapshotError {
    SnapshotError::Failed {
        code: "disk_full".into(),
        message: "no space is left".into(),
    }
}

/// A call that waits for its answer; dropped, it fails.
pub struct Held {
    pub allowed: Allowance,
    answer: sync::Sender<Result<(), SnapshotError>>,
}

impl Held {
    pub fn goes_on(self) {
        let _ = self.answer.send(Ok(()));
    }

    pub fn fails(self, error: SnapshotError) {
        let _ = self.answer.send(Err(error));
    }
}

/// The store.
pub struct Vault {
    me: std::sync::Weak<Vault>,
    hold: AtomicBool,
    held: mpsc::UnboundedSender<Held>,
    calls: tokio::sync::Mutex<mpsc::UnboundedReceiver<Held>>,
    /// Trees so far.
    trees: AtomicU8,
    /// The rewind on record.
    pub pending: Mutex<Option<String>>,
    /// What was done, in order.
    pub log: Mutex<Vec<String>>,
    /// Finishing or taking back fails.
    pub stuck: AtomicBool,
    /// What the last collection was told is wanted.
    pub wanted: Mutex<Vec<WorkspaceRef>>,
}

impl Vault {
    pub fn new() -> Arc<Self> {
        let (held, calls) = mpsc::unbounded_channel();
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            hold: false.into(),
            held,
            calls: tokio::sync::Mutex::new(calls),
            trees: 0.into(),
            pending: Mutex::default(),
            log: Mutex::default(),
            stuck: false.into(),
            wanted: Mutex::default(),
        })
    }

    /// From now on every call waits for the test.
    pub fn hold(&self) {
        self.hold.store(true, Ordering::SeqCst);
    }

    pub fn let_go(&self) {
        self.hold.store(false, Ordering::SeqCst);
    }

    /// The next call that waits.
    pub async fn next(&self) -> Held {
        let mut calls = self.calls.lock().await;
        patient("a call of the snapshot store", calls.recv())
            .await
            .unwrap()
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub fn count(&self, what: &str) -> usize {
        self.log().iter().filter(|l| l.starts_with(what)).count()
    }

    fn note(&self, what: impl Into<String>) {
        self.log.lock().unwrap().push(what.into());
    }

    fn wait(&self, allowed: &Allowance) -> Result<(), SnapshotError> {
        if !self.hold.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (answer, answered) = sync::channel();
        let allowed = allowed.clone();
        let _ = self.held.send(Held { allowed, answer });
        let gone = SnapshotError::Failed {
            code: "cancelled".into(),
            message: "nobody answered".into(),
        };
        answered
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or(Err(gone))
    }

    fn end(&self, what: &str) -> Result<(), SnapshotError> {
        if self.stuck.load(Ordering::SeqCst) {
            self.note(format!("{what} failed"));
            return Err(full());
        }
        self.note(what);
        *self.pending.lock().unwrap() = None;
        Ok(())
    }
}

impl SnapshotStore for Vault {
    fn checkpoint(&self, _: &Path, allowed: &Allowance) -> Result<Snapshot, SnapshotError> {
        self.note("checkpoint");
        self.wait(allowed)?;
        let tree = self.trees.fetch_add(1, Ordering::SeqCst) + 1;
        self.note(format!("stored {tree}"));
        Ok(Snapshot {
            reference: reference(tree),
            entries: 3,
            bytes: 4,
        })
    }

    fn rewind(
        &self,
        _: &Path,
        to: &WorkspaceRef,
        tag: &str,
        allowed: &Allowance,
    ) -> Result<Box<dyn OpenRewind>, SnapshotError> {
        self.note("rewind");
        *self.pending.lock().unwrap() = Some(tag.into());
        if let Err(error) = self.wait(allowed) {
            if !matches!(error, SnapshotError::RollbackFailed(_)) {
                *self.pending.lock().unwrap() = None;
            }
            return Err(error);
        }
        self.note("rewound");
        Ok(Box::new(Open {
            vault: self.me.upgrade().unwrap(),
            rewound: Rewound {
                reference: to.clone(),
                exact: true,
            },
        }))
    }

    fn pending(&self, _: &Path) -> Result<Option<String>, SnapshotError> {
        Ok(self.pending.lock().unwrap().clone())
    }

    fn recover(&self, _: &Path, way: Recovery) -> Result<(), SnapshotError> {
        self.end(match way {
            Recovery::Finish => "recover: finish",
            Recovery::RollBack => "recover: roll back",
        })
    }

    fn collect(&self) -> Box<dyn Collection> {
        Box::new(Collecting(self.me.upgrade().unwrap()))
    }
}

struct Open {
    vault: Arc<Vault>,
    rewound: Rewound,
}

impl OpenRewind for Open {
    fn rewound(&self) -> Rewound {
        self.rewound.clone()
    }

    fn finish(self: Box<Self>) -> Result<(), SnapshotError> {
        self.vault.end("finish")
    }

    fn rollback(self: Box<Self>) -> Result<(), SnapshotError> {
        self.vault.end("roll back")
    }
}

struct Collecting(Arc<Vault>);

impl Collection for Collecting {
    fn run(self: Box<Self>, live: Vec<WorkspaceRef>) -> Result<u64, SnapshotError> {
        *self.0.wanted.lock().unwrap() = live;
        Ok(7)
    }
}
