//! Panics of a run's thread: a task that panics ends alone, and nobody would know.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Watches this thread until it is dropped.
pub(crate) struct Panics;

/// From now on panics of this thread are kept, and not printed.
pub(crate) fn watch() -> Panics {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let kept = PANICS.with_borrow_mut(|panics| {
                let kept = panics.as_mut().map(|p| p.push(info.to_string()));
                kept.is_some()
            });
            if !kept {
                usual(info);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
    Panics
}

impl Panics {
    /// The first one.
    pub(crate) fn first(&self) -> Option<String> {
        PANICS.with_borrow(|panics| panics.as_ref()?.first().cloned())
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        PANICS.set(None);
    }
}
