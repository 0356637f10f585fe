//! The suite of every journal, against the one of the simulation.

use harness_journal::BoxFuture;
use harness_journal::conformance::{Backend, Store};
use harness_simulation::store::MemoryStore;
use std::sync::Arc;

struct Memory(MemoryStore);

impl Backend for Memory {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let store = Arc::new(self.0.clone());
        Box::pin(async move { store as Arc<dyn Store> })
    }

    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<'_, Arc<dyn Store>> {
        drop(store);
        self.0.reopen();
        self.open()
    }
}

harness_journal::conformance!(Memory(MemoryStore::default()));
