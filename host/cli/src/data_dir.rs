//! The host's directory: where it is, who may enter, and the small files in it that are not the
//! store's.
//!
//! ```text
//! harness.db, harness.lock   the store (harness-journal)
//! host.key                   32 random bytes, mode 0600: authenticates the compile cache
//! host.json                  where the running host listens, for `harness token`
//! cache/                     precompiled code (harness-engine)
//! snapshots/                 snapshots of workspaces (harness-workspace)
//! workspaces/default/        the workspace of a host without a configured one
//! ```
//! Invariants: the directory is the owner's alone when the host makes it, and never writable by
//! others; the key is created once and never shown.

use anyhow::{Context, bail};
use harness_engine::HostKey;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const KEY_FILE: &str = "host.key";
/// The store's file.
const DATABASE_FILE: &str = "harness.db";
const ADDRESS_FILE: &str = "host.json";

/// A data directory that exists.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    root: PathBuf,
}

/// What a running host says about itself to other commands on the same machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    /// Base URL.
    pub(crate) url: String,
    /// Its process.
    pub(crate) pid: u32,
}

impl DataDir {
    /// The directory that was asked for, or the default one; created when missing.
    ///
    /// # Errors
    /// No home directory to derive a default from; a path that cannot be created; a directory that
    /// others can write to.
    pub(crate) fn open(asked: Option<&Path>) -> anyhow::Result<Self> {
        let root = root(asked)?;
        create_private(&root).map_err(|error| unusable(&root, "created", &error))?;
        Self::checked(root)
    }

    /// As [`Self::open`], for a directory that a host has used before: nothing is created.
    ///
    /// # Errors
    /// A path that is no data directory; a directory that others can write to.
    pub(crate) fn existing(asked: Option<&Path>) -> anyhow::Result<Self> {
        let root = root(asked)?;
        match std::fs::metadata(root.join(DATABASE_FILE)) {
            Ok(_) => Self::checked(root),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                bail!(
                    "{0} is no data directory: there is no {DATABASE_FILE} in it\n    remedy: give the directory of a host with --data-dir or HARNESS_DATA_DIR; a new one is made by `harness serve --data-dir {0}`",
                    root.display()
                )
            }
            Err(error) => Err(unusable(&root, "read", &error)),
        }
    }

    fn checked(root: PathBuf) -> anyhow::Result<Self> {
        let about = std::fs::metadata(&root).map_err(|error| unusable(&root, "read", &error))?;
        let mode = about.permissions().mode() & 0o777;
        if mode & 0o022 != 0 {
            bail!(
                "others can write to the data directory {} (mode {mode:04o})\n    remedy: chmod 700 {0}",
                root.display()
            );
        }
        Ok(Self { root })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    /// Where precompiled code is kept.
    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Where snapshots of workspaces are kept.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// The workspace of a host without a configured one; created when missing.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn workspace(&self) -> anyhow::Result<PathBuf> {
        let path = self.root.join("workspaces").join("default");
        create_private(&path)
            .with_context(|| format!("the workspace {} cannot be created", path.display()))?;
        Ok(path)
    }

    /// The host's key; made at the first call. Only the holder of the store's lock may call it.
    ///
    /// # Errors
    /// The file cannot be read or written, is open to others, or does not hold a key.
    pub(crate) fn host_key(&self) -> anyhow::Result<HostKey> {
        let path = self.root.join(KEY_FILE);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let key: [u8; 32] = rand::random();
                write_private(&path, &key)
                    .with_context(|| format!("{} cannot be written", path.display()))?;
                return Ok(HostKey::new(key));
            }
            Err(error) => {
                return Err(error).with_context(|| format!("{} cannot be read", path.display()));
            }
        };
        let mode = file.metadata()?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            bail!(
                "the host key {} is open to others (mode {mode:04o})\n    remedy: delete it and {}; both are made anew",
                path.display(),
                self.cache().display()
            );
        }
        let mut key = Vec::new();
        (&mut file).take(33).read_to_end(&mut key)?;
        let key: [u8; 32] = key.try_into().map_err(|_| {
            anyhow::anyhow!("{} does not hold a key\n    remedy: delete it; it is made anew, and compiled code with it", path.display())
        })?;
        Ok(HostKey::new(key))
    }

    /// Tells other commands where the host listens, until the answer is dropped. Only the holder of
    /// the store's lock may call it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn publish(&self, address: &Address) -> anyhow::Result<Published> {
        let path = self.root.join(ADDRESS_FILE);
        write_private(&path, &serde_json::to_vec(address)?)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(Published(path))
    }

    /// Where the running host listens, if it said so.
    pub(crate) fn read_address(&self) -> Option<Address> {
        let mut text = Vec::new();
        File::open(self.root.join(ADDRESS_FILE))
            .ok()?
            .take(4096)
            .read_to_end(&mut text)
            .ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// A published [`Address`]; taken back when dropped.
#[derive(Debug)]
pub(crate) struct Published(PathBuf);

impl Drop for Published {
    fn drop(&mut self) {
        // Nothing to do about a failure: nobody reads it while the store is free.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// `$XDG_DATA_HOME/harness`, else `~/.local/share/harness`; relative values count as unset, as the
/// XDG base directory specification wants.
fn default_root(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local").join("share")))?;
    Some(data.join("harness"))
}

/// The directory that was asked for, or the default one.
fn root(asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    match asked {
        Some(path) => Ok(std::path::absolute(path)?),
        None => default_root(|name| std::env::var_os(name).map(PathBuf::from)).context(
            "there is no home directory to keep data in\n    remedy: give --data-dir or set HARNESS_DATA_DIR",
        ),
    }
}

fn unusable(root: &Path, what: &str, error: &std::io::Error) -> anyhow::Error {
    anyhow::anyhow!(
        "the data directory {} cannot be {what}: {error}\n    remedy: give it to the user that runs the host (chown, chmod 700), or name another with --data-dir",
        root.display()
    )
}

fn create_private(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file of mode 0600, whole or not at all.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_follows_xdg() {
        let root = |xdg: Option<&str>, home: Option<&str>| {
            let value = |name: &str| if name == "HOME" { home } else { xdg };
            default_root(|name| value(name).map(PathBuf::from))
        };
        assert_eq!(root(Some("/x"), Some("/h")), Some("/x/harness".into()));
        assert_eq!(
            root(None, Some("/h")),
            Some("/h/.local/share/harness".into())
        );
        assert_eq!(
            root(Some("relative"), Some("/h")),
            Some("/h/.local/share/harness".into())
        );
        assert_eq!(root(None, None), None);
    }

    #[test]
    fn the_directory_and_its_key_are_the_owners_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let dir = DataDir::open(Some(&path)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        dir.host_key().unwrap();
        let key = std::fs::read(path.join(KEY_FILE)).unwrap();
        assert_eq!((key.len(), mode(&path.join(KEY_FILE))), (32, 0o600));
        dir.host_key().unwrap();
        assert_eq!(
            std::fs::read(path.join(KEY_FILE)).unwrap(),
            key,
            "the key is made once"
        );

        std::fs::set_permissions(path.join(KEY_FILE), std::fs::Permissions::from_mode(0o640))
            .unwrap();
        assert!(
            dir.host_key()
                .unwrap_err()
                .to_string()
                .contains("open to others")
        );
        std::fs::set_permissions(path.join(KEY_FILE), std::fs::Permissions::from_mode(0o600))
            .unwrap();
        std::fs::write(path.join(KEY_FILE), b"short").unwrap();
        assert!(
            dir.host_key()
                .unwrap_err()
                .to_string()
                .contains("does not hold a key")
        );

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert!(
            DataDir::open(Some(&path))
                .unwrap_err()
                .to_string()
                .contains("chmod 700")
        );
    }

    #[test]
    fn the_address_of_a_running_host_is_found_and_taken_back() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(Some(parent.path())).unwrap();
        assert_eq!(dir.read_address(), None);
        let address = Address {
            url: "http://127.0.0.1:7717".into(),
            pid: 7,
        };
        let published = dir.publish(&address).unwrap();
        assert_eq!(dir.read_address(), Some(address));
        drop(published);
        assert_eq!(dir.read_address(), None);
    }
}
