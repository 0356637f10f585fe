//! What the file system says of an entry, and the contents known by it.
//!
//! An unchanged file is known by its inode, size, mode and both times. A write that comes within
//! the clock's tick after the file was read may leave all of them as they are, so a file is
//! remembered only when its times were clearly past when reading began. The memory is the
//! process's: nothing that was learnt before a crash of the machine is believed after it.

use crate::reference::Hash;
use rustix::fs::Stat;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Times as nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) mode: u32,
    modified: i128,
    changed: i128,
}

const SECOND: i128 = 1_000_000_000;
/// More than a tick of any kernel's clock.
const TICK: i128 = 20_000_000;

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        let time = |seconds: i64, nanos: u64| i128::from(seconds) * SECOND + i128::from(nanos);
        Self {
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode,
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Permission bits that are part of a tree.
    pub(crate) fn permissions(&self) -> u16 {
        (self.mode & 0o777) as u16
    }

    /// Whether both are of one file with one content. The change time is not looked at: it moves
    /// when another name of the same file goes.
    pub(crate) fn is_content_of(&self, other: &Self) -> bool {
        let key = |stamp: &Self| (stamp.inode, stamp.size, stamp.mode, stamp.modified);
        key(self) == key(other)
    }

    /// Whether a later write is bound to change this stamp, seen that it was taken after `now`.
    pub(crate) fn settled(&self, now: i128) -> bool {
        let latest = self.modified.max(self.changed);
        // File systems that keep whole seconds only (or two of them) show no fraction.
        let coarse = self.modified % 1_000_000 == 0 && self.changed % 1_000_000 == 0;
        latest + if coarse { 2 * SECOND + TICK } else { TICK } < now
    }
}

/// Now, in a stamp's terms.
pub(crate) fn now() -> i128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as i128)
}

/// A file whose content is known.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) name: Vec<u8>,
    pub(crate) stamp: Stamp,
    pub(crate) chunks: Vec<Hash>,
}

/// Known files of one workspace, by directory, sorted by name.
pub(crate) type KnownFiles = HashMap<Vec<u8>, Vec<Known>>;

/// Known files of all workspaces, forgotten by age beyond the bound.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Latest last.
    roots: Vec<(PathBuf, Arc<KnownFiles>, usize)>,
}

/// Files remembered of all workspaces together.
const MAX_KNOWN: usize = 1 << 20;

impl Memory {
    pub(crate) fn get(&self, root: &Path) -> Arc<KnownFiles> {
        self.roots
            .iter()
            .find(|(path, ..)| path == root)
            .map(|(_, known, _)| known.clone())
            .unwrap_or_default()
    }

    pub(crate) fn set(&mut self, root: &Path, known: KnownFiles) {
        let count = known.values().map(Vec::len).sum();
        self.roots.retain(|(path, ..)| path != root);
        self.roots.push((root.to_owned(), Arc::new(known), count));
        let mut total: usize = self.roots.iter().map(|(_, _, count)| count).sum();
        while total > MAX_KNOWN && self.roots.len() > 1 {
            total -= self.roots.remove(0).2;
        }
    }

    /// Marks as used last.
    pub(crate) fn touch(&mut self, root: &Path) {
        if let Some(place) = self.roots.iter().position(|(path, ..)| path == root) {
            let used = self.roots.remove(place);
            self.roots.push(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(modified: i128, changed: i128) -> Stamp {
        Stamp {
            inode: 1,
            size: 1,
            mode: 0o100_644,
            modified,
            changed,
        }
    }

    #[test]
    fn s98_a_file_written_within_the_tick_before_it_was_read_is_not_remembered() {
        let fine = 1_000 * SECOND + 123_456_789;
        assert!(!stamp(fine, fine).settled(fine));
        assert!(!stamp(fine, fine).settled(fine + TICK));
        assert!(stamp(fine, fine).settled(fine + TICK + 1));
        // An old modification time says nothing when the change time is recent.
        assert!(!stamp(5, fine).settled(fine + 1));
        // Whole seconds: the next write may fall into the same one.
        let coarse = 1_000 * SECOND;
        assert!(!stamp(coarse, coarse).settled(coarse + SECOND));
        assert!(stamp(coarse, coarse).settled(coarse + 3 * SECOND));
        // A time in the future is never settled.
        assert!(!stamp(fine + 9 * SECOND, fine).settled(fine + SECOND));
    }
}
