//! Listing every directory, on a few threads.

use super::{Listing, Scan, Seen, What};
use crate::beneath::file_in;
use crate::error::{WorkspaceError, show};
use crate::limits::{MAX_NAMES, MAX_PATH, MAX_RULES_BYTES};
use crate::manifest::{STAGING, join};
use crate::parallel::run_on;
use crate::rules::{View, compile};
use crate::stamp::Stamp;
use crate::store::lock;
use ignore::gitignore::Gitignore;
use rustix::fs::{AtFlags, FileType, RawDir, fstat, readlinkat, statat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A directory to list.
#[derive(Default)]
struct Task {
    path: Vec<u8>,
    /// Rules on disk, and of the other generation.
    views: [View; 2],
    /// Which of them exclude the directory itself; only what is held counts in it then.
    excluded: [bool; 2],
}

#[derive(Default)]
struct Queue {
    tasks: Vec<Task>,
    working: usize,
    failed: bool,
}

/// Bytes of names that the kernel hands over at once.
const NAMES: usize = 32 << 10;

const GITIGNORE: &[u8] = b".gitignore";

/// Says that a thread works, also when it panics.
struct Working<'q> {
    queue: &'q Mutex<Queue>,
    changed: &'q Condvar,
    done: Option<Vec<Task>>,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let mut queue = lock(self.queue);
        queue.working -= 1;
        match self.done.take() {
            Some(tasks) => queue.tasks.extend(tasks),
            None => queue.failed = true,
        }
        self.changed.notify_all();
    }
}

impl Scan<'_> {
    pub(super) fn walk(&self) -> Result<Vec<Listing>, WorkspaceError> {
        let queue = Mutex::new(Queue {
            tasks: vec![Task::default()],
            ..Queue::default()
        });
        let changed = Condvar::new();
        let count = AtomicU64::new(0);
        let run = || {
            let mut listings = Vec::new();
            loop {
                let mut waiting = lock(&queue);
                while waiting.tasks.is_empty() && waiting.working > 0 && !waiting.failed {
                    waiting = changed
                        .wait(waiting)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                if waiting.failed {
                    return Ok(listings);
                }
                let Some(task) = waiting.tasks.pop() else {
                    return Ok(listings);
                };
                waiting.working += 1;
                drop(waiting);
                let mut working = Working {
                    queue: &queue,
                    changed: &changed,
                    done: None,
                };
                let (listing, tasks) = self.list(task, &count)?;
                listings.push(listing);
                working.done = Some(tasks);
            }
        };
        run_on(self.store.threads - 1, &run)
    }

    fn list(&self, task: Task, count: &AtomicU64) -> Result<(Listing, Vec<Task>), WorkspaceError> {
        self.bound.check()?;
        let path = task.path;
        let failed = |errno| match errno {
            Errno::NOENT | Errno::NOTDIR => WorkspaceError::Changed { path: show(&path) },
            errno => WorkspaceError::at(&path)(errno),
        };
        let directory = self.root.directory(&path).map_err(failed)?;
        let stat = fstat(&directory).map_err(failed)?;
        if stat.st_dev != self.root.device {
            return Err(WorkspaceError::Mounted { path: show(&path) });
        }
        if self.store.is_own(stat.st_dev, stat.st_ino) {
            // Met below the root it is left out before it is listed.
            return Err(WorkspaceError::Root {
                reason: "it is a directory of the host's own".to_owned(),
            });
        }
        let mut names = self.names(&directory, &path)?;
        names.sort_unstable();
        let own = match names.binary_search_by(|name| name.as_slice().cmp(GITIGNORE)) {
            Ok(_) if !task.excluded[0] => self.rules_in(&directory, &path)?,
            _ => None,
        };
        let views = self.views(task.views, &path, own);
        let mut listing = Listing {
            path,
            entries: Vec::with_capacity(names.len()),
            skipped: 0,
            besides: 0,
        };
        let mut tasks = Vec::new();
        for name in names {
            let ours = listing.path.is_empty() && name.starts_with(STAGING);
            if name == b".git" || ours {
                listing.skipped += u64::from(!ours);
                continue;
            }
            self.bound.check()?;
            let stat = match statat(&directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Gone again: it is no part of the tree.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(WorkspaceError::at(&join(&listing.path, &name))(errno)),
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let path = join(&listing.path, &name);
            let held = self.hold.is_some_and(|hold| hold.contains_key(&path));
            let on_disk = task.excluded[0] || views[0].excludes(&path, kind.is_dir());
            let before = task.excluded[1] || views[1].excludes(&path, kind.is_dir());
            if kind.is_dir() && self.store.is_own(stat.st_dev, stat.st_ino) {
                if held {
                    return Err(WorkspaceError::Obstructed {
                        path: show(&path),
                        by: "a directory of the host's own",
                    });
                }
                listing.skipped += 1;
                continue;
            }
            if (on_disk || before) && !held {
                listing.skipped += 1;
                listing.besides += u64::from(!on_disk);
                continue;
            }
            listing.besides += u64::from(on_disk);
            let what = match kind {
                FileType::Directory => What::Directory,
                FileType::RegularFile => What::File,
                FileType::Symlink => {
                    let text = readlinkat(&directory, &*name, Vec::new())
                        .map_err(|_| WorkspaceError::Changed { path: show(&path) })?;
                    What::Link(text.into_bytes())
                }
                _ if held => {
                    return Err(WorkspaceError::Obstructed {
                        path: show(&path),
                        by: "a socket, pipe or device",
                    });
                }
                _ => {
                    listing.skipped += 1;
                    continue;
                }
            };
            if count.fetch_add(1, Ordering::Relaxed) >= self.store.limits.entries {
                return Err(WorkspaceError::TooLarge {
                    what: "entries",
                    limit: self.store.limits.entries,
                });
            }
            if path.len() > MAX_PATH {
                return Err(WorkspaceError::TooLarge {
                    what: "bytes in one path",
                    limit: MAX_PATH as u64,
                });
            }
            if matches!(what, What::Directory) {
                tasks.push(Task {
                    path,
                    views: views.clone(),
                    excluded: [on_disk, before],
                });
            }
            listing.entries.push(Seen {
                name,
                stamp: Stamp::of(&stat),
                what,
            });
        }
        Ok((listing, tasks))
    }

    /// The patterns of the `.gitignore` in this directory; one that is no plain file has none.
    fn rules_in(
        &self,
        directory: &OwnedFd,
        path: &[u8],
    ) -> Result<Option<Arc<Gitignore>>, WorkspaceError> {
        let path = join(path, GITIGNORE);
        let file = match file_in(directory, GITIGNORE) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(WorkspaceError::at(&path)(errno)),
        };
        let stat = fstat(&file).map_err(WorkspaceError::at(&path))?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        File::from(file)
            .take(MAX_RULES_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(WorkspaceError::store("reading a .gitignore file"))?;
        compile(&path, &bytes).map(Some)
    }

    /// Rules below this directory. The other generation has its own file here or none; but a file
    /// that is excluded itself was there in every generation.
    fn views(
        &self,
        [disk, other]: [View; 2],
        path: &[u8],
        own: Option<Arc<Gitignore>>,
    ) -> [View; 2] {
        let disk = match &own {
            Some(own) => disk.with(path, own.clone()),
            None => disk,
        };
        let Some(generation) = self.generation else {
            return [disk, other];
        };
        let other = match (generation.get(path), own) {
            (Some(patterns), _) => other.with(path, patterns.clone()),
            (None, Some(own)) => {
                let file = join(path, GITIGNORE);
                let held = self.hold.is_some_and(|hold| hold.contains_key(&file));
                if !held && (disk.excludes(&file, false) || other.excludes(&file, false)) {
                    other.with(path, own)
                } else {
                    other
                }
            }
            (None, None) => other,
        };
        [disk, other]
    }

    fn names(&self, directory: &OwnedFd, path: &[u8]) -> Result<Vec<Vec<u8>>, WorkspaceError> {
        let mut buffer = vec![MaybeUninit::uninit(); NAMES];
        let mut entries = RawDir::new(directory, &mut buffer);
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(WorkspaceError::at(path))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names.len() >= MAX_NAMES {
                return Err(WorkspaceError::TooLarge {
                    what: "names in one directory",
                    limit: MAX_NAMES as u64,
                });
            }
            self.bound.check()?;
            names.push(name.to_vec());
        }
        Ok(names)
    }
}
