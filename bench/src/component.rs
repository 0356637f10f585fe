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
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Config, Store};
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

struct Bare {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for Bare {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

/// Bare wasmtime: one store, one instance, one call of `describe`.
async fn bare(rounds: usize) -> wasmtime::Result<Duration> {
    let mut config = Config::new();
    config
        .wasm_component_model_async(true)
        .epoch_interruption(true);
    let engine = wasmtime::Engine::new(&config)?;
    let component = Component::from_file(&engine, harness_test_guests::PROVIDER_HELLO)?;
    let mut linker: Linker<Bare> = Linker::new(&engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    linker.allow_shadowing(true);
    linker.define_unknown_imports_as_traps(&component)?;
    let pre = linker.instantiate_pre(&component)?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        let data = Bare {
            wasi: WasiCtxBuilder::new().build(),
            table: ResourceTable::new(),
        };
        let mut store = Store::new(&engine, data);
        store.set_epoch_deadline(u64::MAX / 2);
        let instance = pre.instantiate_async(&mut store).await?;
        let provider = instance
            .get_export_index(&mut store, None, "harness:provider/provider@0.1.0")
            .ok_or_else(|| wasmtime::Error::msg("no provider export"))?;
        let describe = instance
            .get_export_index(&mut store, Some(&provider), "describe")
            .ok_or_else(|| wasmtime::Error::msg("no describe"))?;
        let describe = instance
            .get_func(&mut store, describe)
            .ok_or_else(|| wasmtime::Error::msg("describe is no function"))?;
        let mut results = vec![wasmtime::component::Val::Bool(false)];
        describe.call_async(&mut store, &[], &mut results).await?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

/// B4: instantiate and first call, ours against bare.
pub(crate) async fn instantiate(dir: &Path, rounds: usize) -> Result<Row> {
    let floor = bare(rounds)
        .await
        .map_err(|e| anyhow::anyhow!("bare wasmtime: {e:?}"))?;
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
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        let instance = open(&harness, &context).await?;
        times.push(start.elapsed());
        instance.dispose(AbortReason::Idle).await;
    }
    let ours = median(times);
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
