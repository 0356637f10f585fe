//! What is logged while a test looks: every event and span of every level, with all its fields.

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// With a single subscriber, `tracing` asks the thread that comes by a place in the code first
/// whether anybody listens there, and remembers its answer for all: a test that does not collect
/// would deafen those that do. With two it asks them.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Logs::default()));

/// Collects what is logged by this thread.
#[derive(Clone, Default)]
pub struct Logs(Arc<Mutex<Vec<(Level, String)>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Logs {
    /// Collects until the guard is dropped.
    pub fn collect(&self) -> tracing::subscriber::DefaultGuard {
        LazyLock::force(&ANOTHER);
        tracing::subscriber::set_default(self.clone())
    }

    fn keep(&self, level: Level, line: Line) {
        self.0.lock().unwrap().push((level, line.0));
    }

    /// The levels of the lines that hold these words.
    pub fn levels_of(&self, words: &str) -> Vec<Level> {
        let logged = self.0.lock().unwrap();
        let same = logged.iter().filter(|(_, line)| line.contains(words));
        same.map(|(level, _)| *level).collect()
    }

    pub fn count(&self, level: Level) -> usize {
        let logged = self.0.lock().unwrap();
        logged.iter().filter(|(l, _)| *l == level).count()
    }
}

impl Subscriber for Logs {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(String::new());
        span.record(&mut line);
        self.keep(*span.metadata().level(), line);
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        self.keep(Level::TRACE, line);
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.keep(*event.metadata().level(), line);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
