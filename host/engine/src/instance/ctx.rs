//! The data of one store: what the host imports of that instance work with.

use super::limiter::StoreLimiter;
use super::shared::Shared;
use harness_core::provider::InstanceHost;
use std::sync::Arc;
use tokio::sync::Semaphore;
use wasmtime::component::{HasData, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

/// See the module.
pub(crate) struct Ctx {
    /// Host resources the guest holds.
    pub(crate) table: ResourceTable,
    /// The empty WASI context.
    pub(crate) wasi: WasiCtx,
    /// Memory and tables, summed over the store.
    pub(crate) limiter: StoreLimiter,
    /// The instance.
    pub(crate) shared: Arc<Shared>,
    /// The session's side.
    pub(crate) host: Arc<dyn InstanceHost>,
    /// Room for pending state calls.
    pub(crate) state_calls: Arc<Semaphore>,
    /// Room for pending calls about background processes.
    pub(crate) background_calls: Arc<Semaphore>,
    /// Its granted programs and origins.
    pub(crate) native: crate::imports::Native,
}

impl WasiView for Ctx {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

/// Names [`Ctx`] as the data of the host traits.
pub(crate) struct HasCtx;

impl HasData for HasCtx {
    type Data<'a> = &'a mut Ctx;
}
