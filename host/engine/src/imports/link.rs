//! `link` and `activity`: the life of an instance, lent to `run`, and native work between turns.

use super::Answer;
use super::abort::AbortHandle;
use crate::bindings::harness::provider::host::{HostActivity, HostLink, HostLinkWithStore};
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::flag::Flag;
use crate::instance::abort::CallAbort;
use crate::instance::ctx::{Ctx, HasCtx};
use crate::instance::end::EndCause;
use crate::instance::shared::Shared;
use harness_core::abort::AbortSignal;
use harness_core::provider::{
    Activity, BoxFuture, ChannelError, Delegated, Delegation, DelegationError, InstanceHost,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wasmtime::Result;
use wasmtime::component::{Accessor, Resource};

/// Longest label of an activity (N5), in bytes.
const MAX_LABEL: usize = 128;

/// What `run` was lent.
pub(crate) struct Link {
    host: Arc<dyn InstanceHost>,
    abort: CallAbort,
    pending: AtomicUsize,
    max_pending: usize,
    // One pending announcement an instance, more wait (N11). A tokio mutex: it is held while the
    // session decides.
    announcing: tokio::sync::Mutex<()>,
}

/// A guest's handle on the link; a tombstone once `run` has returned.
pub struct LinkHandle(pub(crate) Arc<Link>);

/// A guest's handle on an activity; it ends with the handle.
pub struct ActivityHandle {
    abort: CallAbort,
    _activity: Box<dyn Activity>,
    dropped: Arc<Flag>,
}

impl Drop for ActivityHandle {
    fn drop(&mut self) {
        self.abort.finish();
        self.dropped.raise();
    }
}

impl Link {
    pub(crate) fn new(host: Arc<dyn InstanceHost>, shared: &Shared) -> Self {
        Self {
            host,
            abort: shared.abort(AbortSignal::never()),
            pending: AtomicUsize::new(0),
            max_pending: shared.installed.limits.pending_calls,
            announcing: tokio::sync::Mutex::new(()),
        }
    }

    /// `run` has returned.
    pub(crate) fn finish(&self) {
        self.abort.finish();
    }

    /// Makes one call of the session's side. At the end of the instance, pending and later calls
    /// answer `closed` (N3).
    async fn call(
        &self,
        call: impl for<'a> FnOnce(
            &'a dyn InstanceHost,
        ) -> BoxFuture<'a, std::result::Result<(), ChannelError>>,
    ) -> std::result::Result<(), ChannelError> {
        if self.abort.reason().is_some() || self.abort.is_over() {
            return Err(ChannelError::Closed);
        }
        let pending = self.pending.fetch_add(1, Ordering::AcqRel);
        let _guard = Countdown(&self.pending);
        if pending >= self.max_pending {
            return Err(ChannelError::Limit(format!(
                "{} link calls are pending already",
                self.max_pending
            )));
        }
        tokio::select! {
            biased;
            result = call(self.host.as_ref()) => result,
            _ = self.abort.fired() => Err(ChannelError::Closed),
            () = self.abort.over() => Err(ChannelError::Closed),
        }
    }
}

impl Link {
    /// Makes one call about delegates; at the end of the instance it answers `closed`.
    pub(crate) async fn delegate<T: Send>(
        &self,
        call: impl for<'a> FnOnce(&'a dyn Delegation) -> Delegated<'a, T>,
    ) -> std::result::Result<T, DelegationError> {
        if self.abort.reason().is_some() || self.abort.is_over() {
            return Err(DelegationError::Closed);
        }
        let pending = self.pending.fetch_add(1, Ordering::AcqRel);
        let _guard = Countdown(&self.pending);
        if pending >= self.max_pending {
            return Err(DelegationError::Limit(format!(
                "{} link calls are pending already",
                self.max_pending
            )));
        }
        let of = self.host.delegation().ok_or(DelegationError::Closed)?;
        tokio::select! {
            biased;
            result = call(of.as_ref()) => result,
            _ = self.abort.fired() => Err(DelegationError::Closed),
            () = self.abort.over() => Err(DelegationError::Closed),
        }
    }
}

struct Countdown<'a>(&'a AtomicUsize);

impl Drop for Countdown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl HostActivity for Ctx {
    fn abort(&mut self, handle: Resource<ActivityHandle>) -> Result<Resource<AbortHandle>> {
        let abort = self.table.get(&handle)?.abort.clone();
        Ok(self.table.push(AbortHandle::new(abort))?)
    }

    fn drop(&mut self, handle: Resource<ActivityHandle>) -> Result<()> {
        self.table.delete(handle)?;
        Ok(())
    }
}

impl HostLink for Ctx {
    fn context(&mut self, _: Resource<LinkHandle>) -> Result<wit::DiscoveryContext> {
        Ok(convert::discovery_context(self.host.context()))
    }

    fn abort(&mut self, handle: Resource<LinkHandle>) -> Result<Resource<AbortHandle>> {
        let abort = self.table.get(&handle)?.0.abort.clone();
        Ok(self.table.push(AbortHandle::new(abort))?)
    }

    fn begin_activity(
        &mut self,
        handle: Resource<LinkHandle>,
        label: String,
    ) -> Result<std::result::Result<Resource<ActivityHandle>, wit::ChannelError>> {
        let link = self.table.get(&handle)?.0.clone();
        if link.abort.reason().is_some() || link.abort.is_over() {
            return Ok(Err(wit::ChannelError::Closed));
        }
        if label.is_empty() || label.len() > MAX_LABEL {
            let bytes = label.len();
            let breach = format!(
                "the label of an activity has {bytes} bytes; 1 to {MAX_LABEL} are expected"
            );
            return Ok(Err(wit::ChannelError::Limit(breach)));
        }
        match self.host.begin_activity(label) {
            Ok(activity) => {
                let abort = self.shared.abort(activity.abort());
                let dropped = Arc::new(Flag::default());
                watch_activity(&self.shared, abort.clone(), dropped.clone());
                let handle = ActivityHandle {
                    abort,
                    _activity: activity,
                    dropped,
                };
                Ok(Ok(self.table.push(handle)?))
            }
            Err(error) => Ok(Err(convert::channel_error(error))),
        }
    }

    fn drop(&mut self, handle: Resource<LinkHandle>) -> Result<()> {
        self.table.delete(handle)?;
        Ok(())
    }
}

/// An aborted activity whose handle does not drop within the drain bound costs the instance (N13).
fn watch_activity(shared: &Arc<Shared>, abort: CallAbort, dropped: Arc<Flag>) {
    let instance = shared.clone();
    shared.runtime.spawn(async move {
        let reason = tokio::select! {
            () = dropped.wait() => return,
            _ = instance.gone() => return,
            reason = abort.fired() => reason,
        };
        let drain = instance.installed.limits.drain;
        if tokio::time::timeout(drain, dropped.wait()).await.is_err() {
            instance.kill(EndCause::Deaf {
                call: "activity",
                reason,
            });
        }
    });
}

impl<T: Send + 'static> HostLinkWithStore<T> for HasCtx {
    async fn announce_turn(
        accessor: &Accessor<T, Self>,
        handle: Resource<LinkHandle>,
        turn: wit::NativeTurn,
    ) -> Answer<()> {
        let link = accessor.with(|mut a| a.get().table.get(&handle).map(|link| link.0.clone()))?;
        let announced = async {
            let turn = convert::native_turn(turn)?;
            let one = link.clone();
            link.call(move |host| {
                Box::pin(async move {
                    let _one = one.announcing.lock().await;
                    host.announce_turn(turn).await
                })
            })
            .await
        };
        Ok(announced.await.map_err(convert::channel_error))
    }

    async fn append(
        accessor: &Accessor<T, Self>,
        handle: Resource<LinkHandle>,
        message: wit::Message,
    ) -> Answer<()> {
        let link = accessor.with(|mut a| a.get().table.get(&handle).map(|link| link.0.clone()))?;
        let appended = async {
            let (message, _) = convert::new_message(message)?;
            link.call(move |host| host.append(message)).await
        };
        Ok(appended.await.map_err(convert::channel_error))
    }
}
