//! One ordered durable log per session, and the small durable things that live beside it.
//!
//! [`Journal`] is the port, [`Catalog`] its neighbour for projects, workspaces, tokens and rules;
//! [`SqliteStore`] implements both, and core's `StateStore`, in one file. Nothing here knows what
//! a record means: bytes, keys and fingerprints come from core's codec.
//!
//! Invariants: append before acknowledge; sequence numbers per session start at 1 and have no
//! gap (S65); an append is written whole or not at all; a writer whose lease was taken over
//! writes nothing more (S66); a full disk fails the append and leaves the store usable.

mod append;
mod catalog;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
#[cfg(feature = "test-faults")]
pub mod fault;
mod idempotency;
mod journal;
mod lease;
mod page;
mod projection;
mod record;
mod sqlite;

pub use append::{
    Append, Appended, AppendedRecord, MAX_APPEND_BYTES, MAX_APPEND_RECORDS, NewSession,
};
pub use catalog::{
    Catalog, NewToken, PermissionRule, Project, Token, TokenHash, TokenScope, Workspace,
    WorkspaceState, WorkspaceTarget,
};
pub use error::JournalError;
pub use idempotency::{IdempotencyEntry, IdempotencyScope, IdempotencyWrite, StoredResponse};
pub use journal::{BoxFuture, Journal, Tail};
pub use lease::{Epoch, Holder, Lease};
pub use page::{MAX_PAGE, Page, PageRequest};
pub use projection::{Projection, SessionFilter, SessionRow};
pub use record::{MAX_KEY_BYTES, MAX_RECORD_BYTES, NewRecord, Record, RecordKind, RecordPage};
pub use sqlite::{Metrics, SqliteOptions, SqliteStore};
