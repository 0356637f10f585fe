//! Why a snapshot or a rewind was refused or failed; one enum, one stable code each.

use rustix::io::Errno;

/// A refusal or failure. Paths in it are relative to the workspace, escaped and cut to a bound.
///
/// Only [`WorkspaceError::RollbackFailed`] leaves a workspace between two states, and then the
/// rewind is still on record for [`crate::Store::recover`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceError {
    /// The text is no ref (S98).
    #[error("the ref is malformed; a ref is `v1:sha256:` and 64 lower-case hexadecimal digits")]
    RefMalformed,
    /// No snapshot of that name is stored.
    #[error("no snapshot `{reference}` is stored; use a ref that a checkpoint returned")]
    RefNotFound {
        /// The ref.
        reference: String,
    },
    /// A bound on snapshots was exceeded.
    #[error(
        "the workspace has more {what} than a snapshot may hold ({limit}); exclude what is generated in a .gitignore file"
    )]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// What is stored is not what was written.
    #[error("the snapshot store is damaged: {what}; take a new checkpoint or restore a backup")]
    Corrupt {
        /// Where and how.
        what: String,
    },
    /// The operating system refused.
    #[error("{what}: {reason}")]
    Io {
        /// What was attempted.
        what: String,
        /// The system's reason.
        reason: String,
    },
    /// A disk or quota is full.
    #[error("{what}: no space is left; free some and try again")]
    DiskFull {
        /// What was attempted.
        what: String,
    },
    /// The time that was allowed is over.
    #[error("the workspace operation ran out of time; exclude what is generated, or allow more")]
    Deadline,
    /// The caller gave up.
    #[error("the workspace operation was cancelled")]
    Cancelled,
    /// A parent directory turned out to be a symlink (S99).
    #[error("a parent of `{path}` is a symlink; nothing is read or written through one")]
    SymlinkParent {
        /// The path.
        path: String,
    },
    /// Somebody else writes in the workspace.
    #[error("`{path}` changes while it is worked on; stop the process that writes it")]
    Changed {
        /// The path.
        path: String,
    },
    /// Something that is never touched stands where the snapshot has an entry.
    #[error("`{path}` is {by}, which a rewind does not replace; move it away")]
    Obstructed {
        /// The path.
        path: String,
        /// What stands there.
        by: &'static str,
    },
    /// Another filesystem is mounted inside the workspace.
    #[error("`{path}` is another filesystem; exclude it in a .gitignore file or unmount it")]
    Mounted {
        /// The path.
        path: String,
    },
    /// The host may not read or write something.
    #[error("`{path}`: permission denied; let the host's user read it, or exclude it")]
    Denied {
        /// The path.
        path: String,
    },
    /// A `.gitignore` file cannot be used.
    #[error("`{path}` cannot be used: {reason}")]
    Rules {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The workspace itself cannot be opened.
    #[error("the workspace root cannot be opened: {reason}")]
    Root {
        /// The system's reason.
        reason: String,
    },
    /// Another checkpoint, rewind or collection is at work there.
    #[error("another operation is at work on {what}; try again when it is done")]
    Busy {
        /// On what.
        what: &'static str,
    },
    /// An earlier rewind of this workspace was neither finished nor rolled back.
    #[error("an earlier rewind of this workspace is unfinished; recover it first")]
    RewindPending,
    /// The tree is not what the snapshot says; it was put back.
    #[error("after the rewind `{path}` differs from the snapshot; the rewind was undone")]
    NotExact {
        /// First path that differs.
        path: String,
    },
    /// The rewind failed and so did putting the tree back.
    #[error(
        "the rewind failed ({cause}) and could not be undone ({failure}); it is on record: remove the cause and recover it"
    )]
    RollbackFailed {
        /// Why the rewind failed.
        cause: String,
        /// Why it could not be undone.
        failure: String,
    },
    /// The label of a rewind is too long.
    #[error("the tag of a rewind has {size} bytes; at most {limit} are allowed")]
    Tag {
        /// How long it is.
        size: u64,
        /// How long it may be.
        limit: u64,
    },
    /// Another process holds the store.
    #[error("the snapshot store is in use by another process; stop it or choose another directory")]
    Locked,
    /// A newer build wrote the store.
    #[error("the snapshot store has format {found}; this build knows {known}: use a newer build")]
    NewerVersion {
        /// Stored format.
        found: u32,
        /// The format this build knows.
        known: u32,
    },
}

impl WorkspaceError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::RefMalformed => "ref_malformed",
            Self::RefNotFound { .. } => "ref_not_found",
            Self::TooLarge { .. } => "workspace_too_large",
            Self::Corrupt { .. } => "corrupt",
            Self::Io { .. } => "io",
            Self::DiskFull { .. } => "disk_full",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::SymlinkParent { .. } => "symlink_parent",
            Self::Changed { .. } => "changed",
            Self::Obstructed { .. } => "obstructed",
            Self::Mounted { .. } => "mounted",
            Self::Denied { .. } => "denied",
            Self::Rules { .. } => "rules",
            Self::Root { .. } => "root",
            Self::Busy { .. } => "busy",
            Self::RewindPending => "rewind_pending",
            Self::NotExact { .. } => "not_exact",
            Self::RollbackFailed { .. } => "rollback_failed",
            Self::Tag { .. } => "tag",
            Self::Locked => "store_locked",
            Self::NewerVersion { .. } => "store_newer_version",
        }
    }

    /// What a system call on the store came back with.
    pub(crate) fn store(what: &str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(errno) => from_errno(what, errno),
            None => Self::Io {
                what: what.to_owned(),
                reason: error.to_string(),
            },
        }
    }

    /// What a system call on a path of the workspace came back with.
    pub(crate) fn at(path: &[u8]) -> impl FnOnce(Errno) -> Self {
        move |errno| match errno {
            Errno::LOOP => Self::SymlinkParent { path: show(path) },
            Errno::ACCESS | Errno::PERM => Self::Denied { path: show(path) },
            _ => from_errno(&format!("`{}`", show(path)), errno),
        }
    }
}

fn from_errno(what: &str, errno: Errno) -> WorkspaceError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => WorkspaceError::DiskFull {
            what: what.to_owned(),
        },
        _ => WorkspaceError::Io {
            what: what.to_owned(),
            reason: std::io::Error::from(errno).to_string(),
        },
    }
}

/// A path for a message: escaped, so that it cannot forge one, and bounded.
pub(crate) fn show(path: &[u8]) -> String {
    const BOUND: usize = 256;
    if path.is_empty() {
        return ".".to_owned();
    }
    let cut = path.get(..BOUND.min(path.len())).unwrap_or(path);
    let mut text: String = String::from_utf8_lossy(cut).escape_debug().collect();
    if path.len() > BOUND {
        text.push('…');
    }
    text
}
