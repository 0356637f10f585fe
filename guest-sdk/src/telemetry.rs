//! Panics and `tracing` events, on their way to the host's log.
//!
//! Installed before the first call reaches the author's code. The host bounds the
//! log per second and cuts what is beyond; lines are shortened here so that one
//! event cannot use up that bound.

use crate::limits::shorten;
use crate::sys::host;
use crate::types::LogLevel;
use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::{Event, Level, Metadata, Subscriber};

/// Bytes of one log line.
const LINE_BYTES: usize = 4 * 1024;

/// Writes one line to the host's log. Prefer the macros of `tracing`.
pub fn log(level: LogLevel, line: &str) {
    host::log(level, &shorten(line, LINE_BYTES));
}

/// Installs the panic hook and the subscriber. Later calls do nothing, and a
/// subscriber of the author's stays.
#[doc(hidden)]
pub fn install() {
    thread_local!(static INSTALLED: Cell<bool> = const { Cell::new(false) });
    if INSTALLED.replace(true) {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        log(LogLevel::Error, &format!("panic: {panic}"));
    }));
    // Fails only when the author set one first.
    let _ = tracing_core::dispatcher::set_global_default(tracing_core::Dispatch::new(
        HostLog::default(),
    ));
}

/// Events become log lines; spans are counted but not rendered, because the host
/// already knows which call a line belongs to.
#[derive(Debug, Default)]
struct HostLog {
    spans: AtomicU64,
}

impl Subscriber for HostLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed).saturating_add(1))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = match *event.metadata().level() {
            Level::TRACE => LogLevel::Trace,
            Level::DEBUG => LogLevel::Debug,
            Level::INFO => LogLevel::Info,
            Level::WARN => LogLevel::Warn,
            Level::ERROR => LogLevel::Error,
        };
        log(level, &line.finish());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn current_span(&self) -> Current {
        Current::none()
    }
}

/// `message key=value …`
#[derive(Debug, Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn finish(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}
