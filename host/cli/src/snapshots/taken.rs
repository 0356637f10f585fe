//! Which snapshots were taken of which workspace: one file a root, 32 bytes a ref, appended and
//! flushed before the ref is handed out. What a torn write left at the end is written over.

use harness_workspace::Ref;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes of an entry.
const ENTRY: usize = 32;

/// The lists of all workspaces.
pub(super) struct Taken {
    directory: PathBuf,
    /// Lists that were read. A std mutex: the callers are blocking threads, one a workspace.
    known: Mutex<HashMap<PathBuf, HashSet<Ref>>>,
}

impl Taken {
    pub(super) fn in_directory(directory: PathBuf) -> Self {
        Self {
            directory,
            known: Mutex::default(),
        }
    }

    /// Whether that snapshot was taken of that workspace.
    pub(super) fn has(&self, root: &Path, reference: &Ref) -> io::Result<bool> {
        self.with(root, |known| Ok(known.contains(reference)))
    }

    /// Notes that it was; durable when this returns.
    pub(super) fn add(&self, root: &Path, reference: &Ref) -> io::Result<()> {
        self.with(root, |known| {
            if known.contains(reference) {
                return Ok(());
            }
            self.append(root, reference)?;
            known.insert(*reference);
            Ok(())
        })
    }

    fn with<T>(
        &self,
        root: &Path,
        then: impl FnOnce(&mut HashSet<Ref>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut lists = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lists.get_mut(root) {
            return then(known);
        }
        let read = self.read(root)?;
        then(lists.entry(root.to_owned()).or_insert(read))
    }

    fn file(&self, root: &Path) -> PathBuf {
        let name = Sha256::digest(root.as_os_str().as_bytes());
        self.directory.join(hex::encode(name))
    }

    fn read(&self, root: &Path) -> io::Result<HashSet<Ref>> {
        let mut bytes = Vec::new();
        match File::open(self.file(root)) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let texts = bytes.chunks_exact(ENTRY).map(hex::encode);
        let refs = texts.filter_map(|digits| format!("v1:sha256:{digits}").parse().ok());
        Ok(refs.collect())
    }

    fn append(&self, root: &Path, reference: &Ref) -> io::Result<()> {
        let text = reference.to_string();
        let digits = text.rsplit(':').next().unwrap_or_default();
        let bytes = hex::decode(digits).map_err(io::Error::other)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let path = self.file(root);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        let length = file.metadata()?.len();
        let whole = length - length % ENTRY as u64;
        file.seek(SeekFrom::Start(whole))?;
        file.write_all(&bytes)?;
        file.set_len(whole + ENTRY as u64)?;
        file.sync_all()?;
        if length == 0 {
            // Its name, and the directory's own.
            File::open(&self.directory)?.sync_all()?;
            if let Some(parent) = self.directory.parent() {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(())
    }
}
