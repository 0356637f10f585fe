//! What a connection stands on: a process with three pipes, and time.
//!
//! A trait, so that everything above it runs natively too: in a component it is
//! the `process` grant (`granted`), in a test a real child
//! process or two in-memory pipes.

use futures::future::LocalBoxFuture;
use futures::stream::LocalBoxStream;
use std::rc::Rc;

/// Why the process cannot be started or written to. Text is for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// The operator did not grant it.
    Denied(String),
    /// The granted program is not there.
    NotFound(String),
    /// A bound of the host.
    Limit(String),
    /// Anything else.
    Failed(String),
    /// The process is gone.
    Closed,
}

impl std::fmt::Display for TransportError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Denied(text) => write!(out, "not granted: {text}"),
            Self::NotFound(text) => write!(out, "not found: {text}"),
            Self::Limit(text) => write!(out, "limit: {text}"),
            Self::Failed(text) => write!(out, "{text}"),
            Self::Closed => write!(out, "the process is gone"),
        }
    }
}

impl std::error::Error for TransportError {}

/// A started native process.
pub trait Process {
    /// Writes to its standard input; returns when all was taken. Calls are made
    /// one at a time and never dropped.
    fn write(&self, data: Vec<u8>) -> LocalBoxFuture<'_, Result<(), TransportError>>;
    /// Its exit code, or 128 + signal.
    fn wait(&self) -> LocalBoxFuture<'_, Result<i32, TransportError>>;
    /// Ends it and its process group; does not wait.
    fn kill(&self);
}

/// A started process and what it says.
pub struct Pipes {
    /// The process; killed when the connection lets go of it.
    pub process: Rc<dyn Process>,
    /// Standard output in chunks; ends with the pipe. The stream owns a read that
    /// is pending: not polling it for a while loses nothing.
    pub stdout: LocalBoxStream<'static, Vec<u8>>,
    /// Standard error, alike.
    pub stderr: LocalBoxStream<'static, Vec<u8>>,
}

impl std::fmt::Debug for Pipes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Pipes").finish_non_exhaustive()
    }
}

/// Starts the native process.
pub trait Transport {
    /// Starts it. Called again only after an earlier process is gone.
    fn open(&self) -> LocalBoxFuture<'static, Result<Pipes, TransportError>>;
}

/// Time, as far as a connection and a turn need it.
pub trait Clock {
    /// Resolves after `ms` milliseconds. May be dropped.
    fn sleep(&self, ms: u32) -> LocalBoxFuture<'static, ()>;
    /// Lets every other task make progress once.
    fn breathe(&self) -> LocalBoxFuture<'static, ()>;
}

/// The clock of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostClock;

impl Clock for HostClock {
    fn sleep(&self, ms: u32) -> LocalBoxFuture<'static, ()> {
        Box::pin(crate::task::sleep(std::time::Duration::from_millis(
            u64::from(ms),
        )))
    }

    fn breathe(&self) -> LocalBoxFuture<'static, ()> {
        Box::pin(wit_bindgen::yield_async())
    }
}
