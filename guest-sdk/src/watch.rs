//! Shared state that other calls can wait for.
//!
//! Calls of one instance often wait for each other: a driver in `run` for a goal
//! to be set, a turn for its step to be paused. [`Watch`] is a
//! [`Shared`](crate::Shared) whose changes wake whoever waits for a condition, in
//! whichever call it runs.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A value shared by all calls of the instance, with conditions to wait for.
/// Clones share it.
#[derive(Debug, Default)]
pub struct Watch<T>(Rc<RefCell<State<T>>>);

#[derive(Debug, Default)]
struct State<T> {
    value: T,
    waiters: Vec<Waker>,
}

impl<T> Clone for Watch<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Watch<T> {
    /// Shares `value`.
    pub fn new(value: T) -> Self {
        Self(Rc::new(RefCell::new(State {
            value,
            waiters: Vec::new(),
        })))
    }

    /// Reads the value. Using the same `Watch` inside `read` to change it panics.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.0.borrow().value)
    }

    /// Changes the value and wakes whoever waits.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let (result, waiters) = {
            let mut state = self.0.borrow_mut();
            let result = change(&mut state.value);
            (result, std::mem::take(&mut state.waiters))
        };
        waiters.into_iter().for_each(Waker::wake);
        result
    }

    /// Resolves with what `condition` makes of the value, as soon as it makes
    /// something. May be dropped at any time.
    pub fn until<R>(&self, condition: impl Fn(&T) -> Option<R>) -> impl Future<Output = R> {
        let watch = self.clone();
        poll_fn(move |cx| {
            let mut state = watch.0.borrow_mut();
            if let Some(result) = condition(&state.value) {
                return Poll::Ready(result);
            }
            if !state
                .waiters
                .iter()
                .any(|known| known.will_wake(cx.waker()))
            {
                state.waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Watch;
    use crate::testing::{block_on, run_until_stalled, spawn};
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_change_wakes_those_whose_condition_it_meets() {
        let watch = Watch::new(0);
        let woken = Rc::new(Cell::new(0));
        for wanted in [1, 2] {
            let (watch, woken) = (watch.clone(), Rc::clone(&woken));
            spawn(async move {
                watch.until(|value| (*value >= wanted).then_some(())).await;
                woken.set(woken.get() + 1);
            });
        }
        run_until_stalled();
        assert_eq!(woken.get(), 0);
        watch.change(|value| *value = 1);
        run_until_stalled();
        assert_eq!(woken.get(), 1);
        watch.change(|value| *value = 2);
        block_on(async move { watch.until(|value| (*value == 2).then_some(())).await });
        assert_eq!(woken.get(), 2);
    }
}
