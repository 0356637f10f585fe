//! The root of a workspace, and files below it that are never reached through a symlink.
//!
//! The root itself is opened as its owner names it, symlinks included; from there every path goes
//! down one handle, with `openat2` and `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS` where the kernel
//! has it, and name by name with `O_NOFOLLOW` where it does not. So a symlink that is swapped in
//! while we work is met as an error, never as a way out.

use crate::error::{WorkspaceError, show};
use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, fchmod, fstat, open, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Tries when a rename somewhere keeps the kernel from proving that a path stays below the root.
const TRIES: usize = 32;

#[derive(Debug)]
pub(crate) struct Root {
    handle: OwnedFd,
    /// Canonical path, the key of everything that is remembered about the workspace.
    pub(crate) path: PathBuf,
    /// Device of the file system.
    pub(crate) device: u64,
    one_call: AtomicBool,
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self, WorkspaceError> {
        let root = |error: std::io::Error| WorkspaceError::Root {
            reason: error.to_string(),
        };
        let path = path.canonicalize().map_err(root)?;
        let handle = open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| root(errno.into()))?;
        let stat = fstat(&handle).map_err(|errno| root(errno.into()))?;
        Ok(Self {
            handle,
            path,
            device: stat.st_dev,
            one_call: AtomicBool::new(true),
        })
    }

    pub(crate) fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Opens what is at this path, which must not be a symlink itself.
    fn open_at(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        if self.one_call.load(Ordering::Relaxed) {
            let resolve =
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            for _ in 0..TRIES {
                // `NO_SYMLINKS` covers the last name, too, and says so more clearly.
                let flags = flags.difference(OFlags::NOFOLLOW);
                match openat2(&self.handle, path, flags, Mode::empty(), resolve) {
                    Err(Errno::AGAIN) => {}
                    // No such call, or a sandbox that does not know it.
                    Err(Errno::NOSYS | Errno::PERM) => {
                        self.one_call.store(false, Ordering::Relaxed);
                        break;
                    }
                    other => return other,
                }
            }
        }
        name_by_name(&self.handle, path, flags)
    }

    /// A directory, to list it or to change it.
    pub(crate) fn directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Makes the root changeable by its owner. What it was is in the record of the rewind.
    pub(crate) fn unlock(&self) -> Result<(), Errno> {
        unlock(&self.handle)
    }

    /// Sets the root's permission bits.
    pub(crate) fn set_mode(&self, mode: u16) -> Result<(), Errno> {
        let now = fstat(&self.handle)?.st_mode;
        if now & 0o777 == u32::from(mode) {
            return Ok(());
        }
        fchmod(
            &self.handle,
            Mode::from_raw_mode(now & 0o7000 | u32::from(mode)),
        )
    }

    /// A file to read; never waits for a pipe that stands in its place.
    pub(crate) fn file(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_at(path, read_flags())
    }
}

/// Owner's write and search permission, without which nothing in a directory can be changed.
const CHANGEABLE: u32 = 0o300;

/// Makes a directory changeable by its owner.
pub(crate) fn unlock(directory: &OwnedFd) -> Result<(), Errno> {
    let mode = fstat(directory)?.st_mode;
    if mode & CHANGEABLE == CHANGEABLE {
        return Ok(());
    }
    fchmod(directory, Mode::from_raw_mode(mode & 0o7777 | 0o700))
}

fn read_flags() -> OFlags {
    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW
}

/// A file of an open directory, to read.
pub(crate) fn file_in(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(directory, name, read_flags(), Mode::empty())
}

fn name_by_name(root: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
    let last = names.pop().unwrap_or(b".");
    let mut current: Option<OwnedFd> = None;
    for name in names {
        if name == b".." {
            return Err(Errno::XDEV);
        }
        let next = match &current {
            Some(directory) => openat(directory, name, step, Mode::empty()),
            None => openat(root, name, step, Mode::empty()),
        };
        current = Some(next.map_err(|errno| through_link(errno, current.as_ref(), root, name))?);
    }
    if last == b".." {
        return Err(Errno::XDEV);
    }
    let opened = match &current {
        Some(directory) => openat(directory, last, flags, Mode::empty()),
        None => openat(root, last, flags, Mode::empty()),
    };
    opened.map_err(|errno| through_link(errno, current.as_ref(), root, last))
}

/// `O_DIRECTORY | O_NOFOLLOW` says of a symlink that it is no directory; here it is a symlink.
fn through_link(errno: Errno, parent: Option<&OwnedFd>, root: &OwnedFd, name: &[u8]) -> Errno {
    let stat = statat(parent.unwrap_or(root), name, AtFlags::SYMLINK_NOFOLLOW);
    match (errno, stat) {
        (Errno::NOTDIR, Ok(stat))
            if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink() =>
        {
            Errno::LOOP
        }
        _ => errno,
    }
}

/// Removes a directory of files at the root; that there is none is as good.
pub(crate) fn remove_flat(root: &Root, name: &[u8]) -> Result<(), WorkspaceError> {
    let directory = match root.directory(name) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(WorkspaceError::at(name)(errno)),
    };
    let failed = |errno| match errno {
        Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST => {
            WorkspaceError::Changed { path: show(name) }
        }
        errno => WorkspaceError::at(name)(errno),
    };
    for entry in rustix::fs::Dir::read_from(&directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let entry = entry.file_name().to_bytes();
        if !matches!(entry, b"." | b"..") {
            unlinkat(&directory, entry, AtFlags::empty()).map_err(failed)?;
        }
    }
    unlinkat(root.handle(), name, AtFlags::REMOVEDIR).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn s99_nothing_is_reached_through_a_symlink_with_either_way_of_opening() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/c"), "x").unwrap();
        symlink(outside.path(), dir.path().join("a/out")).unwrap();
        symlink("c", dir.path().join("a/b/inside")).unwrap();
        for one_call in [true, false] {
            let root = Root::open(dir.path()).unwrap();
            root.one_call.store(one_call, Ordering::Relaxed);
            assert!(root.file(b"a/b/c").is_ok());
            assert!(root.directory(b"").is_ok());
            assert!(root.directory(b"a/b").is_ok());
            for path in ["a/out/secret", "a/b/inside"] {
                let refused = root.file(path.as_bytes()).unwrap_err();
                assert_eq!(refused, Errno::LOOP, "{path} {one_call}");
            }
            assert_eq!(root.directory(b"a/out").unwrap_err(), Errno::LOOP);
            assert_eq!(root.directory(b"../x").unwrap_err(), Errno::XDEV);
            assert_eq!(root.file(b"a/none").unwrap_err(), Errno::NOENT);
        }
    }
}
