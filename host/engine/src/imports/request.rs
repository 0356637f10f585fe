//! `discovery` and `preparation`: the inputs of calls that change nothing.

use super::abort::AbortHandle;
use crate::bindings::harness::provider::host::{HostDiscovery, HostPreparation};
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::instance::abort::CallAbort;
use crate::instance::ctx::Ctx;
use harness_core::provider::{DiscoveryContext, OperationContext};
use wasmtime::Result;
use wasmtime::component::Resource;

/// Input of one discovery or detection.
pub struct DiscoveryHandle {
    pub(crate) context: DiscoveryContext,
    pub(crate) abort: CallAbort,
}

/// Input of one preparation.
pub struct PreparationHandle {
    pub(crate) context: OperationContext,
    pub(crate) abort: CallAbort,
}

impl HostDiscovery for Ctx {
    fn context(&mut self, request: Resource<DiscoveryHandle>) -> Result<wit::DiscoveryContext> {
        Ok(convert::discovery_context(
            self.table.get(&request)?.context.clone(),
        ))
    }

    fn abort(&mut self, request: Resource<DiscoveryHandle>) -> Result<Resource<AbortHandle>> {
        let abort = self.table.get(&request)?.abort.clone();
        Ok(self.table.push(AbortHandle::new(abort))?)
    }

    fn drop(&mut self, request: Resource<DiscoveryHandle>) -> Result<()> {
        self.table.delete(request)?;
        Ok(())
    }
}

impl HostPreparation for Ctx {
    fn context(&mut self, request: Resource<PreparationHandle>) -> Result<wit::OperationContext> {
        Ok(convert::operation_context(
            self.table.get(&request)?.context.clone(),
        ))
    }

    fn abort(&mut self, request: Resource<PreparationHandle>) -> Result<Resource<AbortHandle>> {
        let abort = self.table.get(&request)?.abort.clone();
        Ok(self.table.push(AbortHandle::new(abort))?)
    }

    fn drop(&mut self, request: Resource<PreparationHandle>) -> Result<()> {
        self.table.delete(request)?;
        Ok(())
    }
}
