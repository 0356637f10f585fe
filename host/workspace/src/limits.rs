//! What a snapshot may hold at most.

/// Entries (directories, files, symlinks) of one snapshot (S99).
pub const MAX_ENTRIES: u64 = 1 << 20;
/// Bytes of file content of one snapshot, counted on what is really read or written (S99).
pub const MAX_BYTES: u64 = 8 << 30;
/// Bytes of one `.gitignore` file.
pub const MAX_RULES_BYTES: u64 = 256 << 10;
/// Lines of one `.gitignore` file.
pub(crate) const MAX_RULES: usize = 4096;
/// Names of one directory, excluded ones included.
pub(crate) const MAX_NAMES: usize = 1 << 21;
/// Bytes of the tag of a rewind.
pub const MAX_TAG_BYTES: usize = 256;
/// Bytes of one path relative to the root, and of one symlink's text.
pub(crate) const MAX_PATH: usize = 4095;
/// Bytes of one name.
pub(crate) const MAX_NAME: usize = 255;
/// Bytes of one chunk of file content.
pub(crate) const CHUNK: usize = 1 << 20;
/// Bytes of one manifest.
pub(crate) const MAX_MANIFEST: u64 = 256 << 20;

/// Bounds of one snapshot; the default is what S99 sets. Lower ones are for tests and for hosts
/// with little room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries, at most [`MAX_ENTRIES`].
    pub entries: u64,
    /// Bytes of file content, at most [`MAX_BYTES`].
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: MAX_ENTRIES,
            bytes: MAX_BYTES,
        }
    }
}
