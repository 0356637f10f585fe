//! A workspace with its store, and a description of trees that owes nothing to the code under test.

use harness_workspace::{Bound, Checkpoint, Options, Ref, Rewound, Store};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) root: PathBuf,
    pub(crate) store: Store,
}

pub(crate) fn place() -> Place {
    place_with(Options::default())
}

pub(crate) fn place_with(options: Options) -> Place {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("workspace");
    fs::create_dir(&root).unwrap();
    let store = Store::open_with(&dir.path().join("store"), options).unwrap();
    Place { dir, root, store }
}

pub(crate) fn free() -> Bound {
    Bound::none()
}

impl Place {
    pub(crate) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn make(&self, path: impl AsRef<Path>) {
        fs::create_dir_all(self.root.join(path)).unwrap();
    }

    pub(crate) fn link(&self, text: impl AsRef<Path>, path: impl AsRef<Path>) {
        symlink(text, self.root.join(path)).unwrap();
    }

    pub(crate) fn mode(&self, path: impl AsRef<Path>, mode: u32) {
        fs::set_permissions(self.root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn remove(&self, path: impl AsRef<Path>) {
        let path = self.root.join(path);
        if path.symlink_metadata().unwrap().is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn take(&self) -> Checkpoint {
        self.store.checkpoint(&self.root, &free()).unwrap()
    }

    pub(crate) fn hash(&self) -> Ref {
        self.store.tree_hash(&self.root, &free()).unwrap()
    }

    pub(crate) fn rewind(&self, reference: &Ref) -> Rewound {
        let rewind = self.store.rewind(&self.root, reference, "tag", &free());
        rewind.unwrap().finish().unwrap()
    }

    pub(crate) fn refused(&self, reference: &Ref) -> &'static str {
        let rewind = self.store.rewind(&self.root, reference, "tag", &free());
        rewind.map(|_| ()).unwrap_err().code()
    }

    pub(crate) fn tree(&self) -> BTreeMap<PathBuf, String> {
        describe(&self.root)
    }

    /// Packs of the store, finished or not.
    pub(crate) fn packs(&self) -> Vec<PathBuf> {
        let packs = fs::read_dir(self.dir.path().join("store/packs")).unwrap();
        packs.map(|entry| entry.unwrap().path()).collect()
    }

    /// Closes the store and opens it again, as another process would find it.
    pub(crate) fn reopen(self) -> Self {
        let Self { dir, root, store } = self;
        drop(store);
        let store = Store::open(&dir.path().join("store")).unwrap();
        Self { dir, root, store }
    }
}

/// Every path below, excluded or not, with its kind, mode and content.
pub(crate) fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    fn walk(root: &Path, at: &Path, all: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let mode = meta.permissions().mode() & 0o7777;
            let kind = meta.file_type();
            let text = if kind.is_symlink() {
                format!("link {:?}", fs::read_link(&path).unwrap())
            } else if kind.is_dir() {
                format!("directory {mode:o}")
            } else if kind.is_file() {
                let content = fs::read(&path).unwrap();
                format!("file {mode:o} {}", content.escape_ascii())
            } else if kind.is_fifo() {
                format!("pipe {mode:o}")
            } else {
                format!("other {mode:o}")
            };
            if kind.is_dir() {
                walk(root, &path, all);
            }
            all.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
    let mut all = BTreeMap::new();
    walk(root, root, &mut all);
    all
}

/// A name that is no UTF-8.
pub(crate) fn raw(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

/// Runs one test of this binary in another process, which may be killed or be another user.
pub(crate) fn child(test: &str, program: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
}
