//! Who may use the packs, and who may remove some.
//!
//! Checkpoints and rewinds enter the gate together; a sweep waits until nobody is inside and
//! keeps everybody out for its short while. Nobody new is kept out by a sweep that only waits.

use crate::bound::Bound;
use crate::error::WorkspaceError;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a waiting caller looks at its bound.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct State {
    inside: usize,
    sweeping: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn wait_until(
        &self,
        bound: &Bound,
        ready: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, WorkspaceError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !ready(&state) {
            bound.check()?;
            state = self
                .changed
                .wait_timeout(state, LOOK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Ok(state)
    }

    pub(crate) fn enter(&self, bound: &Bound) -> Result<Inside<'_>, WorkspaceError> {
        self.wait_until(bound, |state| !state.sweeping)?.inside += 1;
        Ok(Inside(self))
    }

    pub(crate) fn sweep(&self, bound: &Bound) -> Result<Sweeping<'_>, WorkspaceError> {
        self.wait_until(bound, |state| !state.sweeping && state.inside == 0)?
            .sweeping = true;
        Ok(Sweeping(self))
    }

    fn leave(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// Somebody uses the packs.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave(|state| state.inside -= 1);
    }
}

/// Nobody uses the packs.
#[derive(Debug)]
pub(crate) struct Sweeping<'a>(&'a Gate);

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.0.leave(|state| state.sweeping = false);
    }
}
