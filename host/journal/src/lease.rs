//! Who may write to a session: an epoch that grows with every opening (S66).
//!
//! In the embedded store the operating-system lock of the data directory decides who holds every
//! lease in it, so an opening never waits for a time to live: it takes over at once, and the
//! epoch fences off whoever held the session before.

use harness_core::ids::{Seq, SessionId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Counts the openings of a session, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch a session is created with.
    pub const FIRST: Self = Self(1);
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A process that holds a lease or a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// The right to append to a session, until somebody opens it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Which session.
    pub session: SessionId,
    /// Its epoch; goes with every append.
    pub epoch: Epoch,
    /// Where the fence of this opening is.
    pub fence_seq: Seq,
}
