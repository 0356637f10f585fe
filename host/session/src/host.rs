//! The session layer as its clients see it: everything an HTTP client can do exists here (S37).

use crate::actor::{Actor, Msg, Source};
use crate::config::HostConfig;
use crate::deps::Deps;
use crate::directory::Directory;
use crate::drafts::Drafts;
use crate::drift::{DriftDecider, default_decider};
use crate::gate_host::GateHost;
use crate::handle::Handle;
use crate::observer::{NoObserver, SessionObserver};
use crate::slots::Slots;
use crate::surroundings::{Machine, Surroundings};
use crate::unrestorable::Unrestorable;
use crate::workplaces::Workplaces;
use crate::workspaces;
use dashmap::DashMap;
use harness_core::ids::{ProjectId, SessionId};
use harness_core::provider::{Harness, Harnesses, ProviderState};
use harness_core::refusal::Refused;
use harness_core::view::Status;
use harness_core::workspace::SnapshotStore;
use harness_journal::{
    Catalog, Journal, JournalError, PageRequest, Project, Workspace, WorkspaceState,
    WorkspaceTarget,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::broadcast;

/// Rows a list reader may be behind before it skips some.
const ROWS: usize = 1024;

/// What a host is made of.
pub struct Parts {
    /// The journal of all sessions.
    pub journal: Arc<dyn Journal>,
    /// Projects, workspaces, tokens, rules.
    pub catalog: Arc<dyn Catalog>,
    /// Installed harnesses.
    pub harnesses: Arc<dyn Harnesses>,
    /// Settings.
    pub config: HostConfig,
    /// Snapshots of workspaces; `None`: this host keeps none.
    pub snapshots: Option<Arc<dyn SnapshotStore>>,
    /// Lifecycle hooks.
    pub observer: Arc<dyn SessionObserver>,
    /// Decides over sessions whose configuration drifted.
    pub drift: Arc<dyn DriftDecider>,
    /// Time and ids.
    pub surroundings: Arc<dyn Surroundings>,
    /// A defect to switch on.
    #[cfg(feature = "planted-faults")]
    pub planted: Option<crate::planted::Planted>,
}

/// What a host is busy with, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostLoad {
    /// Execution slots there are.
    pub slots: usize,
    /// Execution slots that are held.
    pub slots_used: usize,
    /// Sessions in memory; every other one is parked.
    pub sessions_live: usize,
    /// Sessions that run a turn or a control, or wait for a person in one.
    pub sessions_running: usize,
    /// Approvals and questions that wait for a person.
    pub open_gates: usize,
}

/// The session layer of a host. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) deps: Arc<Deps>,
    pub(crate) drafts: Drafts,
    closing: AtomicBool,
}

impl Parts {
    /// Parts without hooks and snapshots, which reject sessions that drifted, in the surroundings of
    /// the machine.
    #[must_use]
    pub fn new(
        journal: Arc<dyn Journal>,
        catalog: Arc<dyn Catalog>,
        harnesses: Arc<dyn Harnesses>,
        config: HostConfig,
    ) -> Self {
        Self {
            journal,
            catalog,
            harnesses,
            config,
            snapshots: None,
            observer: Arc::new(NoObserver),
            drift: default_decider(),
            surroundings: Arc::new(Machine),
            #[cfg(feature = "planted-faults")]
            planted: None,
        }
    }
}

impl Host {
    /// A host over these parts. Nothing runs yet: call [`Host::recover`] before serving.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let (rows, _) = broadcast::channel(ROWS);
        let drafts = Drafts::new(parts.config.draft_idle);
        let deps = Arc::new(Deps {
            journal: parts.journal,
            catalog: parts.catalog,
            harnesses: parts.harnesses,
            slots: Slots::new(parts.config.slots),
            directory: Directory::default(),
            workspaces: DashMap::new(),
            workplaces: Workplaces::default(),
            snapshots: parts.snapshots,
            config: parts.config,
            observer: parts.observer,
            drift: parts.drift,
            unrestorable: Unrestorable::default(),
            surroundings: parts.surroundings,
            #[cfg(feature = "planted-faults")]
            planted: parts.planted,
            rows,
        });
        Self {
            inner: Arc::new(Inner {
                deps,
                drafts,
                closing: AtomicBool::new(false),
            }),
        }
    }

    /// As [`Host::new`], with the handle that opens gates of the host. There is no other way to
    /// one (S30).
    #[must_use]
    pub fn with_gate_host(parts: Parts) -> (Self, GateHost) {
        let host = Self::new(parts);
        let gates = GateHost::new(host.clone());
        (host, gates)
    }

    pub(crate) fn deps(&self) -> &Arc<Deps> {
        &self.inner.deps
    }

    /// Restores every session that something was left open in (§6.1), and the project and
    /// workspace `default` with its root when they do not exist yet.
    ///
    /// # Errors
    /// The store failed.
    pub async fn recover(&self, default_root: PathBuf) -> Result<usize, JournalError> {
        self.ensure_default(default_root).await?;
        self.settle_rewinds().await?;
        let mut restored = 0;
        let mut after = None;
        loop {
            let ids = self
                .deps()
                .journal
                .sessions_needing_recovery(after, 100)
                .await?;
            let Some(last) = ids.last() else { break };
            after = Some(*last);
            for id in ids {
                match self.live(id).await {
                    Ok(_) => restored += 1,
                    Err(error) => {
                        tracing::error!(session = %id, %error, "a session was not restored")
                    }
                }
            }
        }
        Ok(restored)
    }

    async fn ensure_default(&self, root: PathBuf) -> Result<(), JournalError> {
        let (Ok(id), Ok(workspace_id)) = ("default".parse::<ProjectId>(), "default".parse()) else {
            return Ok(());
        };
        let catalog = &self.deps().catalog;
        if catalog.project(id.clone()).await?.is_none() {
            let workspace = Workspace {
                id: workspace_id,
                project_id: id.clone(),
                target: WorkspaceTarget::Local {
                    root_path: root.to_string_lossy().into_owned(),
                },
                state: WorkspaceState::Initializing,
            };
            let project = Project {
                id,
                name: "Default".into(),
                default_workspace_id: Some(workspace.id.clone()),
            };
            catalog.create_project(project, Some(workspace)).await?;
        }
        // Setups that a crash cut are done again.
        let mut page = PageRequest {
            limit: 1000,
            cursor: None,
        };
        loop {
            let found = catalog.workspaces(Vec::new(), page.clone()).await?;
            for workspace in found.items {
                if workspace.state == WorkspaceState::Initializing {
                    self.set_up(workspace);
                }
            }
            match found.next_cursor {
                Some(cursor) => page.cursor = Some(cursor),
                None => return Ok(()),
            }
        }
    }

    fn set_up(&self, workspace: Workspace) {
        let deps = self.deps().clone();
        tokio::spawn(async move {
            let state = match &workspace.target {
                WorkspaceTarget::Remote { .. } => WorkspaceState::Ready,
                WorkspaceTarget::Local { root_path } => {
                    match workspaces::set_up(root_path.as_ref()).await {
                        Ok(()) => WorkspaceState::Ready,
                        Err(reason) => {
                            tracing::warn!(workspace = %workspace.id, %reason, "a workspace could not be set up");
                            WorkspaceState::Failed
                        }
                    }
                }
            };
            if let Err(error) = deps
                .catalog
                .set_workspace_state(workspace.id.clone(), state)
                .await
            {
                tracing::error!(workspace = %workspace.id, %error, "a workspace's state was not stored");
            }
        });
    }

    /// Stores a project, with its default workspace when given, and begins to set that up.
    ///
    /// # Errors
    /// An id that exists, or a store that fails.
    pub async fn create_project(
        &self,
        project: Project,
        workspace: Option<Workspace>,
    ) -> Result<Project, Refused> {
        let stored = self
            .deps()
            .catalog
            .create_project(project.clone(), workspace.clone())
            .await;
        stored.map_err(|e| catalog_refused(&e))?;
        if let Some(workspace) = workspace {
            self.set_up(workspace);
        }
        Ok(project)
    }

    /// Stores a workspace and begins to set it up.
    ///
    /// # Errors
    /// As [`Host::create_project`].
    pub async fn create_workspace(&self, workspace: Workspace) -> Result<Workspace, Refused> {
        let stored = self
            .deps()
            .catalog
            .create_workspace(workspace.clone())
            .await;
        stored.map_err(|e| catalog_refused(&e))?;
        self.set_up(workspace.clone());
        Ok(workspace)
    }

    /// Projects, workspaces and tokens.
    #[must_use]
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.deps().catalog
    }

    /// Installed harnesses.
    #[must_use]
    pub fn harnesses(&self) -> &Arc<dyn Harnesses> {
        &self.deps().harnesses
    }

    /// Whether the host takes work.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<(), String> {
        if self.inner.closing.load(Ordering::Acquire) {
            return Err("the host is shutting down".into());
        }
        let loading = |h: &Arc<dyn Harness>| h.status().state == ProviderState::Loading;
        match self.deps().harnesses.list().into_iter().find(loading) {
            Some(harness) => Err(format!("the provider `{}` is still loading", harness.id())),
            None => Ok(()),
        }
    }

    /// What the host is busy with now.
    #[must_use]
    pub fn load(&self) -> HostLoad {
        let deps = self.deps();
        let mut load = HostLoad {
            slots: deps.config.slots,
            slots_used: deps.config.slots.saturating_sub(deps.slots.free()),
            ..HostLoad::default()
        };
        for handle in deps.directory.all() {
            load.sessions_live += 1;
            let Ok(published) = handle.published() else {
                continue;
            };
            load.open_gates += published.view.open_gates;
            let running = [Status::InProgress, Status::AwaitingInput];
            load.sessions_running += usize::from(running.contains(&published.view.status));
        }
        load
    }

    /// Execution slots free now.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        self.deps().slots.free()
    }

    /// Sessions that are not parked.
    #[must_use]
    pub fn live_sessions(&self) -> usize {
        self.deps().directory.len()
    }

    pub(crate) fn admit(&self) -> Result<(), Refused> {
        if self.inner.closing.load(Ordering::Acquire) {
            Err(Refused::HostShuttingDown)
        } else {
            Ok(())
        }
    }

    /// The live session, read back from its journal when it was parked.
    pub(crate) async fn live(&self, id: SessionId) -> Result<Arc<Handle>, Refused> {
        let deps = self.deps();
        deps.unrestorable.check(id)?;
        let handle = deps
            .directory
            .get_or_spawn(id, || Actor::spawn(deps.clone(), Source::Journal(id)));
        let ready = handle.ready().await;
        if let Err(refused) = &ready {
            let again = deps.config.restore_again;
            deps.unrestorable.remember(id, refused, again);
        }
        ready?;
        // A session that is being created answers nobody else until its first append.
        if handle.published()?.born {
            Ok(handle)
        } else {
            Err(Refused::SessionNotFound(id.to_string()))
        }
    }

    /// Stops what runs in every session and admits nothing more; returns when all have ended or
    /// the bound passed. True: all ended.
    pub async fn shutdown(&self) -> bool {
        self.inner.closing.store(true, Ordering::Release);
        let closes = self
            .deps()
            .directory
            .all()
            .into_iter()
            .map(|handle| async move {
                let _ = handle.urgent(|reply| Msg::Close { reply }).await;
            });
        let all = futures::future::join_all(closes);
        let ended = tokio::time::timeout(self.deps().config.shutdown, all)
            .await
            .is_ok();
        self.inner.drafts.close().await;
        ended
    }
}

fn catalog_refused(error: &JournalError) -> Refused {
    match error {
        JournalError::Exists { what } => Refused::AlreadyExists(what),
        JournalError::Invalid { .. } | JournalError::TooLarge { .. } => {
            Refused::InvalidRequest(error.to_string())
        }
        JournalError::NotFound { what } => Refused::ProjectNotFound((*what).into()),
        _ => Refused::StoreUnavailable,
    }
}
