//! Writing what a rewind needs into the staging directory.
//!
//! All that can take long or run out of space happens here, before the workspace is touched. The
//! directory is at the root, so that what is in it can be moved into place by renaming.

use super::turn::Turn;
use crate::beneath::remove_flat;
use crate::error::{WorkspaceError, show};
use crate::manifest::Node;
use crate::pack::Kind;
use crate::parallel::each;
use crate::reference::Hash;
use crate::step::Step;
use rustix::fs::{Mode, OFlags, fchmod, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// An entry that has to be made.
pub(super) struct Staged<'a> {
    pub(super) path: &'a [u8],
    pub(super) node: &'a Node,
    /// Its name in the staging directory.
    pub(super) name: String,
}

impl Turn<'_> {
    /// Stages these; answers with the staging directory and the bytes written.
    pub(super) fn stage(&self, staged: &[Staged<'_>]) -> Result<(OwnedFd, u64), WorkspaceError> {
        let name = self.staging.as_bytes();
        let failed = || WorkspaceError::at(name);
        self.root.unlock().map_err(failed())?;
        remove_flat(self.root, name)?;
        mkdirat(self.root.handle(), name, Mode::RWXU).map_err(failed())?;
        let directory = self.root.directory(name).map_err(failed())?;
        let (bytes, entries) = (AtomicU64::new(0), AtomicU64::new(0));
        each(staged, self.store.threads, |entry| {
            self.bound.check()?;
            self.store.steps.step(Step::Stage)?;
            let limit = self.store.limits.entries;
            if entries.fetch_add(1, Ordering::Relaxed) >= limit {
                return Err(WorkspaceError::TooLarge {
                    what: "entries",
                    limit,
                });
            }
            match entry.node {
                Node::File { mode, size, chunks } => {
                    self.stage_file(&directory, entry, (*mode, *size), chunks, &bytes)
                }
                Node::Link { text } => symlinkat(text.as_slice(), &directory, &*entry.name)
                    .map_err(WorkspaceError::at(entry.path)),
                Node::Directory { .. } => Ok(()),
            }
        })?;
        Ok((directory, bytes.into_inner()))
    }

    fn stage_file(
        &self,
        directory: &OwnedFd,
        entry: &Staged<'_>,
        (mode, size): (u16, u64),
        chunks: &[Hash],
        total: &AtomicU64,
    ) -> Result<(), WorkspaceError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failed = || WorkspaceError::at(entry.path);
        let file =
            openat(directory, &*entry.name, flags, Mode::RUSR | Mode::WUSR).map_err(failed())?;
        let mut file = File::from(file);
        let mut written = 0;
        for chunk in chunks {
            self.bound.check()?;
            let bytes = self.store.read(self.reader, Kind::Object, chunk)?;
            let length = bytes.len() as u64;
            let limit = self.store.limits.bytes;
            let before = total.fetch_add(length, Ordering::Relaxed);
            if before.saturating_add(length) > limit {
                return Err(WorkspaceError::TooLarge {
                    what: "bytes of file content",
                    limit,
                });
            }
            file.write_all(&bytes)
                .map_err(|error| match error.raw_os_error() {
                    Some(code) => failed()(Errno::from_raw_os_error(code)),
                    None => WorkspaceError::store("writing a file")(error),
                })?;
            written += length;
        }
        if written != size {
            return Err(WorkspaceError::Corrupt {
                what: format!("`{}` has {written} bytes, not {size}", show(entry.path)),
            });
        }
        fchmod(&file, Mode::from_raw_mode(mode.into())).map_err(failed())
    }
}
