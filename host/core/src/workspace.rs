//! The port to workspace snapshots (S98, S99): what `session` asks of a snapshot store.
//!
//! `cli` plugs the store in. Every call blocks, so the session layer makes it off its async
//! threads. A store knows nothing of sessions: who may ask, when, and what the journal says about
//! it is decided here and in `harness-session`.
//!
//! Invariants of an implementation
//! - The bytes of a snapshot are durable before its ref is returned.
//! - After an error the tree is what it was, but for [`SnapshotError::RollbackFailed`].
//! - A rewind that was neither finished nor rolled back is on record, and stays so over a crash.
//! - A ref gives the tree of the workspace that it was taken of, and of no other.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const PREFIX: &str = "v1:sha256:";

/// The name of a snapshot: `v1:sha256:` and 64 lower-case hexadecimal digits (S98).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String))]
pub struct WorkspaceRef(String);

/// Text that is no ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the ref is malformed; a ref is `v1:sha256:` and 64 lower-case hexadecimal digits")]
pub struct InvalidRef;

impl WorkspaceRef {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WorkspaceRef {
    type Err = InvalidRef;

    fn from_str(text: &str) -> Result<Self, InvalidRef> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for WorkspaceRef {
    type Error = InvalidRef;

    fn try_from(text: String) -> Result<Self, InvalidRef> {
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        match text.strip_prefix(PREFIX) {
            Some(digits) if digits.len() == 64 && digits.bytes().all(digit) => Ok(Self(text)),
            _ => Err(InvalidRef),
        }
    }
}

impl From<WorkspaceRef> for String {
    fn from(reference: WorkspaceRef) -> Self {
        reference.0
    }
}

impl fmt::Display for WorkspaceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for WorkspaceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// When the host takes checkpoints by itself (S98).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CheckpointPolicy {
    /// Never.
    #[default]
    Off,
    /// At each idle edge; one that fails is made up for at the next.
    BestEffort,
    /// At each idle edge; one that fails blocks admission until a checkpoint succeeds.
    Required,
}

impl CheckpointPolicy {
    /// The word of the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::BestEffort => "best-effort",
            Self::Required => "required",
        }
    }

    /// The policy of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Off, Self::BestEffort, Self::Required]
            .into_iter()
            .find(|policy| policy.as_str() == word)
    }
}

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub reference: WorkspaceRef,
    /// Directories, files and symlinks in it.
    pub entries: u64,
    /// Bytes of file content in it.
    pub bytes: u64,
}

/// A change of the tree to a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewound {
    /// The snapshot.
    pub reference: WorkspaceRef,
    /// A checkpoint now would have the same ref. False only where rules of what is excluded were
    /// changed since.
    pub exact: bool,
}

/// Why a store did not do it. Texts name paths relative to the workspace only, and are bounded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// No snapshot of that name of this workspace is stored.
    #[error("{0}")]
    RefNotFound(String),
    /// Something else is at work there.
    #[error("{0}")]
    Busy(String),
    /// The tree is between two states; the rewind is on record.
    #[error("{0}")]
    RollbackFailed(String),
    /// It failed, and the tree is what it was.
    #[error("{message}")]
    Failed {
        /// Stable code of the store.
        code: String,
        /// For a person.
        message: String,
    },
}

/// How long a call may take, and who may end it early.
#[derive(Debug, Clone)]
pub struct Allowance {
    /// From the call on; no bound when absent.
    pub time: Option<Duration>,
    /// Set: it gives up soon.
    pub cancelled: Arc<AtomicBool>,
}

/// Which way a rewind on record goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// To the snapshot: its event is in the journal.
    Finish,
    /// To what was there before.
    RollBack,
}

/// A store of snapshots. Every call blocks.
pub trait SnapshotStore: Send + Sync + 'static {
    /// Stores the tree below `root` and names it.
    ///
    /// # Errors
    /// Nothing refers to what was stored.
    fn checkpoint(&self, root: &Path, allowed: &Allowance) -> Result<Snapshot, SnapshotError>;

    /// Makes the tree below `root` what a ref of it names. `tag` comes back in
    /// [`SnapshotStore::pending`].
    ///
    /// # Errors
    /// As [`SnapshotError`] says.
    fn rewind(
        &self,
        root: &Path,
        reference: &WorkspaceRef,
        tag: &str,
        allowed: &Allowance,
    ) -> Result<Box<dyn OpenRewind>, SnapshotError>;

    /// The tag of the rewind of this workspace that is on record.
    ///
    /// # Errors
    /// The workspace or the record cannot be read.
    fn pending(&self, root: &Path) -> Result<Option<String>, SnapshotError>;

    /// Brings a rewind on record to an end; can be tried again after an error.
    ///
    /// # Errors
    /// It is still on record.
    fn recover(&self, root: &Path, way: Recovery) -> Result<(), SnapshotError>;

    /// Begins a collection: what is handed out from now on is kept.
    fn collect(&self) -> Box<dyn Collection>;
}

/// A rewind whose change is made and whose event is not yet durable. Dropped, it stays on record.
pub trait OpenRewind: Send + 'static {
    /// What was done.
    fn rewound(&self) -> Rewound;

    /// The event is durable: drops what a way back would need.
    ///
    /// # Errors
    /// The rewind stays on record.
    fn finish(self: Box<Self>) -> Result<(), SnapshotError>;

    /// Puts back what was there before.
    ///
    /// # Errors
    /// The rewind stays on record.
    fn rollback(self: Box<Self>) -> Result<(), SnapshotError>;
}

/// A collection that was begun.
pub trait Collection: Send + 'static {
    /// Removes what none of these refs needs; answers the bytes that were freed.
    ///
    /// # Errors
    /// Nothing that is needed is missing.
    fn run(self: Box<Self>, live: Vec<WorkspaceRef>) -> Result<u64, SnapshotError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s98_a_ref_is_exactly_its_prefix_and_64_lower_case_digits() {
        let good = format!("{PREFIX}{}", "0a".repeat(32));
        assert_eq!(good.parse::<WorkspaceRef>().unwrap().to_string(), good);
        let json = serde_json::to_string(&good).unwrap();
        assert_eq!(
            serde_json::from_str::<WorkspaceRef>(&json)
                .unwrap()
                .as_str(),
            good
        );
        for bad in [
            String::new(),
            PREFIX.to_owned(),
            "0a".repeat(32),
            format!("v2:sha256:{}", "0a".repeat(32)),
            format!("{PREFIX}{}", "0A".repeat(32)),
            format!("{PREFIX}{}", "0a".repeat(31)),
            format!("{PREFIX}{}0", "0a".repeat(32)),
            format!(" {PREFIX}{}", "0a".repeat(32)),
            format!("{PREFIX}{}\n", "0a".repeat(32)),
            format!("{PREFIX}{}", "é".repeat(32)),
        ] {
            assert_eq!(bad.parse::<WorkspaceRef>(), Err(InvalidRef), "{bad:?}");
            let json = serde_json::to_string(&bad).unwrap();
            assert!(
                serde_json::from_str::<WorkspaceRef>(&json).is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn s98_a_policy_has_one_word() {
        for word in ["off", "best-effort", "required"] {
            assert_eq!(CheckpointPolicy::from_word(word).unwrap().as_str(), word);
        }
        assert_eq!(CheckpointPolicy::from_word("always"), None);
        assert_eq!(CheckpointPolicy::default(), CheckpointPolicy::Off);
    }
}
