//! The one source of chance of a run: everything that could go one way or another asks it.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Dice with a seed. One thread throws them, in an order that the seed decides as well.
pub struct Dice(Mutex<StdRng>);

impl Dice {
    /// Dice that fall the same way for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// A number from 0, below `end`; 0 when there is no such number.
    pub fn below(&self, end: u64) -> u64 {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rng.random_range(0..end.max(1))
    }

    /// True in so many cases of a hundred.
    pub fn percent(&self, cases: u64) -> bool {
        self.below(100) < cases
    }

    /// One of these.
    pub fn pick<'a, T>(&self, of: &'a [T]) -> Option<&'a T> {
        of.get(usize::try_from(self.below(of.len() as u64)).ok()?)
    }

    /// A time of up to so many milliseconds.
    pub fn millis(&self, end: u64) -> Duration {
        Duration::from_millis(self.below(end + 1))
    }

    /// Short as a rule, now and then long: both what happens at once and what is late is met.
    pub fn pause(&self) -> Duration {
        match self.below(20) {
            0..8 => Duration::ZERO,
            8..14 => self.millis(20),
            14..18 => self.millis(1_000),
            18 => self.millis(20_000),
            _ => self.millis(200_000),
        }
    }
}
