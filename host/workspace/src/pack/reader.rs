//! Reading packs; nothing is believed before its hash was checked.

use super::{BEGIN, Codec, END, ENTRY, HEAD, Kind, Record, TRAILER};
use crate::error::WorkspaceError;
use crate::limits::MAX_MANIFEST;
use crate::reference::Hash;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Packs that are held open at once.
const OPEN: usize = 32;

/// Records of a pack, from its end; `None` when the pack is damaged.
pub(crate) fn read_index(path: &Path) -> Result<Option<(Vec<Record>, u64)>, WorkspaceError> {
    let failed = || WorkspaceError::store("reading the index of a pack");
    let file = File::open(path).map_err(failed())?;
    let size = file.metadata().map_err(failed())?.len();
    let mut begin = [0; BEGIN.len()];
    let Some(trailer_at) = size
        .checked_sub(TRAILER)
        .filter(|at| *at >= BEGIN.len() as u64)
    else {
        return Ok(None);
    };
    file.read_exact_at(&mut begin, 0).map_err(failed())?;
    let mut trailer = [0; TRAILER as usize];
    file.read_exact_at(&mut trailer, trailer_at)
        .map_err(failed())?;
    let (count, rest) = trailer.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    let (hash, end) = rest.split_first_chunk::<32>().unwrap_or((&[0; 32], &[]));
    let index_at = u64::from_le_bytes(*count)
        .checked_mul(ENTRY as u64)
        .and_then(|length| trailer_at.checked_sub(length))
        .filter(|at| *at >= BEGIN.len() as u64);
    let Some(index_at) = index_at.filter(|_| begin == *BEGIN && end == END) else {
        return Ok(None);
    };
    let mut index = vec![0; usize::try_from(trailer_at - index_at).unwrap_or(0)];
    file.read_exact_at(&mut index, index_at).map_err(failed())?;
    if <Hash>::from(Sha256::digest(&index)) != *hash {
        return Ok(None);
    }
    let (entries, _) = index.as_chunks::<ENTRY>();
    let records: Option<Vec<Record>> = entries.iter().map(Record::parse).collect();
    let within = |record: &Record| {
        record.offset >= (BEGIN.len() + HEAD) as u64
            && record
                .offset
                .checked_add(u64::from(record.stored))
                .is_some_and(|end| end <= index_at)
            && u64::from(record.length) <= MAX_MANIFEST
            && u64::from(record.stored) <= MAX_MANIFEST
    };
    Ok(records
        .filter(|records| records.iter().all(within))
        .map(|records| (records, size)))
}

/// Reads records; holds a bounded number of packs open.
#[derive(Default)]
pub(crate) struct Reader {
    open: Mutex<HashMap<PathBuf, Arc<File>>>,
}

impl Reader {
    fn file(&self, path: &Path) -> Result<Arc<File>, WorkspaceError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(path) {
            return Ok(file.clone());
        }
        let file = File::open(path).map_err(WorkspaceError::store("opening a pack"))?;
        if open.len() >= OPEN {
            open.clear();
        }
        let file = Arc::new(file);
        open.insert(path.to_owned(), file.clone());
        Ok(file)
    }

    /// The content of a record. A recipe is checked by what it makes, not here.
    pub(crate) fn read(&self, path: &Path, record: &Record) -> Result<Vec<u8>, WorkspaceError> {
        let damaged = |what: &str| WorkspaceError::Corrupt {
            what: format!("{what} of content {}", hex::encode(record.hash)),
        };
        let file = self.file(path)?;
        let mut stored = vec![0; record.stored as usize];
        file.read_exact_at(&mut stored, record.offset)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => damaged("the pack ends in the middle"),
                _ => WorkspaceError::store("reading a pack")(error),
            })?;
        let bytes = match record.codec {
            Codec::Plain => stored,
            Codec::Lz4 => {
                let mut bytes = vec![0; record.length as usize];
                let length = lz4_flex::block::decompress_into(&stored, &mut bytes)
                    .map_err(|_| damaged("a pack holds other bytes in place"))?;
                bytes.truncate(length);
                bytes
            }
        };
        let right = bytes.len() == record.length as usize
            && (record.kind == Kind::Recipe || <Hash>::from(Sha256::digest(&bytes)) == record.hash);
        if right {
            Ok(bytes)
        } else {
            Err(damaged("a pack holds other bytes in place"))
        }
    }
}
