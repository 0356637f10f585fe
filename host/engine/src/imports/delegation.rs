//! `delegation`: delegates of the instance's loop, if granted (S96).
//!
//! A handle is an invocation's or the instance's authority and dies with it: after an abort its
//! pending and later calls answer `stopped`, after the end `closed`. Which harnesses a delegate may
//! run on is the grant's; everything else the session decides.

use super::channel::ChannelHandle;
use super::link::{Link, LinkHandle};
use crate::bindings::harness::provider::delegation as wit;
use crate::bindings::harness::provider::delegation::{Host, HostDelegates, HostDelegatesWithStore};
use crate::convert;
use crate::grants::DelegationGrant;
use crate::instance::ctx::{Ctx, HasCtx};
use crate::instance::invocation::Invocation;
use crate::instance::shared::Shared;
use harness_core::ids::{CommandId, HarnessId, LoopId};
use harness_core::provider::{ChannelError, DelegateStart, Delegated, Delegation, DelegationError};
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Result;
use wasmtime::component::{Accessor, Resource};

/// Longest wait for a result.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest harness id, model, mode, loop or request id, in bytes.
const MAX_NAME: usize = 256;

type Answer<T> = Result<std::result::Result<T, wit::DelegationError>>;

/// A guest's authority over delegates.
#[derive(Clone)]
pub struct DelegatesHandle(Caller);

#[derive(Clone)]
enum Caller {
    Invocation(Arc<Invocation>),
    Instance(Arc<Link>),
}

impl Caller {
    async fn call<T: Send>(
        &self,
        call: impl for<'a> FnOnce(&'a dyn Delegation) -> Delegated<'a, T>,
    ) -> std::result::Result<T, DelegationError> {
        match self {
            Self::Invocation(invocation) => invocation.delegate(call).await,
            Self::Instance(link) => link.delegate(call).await,
        }
    }
}

/// What kept a call from being made at all.
pub(crate) fn not_made(error: ChannelError) -> DelegationError {
    match error {
        ChannelError::Stopped => DelegationError::Stopped,
        ChannelError::Closed => DelegationError::Closed,
        ChannelError::Limit(text) => DelegationError::Limit(text),
        other => DelegationError::Failed(other.to_string()),
    }
}

fn enter<T: Send>(
    accessor: &Accessor<T, HasCtx>,
    handle: &Resource<DelegatesHandle>,
) -> Result<(Caller, Arc<Shared>)> {
    accessor.with(|mut a| {
        let ctx = a.get();
        let caller = ctx.table.get(handle)?.0.clone();
        Ok((caller, ctx.shared.clone()))
    })
}

fn answer<T, W>(
    result: std::result::Result<T, DelegationError>,
    convert: impl FnOnce(T) -> W,
) -> Answer<W> {
    Ok(result.map(convert).map_err(convert::delegation_error))
}

fn loop_id(text: &str) -> std::result::Result<LoopId, DelegationError> {
    // What is no id names nothing.
    text.parse().map_err(|_| DelegationError::NotParent)
}

fn request_id(text: &str) -> std::result::Result<CommandId, DelegationError> {
    text.parse().map_err(|_| DelegationError::NotParent)
}

/// The start that a guest asks for, on a harness that it may use.
fn granted(
    shared: &Shared,
    start: wit::DelegateStart,
) -> std::result::Result<DelegateStart, DelegationError> {
    let names = [&start.harness_id, &start.model, &start.loop_mode];
    if names
        .into_iter()
        .flatten()
        .any(|name| name.len() > MAX_NAME)
    {
        return Err(DelegationError::Limit(format!(
            "an id, model or mode has at most {MAX_NAME} bytes"
        )));
    }
    let own = &shared.installed.id;
    let harness: HarnessId = match start.harness_id {
        None => own.clone(),
        Some(id) => id
            .parse()
            .map_err(|e: harness_core::ids::InvalidId| DelegationError::Invalid(e.to_string()))?,
    };
    let grant = shared.installed.grants.delegation.as_ref();
    if !grant.is_some_and(|grant: &DelegationGrant| grant.allows(own, &harness)) {
        return Err(DelegationError::Denied(format!(
            "the grant `delegation` does not name the harness `{harness}`"
        )));
    }
    Ok(DelegateStart {
        harness,
        model: start.model,
        mode: start.loop_mode.unwrap_or_default(),
        task: convert::delegate_task(start.task)?,
    })
}

impl Host for Ctx {}

impl HostDelegates for Ctx {
    fn of_channel(
        &mut self,
        channel: Resource<ChannelHandle>,
    ) -> Result<Resource<DelegatesHandle>> {
        let invocation = self.table.get(&channel)?.0.clone();
        let caller = Caller::Invocation(invocation);
        Ok(self.table.push(DelegatesHandle(caller))?)
    }

    fn of_link(&mut self, link: Resource<LinkHandle>) -> Result<Resource<DelegatesHandle>> {
        let link = self.table.get(&link)?.0.clone();
        Ok(self.table.push(DelegatesHandle(Caller::Instance(link)))?)
    }

    fn drop(&mut self, handle: Resource<DelegatesHandle>) -> Result<()> {
        self.table.delete(handle)?;
        Ok(())
    }
}

impl<T: Send + 'static> HostDelegatesWithStore<T> for HasCtx {
    async fn start(
        accessor: &Accessor<T, Self>,
        handle: Resource<DelegatesHandle>,
        start: wit::DelegateStart,
    ) -> Answer<wit::StartedDelegate> {
        let (caller, shared) = enter(accessor, &handle)?;
        let start = match granted(&shared, start) {
            Ok(start) => start,
            Err(error) => return Ok(Err(convert::delegation_error(error))),
        };
        let started = caller.call(move |of| of.start(start)).await;
        answer(started, |s| wit::StartedDelegate {
            loop_id: s.loop_id.to_string(),
            request_id: s.request_id.to_string(),
        })
    }

    async fn send(
        accessor: &Accessor<T, Self>,
        handle: Resource<DelegatesHandle>,
        child: String,
        task: wit::Task,
    ) -> Answer<String> {
        let (caller, _) = enter(accessor, &handle)?;
        let told = loop_id(&child).and_then(|id| Ok((id, convert::delegate_task(task)?)));
        let sent = match told {
            Ok((child, task)) => caller.call(move |of| of.send(child, task)).await,
            Err(error) => Err(error),
        };
        answer(sent, |id| id.to_string())
    }

    async fn await_result(
        accessor: &Accessor<T, Self>,
        handle: Resource<DelegatesHandle>,
        request: String,
        timeout_ms: u32,
    ) -> Answer<Option<wit::DelegateResult>> {
        let (caller, _) = enter(accessor, &handle)?;
        let request = match request_id(&request) {
            Ok(request) => request,
            Err(error) => return Ok(Err(convert::delegation_error(error))),
        };
        let timeout = Duration::from_millis(timeout_ms.into()).min(MAX_WAIT);
        let _parked = caller.park();
        let result = caller
            .call(move |of| of.await_result(request, timeout))
            .await;
        answer(result, |r| r.map(convert::delegate_result))
    }

    async fn cancel(
        accessor: &Accessor<T, Self>,
        handle: Resource<DelegatesHandle>,
        request: String,
    ) -> Answer<wit::CancelledAt> {
        let (caller, _) = enter(accessor, &handle)?;
        let cancelled = match request_id(&request) {
            Ok(request) => caller.call(move |of| of.cancel(request)).await,
            Err(error) => Err(error),
        };
        answer(cancelled, convert::cancelled_at)
    }

    async fn stop(
        accessor: &Accessor<T, Self>,
        handle: Resource<DelegatesHandle>,
        child: String,
    ) -> Answer<bool> {
        let (caller, _) = enter(accessor, &handle)?;
        let _parked = caller.park();
        let stopped = match loop_id(&child) {
            Ok(child) => caller.call(move |of| of.stop(child)).await,
            Err(error) => Err(error),
        };
        answer(stopped, |stopped| stopped)
    }

    async fn children(
        accessor: &Accessor<T, Self>,
        handle: Resource<DelegatesHandle>,
    ) -> Answer<Vec<wit::Delegate>> {
        let (caller, _) = enter(accessor, &handle)?;
        let children = caller.call(|of| of.list()).await;
        answer(children, |list| {
            list.into_iter().map(convert::delegate_info).collect()
        })
    }
}

impl Caller {
    /// Stops the clock of the invocation while it waits for somebody else (R75).
    fn park(&self) -> Option<crate::instance::clock::Parked<'_>> {
        match self {
            Self::Invocation(invocation) => Some(invocation.clock.park()),
            Self::Instance(_) => None,
        }
    }
}
