//! The clock of one call: what its deadline and its inactivity bound are measured with.
//!
//! Invariants: the clock stands still while the call is parked on a gate (R75); output and `touch`
//! restart the inactivity bound and nothing else (N15).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    /// From its start.
    Deadline(Duration),
    /// From its last sign of life.
    Silence(Duration),
    /// Nobody ends it.
    Unbounded,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct CallClock {
    // A std mutex: held for a few loads, never across an await.
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    start: Instant,
    sign: Instant,
    parked: u32,
    parked_since: Instant,
}

impl CallClock {
    /// Starts now.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            state: Mutex::new(State {
                start: now,
                sign: now,
                parked: 0,
                parked_since: now,
            }),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts over, for the next call of the same invocation.
    pub(crate) fn restart(&self) {
        let mut state = self.state();
        state.start = Instant::now();
        state.sign = state.start;
        state.parked_since = state.start;
    }

    /// A sign of life.
    pub(crate) fn touch(&self) {
        self.state().sign = Instant::now();
    }

    /// Stops the clock until the returned value drops.
    pub(crate) fn park(&self) -> Parked<'_> {
        let mut state = self.state();
        if state.parked == 0 {
            state.parked_since = Instant::now();
        }
        state.parked += 1;
        drop(state);
        self.changed.notify_waiters();
        Parked(self)
    }

    /// Resolves when `bound` has passed.
    pub(crate) async fn passed(&self, bound: Bound) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (parked, end) = {
                let state = self.state();
                let end = match bound {
                    Bound::Deadline(limit) => state.start.checked_add(limit),
                    Bound::Silence(limit) => state.sign.checked_add(limit),
                    Bound::Unbounded => None,
                };
                (state.parked > 0, end)
            };
            match end {
                Some(end) if !parked => {
                    if end <= Instant::now() {
                        return;
                    }
                    tokio::select! {
                        () = tokio::time::sleep_until(end) => {}
                        () = changed => {}
                    }
                }
                _ => changed.await,
            }
        }
    }
}

/// A stopped clock.
#[must_use]
pub(crate) struct Parked<'a>(&'a CallClock);

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.parked = state.parked.saturating_sub(1);
        if state.parked == 0 {
            let pause = state.parked_since.elapsed();
            state.start += pause;
            state.sign = (state.sign + pause).min(Instant::now());
        }
        drop(state);
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r75_a_parked_clock_stands_still() {
        let clock = CallClock::new();
        let start = Instant::now();
        let wait = clock.passed(Bound::Deadline(Duration::from_secs(10)));
        let park = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            let parked = clock.park();
            tokio::time::sleep(Duration::from_secs(100)).await;
            drop(parked);
        };
        tokio::join!(wait, park);
        assert_eq!(start.elapsed().as_secs(), 110);
    }

    #[tokio::test(start_paused = true)]
    async fn n15_signs_of_life_restart_the_inactivity_bound_only() {
        let clock = CallClock::new();
        let start = Instant::now();
        let live = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(8)).await;
                clock.touch();
            }
        };
        let silence = async {
            clock.passed(Bound::Silence(Duration::from_secs(10))).await;
            start.elapsed().as_secs()
        };
        let deadline = async {
            clock.passed(Bound::Deadline(Duration::from_secs(10))).await;
            start.elapsed().as_secs()
        };
        let (silence, deadline, ()) = tokio::join!(silence, deadline, live);
        assert_eq!((silence, deadline), (34, 10));
    }
}
