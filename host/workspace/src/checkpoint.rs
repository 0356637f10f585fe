//! Taking a snapshot, and naming a tree without storing it.

use crate::beneath::Root;
use crate::bound::Bound;
use crate::error::WorkspaceError;
use crate::manifest::Manifest;
use crate::pack::Kind;
use crate::reference::Ref;
use crate::scan::{Scan, Scanned};
use crate::sink::Sink;
use crate::store::{Inner, Store};
use std::path::Path;

/// A snapshot that was taken. Its bytes are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its name.
    pub reference: Ref,
    /// Directories, files and symlinks in it.
    pub entries: u64,
    /// Bytes of file content in it.
    pub bytes: u64,
    /// Records that were not stored before: chunks of files, parts of the manifest.
    pub new_records: u64,
    /// Bytes that the store grew by for them, its index not counted.
    pub new_bytes: u64,
}

impl Store {
    /// Stores the whole tree below `root` and names it (S98).
    ///
    /// The bytes are durable when this returns. After a failure, or past the bound, nothing refers
    /// to what was stored, and [`Store::collect`] removes it.
    ///
    /// # Errors
    ///
    /// `root`, `busy`, `rewind_pending`, `workspace_too_large`, `changed`, `mounted`, `denied`,
    /// `rules`, `symlink_parent`, `deadline`, `cancelled`, `disk_full`, `io`.
    pub fn checkpoint(&self, root: &Path, bound: &Bound) -> Result<Checkpoint, WorkspaceError> {
        let root = Root::open(root)?;
        let _claim = self.0.claim(&root.path)?;
        let _inside = self.0.gate.enter(bound)?;
        if self.0.intent(&root.path)?.is_some() {
            return Err(WorkspaceError::RewindPending);
        }
        let sink = Sink::new(&self.0);
        let mut scan = Scan::plain(&self.0, &root, bound);
        scan.sink = Some(&sink);
        let scanned = scan.run()?;
        let reference = self.0.keep(&sink, &scanned.manifest, bound)?;
        let (new_records, new_bytes) = sink.finish()?;
        self.0.hand_out(reference);
        Ok(Checkpoint {
            reference,
            entries: scanned.manifest.entries(),
            bytes: scanned.manifest.bytes(),
            new_records,
            new_bytes,
        })
    }

    /// The ref that a checkpoint of this tree would have; stores nothing.
    ///
    /// # Errors
    ///
    /// As [`Store::checkpoint`], but for the store's own.
    pub fn tree_hash(&self, root: &Path, bound: &Bound) -> Result<Ref, WorkspaceError> {
        let root = Root::open(root)?;
        let Scanned { manifest, .. } = Scan::plain(&self.0, &root, bound).run()?;
        Ok(manifest.encode()?.reference)
    }
}

impl Inner {
    /// Puts a manifest into the sink, its recipe last.
    pub(crate) fn keep(
        &self,
        sink: &Sink<'_>,
        manifest: &Manifest,
        bound: &Bound,
    ) -> Result<Ref, WorkspaceError> {
        let encoded = manifest.encode()?;
        for (hash, bytes) in &encoded.sections {
            bound.check()?;
            sink.put(Kind::Object, hash, bytes)?;
        }
        sink.put(Kind::Recipe, &encoded.reference.0, &encoded.recipe)?;
        bound.check()?;
        Ok(encoded.reference)
    }
}
