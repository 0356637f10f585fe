//! Lifecycle hooks of sessions, in process (R49).

use crate::requests::Hook;

/// Told when native operations are accepted. Must return at once.
pub trait SessionObserver: Send + Sync + 'static {
    /// The first operation of a row that was not rejected.
    fn started(&self, hook: &Hook);
    /// Each later one.
    fn resumed(&self, hook: &Hook);
}

/// Observes nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoObserver;

impl SessionObserver for NoObserver {
    fn started(&self, _: &Hook) {}
    fn resumed(&self, _: &Hook) {}
}
