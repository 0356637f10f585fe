//! What components write: the `log` import, standard output and standard error.
//!
//! Invariants: a provider's lines are bounded in length, in rate and in number kept; control
//! characters are removed, so that a line is one line wherever it is shown; nothing here blocks.

use harness_core::admin::LogLine;
use harness_core::ids::HarnessId;
use jiff::Timestamp;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Longest line, in bytes.
const MAX_LINE: usize = 8 * 1024;
/// Lines kept a provider.
const KEPT: usize = 1000;

/// Level of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The lines of one provider.
pub(crate) struct ProviderLog {
    provider: HarnessId,
    // A std mutex: held for one push, never across an await.
    state: Mutex<State>,
}

struct State {
    lines: VecDeque<LogLine>,
    rate: f64,
    tokens: f64,
    refilled: Instant,
    dropped: u64,
}

impl ProviderLog {
    /// `rate`: bytes a second, with one second's worth of burst.
    pub(crate) fn new(provider: HarnessId, rate: u64) -> Self {
        let rate = rate as f64;
        let state = State {
            lines: VecDeque::new(),
            rate,
            tokens: rate,
            refilled: Instant::now(),
            dropped: 0,
        };
        Self {
            provider,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one line; beyond the rate it is counted and dropped.
    pub(crate) fn write(&self, level: Level, instance: u64, text: &str) {
        // Before any work on the text: a flood must be cheap to drop.
        let bytes = text.len().min(MAX_LINE);
        let (text, dropped) = {
            let mut state = self.state();
            let now = Instant::now();
            let earned = now.duration_since(state.refilled).as_secs_f64() * state.rate;
            state.tokens = (state.tokens + earned).min(state.rate);
            state.refilled = now;
            // A line costs its bookkeeping too, so that empty lines are not free.
            let cost = (bytes + 64) as f64;
            if state.tokens < cost {
                state.dropped += 1;
                metrics::counter!("harness_provider_log_dropped_total", "harness" => self.provider.to_string())
                    .increment(1);
                return;
            }
            state.tokens -= cost;
            let dropped = std::mem::take(&mut state.dropped);
            if dropped > 0 {
                state.push(
                    Level::Warn,
                    format!("{dropped} lines were dropped by the rate limit"),
                );
            }
            let text = clean(text);
            state.push(level, text.clone());
            (text, dropped)
        };
        let harness = self.provider.as_str();
        if dropped > 0 {
            tracing::warn!(target: "provider", harness, instance, dropped, "lines were dropped by the rate limit");
        }
        match level {
            Level::Trace => tracing::trace!(target: "provider", harness, instance, "{text}"),
            Level::Debug => tracing::debug!(target: "provider", harness, instance, "{text}"),
            Level::Info => tracing::info!(target: "provider", harness, instance, "{text}"),
            Level::Warn => tracing::warn!(target: "provider", harness, instance, "{text}"),
            Level::Error => tracing::error!(target: "provider", harness, instance, "{text}"),
        }
    }

    /// The newest `limit` lines, oldest first.
    pub(crate) fn newest(&self, limit: usize) -> Vec<LogLine> {
        let state = self.state();
        let skip = state.lines.len().saturating_sub(limit);
        state.lines.iter().skip(skip).cloned().collect()
    }
}

impl State {
    fn push(&mut self, level: Level, text: String) {
        if self.lines.len() >= KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(LogLine {
            at: Timestamp::now(),
            level: level.name().to_owned(),
            text,
        });
    }
}

/// One line without control characters, cut to the longest line.
fn clean(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_LINE.min(text.len()));
    let kept = text.get(..end).unwrap_or_default();
    kept.chars()
        .map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(rate: u64) -> ProviderLog {
        ProviderLog::new("demo/x".parse().unwrap(), rate)
    }

    #[test]
    fn w9_lines_beyond_the_rate_are_counted_and_dropped() {
        let log = log(10_000);
        for _ in 0..1000 {
            log.write(Level::Info, 1, &"x".repeat(936));
        }
        let kept = log.newest(usize::MAX).len();
        assert!((10..=12).contains(&kept), "{kept}");
    }

    #[test]
    fn lines_are_cut_and_cleaned() {
        let log = log(1_000_000);
        log.write(Level::Error, 1, "a\u{1b}[31mb\r\nc");
        log.write(Level::Info, 1, &"ä".repeat(MAX_LINE));
        let lines = log.newest(10);
        assert_eq!(
            (lines[0].text.as_str(), lines[0].level.as_str()),
            ("a [31mb  c", "error")
        );
        assert!(lines[1].text.len() <= MAX_LINE);
        assert_eq!(log.newest(1), lines[1..]);
    }

    #[test]
    fn a_bounded_number_of_lines_is_kept() {
        let log = log(u64::MAX);
        for n in 0..KEPT + 10 {
            log.write(Level::Debug, 1, &n.to_string());
        }
        let lines = log.newest(usize::MAX);
        assert_eq!(lines.len(), KEPT);
        assert_eq!(lines[0].text, "10");
    }
}
