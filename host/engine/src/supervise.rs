//! Restart, backoff and quarantine of one provider.
//!
//! Any abnormal end of an instance is one failure. The first within the window costs nothing; later
//! ones make the next start wait, exponentially and with jitter; too many quarantine the provider
//! until it is released. A healthy period starts the count over.

use crate::limits::Limits;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// See the module.
pub(crate) struct Health {
    // A std mutex: held for a few loads and stores, never across an await.
    state: Mutex<State>,
    window: Duration,
    most: u32,
    backoff: Duration,
    backoff_max: Duration,
    healthy: Duration,
}

#[derive(Default)]
struct State {
    recent: VecDeque<Instant>,
    not_before: Option<Instant>,
    quarantined: Option<String>,
    restarts: u64,
    last: Option<String>,
}

/// Whether an instance may be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Now.
    Yes,
    /// Not before that time has passed.
    Wait(Duration),
    /// Not until the provider is released; why.
    Quarantined(String),
}

impl Health {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            state: Mutex::default(),
            window: limits.failure_window,
            most: limits.failures.max(1),
            backoff: limits.backoff,
            backoff_max: limits.backoff_max,
            healthy: limits.healthy,
        }
    }

    fn state(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let healthy = state
            .recent
            .back()
            .is_some_and(|last| now.saturating_duration_since(*last) >= self.healthy);
        if healthy {
            state.recent.clear();
        }
        while state
            .recent
            .front()
            .is_some_and(|first| now.saturating_duration_since(*first) > self.window)
        {
            state.recent.pop_front();
        }
        state
    }

    /// Whether an instance may be started at `now`.
    pub(crate) fn admit(&self, now: Instant) -> Admission {
        let state = self.state(now);
        if let Some(why) = &state.quarantined {
            return Admission::Quarantined(why.clone());
        }
        match state.not_before {
            Some(time) if time > now => Admission::Wait(time - now),
            _ => Admission::Yes,
        }
    }

    /// Records an abnormal end. `jitter`: 0 to 1. Tells whether the provider is quarantined by it.
    pub(crate) fn failed(&self, now: Instant, why: &str, jitter: f64) -> bool {
        let mut state = self.state(now);
        state.recent.push_back(now);
        state.restarts += 1;
        state.last = Some(why.to_owned());
        let count = u32::try_from(state.recent.len()).unwrap_or(u32::MAX);
        if count >= self.most {
            let was = state.quarantined.is_some();
            state.quarantined = Some(format!(
                "{count} failures within {} s, the last one: {why}; release it when the cause is gone",
                self.window.as_secs()
            ));
            return !was;
        }
        state.not_before = count.checked_sub(2).map(|doublings| {
            let wait = self
                .backoff
                .saturating_mul(1 << doublings.min(16))
                .min(self.backoff_max);
            // Half of it is certain, half is chance, so that many sessions do not return as one.
            now + wait.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
        });
        false
    }

    /// Ends a quarantine and a backoff.
    pub(crate) fn release(&self) {
        let mut state = self.state(Instant::now());
        state.quarantined = None;
        state.not_before = None;
        state.recent.clear();
    }

    /// Abnormal ends since the start.
    pub(crate) fn restarts(&self) -> u64 {
        self.state(Instant::now()).restarts
    }

    /// Abnormal ends inside the window.
    pub(crate) fn recent(&self) -> u32 {
        u32::try_from(self.state(Instant::now()).recent.len()).unwrap_or(u32::MAX)
    }

    /// What ended an instance abnormally last.
    pub(crate) fn last_failure(&self) -> Option<String> {
        self.state(Instant::now()).last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        Health::new(&Limits {
            failures: 4,
            failure_window: Duration::from_secs(100),
            backoff: Duration::from_secs(2),
            backoff_max: Duration::from_secs(3),
            healthy: Duration::from_secs(50),
            ..Limits::default()
        })
    }

    #[test]
    fn w1_the_first_failure_restarts_at_once_and_later_ones_back_off() {
        let (health, now) = (health(), Instant::now());
        assert!(!health.failed(now, "a", 1.0));
        assert_eq!(health.admit(now), Admission::Yes);
        health.failed(now, "b", 1.0);
        assert_eq!(health.admit(now), Admission::Wait(Duration::from_secs(2)));
        assert_eq!(health.admit(now + Duration::from_secs(2)), Admission::Yes);
        health.failed(now, "c", 0.0);
        assert_eq!(
            health.admit(now),
            Admission::Wait(Duration::from_millis(1500)),
            "3 s at most, half of it certain"
        );
    }

    #[test]
    fn too_many_failures_quarantine_until_released() {
        let (health, now) = (health(), Instant::now());
        let quarantined: Vec<bool> = (0..5)
            .map(|n| health.failed(now, &format!("f{n}"), 0.0))
            .collect();
        assert_eq!(quarantined, [false, false, false, true, false]);
        let later = now + Duration::from_secs(3600);
        assert!(matches!(health.admit(later), Admission::Quarantined(why) if why.contains("f4")));
        health.release();
        assert_eq!(health.admit(now), Admission::Yes);
        assert_eq!((health.restarts(), health.recent()), (5, 0));
    }

    #[test]
    fn a_healthy_period_starts_the_count_over() {
        let (health, now) = (health(), Instant::now());
        for n in 0..3 {
            health.failed(now + Duration::from_secs(n), "x", 1.0);
        }
        let well = now + Duration::from_secs(60);
        assert!(!health.failed(well, "y", 1.0));
        assert_eq!(health.admit(well), Admission::Yes);
    }
}
