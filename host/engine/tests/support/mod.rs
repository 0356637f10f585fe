//! The session's side of the port, scripted, and the guests to run against it.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses a part of it"
)]

mod delegation;
mod guests;
mod host;
mod machine;
mod store;

pub(crate) use delegation::TestDelegation;
pub(crate) use guests::puppet;
pub(crate) use host::{Gate, TestBackground, TestChannel, TestHost};
pub(crate) use machine::{alone, shared};
pub(crate) use store::MemoryState;

use bytes::Bytes;
use harness_core::abort::AbortSignal;
use harness_core::content::Part;
use harness_core::ids::{CommandId, HarnessId, LoopId, ProjectId, SessionId};
use harness_core::operation::{CommandState, Execution, Operation};
use harness_core::provider::InputOrigin;
use harness_core::provider::{
    CallError, DiscoveryContext, Harnesses, Instance, InstanceHost, InstanceScope, Invocation,
    OperationContext, Outcome, Params, Prepared, PromptInput, Started,
};
use harness_engine::{
    ComponentSource, Engine, EngineConfig, HostKey, HttpGrant, Limits, ProcessCwd, ProcessGrant,
    ProviderSpec, Registry, Secret, StateGrant,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Bounds short enough for tests and long enough for a busy machine.
pub(crate) fn limits() -> Limits {
    Limits {
        memory: 64 * 1024 * 1024,
        describe_deadline: Duration::from_secs(10),
        discover_deadline: Duration::from_millis(1000),
        detect_deadline: Duration::from_millis(1500),
        prepare_deadline: Duration::from_millis(1000),
        discard_deadline: Duration::from_millis(500),
        invoke_deadline: Duration::from_millis(1500),
        compact_deadline: Duration::from_millis(1500),
        drain: Duration::from_millis(500),
        inactivity: Duration::from_millis(800),
        cpu_slice: Duration::from_millis(500),
        failures: 1000,
        backoff: Duration::ZERO,
        backoff_max: Duration::ZERO,
        ..Limits::default()
    }
}

/// An engine without a cache.
pub(crate) fn engine() -> Engine {
    Engine::new(EngineConfig::new(None, HostKey::new([7; 32]))).unwrap()
}

/// The puppet with `config`.
pub(crate) fn spec(config: &[(&str, &str)]) -> ProviderSpec {
    let bytes: Bytes = puppet();
    let mut spec = ProviderSpec::new(ComponentSource::Bytes {
        name: "puppet".into(),
        bytes,
    });
    spec.config = config
        .iter()
        .map(|&(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    spec.limits = limits();
    spec.grants.state = Some(StateGrant { max_bytes: 1024 });
    let cat = ProcessGrant {
        background: false,
        command: vec!["cat".into()],
        env: [("PATH".to_owned(), Secret::new("/usr/bin:/bin"))].into(),
        cwd: ProcessCwd::Path("/".into()),
    };
    spec.grants.process.insert("cat".to_owned(), cat);
    spec.grants
        .http
        .insert("http://127.0.0.1:9".to_owned(), HttpGrant::default());
    spec
}

/// A provider and all that is needed to drive it.
pub(crate) struct Bench {
    pub(crate) registry: Registry,
    pub(crate) id: HarnessId,
    pub(crate) host: Arc<TestHost>,
    pub(crate) state: Arc<MemoryState>,
    _machine: machine::Held,
}

impl Bench {
    pub(crate) async fn new(config: &[(&str, &str)]) -> Self {
        Self::with(spec(config)).await
    }

    pub(crate) async fn with(spec: ProviderSpec) -> Self {
        let machine = machine::shared();
        let state = Arc::new(MemoryState::default());
        let registry = Registry::new(shared_engine(), state.clone());
        let report = registry.load(spec).await.unwrap();
        Self {
            registry,
            id: report.id,
            host: Arc::new(TestHost::new(true)),
            state,
            _machine: machine,
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Instance> {
        self.try_open().await.unwrap()
    }

    pub(crate) async fn try_open(&self) -> Result<Arc<dyn Instance>, CallError> {
        self.registry
            .get(&self.id)
            .unwrap()
            .open(scope(), self.host.clone())
            .await
    }

    pub(crate) async fn open_draft(&self) -> Arc<dyn Instance> {
        let scope = InstanceScope::Draft {
            project: project(),
            workspace: None,
        };
        let host: Arc<dyn InstanceHost> = Arc::new(TestHost::new(false));
        self.registry
            .get(&self.id)
            .unwrap()
            .open(scope, host)
            .await
            .unwrap()
    }
}

/// One engine for all tests of a binary, so that the component is compiled once.
pub(crate) fn shared_engine() -> Engine {
    static ENGINE: std::sync::OnceLock<(Engine, tempfile::TempDir)> = std::sync::OnceLock::new();
    let (engine, _) = ENGINE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = EngineConfig::new(Some(dir.path().join("cache")), HostKey::new([7; 32]));
        if let Some(binary) = option_env!("CARGO_BIN_EXE_native-host") {
            config.supervisor = harness_engine::native::process::Supervisor::binary(binary);
        }
        (Engine::new(config).unwrap(), dir)
    });
    engine.clone()
}

pub(crate) fn project() -> ProjectId {
    "default".parse().unwrap()
}

pub(crate) fn session() -> SessionId {
    SessionId(Uuid::from_u128(5))
}

pub(crate) fn scope() -> InstanceScope {
    InstanceScope::Loop {
        project: project(),
        session: session(),
        loop_id: LoopId(Uuid::from_u128(6)),
    }
}

pub(crate) fn command_id() -> CommandId {
    CommandId(Uuid::from_u128(7))
}

pub(crate) fn context() -> OperationContext {
    OperationContext {
        project_id: project(),
        session_id: session(),
        loop_id: LoopId(Uuid::from_u128(6)),
        native_session_id: None,
        workspace: None,
        model: None,
        effort: None,
        loop_mode: None,
        params: Params::new(),
    }
}

/// A discovery whose steps are `script`.
pub(crate) async fn discover(
    instance: &dyn Instance,
    script: &str,
) -> Result<Option<CommandState>, CallError> {
    instance
        .get_command_state(discovery(script), AbortSignal::never())
        .await
}

pub(crate) fn discovery(script: &str) -> DiscoveryContext {
    DiscoveryContext {
        project_id: project(),
        session_id: Some(session()),
        native_session_id: None,
        workspace: None,
        model: Some(script.to_owned()),
        effort: None,
        loop_mode: None,
        params: Params::new(),
    }
}

pub(crate) async fn prepare(instance: &dyn Instance, script: &str) -> Result<Prepared, CallError> {
    let operation = Operation::Command {
        text: script.to_owned(),
    };
    instance
        .prepare(context(), operation, AbortSignal::never())
        .await
}

/// Prepares and invokes a control whose steps are `script`.
pub(crate) async fn control(
    instance: &dyn Instance,
    channel: &Arc<TestChannel>,
    script: &str,
) -> Result<Invocation, CallError> {
    let prepared = prepare(instance, &format!("nothing|{script}")).await?;
    assert_eq!(prepared.execution, Execution::Control);
    instance
        .invoke(prepared, command_id(), channel.clone())
        .await
}

/// What a completed invocation replied.
pub(crate) fn reply(invocation: Result<Invocation, CallError>) -> String {
    match invocation.unwrap() {
        Invocation::Completed(Outcome { message, .. }) => message.unwrap_or_default(),
        Invocation::Started(_) => panic!("it started a turn"),
    }
}

pub(crate) fn prompt(script: &str) -> PromptInput {
    PromptInput {
        command_id: command_id(),
        origin: InputOrigin::User,
        parts: vec![Part::Text {
            text: script.to_owned(),
        }],
    }
}

pub(crate) async fn start(
    instance: &dyn Instance,
    channel: &Arc<TestChannel>,
    script: &str,
) -> Result<Started, CallError> {
    instance.start_prompt(prompt(script), channel.clone()).await
}

/// A turn whose `done` runs `script`.
pub(crate) async fn turn(
    instance: &dyn Instance,
    channel: &Arc<TestChannel>,
    script: &str,
) -> Result<Outcome, CallError> {
    let started = start(instance, channel, script).await?;
    instance.done(started).await
}

/// Runs `call` and checks how long it took. The test has the machine [`alone`].
pub(crate) async fn within<T>(most: Duration, call: impl Future<Output = T>) -> T {
    assert!(
        machine::is_alone(),
        "a test that measures begins with alone()"
    );
    let (start, stalls) = (Instant::now(), machine::Stalls::watch());
    let result = call.await;
    let (took, stalled) = (start.elapsed(), stalls.sum());
    assert!(
        took <= most + stalled,
        "took {took:?}, allowed are {most:?}; the machine stood still for {stalled:?}"
    );
    result
}

/// The error of a call that must fail. (`Prepared` and `Started` have no `Debug`.)
pub(crate) fn error<T>(result: Result<T, CallError>) -> CallError {
    match result {
        Ok(_) => panic!("the call succeeded"),
        Err(error) => error,
    }
}

/// Waits until `condition` holds; fails after ten seconds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
