//! What outlives a process: the store, the time, what providers and clients have seen, and the
//! verdict over it.

use crate::check::Ledger;
use crate::dice::Dice;
use crate::latch::Latch;
use crate::store::MemoryStore;
use crate::trace::Trace;
use harness_session::Surroundings;
use jiff::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use uuid::Uuid;

/// Milliseconds of Unix time at which every run begins.
const BEGIN_MS: i64 = 1_767_225_600_000;

/// The world of one run.
pub struct World {
    /// Chance.
    pub dice: Dice,
    /// What happened.
    pub trace: Trace,
    /// What is durable.
    pub store: MemoryStore,
    /// What was seen, and the rules it is held against.
    ledger: Mutex<Ledger>,
    ids: AtomicU64,
    clock: Mutex<Clock>,
    violation: Latch<String>,
}

/// Simulated time: that of the process's paused clock, counted on over all processes.
struct Clock {
    before_ms: i64,
    since: Option<Instant>,
}

impl World {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64, echo: bool) -> Self {
        Self {
            dice: Dice::new(seed),
            trace: Trace::new(echo),
            store: MemoryStore::default(),
            ledger: Mutex::default(),
            ids: AtomicU64::new(1),
            clock: Mutex::new(Clock {
                before_ms: BEGIN_MS,
                since: None,
            }),
            violation: Latch::default(),
        }
    }

    /// What was seen so far.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line of the trace.
    pub fn note(&self, what: impl std::fmt::Display) {
        let ms = self.now_ms() - BEGIN_MS;
        self.trace.note(format!("{ms:>9} {what}"));
    }

    /// Holds what was found against its rule: an error is a violation.
    pub fn hold(&self, found: Result<(), String>) {
        if let Err(what) = found {
            self.violated(what);
        }
    }

    /// A rule is broken; the first one stays.
    pub fn violated(&self, what: String) {
        self.note(format_args!("VIOLATION {what}"));
        self.violation.set(what);
    }

    /// The first violation.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.violation.get()
    }

    /// Returns when a rule is broken.
    pub async fn broken(&self) {
        self.violation.wait().await;
    }

    /// A process begins: its clock goes on from where the one before stopped.
    pub fn begin(&self) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.since = Some(Instant::now());
    }

    /// The process ends; time passes until the next one.
    pub fn end(&self) {
        let now = self.now_ms();
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.before_ms = now + 1_000;
        clock.since = None;
    }

    fn now_ms(&self) -> i64 {
        let clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = clock.since.map_or(0, |since| since.elapsed().as_millis());
        clock.before_ms + i64::try_from(passed).unwrap_or(i64::MAX)
    }
}

impl Surroundings for World {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now_ms()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn id(&self) -> Uuid {
        let n = self.ids.fetch_add(1, Ordering::Relaxed);
        // In the shape of a UUIDv7, later ones greater.
        let high = (0x019b_0000_0000 + (n >> 8)) << 16 | 0x7000 | (n & 0xff);
        Uuid::from_u64_pair(high, 0x8000_0000_0000_0000 | n)
    }
}
