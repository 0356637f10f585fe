//! The one place that decides what stands beneath the crate's own types: the
//! host's imports in a component, in-memory doubles everywhere else.
//!
//! Both sides offer the same types and functions, so no other module knows which
//! one it runs on, and nothing is dispatched at run time.

#[cfg(target_family = "wasm")]
pub(crate) use crate::bindings::harness::provider::{background, delegation, host, state};

#[cfg(not(target_family = "wasm"))]
pub(crate) use crate::testing::{
    delegation,
    doubles::{background, host, state},
};

/// Runs `work` in the task that is being polled.
#[cfg(target_family = "wasm")]
pub(crate) fn spawn(work: impl Future<Output = ()> + 'static) {
    drop(wit_bindgen::spawn_local(work));
}

#[cfg(not(target_family = "wasm"))]
pub(crate) use crate::testing::spawn;
