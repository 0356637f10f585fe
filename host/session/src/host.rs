//! The session layer as its clients see it: everything an HTTP client can do exists here (S37).

use crate::actor::{Actor, Fed, Msg, Source};
use crate::config::HostConfig;
use crate::deps::Deps;
use crate::directory::Directory;
use crate::drafts::Drafts;
use crate::handle::Handle;
use crate::observer::{NoObserver, SessionObserver};
use crate::operations::{Attempt, attempt, before_reserve, check_workspace, ready_harness};
use crate::requests::{
    Caller, CommandStateView, Delivery, GateAnswer, InputRequest, Keyed, OperationRequest,
    SettingsRequest,
};
use crate::slots::Slots;
use crate::subscription::{JournalPage, Start, Subscription, journal_page};
use crate::workspaces;
use bytes::Bytes;
use dashmap::DashMap;
use harness_core::abort::AbortSignal;
use harness_core::content::Message;
use harness_core::gate::{Gate, GateAsk, GateReply};
use harness_core::ids::{CommandId, HarnessId, LoopId, ProjectId, Seq, SessionId};
use harness_core::operation::CommandState;
use harness_core::provider::{Harness, Harnesses, ProviderState};
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Input, Origin, check_model, effective_params, merge_params};
use harness_core::view::{OperationResult, QueuedInput, SessionView, Snapshot};
use harness_journal::{
    Catalog, IdempotencyScope, Journal, JournalError, Page, PageRequest, PermissionRule, Project,
    SessionFilter, StoredResponse, Workspace, WorkspaceState, WorkspaceTarget,
};
use jiff::Timestamp;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::broadcast;
use uuid::Uuid;

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
    /// Lifecycle hooks.
    pub observer: Arc<dyn SessionObserver>,
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

/// Whether a keyed request was answered before (G5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// It was not.
    Fresh,
    /// It was, with this.
    Done {
        /// HTTP status.
        status: u16,
        /// Body.
        body: Bytes,
    },
    /// Its intent is durable and its answer is not: the host was lost in between.
    Unanswered {
        /// The session it belongs to.
        session: SessionId,
        /// The outcome of the operation, if it was one and is known.
        result: Option<OperationResult>,
    },
}

impl Parts {
    /// Parts without hooks.
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
            observer: Arc::new(NoObserver),
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
            config: parts.config,
            observer: parts.observer,
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

    /// Execution slots free now, for metrics.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        self.deps().slots.free()
    }

    /// Sessions that are not parked, for metrics.
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
        let handle = deps
            .directory
            .get_or_spawn(id, || Actor::spawn(deps.clone(), Source::Journal(id)));
        handle.ready().await?;
        // A session that is being created answers nobody else until its first append.
        if handle.published()?.born {
            Ok(handle)
        } else {
            Err(Refused::SessionNotFound(id.to_string()))
        }
    }

    // ---- reading ----------------------------------------------------------------------------

    /// One session. A parked one is read from its row.
    ///
    /// # Errors
    /// Unknown id, or the store failed.
    pub async fn session(&self, id: SessionId) -> Result<SessionView, Refused> {
        if let Some(handle) = self.deps().directory.get(id)
            && let Ok(published) = handle.published()
            && published.born
        {
            return Ok((*published.view).clone());
        }
        let row = self
            .deps()
            .journal
            .projection(id)
            .await
            .map_err(|_| Refused::StoreUnavailable)?;
        let row = row.ok_or_else(|| Refused::SessionNotFound(id.to_string()))?;
        serde_json::from_slice(&row.projection.body).map_err(|_| Refused::Internal)
    }

    /// Sessions, newest first; live ones as they are now.
    ///
    /// # Errors
    /// A bad limit or cursor, or the store failed.
    pub async fn sessions(&self, filter: SessionFilter) -> Result<Page<SessionView>, Refused> {
        let page = self
            .deps()
            .journal
            .list_sessions(filter)
            .await
            .map_err(|e| page_refused(&e))?;
        let mut items = Vec::with_capacity(page.items.len());
        for row in page.items {
            let live = self
                .deps()
                .directory
                .get(row.session)
                .and_then(|h| h.published().ok());
            match live.filter(|p| p.born) {
                Some(published) => items.push((*published.view).clone()),
                None => items.push(
                    serde_json::from_slice(&row.projection.body).map_err(|_| Refused::Internal)?,
                ),
            }
        }
        Ok(Page {
            items,
            next_cursor: page.next_cursor,
        })
    }

    /// Everything a client needs to begin following a session.
    ///
    /// # Errors
    /// Unknown id, or the session could not be read.
    pub async fn snapshot(&self, id: SessionId) -> Result<Snapshot, Refused> {
        self.live(id)
            .await?
            .call(|reply| Msg::Snapshot { reply })
            .await
    }

    /// Queued and held inputs, in order.
    ///
    /// # Errors
    /// As [`Host::snapshot`].
    pub async fn queue(&self, id: SessionId) -> Result<Vec<QueuedInput>, Refused> {
        Ok(self.snapshot(id).await?.queued_inputs)
    }

    /// Open gates.
    ///
    /// # Errors
    /// As [`Host::snapshot`].
    pub async fn gates(&self, id: SessionId) -> Result<Vec<Gate>, Refused> {
        Ok(self.snapshot(id).await?.gates)
    }

    /// The saved conversation, oldest first.
    ///
    /// # Errors
    /// A bad limit or cursor; as [`Host::snapshot`].
    pub async fn messages(
        &self,
        id: SessionId,
        page: PageRequest,
    ) -> Result<Page<Message>, Refused> {
        if !(1..=harness_journal::MAX_PAGE).contains(&page.limit) {
            return Err(Refused::InvalidRequest("`limit` is 1 to 1000".into()));
        }
        let from = match &page.cursor {
            None => 0,
            Some(cursor) => cursor.parse::<usize>().map_err(|_| {
                Refused::InvalidRequest(
                    "`cursor` is the `next_cursor` of the same list, unchanged".into(),
                )
            })?,
        };
        let handle = self.live(id).await?;
        let limit = page.limit + 1;
        let mut items = handle
            .call(|reply| Msg::Messages { from, limit, reply })
            .await?;
        let more = items.len() > page.limit;
        items.truncate(page.limit);
        Ok(Page {
            next_cursor: more.then(|| (from + items.len()).to_string()),
            items,
        })
    }

    /// A page of the journal: public events from a sequence on. `limit`: 1 to 1000.
    ///
    /// # Errors
    /// A bad limit, unknown id, or the store failed.
    pub async fn journal(
        &self,
        id: SessionId,
        from: Seq,
        limit: usize,
    ) -> Result<JournalPage, Refused> {
        if !(1..=harness_journal::MAX_PAGE).contains(&limit) {
            return Err(Refused::InvalidRequest("`limit` is 1 to 1000".into()));
        }
        journal_page(self.deps().journal.as_ref(), id, from, limit).await
    }

    /// Follows a session.
    ///
    /// # Errors
    /// As [`Host::snapshot`].
    pub async fn subscribe(&self, id: SessionId, start: Start) -> Result<Subscription, Refused> {
        let handle = self.live(id).await?;
        let (feed, snapshot) = handle.call(|reply| Msg::Subscribe { reply }).await?;
        Ok(Subscription::new(
            id,
            self.deps().journal.clone(),
            handle,
            feed,
            snapshot,
            start,
        ))
    }

    /// Rows as they change; who is slow misses some.
    #[must_use]
    pub fn rows(&self) -> broadcast::Receiver<Arc<SessionView>> {
        self.deps().rows.subscribe()
    }

    /// Command state, read live from the provider (R41).
    ///
    /// # Errors
    /// §6 R41.
    pub async fn command_state(&self, id: SessionId) -> Result<CommandStateView, Refused> {
        let handle = self.live(id).await?;
        let published = handle.published()?;
        let (_, info) = ready_harness(self.deps(), &published.harness)?;
        check_workspace(self.deps(), &published, &info, std::time::Duration::ZERO).await?;
        if !info.features.commands {
            return Ok(no_commands(published.harness.clone()));
        }
        let instance = handle.instance().await.map_err(before_reserve)?;
        let context = handle.published()?.discovery_context();
        let state = instance
            .get_command_state(context, AbortSignal::never())
            .await
            .map_err(before_reserve)?;
        Ok(view_of(
            published.harness.clone(),
            state,
            info.features.state_push,
        ))
    }

    // ---- acting -----------------------------------------------------------------------------

    /// Runs a native operation (R42). `gone` fires when its caller has left.
    ///
    /// # Errors
    /// §6 R42.
    pub async fn invoke(
        &self,
        id: SessionId,
        caller: Caller,
        request: OperationRequest,
        gone: AbortSignal,
    ) -> Result<OperationResult, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        let keyed = caller.key.map(|key| (IdempotencyScope::Session, key));
        let command_id = command_id(&caller);
        let caller = caller.identity;
        attempt(
            self.deps(),
            &handle,
            Attempt {
                command_id,
                caller,
                keyed,
                request,
                gone,
            },
        )
        .await
        .result
    }

    /// Accepts a prompt (S103).
    ///
    /// # Errors
    /// Refused by §9 S103; nothing was recorded.
    pub async fn submit(
        &self,
        id: SessionId,
        caller: Caller,
        request: InputRequest,
    ) -> Result<CommandId, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        let origin = origin(&caller);
        let command_id = origin.command_id;
        let InputRequest {
            blocks,
            loop_id,
            no_fold,
            fold_only,
        } = request;
        let input = Input::Submit {
            origin,
            blocks,
            loop_id,
            no_fold,
            fold_only,
        };
        feed(&handle, &caller, input).await?;
        Ok(command_id)
    }

    /// Takes a queued or held input back (S113).
    ///
    /// # Errors
    /// The session is faulted, or nothing could be recorded.
    pub async fn retract(
        &self,
        id: SessionId,
        caller: Caller,
        target: CommandId,
    ) -> Result<bool, Refused> {
        let handle = self.live(id).await?;
        match feed(
            &handle,
            &caller,
            Input::Retract {
                origin: origin(&caller),
                target,
            },
        )
        .await?
        .answer
        {
            Answer::Bool(retracted) => Ok(retracted),
            _ => Err(Refused::Internal),
        }
    }

    /// Releases held inputs (S114); all of them when `targets` is empty.
    ///
    /// # Errors
    /// Unknown loop; as [`Host::retract`].
    pub async fn release(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
        targets: Vec<CommandId>,
    ) -> Result<Vec<CommandId>, Refused> {
        let handle = self.live(id).await?;
        let input = Input::Release {
            origin: origin(&caller),
            loop_id,
            targets,
        };
        match feed(&handle, &caller, input).await?.answer {
            Answer::Released(ids) => Ok(ids),
            _ => Err(Refused::Internal),
        }
    }

    /// Stops what runs; answers when it has ended (R67).
    ///
    /// # Errors
    /// Unknown session or loop.
    pub async fn interrupt(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
    ) -> Result<bool, Refused> {
        let handle = self.live(id).await?;
        if let Some(loop_id) = loop_id
            && handle.published()?.loop_id != loop_id
        {
            return Err(Refused::LoopNotFound(loop_id.to_string()));
        }
        let origin = origin(&caller);
        handle
            .urgent(|reply| Msg::Interrupt { origin, reply })
            .await?
    }

    /// Answers a gate (R44, R45). Rules of "always" are stored first (S83).
    ///
    /// # Errors
    /// §6 R44; the gate stays open unless it was answered.
    pub async fn answer(
        &self,
        id: SessionId,
        caller: Caller,
        answer: GateAnswer,
    ) -> Result<Delivery, Refused> {
        let handle = self.live(id).await?;
        if matches!(answer.reply, GateReply::ApproveAlways) {
            self.store_rules(&handle, &answer).await?;
        }
        let input = Input::Answer {
            origin: origin(&caller),
            gate_id: answer.gate_id,
            reply: answer.reply,
        };
        Ok(feed(&handle, &caller, input).await?.delivery)
    }

    async fn store_rules(&self, handle: &Handle, answer: &GateAnswer) -> Result<(), Refused> {
        let snapshot = handle.call(|reply| Msg::Snapshot { reply }).await?;
        let gate = snapshot
            .gates
            .into_iter()
            .find(|g| g.gate_id == answer.gate_id);
        let gate = gate.ok_or(Refused::GateNotFound)?;
        answer.reply.check(&gate.ask)?;
        let GateAsk::Permission(request) = gate.ask else {
            return Ok(());
        };
        let rule = |rule: String| PermissionRule {
            harness_id: snapshot.session.agent.clone(),
            workspace_id: snapshot.session.workspace_id.clone(),
            rule,
        };
        let rules = request.rules.into_iter().map(rule).collect();
        self.deps()
            .catalog
            .store_rules(rules)
            .await
            .map_err(|_| Refused::StoreUnavailable)
    }

    /// Changes settings.
    ///
    /// # Errors
    /// Values that fail the harness's schema, a busy session, or nothing could be recorded.
    pub async fn patch(
        &self,
        id: SessionId,
        caller: Caller,
        request: SettingsRequest,
    ) -> Result<SessionView, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        let published = handle.published()?;
        if let Some(title) = &request.title {
            check_title(title)?;
        }
        let agent = request
            .agent
            .unwrap_or_else(|| published.view.agent.clone());
        let swapped = agent != published.view.agent;
        let params = if swapped || request.params.is_some() || request.model.is_some() {
            let (harness, info) = ready_harness(self.deps(), &agent)?;
            if let Some(Some(model)) = &request.model {
                let native = harness
                    .status()
                    .readiness
                    .map(|r| r.models)
                    .unwrap_or_default();
                check_model(&info, &native, model).map_err(Refused::InvalidParams)?;
            }
            let given = request.params.unwrap_or_default();
            let merged = if swapped {
                effective_params(&info, &given)
            } else {
                merge_params(&info, &published.view.params, &given)
            };
            Some(merged.map_err(Refused::InvalidParams)?)
        } else {
            None
        };
        let input = Input::Settings {
            origin: origin(&caller),
            title: request.title,
            // Another harness does not know the old one's model.
            model: request.model.or(swapped.then_some(None)),
            params,
            agent: Some(agent),
        };
        feed(&handle, &caller, input).await?;
        self.session(id).await
    }

    /// Deletes a session with its journal; refused while it is live.
    ///
    /// # Errors
    /// Unknown id, a live session, or the store failed.
    pub async fn delete(&self, id: SessionId) -> Result<(), Refused> {
        self.live(id)
            .await?
            .call(|reply| Msg::Delete { reply })
            .await?
    }

    // ---- idempotency ------------------------------------------------------------------------

    /// Whether a keyed request was answered before. `session`: `None` for a creation.
    ///
    /// # Errors
    /// Another body under the same key, or the store failed.
    pub async fn keyed(&self, session: Option<SessionId>, key: Keyed) -> Result<KeyState, Refused> {
        let found = self
            .deps()
            .journal
            .idempotency(session, key.command_id)
            .await;
        let Some(entry) = found.map_err(|_| Refused::StoreUnavailable)? else {
            return Ok(KeyState::Fresh);
        };
        if entry.body_sha256 != key.body_sha256 {
            return Err(Refused::IdempotencyConflict);
        }
        if let Some(response) = entry.response {
            return Ok(KeyState::Done {
                status: response.status,
                body: response.body,
            });
        }
        // Restoring it first turns an intent without outcome into `uncertain` (R80).
        self.live(entry.session).await?;
        let result = self.recorded_result(entry.session, key.command_id).await?;
        Ok(KeyState::Unanswered {
            session: entry.session,
            result,
        })
    }

    /// The outcome of an operation as the journal holds it; of several the last word is first.
    async fn recorded_result(
        &self,
        id: SessionId,
        command: CommandId,
    ) -> Result<Option<OperationResult>, Refused> {
        let mut from = 1;
        loop {
            let page = journal_page(
                self.deps().journal.as_ref(),
                id,
                from,
                harness_journal::MAX_PAGE,
            )
            .await?;
            let found = page
                .events
                .iter()
                .find_map(|data| crate::recovery::result_of(data, command));
            if found.is_some() || page.done {
                return Ok(found);
            }
            from = page.next_seq;
        }
    }

    /// Keeps the answer of a keyed request.
    pub async fn answered(&self, session: SessionId, key: Keyed, status: u16, body: Bytes) {
        let scope = if key.session_id == session {
            IdempotencyScope::Create
        } else {
            IdempotencyScope::Session
        };
        let Ok(handle) = self.live(session).await else {
            return;
        };
        let response = StoredResponse { status, body };
        let _ = handle
            .call(|reply| Msg::Answered {
                scope,
                key,
                response,
                reply,
            })
            .await;
    }

    // ---- end --------------------------------------------------------------------------------

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

pub(crate) async fn feed(handle: &Handle, caller: &Caller, input: Input) -> Result<Fed, Refused> {
    let keyed = caller.key.map(|key| (IdempotencyScope::Session, key));
    feed_keyed(handle, keyed, input).await
}

pub(crate) async fn feed_keyed(
    handle: &Handle,
    keyed: Option<(IdempotencyScope, Keyed)>,
    input: Input,
) -> Result<Fed, Refused> {
    let fed = handle
        .call(|reply| Msg::Feed {
            input,
            keyed,
            reply,
        })
        .await?;
    match fed.answer {
        Answer::Refused(refused) => Err(*refused),
        _ => Ok(fed),
    }
}

pub(crate) fn command_id(caller: &Caller) -> CommandId {
    caller
        .key
        .map_or_else(|| CommandId(Uuid::now_v7()), |key| key.command_id)
}

pub(crate) fn origin(caller: &Caller) -> Origin {
    Origin {
        command_id: command_id(caller),
        caller: caller.identity.clone(),
    }
}

/// A title has 1 to 1024 bytes.
pub(crate) fn check_title(title: &str) -> Result<(), Refused> {
    if title.is_empty() || title.len() > 1024 {
        return Err(Refused::InvalidRequest(
            "`title` has 1 to 1024 bytes".into(),
        ));
    }
    Ok(())
}

/// R8: a provider without discovery.
pub(crate) fn no_commands(harness_id: HarnessId) -> CommandStateView {
    view_of(harness_id, None, false)
}

pub(crate) fn view_of(
    harness_id: HarnessId,
    state: Option<CommandState>,
    push: bool,
) -> CommandStateView {
    let state = state.unwrap_or_default();
    CommandStateView {
        revision: state.revision(&harness_id),
        as_of: Timestamp::now(),
        push,
        state,
        harness_id,
    }
}

fn page_refused(error: &JournalError) -> Refused {
    match error {
        JournalError::InvalidPage { .. } | JournalError::TooLarge { .. } => {
            Refused::InvalidRequest(error.to_string())
        }
        _ => Refused::StoreUnavailable,
    }
}

fn catalog_refused(error: &JournalError) -> Refused {
    match error {
        JournalError::Exists { .. }
        | JournalError::Invalid { .. }
        | JournalError::TooLarge { .. } => Refused::InvalidRequest(error.to_string()),
        JournalError::NotFound { what } => Refused::ProjectNotFound((*what).into()),
        _ => Refused::StoreUnavailable,
    }
}
