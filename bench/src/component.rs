//! What instances cost: starting one, loading code, memory (B4, B5, B6).

use crate::stack::planner;
use crate::{Row, median, memory};
use anyhow::{Context, Result};
use harness_core::abort::{AbortReason, AbortSignal};
use harness_core::content::NewMessage;
use harness_core::provider::{
    Activity, BoxFuture, ChannelError, DiscoveryContext, Harness, Harnesses, Instance,
    InstanceHost, InstanceScope, NativeTurn,
};
use harness_engine::{Engine, EngineConfig, HostKey, ProviderSpec, Registry};
use harness_journal::{SqliteOptions, SqliteStore};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::component::{
    Component, ComponentExportIndex, InstancePre, Linker, Resource, ResourceTable, ResourceType,
    Val,
};
use wasmtime::{Config, Store, StoreLimits, StoreLimitsBuilder, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

/// A draft instance's host: nothing is asked of it.
struct Nobody(DiscoveryContext);

impl InstanceHost for Nobody {
    fn context(&self) -> DiscoveryContext {
        self.0.clone()
    }
    fn announce_turn(&self, _: NativeTurn) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async { Err(ChannelError::Closed) })
    }
    fn append(&self, _: NewMessage) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async { Err(ChannelError::Closed) })
    }
    fn begin_activity(&self, _: String) -> Result<Box<dyn Activity>, ChannelError> {
        Err(ChannelError::Closed)
    }
    fn state_changed(&self) {}
}

fn context() -> Result<DiscoveryContext> {
    Ok(DiscoveryContext {
        project_id: "default".parse()?,
        session_id: None,
        native_session_id: None,
        workspace: None,
        model: None,
        effort: None,
        loop_mode: None,
        params: Default::default(),
    })
}

async fn open(harness: &Arc<dyn Harness>, context: &DiscoveryContext) -> Result<Arc<dyn Instance>> {
    let scope = InstanceScope::Draft {
        project: context.project_id.clone(),
        workspace: None,
    };
    let instance = harness
        .open(scope, Arc::new(Nobody(context.clone())))
        .await?;
    instance
        .get_command_state(context.clone(), AbortSignal::never())
        .await?;
    Ok(instance)
}

/// What a bare host keeps for a store.
struct Data {
    wasi: WasiCtx,
    table: ResourceTable,
    limits: StoreLimits,
}

impl WasiView for Data {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

/// The host's side of the two resources that a discovery passes around.
struct Discovery;
struct Abort;

/// The floor of B4: wasmtime alone. The host's engine configuration and the bounds of its stores,
/// `InstancePre`, and the same first call, which the guest answers with the same one import.
/// Nobody watches it, no task owns it, `run` is not started, and every other import traps.
struct Bare {
    engine: wasmtime::Engine,
    pre: InstancePre<Data>,
    call: ComponentExportIndex,
}

impl Bare {
    fn new() -> wasmtime::Result<Self> {
        const HOST: &str = "harness:provider/host@0.1.0";
        let mut config = Config::new();
        config
            .epoch_interruption(true)
            .wasm_component_model_async(true)
            .wasm_component_model_async_stackful(false)
            .memory_init_cow(true);
        let engine = wasmtime::Engine::new(&config)?;
        let component = Component::from_file(&engine, harness_test_guests::PROVIDER_HELLO)?;
        let mut linker: Linker<Data> = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        wasmtime_wasi::p3::add_to_linker(&mut linker)?;
        let mut host = linker.instance(HOST)?;
        host.resource(
            "discovery",
            ResourceType::host::<Discovery>(),
            |_, _| Ok(()),
        )?;
        host.resource("abort-signal", ResourceType::host::<Abort>(), |_, _| Ok(()))?;
        host.func_wrap(
            "[method]discovery.abort",
            |_, (_,): (Resource<Discovery>,)| Ok((Resource::<Abort>::new_own(0),)),
        )?;
        linker.define_unknown_imports_as_traps(&component)?;
        let pre = linker.instantiate_pre(&component)?;
        let missing = || wasmtime::Error::msg("the component is no provider");
        let provider = component
            .get_export_index(None, "harness:provider/provider@0.1.0")
            .ok_or_else(missing)?;
        let call = component
            .get_export_index(Some(&provider), "get-command-state")
            .ok_or_else(missing)?;
        Ok(Self { engine, pre, call })
    }

    /// One store, one instance, one call.
    async fn round(&self) -> wasmtime::Result<Duration> {
        let start = Instant::now();
        let data = Data {
            wasi: WasiCtxBuilder::new().build(),
            table: ResourceTable::new(),
            limits: StoreLimitsBuilder::new().memory_size(256 << 20).build(),
        };
        let mut store = Store::new(&self.engine, data);
        store.limiter(|data| &mut data.limits);
        store.set_hostcall_fuel(32 << 20);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
        let instance = self.pre.instantiate_async(&mut store).await?;
        let call = instance
            .get_func(&mut store, self.call)
            .ok_or_else(|| wasmtime::Error::msg("get-command-state is no function"))?;
        let request = Resource::<Discovery>::new_own(0).try_into_resource_any(&mut store)?;
        let mut answer = [Val::Bool(false)];
        store
            .run_concurrent(async |accessor| {
                call.call_concurrent(accessor, &[Val::Resource(request)], &mut answer)
                    .await
            })
            .await??;
        let took = start.elapsed();
        let [Val::Result(Ok(_))] = answer else {
            return Err(wasmtime::Error::msg("the call failed"));
        };
        Ok(took)
    }
}

/// B4: instantiate and first call, ours against bare.
pub(crate) async fn instantiate(dir: &Path, rounds: usize) -> Result<Row> {
    let bare = |e: wasmtime::Error| anyhow::anyhow!("bare wasmtime: {e:?}");
    let floor = Bare::new().map_err(bare)?;
    let (registry, _store) = registry(
        dir,
        "b4",
        ProviderSpec::new(harness_engine::ComponentSource::File(
            harness_test_guests::PROVIDER_HELLO.into(),
        )),
    )
    .await?;
    let harness = registry.list().into_iter().next().context("no harness")?;
    let context = context()?;
    // In a task, as a session's work is, and by turns, so that both meet the same machine.
    let work = tokio::spawn(async move {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            theirs.push(floor.round().await.map_err(bare)?);
            let start = Instant::now();
            let instance = open(&harness, &context).await?;
            ours.push(start.elapsed());
            instance.dispose(AbortReason::Idle).await;
        }
        Ok::<_, anyhow::Error>((median(theirs), median(ours)))
    });
    let (floor, ours) = work.await??;
    Ok(Row::at_most(
        "B4",
        "instantiate + first call / bare InstancePre",
        ours.as_secs_f64() / floor.as_secs_f64(),
        1.5,
    )
    .note(format!("{ours:.1?} / {floor:.1?}")))
}

async fn registry(dir: &Path, name: &str, spec: ProviderSpec) -> Result<(Registry, SqliteStore)> {
    let store = SqliteStore::open(&SqliteOptions::new(dir.join(name)))?;
    let engine = Engine::new(EngineConfig::new(
        Some(dir.join("cache")),
        HostKey::new([7; 32]),
    ))?;
    let registry = Registry::new(engine, Arc::new(store.clone()));
    registry.load(spec).await?;
    Ok((registry, store))
}

/// B5: the time to load with and without the compile cache.
pub(crate) async fn load(dir: &Path) -> Result<Row> {
    let time = |name: &'static str| async move {
        let start = Instant::now();
        let (registry, store) = registry(dir, name, planner()).await?;
        let loaded = start.elapsed();
        let report = registry.list().len();
        registry.shutdown().await;
        store.close().await;
        anyhow::ensure!(report == 1, "one harness is loaded");
        Ok::<_, anyhow::Error>(loaded)
    };
    // Code alone: what the engine reports is the whole load, description included.
    let cold = time("b5-cold").await?;
    let mut warm = Vec::new();
    for name in ["b5-w1", "b5-w2", "b5-w3", "b5-w4", "b5-w5"] {
        warm.push(time(name).await?);
    }
    let warm = median(warm);
    Ok(Row::at_least(
        "B5",
        "load compiling / load from the cache",
        cold.as_secs_f64() / warm.as_secs_f64(),
        20.0,
    )
    .note(format!(
        "{cold:.1?} / {warm:.1?}, engine and store included"
    )))
}

/// B6: memory of live instances above the module itself.
pub(crate) async fn live_instances(dir: &Path, n: usize) -> Result<Row> {
    let (registry, _store) = registry(dir, "b6", planner()).await?;
    let harness = registry.list().into_iter().next().context("no harness")?;
    let context = context()?;
    let warm = open(&harness, &context).await?;
    let before = memory()?;
    let mut kept = Vec::with_capacity(n);
    for _ in 0..n {
        kept.push(open(&harness, &context).await?);
    }
    let each = memory()?.saturating_sub(before) as f64 / n as f64 / 1024.0;
    for instance in kept.into_iter().chain([warm]) {
        instance.dispose(AbortReason::Idle).await;
    }
    Ok(Row::at_most("B6", "KiB a live instance (200)", each, 200.0))
}
