//! Limits of providers: each bound with its range.
//!
//! `[limits]` holds for every provider, `[provider.limits]` for one.

use super::problem::Problem;
use super::resolve::Context;
use super::units::{WrittenDuration, WrittenSize, duration_text, size_text};
use super::written;
use harness_engine::Limits;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::Spanned;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MS: u64 = 1;
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Those limits over a base.
pub(super) fn resolve(cx: &mut Context<'_>, base: &Limits, w: &written::Limits) -> Limits {
    let mut l = base.clone();
    size(cx, "memory", &w.memory, MIB..=4 * GIB, &mut l.memory);
    size(
        cx,
        "component_size",
        &w.component_size,
        KIB..=GIB,
        &mut l.component_size,
    );
    time(
        cx,
        "compile",
        &w.compile,
        SECOND..=10 * MINUTE,
        &mut l.compile,
    );
    time(
        cx,
        "describe_deadline",
        &w.describe_deadline,
        100 * MS..=5 * MINUTE,
        &mut l.describe_deadline,
    );
    time(
        cx,
        "discover_deadline",
        &w.discover_deadline,
        100 * MS..=5 * MINUTE,
        &mut l.discover_deadline,
    );
    time(
        cx,
        "detect_deadline",
        &w.detect_deadline,
        100 * MS..=5 * MINUTE,
        &mut l.detect_deadline,
    );
    time(
        cx,
        "prepare_deadline",
        &w.prepare_deadline,
        100 * MS..=5 * MINUTE,
        &mut l.prepare_deadline,
    );
    time(
        cx,
        "discard_deadline",
        &w.discard_deadline,
        10 * MS..=MINUTE,
        &mut l.discard_deadline,
    );
    time(
        cx,
        "invoke_deadline",
        &w.invoke_deadline,
        100 * MS..=HOUR,
        &mut l.invoke_deadline,
    );
    time(
        cx,
        "compact_deadline",
        &w.compact_deadline,
        SECOND..=DAY,
        &mut l.compact_deadline,
    );
    time(cx, "drain", &w.drain, 50 * MS..=MINUTE, &mut l.drain);
    time(
        cx,
        "inactivity",
        &w.inactivity,
        SECOND..=7 * DAY,
        &mut l.inactivity,
    );
    time(
        cx,
        "activity",
        &w.activity,
        SECOND..=30 * DAY,
        &mut l.activity,
    );
    time(
        cx,
        "cpu_slice",
        &w.cpu_slice,
        10 * MS..=MINUTE,
        &mut l.cpu_slice,
    );
    rate(cx, "cpu_rate", &w.cpu_rate, 0.01..=64.0, &mut l.cpu_rate);
    time(
        cx,
        "cpu_burst",
        &w.cpu_burst,
        100 * MS..=10 * MINUTE,
        &mut l.cpu_burst,
    );
    size(cx, "log_rate", &w.log_rate, KIB..=16 * MIB, &mut l.log_rate);
    count(cx, "processes", &w.processes, 0..=64, &mut l.processes);
    size(
        cx,
        "background_output",
        &w.background_output,
        4 * KIB..=64 * MIB,
        &mut l.background_output,
    );
    size(cx, "http_body", &w.http_body, KIB..=GIB, &mut l.http_body);
    count(
        cx,
        "http_concurrent",
        &w.http_concurrent,
        1..=256,
        &mut l.http_concurrent,
    );
    size(
        cx,
        "turn_output",
        &w.turn_output,
        64 * KIB..=4 * GIB,
        &mut l.turn_output,
    );
    count(
        cx,
        "pending_calls",
        &w.pending_calls,
        1..=1024,
        &mut l.pending_calls,
    );
    count(cx, "handles", &w.handles, 64..=65_536, &mut l.handles);
    count(cx, "failures", &w.failures, 1..=1000, &mut l.failures);
    time(
        cx,
        "failure_window",
        &w.failure_window,
        SECOND..=DAY,
        &mut l.failure_window,
    );
    time(cx, "backoff", &w.backoff, 10 * MS..=HOUR, &mut l.backoff);
    time(
        cx,
        "backoff_max",
        &w.backoff_max,
        10 * MS..=HOUR,
        &mut l.backoff_max,
    );
    time(cx, "healthy", &w.healthy, SECOND..=DAY, &mut l.healthy);
    if l.backoff > l.backoff_max {
        let line = [&w.backoff, &w.backoff_max]
            .into_iter()
            .flatten()
            .next()
            .and_then(|value| cx.line(value));
        cx.report(Problem::new(
            line,
            format!(
                "`backoff` ({}) is longer than `backoff_max` ({})",
                duration_text(l.backoff),
                duration_text(l.backoff_max)
            ),
            "raise `backoff_max` or lower `backoff`",
        ));
    }
    l
}

/// Reads a duration within a range of milliseconds.
pub(super) fn time(
    cx: &mut Context<'_>,
    key: &str,
    written: &Option<Spanned<WrittenDuration>>,
    range: RangeInclusive<u64>,
    into: &mut Duration,
) {
    let Some(written) = written else { return };
    let line = cx.line(written);
    let Some(value) = written.get_ref().read() else {
        return cx.report(Problem::new(
            line,
            format!("`{key}` is not a duration: {:?}", written.get_ref().0),
            "write a number with its unit: \"250ms\", \"120s\", \"5min\", \"2h\", \"1d\"",
        ));
    };
    let (from, to) = (
        Duration::from_millis(*range.start()),
        Duration::from_millis(*range.end()),
    );
    if value < from || value > to {
        return cx.report(out_of_range(
            line,
            key,
            &duration_text(value),
            &duration_text(from),
            &duration_text(to),
        ));
    }
    *into = value;
}

/// Reads a size within a range of bytes.
pub(super) fn size(
    cx: &mut Context<'_>,
    key: &str,
    written: &Option<Spanned<WrittenSize>>,
    range: RangeInclusive<u64>,
    into: &mut u64,
) {
    let Some(written) = written else { return };
    let line = cx.line(written);
    let Some(value) = written.get_ref().read() else {
        return cx.report(Problem::new(
            line,
            format!("`{key}` is not a size: {:?}", written.get_ref().0),
            "write a number with its unit: \"512B\", \"64KiB\", \"256MiB\", \"1GiB\"",
        ));
    };
    if !range.contains(&value) {
        let (from, to) = (size_text(*range.start()), size_text(*range.end()));
        return cx.report(out_of_range(line, key, &size_text(value), &from, &to));
    }
    *into = value;
}

/// Reads a count within a range.
pub(super) fn count<N: TryFrom<i64> + PartialOrd + Display>(
    cx: &mut Context<'_>,
    key: &str,
    written: &Option<Spanned<i64>>,
    range: RangeInclusive<N>,
    into: &mut N,
) {
    let Some(written) = written else { return };
    match N::try_from(*written.get_ref()) {
        Ok(value) if range.contains(&value) => *into = value,
        _ => {
            let line = cx.line(written);
            let value = written.get_ref().to_string();
            cx.report(out_of_range(
                line,
                key,
                &value,
                &range.start().to_string(),
                &range.end().to_string(),
            ));
        }
    }
}

fn rate(
    cx: &mut Context<'_>,
    key: &str,
    written: &Option<Spanned<f64>>,
    range: RangeInclusive<f64>,
    into: &mut f64,
) {
    let Some(written) = written else { return };
    let value = *written.get_ref();
    // A NaN is in no range.
    if range.contains(&value) {
        *into = value;
    } else {
        let line = cx.line(written);
        cx.report(out_of_range(
            line,
            key,
            &value.to_string(),
            &range.start().to_string(),
            &range.end().to_string(),
        ));
    }
}

fn out_of_range(line: Option<usize>, key: &str, value: &str, from: &str, to: &str) -> Problem {
    Problem::new(
        line,
        format!("`{key}` is out of range: {value}"),
        format!("choose a value from {from} to {to}"),
    )
}
