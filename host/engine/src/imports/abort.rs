//! `abort-signal`.

use crate::bindings::harness::provider::host::{HostAbortSignal, HostAbortSignalWithStore};
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::flag::Flag;
use crate::instance::abort::CallAbort;
use crate::instance::ctx::{Ctx, HasCtx};
use std::sync::Arc;
use wasmtime::Result;
use wasmtime::component::{Accessor, Resource};

/// A guest's handle on an abort. `close` concerns this handle only.
#[derive(Clone)]
pub struct AbortHandle {
    pub(crate) abort: CallAbort,
    closed: Arc<Flag>,
}

impl AbortHandle {
    pub(crate) fn new(abort: CallAbort) -> Self {
        Self {
            abort,
            closed: Arc::default(),
        }
    }
}

impl HostAbortSignal for Ctx {
    fn aborted(&mut self, signal: Resource<AbortHandle>) -> Result<Option<wit::AbortReason>> {
        Ok(self
            .table
            .get(&signal)?
            .abort
            .reason()
            .map(convert::abort_reason))
    }

    fn close(&mut self, signal: Resource<AbortHandle>) -> Result<()> {
        self.table.get(&signal)?.closed.raise();
        Ok(())
    }

    fn drop(&mut self, signal: Resource<AbortHandle>) -> Result<()> {
        let handle = self.table.delete(signal)?;
        handle.closed.raise();
        Ok(())
    }
}

impl<T: Send + 'static> HostAbortSignalWithStore<T> for HasCtx {
    async fn wait(
        accessor: &Accessor<T, Self>,
        signal: Resource<AbortHandle>,
    ) -> Result<Option<wit::AbortReason>> {
        let AbortHandle { abort, closed } =
            accessor.with(|mut a| a.get().table.get(&signal).cloned())?;
        let reason = tokio::select! {
            biased;
            reason = abort.fired(), if !abort.is_over() => Some(reason),
            () = abort.over() => abort.reason(),
            () = closed.wait() => None,
        };
        Ok(reason.map(convert::abort_reason))
    }
}
