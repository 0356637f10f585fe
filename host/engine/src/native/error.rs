//! Why a granted program or origin could not be used.

/// The contract's `io-error`. Messages name the thing and the limit, never a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// Not granted, or refused by policy.
    #[error("denied: {0}")]
    Denied(String),
    /// The program, directory or host name does not exist.
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

    /// An operating system error while doing `what`.
    pub(super) fn os(what: &str, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NotFound(format!("{what}: {error}")),
            std::io::ErrorKind::PermissionDenied => Self::Denied(format!("{what}: {error}")),
            _ => Self::Failed(format!("{what}: {error}")),
        }
    }
}
