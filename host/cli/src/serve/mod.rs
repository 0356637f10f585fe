//! `harness serve`: the composition root. Store, engine, sessions and HTTP API are plugged together
//! here, started in an order in which each failure is told early, and ended in the reverse one.
//!
//! Invariants
//! - Nothing is served before interrupted sessions are restored and the configured providers are
//!   loaded; meanwhile the socket is bound already, so that clients wait and a port in use is told
//!   at once.
//! - A provider whose component or grants are wrong ends the start; one whose native harness is
//!   missing does not.
//! - After the first signal nothing new is admitted, every step of the end has a bound, and what
//!   was acknowledged is durable whether or not the steps finish.

mod announce;
mod collect;
mod files;
mod gauges;
mod listen;
mod signals;

use crate::args::{LogFormat, ServeArgs};
use crate::config::{self, Exposure, Settings};
use crate::data_dir::{Address, DataDir, Published};
use crate::embedded;
use crate::failure::{Failure, Kind};
use crate::snapshots::Snapshots;
use crate::telemetry::Telemetry;
use crate::token;
use announce::Announcement;
use anyhow::Context;
use axum_server::Handle;
use harness_api::{ApiParts, ApiState, Policy};
use harness_core::admin::ProviderAdmin;
use harness_engine::native::process::hide_from_programs;
use harness_engine::{ComponentSource, Engine, EngineConfig, ProviderSpec, Registry};
use harness_journal::{Catalog, PageRequest, SqliteOptions, SqliteStore, TokenScope};
use harness_session::{Always, Host, HostConfig, Parts};
use listen::Listener;
use signals::Signals;
use std::sync::Arc;
use std::time::Duration;

/// Requests under way have this long after the sessions have ended.
const DRAIN_REQUESTS: Duration = Duration::from_secs(5);
/// Instances and their processes have this long to end.
const DRAIN_INSTANCES: Duration = Duration::from_secs(10);
/// Length of a bootstrap token, in bytes.
const BOOTSTRAP: std::ops::RangeInclusive<usize> = 16..=512;

/// Serves until a signal ends it.
///
/// # Errors
/// Whatever keeps the host from starting, each with its remedy.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let settings = settings(args)?;
    let bootstrap = bootstrap()?;
    // Before the runtime: see the module of telemetry.
    let telemetry = Telemetry::start(args.log_format)?;
    if let Err(error) = hide_from_programs() {
        tracing::warn!(%error, "programs of providers can read the memory of the host");
    }
    files::raise_limit();
    let dir = DataDir::open(args.data.data_dir.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::take()?;
        let running = tokio::select! {
            running = Running::start(&settings, &dir, args.log_format, bootstrap.as_deref(), &telemetry) => running?,
            name = signals.next() => {
                tracing::info!(signal = name, "ended while starting");
                return Ok(());
            }
        };
        running.until_signal(&mut signals).await
    });
    // Blocking work that ignores its end must not hold the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    telemetry.finish();
    outcome
}

/// The file, with the flags over it.
fn settings(args: &ServeArgs) -> Result<Settings, Failure> {
    let mut settings = config::load(args.config.config.as_deref())?;
    if let Some(listen) = args.listen {
        settings.listen = listen;
    }
    if args.behind_proxy {
        if matches!(settings.exposure, Exposure::Tls(_)) {
            return Err(Failure::new(
                Kind::Configuration,
                "--behind-proxy and [server.tls] exclude each other\n    remedy: keep the one that ends TLS",
            ));
        }
        settings.exposure = Exposure::BehindProxy;
    }
    settings
        .check_exposure()
        .map_err(|refusal| Failure::new(Kind::Configuration, refusal))?;
    for file in &args.providers {
        let file =
            std::path::absolute(file).with_context(|| format!("{} is no path", file.display()))?;
        settings
            .providers
            .push(ProviderSpec::new(ComponentSource::File(file)));
    }
    if settings.providers.is_empty() {
        settings.providers.push(embedded::provider());
    }
    Ok(settings)
}

/// `HARNESS_TOKEN`, when it is set.
fn bootstrap() -> Result<Option<String>, Failure> {
    let token = match std::env::var("HARNESS_TOKEN") {
        Ok(token) if token.is_empty() => return Ok(None),
        Ok(token) => token,
        Err(std::env::VarError::NotPresent) => return Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => String::new(),
    };
    if BOOTSTRAP.contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(Some(token));
    }
    Err(Failure::new(
        Kind::Configuration,
        "HARNESS_TOKEN is not 16 to 512 visible ASCII characters\n    remedy: set it to a long random text, e.g. from `openssl rand -hex 32`",
    ))
}

/// A host that serves.
struct Running {
    host: Host,
    registry: Registry,
    store: SqliteStore,
    state: ApiState,
    stop: listen::Stop,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
    shutdown: Duration,
    published: Published,
}

impl Running {
    async fn start(
        settings: &Settings,
        dir: &DataDir,
        format: LogFormat,
        bootstrap: Option<&str>,
        telemetry: &Telemetry,
    ) -> Result<Self, Failure> {
        let store = SqliteStore::open(&SqliteOptions::new(dir.path()))
            .map_err(|e| Failure::store(dir.path(), &e))?;
        let listener = Listener::bind(settings).await?;
        let url = listener.url();
        let published = dir.publish(&Address {
            url: url.clone(),
            pid: std::process::id(),
        })?;

        let mut engine = EngineConfig::new(Some(dir.cache()), dir.host_key()?);
        (engine.compiles, engine.instances) = (settings.compiles, settings.instances);
        let workspace = match &settings.workspace_root {
            Some(root) => root.clone(),
            None => dir.workspace()?,
        };
        engine.detect_in = Some(workspace.clone());
        let engine = Engine::new(engine).context("the engine cannot start")?;
        let store_port = Arc::new(store.clone());
        let registry = Registry::new(engine, store_port.clone());
        load(&registry, &settings.providers).await?;

        let snapshots = Snapshots::open(&dir.snapshots(), vec![dir.path().to_owned()])
            .map_err(|error| Failure::snapshots(&dir.snapshots(), &error))?;
        let parts = Parts {
            drift: Arc::new(Always(settings.sessions.drift)),
            snapshots: Some(Arc::new(snapshots)),
            ..Parts::new(
                store_port.clone(),
                store_port.clone(),
                Arc::new(registry.clone()),
                host_config(settings),
            )
        };
        let host = Host::new(parts);
        let restored = host
            .recover(workspace)
            .await
            .map_err(|error| Failure::store(dir.path(), &error))?;
        let token = match bootstrap {
            Some(_) => None,
            None => first_token(&store)
                .await
                .map_err(|error| Failure::store(dir.path(), &error))?,
        };

        let metrics = telemetry.metrics();
        tokio::spawn(Telemetry::upkeep(metrics.clone()));
        tokio::spawn(collect::collect(host.clone()));
        let (measured, journal) = (host.clone(), store.clone());
        let state = ApiState::new(ApiParts {
            plane: Arc::new(host.clone()),
            providers: Arc::new(registry.clone()),
            policy: Policy::for_listener(listener.address())
                .with_hosts(settings.allowed_hosts.iter().cloned())
                .with_origins(settings.allowed_origins.iter().cloned()),
            bootstrap: bootstrap.map(harness_api::hash_token),
            metrics: Some(Arc::new(move || {
                gauges::set(&measured.load(), &journal.metrics());
                metrics.render()
            })),
            workspace_roots: settings.workspace_roots.clone(),
            join_trace: telemetry.join_trace(),
            max_body: None,
            ping: None,
        });
        let stop = Handle::new();
        let server = tokio::spawn(listener.serve(harness_api::router(state.clone()), stop.clone()));
        let reports = registry.reports();
        tracing::info!(%url, data_dir = %dir.path().display(), providers = reports.len(), restored, "the host is ready");
        if let Err(error) =
            Announcement::new(&url, dir.path(), token.as_deref(), &reports).print(format)
        {
            tracing::warn!(%error, "standard output is closed; nobody was told where the host is");
        }
        Ok(Self {
            host,
            registry,
            store,
            state,
            stop,
            server,
            shutdown: settings.sessions.shutdown,
            published,
        })
    }

    /// Serves until the first signal, then drains; a second signal ends the process.
    async fn until_signal(mut self, signals: &mut Signals) -> Result<(), Failure> {
        let name = tokio::select! {
            served = &mut self.server => {
                let why = match served {
                    Ok(Ok(())) => "it stopped".to_owned(),
                    Ok(Err(error)) => error.to_string(),
                    Err(error) => error.to_string(),
                };
                return Err(Failure::new(Kind::Failed, format_args!("the HTTP server failed: {why}")));
            }
            name = signals.next() => name,
        };
        tracing::info!(signal = name, "draining; a second signal ends at once");
        tokio::select! {
            () = self.drain() => Ok(()),
            never = signals.exit_at_next() => match never {},
        }
    }

    async fn drain(self) {
        if !self.host.shutdown().await {
            tracing::warn!(bound = ?self.shutdown, "sessions were still running and are left for the next start to restore");
        }
        // Only now: whoever follows a session has seen it end.
        self.state.close();
        self.stop.graceful_shutdown(Some(DRAIN_REQUESTS));
        let _ = self.server.await;
        if tokio::time::timeout(DRAIN_INSTANCES, self.registry.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("instances of providers were still ending and are dropped");
        }
        // Before the lock goes: afterwards the file may be another process's.
        drop(self.published);
        self.store.close().await;
        tracing::info!("ended");
    }
}

/// Loads all providers beside each other; the engine bounds how many compile at a time.
async fn load(registry: &Registry, specs: &[ProviderSpec]) -> Result<(), Failure> {
    let loads: Vec<_> = specs
        .iter()
        .map(|spec| {
            let (registry, spec) = (registry.clone(), spec.clone());
            tokio::spawn(async move {
                let component = spec.source.name();
                registry
                    .load(spec)
                    .await
                    .map_err(|error| format!("{component}: {error}"))
            })
        })
        .collect();
    let mut problems = Vec::new();
    for load in loads {
        match load.await {
            Ok(Ok(_)) => {}
            Ok(Err(problem)) => problems.push(problem),
            Err(error) => problems.push(error.to_string()),
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Configuration,
        format_args!(
            "{}\n    remedy: `harness provider inspect FILE.wasm` shows what a component asks for",
            crate::text::printable(&problems.join("\n"))
        ),
    ))
}

/// The first token of a fresh store; `None` when there is one already.
async fn first_token(store: &SqliteStore) -> Result<Option<String>, harness_journal::JournalError> {
    let any = store
        .tokens(PageRequest {
            limit: 1,
            cursor: None,
        })
        .await?;
    if !any.items.is_empty() {
        return Ok(None);
    }
    let scopes = [TokenScope::Read, TokenScope::Invoke, TokenScope::Admin];
    token::create(store, "admin", &scopes, &[])
        .await
        .map(|(_, secret)| Some(secret))
}

fn host_config(settings: &Settings) -> HostConfig {
    let sessions = &settings.sessions;
    HostConfig {
        slots: settings.slots,
        inbox: sessions.inbox,
        background_processes: sessions.background_processes,
        workspace_wait: settings.workspace_wait,
        instance_idle: sessions.instance_idle,
        park_after: sessions.park_after,
        draft_idle: sessions.draft_idle,
        drain: settings.drain,
        activity_life: settings.activity,
        native_turns: sessions.native_turns,
        native_turns_per_minute: sessions.native_turns_per_minute,
        link_messages_per_second: sessions.link_messages_per_second,
        shutdown: sessions.shutdown,
        gates: settings.gates,
        checkpoint: settings.checkpoint,
        ..HostConfig::default()
    }
}
