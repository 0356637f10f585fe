//! Where a checkpoint's new content goes.

use crate::error::WorkspaceError;
use crate::pack::{Finished, Kind, PackWriter, prepare};
use crate::reference::Hash;
use crate::store::{Inner, lock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A pack is finished, and another begun, at this size.
const FULL: u64 = 512 << 20;

/// Takes content in; what is stored already is not stored again. Dropped, it leaves at most whole
/// packs that no ref needs.
pub(crate) struct Sink<'a> {
    store: &'a Inner,
    writer: Mutex<Option<PackWriter>>,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(store: &'a Inner) -> Self {
        Self {
            store,
            writer: Mutex::default(),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn put(&self, kind: Kind, hash: &Hash, bytes: &[u8]) -> Result<(), WorkspaceError> {
        if self.store.has(kind, hash) {
            return Ok(());
        }
        if lock(&self.writer)
            .as_ref()
            .is_some_and(|writer| writer.has(kind, hash))
        {
            return Ok(());
        }
        let prepared = prepare(bytes);
        let mut writer = lock(&self.writer);
        let open = match writer.as_mut() {
            Some(open) => open,
            None => writer.insert(PackWriter::create(
                &self.store.packs(),
                self.store.steps.clone(),
            )?),
        };
        let before = open.size();
        open.add(kind, hash, bytes, &prepared)?;
        if open.size() > before {
            self.records.fetch_add(1, Ordering::Relaxed);
            self.bytes
                .fetch_add(open.size() - before, Ordering::Relaxed);
        }
        if open.size() >= FULL {
            self.finish_pack(writer.take())?;
        }
        Ok(())
    }

    fn finish_pack(&self, writer: Option<PackWriter>) -> Result<(), WorkspaceError> {
        if let Some(writer) = writer {
            self.store.adopt(writer.finish()?);
        }
        Ok(())
    }

    /// Makes everything durable; answers with new records and their bytes.
    pub(crate) fn finish(self) -> Result<(u64, u64), WorkspaceError> {
        self.finish_pack(lock(&self.writer).take())?;
        Ok((
            self.records.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        ))
    }
}

impl Inner {
    /// Makes a finished pack known.
    pub(crate) fn adopt(&self, pack: Finished) -> u64 {
        let path = self.packs().join(pack.name);
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.add(path, pack.size, pack.records)
    }
}
