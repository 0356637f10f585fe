//! Why the binary stops, with an exit status that scripts can tell apart.

use harness_journal::JournalError;
use harness_workspace::WorkspaceError;
use std::fmt;
use std::process::ExitCode;

/// Kind of a failure; its number is the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something failed while running.
    Failed = 1,
    /// Flags or configuration cannot be used (clap uses the same status for flags).
    Configuration = 2,
    /// Another process holds the data directory.
    DataDirectoryHeld = 3,
    /// A newer build wrote the data directory.
    DataDirectoryNewer = 4,
    /// The address cannot be listened on.
    Address = 5,
}

/// A failure with its message; the message names the thing and the remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

impl Failure {
    /// A failure of that kind.
    pub(crate) fn new(kind: Kind, message: impl fmt::Display) -> Self {
        Self {
            kind,
            message: message.to_string(),
        }
    }

    /// A failure of the store, told from the others by its exit status.
    pub(crate) fn store(directory: &std::path::Path, error: &JournalError) -> Self {
        let kind = match error {
            JournalError::Locked { .. } => Kind::DataDirectoryHeld,
            JournalError::NewerVersion { .. } => Kind::DataDirectoryNewer,
            _ => Kind::Failed,
        };
        let remedy = match error {
            JournalError::Unavailable { .. } => {
                "\n    remedy: see that the directory is on a healthy disk and belongs to the user that runs the host (chown, chmod 700), or name another with --data-dir"
            }
            JournalError::Full => "\n    remedy: free some space, or name another with --data-dir",
            _ => "",
        };
        Self::new(
            kind,
            format_args!("{}: {error}{remedy}", directory.display()),
        )
    }

    /// A failure of the store of snapshots.
    pub(crate) fn snapshots(directory: &std::path::Path, error: &WorkspaceError) -> Self {
        let kind = match error {
            WorkspaceError::Locked => Kind::DataDirectoryHeld,
            WorkspaceError::NewerVersion { .. } => Kind::DataDirectoryNewer,
            _ => Kind::Failed,
        };
        Self::new(
            kind,
            format_args!(
                "{}: {error}\n    remedy: see that the directory belongs to the user that runs the host and has room; without it no checkpoint could be taken, and none that was taken restored",
                directory.display()
            ),
        )
    }

    /// The exit status.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Kind::Failed, format_args!("{error:#}"))
    }
}

impl From<crate::config::ConfigError> for Failure {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::new(
            Kind::Configuration,
            format_args!("the configuration cannot be used\n{error}"),
        )
    }
}
