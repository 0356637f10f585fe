//! Harness providers as sandboxed WebAssembly components: load, check, limit, call, replace.
//!
//! This crate implements the provider port of `harness-core` over wasmtime's component model with
//! native async. One [`Engine`] a host; one [`Registry`] of installed providers over it; one store
//! per live instance, owned by one driver task that is the only code ever to touch it.
//!
//! Invariants
//! - A provider can do nothing that was not granted: an import that is not granted is not linked.
//! - Every call into a component ends within its deadline, the drain bound and 250 ms (W2), whatever
//!   the component does. A store that misbehaved is consumed, never re-entered.
//! - Whatever a component can make grow has a bound and a typed error at the bound.
//!
//! Deliberately not here: what a result means for a session, what is durable, who may run when.

mod bindings;
mod cache;
mod config;
mod convert;
mod draft;
mod engine;
mod exports;
mod flag;
mod grants;
mod imports;
mod inspect;
mod installed;
mod instance;
mod limits;
mod load;
mod log;
pub mod native;
mod preflight;
mod provider;
mod registry;
mod secret;
mod supervise;

pub use config::{ComponentSource, EngineConfig, HostKey, ProviderSpec};
pub use engine::{Engine, EngineError};
pub use grants::{DelegationGrant, Grants, HttpGrant, ProcessCwd, ProcessGrant, StateGrant};
pub use inspect::InspectReport;
pub use limits::Limits;
pub use preflight::{CONTRACT, ImportRow, LoadError, Offer, Preflight, preflight};
pub use registry::Registry;
pub use secret::Secret;
