//! A hook at every durable step: tests of what must survive choose where it breaks.

pub use crate::step::Step;
use std::fmt;
use std::sync::Arc;

type Function = dyn Fn(Step) -> std::io::Result<()> + Send + Sync;

/// Called at every step, from whichever thread takes it; an error makes the step fail with it.
#[derive(Clone)]
pub struct Hook(Arc<Function>);

impl Hook {
    /// A hook of this function.
    pub fn new(function: impl Fn(Step) -> std::io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    pub(crate) fn call(&self, step: Step) -> std::io::Result<()> {
        (self.0)(step)
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
