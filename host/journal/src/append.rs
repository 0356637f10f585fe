//! What is written in one stroke: records, the session's row and idempotency entries.

use crate::error::JournalError;
use crate::idempotency::IdempotencyWrite;
use crate::lease::{Epoch, Lease};
use crate::projection::Projection;
use crate::record::{MAX_KEY_BYTES, MAX_RECORD_BYTES, NewRecord, RecordKind};
use harness_core::ids::{Seq, SessionId};

/// Most records of one append. A restore that repairs a whole inbox needs a few hundred.
pub const MAX_APPEND_RECORDS: usize = 4096;
/// Most bytes of one append: all records, the projection and the stored responses.
pub const MAX_APPEND_BYTES: usize = 32 << 20;

/// One all-or-nothing write to one session.
///
/// An append whose records are all identical to stored ones was committed before, so it writes
/// nothing at all: neither its projection nor its idempotency entries, which may be older than
/// what is there. An append without records writes its projection and idempotency entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Whose journal.
    pub session: SessionId,
    /// Epoch of the caller's lease; ignored with `create`.
    pub epoch: Epoch,
    /// The sequence number the first new record must get; `None` accepts any.
    /// With `create` it is not looked at.
    pub expected_next: Option<Seq>,
    /// Creates the session in the same stroke: the fence of epoch 1 is written as sequence 1 and
    /// the records follow. `projection` and at least one record are then required.
    pub create: Option<NewSession>,
    /// In journal order.
    pub records: Vec<NewRecord>,
    /// The session's row after these records.
    pub projection: Option<Projection>,
    /// Idempotency entries, inserted or completed.
    pub idempotency: Vec<IdempotencyWrite>,
}

impl Append {
    /// Checks every bound, and answers how many bytes the append holds.
    ///
    /// # Errors
    /// `TooLarge`, `Invalid`.
    pub fn checked_bytes(&self) -> Result<usize, JournalError> {
        if self.create.is_some() && (self.projection.is_none() || self.records.is_empty()) {
            return Err(JournalError::Invalid {
                what: "append",
                rule: "a session is created with its row and its first record",
            });
        }
        bound(
            "an append's records",
            self.records.len(),
            MAX_APPEND_RECORDS,
        )?;
        bound(
            "an append's idempotency entries",
            self.idempotency.len(),
            MAX_APPEND_RECORDS,
        )?;
        let mut bytes = 0;
        for record in &self.records {
            if record.kind == RecordKind::Fence {
                return Err(JournalError::Invalid {
                    what: "record",
                    rule: "only an opening writes a fence",
                });
            }
            if record.key.is_empty() {
                return Err(JournalError::Invalid {
                    what: "record",
                    rule: "its key is not empty",
                });
            }
            bound("a record's key", record.key.len(), MAX_KEY_BYTES)?;
            bound("a record", record.bytes.len(), MAX_RECORD_BYTES)?;
            bytes += record.bytes.len();
        }
        if let Some(row) = &self.projection {
            bound("a session's status", row.status.len(), 32)?;
            bound("a session's row", row.body.len(), MAX_RECORD_BYTES)?;
            bytes += row.body.len();
        }
        for response in self
            .idempotency
            .iter()
            .filter_map(|entry| entry.response.as_ref())
        {
            bound("a stored response", response.body.len(), MAX_RECORD_BYTES)?;
            bytes += response.body.len();
        }
        bound("an append", bytes, MAX_APPEND_BYTES)?;
        Ok(bytes)
    }
}

/// `TooLarge` above the limit.
pub(crate) fn bound(what: &'static str, size: usize, limit: usize) -> Result<(), JournalError> {
    if size <= limit {
        return Ok(());
    }
    Err(JournalError::TooLarge {
        what,
        size: size as u64,
        limit: limit as u64,
    })
}

/// What a session is born with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Unix time in milliseconds; sorts the session list.
    pub created_at_ms: i64,
}

/// Where the records of an append are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The lease under which it was written; with `create` the new one.
    pub lease: Lease,
    /// One entry a record, in the order given.
    pub records: Vec<AppendedRecord>,
    /// The next free sequence number.
    pub next_seq: Seq,
}

impl Appended {
    /// Sequence number of the first record; `None` when there was none.
    #[must_use]
    pub fn first_seq(&self) -> Option<Seq> {
        self.records.first().map(|r| r.seq)
    }

    /// Sequence number of the last record; `None` when there was none.
    #[must_use]
    pub fn last_seq(&self) -> Option<Seq> {
        self.records.last().map(|r| r.seq)
    }
}

/// Where one record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedRecord {
    /// Its sequence number; of a duplicate the first one.
    pub seq: Seq,
    /// Whether it was there before: not written again, not to be broadcast again (S65).
    pub duplicate: bool,
}
