//! The row of a session: what lists and lookups need without replaying a journal (S108).

use crate::page::PageRequest;
use bytes::Bytes;
use harness_core::ids::{ProjectId, SessionId};

/// Written in the same transaction as the append it follows from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// Project, for the list's filter. Fixed at creation: a later value is ignored.
    pub project_id: ProjectId,
    /// Status, for the list's filter; 1 to 32 bytes.
    pub status: String,
    /// Unix time in milliseconds.
    pub updated_at_ms: i64,
    /// The Session row as JSON, opaque here; at most 16 MiB.
    pub body: Bytes,
    /// Whether an open turn, gate, operation or unresolved input makes the host restore this
    /// session at start.
    pub needs_recovery: bool,
}

/// Which sessions to list, newest first by creation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only these projects; empty for all. At most 1000.
    pub projects: Vec<ProjectId>,
    /// Only this status.
    pub status: Option<String>,
    /// Which page.
    pub page: PageRequest,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub session: SessionId,
    /// When it was created, Unix time in milliseconds.
    pub created_at_ms: i64,
    /// Its row.
    pub projection: Projection,
}
