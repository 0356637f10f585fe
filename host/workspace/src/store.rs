//! The store: which content is in which pack, and who is at work.

use crate::bound::Bound;
use crate::error::WorkspaceError;
use crate::gate::Gate;
use crate::limits::Limits;
use crate::manifest::{Manifest, decode_recipe};
use crate::pack::{Kind, Reader, Record, SUFFIX, UNFINISHED, flush_directory, read_index};
use crate::reference::{Hash, Ref};
use crate::stamp::Memory;
use crate::step::Step;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bounds of one snapshot.
    pub limits: Limits,
    /// Threads that one operation reads, hashes and writes with, its caller's included; 1 to 16.
    pub threads: usize,
    /// Directories of the host's own, such as its data directory: wherever one is met inside a
    /// workspace it is left out, and none can be a workspace. The store's own is always one.
    pub own: Vec<PathBuf>,
    /// Called at every durable step.
    #[cfg(feature = "test-faults")]
    pub hook: Option<crate::fault::Hook>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            threads: 2,
            own: Vec::new(),
            #[cfg(feature = "test-faults")]
            hook: None,
        }
    }
}

/// Format of the store.
const FORMAT: u32 = 1;

/// The steps of one store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    #[cfg(feature = "test-faults")]
    hook: Option<crate::fault::Hook>,
}

impl Steps {
    #[cfg(feature = "test-faults")]
    pub(crate) fn step(&self, step: Step) -> Result<(), WorkspaceError> {
        let hook = self.hook.as_ref();
        hook.map_or(Ok(()), |hook| hook.call(step))
            .map_err(WorkspaceError::store("a planned fault"))
    }

    #[cfg(not(feature = "test-faults"))]
    #[expect(clippy::unnecessary_wraps, reason = "the hook of the tests fails here")]
    pub(crate) fn step(&self, _: Step) -> Result<(), WorkspaceError> {
        Ok(())
    }
}

/// Where a record is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) pack: u64,
    pub(crate) record: Record,
}

#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    pub(crate) records: Vec<(Kind, Hash)>,
}

/// What is stored, by hash. A record that is in two packs is known in one of them.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) records: HashMap<(Kind, Hash), Place>,
    pub(crate) packs: HashMap<u64, Pack>,
    next: u64,
    /// Packs whose index cannot be read.
    pub(crate) damaged: usize,
}

impl Index {
    pub(crate) fn add(&mut self, path: PathBuf, size: u64, records: Vec<Record>) -> u64 {
        let pack = self.next;
        self.next += 1;
        let mut known = Vec::with_capacity(records.len());
        for record in records {
            known.push((record.kind, record.hash));
            self.records
                .insert((record.kind, record.hash), Place { pack, record });
        }
        let records = known;
        self.packs.insert(
            pack,
            Pack {
                path,
                size,
                records,
            },
        );
        pack
    }
}

/// Refs that were handed out, and when.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    pub(crate) generation: u64,
    pub(crate) refs: HashMap<Ref, u64>,
}

/// A content-addressed store of snapshots below one directory. Clones are the same store.
#[derive(Debug, Clone)]
pub struct Store(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) directory: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) threads: usize,
    pub(crate) steps: Steps,
    pub(crate) index: RwLock<Index>,
    pub(crate) gate: Gate,
    pub(crate) memory: Mutex<Memory>,
    pub(crate) recent: Mutex<Recent>,
    pub(crate) collecting: Mutex<()>,
    busy: Mutex<HashSet<PathBuf>>,
    /// Device and inode of the host's own directories.
    own: HashSet<(u64, u64)>,
    /// Locked as long as the store is open.
    _lock: File,
}

/// A lock whose holder panicked guards plain data that is whole at every point.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens or makes the store in this directory, which only its owner may enter.
    ///
    /// # Errors
    ///
    /// `store_locked` while another process has it open, `store_newer_version`, `io`, `disk_full`.
    pub fn open(directory: &Path) -> Result<Self, WorkspaceError> {
        Self::open_with(directory, Options::default())
    }

    /// As [`Store::open`], with options.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open_with(directory: &Path, options: Options) -> Result<Self, WorkspaceError> {
        let making = || WorkspaceError::store("making the snapshot store");
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory).map_err(making())?;
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join("lock"))
            .map_err(making())?;
        take(&file)?;
        check_format(directory)?;
        builder.create(directory.join("packs")).map_err(making())?;
        builder
            .create(directory.join("rewinds"))
            .map_err(making())?;
        // The names of what was just made, up to the store's own.
        flush_directory(directory)?;
        if let Some(parent) = directory.parent().filter(|p| !p.as_os_str().is_empty()) {
            flush_directory(parent)?;
        }
        remove_unfinished(directory)?;
        remove_unfinished(&directory.join("rewinds"))?;
        remove_unfinished(&directory.join("packs"))?;
        let index = load(&directory.join("packs"))?;
        let mut own = HashSet::new();
        for path in options.own.iter().map(PathBuf::as_path).chain([directory]) {
            let metadata = path.metadata().map_err(making())?;
            own.insert((metadata.dev(), metadata.ino()));
        }
        Ok(Self(Arc::new(Inner {
            directory: directory.to_owned(),
            limits: options.limits,
            threads: options.threads.clamp(1, 16),
            steps: Steps {
                #[cfg(feature = "test-faults")]
                hook: options.hook,
            },
            index: RwLock::new(index),
            gate: Gate::default(),
            memory: Mutex::default(),
            recent: Mutex::default(),
            collecting: Mutex::default(),
            busy: Mutex::default(),
            own,
            _lock: file,
        })))
    }

    /// Whether a snapshot of this name is stored.
    #[must_use]
    pub fn contains(&self, reference: &Ref) -> bool {
        self.0.has(Kind::Recipe, &reference.0)
    }
}

impl Inner {
    pub(crate) fn packs(&self) -> PathBuf {
        self.directory.join("packs")
    }

    pub(crate) fn rewinds(&self) -> PathBuf {
        self.directory.join("rewinds")
    }

    pub(crate) fn has(&self, kind: Kind, hash: &Hash) -> bool {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        index.records.contains_key(&(kind, *hash))
    }

    pub(crate) fn has_all(&self, kind: Kind, hashes: &[Hash]) -> bool {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        hashes
            .iter()
            .all(|hash| index.records.contains_key(&(kind, *hash)))
    }

    /// Content of a record, checked. What turns out damaged is forgotten, so that the next
    /// checkpoint which has the content stores it again.
    pub(crate) fn read(
        &self,
        reader: &Reader,
        kind: Kind,
        hash: &Hash,
    ) -> Result<Vec<u8>, WorkspaceError> {
        let place = {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            let place = index.records.get(&(kind, *hash)).copied();
            place.and_then(|place| Some((place, index.packs.get(&place.pack)?.path.clone())))
        };
        let Some((place, path)) = place else {
            return Err(WorkspaceError::Corrupt {
                what: format!("content {} is missing", hex::encode(hash)),
            });
        };
        let read = reader.read(&path, &place.record);
        if matches!(read, Err(WorkspaceError::Corrupt { .. })) {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.records.remove(&(kind, *hash));
        }
        read
    }

    /// The whole tree that a ref names.
    pub(crate) fn manifest(
        &self,
        reader: &Reader,
        reference: &Ref,
        bound: &Bound,
    ) -> Result<Manifest, WorkspaceError> {
        let damaged = self
            .index
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .damaged;
        if !self.has(Kind::Recipe, &reference.0) {
            return Err(match damaged {
                0 => WorkspaceError::RefNotFound {
                    reference: reference.to_string(),
                },
                count => WorkspaceError::Corrupt {
                    what: format!("{reference} may be in one of {count} packs without an index"),
                },
            });
        }
        let recipe = self.read(reader, Kind::Recipe, &reference.0)?;
        let hashes = decode_recipe(&recipe).ok_or_else(|| WorkspaceError::Corrupt {
            what: format!("the recipe of {reference} cannot be read"),
        })?;
        let mut sections = Vec::with_capacity(hashes.len());
        for hash in &hashes {
            bound.check()?;
            sections.push(self.read(reader, Kind::Object, hash)?);
        }
        Manifest::decode(reference, &sections)
    }

    /// Whether this is a directory of the host's own.
    pub(crate) fn is_own(&self, device: u64, inode: u64) -> bool {
        self.own.contains(&(device, inode))
    }

    /// Notes that a ref was handed out, so that a collection that began before keeps it.
    pub(crate) fn hand_out(&self, reference: Ref) {
        let mut recent = lock(&self.recent);
        let generation = recent.generation;
        recent.refs.insert(reference, generation);
    }

    /// Claims a workspace.
    pub(crate) fn claim(self: &Arc<Self>, root: &Path) -> Result<Claim, WorkspaceError> {
        if !lock(&self.busy).insert(root.to_owned()) {
            return Err(WorkspaceError::Busy {
                what: "the workspace",
            });
        }
        Ok(Claim {
            store: self.clone(),
            root: root.to_owned(),
        })
    }
}

/// A workspace that one operation has for itself.
#[derive(Debug)]
pub(crate) struct Claim {
    store: Arc<Inner>,
    root: PathBuf,
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.store.busy).remove(&self.root);
    }
}

/// Locks the store. A process that its last holder was just starting holds the lock, too, until it
/// runs a program of its own; that is waited for.
fn take(file: &File) -> Result<(), WorkspaceError> {
    const LOOK: Duration = Duration::from_millis(10);
    const PATIENCE: Duration = Duration::from_secs(1);
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => return Err(WorkspaceError::Locked),
            Err(TryLockError::Error(error)) => {
                return Err(WorkspaceError::store("locking the snapshot store")(error));
            }
        }
    }
}

fn check_format(directory: &Path) -> Result<(), WorkspaceError> {
    let path = directory.join("format");
    match std::fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse() {
            Ok(FORMAT) => Ok(()),
            Ok(found) => Err(WorkspaceError::NewerVersion {
                found,
                known: FORMAT,
            }),
            Err(_) => Err(WorkspaceError::Corrupt {
                what: "its format cannot be read".to_owned(),
            }),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = FORMAT.to_string();
            write_durably(directory, "format", text.as_bytes())
        }
        Err(error) => Err(WorkspaceError::store("reading the store's format")(error)),
    }
}

/// Replaces a small file of the store in one step.
pub(crate) fn write_durably(
    directory: &Path,
    name: &str,
    bytes: &[u8],
) -> Result<(), WorkspaceError> {
    use std::io::Write;
    let writing = || WorkspaceError::store("writing a record of the snapshot store");
    let temporary = directory.join(format!("{UNFINISHED}{name}"));
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(writing())?;
    file.write_all(bytes).map_err(writing())?;
    file.sync_all().map_err(writing())?;
    std::fs::rename(&temporary, directory.join(name)).map_err(writing())?;
    flush_directory(directory)
}

/// Removes what an earlier process left unfinished.
fn remove_unfinished(directory: &Path) -> Result<(), WorkspaceError> {
    let cleaning = || WorkspaceError::store("cleaning the snapshot store");
    for entry in std::fs::read_dir(directory).map_err(cleaning())? {
        let entry = entry.map_err(cleaning())?;
        if is_unfinished(&entry.file_name()) {
            std::fs::remove_file(entry.path()).map_err(cleaning())?;
        }
    }
    Ok(())
}

pub(crate) fn is_unfinished(name: &OsStr) -> bool {
    name.as_bytes().starts_with(UNFINISHED.as_bytes())
}

/// The index of all packs.
fn load(packs: &Path) -> Result<Index, WorkspaceError> {
    let reading = || WorkspaceError::store("reading the snapshot store");
    let mut index = Index::default();
    for entry in std::fs::read_dir(packs).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        if !path.as_os_str().as_bytes().ends_with(SUFFIX.as_bytes()) {
            continue;
        }
        match read_index(&path)? {
            Some((records, size)) => {
                index.add(path, size, records);
            }
            None => {
                index.damaged += 1;
                tracing::error!(pack = %path.display(), "a pack is damaged and not used");
            }
        }
    }
    Ok(index)
}
