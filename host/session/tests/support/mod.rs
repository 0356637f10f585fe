//! A host over a real store and scripted harnesses, and the verbs that tests are written in.

pub mod decider;
pub mod instance;
pub mod logs;
pub mod probe;
pub mod program;
pub mod seat;
pub mod vault;

use decider::Decider;
use harness_core::ids::{ProjectId, SessionId, WorkspaceId};
use harness_core::provider::Params;
use harness_core::refusal::Refused;
use harness_journal::fault::FaultJournal;
use harness_journal::{Journal, Project, SqliteOptions, SqliteStore, Workspace, WorkspaceState};
use harness_journal::{SessionFilter, WorkspaceTarget};
use harness_session::{
    Caller, CreateRequest, Created, DraftRequest, First, GateHost, Hook, Host, HostConfig, Parts,
    SessionObserver,
};
use probe::{Probe, Shelf};
pub use seat::{Seat, code, command, fixed_key};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use vault::Vault;

/// Waits for what must come; after 20 s of real time the test fails and says what did not. Real
/// time, so that it works under a paused clock too.
pub async fn patient<F: Future>(what: &str, future: F) -> F::Output {
    let (late, too_late) = tokio::sync::oneshot::channel();
    let (_alive, dead) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let timeout = dead.recv_timeout(Duration::from_secs(20));
        if timeout == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = late.send(());
        }
    });
    tokio::select! {
        biased;
        output = future => output,
        Ok(()) = too_late => panic!("{what} did not come"),
    }
}

/// Waits until something holds, for what has no event to wait on.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    patient(what, async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Records hooks.
#[derive(Default)]
pub struct Hooks(pub Mutex<Vec<(&'static str, Hook)>>);

impl Hooks {
    pub fn names(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().iter().map(|(n, _)| *n).collect()
    }
}

impl SessionObserver for Hooks {
    fn started(&self, hook: &Hook) {
        self.0.lock().unwrap().push(("started", hook.clone()));
    }

    fn resumed(&self, hook: &Hook) {
        self.0.lock().unwrap().push(("resumed", hook.clone()));
    }
}

/// A host, its store and its harnesses.
pub struct World {
    pub host: Host,
    pub gates: GateHost,
    pub probe: Arc<Probe>,
    pub other: Arc<Probe>,
    pub shelf: Arc<Shelf>,
    pub hooks: Arc<Hooks>,
    pub decider: Arc<Decider>,
    pub vault: Arc<Vault>,
    pub faults: FaultJournal,
    pub store: SqliteStore,
    pub config: HostConfig,
    pub dir: TempDir,
    /// Keeps a paused clock from running ahead on its own.
    _still: Option<std::sync::mpsc::Sender<()>>,
}

impl World {
    /// One execution slot, everything else as by default.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut HostConfig)) -> Self {
        let mut config = HostConfig {
            slots: 1,
            ..HostConfig::default()
        };
        change(&mut config);
        let dir = TempDir::new().unwrap();
        let (probe, other) = (Probe::new("demo/probe"), Probe::new("demo/other"));
        let shelf = Arc::new(Shelf::default());
        shelf.put(&probe);
        shelf.put(&other);
        let (decider, vault) = (Arc::default(), Vault::new());
        Self::open(
            dir,
            config,
            probe,
            other,
            shelf,
            (decider, vault),
            None,
            |_| {},
        )
        .await
    }

    /// As [`World::with`] under a paused clock, which then moves by [`forward`] alone: store
    /// threads are waited for in real time.
    pub async fn still(change: impl FnOnce(&mut HostConfig)) -> Self {
        let (still, hold) = std::sync::mpsc::channel::<()>();
        // The clock does not advance by itself while a blocking task runs.
        tokio::task::spawn_blocking(move || hold.recv());
        let mut world = Self::with(change).await;
        world._still = Some(still);
        world
    }

    #[expect(clippy::too_many_arguments, reason = "what a world is made of")]
    async fn open(
        dir: TempDir,
        config: HostConfig,
        probe: Arc<Probe>,
        other: Arc<Probe>,
        shelf: Arc<Shelf>,
        (decider, vault): (Arc<Decider>, Arc<Vault>),
        still: Option<std::sync::mpsc::Sender<()>>,
        plan: impl FnOnce(&FaultJournal),
    ) -> Self {
        let store = SqliteStore::open(&SqliteOptions::new(dir.path().join("data"))).unwrap();
        let faults = FaultJournal::new(Arc::new(store.clone()));
        plan(&faults);
        let hooks = Arc::new(Hooks::default());
        let (host, gates) = Host::with_gate_host(Parts {
            observer: hooks.clone(),
            drift: decider.clone(),
            snapshots: Some(vault.clone()),
            ..Parts::new(
                Arc::new(faults.clone()),
                Arc::new(store.clone()),
                shelf.clone(),
                config.clone(),
            )
        });
        let root = dir.path().join("work");
        let world = Self {
            host,
            gates,
            probe,
            other,
            shelf,
            hooks,
            decider,
            vault,
            faults,
            store,
            config,
            dir,
            _still: still,
        };
        world.host.recover(root).await.unwrap();
        let catalog = world.host.catalog().clone();
        patient("a ready workspace", async {
            let id: WorkspaceId = "default".parse().unwrap();
            while catalog.workspace(id.clone()).await.unwrap().unwrap().state
                != WorkspaceState::Ready
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
        world
    }

    /// The process dies here and a new one comes up over the same store.
    pub async fn restart(self) -> Self {
        self.restart_with(|_| {}).await
    }

    /// As [`World::restart`], with a store that fails as planned.
    pub async fn restart_with(self, plan: impl FnOnce(&FaultJournal)) -> Self {
        // What the dead process still does reaches neither store nor provider.
        self.faults.hold();
        for probe in [&self.probe, &self.other] {
            for instance in std::mem::take(&mut *probe.instances.lock().unwrap()) {
                instance.reap();
            }
        }
        self.store.close().await;
        let Self {
            dir,
            config,
            probe,
            other,
            shelf,
            decider,
            vault,
            _still,
            ..
        } = self;
        Self::open(
            dir,
            config,
            probe,
            other,
            shelf,
            (decider, vault),
            _still,
            plan,
        )
        .await
    }

    /// A draft on the first harness and the default workspace.
    pub fn draft(&self) -> DraftRequest {
        DraftRequest {
            project_id: "default".parse().unwrap(),
            agent: self.probe.harness_id(),
            workspace_id: None,
            model: None,
            params: Params::new(),
        }
    }

    pub fn request(&self, first: First) -> CreateRequest {
        CreateRequest {
            draft: self.draft(),
            title: "A session".into(),
            first,
        }
    }

    /// Creates in the background.
    pub fn create(&self, first: First) -> tokio::task::JoinHandle<Result<Created, Refused>> {
        self.create_as(Caller::default(), self.request(first))
    }

    pub fn create_as(
        &self,
        caller: Caller,
        request: CreateRequest,
    ) -> tokio::task::JoinHandle<Result<Created, Refused>> {
        let host = self.host.clone();
        let never = harness_core::abort::AbortSignal::never();
        tokio::spawn(async move { host.create(caller, request, never).await })
    }

    /// A first operation.
    pub fn first(text: &str) -> First {
        First::Operation {
            operation: command(text),
            expected_revision: None,
        }
    }

    /// A session that is idle after a first control.
    pub async fn idle(&self) -> Seat {
        let created = self.create(Self::first("/c first"));
        self.probe.invokes.next().await.completes("");
        let created = joined(created).await.unwrap();
        self.seat(created.session.id)
    }

    pub fn seat(&self, id: SessionId) -> Seat {
        Seat {
            host: self.host.clone(),
            id,
        }
    }

    /// Nothing holds a slot, and no more can be had than there are.
    pub async fn pool_is_whole(&self) {
        let (host, slots) = (self.host.clone(), self.config.slots);
        until("a whole slot pool", || host.free_slots() == slots).await;
    }

    /// Every session of the store, by its row.
    pub async fn listed(&self) -> Vec<SessionId> {
        let page = self.host.sessions(SessionFilter::default()).await.unwrap();
        page.items.into_iter().map(|row| row.id).collect()
    }

    /// Whether these bytes are anywhere in the store's files.
    pub fn stored_anywhere(&self, needle: &str) -> bool {
        let files = std::fs::read_dir(self.dir.path().join("data")).unwrap();
        files.into_iter().any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
            bytes
                .windows(needle.len())
                .any(|window| window == needle.as_bytes())
        })
    }

    /// A project with one workspace of its own, in that state.
    pub async fn workspace(&self, id: &str, target: WorkspaceTarget, state: WorkspaceState) {
        let project_id: ProjectId = "default".parse().unwrap();
        let id: WorkspaceId = id.parse().unwrap();
        let workspace = Workspace {
            id,
            project_id,
            target,
            state,
        };
        let catalog = self.host.catalog();
        catalog.create_workspace(workspace).await.unwrap();
    }

    /// A project without a default workspace.
    pub async fn project(&self, id: &str) {
        let project = Project {
            id: id.parse().unwrap(),
            name: id.into(),
            default_workspace_id: None,
        };
        self.host.create_project(project, None).await.unwrap();
    }

    /// Records of a journal by kind, as the store holds them.
    pub async fn kinds(&self, id: SessionId) -> Vec<harness_journal::RecordKind> {
        let page = self.store.read(id, 1, 1000).await.unwrap();
        page.records.iter().map(|r| r.kind).collect()
    }
}

/// The output of a task that must end.
pub async fn joined<T>(task: tokio::task::JoinHandle<T>) -> T {
    patient("the end of a task", task).await.unwrap()
}

/// Moves a paused clock in steps, so that what each timer sets going is done before the next.
pub async fn forward(by: Duration) {
    let steps = 20;
    // Timers of tasks that were just spawned begin before the clock moves.
    breathe().await;
    for _ in 0..steps {
        tokio::time::advance(by / steps).await;
        breathe().await;
    }
}

/// Lets every task do what it can do now, store threads included, without moving the clock.
pub async fn breathe() {
    for _ in 0..3 {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
