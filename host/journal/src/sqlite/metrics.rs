//! What the writer did, for `/metrics` and for the tests of group commit.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// Commits, each one fsync of the log.
    pub commits: u64,
    /// Writes inside those commits, refused ones included.
    pub writes: u64,
    /// Transactions that failed as a whole.
    pub failures: u64,
}

/// The live counters. Relaxed: each is read for itself.
#[derive(Debug, Default)]
pub(super) struct Counters {
    commits: AtomicU64,
    writes: AtomicU64,
    failures: AtomicU64,
}

impl Counters {
    pub(super) fn committed(&self, writes: usize) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> Metrics {
        Metrics {
            commits: self.commits.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}
