//! Live sessions by id. A session is live while somebody uses it, and parked otherwise.
//!
//! A sharded map: no lock spans two sessions' requests for longer than a lookup.

use crate::handle::Handle;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use harness_core::ids::SessionId;
use std::sync::{Arc, Weak};

/// The live sessions of a host.
#[derive(Default)]
pub(crate) struct Directory {
    live: DashMap<SessionId, Arc<Handle>>,
}

impl Directory {
    /// The live session, if there is one.
    pub(crate) fn get(&self, id: SessionId) -> Option<Arc<Handle>> {
        self.live.get(&id).map(|entry| entry.value().clone())
    }

    /// The live session, or the one that `spawn` makes.
    pub(crate) fn get_or_spawn(
        &self,
        id: SessionId,
        spawn: impl FnOnce() -> Arc<Handle>,
    ) -> Arc<Handle> {
        if let Some(handle) = self.get(id) {
            return handle;
        }
        match self.live.entry(id) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => entry.insert(spawn()).clone(),
        }
    }

    /// Removes a session for parking, unless somebody else holds its handle. The caller holds one
    /// and the map another; a third means that a request is under way.
    pub(crate) fn retire(&self, id: SessionId, handle: &Arc<Handle>) -> bool {
        self.live
            .remove_if(&id, |_, entry| {
                Arc::ptr_eq(entry, handle) && Arc::strong_count(entry) <= 2
            })
            .is_some()
    }

    /// Removes a session whose actor has ended.
    pub(crate) fn forget(&self, id: SessionId, handle: &Weak<Handle>) {
        self.live.remove_if(&id, |_, entry| {
            std::ptr::eq(Arc::as_ptr(entry), handle.as_ptr())
        });
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// All live sessions by id: whatever is done to all of them is done in one order.
    pub(crate) fn all(&self) -> Vec<Arc<Handle>> {
        let live = self.live.iter();
        let mut live: Vec<_> = live.map(|e| (*e.key(), e.value().clone())).collect();
        live.sort_unstable_by_key(|(id, _)| *id);
        live.into_iter().map(|(_, handle)| handle).collect()
    }
}
