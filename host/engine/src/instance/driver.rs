//! The driver task: the only code that touches a store.
//!
//! It instantiates, starts `run` and then turns the store's event loop, adding calls as they
//! arrive. A host panic in here is caught in the same task: it ends one instance only.
//!
//! `describe` is not among an instance's calls: it answers static facts, so a loaded component was
//! asked once, by an instance that did nothing else.

use super::call::watch_plain;
use super::ctx::Ctx;
use super::end::{EndCause, SliceUsedUp, classify};
use super::job::Job;
use super::limiter::StoreLimiter;
use super::live::Live;
use super::meter::{Meter, Metered};
use super::shared::Shared;
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::engine::{InstancePermit, TICK};
use crate::exports::{self, Guest};
use crate::imports::link::{Link, LinkHandle};
use crate::imports::{Native, wasi};
use crate::installed::Installed;
use crate::native::process::Processes;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use harness_core::abort::AbortReason;
use harness_core::operation::MAX_REASON;
use harness_core::provider::{CallError, InstanceHost, InstanceScope};
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, oneshot};
use wasmtime::component::{Accessor, ResourceTable};
use wasmtime::{Store, StoreContextMut, UpdateDeadline};

/// Most bytes of one host call (above every legal value).
const HOSTCALL_FUEL: usize = 32 * 1024 * 1024;
/// Real time beyond its CPU slice that a guest gets on a crowded machine.
const SLICE_GRACE: Duration = Duration::from_millis(150);
/// Longest wait for the processes of an ended instance.
const REAP: Duration = Duration::from_secs(30);

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// What an instance is for.
enum Purpose {
    /// To serve: `run` is entered before any other call (N1).
    Serve,
    /// To describe itself to whoever waits for it, and end (N1: no `run`).
    Describe(oneshot::Sender<wit::HarnessInfo>),
}

/// A fresh instance that serves: `run` is entered before any other call.
///
/// It is instantiated by its driver while the caller goes on; calls wait for that. What keeps it
/// from starting ends the instance, and so the calls, like all that goes wrong in it.
pub(crate) fn start(
    installed: Arc<Installed>,
    permit: InstancePermit,
    scope: InstanceScope,
    host: Arc<dyn InstanceHost>,
) -> Live {
    launch(installed, permit, scope, host, Purpose::Serve)
}

/// What a fresh instance says of itself; it does nothing else.
///
/// # Errors
/// What kept it from answering, or `Timeout`.
pub(crate) async fn ask(
    installed: Arc<Installed>,
    permit: InstancePermit,
    scope: InstanceScope,
    host: Arc<dyn InstanceHost>,
) -> Result<wit::HarnessInfo, CallError> {
    let deadline = installed.limits.describe_deadline;
    let (ready, described) = oneshot::channel();
    let live = launch(installed, permit, scope, host, Purpose::Describe(ready));
    watch_plain(live.shared(), "describe", deadline, described).await
}

/// Spawns the driver of a new instance. A drop of what it returns closes the instance.
fn launch(
    installed: Arc<Installed>,
    permit: InstancePermit,
    scope: InstanceScope,
    host: Arc<dyn InstanceHost>,
    purpose: Purpose,
) -> Live {
    let runtime = tokio::runtime::Handle::current();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let (shared, jobs) = Shared::new(number, installed.clone(), scope, runtime.clone());
    installed.track(&shared);
    let native = installed.native();
    let live = Live::new(shared.clone());
    runtime.spawn(async move {
        let processes = native.processes.clone();
        let driven = AssertUnwindSafe(drive(&shared, host, native, jobs, purpose));
        // Nothing that a panic left half done is used afterwards: the store is gone by then.
        if let Err(panic) = driven.catch_unwind().await {
            let text = panic_text(panic.as_ref());
            shared.kill(EndCause::Panic(convert::cut(text, MAX_REASON)));
        }
        bury(&shared, processes, permit).await;
    });
    live
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it panicked".to_owned())
}

/// The whole life of a store, from its making to its drop.
async fn drive(
    shared: &Arc<Shared>,
    host: Arc<dyn InstanceHost>,
    native: Native,
    jobs: mpsc::UnboundedReceiver<Job>,
    purpose: Purpose,
) {
    let (processes, http) = (native.processes.clone(), native.http.clone());
    let link = Arc::new(Link::new(host.clone(), shared));
    let ticks = Arc::new(AtomicU32::new(0));
    let mut store = store(shared, host, ticks.clone(), native);
    let limits = &shared.installed.limits;
    let cause = {
        let body = body(&mut store, shared, &link, &ticks, jobs, purpose);
        let meter = Meter::new(limits.cpu_rate, limits.cpu_burst);
        let body = Metered {
            meter,
            future: Box::pin(body),
        };
        tokio::select! {
            biased;
            cause = shared.gone() => cause,
            ended = body => match ended {
                Ok(Ok(cause)) | Err(cause) => cause,
                Ok(Err(error)) => classify(&error),
            },
        }
    };
    // Calls learn it before the store is dropped, which may take a while.
    shared.kill(cause);
    link.finish();
    if let Some(processes) = processes {
        processes.close();
    }
    if let Some(http) = http {
        http.close();
    }
    drop(store);
}

/// The driver has ended, whichever way: sees the processes end, and tells.
async fn bury(shared: &Shared, processes: Option<Processes>, permit: InstancePermit) {
    if let Some(processes) = processes {
        processes.close();
        if tokio::time::timeout(REAP, processes.reaped())
            .await
            .is_err()
        {
            tracing::error!(
                harness = %shared.installed.id,
                instance = shared.number,
                "processes of an ended instance are not gone after {} s",
                REAP.as_secs()
            );
        }
    }
    drop(permit);
    let cause = shared.gone().await;
    shared.installed.instance_ended(shared, &cause);
    shared.finish();
}

fn store(
    shared: &Arc<Shared>,
    host: Arc<dyn InstanceHost>,
    ticks: Arc<AtomicU32>,
    native: Native,
) -> Store<Ctx> {
    let installed = &shared.installed;
    let limits = &installed.limits;
    let mut table = ResourceTable::new();
    table.set_max_capacity(limits.handles);
    let ctx = Ctx {
        table,
        wasi: wasi::empty(&installed.log, shared.number),
        limiter: StoreLimiter::new(limits.memory),
        shared: shared.clone(),
        host,
        state_calls: Arc::new(Semaphore::new(limits.pending_calls)),
        background_calls: Arc::new(Semaphore::new(limits.pending_calls)),
        native,
    };
    let mut store = Store::new(installed.engine.wasmtime(), ctx);
    store.limiter(|ctx| &mut ctx.limiter);
    store.set_hostcall_fuel(HOSTCALL_FUEL);
    store.set_max_component_handles(limits.handles);
    if let Some(table) = store.concurrent_resource_table() {
        table.set_max_capacity(limits.handles);
    }
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(cpu_slice(ticks, limits.cpu_slice));
    store
}

/// Yields at each tick, and ends the store when the guest has computed for `slice` since the event
/// loop last turned.
///
/// Ticks that the guest saw measure processor time, which is what it is granted. On a crowded
/// machine it sees few of them, so real time has a bound as well, a little later.
fn cpu_slice(
    ticks: Arc<AtomicU32>,
    slice: Duration,
) -> impl FnMut(StoreContextMut<'_, Ctx>) -> wasmtime::Result<UpdateDeadline> + Send + Sync + 'static
{
    let most = u32::try_from(slice.as_millis() / TICK.as_millis())
        .unwrap_or(u32::MAX)
        .max(1);
    let mut first = Instant::now();
    move |_| {
        let seen = ticks.fetch_add(1, Ordering::Relaxed);
        if seen == 0 {
            first = Instant::now();
        }
        if seen >= most || first.elapsed() >= slice + SLICE_GRACE {
            return Err(SliceUsedUp(slice.as_millis()).into());
        }
        Ok(UpdateDeadline::Yield(1))
    }
}

async fn body(
    store: &mut Store<Ctx>,
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    ticks: &AtomicU32,
    jobs: mpsc::UnboundedReceiver<Job>,
    purpose: Purpose,
) -> wasmtime::Result<EndCause> {
    // Start functions yield at every tick, so that this bound is looked at.
    let deadline = shared.installed.limits.describe_deadline;
    let installed = &shared.installed;
    let instance = installed.pre.instance_pre().instantiate_async(&mut *store);
    let Ok(instance) = tokio::time::timeout(deadline, instance).await else {
        return Ok(EndCause::SlowStart(deadline.as_millis()));
    };
    let instance = instance?;
    if matches!(purpose, Purpose::Describe(_)) {
        exports::check(store, &installed.pre, &instance)?;
    }
    let guest = Guest::new(instance, installed.exports.clone());
    store
        .run_concurrent(async |accessor| {
            let mut inner = pin!(serve(accessor, &guest, shared, link, jobs, purpose));
            // The event loop polls this whenever it turns: the heartbeat that ends a CPU slice.
            poll_fn(|cx| {
                ticks.store(0, Ordering::Relaxed);
                inner.as_mut().poll(cx)
            })
            .await
        })
        .await?
}

async fn serve(
    accessor: &Accessor<Ctx>,
    guest: &Guest,
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    purpose: Purpose,
) -> wasmtime::Result<EndCause> {
    if let Purpose::Describe(ready) = purpose {
        let _ = ready.send(guest.call_describe(accessor).await?);
        return Ok(EndCause::Disposed(AbortReason::Idle));
    }
    let handle = accessor.with(|mut a| a.get().table.push(LinkHandle(link.clone())))?;
    let mut run = pin!(guest.call_run(accessor, handle));
    let mut running = true;
    let mut lost = None;
    let mut calls = FuturesUnordered::new();
    poll_fn(|cx| {
        // `run` first, so that it is entered before any other call (N1).
        if running && let Poll::Ready(ended) = run.as_mut().poll(cx) {
            running = false;
            link.finish();
            match ended {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Err(error)) if shared.closing_reason().is_none() => {
                    lost = Some(disconnected(shared, error));
                }
                Ok(_) => {}
            }
        }
        while let Poll::Ready(Some(job)) = jobs.poll_recv(cx) {
            match job {
                Job::Call(call) => calls.push(call(accessor, guest)),
                Job::Wake => {}
            }
        }
        while let Poll::Ready(Some(ended)) = calls.poll_next_unpin(cx) {
            if let Err(error) = ended {
                return Poll::Ready(Err(error));
            }
        }
        if !running && calls.is_empty() && shared.may_leave() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    })
    .await?;
    Ok(lost.unwrap_or_else(|| {
        EndCause::Disposed(shared.closing_reason().unwrap_or(AbortReason::OwnerStopped))
    }))
}

/// `run` returned an error (N2): no new calls; those that run get the drain bound.
fn disconnected(shared: &Arc<Shared>, error: wit::Error) -> EndCause {
    let text = match convert::refusal(error, true, false) {
        CallError::Refused(refusal) => refusal.to_string(),
        other => other.to_string(),
    };
    let cause = EndCause::Disconnected(text);
    shared.refuse();
    shared.kill_after_drain(cause.clone());
    cause
}
