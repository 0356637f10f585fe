//! A single-threaded executor with virtual time, one per thread.

use futures::executor::{LocalPool, LocalSpawner};
use futures::task::LocalSpawnExt;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[derive(Default)]
struct Clock {
    now_ms: Cell<u64>,
    made: Cell<u64>,
    timers: RefCell<BinaryHeap<Reverse<Entry>>>,
}

/// Ordered by deadline, then by age.
struct Entry {
    at_ms: u64,
    made: u64,
    timer: Weak<Timer>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ms, self.made) == (other.at_ms, other.made)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ms, self.made).cmp(&(other.at_ms, other.made))
    }
}

#[derive(Default)]
struct Timer {
    fired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

thread_local! {
    static CLOCK: Clock = Clock::default();
    static POOL: RefCell<LocalPool> = RefCell::new(LocalPool::new());
    static SPAWNER: RefCell<Option<LocalSpawner>> = const { RefCell::new(None) };
}

fn spawner() -> LocalSpawner {
    if let Some(spawner) = SPAWNER.with_borrow(Clone::clone) {
        return spawner;
    }
    let spawner = POOL.with_borrow(LocalPool::spawner);
    SPAWNER.set(Some(spawner.clone()));
    spawner
}

/// Drops every task, as a crash does, and sets the clock back to zero.
pub(super) fn reset() {
    SPAWNER.set(None);
    // The tasks are dropped outside the borrow: their destructors may spawn.
    let former = POOL.replace(LocalPool::new());
    drop(former);
    CLOCK.with(|clock| {
        clock.now_ms.set(0);
        clock.timers.borrow_mut().clear();
    });
}

/// Runs `work` whenever the executor runs.
pub(crate) fn spawn(work: impl Future<Output = ()> + 'static) {
    spawner()
        .spawn_local(work)
        .expect("the thread's executor is gone");
}

/// Virtual time since the host started.
#[must_use]
pub fn now() -> Duration {
    Duration::from_millis(CLOCK.with(|clock| clock.now_ms.get()))
}

/// Lets everything run that can run without time passing.
pub fn run_until_stalled() {
    POOL.with_borrow_mut(LocalPool::run_until_stalled);
}

/// Lets `time` pass, firing timers in order.
pub fn advance(time: Duration) {
    let end = now() + time;
    loop {
        run_until_stalled();
        let next = CLOCK.with(next_deadline);
        match next {
            Some(at) if Duration::from_millis(at) <= end => fire_next(),
            _ => break,
        }
    }
    CLOCK.with(|clock| {
        let end = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
        clock.now_ms.set(end.max(clock.now_ms.get()));
    });
}

/// Runs `work` to its end, letting time pass whenever nothing else can happen.
///
/// # Panics
///
/// With `deadlock` when neither a task nor a timer is left.
pub fn block_on<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    let result = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&result);
    spawn(async move {
        let value = work.await;
        slot.replace(Some(value));
    });
    loop {
        run_until_stalled();
        if let Some(value) = result.take() {
            return value;
        }
        assert!(
            CLOCK.with(next_deadline).is_some(),
            "deadlock: the call waits for something that cannot come"
        );
        fire_next();
    }
}

/// The deadline of the first timer that somebody still waits for.
fn next_deadline(clock: &Clock) -> Option<u64> {
    let mut timers = clock.timers.borrow_mut();
    while let Some(Reverse(entry)) = timers.peek() {
        if entry.timer.strong_count() > 0 {
            return Some(entry.at_ms);
        }
        timers.pop();
    }
    None
}

fn fire_next() {
    let waker = CLOCK.with(|clock| {
        next_deadline(clock)?;
        let Reverse(entry) = clock.timers.borrow_mut().pop()?;
        clock.now_ms.set(entry.at_ms.max(clock.now_ms.get()));
        let timer = entry.timer.upgrade()?;
        timer.fired.set(true);
        timer.waker.take()
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Resolves after `ms` of virtual time.
pub(crate) fn sleep_ms(ms: u32) -> impl Future<Output = ()> {
    struct Sleep(Rc<Timer>);
    impl Future for Sleep {
        type Output = ();
        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if self.0.fired.get() {
                return Poll::Ready(());
            }
            self.0.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        }
    }
    let timer = Rc::new(Timer::default());
    CLOCK.with(|clock| {
        let made = clock.made.get() + 1;
        clock.made.set(made);
        clock.timers.borrow_mut().push(Reverse(Entry {
            at_ms: clock.now_ms.get().saturating_add(u64::from(ms)),
            made,
            timer: Rc::downgrade(&timer),
        }));
    });
    Sleep(timer)
}

#[cfg(test)]
mod tests {
    use super::{advance, block_on, now, reset, sleep_ms, spawn};
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    #[test]
    fn time_jumps_to_the_next_timer_and_keeps_order() {
        reset();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for (name, ms) in [("c", 30), ("a", 10), ("b", 10)] {
            let seen = Rc::clone(&seen);
            spawn(async move {
                sleep_ms(ms).await;
                seen.borrow_mut().push((name, now().as_millis()));
            });
        }
        block_on(sleep_ms(20));
        assert_eq!(*seen.borrow(), [("a", 10), ("b", 10)]);
        advance(Duration::from_millis(5));
        assert_eq!(now(), Duration::from_millis(25));
        advance(Duration::from_millis(5));
        assert_eq!(seen.borrow().len(), 3);
    }

    #[test]
    fn waiting_for_nothing_is_reported() {
        reset();
        let waited = std::panic::catch_unwind(|| block_on(std::future::pending::<()>()));
        assert!(waited.is_err());
    }
}
