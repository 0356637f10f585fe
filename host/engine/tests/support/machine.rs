//! Whose the machine is: tests that measure time run alone in their binary, the others side by side.
//!
//! Every test holds a share through its bench; a test that measures takes the whole before.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

static MACHINE: RwLock<()> = RwLock::new(());

thread_local! {
    // What the test of this thread holds already: taken twice, it would wait for itself.
    static HELD: RefCell<Weak<Holding>> = const { RefCell::new(Weak::new()) };
}

enum Holding {
    Shared(#[expect(dead_code, reason = "held for its drop")] RwLockReadGuard<'static, ()>),
    Whole(#[expect(dead_code, reason = "held for its drop")] RwLockWriteGuard<'static, ()>),
}

/// Until the last one of a test drops.
pub(crate) struct Held(#[expect(dead_code, reason = "held for its drop")] Rc<Holding>);

fn hold(take: impl FnOnce() -> Holding) -> Rc<Holding> {
    let held = HELD
        .with_borrow(Weak::upgrade)
        .unwrap_or_else(|| Rc::new(take()));
    HELD.set(Rc::downgrade(&held));
    held
}

/// A share of the machine, or what the test has already.
pub(crate) fn shared() -> Held {
    Held(hold(|| {
        Holding::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner))
    }))
}

/// The whole machine; waits for all others. To be called first in a test.
pub(crate) fn alone() -> Held {
    let held = hold(|| Holding::Whole(MACHINE.write().unwrap_or_else(PoisonError::into_inner)));
    assert!(is_alone(), "alone() comes before the first bench");
    Held(held)
}

/// Whether the test of this thread has it for itself.
pub(crate) fn is_alone() -> bool {
    HELD.with_borrow(Weak::upgrade)
        .is_some_and(|held| matches!(*held, Holding::Whole(_)))
}

/// How long the machine let a thread wait that does nothing but sleep: none on a quiet one. A bound
/// that is measured beside it holds to the millisecond, and says nothing of other people's load.
pub(crate) struct Stalls {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Stalls {
    /// Lateness of a sleep that every machine has.
    const USUAL: Duration = Duration::from_millis(5);

    pub(crate) fn watch() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let end = over.clone();
        let thread = std::thread::spawn(move || {
            let (nap, mut stalled) = (Duration::from_millis(1), Duration::ZERO);
            while !end.load(Ordering::Acquire) {
                let start = Instant::now();
                std::thread::sleep(nap);
                let late = start.elapsed().saturating_sub(nap);
                if late > Self::USUAL {
                    stalled += late;
                }
            }
            stalled
        });
        Self { over, thread }
    }

    /// All of it since the watch began.
    pub(crate) fn sum(self) -> Duration {
        self.over.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}
