//! A data directory of its own for each test.

use harness_journal::conformance::{Backend, Store};
use harness_journal::{BoxFuture, SqliteOptions, SqliteStore};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A temporary data directory, removed at the end.
pub(crate) struct Directory {
    directory: tempfile::TempDir,
    /// The store that has it open, to be closed by a reopening.
    current: Mutex<Option<SqliteStore>>,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            current: Mutex::new(None),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn options(&self) -> SqliteOptions {
        SqliteOptions::new(self.path())
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.options()).unwrap()
    }
}

impl Backend for Directory {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            let store = self.store();
            *self.current.lock().unwrap() = Some(store.clone());
            Arc::new(store) as Arc<dyn Store>
        })
    }

    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async move {
            drop(store);
            let current = self.current.lock().unwrap().take();
            if let Some(current) = current {
                current.close().await;
            }
            self.open().await
        })
    }
}
