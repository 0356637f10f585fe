//! Why a granted program or origin could not be used.

pub use harness_core::provider::IoError;

/// An operating system error while doing `what`.
pub(super) fn os(what: &str, error: &std::io::Error) -> IoError {
    match error.kind() {
        std::io::ErrorKind::NotFound => IoError::NotFound(format!("{what}: {error}")),
        std::io::ErrorKind::PermissionDenied => IoError::Denied(format!("{what}: {error}")),
        _ => IoError::Failed(format!("{what}: {error}")),
    }
}
