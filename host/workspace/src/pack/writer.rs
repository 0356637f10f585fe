//! Writing a pack.

use super::{BEGIN, Codec, END, HEAD, Kind, Record, SUFFIX, UNFINISHED};
use crate::error::WorkspaceError;
use crate::reference::Hash;
use crate::step::Step;
use crate::store::Steps;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const BUFFER: usize = 1 << 20;
/// Content shorter than this is not worth compressing.
const SHORT: usize = 64;

/// Content in the form in which it is stored.
pub(crate) enum Prepared {
    Plain,
    Lz4(Vec<u8>),
}

/// Compresses where it pays; done outside of any lock.
pub(crate) fn prepare(bytes: &[u8]) -> Prepared {
    if bytes.len() < SHORT {
        return Prepared::Plain;
    }
    let small = lz4_flex::block::compress(bytes);
    if small.len() <= bytes.len() - bytes.len() / 16 {
        Prepared::Lz4(small)
    } else {
        Prepared::Plain
    }
}

/// A pack that has no name yet. Dropped, it leaves nothing behind.
pub(crate) struct PackWriter {
    directory: PathBuf,
    path: PathBuf,
    file: Option<BufWriter<File>>,
    offset: u64,
    records: Vec<Record>,
    known: HashMap<(Kind, Hash), ()>,
    steps: Steps,
}

/// A pack that is whole and durable.
pub(crate) struct Finished {
    pub(crate) name: String,
    pub(crate) records: Vec<Record>,
    pub(crate) size: u64,
}

impl PackWriter {
    pub(crate) fn create(directory: &Path, steps: Steps) -> Result<Self, WorkspaceError> {
        let path = directory.join(format!("{UNFINISHED}{}", unique()));
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(WorkspaceError::store("creating a pack"))?;
        let mut writer = Self {
            directory: directory.to_owned(),
            path,
            file: Some(BufWriter::with_capacity(BUFFER, file)),
            offset: 0,
            records: Vec::new(),
            known: HashMap::new(),
            steps,
        };
        writer.write(BEGIN)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WorkspaceError> {
        if let Some(file) = &mut self.file {
            file.write_all(bytes)
                .map_err(WorkspaceError::store("writing a pack"))?;
            self.offset += bytes.len() as u64;
        }
        Ok(())
    }

    pub(crate) fn has(&self, kind: Kind, hash: &Hash) -> bool {
        self.known.contains_key(&(kind, *hash))
    }

    /// Bytes written so far.
    pub(crate) fn size(&self) -> u64 {
        self.offset
    }

    /// Adds a record; one that is there already is not added twice.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        hash: &Hash,
        bytes: &[u8],
        prepared: &Prepared,
    ) -> Result<(), WorkspaceError> {
        if self.known.insert((kind, *hash), ()).is_some() {
            return Ok(());
        }
        self.steps.step(Step::PackRecord)?;
        let (codec, stored) = match prepared {
            Prepared::Plain => (Codec::Plain, bytes),
            Prepared::Lz4(small) => (Codec::Lz4, small.as_slice()),
        };
        let length = |bytes: &[u8]| {
            u32::try_from(bytes.len()).map_err(|_| WorkspaceError::TooLarge {
                what: "bytes in one record",
                limit: u64::from(u32::MAX),
            })
        };
        let record = Record {
            kind,
            codec,
            hash: *hash,
            length: length(bytes)?,
            stored: length(stored)?,
            offset: self.offset + HEAD as u64,
        };
        self.write(&record.head())?;
        self.write(stored)?;
        self.records.push(record);
        Ok(())
    }

    /// Makes the pack durable and gives it its name.
    pub(crate) fn finish(mut self) -> Result<Finished, WorkspaceError> {
        let mut index = Vec::with_capacity(self.records.len() * super::ENTRY);
        for record in &self.records {
            index.extend_from_slice(&record.entry());
        }
        let count = self.records.len() as u64;
        let hash: Hash = Sha256::digest(&index).into();
        self.write(&index)?;
        self.write(&count.to_le_bytes())?;
        self.write(&hash)?;
        self.write(END)?;
        let size = self.offset;
        let flushing = "flushing a pack";
        if let Some(mut file) = self.file.take() {
            file.flush().map_err(WorkspaceError::store(flushing))?;
            self.steps.step(Step::PackWritten)?;
            file.get_ref()
                .sync_all()
                .map_err(WorkspaceError::store(flushing))?;
        }
        self.steps.step(Step::PackFlushed)?;
        let name = format!("{}{SUFFIX}", unique());
        let named = self.directory.join(&name);
        std::fs::rename(&self.path, &named).map_err(WorkspaceError::store("naming a pack"))?;
        // From here on a failure removes the named pack: nobody was told of it.
        self.path = named;
        self.steps.step(Step::PackNamed)?;
        flush_directory(&self.directory)?;
        self.path = PathBuf::new();
        Ok(Finished {
            name,
            records: std::mem::take(&mut self.records),
            size,
        })
    }
}

impl Drop for PackWriter {
    fn drop(&mut self) {
        if self.path.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            // It is removed when the store is opened next, or collected.
            tracing::warn!(%error, "an unfinished pack could not be removed");
        }
    }
}

/// Makes names in a directory durable.
pub(crate) fn flush_directory(path: &Path) -> Result<(), WorkspaceError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(WorkspaceError::store("flushing a directory of the store"))
}

/// A name that no pack has.
fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{time:024x}-{:x}-{count:x}", std::process::id())
}
