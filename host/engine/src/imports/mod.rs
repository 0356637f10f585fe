//! What a component may import: the host interface, and what it was granted.
//!
//! Linking is per grant: an interface that is not granted is not in the linker, so a component that
//! imports it cannot be instantiated. The functions here convert, bound and forward; they decide
//! nothing.

#![allow(unreachable_pub, reason = "generated code re-exports the handles")]

pub mod abort;
mod background;
pub mod channel;
pub mod delegation;
pub mod http;
pub mod link;
mod misc;
pub mod process;
pub mod request;
mod state;
mod stream;
pub(crate) mod wasi;

use crate::bindings::harness::provider;
use crate::bindings::harness::provider::types as wit;
use crate::grants::Grants;
use crate::instance::ctx::{Ctx, HasCtx};
use crate::native::http::Http;
use crate::native::process::{Backgrounds, Processes};
use wasmtime::component::Linker;

/// What an import answers: a trap of the store, a typed refusal, or a value.
pub(crate) type Answer<T> = wasmtime::Result<Result<T, wit::ChannelError>>;

/// Granted programs and origins of one instance.
pub(crate) struct Native {
    /// Interface `process`.
    pub(crate) processes: Option<Processes>,
    /// Interface `background`.
    pub(crate) backgrounds: Option<Backgrounds>,
    /// Interface `http`.
    pub(crate) http: Option<Http>,
}

impl provider::types::Host for Ctx {}

/// A linker with the host interface, an empty WASI, and what `grants` grants.
pub(crate) fn linker(engine: &wasmtime::Engine, grants: &Grants) -> wasmtime::Result<Linker<Ctx>> {
    let mut linker = Linker::new(engine);
    wasi::add_to_linker(&mut linker)?;
    provider::types::add_to_linker::<_, HasCtx>(&mut linker, |ctx| ctx)?;
    provider::host::add_to_linker::<_, HasCtx>(&mut linker, |ctx| ctx)?;
    if grants.state.is_some() {
        provider::state::add_to_linker::<_, HasCtx>(&mut linker, |ctx| ctx)?;
    }
    if grants.delegation.is_some() {
        provider::delegation::add_to_linker::<_, HasCtx>(&mut linker, |ctx| ctx)?;
    }
    if !grants.process.is_empty() {
        provider::process::add_to_linker::<_, HasCtx>(&mut linker, |ctx| ctx)?;
    }
    if grants.allows("background") {
        provider::background::add_to_linker::<_, HasCtx>(&mut linker, |ctx| ctx)?;
    }
    if !grants.http.is_empty() {
        provider::http::add_to_linker::<_, HasCtx>(&mut linker, |ctx| ctx)?;
    }
    Ok(linker)
}
