//! The steps after which an interruption must do no harm.
//!
//! Each is passed through [`crate::store::Store::step`], which does nothing unless the crate is
//! built with its test hook.

/// A point between two changes of durable state.
#[cfg_attr(
    not(feature = "test-faults"),
    expect(unreachable_pub, reason = "seen from outside by the tests' hook only")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A record is about to be added to an unnamed pack.
    PackRecord,
    /// The pack is written; it is about to be flushed.
    PackWritten,
    /// The pack is flushed; it is about to get its name.
    PackFlushed,
    /// The pack has its name; the directory is about to be flushed.
    PackNamed,
    /// The record of a rewind is about to be written with its next phase.
    Intent,
    /// A file or symlink is about to be written into the staging directory.
    Stage,
    /// Everything is staged; it is about to be flushed.
    Staged,
    /// An entry is about to be removed from the workspace.
    Remove,
    /// A directory is about to be made in the workspace.
    MakeDirectory,
    /// A staged entry is about to be moved into its place.
    Move,
    /// The mode of a directory is about to be set.
    Mode,
    /// Everything is in its place; it is about to be flushed.
    Moved,
    /// The tree is about to be compared with the snapshot.
    Verify,
    /// The staging directory is about to be removed.
    Unstage,
    /// The record of the rewind is about to be removed.
    Forget,
    /// Live content was copied; the packs it came from are about to be removed.
    Sweep,
}
