//! The driver task: the only code that touches a store.
//!
//! It instantiates, describes, starts `run` and then turns the store's event loop, adding calls as
//! they arrive. A second task oversees it, so that a host panic in here ends one instance only.

use super::ctx::Ctx;
use super::end::{EndCause, SliceUsedUp, classify};
use super::job::Job;
use super::limiter::StoreLimiter;
use super::live::Live;
use super::meter::{Meter, Metered};
use super::shared::Shared;
use crate::bindings::exports::harness::provider::provider::Guest;
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::engine::{InstancePermit, TICK};
use crate::imports::link::{Link, LinkHandle};
use crate::imports::{Native, wasi};
use crate::installed::Installed;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use harness_core::abort::AbortReason;
use harness_core::operation::MAX_REASON;
use harness_core::provider::{CallError, InstanceHost, InstanceScope};
use std::future::{Future, poll_fn};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To serve: `run` is started.
    Serve,
    /// To describe itself and end (N1: no `run`).
    Describe,
}

/// A fresh instance, described; with [`Purpose::Serve`], `run` is started before any other call.
pub(crate) async fn start(
    installed: Arc<Installed>,
    permit: InstancePermit,
    scope: InstanceScope,
    host: Arc<dyn InstanceHost>,
    purpose: Purpose,
) -> Result<(Live, wit::HarnessInfo), CallError> {
    let runtime = tokio::runtime::Handle::current();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let (shared, jobs) = Shared::new(number, installed.clone(), scope, runtime.clone());
    let (ready, described) = oneshot::channel();
    let native = installed.native();
    let driver = drive(shared.clone(), host, native, jobs, ready, purpose);
    let processes = driver.processes.clone();
    installed.track(&shared);
    // From here on a drop of this future closes the instance.
    let live = Live::new(shared.clone());
    runtime.spawn(oversee(
        shared.clone(),
        tokio::spawn(driver.future),
        processes,
        permit,
    ));
    let deadline = installed.limits.describe_deadline;
    let info = tokio::select! {
        biased;
        info = described => match info {
            Ok(info) => info,
            Err(_) => return Err(shared.gone().await.call_error()),
        },
        cause = shared.gone() => return Err(cause.call_error()),
        () = tokio::time::sleep(deadline) => {
            shared.kill(EndCause::Slow("describe"));
            return Err(CallError::Timeout(format!("no answer to `describe` within {} ms", deadline.as_millis())));
        }
    };
    Ok((live, info))
}

struct Driver<F> {
    future: F,
    processes: Option<crate::native::process::Processes>,
}

fn drive(
    shared: Arc<Shared>,
    host: Arc<dyn InstanceHost>,
    native: Native,
    jobs: mpsc::UnboundedReceiver<Job>,
    ready: oneshot::Sender<wit::HarnessInfo>,
    purpose: Purpose,
) -> Driver<impl Future<Output = ()> + Send> {
    let processes = native.processes.clone();
    let http = native.http.clone();
    let ended = processes.clone();
    let future = async move {
        let link = Arc::new(Link::new(host.clone(), &shared));
        let ticks = Arc::new(AtomicU32::new(0));
        let mut store = store(&shared, host, ticks.clone(), native);
        let limits = &shared.installed.limits;
        let cause = {
            let body = body(&mut store, &shared, &link, &ticks, jobs, ready, purpose);
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
        if let Some(processes) = ended {
            processes.close();
        }
        if let Some(http) = http {
            http.close();
        }
        drop(store);
    };
    Driver { future, processes }
}

/// Sees the driver end, whichever way, and then its processes.
async fn oversee(
    shared: Arc<Shared>,
    driver: tokio::task::JoinHandle<()>,
    processes: Option<crate::native::process::Processes>,
    permit: InstancePermit,
) {
    if let Err(error) = driver.await {
        shared.kill(EndCause::Panic(convert::cut(error.to_string(), MAX_REASON)));
    }
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
    shared.installed.instance_ended(&shared, &cause);
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
    ready: oneshot::Sender<wit::HarnessInfo>,
    purpose: Purpose,
) -> wasmtime::Result<EndCause> {
    let instance = shared.installed.pre.instantiate_async(&mut *store).await?;
    let guest = instance.harness_provider_provider().clone();
    store
        .run_concurrent(async |accessor| {
            let mut inner = pin!(serve(accessor, &guest, shared, link, jobs, ready, purpose));
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
    ready: oneshot::Sender<wit::HarnessInfo>,
    purpose: Purpose,
) -> wasmtime::Result<EndCause> {
    let info = guest.call_describe(accessor).await?;
    if ready.send(info).is_err() || purpose == Purpose::Describe {
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
