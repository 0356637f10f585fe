//! What the guest lent out and must get back: prepared operations and started turns.
//!
//! Invariant: each goes back exactly once. A handle that drops unused discards its operation, or
//! stops its turn and passes it to `done` (R31).

use super::call::watch_plain;
use super::invocation::Invocation;
use super::job::Job;
use super::shared::Shared;
use super::turn;
use harness_core::abort::AbortReason;
use harness_core::provider::CallError;
use std::any::Any;
use std::sync::Arc;
use tokio::sync::oneshot;
use wasmtime::component::ResourceAny;

/// A validated operation.
pub(crate) struct PreparedHandle {
    shared: Arc<Shared>,
    resource: Option<ResourceAny>,
}

/// A started turn and the invocation that it goes on in.
pub(crate) struct StartedHandle {
    shared: Arc<Shared>,
    session: Option<ResourceAny>,
    pub(crate) invocation: Arc<Invocation>,
}

/// The handle inside one of the port's values, if it is this instance's.
fn claim<H: Any>(
    handle: Box<dyn Any + Send>,
    owner: impl FnOnce(&H) -> bool,
) -> Result<H, CallError> {
    match handle.downcast::<H>() {
        Ok(handle) if owner(&handle) => Ok(*handle),
        _ => Err(CallError::Lost(
            "the handle belongs to another instance".to_owned(),
        )),
    }
}

impl PreparedHandle {
    pub(crate) fn new(shared: &Arc<Shared>, resource: ResourceAny) -> Self {
        Self {
            shared: shared.clone(),
            resource: Some(resource),
        }
    }

    pub(crate) fn claim(
        handle: Box<dyn Any + Send>,
        shared: &Arc<Shared>,
    ) -> Result<Self, CallError> {
        claim(handle, |own: &Self| Arc::ptr_eq(&own.shared, shared))
    }

    /// The guest's resource, without giving it up.
    pub(crate) fn resource(&self) -> Option<ResourceAny> {
        self.resource
    }

    /// The guest's resource, to be passed back now.
    pub(crate) fn take(mut self) -> Option<ResourceAny> {
        self.resource.take()
    }
}

impl Drop for PreparedHandle {
    fn drop(&mut self) {
        let shared = self.shared.clone();
        let Some(resource) = self.resource.take() else {
            return;
        };
        let runtime = shared.runtime.clone();
        let (reply, answer) = oneshot::channel();
        shared.send(Job::call(move |accessor, guest| {
            Box::pin(async move {
                guest.call_discard(accessor, resource).await?;
                let _ = reply.send(());
                Ok(())
            })
        }));
        runtime.spawn(async move {
            let limit = shared.installed.limits.discard_deadline;
            let _ = watch_plain(&shared, "discard", limit, answer).await;
        });
    }
}

impl StartedHandle {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        session: ResourceAny,
        invocation: Arc<Invocation>,
    ) -> Self {
        shared.lend();
        Self {
            shared: shared.clone(),
            session: Some(session),
            invocation,
        }
    }

    pub(crate) fn claim(
        handle: Box<dyn Any + Send>,
        shared: &Arc<Shared>,
    ) -> Result<Self, CallError> {
        claim(handle, |own: &Self| Arc::ptr_eq(&own.shared, shared))
    }

    /// The guest's resource, to be passed to `done` now. The handle is kept until `done` is back.
    pub(crate) fn session(&mut self) -> Option<ResourceAny> {
        self.session.take()
    }
}

impl Drop for StartedHandle {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return self.shared.give_back();
        };
        self.invocation.abort.fire(AbortReason::OwnerStopped);
        let (shared, invocation) = (self.shared.clone(), self.invocation.clone());
        self.shared.runtime.spawn(async move {
            let _ = turn::run(&shared, session, &invocation).await;
            shared.give_back();
        });
    }
}
