//! Driving the real host from the outside: the binary, its HTTP API, its event streams.
//!
//! The tests of `tests/tests` are whole journeys: they start `harness` with a data directory of
//! its own, talk to it as a client does, kill it as a crash does, and read what it left behind.
//! Nothing here reaches into the host's code: what these tests know of it is what its API, its
//! command line and its database file show.
//!
//! A failing helper is a failing test, so helpers assert and panic.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing helper is a failing test"
)]

mod binary;
mod client;
mod conversation;
mod host;
mod journal;
mod require;
mod shell;
mod stream;

pub use binary::harness;
pub use client::{Answer, Client, Exchange};
pub use conversation::Conversation;
pub use host::{Host, Setup, TOKEN};
pub use journal::{Fold, LoopFold, Record, read_database};
pub use require::{missing, python, python_with, skip};
pub use shell::{blocks, run_blocks, values};
pub use stream::{Frame, Frames};

use std::time::Duration;

/// No single step takes longer, on a loaded machine either.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Root of the repository.
#[must_use]
pub fn root() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().to_path_buf()
}
