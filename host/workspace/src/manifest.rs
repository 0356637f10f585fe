//! A whole tree in canonical bytes.
//!
//! A manifest is a header and one section a directory, sorted by path; a section lists what is in
//! its directory, sorted by name. The same tree has the same bytes, and the ref is their SHA-256.
//! Sections are stored one by one, so that two snapshots share those of unchanged directories; a
//! recipe lists the sections of one manifest.
//!
//! Invariant of a decoded manifest: every directory entry has its section and every section its
//! entry; no name is empty, `.`, `..`, `.git` or contains `/` or NUL. So no path in it leads out
//! of the root, or through anything but directories of the manifest itself.

use crate::error::WorkspaceError;
use crate::limits::{CHUNK, MAX_MANIFEST, MAX_NAME, MAX_PATH};
use crate::reference::{Hash, Ref};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

const HEADER: &[u8] = b"harness workspace manifest 1\n";
const RECIPE: &[u8] = b"harness workspace recipe 1\n";

/// Names at the root that begin like this are the rewind's own.
pub(crate) const STAGING: &[u8] = b".harness-rewind-";

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory {
        mode: u16,
    },
    File {
        mode: u16,
        size: u64,
        /// One for every [`CHUNK`] bytes begun.
        chunks: Vec<Hash>,
    },
    Link {
        text: Vec<u8>,
    },
}

impl Node {
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) node: Node,
}

/// A directory and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// Relative to the root, empty for the root itself.
    pub(crate) path: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

/// A whole tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) sections: Vec<Section>,
}

/// A tree by path; parents come before what is in them.
pub(crate) type Flat<'a> = BTreeMap<Vec<u8>, &'a Node>;

/// A manifest in bytes, as it is stored.
pub(crate) struct Encoded {
    pub(crate) reference: Ref,
    /// Hash and bytes of each section.
    pub(crate) sections: Vec<(Hash, Vec<u8>)>,
    pub(crate) recipe: Vec<u8>,
}

pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    path.extend_from_slice(directory);
    if !directory.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The directory of a path and its name there.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => path
            .split_at_checked(slash)
            .map_or((&[], path), |(directory, name)| {
                (directory, name.get(1..).unwrap_or_default())
            }),
        None => (&[], path),
    }
}

impl Manifest {
    pub(crate) fn flat(&self) -> Flat<'_> {
        let mut flat = BTreeMap::new();
        for section in &self.sections {
            for entry in &section.entries {
                flat.insert(join(&section.path, &entry.name), &entry.node);
            }
        }
        flat
    }

    pub(crate) fn entries(&self) -> u64 {
        self.sections
            .iter()
            .map(|section| section.entries.len() as u64)
            .sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        let sizes = self.sections.iter().flat_map(|section| &section.entries);
        sizes
            .map(|entry| match entry.node {
                Node::File { size, .. } => size,
                _ => 0,
            })
            .fold(0, u64::saturating_add)
    }

    /// # Errors
    ///
    /// `workspace_too_large` beyond the bound of a manifest.
    pub(crate) fn encode(&self) -> Result<Encoded, WorkspaceError> {
        let count = (self.sections.len() as u32).to_le_bytes();
        let mut whole = Sha256::new();
        whole.update(HEADER);
        whole.update(count);
        let mut recipe = RECIPE.to_vec();
        recipe.extend_from_slice(&count);
        let mut sections = Vec::with_capacity(self.sections.len());
        let mut total = 0u64;
        for section in &self.sections {
            let bytes = section.encode();
            total += bytes.len() as u64;
            if total > MAX_MANIFEST {
                return Err(WorkspaceError::TooLarge {
                    what: "bytes of names",
                    limit: MAX_MANIFEST,
                });
            }
            whole.update(&bytes);
            let hash: Hash = Sha256::digest(&bytes).into();
            recipe.extend_from_slice(&hash);
            sections.push((hash, bytes));
        }
        Ok(Encoded {
            reference: Ref(whole.finalize().into()),
            sections,
            recipe,
        })
    }

    /// Puts a manifest together from its sections' bytes and checks it against its ref.
    pub(crate) fn decode(reference: &Ref, sections: &[Vec<u8>]) -> Result<Self, WorkspaceError> {
        let damaged = |what: &str| WorkspaceError::Corrupt {
            what: format!("the manifest of {reference} {what}"),
        };
        let mut whole = Sha256::new();
        whole.update(HEADER);
        whole.update((sections.len() as u32).to_le_bytes());
        for bytes in sections {
            whole.update(bytes);
        }
        if <Hash>::from(whole.finalize()) != reference.0 {
            return Err(damaged("has another hash"));
        }
        let sections: Option<Vec<Section>> = sections.iter().map(|b| Section::decode(b)).collect();
        let manifest = Self {
            sections: sections.ok_or_else(|| damaged("cannot be read"))?,
        };
        if manifest.is_sound() {
            Ok(manifest)
        } else {
            Err(damaged("contradicts itself"))
        }
    }

    fn is_sound(&self) -> bool {
        let mut directories = BTreeSet::from([Vec::new()]);
        for section in &self.sections {
            if !section
                .entries
                .is_sorted_by(|before, after| before.name < after.name)
            {
                return false;
            }
            for entry in &section.entries {
                let own = section.path.is_empty() && entry.name.starts_with(STAGING);
                if own || !is_name(&entry.name) || !is_node(&entry.node) {
                    return false;
                }
                if entry.node.is_directory() {
                    directories.insert(join(&section.path, &entry.name));
                }
            }
        }
        self.sections
            .iter()
            .map(|section| &section.path)
            .eq(directories.iter())
            && directories.iter().all(|path| path.len() <= MAX_PATH)
    }
}

fn is_name(name: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && !matches!(name, b"." | b".." | b".git")
        && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

fn is_node(node: &Node) -> bool {
    match node {
        Node::Directory { mode } => *mode <= 0o777,
        Node::File { mode, size, chunks } => {
            *mode <= 0o777 && size.div_ceil(CHUNK as u64) == chunks.len() as u64
        }
        Node::Link { text } => (1..=MAX_PATH).contains(&text.len()) && !text.contains(&0),
    }
}

impl Section {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.path.len() + self.entries.len() * 64);
        text(&mut out, &self.path);
        out.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        for entry in &self.entries {
            match &entry.node {
                Node::Directory { mode } => {
                    out.push(1);
                    text(&mut out, &entry.name);
                    out.extend_from_slice(&mode.to_le_bytes());
                }
                Node::File { mode, size, chunks } => {
                    out.push(2);
                    text(&mut out, &entry.name);
                    out.extend_from_slice(&mode.to_le_bytes());
                    out.extend_from_slice(&size.to_le_bytes());
                    for chunk in chunks {
                        out.extend_from_slice(chunk);
                    }
                }
                Node::Link { text: target } => {
                    out.push(3);
                    text(&mut out, &entry.name);
                    text(&mut out, target);
                }
            }
        }
        out
    }

    /// `None` when these are not the bytes of a section.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        let path = rest.text()?;
        let count = rest.u32()?;
        // A section cannot hold more entries than it has bytes.
        if count as usize > bytes.len() {
            return None;
        }
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let kind = rest.take(1)?;
            let name = rest.text()?;
            let node = match kind {
                [1] => Node::Directory { mode: rest.u16()? },
                [2] => {
                    let mode = rest.u16()?;
                    let size = rest.u64()?;
                    let count = usize::try_from(size.div_ceil(CHUNK as u64)).ok()?;
                    let all = rest.take(count.checked_mul(32)?)?;
                    let (chunks, _) = all.as_chunks::<32>();
                    let chunks = chunks.to_vec();
                    Node::File { mode, size, chunks }
                }
                [3] => Node::Link { text: rest.text()? },
                _ => return None,
            };
            entries.push(Entry { name, node });
        }
        rest.0.is_empty().then_some(Self { path, entries })
    }
}

/// Hashes of the sections that a recipe lists; `None` when it is no recipe.
pub(crate) fn decode_recipe(bytes: &[u8]) -> Option<Vec<Hash>> {
    let mut rest = Reader(bytes.strip_prefix(RECIPE)?);
    let count = rest.u32()? as usize;
    let all = rest.take(count.checked_mul(32)?)?;
    let (hashes, _) = all.as_chunks::<32>();
    rest.0.is_empty().then(|| hashes.to_vec())
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text);
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let length = self.u16()?;
        Some(self.take(usize::from(length))?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(path: &str, entries: Vec<(&str, Node)>) -> Section {
        let entries = entries.into_iter().map(|(name, node)| Entry {
            name: name.into(),
            node,
        });
        Section {
            path: path.into(),
            entries: entries.collect(),
        }
    }

    const DIRECTORY: Node = Node::Directory { mode: 0o755 };

    fn link(text: &str) -> Node {
        Node::Link { text: text.into() }
    }

    fn read(sections: Vec<Section>) -> Result<Manifest, WorkspaceError> {
        let encoded = Manifest { sections }.encode().unwrap();
        let bytes: Vec<_> = encoded.sections.into_iter().map(|(_, b)| b).collect();
        Manifest::decode(&encoded.reference, &bytes)
    }

    #[test]
    fn s98_a_manifest_comes_back_from_its_bytes() {
        let file = Node::File {
            mode: 0o640,
            size: CHUNK as u64 + 1,
            chunks: vec![[1; 32], [2; 32]],
        };
        let sections = vec![
            section(
                "",
                vec![("a", DIRECTORY), ("a.b", file), ("c", link("../x"))],
            ),
            section("a", vec![]),
        ];
        let manifest = read(sections.clone()).unwrap();
        assert_eq!(manifest.sections, sections);
        let encoded = manifest.encode().unwrap();
        let hashes: Vec<_> = encoded.sections.iter().map(|(hash, _)| *hash).collect();
        assert_eq!(decode_recipe(&encoded.recipe).unwrap(), hashes);
        // Every cut and every additional byte is noticed.
        for (_, bytes) in &encoded.sections {
            for cut in 0..bytes.len() {
                assert_eq!(Section::decode(&bytes[..cut]), None);
            }
            assert_eq!(Section::decode(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(decode_recipe(&encoded.recipe[1..]), None);
    }

    #[test]
    fn s99_a_manifest_with_a_path_out_of_the_root_or_through_a_symlink_is_refused() {
        for bad in [
            vec![section("", vec![("..", DIRECTORY)]), section("..", vec![])],
            vec![section("", vec![("a/b", link("x"))])],
            vec![section("", vec![("", link("x"))])],
            vec![section("", vec![(".", link("x"))])],
            vec![section("", vec![(".git", link("x"))])],
            vec![section("", vec![("a\0", link("x"))])],
            vec![section("", vec![(".harness-rewind-1", link("x"))])],
            // What is in a symlink, or in nothing at all.
            vec![
                section("", vec![("a", link("/"))]),
                section("a", vec![("b", link("x"))]),
            ],
            vec![section("", vec![]), section("a", vec![("b", link("x"))])],
            // A directory without a section.
            vec![section("", vec![("a", DIRECTORY)])],
            // Order and repetition.
            vec![section("", vec![("b", link("x")), ("a", link("x"))])],
            vec![section("", vec![("a", link("x")), ("a", link("y"))])],
            vec![section("", vec![("a", link(""))])],
            vec![
                section("", vec![("a", Node::Directory { mode: 0o4755 })]),
                section("a", vec![]),
            ],
            vec![],
        ] {
            assert_eq!(read(bad.clone()).unwrap_err().code(), "corrupt", "{bad:?}");
        }
    }
}
