//! Port for the small durable state of providers (the contract's `state` interface).
//!
//! The engine asks, a store implements; session state goes with its session (N19).

use crate::ids::{HarnessId, LoopId, ProjectId, SessionId};
use crate::provider::BoxFuture;

/// Whose state it is, besides the provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StateScope {
    /// The provider as installed.
    Provider,
    /// The provider in one project.
    Project(ProjectId),
    /// The provider in one loop of a session: an instance's own (W7).
    Loop(SessionId, LoopId),
}

/// Why state could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The scope would exceed its bound; nothing was written.
    #[error("state of this scope would hold {bytes} bytes; {limit} are granted")]
    Limit {
        /// Bytes it would hold, keys included.
        bytes: u64,
        /// Bytes granted.
        limit: u64,
    },
    /// The session of the scope is gone.
    #[error("the session does not exist any more")]
    Gone,
    /// The store failed.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// Durable key-value state of providers.
pub trait StateStore: Send + Sync + 'static {
    /// Reads a value.
    fn get<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StateError>>;
    /// Writes a value; durable when it returns. `limit`: bytes of keys and values in the scope.
    fn set<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
        value: Vec<u8>,
        limit: u64,
    ) -> BoxFuture<'a, Result<(), StateError>>;
    /// Removes a value; removing what is not there is no error.
    fn delete<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<(), StateError>>;
}
