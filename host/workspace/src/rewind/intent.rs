//! The durable record of a rewind under way.
//!
//! It is written before the workspace is touched and removed when nothing is left to do, so that
//! whoever finds it after a crash can go either way: both trees are stored.

use crate::error::WorkspaceError;
use crate::pack::flush_directory;
use crate::reference::Ref;
use crate::step::Step;
use crate::store::{Inner, is_unfinished, write_durably};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How far a rewind has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The workspace is as it was; what it needs is being written aside.
    Staging,
    /// The workspace is being changed.
    Moving,
    /// The workspace is what the snapshot says, verified and durable.
    Applied,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Intent {
    pub(crate) v: u32,
    /// Name of the staging directory at the root.
    pub(crate) staging: String,
    /// What the tree was, and what it becomes.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) tag: String,
    pub(crate) phase: Phase,
    /// Permission bits of the root itself, which is made writable meanwhile.
    pub(crate) root_mode: u16,
}

impl Intent {
    pub(crate) fn refs(&self) -> Result<(Ref, Ref), WorkspaceError> {
        Ok((self.from.parse()?, self.to.parse()?))
    }

    fn parse(bytes: &[u8]) -> Result<Self, WorkspaceError> {
        let intent: Option<Self> = serde_json::from_slice(bytes).ok();
        intent
            .filter(|intent| intent.v == 1 && intent.refs().is_ok())
            .filter(|intent| {
                let name = intent.staging.as_bytes();
                name.starts_with(crate::manifest::STAGING) && !name.contains(&b'/')
            })
            .ok_or_else(|| WorkspaceError::Corrupt {
                what: "the record of a rewind cannot be read".to_owned(),
            })
    }
}

const SUFFIX: &str = ".json";

fn name(root: &Path) -> String {
    let hash = Sha256::digest(root.as_os_str().as_bytes());
    format!("{}{SUFFIX}", hex::encode(hash))
}

impl Inner {
    /// The rewind of this workspace that is on record.
    pub(crate) fn intent(&self, root: &Path) -> Result<Option<Intent>, WorkspaceError> {
        match std::fs::read(self.rewinds().join(name(root))) {
            Ok(bytes) => Intent::parse(&bytes).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(WorkspaceError::store("reading the record of a rewind")(
                error,
            )),
        }
    }

    pub(crate) fn record(&self, root: &Path, intent: &Intent) -> Result<(), WorkspaceError> {
        self.steps.step(Step::Intent)?;
        let bytes = serde_json::to_vec(intent).map_err(|error| WorkspaceError::Io {
            what: "writing the record of a rewind".to_owned(),
            reason: error.to_string(),
        })?;
        write_durably(&self.rewinds(), &name(root), &bytes)
    }

    pub(crate) fn forget(&self, root: &Path) -> Result<(), WorkspaceError> {
        self.steps.step(Step::Forget)?;
        match std::fs::remove_file(self.rewinds().join(name(root))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(
                WorkspaceError::store("removing the record of a rewind")(error),
            ),
            _ => flush_directory(&self.rewinds()),
        }
    }

    /// Every tree that a rewind on record needs.
    pub(crate) fn intended(&self) -> Result<Vec<Ref>, WorkspaceError> {
        let reading = || WorkspaceError::store("reading the records of rewinds");
        let mut refs = Vec::new();
        for entry in std::fs::read_dir(self.rewinds()).map_err(reading())? {
            let entry = entry.map_err(reading())?;
            let name = entry.file_name();
            if is_unfinished(&name) || !name.as_bytes().ends_with(SUFFIX.as_bytes()) {
                continue;
            }
            let path = entry.path();
            let bytes = match std::fs::read(&path) {
                Ok(bytes) => bytes,
                // Forgotten meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(reading()(error)),
            };
            let (from, to) = Intent::parse(&bytes)?.refs()?;
            refs.extend([from, to]);
        }
        Ok(refs)
    }
}
