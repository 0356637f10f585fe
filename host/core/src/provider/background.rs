//! Granted programs that outlive the instance that started them (the contract's `background`, S97).
//!
//! The *engine* knows how a program is started, read and ended: it hands a [`Program`] over, checked
//! against the grants and not started. The *session* decides whether it may start, writes that down
//! first, keeps what runs and is told of its end. A process therefore belongs to a loop of a session
//! and not to an instance; it ends with the session and with the host.

use super::BoxFuture;
use crate::view::ProcessView;
use std::sync::Arc;

/// Why a granted program or origin could not be used (the contract's `io-error`). Messages name the
/// thing and the limit, never a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// Not granted, or refused by policy.
    #[error("denied: {0}")]
    Denied(String),
    /// The program, directory, process or host name does not exist.
    #[error("not found: {0}")]
    NotFound(String),
    /// The operating system or the other side failed.
    #[error("failed: {0}")]
    Failed(String),
    /// A size, count or time bound was reached.
    #[error("limit: {0}")]
    Limit(String),
    /// The handle was ended: killed, aborted, closed or already taken.
    #[error("closed")]
    Closed,
}

impl IoError {
    /// Stable code for logs and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::NotFound(_) => "not_found",
            Self::Failed(_) => "failed",
            Self::Limit(_) => "limit",
            Self::Closed => "closed",
        }
    }
}

/// A granted program that was not started.
pub trait Program: Send + 'static {
    /// The name of its grant.
    fn name(&self) -> &str;
    /// Starts it. Dropping the future ends what was started.
    ///
    /// # Errors
    /// As the operating system says.
    fn start(self: Box<Self>) -> BoxFuture<'static, Result<Arc<dyn Process>, IoError>>;
}

/// A program that runs, or has run: its output stays readable while this value lives. Dropping the
/// last clone ends the program and everything it started.
pub trait Process: Send + Sync + 'static {
    /// Bytes it has written to both streams so far.
    fn written(&self) -> u64;
    /// At most `max` bytes of what it wrote from offset `from` on, as far as that is still there.
    fn read(&self, from: u64, max: usize) -> ProcessOutput;
    /// Ends it and everything it started. Returns at once.
    fn stop(&self);
    /// Resolves when no descendant is left. Holding the future does not keep the process alive.
    fn ended(&self) -> BoxFuture<'static, ProgramEnd>;
}

/// How a program ended, as its supervisor saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramEnd {
    /// By itself: exit code, or 128 + signal.
    Exited(i32),
    /// It was ended through [`Process::stop`] or its drop.
    Stopped,
    /// It was lost together with what supervised it.
    Lost,
    /// It could not be started.
    NotStarted(IoError),
}

/// Which stream a piece of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Bytes that were written to one stream in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    /// Which.
    pub stream: OutputStream,
    /// What.
    pub data: Vec<u8>,
}

/// A piece of a process's output. Offsets count the bytes of both streams in the order they came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessOutput {
    /// Offset of the first byte here; beyond the one asked for when older bytes are gone.
    pub from: u64,
    /// Where to go on reading.
    pub next: u64,
    /// In order.
    pub chunks: Vec<OutputChunk>,
}

/// What is known of a process: what the journal says, and what it has written if that is still in
/// memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// As clients read it.
    pub process: ProcessView,
    /// Bytes written so far; `None` when its output is gone.
    pub written: Option<u64>,
}

/// What the session lends to an instance for processes that outlive it. Handles are those of the
/// instance's own loop; any other is [`IoError::NotFound`].
pub trait Background: Send + Sync + 'static {
    /// Starts a program; durable before it runs. Answers its handle. Dropping the future does not
    /// end what was started.
    fn start(&self, program: Box<dyn Program>) -> BoxFuture<'_, Result<String, IoError>>;
    /// Those that run and the newest that ended, oldest first.
    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, IoError>>;
    /// One of them.
    fn info(&self, handle: String) -> BoxFuture<'_, Result<ProcessInfo, IoError>>;
    /// As [`Process::read`]; [`IoError::Closed`] when its output is gone.
    fn read(
        &self,
        handle: String,
        from: u64,
        max: usize,
    ) -> BoxFuture<'_, Result<ProcessOutput, IoError>>;
    /// Ends it; its end is told like any other. Nothing happens when it has ended already.
    fn stop(&self, handle: String) -> BoxFuture<'_, Result<(), IoError>>;
}
