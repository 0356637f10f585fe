//! The host, in memory: unit-test a provider with plain `cargo test`.
//!
//! ```text
//! let mut host = Host::<MyProvider>::start();
//! let turn = host.prompt("hello").unwrap();
//! host.finish(turn).unwrap();
//! assert_eq!(host.transcript(), ["hello back"]);
//! ```
//!
//! [`Host`] calls the provider the way the real host does: prepare then invoke,
//! `done` right after a turn was started, `adopt_turn` after an announcement, a
//! Stop that fires every signal. Time is virtual: it stands still while anything
//! can make progress and jumps to the next timer otherwise, so a test that sleeps
//! an hour takes no time and gives the same result every run. A test that waits
//! for what can never come fails with `deadlock`.
//!
//! Each thread has one host at a time; [`Host::start`] replaces the former one.
//!
//! Deliberately not here: sandbox limits, deadlines and CPU slices. They are the
//! host's and are tested there, with real components.
#![allow(clippy::expect_used, clippy::panic)] // a broken test double is a failed test

pub(crate) mod delegation;
pub(crate) mod doubles;
mod executor;
mod host;
mod programs;
mod signal;
mod world;

pub use delegation::DelegateRequest;
pub use executor::{advance, block_on, now, run_until_stalled};
pub(crate) use executor::{sleep_ms, spawn};
pub use host::{Host, Reply, Turn};
pub use programs::ProgramRun;
pub use world::{Gate, GateKind, NativeTurnRecord};
