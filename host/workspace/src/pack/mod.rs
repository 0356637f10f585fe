//! Packs: append-only files that hold what is stored.
//!
//! A checkpoint writes all that is new into one pack, so it pays for one flush and not for one a
//! file. A pack is written without a name, flushed, then named; whatever has a name is whole.
//!
//! ```text
//! "HWPACK1\n"  record*  entry*  count u64  SHA-256 of the entries  "HWPKEND1"
//! record: kind u8, codec u8, 0 u16, length u32, stored length u32, hash, stored bytes
//! entry:  kind u8, codec u8, 0 u16, length u32, stored length u32, hash, offset of the bytes u64
//! ```
//!
//! All numbers are little-endian. An object's hash is that of its bytes; a recipe's is the ref it
//! makes. Bytes are LZ4 when that saves a sixteenth at least.

mod reader;
mod writer;

pub(crate) use reader::{Reader, read_index};
pub(crate) use writer::{Finished, PackWriter, Prepared, flush_directory, prepare};

use crate::reference::Hash;

const BEGIN: &[u8; 8] = b"HWPACK1\n";
const END: &[u8; 8] = b"HWPKEND1";
const HEAD: usize = 44;
const ENTRY: usize = 52;
const TRAILER: u64 = 48;
/// Ending of a finished pack's name.
pub(crate) const SUFFIX: &str = ".pack";
/// Beginning of an unfinished pack's name.
pub(crate) const UNFINISHED: &str = "tmp-";

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A chunk of a file or a section of a manifest.
    Object,
    /// The recipe of a manifest.
    Recipe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Plain,
    Lz4,
}

/// A record as an index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) codec: Codec,
    pub(crate) hash: Hash,
    /// Bytes of the content.
    pub(crate) length: u32,
    /// Bytes of it in the pack.
    pub(crate) stored: u32,
    /// Where they begin.
    pub(crate) offset: u64,
}

impl Record {
    fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        let kind = match self.kind {
            Kind::Object => 1,
            Kind::Recipe => 2,
        };
        let codec = match self.codec {
            Codec::Plain => 0,
            Codec::Lz4 => 1,
        };
        let parts = [kind, codec, 0, 0]
            .into_iter()
            .chain(self.length.to_le_bytes())
            .chain(self.stored.to_le_bytes())
            .chain(self.hash);
        head.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        head
    }

    fn entry(&self) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        let parts = self.head().into_iter().chain(self.offset.to_le_bytes());
        entry
            .iter_mut()
            .zip(parts)
            .for_each(|(to, from)| *to = from);
        entry
    }

    fn parse(entry: &[u8; ENTRY]) -> Option<Self> {
        let (kind, rest) = entry.split_at_checked(1)?;
        let (codec, rest) = rest.split_at_checked(1)?;
        let (zero, rest) = rest.split_at_checked(2)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (stored, rest) = rest.split_first_chunk::<4>()?;
        let (hash, offset) = rest.split_first_chunk::<32>()?;
        Some(Self {
            kind: match kind {
                [1] => Kind::Object,
                [2] => Kind::Recipe,
                _ => return None,
            },
            codec: match codec {
                [0] => Codec::Plain,
                [1] => Codec::Lz4,
                _ => return None,
            },
            hash: *hash,
            length: u32::from_le_bytes(*length),
            stored: u32::from_le_bytes(*stored),
            offset: u64::from_le_bytes(offset.try_into().ok()?),
        })
        .filter(|_| zero == [0, 0])
    }

    /// Bytes that it takes in a pack, its entry in the index included.
    pub(crate) fn footprint(&self) -> u64 {
        u64::from(self.stored) + (HEAD + ENTRY) as u64
    }
}
