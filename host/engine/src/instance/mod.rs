//! One live component instance: its store, its driver task, its calls and its end.
//!
//! ```text
//! Live (the port) ──Job──► driver task: owns the store, runs its event loop
//!   │  watches each call:      │ host imports
//!   │  deadline, abort, drain  ▼
//!   └───────────────────── Channel, InstanceHost (the session's side)
//! ```
//! Invariants
//! - Only the driver task touches the store. A spinning guest blocks the event loop, never the
//!   watching of its calls: deadlines are kept around the store, not inside it.
//! - A call is never dropped: whoever gives up on it fires its abort, and it is watched to its end.
//! - A trap, a lifting error, a CPU slice, a deaf call or a host panic consumes the store.

pub(crate) mod abort;
mod call;
pub(crate) mod clock;
pub(crate) mod ctx;
pub(crate) mod driver;
pub(crate) mod end;
mod handles;
pub(crate) mod invocation;
mod job;
pub(crate) mod limiter;
mod live;
mod meter;
pub(crate) mod shared;
mod turn;

pub(crate) use driver::{ask, start};
pub(crate) use live::Live;
