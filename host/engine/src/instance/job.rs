//! One piece of work for a driver: a call into the component.

use super::ctx::Ctx;
use crate::exports::Guest;
use futures::future::BoxFuture;
use wasmtime::component::Accessor;

/// A future that makes one call and answers whoever waits for it. `Err` means that the store is
/// lost.
pub(crate) type CallFuture<'a> = BoxFuture<'a, wasmtime::Result<()>>;

type CallFn = Box<dyn for<'a> FnOnce(&'a Accessor<Ctx>, &'a Guest) -> CallFuture<'a> + Send>;

/// See the module.
pub(crate) enum Job {
    /// Make a call.
    Call(CallFn),
    /// Look again whether the instance may end.
    Wake,
}

impl Job {
    /// A call.
    pub(crate) fn call(
        call: impl for<'a> FnOnce(&'a Accessor<Ctx>, &'a Guest) -> CallFuture<'a> + Send + 'static,
    ) -> Self {
        Self::Call(Box::new(call))
    }
}
