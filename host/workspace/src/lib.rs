//! Content-addressed snapshots of a workspace, and the exact way back to one.
//!
//! A [`Store`] keeps what checkpoints need in append-only packs below the host's data directory.
//! [`Store::checkpoint`] names the whole tree with one [`Ref`]; [`Store::rewind`] makes the tree
//! again what a ref names. Every call blocks; callers on an async runtime use a blocking thread.
//!
//! What a tree is (S98, S99): its directories (empty ones included) and files with their
//! permission bits (`0o777`), its symlinks with their text. Not part of it, neither stored nor
//! touched: everything named `.git`, what the `.gitignore` files inside the workspace exclude,
//! sockets, pipes and devices, the host's own directories, the staging directory of a rewind, and
//! directories that hold nothing but such things. Owners, times, extended attributes and which names are hard links of
//! each other are not part of it either.
//!
//! Invariants: bytes are durable before the ref that needs them is returned; no path is ever
//! resolved through a symlink or out of the root; a rewind that was interrupted is on record and
//! can be finished or rolled back; what is read from the store is checked against its hash first.
//!
//! Not here: when a checkpoint is taken, who may rewind, and what the journal says about it. The
//! caller makes sure that nothing of its own works in the workspace meanwhile.

mod beneath;
mod bound;
mod checkpoint;
mod collect;
mod error;
#[cfg(feature = "test-faults")]
pub mod fault;
mod gate;
mod limits;
mod manifest;
mod pack;
mod parallel;
mod reference;
mod rewind;
mod rules;
mod scan;
mod sink;
mod stamp;
mod step;
mod store;

pub use bound::Bound;
pub use checkpoint::Checkpoint;
pub use collect::{Collected, Mark};
pub use error::WorkspaceError;
pub use limits::{Limits, MAX_BYTES, MAX_ENTRIES, MAX_RULES_BYTES, MAX_TAG_BYTES};
pub use reference::Ref;
pub use rewind::{Pending, Phase, Recovery, Rewind, Rewound};
pub use store::{Options, Store};
