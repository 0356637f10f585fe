//! What the operator may set for the demo. Anything unreadable is the default, and
//! every value is clamped: a demo must not become a load generator by accident.

use std::time::Duration;

/// The pace of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Steps of a goal, 1 to 1000. `goal_steps`, default 8.
    pub goal_steps: u32,
    /// Length of a step, up to a minute. `goal_step_ms`, default 1 s.
    pub goal_step: Duration,
    /// Time between two steps, up to a minute. `goal_gap_ms`, default 1 s.
    pub goal_gap: Duration,
    /// Time between two deltas of an answer, up to 10 s. `delta_ms`, default 30 ms.
    pub delta: Duration,
}

/// The settings of this instance.
#[must_use]
pub fn settings() -> Settings {
    let number = |name: &str, default: u32, min: u32, max: u32| {
        harness_guest::config_value(name)
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(default)
            .clamp(min, max)
    };
    let time = |name: &str, default: u32, max: u32| {
        Duration::from_millis(u64::from(number(name, default, 0, max)))
    };
    Settings {
        goal_steps: number("goal_steps", 8, 1, 1_000),
        goal_step: time("goal_step_ms", 1_000, 60_000),
        goal_gap: time("goal_gap_ms", 1_000, 60_000),
        delta: time("delta_ms", 30, 10_000),
    }
}
