//! One process a data directory: an operating-system lock on a file that names its holder (S66).
//!
//! The lock, not the file, is the truth: it goes when the process goes, however it goes. What the
//! file says is only for the error message of whoever comes second.

use crate::error::JournalError;
use crate::lease::Holder;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

/// Name of the lock file in the data directory.
pub(super) const LOCK_FILE: &str = "harness.lock";

/// The held lock; released when dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    file: File,
    holder: Holder,
}

impl DirectoryLock {
    /// Takes the lock of the directory, without waiting.
    ///
    /// # Errors
    /// `Locked` names the holder; `Unavailable` when the file cannot be used.
    pub(super) fn take(directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join(LOCK_FILE);
        let unavailable = |error: std::io::Error| JournalError::Unavailable {
            reason: format!("the lock file {}: {error}", path.display()),
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(unavailable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Locked {
                    holder: read_holder(&mut file),
                });
            }
            Err(TryLockError::Error(error)) => return Err(unavailable(error)),
        }
        let holder = this_process();
        let text = serde_json::to_vec(&holder).map_err(|error| JournalError::Unavailable {
            reason: error.to_string(),
        })?;
        file.set_len(0)
            .and_then(|()| file.write_all(&text))
            .map_err(unavailable)?;
        Ok(Self { file, holder })
    }

    /// This process, as the lock file names it.
    pub(super) fn holder(&self) -> &Holder {
        &self.holder
    }
}

impl Drop for DirectoryLock {
    /// Unlocks by word, not only by closing: a child process that is just being started shares
    /// the open file until it runs its own program, and would keep the lock that long.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "the data directory's lock goes with the process only");
        }
    }
}

fn this_process() -> Holder {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    Holder {
        host,
        pid: std::process::id(),
    }
}

/// What the file says; it may be half written, and is never trusted beyond its first KiB.
fn read_holder(file: &mut File) -> Option<Holder> {
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.take(1024).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
