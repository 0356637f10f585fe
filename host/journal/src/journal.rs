//! The port: what a session needs of a store. Object-safe, so that a backend is a choice of the
//! composition root.

use crate::append::{Append, Appended};
use crate::error::JournalError;
use crate::idempotency::IdempotencyEntry;
use crate::lease::{Epoch, Lease};
use crate::page::Page;
use crate::projection::{SessionFilter, SessionRow};
use crate::record::RecordPage;
use harness_core::ids::{CommandId, Seq, SessionId};

/// An owned, sendable future.
pub type BoxFuture<'a, T> = futures::future::BoxFuture<'a, T>;

/// Where a journal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Next free sequence number.
    pub next_seq: Seq,
    /// Epoch of the latest opening.
    pub epoch: Epoch,
}

/// One ordered durable log per session.
///
/// A write that was handed to the store runs to its end even when its future is dropped; dropped
/// before that (while the store is too busy to take it) it writes nothing. A write that begins
/// after another was answered comes after it; of writes under way at the same time each is written
/// whole, in an order the store chooses (`expected_next` tells).
pub trait Journal: Send + Sync + 'static {
    /// Writes all of it or nothing; durable when it returns.
    ///
    /// # Errors
    /// `NotFound` (no such session and no `create`), `LeaseLost`, `Collision`, `OutOfOrder`,
    /// `TooLarge`, `Invalid`, `Full`, `Unavailable`, `Ambiguous`. `Collision` also when `create`
    /// meets a session whose records are not these.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, JournalError>>;

    /// Takes the lease and writes its fence, the first append of the opening (S66).
    /// `at_ms`: Unix time in milliseconds, for the fence.
    ///
    /// # Errors
    /// `NotFound`; `LeaseLost` names the holder where a store is shared and the lease is alive;
    /// `Full`, `Unavailable`, `Ambiguous`.
    fn open(&self, session: SessionId, at_ms: i64) -> BoxFuture<'_, Result<Lease, JournalError>>;

    /// Gives the lease back; later appends under it are `LeaseLost`. A lease that was lost
    /// already is no error.
    ///
    /// # Errors
    /// `Unavailable`, `Ambiguous`, `Full`.
    fn release(&self, session: SessionId, epoch: Epoch) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Consecutive records from `from` (0 counts as 1). `limit`: 1 to 1000; a page may be shorter
    /// because of its bytes, and is empty only at the tip. Every kind of record is in it.
    ///
    /// # Errors
    /// `NotFound`, `InvalidPage`, `Corrupt`, `Unavailable`.
    fn read(
        &self,
        session: SessionId,
        from: Seq,
        limit: usize,
    ) -> BoxFuture<'_, Result<RecordPage, JournalError>>;

    /// Where the journal ends.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    fn tail(&self, session: SessionId) -> BoxFuture<'_, Result<Tail, JournalError>>;

    /// Removes the session: journal, row, idempotency entries and provider state of the session.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`, `Ambiguous`, `Full`.
    fn delete(&self, session: SessionId) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Session rows, newest first by creation.
    ///
    /// # Errors
    /// `InvalidPage`, `TooLarge`, `Unavailable`.
    fn list_sessions(
        &self,
        filter: SessionFilter,
    ) -> BoxFuture<'_, Result<Page<SessionRow>, JournalError>>;

    /// The row of a session.
    ///
    /// # Errors
    /// `Unavailable`.
    fn projection(
        &self,
        session: SessionId,
    ) -> BoxFuture<'_, Result<Option<SessionRow>, JournalError>>;

    /// Sessions to restore at start, by id (§6.1); at most `limit`, after `after`.
    /// Call again with the last id until it answers fewer than `limit` (1 to 1000).
    ///
    /// # Errors
    /// `InvalidPage`, `Unavailable`.
    fn sessions_needing_recovery(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SessionId>, JournalError>>;

    /// What was answered to a request (G5, S120). `session`: `None` for a create.
    ///
    /// # Errors
    /// `Unavailable`.
    fn idempotency(
        &self,
        session: Option<SessionId>,
        command: CommandId,
    ) -> BoxFuture<'_, Result<Option<IdempotencyEntry>, JournalError>>;
}
