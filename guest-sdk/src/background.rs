//! Granted programs that outlive the instance and the turn, if the operator lets
//! some run in the background. Using this module makes a provider import the
//! `background` interface, i.e. ask for such a grant.
//!
//! The host supervises what runs; it belongs to this loop of the session. Its end
//! arrives as an [`Input`] of origin `process`: in
//! [`start_prompt`](crate::Provider::start_prompt) when the loop is idle, from
//! [`take_input`](crate::Channel::take_input) while a turn runs. That holds for a
//! process that was lost with its host too, so a provider never waits in vain.

use crate::sys;
pub use crate::sys::background::{Output, OutputChunk, OutputStream, ProcessInfo, ProcessStatus};
use crate::types::{Input, InputOrigin, IoError, Workspace};

/// A background process by its handle, which stays valid in later instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process(String);

/// Starts the program that is granted under a name. It reads `stdin`, then end of
/// file, and goes on whatever becomes of this call.
///
/// # Errors
///
/// `Denied` without a grant that allows it, `NotFound` without the program,
/// `Limit` when too many run, `Closed` in a draft instance and at the end of the
/// session, else `Failed`.
pub async fn start(
    program: &str,
    workspace: Option<Workspace>,
    stdin: impl Into<Vec<u8>>,
) -> Result<Process, IoError> {
    let handle = sys::background::start(program.to_owned(), workspace, stdin.into()).await?;
    Ok(Process(handle))
}

/// The processes of this loop that run, and the newest that ended, oldest first.
///
/// # Errors
///
/// `Closed` in a draft instance and at the end of the session.
pub async fn processes() -> Result<Vec<ProcessInfo>, IoError> {
    sys::background::processes().await
}

impl Process {
    /// The process of a handle that was kept.
    #[must_use]
    pub fn from_handle(handle: impl Into<String>) -> Self {
        Self(handle.into())
    }

    /// The process whose end an input tells, if it tells one.
    #[must_use]
    pub fn ended_in(input: &Input) -> Option<Self> {
        match &input.origin {
            InputOrigin::Process(handle) => Some(Self(handle.clone())),
            _ => None,
        }
    }

    /// Its handle.
    #[must_use]
    pub fn handle(&self) -> &str {
        &self.0
    }

    /// How it stands.
    ///
    /// # Errors
    ///
    /// `NotFound` when it is not known, or ended long ago.
    pub async fn info(&self) -> Result<ProcessInfo, IoError> {
        sys::background::info(self.0.clone()).await
    }

    /// At most `max_bytes` of what it wrote, from an offset on.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info), and `Closed` when its output is gone.
    pub async fn read(&self, offset: u64, max_bytes: u32) -> Result<Output, IoError> {
        sys::background::read(self.0.clone(), offset, max_bytes).await
    }

    /// The newest text of both streams, of at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn tail(&self, max_bytes: u32) -> Result<String, IoError> {
        let written = self.info().await?.written.ok_or(IoError::Closed)?;
        let offset = written.saturating_sub(u64::from(max_bytes));
        let output = self.read(offset, max_bytes).await?;
        let bytes: Vec<u8> = output.chunks.into_iter().flat_map(|c| c.data).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Ends it. Its end arrives like any other.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info).
    pub async fn stop(&self) -> Result<(), IoError> {
        sys::background::stop(self.0.clone()).await
    }
}
