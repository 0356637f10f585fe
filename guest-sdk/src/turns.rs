//! Native turns: from the reader's events to one conversation, and back.
//!
//! The reader of a native connection must never wait, a turn must wait for the
//! host all the time, and events arrive before anybody asked for them. Three
//! parts stand between the two:
//!
//! - [`TurnRouter`]: one bounded queue for each native turn or conversation, that
//!   merges deltas, keeps what nobody has claimed yet, and slows the reader down
//!   when a claimed one is behind;
//! - [`drive`](fn@drive): the one loop of a live turn over native events, open
//!   gates, inputs and the abort signal;
//! - [`native::announce`]: what becomes of a turn that nobody asked for.

pub mod drive;
pub mod native;
pub mod router;

pub use drive::{Flow, Gates, Policy, TurnHandler, drive};
pub use native::{Announced, announce, fresh_turn_id};
pub use router::{NativeEvent, Routed, Signal, TurnEvents, TurnRouter};
