//! One entry of a journal. Its meaning belongs to core's codec; here it is bytes with an identity.

use bytes::Bytes;
use harness_core::ids::Seq;

/// Largest encoded record, in bytes (S13, S68).
pub const MAX_RECORD_BYTES: usize = 16 << 20;
/// Longest idempotency key of a record, in bytes: an id and a phase suffix fit.
pub const MAX_KEY_BYTES: usize = 96;

/// What a record is (S65). The set is closed and its numbers are stored: never reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// An enduring event.
    Event,
    /// A durable command.
    Command,
    /// The private gate-prepared record.
    GatePrepared,
    /// The first append of an opening; written by the journal alone (S66).
    Fence,
}

impl RecordKind {
    /// The stored number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Event => 1,
            Self::Command => 2,
            Self::GatePrepared => 3,
            Self::Fence => 4,
        }
    }

    /// The kind of a stored number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Event),
            2 => Some(Self::Command),
            3 => Some(Self::GatePrepared),
            4 => Some(Self::Fence),
            _ => None,
        }
    }
}

/// A record to be appended. The sequence number is not part of it (S61): the journal assigns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// What it is; [`RecordKind::Fence`] is refused.
    pub kind: RecordKind,
    /// Idempotency id (S65): event id, command id, or command id plus phase suffix;
    /// 1 to [`MAX_KEY_BYTES`] bytes, unique in its session.
    pub key: String,
    /// SHA-256 over the content without its volatile fields; equal means "the same record again".
    pub fingerprint: [u8; 32],
    /// Encoded content, at most [`MAX_RECORD_BYTES`].
    pub bytes: Bytes,
}

/// A record as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the journal, from 1.
    pub seq: Seq,
    /// What it is.
    pub kind: RecordKind,
    /// Idempotency id.
    pub key: String,
    /// Encoded content.
    pub bytes: Bytes,
}

/// A stretch of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordPage {
    /// Consecutive records.
    pub records: Vec<Record>,
    /// Where to read on; `None` at the tip as it was when the page was read.
    pub next: Option<Seq>,
}
