//! Reading files, or knowing them by their stamps.

use super::{Listing, Scan, Seen};
use crate::error::{WorkspaceError, show};
use crate::limits::CHUNK;
use crate::manifest::join;
use crate::pack::Kind;
use crate::parallel::each;
use crate::reference::Hash;
use crate::stamp::{KnownFiles, Stamp, now};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

/// Times that a file is read before it counts as restless.
const TRIES: usize = 3;

/// What is in a file.
pub(super) struct Content {
    pub(super) stamp: Stamp,
    pub(super) chunks: Vec<Hash>,
    /// A later write is bound to change the stamp.
    pub(super) settled: bool,
    /// Nothing was read.
    pub(super) was_known: bool,
}

impl Scan<'_> {
    pub(super) fn contents(
        &self,
        files: &[(&Listing, &Seen)],
        known: &KnownFiles,
    ) -> Result<Vec<Content>, WorkspaceError> {
        let total = AtomicU64::new(0);
        each(files, self.store.threads, |(listing, seen)| {
            self.bound.check()?;
            if let Some(content) = self.known(listing, seen, known) {
                self.count(&total, seen.stamp.size)?;
                return Ok(content);
            }
            let path = join(&listing.path, &seen.name);
            for _ in 0..TRIES {
                if let Some(content) = self.read(&path, &total)? {
                    return Ok(content);
                }
            }
            Err(WorkspaceError::Changed { path: show(&path) })
        })
    }

    fn count(&self, total: &AtomicU64, bytes: u64) -> Result<(), WorkspaceError> {
        let limit = self.store.limits.bytes;
        let before = total.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > limit {
            return Err(WorkspaceError::TooLarge {
                what: "bytes of file content",
                limit,
            });
        }
        Ok(())
    }

    fn known(&self, listing: &Listing, seen: &Seen, known: &KnownFiles) -> Option<Content> {
        let names = known.get(&listing.path)?;
        let place = names
            .binary_search_by(|known| known.name.cmp(&seen.name))
            .ok()?;
        let known = names.get(place).filter(|known| known.stamp == seen.stamp)?;
        if self.sink.is_some() && !self.store.has_all(Kind::Object, &known.chunks) {
            return None;
        }
        Some(Content {
            stamp: known.stamp,
            chunks: known.chunks.clone(),
            settled: true,
            was_known: true,
        })
    }

    /// Reads a file; `None` when it changed meanwhile.
    fn read(&self, path: &[u8], total: &AtomicU64) -> Result<Option<Content>, WorkspaceError> {
        let (began, file, stamp) = self.open(path)?;
        // Before it is read: a file may be larger than all that may be.
        self.count(total, stamp.size)?;
        let chunks = self.chunks(path, &file, &stamp)?;
        let after = fstat(&file).map_err(WorkspaceError::at(path))?;
        match chunks.filter(|_| Stamp::of(&after) == stamp) {
            Some(chunks) => Ok(Some(Content {
                stamp,
                chunks,
                settled: stamp.settled(began),
                was_known: false,
            })),
            None => {
                total.fetch_sub(stamp.size, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    /// A file, its stamp, and when that was not yet taken.
    fn open(&self, path: &[u8]) -> Result<(i128, File, Stamp), WorkspaceError> {
        let began = now();
        let file = match self.root.file(path) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NXIO) => {
                return Err(WorkspaceError::Changed { path: show(path) });
            }
            Err(errno) => return Err(WorkspaceError::at(path)(errno)),
        };
        let stat = fstat(&file).map_err(WorkspaceError::at(path))?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(WorkspaceError::Changed { path: show(path) });
        }
        Ok((began, file, Stamp::of(&stat)))
    }

    /// Hashes of what is in a file; `None` when it is not as long as its stamp says.
    fn chunks(
        &self,
        path: &[u8],
        mut file: &File,
        stamp: &Stamp,
    ) -> Result<Option<Vec<Hash>>, WorkspaceError> {
        let mut chunks = Vec::new();
        let mut size = 0;
        // One byte more than there should be shows the end, or growth.
        let room = usize::try_from(stamp.size.saturating_add(1)).unwrap_or(CHUNK);
        let mut buffer = Vec::with_capacity(room.min(CHUNK));
        loop {
            self.bound.check()?;
            buffer.clear();
            let read = file
                .by_ref()
                .take(CHUNK as u64)
                .read_to_end(&mut buffer)
                .map_err(|error| match error.raw_os_error() {
                    Some(code) => WorkspaceError::at(path)(Errno::from_raw_os_error(code)),
                    None => WorkspaceError::store("reading a file")(error),
                })?;
            size += read as u64;
            if size > stamp.size {
                return Ok(None);
            }
            if read > 0 {
                let hash: Hash = Sha256::digest(&buffer).into();
                if let Some(sink) = self.sink {
                    sink.put(Kind::Object, &hash, &buffer)?;
                }
                chunks.push(hash);
            }
            if read < CHUNK {
                return Ok((size == stamp.size).then_some(chunks));
            }
        }
    }
}
