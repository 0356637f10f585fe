//! Why the store refused or failed; one enum, one stable code each.

use crate::lease::Holder;
use harness_core::ids::Seq;

/// A refusal or failure of the store.
///
/// Only [`JournalError::Ambiguous`] leaves open whether something was written; every other
/// variant means that nothing was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Definitely not written; trying again may help.
    #[error("the store is unavailable, nothing was written: {reason}")]
    Unavailable {
        /// What failed.
        reason: String,
    },
    /// The store cannot tell whether it was written. An identical retry finds out.
    #[error("the store cannot tell whether the write is durable: {reason}")]
    Ambiguous {
        /// What failed.
        reason: String,
    },
    /// Another opening holds the session (S66).
    #[error("the lease of the session is lost; {}", holder_words(.holder.as_ref()))]
    LeaseLost {
        /// Who holds it now; `None` when it was released.
        holder: Option<Holder>,
    },
    /// Another process holds the store.
    #[error(
        "the data directory is in use by {}; stop it or choose another directory",
        .holder.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string)
    )]
    Locked {
        /// Who; `None` when its name cannot be read.
        holder: Option<Holder>,
    },
    /// The same id was stored before with other content (S65).
    #[error("`{key}` is already stored with other content")]
    Collision {
        /// The id.
        key: String,
    },
    /// The journal does not continue where the caller thinks.
    #[error("the next sequence number is {next}, not {expected}")]
    OutOfOrder {
        /// What the caller expected.
        expected: Seq,
        /// What it is.
        next: Seq,
    },
    /// What is stored is not what this store writes.
    #[error("the store is damaged: {what}; restore the data directory from a backup")]
    Corrupt {
        /// Where and how.
        what: String,
    },
    /// The disk is full; definitely rolled back, and writing works again once there is room.
    #[error("the disk of the data directory is full; nothing was written")]
    Full,
    /// A bound was exceeded.
    #[error("{what} has {size} bytes or items; at most {limit} are allowed")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How large it is.
        size: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The caller broke a rule of the interface.
    #[error("{what} is invalid: {rule}")]
    Invalid {
        /// What.
        what: &'static str,
        /// The rule.
        rule: &'static str,
    },
    /// The page asked for does not exist.
    #[error("the {what} is invalid: {rule}")]
    InvalidPage {
        /// `limit` or `cursor`.
        what: &'static str,
        /// The rule.
        rule: &'static str,
    },
    /// The database was written by a newer build.
    #[error(
        "the data directory has schema version {found}; this build knows up to {known}: use a newer build or another data directory"
    )]
    NewerVersion {
        /// Stored version.
        found: u32,
        /// Newest version this build knows.
        known: u32,
    },
    /// There is no such thing.
    #[error("no {what} of that id exists")]
    NotFound {
        /// Kind of thing.
        what: &'static str,
    },
    /// Something of that id exists already.
    #[error("a {what} of that id exists already")]
    Exists {
        /// Kind of thing.
        what: &'static str,
    },
}

impl JournalError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "store_unavailable",
            Self::Ambiguous { .. } => "store_ambiguous",
            Self::LeaseLost { .. } => "lease_lost",
            Self::Locked { .. } => "store_locked",
            Self::Collision { .. } => "collision",
            Self::OutOfOrder { .. } => "out_of_order",
            Self::Corrupt { .. } => "store_corrupt",
            Self::Full => "store_full",
            Self::TooLarge { .. } => "too_large",
            Self::Invalid { .. } => "invalid",
            Self::InvalidPage { .. } => "invalid_page",
            Self::NewerVersion { .. } => "store_newer_version",
            Self::NotFound { .. } => "not_found",
            Self::Exists { .. } => "exists",
        }
    }

    /// Whether nothing was written for certain.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        !matches!(self, Self::Ambiguous { .. })
    }
}

fn holder_words(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "it was released".to_owned(), |h| format!("{h} holds it"))
}
