//! State that several calls of one instance share.
//!
//! A control, a discovery and a turn run concurrently in one instance and see
//! the same memory. A borrow held across an await by one of them would make the
//! next one panic, and a panic costs the whole instance, the live turn included.
//! [`Shared`] gives access through closures only: no await fits into one.

use std::cell::RefCell;
use std::rc::Rc;

/// A value shared by all calls of the instance. Clones share it.
#[derive(Debug, Default)]
pub struct Shared<T>(Rc<RefCell<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    /// Shares `value`.
    pub fn new(value: T) -> Self {
        Self(Rc::new(RefCell::new(value)))
    }

    /// Reads or changes the value. Using the same `Shared` again inside `access`
    /// panics: keep the closure to plain data.
    pub fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        access(&mut self.0.borrow_mut())
    }

    /// Puts `value` in and gives the former one back.
    pub fn replace(&self, value: T) -> T {
        self.0.replace(value)
    }
}

impl<T: Clone> Shared<T> {
    /// A copy of the value.
    #[must_use]
    pub fn get(&self) -> T {
        self.0.borrow().clone()
    }
}
