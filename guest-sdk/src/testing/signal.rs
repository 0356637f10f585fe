//! An event that stays set: aborts, closings, things to wait for.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Carries one value, once. Clones share it.
#[derive(Debug)]
pub(crate) struct Signal<T>(Rc<RefCell<State<T>>>);

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    waiters: Vec<Waker>,
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(State {
            value: None,
            waiters: Vec::new(),
        })))
    }
}

impl<T: Clone> Signal<T> {
    /// Sets the value; the first one stays.
    pub(crate) fn set(&self, value: T) {
        let waiters = {
            let mut state = self.0.borrow_mut();
            state.value.get_or_insert(value);
            std::mem::take(&mut state.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.0.borrow().value.clone()
    }

    pub(crate) fn wait(&self) -> impl Future<Output = T> + use<T> {
        let signal = self.clone();
        poll_fn(move |cx| {
            let mut state = signal.0.borrow_mut();
            if let Some(value) = state.value.clone() {
                return Poll::Ready(value);
            }
            state.waiters.push(cx.waker().clone());
            Poll::Pending
        })
    }
}
