//! What a host takes from the world around it: the time, and ids that nobody else has.
//!
//! Everything else that a session does follows from its inputs, so that a host over other
//! surroundings can be run again exactly.

use harness_core::ids::Ids;
use jiff::Timestamp;
use uuid::Uuid;

/// Time and ids.
pub trait Surroundings: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
    /// A fresh id, later in order than those before it.
    fn id(&self) -> Uuid;
}

/// Those of the machine: its clock, and UUIDv7.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl Surroundings for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// Ids for a decision.
pub(crate) struct Minting<'a>(pub(crate) &'a dyn Surroundings);

impl Ids for Minting<'_> {
    fn mint(&mut self) -> Option<Uuid> {
        Some(self.0.id())
    }
}
