//! How long an operation may take, and who may end it early.

use crate::error::WorkspaceError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A deadline and a flag, both looked at before every entry and every chunk.
///
/// A system call that is under way is waited for: a flush of the disk ends when it ends.
#[derive(Debug, Clone, Default)]
pub struct Bound {
    deadline: Option<Instant>,
    cancel: Option<Arc<AtomicBool>>,
}

impl Bound {
    /// Neither deadline nor flag.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// This long from now; a time beyond what the clock can hold is none.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self {
            deadline: Instant::now().checked_add(time),
            cancel: None,
        }
    }

    /// Ends the operation, too, once this flag is set.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    pub(crate) fn check(&self) -> Result<(), WorkspaceError> {
        if self
            .cancel
            .as_ref()
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
        {
            return Err(WorkspaceError::Cancelled);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(WorkspaceError::Deadline),
            _ => Ok(()),
        }
    }
}
