//! Turning one tree into another.
//!
//! A turn is driven by two manifests: it changes the paths on which they differ and no other. In
//! the first run every entry must be as it was just scanned. After a crash each may be in either
//! state; then a turn can be run again from its beginning, in either direction, and ends the same.
//!
//! Every change goes through a handle of the parent directory that was reached without a symlink.
//! Nothing is written into an existing file: it may be a hard link of one elsewhere.

use super::stage::Staged;
use crate::beneath::{Root, unlock};
use crate::bound::Bound;
use crate::error::{WorkspaceError, show};
use crate::manifest::{Flat, Node, split};
use crate::pack::Reader;
use crate::stamp::Stamp;
use crate::step::Step;
use crate::store::Inner;
use rustix::fs::{
    AtFlags, FileType, Mode, fchmod, fstat, mkdirat, renameat, statat, syncfs, unlinkat,
};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

pub(super) struct Turn<'a> {
    pub(super) store: &'a Inner,
    pub(super) root: &'a Root,
    pub(super) reader: &'a Reader,
    pub(super) bound: &'a Bound,
    /// Name of the staging directory.
    pub(super) staging: &'a str,
    pub(super) from: &'a Flat<'a>,
    pub(super) to: &'a Flat<'a>,
    /// What was just scanned; without it entries may be in either state.
    pub(super) stamps: Option<&'a HashMap<Vec<u8>, Stamp>>,
    /// The only paths that may be changed.
    pub(super) only: Option<&'a HashSet<Vec<u8>>>,
}

/// What a turn did.
#[derive(Debug, Default)]
pub(super) struct Turned {
    pub(super) written: u64,
    pub(super) removed: u64,
    pub(super) bytes: u64,
}

/// The directory that was changed last.
#[derive(Default)]
struct Parent(Option<(Vec<u8>, OwnedFd)>);

impl<'a> Turn<'a> {
    /// Paths on which the trees differ, parents first.
    pub(super) fn differing(&self) -> impl DoubleEndedIterator<Item = &'a Vec<u8>> + use<'a> {
        let (from, to, only) = (self.from, self.to, self.only);
        let mut paths: Vec<&Vec<u8>> = from
            .iter()
            .filter(|(path, node)| to.get(*path) != Some(node))
            .map(|(path, _)| path)
            .chain(to.keys().filter(|path| !from.contains_key(*path)))
            .filter(|path| only.is_none_or(|only| only.contains(*path)))
            .collect();
        paths.sort_unstable();
        paths.into_iter()
    }

    /// Does it all. `moving` is called between staging and the first change, and what was changed
    /// is in `touched` also when it fails.
    pub(super) fn run(
        &self,
        touched: &mut HashSet<Vec<u8>>,
        moving: impl FnOnce() -> Result<(), WorkspaceError>,
    ) -> Result<Turned, WorkspaceError> {
        let mut staged = Vec::new();
        for path in self.differing() {
            match self.to.get(path) {
                Some(node) if !node.is_directory() => staged.push(Staged {
                    path,
                    node,
                    name: staged.len().to_string(),
                }),
                _ => {}
            }
        }
        let (directory, bytes) = self.stage(&staged)?;
        self.store.steps.step(Step::Staged)?;
        self.flush()?;
        moving()?;
        let removed = self.remove(touched)?;
        let made = self.make_directories(touched)?;
        self.put(&directory, &staged, touched)?;
        self.set_modes()?;
        self.store.steps.step(Step::Moved)?;
        self.flush()?;
        Ok(Turned {
            written: made + staged.len() as u64,
            removed,
            bytes,
        })
    }

    fn flush(&self) -> Result<(), WorkspaceError> {
        syncfs(self.root.handle()).map_err(WorkspaceError::at(b""))
    }

    /// The first run: nothing may be in another state than it was scanned in.
    fn first(&self) -> bool {
        self.stamps.is_some()
    }

    fn changed(path: &[u8]) -> WorkspaceError {
        WorkspaceError::Changed { path: show(path) }
    }

    /// A directory to change, made changeable.
    fn open<'p>(&self, parent: &'p mut Parent, path: &[u8]) -> Result<&'p OwnedFd, Errno> {
        if parent.0.as_ref().is_none_or(|(open, _)| open != path) {
            let directory = self.root.directory(path)?;
            unlock(&directory)?;
            parent.0 = Some((path.to_vec(), directory));
        }
        parent.0.as_ref().map(|(_, open)| open).ok_or(Errno::BADF)
    }

    /// What is at a path; `None` when nothing is.
    fn look(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<(Stamp, FileType)>, WorkspaceError> {
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((
                Stamp::of(&stat),
                FileType::from_raw_mode(stat.st_mode),
            ))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(WorkspaceError::at(path)(errno)),
        }
    }

    /// In the first run: whether this is still what was scanned.
    fn check(&self, path: &[u8], found: Option<&(Stamp, FileType)>) -> Result<(), WorkspaceError> {
        let Some(stamps) = self.stamps else {
            return Ok(());
        };
        let same = match (self.from.get(path), found) {
            (None, None) => true,
            (Some(node), Some((stamp, kind))) => stamps.get(path).is_some_and(|scanned| {
                // The times of a directory change with what we do in it.
                scanned.is_content_of(stamp)
                    || node.is_directory() && kind.is_dir() && scanned.inode == stamp.inode
            }),
            _ => false,
        };
        if same {
            Ok(())
        } else {
            Err(Self::changed(path))
        }
    }

    /// Removes what is in the way or no more there, children first.
    fn remove(&self, touched: &mut HashSet<Vec<u8>>) -> Result<u64, WorkspaceError> {
        let mut parent = Parent::default();
        let mut removed = 0;
        for path in self.differing().rev() {
            let Some(node) = self.from.get(path) else {
                continue;
            };
            let next = self.to.get(path);
            if next.is_some_and(|next| next.is_directory() == node.is_directory()) {
                continue;
            }
            self.bound.check()?;
            removed += u64::from(self.remove_one(&mut parent, path, node, touched)?);
        }
        Ok(removed)
    }

    fn remove_one(
        &self,
        parent: &mut Parent,
        path: &[u8],
        node: &Node,
        touched: &mut HashSet<Vec<u8>>,
    ) -> Result<bool, WorkspaceError> {
        let (directory_path, name) = split(path);
        let gone_with_parent = !self.first()
            && !directory_path.is_empty()
            && !self
                .to
                .get(directory_path)
                .is_some_and(|node| node.is_directory());
        let directory = match self.open(parent, directory_path) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if gone_with_parent => {
                return Ok(false);
            }
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(Self::changed(path)),
            Err(errno) => return Err(WorkspaceError::at(path)(errno)),
        };
        let found = self.look(directory, name, path)?;
        self.check(path, found.as_ref())?;
        let Some((_, kind)) = found else {
            return Ok(false);
        };
        if kind.is_dir() != node.is_directory() {
            // It is what it becomes, or somebody else's.
            return match self.to.get(path) {
                Some(_) => Ok(false),
                None => Err(Self::changed(path)),
            };
        }
        self.store.steps.step(Step::Remove)?;
        touched.insert(path.to_vec());
        let flags = if kind.is_dir() {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        match unlinkat(directory, name, flags) {
            Ok(()) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) if !self.to.contains_key(path) => {
                // What is left in it is never touched, or it is found by the comparison.
                Ok(false)
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(obstructed(path)),
            Err(errno) => Err(WorkspaceError::at(path)(errno)),
        }
    }

    fn make_directories(&self, touched: &mut HashSet<Vec<u8>>) -> Result<u64, WorkspaceError> {
        let mut parent = Parent::default();
        let mut made = 0;
        for path in self.differing() {
            let directory = self.to.get(path).is_some_and(|node| node.is_directory());
            let before = self.from.get(path).is_some_and(|node| node.is_directory());
            if !directory || before {
                continue;
            }
            self.bound.check()?;
            let (parent_path, name) = split(path);
            let parent = self
                .open(&mut parent, parent_path)
                .map_err(WorkspaceError::at(path))?;
            self.store.steps.step(Step::MakeDirectory)?;
            touched.insert(path.clone());
            match mkdirat(parent, name, Mode::RWXU) {
                Ok(()) => made += 1,
                Err(Errno::EXIST) => match self.look(parent, name, path)? {
                    Some((_, kind)) if kind.is_dir() && !self.first() => {}
                    _ => return Err(Self::changed(path)),
                },
                Err(errno) => return Err(WorkspaceError::at(path)(errno)),
            }
        }
        Ok(made)
    }

    /// Moves what was staged into its place.
    fn put(
        &self,
        staging: &OwnedFd,
        staged: &[Staged<'_>],
        touched: &mut HashSet<Vec<u8>>,
    ) -> Result<(), WorkspaceError> {
        let mut parent = Parent::default();
        for entry in staged {
            self.bound.check()?;
            let (parent_path, name) = split(entry.path);
            let parent = self
                .open(&mut parent, parent_path)
                .map_err(WorkspaceError::at(entry.path))?;
            let found = self.look(parent, name, entry.path)?;
            // A directory was here before and is removed by now.
            let was_directory = self
                .from
                .get(entry.path)
                .is_some_and(|node| node.is_directory());
            if !(was_directory && found.is_none()) {
                self.check(entry.path, found.as_ref())?;
            }
            self.store.steps.step(Step::Move)?;
            touched.insert(entry.path.to_vec());
            match renameat(staging, &*entry.name, parent, name) {
                Ok(()) => {}
                Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                    return Err(obstructed(entry.path));
                }
                Err(Errno::XDEV) => {
                    return Err(WorkspaceError::Mounted {
                        path: show(entry.path),
                    });
                }
                Err(errno) => return Err(WorkspaceError::at(entry.path)(errno)),
            }
        }
        Ok(())
    }

    /// Gives every directory its mode, children first; also those that were made changeable, and
    /// those that stay because of what is left in them.
    fn set_modes(&self) -> Result<(), WorkspaceError> {
        let mut directories: Vec<(&Vec<u8>, u16, bool)> = Vec::new();
        for (path, node) in self.to {
            if let Node::Directory { mode } = node {
                directories.push((path, *mode, self.only.is_none()));
            }
        }
        for (path, node) in self.from {
            match node {
                Node::Directory { mode } if !self.to.contains_key(path) => {
                    directories.push((path, *mode, false));
                }
                _ => {}
            }
        }
        directories.sort_unstable();
        for (path, mode, required) in directories.into_iter().rev() {
            self.bound.check()?;
            match self.root.directory(path) {
                Ok(directory) => self.set_mode(&directory, path, mode)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !required => {}
                Err(Errno::NOENT | Errno::NOTDIR) => return Err(Self::changed(path)),
                Err(errno) => return Err(WorkspaceError::at(path)(errno)),
            }
        }
        Ok(())
    }

    fn set_mode(&self, directory: &OwnedFd, path: &[u8], mode: u16) -> Result<(), WorkspaceError> {
        let now = fstat(directory).map_err(WorkspaceError::at(path))?.st_mode;
        if now & 0o777 == u32::from(mode) {
            return Ok(());
        }
        self.store.steps.step(Step::Mode)?;
        let mode = Mode::from_raw_mode(now & 0o7000 | u32::from(mode));
        fchmod(directory, mode).map_err(WorkspaceError::at(path))
    }
}

fn obstructed(path: &[u8]) -> WorkspaceError {
    WorkspaceError::Obstructed {
        path: show(path),
        by: "a directory with excluded content",
    }
}
