//! The life of one process: how long it lives, and how it dies.
//!
//! A crash may come at every step: before a write reaches the store, after it is durable and
//! before it is acknowledged, when a provider is called, when it answers, when a client is told.
//! From then on nothing of this process reaches store, provider or client. Of the writes that
//! were on their way a prefix is durable all the same.

use crate::latch::Latch;
use crate::world::World;
use harness_journal::{Append, Appended, JournalError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steps after which a run counts as endless.
const ENDLESS: u64 = 200_000;

/// How a process lives.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// It dies at this step; without one it is shut down.
    pub crash_at: Option<u64>,
    /// Of a thousand writes so many fail.
    pub faults: u64,
    /// Providers and store do what they should, at once: what is open can come to its end.
    pub calm: bool,
}

/// One process.
pub struct Life {
    /// The world it lives in.
    pub world: Arc<World>,
    /// How it lives.
    pub plan: Plan,
    steps: AtomicU64,
    dead: Latch<()>,
    /// Writes that the store was given and has not finished, in order.
    under_way: Mutex<BTreeMap<u64, Append>>,
}

impl Life {
    /// A process that has not begun.
    #[must_use]
    pub fn new(world: Arc<World>, plan: Plan) -> Arc<Self> {
        Arc::new(Self {
            world,
            plan,
            steps: AtomicU64::new(0),
            dead: Latch::default(),
            under_way: Mutex::default(),
        })
    }

    /// Something happened that others can see; the process may die of it. False: it is dead.
    pub fn step(&self) -> bool {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        if self.plan.crash_at == Some(step) {
            self.crash();
        }
        if step == ENDLESS {
            self.world
                .violated("the run does not come to an end".into());
        }
        self.is_alive()
    }

    /// Whether it lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.dead.get().is_none()
    }

    /// Returns while the process lives; a dead one goes no further.
    pub async fn alive(&self) {
        if !self.is_alive() {
            std::future::pending::<()>().await;
        }
    }

    /// A step, and on if the process survives it.
    pub async fn goes_on(&self) {
        self.step();
        self.alive().await;
    }

    /// Returns when it has died.
    pub async fn died(&self) {
        self.dead.wait().await;
    }

    fn crash(&self) {
        self.world.note("CRASH");
        self.dead.set(());
        let cut = std::mem::take(&mut *self.under_way());
        for append in cut.into_values() {
            if self.world.dice.percent(50) {
                break;
            }
            self.world.note("a write under way was durable");
            // Nobody is told how it went.
            let _ = self.write(&append);
        }
    }

    /// Gives a write to the store; it is finished by [`Self::finish`], or not at all.
    pub fn hand_over(&self, append: &Append) -> u64 {
        let mut under_way = self.under_way();
        let number = under_way.last_key_value().map_or(0, |(n, _)| n + 1);
        under_way.insert(number, append.clone());
        number
    }

    /// The store is done with a write.
    pub fn finish(&self, number: u64) {
        self.under_way().remove(&number);
    }

    /// Makes a write durable, and holds what the journal is then against the rules.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn write(&self, append: &Append) -> Result<Appended, JournalError> {
        let written = self.world.store.write(append);
        match &written {
            Ok(_) => {
                let world = &self.world;
                let row = append.projection.as_ref();
                let found = world.ledger().appended(world, append.session, row);
                world.hold(found);
            }
            Err(error) => self
                .world
                .note(format_args!("refused by the store: {}", error.code())),
        }
        written
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<u64, Append>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
