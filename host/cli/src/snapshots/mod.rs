//! The snapshot store as the session layer's port: `harness-workspace` in the data directory.
//!
//! The store itself is content-addressed and would give any tree to whoever knows its ref; here a
//! ref opens the workspace it was taken of, and no other.

mod taken;

use harness_core::workspace::{
    Allowance, Collection, OpenRewind, Recovery, Rewound, Snapshot, SnapshotError, SnapshotStore,
    WorkspaceRef,
};
use harness_workspace::{
    Bound, Mark, Options, Recovery as Way, Ref, Rewind, Store, WorkspaceError,
};
use std::path::{Path, PathBuf};
use taken::Taken;

/// Snapshots of workspaces below one directory.
pub(crate) struct Snapshots {
    store: Store,
    taken: Taken,
}

impl Snapshots {
    /// Opens or makes the store. `own`: directories of the host that are never part of a snapshot.
    ///
    /// # Errors
    /// It cannot be made or read, or a newer host made it.
    pub(crate) fn open(directory: &Path, own: Vec<PathBuf>) -> Result<Self, WorkspaceError> {
        let options = Options {
            own,
            ..Options::default()
        };
        Ok(Self {
            store: Store::open_with(directory, options)?,
            taken: Taken::in_directory(directory.join("taken")),
        })
    }
}

impl SnapshotStore for Snapshots {
    fn checkpoint(&self, root: &Path, allowed: &Allowance) -> Result<Snapshot, SnapshotError> {
        let taken = self.store.checkpoint(root, &bound(allowed));
        let taken = taken.map_err(refused)?;
        self.taken.add(root, &taken.reference).map_err(unknown)?;
        Ok(Snapshot {
            reference: reference(taken.reference)?,
            entries: taken.entries,
            bytes: taken.bytes,
        })
    }

    fn rewind(
        &self,
        root: &Path,
        reference: &WorkspaceRef,
        tag: &str,
        allowed: &Allowance,
    ) -> Result<Box<dyn OpenRewind>, SnapshotError> {
        let wanted: Ref = reference.as_str().parse().map_err(refused)?;
        if !self.taken.has(root, &wanted).map_err(unknown)? {
            return Err(SnapshotError::RefNotFound(reference.to_string()));
        }
        let rewind = self.store.rewind(root, &wanted, tag, &bound(allowed));
        let rewind = rewind.map_err(refused)?;
        let rewound = Rewound {
            reference: reference.clone(),
            exact: rewind.rewound().exact,
        };
        Ok(Box::new(Open { rewind, rewound }))
    }

    fn pending(&self, root: &Path) -> Result<Option<String>, SnapshotError> {
        match self.store.pending(root) {
            Ok(pending) => Ok(pending.map(|pending| pending.tag)),
            // A workspace that is not there has nothing under way that could be ended.
            Err(WorkspaceError::Root { .. }) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    fn recover(&self, root: &Path, way: Recovery) -> Result<(), SnapshotError> {
        let way = match way {
            Recovery::Finish => Way::Finish,
            Recovery::RollBack => Way::RollBack,
        };
        let ended = self.store.recover(root, way, &Bound::none());
        ended.map(drop).map_err(refused)
    }

    fn collect(&self) -> Box<dyn Collection> {
        Box::new(Collecting {
            mark: self.store.mark(),
            store: self.store.clone(),
        })
    }
}

struct Open {
    rewind: Rewind,
    rewound: Rewound,
}

impl OpenRewind for Open {
    fn rewound(&self) -> Rewound {
        self.rewound.clone()
    }

    fn finish(self: Box<Self>) -> Result<(), SnapshotError> {
        self.rewind.finish().map(drop).map_err(refused)
    }

    fn rollback(self: Box<Self>) -> Result<(), SnapshotError> {
        self.rewind.rollback(&Bound::none()).map_err(refused)
    }
}

struct Collecting {
    mark: Mark,
    store: Store,
}

impl Collection for Collecting {
    fn run(self: Box<Self>, live: Vec<WorkspaceRef>) -> Result<u64, SnapshotError> {
        let live = live.iter().map(|r| r.as_str().parse::<Ref>());
        let live: Vec<Ref> = live.collect::<Result<_, _>>().map_err(refused)?;
        let collected = self.store.collect(self.mark, live, &Bound::none());
        let collected = collected.map_err(refused)?;
        if collected.broken_refs > 0 {
            tracing::error!(
                count = collected.broken_refs,
                "snapshots that journals name are damaged or missing"
            );
        }
        Ok(collected.bytes)
    }
}

fn bound(allowed: &Allowance) -> Bound {
    let bound = allowed.time.map_or_else(Bound::none, Bound::within);
    bound.cancelled_by(allowed.cancelled.clone())
}

fn reference(of: Ref) -> Result<WorkspaceRef, SnapshotError> {
    of.to_string()
        .parse()
        .map_err(|_| refused(WorkspaceError::RefMalformed))
}

fn refused(error: WorkspaceError) -> SnapshotError {
    match &error {
        WorkspaceError::RefNotFound { reference } => SnapshotError::RefNotFound(reference.clone()),
        WorkspaceError::Busy { .. } => SnapshotError::Busy(error.to_string()),
        WorkspaceError::RollbackFailed { .. } => SnapshotError::RollbackFailed(error.to_string()),
        _ => SnapshotError::Failed {
            code: error.code().to_owned(),
            message: error.to_string(),
        },
    }
}

fn unknown(error: std::io::Error) -> SnapshotError {
    tracing::error!(%error, "the list of a workspace's snapshots cannot be used");
    SnapshotError::Failed {
        code: "io".to_owned(),
        message: format!("the list of this workspace's snapshots: {}", error.kind()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    struct Place {
        dir: tempfile::TempDir,
        snapshots: Snapshots,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        for root in ["one", "two"] {
            fs::create_dir(dir.path().join(root)).unwrap();
        }
        let snapshots = Snapshots::open(&dir.path().join("store"), Vec::new()).unwrap();
        Place { dir, snapshots }
    }

    fn free() -> Allowance {
        Allowance {
            time: None,
            cancelled: Arc::new(AtomicBool::new(false)),
        }
    }

    impl Place {
        fn root(&self, name: &str) -> PathBuf {
            self.dir.path().join(name).canonicalize().unwrap()
        }

        fn take(&self, name: &str) -> WorkspaceRef {
            let taken = self.snapshots.checkpoint(&self.root(name), &free());
            taken.unwrap().reference
        }

        fn rewind(&self, name: &str, to: &WorkspaceRef) -> Result<(), SnapshotError> {
            let open = self.snapshots.rewind(&self.root(name), to, "tag", &free());
            open?.finish()
        }
    }

    #[test]
    fn s99_a_ref_opens_the_workspace_it_was_taken_of_and_no_other() {
        let place = place();
        fs::write(place.root("one").join("secret"), "of one").unwrap();
        let taken = place.take("one");
        let stolen = place.rewind("two", &taken).unwrap_err();
        assert_eq!(stolen, SnapshotError::RefNotFound(taken.to_string()));
        assert_eq!(fs::read_dir(place.root("two")).unwrap().count(), 0);
        fs::write(place.root("one").join("secret"), "changed").unwrap();
        place.rewind("one", &taken).unwrap();
        let read = fs::read_to_string(place.root("one").join("secret"));
        assert_eq!(read.unwrap(), "of one");
        // What both have is both's.
        fs::write(place.root("two").join("secret"), "of one").unwrap();
        assert_eq!(place.take("two"), taken);
        place.rewind("two", &taken).unwrap();
    }

    #[test]
    fn s99_which_refs_are_whose_survives_a_restart_and_a_torn_write() {
        let Place { dir, snapshots } = place();
        let place = Place { dir, snapshots };
        fs::write(place.root("one").join("a"), "1").unwrap();
        let taken = place.take("one");
        let Place { dir, snapshots } = place;
        drop(snapshots);
        let list = fs::read_dir(dir.path().join("store/taken")).unwrap();
        let list = list.map(|e| e.unwrap().path()).next().unwrap();
        let mut torn = fs::read(&list).unwrap();
        torn.extend([7; 5]);
        fs::write(&list, torn).unwrap();
        let snapshots = Snapshots::open(&dir.path().join("store"), Vec::new()).unwrap();
        let place = Place { dir, snapshots };
        place.rewind("one", &taken).unwrap();
        fs::write(place.root("one").join("a"), "2").unwrap();
        let second = place.take("one");
        let Place { dir, snapshots } = place;
        drop(snapshots);
        let snapshots = Snapshots::open(&dir.path().join("store"), Vec::new()).unwrap();
        let place = Place { dir, snapshots };
        place.rewind("one", &second).unwrap();
        place.rewind("one", &taken).unwrap();
    }

    #[test]
    fn s98_a_collection_frees_what_no_journal_names() {
        let place = place();
        let path = place.root("one").join("a");
        fs::write(&path, vec![1; 100_000]).unwrap();
        let gone = place.take("one");
        fs::write(&path, vec![2; 100_000]).unwrap();
        let kept = place.take("one");
        let collection = place.snapshots.collect();
        collection.run(vec![kept.clone()]).unwrap();
        place.rewind("one", &kept).unwrap();
        assert_eq!(
            place.rewind("one", &gone),
            Err(SnapshotError::RefNotFound(gone.to_string()))
        );
    }
}
