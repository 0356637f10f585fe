//! Live sessions: one actor each, over `harness-core`'s decisions, a journal and a provider.
//!
//! Invariants: one owner per session, its actor task; others talk to it by message; no lock is
//! held across an await; append before acknowledge and before fan-out. Not here: what follows
//! from an input (`harness-core`), how components run (`harness-engine`), HTTP (`harness-api`).

mod acting;
mod actor;
mod background;
mod channel;
mod config;
mod create;
mod delegation;
mod deps;
mod directory;
mod drafts;
mod drift;
mod fanout;
mod filter;
mod gate_host;
mod handle;
mod host;
mod keys;
mod link;
mod loops;
mod observer;
mod operations;
#[cfg(feature = "planted-faults")]
mod planted;
mod reading;
mod recovery;
mod requests;
mod rounds;
mod signals;
mod slots;
mod snapshots;
mod subscription;
mod surroundings;
mod unrestorable;
mod workplaces;
mod workspaces;

pub use config::{GatePolicies, HostConfig};
pub use drift::{Always, DriftDecider, Verdict};
pub use filter::{EventFilter, Loops};
pub use gate_host::{GateHost, HostGate};
pub use host::{Host, HostLoad, Parts};
pub use keys::KeyState;
pub use observer::{NoObserver, SessionObserver};
#[cfg(feature = "planted-faults")]
pub use planted::Planted;
pub use requests::*;
pub use subscription::{Follow, Item, JournalPage, Start, Subscription};
pub use surroundings::{Machine, Surroundings};
