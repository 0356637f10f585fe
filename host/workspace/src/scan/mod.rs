//! From a directory on disk to a manifest.
//!
//! First every directory is listed and every entry looked at; then the files that are not known
//! by their stamps are read. What changes under our eyes is read again, and refused when it does
//! not come to rest: a snapshot never holds bytes that were in no version of a file as far as its
//! size and times tell. Between two files there is no such promise; the caller sees to it that
//! nothing works in the workspace.

mod content;
mod walk;

use crate::beneath::Root;
use crate::bound::Bound;
use crate::error::WorkspaceError;
use crate::manifest::{Entry, Flat, Manifest, Node, Section, join, split};
use crate::rules::Generation;
use crate::sink::Sink;
use crate::stamp::{Known, KnownFiles, Stamp};
use crate::store::{Inner, lock};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What one scan looks at.
pub(crate) struct Scan<'a> {
    pub(crate) store: &'a Inner,
    pub(crate) root: &'a Root,
    pub(crate) bound: &'a Bound,
    /// Rules that hold besides those on disk.
    pub(crate) generation: Option<&'a Generation>,
    /// Paths that are looked at whatever excludes them.
    pub(crate) hold: Option<&'a Flat<'a>>,
    /// Where content goes that is not stored yet; without one it is hashed only.
    pub(crate) sink: Option<&'a Sink<'a>>,
}

/// What a scan found.
pub(crate) struct Scanned {
    pub(crate) manifest: Manifest,
    /// Stamps by path.
    pub(crate) stamps: HashMap<Vec<u8>, Stamp>,
    /// Directories with something below that is never touched.
    pub(crate) blocked: HashSet<Vec<u8>>,
    /// Places where a scan without `generation` and `hold` might see another tree.
    pub(crate) besides: u64,
}

/// A directory as it was listed.
struct Listing {
    path: Vec<u8>,
    entries: Vec<Seen>,
    /// Entries that are no part of the tree.
    skipped: u64,
    besides: u64,
}

struct Seen {
    name: Vec<u8>,
    stamp: Stamp,
    what: What,
}

enum What {
    Directory,
    File,
    Link(Vec<u8>),
}

impl<'a> Scan<'a> {
    pub(crate) fn plain(store: &'a Inner, root: &'a Root, bound: &'a Bound) -> Self {
        Self {
            store,
            root,
            bound,
            generation: None,
            hold: None,
            sink: None,
        }
    }

    pub(crate) fn run(&self) -> Result<Scanned, WorkspaceError> {
        let listings = self.walk()?;
        let mut besides = listings.iter().map(|listing| listing.besides).sum();
        let mut listings: BTreeMap<Vec<u8>, Listing> = listings
            .into_iter()
            .map(|listing| (listing.path.clone(), listing))
            .collect();
        let blocked = self.prune(&mut listings, &mut besides);
        let files: Vec<(&Listing, &Seen)> = listings
            .values()
            .flat_map(|listing| listing.entries.iter().map(move |seen| (listing, seen)))
            .filter(|(_, seen)| matches!(seen.what, What::File))
            .collect();
        let known = lock(&self.store.memory).get(&self.root.path);
        let contents = self.contents(&files, &known)?;
        self.remember(&files, &contents, &known);
        let mut stamps = HashMap::new();
        let mut sections = Vec::with_capacity(listings.len());
        let mut contents = contents.into_iter();
        for listing in listings.into_values() {
            let mut entries = Vec::with_capacity(listing.entries.len());
            for seen in listing.entries {
                let mut stamp = seen.stamp;
                let node = match seen.what {
                    What::Directory => Node::Directory {
                        mode: stamp.permissions(),
                    },
                    What::Link(text) => Node::Link { text },
                    What::File => {
                        let Some(content) = contents.next() else {
                            break;
                        };
                        stamp = content.stamp;
                        Node::File {
                            mode: stamp.permissions(),
                            size: stamp.size,
                            chunks: content.chunks,
                        }
                    }
                };
                if self.hold.is_some() {
                    stamps.insert(join(&listing.path, &seen.name), stamp);
                }
                let name = seen.name;
                entries.push(Entry { name, node });
            }
            let path = listing.path;
            sections.push(Section { path, entries });
        }
        Ok(Scanned {
            manifest: Manifest { sections },
            stamps,
            blocked,
            besides,
        })
    }

    /// Leaves out directories that hold nothing but what is left out. One that is held stays.
    fn prune(
        &self,
        listings: &mut BTreeMap<Vec<u8>, Listing>,
        besides: &mut u64,
    ) -> HashSet<Vec<u8>> {
        let mut blocked = HashSet::new();
        if listings.values().all(|listing| listing.skipped == 0) {
            return blocked;
        }
        let mut dead: HashSet<Vec<u8>> = HashSet::new();
        // Children come before their parents.
        for (path, listing) in listings.iter_mut().rev() {
            let before = listing.entries.len();
            if !dead.is_empty() {
                listing.entries.retain(|seen| {
                    !matches!(seen.what, What::Directory) || !dead.contains(&join(path, &seen.name))
                });
            }
            listing.skipped += (before - listing.entries.len()) as u64;
            if listing.skipped > 0 {
                blocked.insert(path.clone());
            }
            if blocked.contains(path) && !path.is_empty() {
                blocked.insert(split(path).0.to_vec());
            }
            if listing.skipped > 0 && listing.entries.is_empty() && !path.is_empty() {
                if self.hold.is_some_and(|hold| hold.contains_key(path)) {
                    *besides += 1;
                } else {
                    dead.insert(path.clone());
                }
            }
        }
        listings.retain(|path, _| !dead.contains(path));
        blocked
    }

    /// Remembers by their stamps the files that are at rest.
    fn remember(
        &self,
        files: &[(&Listing, &Seen)],
        contents: &[content::Content],
        known: &KnownFiles,
    ) {
        let count: usize = known.values().map(Vec::len).sum();
        let mut memory = lock(&self.store.memory);
        if count == files.len() && contents.iter().all(|content| content.was_known) {
            memory.touch(&self.root.path);
            return;
        }
        let mut all = KnownFiles::new();
        for ((listing, seen), content) in files.iter().zip(contents) {
            if content.settled {
                let known = Known {
                    name: seen.name.clone(),
                    stamp: content.stamp,
                    chunks: content.chunks.clone(),
                };
                match all.get_mut(&listing.path) {
                    Some(names) => names.push(known),
                    None => drop(all.insert(listing.path.clone(), vec![known])),
                }
            }
        }
        memory.set(&self.root.path, all);
    }
}
