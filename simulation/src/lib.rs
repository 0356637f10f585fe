//! Runs of the session layer over a simulated store, clock and providers, each decided by a seed.
//!
//! Random clients ask random things of a host whose store is slow and fails, whose providers are
//! worse, and whose process dies at any point; then the next process goes on over what is durable.
//! Everything that is seen is held against the rules (`check`). One thread and one source of
//! chance decide a run, so that its seed runs it again exactly.
//!
//! A run is `core` and `session` as they are shipped, with what they stand on replaced: the
//! journal's port (`store`, `flaky`), the provider's port (`provider`), time and ids
//! (`world`). Not here: components, HTTP, SQLite.

pub mod check;
mod client;
mod dice;
mod flaky;
mod latch;
mod life;
mod panics;
mod provider;
mod run;
pub mod store;
mod trace;
mod world;

pub use client::Client;
pub use dice::Dice;
pub use flaky::FlakyJournal;
pub use life::{Life, Plan};
pub use run::{Options, Report, run};
pub use trace::Trace;
pub use world::World;
