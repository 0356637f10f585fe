//! Everything the author of a harness provider depends on.
//!
//! A provider is one WebAssembly component that wraps one AI-agent harness.
//! Implement [`Provider`] with plain async functions, name the type in
//! [`export!`], build for `wasm32-wasip2`:
//!
//! ```text
//! use harness_guest::prelude::*;
//!
//! #[derive(Default)]
//! struct Hello;
//!
//! impl Provider for Hello { /* describe, start_prompt, done */ }
//!
//! harness_guest::export!(Hello);
//! ```
//!
//! # What the crate takes care of
//!
//! - every call is raced against its abort signal ([`provider`] tells how);
//! - state shared between calls cannot be borrowed across an await ([`Shared`]);
//! - a control cannot answer that it started a turn ([`Prepared`]);
//! - inputs that were taken are never lost ([`Channel::take_input`]);
//! - panics and `tracing` events reach the host's log ([`telemetry`]);
//! - logic can be tested with plain `cargo test` ([`testing`]).
//!
//! # Grants
//!
//! Importing an interface is asking for its grant. A provider that never calls
//! [`state`], [`background`], [`delegation`], `process` or `http` does not import them: the linker
//! drops what is not used, so nothing has to be declared.

pub mod abort;
pub mod background;
pub mod bindings;
pub mod catalogue;
pub mod channel;
pub mod connection;
pub mod delegation;
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod export;
pub mod limits;
pub mod link;
pub mod provider;
pub mod refusal;
pub mod request;
pub mod revision;
pub mod rpc;
pub mod shared;
pub mod state;
pub mod task;
pub mod telemetry;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
pub mod turns;
mod values;
pub mod watch;

mod dispatch;
mod sys;

pub use abort::{AbortSignal, Hold};
pub use catalogue::Catalogue;
pub use channel::{Channel, MessageWriter};
pub use link::{Activity, Link};
pub use provider::{Invocation, Prepared, Provider};
pub use refusal::refuse_disabled;
pub use request::{Discovery, Preparation};
pub use revision::Revision;
pub use shared::Shared;
pub use values::input_text;
pub use watch::Watch;

/// The contract's plain data, as generated from `wit/harness.wit`.
pub mod types {
    pub use crate::bindings::harness::provider::types::*;
}

/// What nearly every provider uses.
pub mod prelude {
    pub use crate::types::*;
    pub use crate::{
        AbortSignal, Activity, Channel, Discovery, Hold, Invocation, Link, MessageWriter,
        Preparation, Prepared, Provider, Shared, Watch,
    };
}

/// Tells the host that the command state of this session changed (`state-push`).
///
/// Allowed at any time; the host coalesces. A provider that calls it declares
/// [`types::Features::STATE_PUSH`].
pub fn state_changed() {
    sys::host::state_changed();
}

/// The operator's settings for this provider, in the order they were written.
/// Secrets are never among them.
#[must_use]
pub fn config() -> Vec<(String, String)> {
    sys::host::config()
}

/// One setting of [`config`]; the last of that name wins.
#[must_use]
pub fn config_value(name: &str) -> Option<String> {
    config()
        .into_iter()
        .rev()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value)
}

/// Makes a [`Provider`] the component's exports. Once in a crate of type `cdylib`;
/// expands to nothing when it is built for anything but WebAssembly, so that the
/// same crate can be unit-tested natively.
#[macro_export]
macro_rules! export {
    ($provider:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Exported = $crate::export::Exports<$provider>;
    $crate::bindings::export!(Exported with_types_in $crate::bindings);
        };
    };
}
