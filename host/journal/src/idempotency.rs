//! What the host answered to a request with an `Idempotency-Key` (G5, S120).
//!
//! The command id is derived from caller, route, session and key, so it is the entry's name.
//! An entry is written with the intent, completed with the answer, and goes with its session.

use bytes::Bytes;
use harness_core::ids::{CommandId, SessionId};

/// Under what an entry is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdempotencyScope {
    /// The request that created a session: looked up without knowing the session.
    Create,
    /// A request to a session that exists.
    Session,
}

/// An entry to insert or to complete, part of an append.
///
/// Writing an entry again with the same body hash adds a missing response and keeps one that is
/// there; another body hash is `Collision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyWrite {
    /// Under what it is looked up.
    pub scope: IdempotencyScope,
    /// Derived id.
    pub command_id: CommandId,
    /// SHA-256 of the request body.
    pub body_sha256: [u8; 32],
    /// The answer; `None` with the intent.
    pub response: Option<StoredResponse>,
}

/// An answer as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// HTTP status.
    pub status: u16,
    /// Body, at most 16 MiB.
    pub body: Bytes,
}

/// A stored entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyEntry {
    /// The session it belongs to (of a create: the one created).
    pub session: SessionId,
    /// SHA-256 of the request body.
    pub body_sha256: [u8; 32],
    /// The answer; `None` while the first request is still running, or was cut by a crash.
    pub response: Option<StoredResponse>,
}
