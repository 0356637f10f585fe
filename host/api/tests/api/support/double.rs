//! The double of the layer below: it records what it was asked and answers as scripted.

use super::peers::{OneHarness, Planner};
use super::{COMMAND, FOREIGN, GATE, LOOP, SESSION};
use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt};
use harness_api::Plane;
use harness_api::plane::{Answer, Follow, Item, JournalPage, KeyState};
use harness_core::abort::{AbortReason, AbortSignal};
use harness_core::content::Message;
use harness_core::gate::{ApprovalRequest, Gate, GateAsk, GatePolicy, GateReply};
use harness_core::ids::{
    CommandId, GateId, HarnessId, LoopId, ProjectId, Seq, SessionId, ToolExecutionId,
};
use harness_core::operation::{CommandState, NativeCommand};
use harness_core::provider::{BoxFuture, Harnesses, LoopMode};
use harness_core::refusal::Refused;
use harness_core::view::{
    LoopView, OperationResult, OutcomeStatus, ProcessStatus, ProcessView, QueuedInput, SessionView,
    Status,
};
use harness_core::workspace::WorkspaceRef;
use harness_journal::{Catalog, Page, PageRequest, Project, SessionFilter, SqliteStore, Workspace};
use harness_session::{
    Caller, CommandStateRead, CommandStateView, CreateRequest, Created, Delivery, DraftRequest,
    First, GateAnswer, InputRequest, Keyed, LoopRequest, LoopRuntime, LoopWithModes, OpenGate,
    OperationRequest, RowChange, SettingsRequest, ShutDown,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use uuid::Uuid;

/// What the double was asked, and what it answers.
#[derive(Default)]
pub(crate) struct Script {
    /// Names of the calls that change something, with what matters of them.
    pub(crate) calls: Mutex<Vec<String>>,
    /// Callers of those calls.
    pub(crate) callers: Mutex<Vec<Caller>>,
    /// Recorded answers of keyed requests.
    pub(crate) recorded: Mutex<HashMap<CommandId, (Keyed, u16, Bytes)>>,
    /// What `keyed` says of the next request that has no recorded answer.
    pub(crate) cut: Mutex<Option<KeyState>>,
    /// What the next checkpoint or rewind is refused with.
    pub(crate) snapshot: Mutex<Option<Refused>>,
    /// Next answers of `invoke`, in order; then it completes.
    pub(crate) invoke: Mutex<Vec<Result<OperationResult, Refused>>>,
    /// When set, `invoke` waits for it or for its caller to leave.
    pub(crate) hold: Mutex<Option<Arc<Notify>>>,
    /// Told when `invoke` was entered.
    pub(crate) entered: Notify,
    /// How `invoke` was told to end.
    pub(crate) gone: Mutex<Option<AbortReason>>,
    /// Told when `gone` was set.
    pub(crate) left: Notify,
    /// What `subscribe` yields, once.
    pub(crate) stream: Mutex<Option<BoxStream<'static, Item>>>,
    /// What subscriptions were asked for.
    pub(crate) follows: Mutex<Vec<Follow>>,
    /// What `subscribe_lists` yields.
    pub(crate) lists: Mutex<Vec<RowChange>>,
    /// `invoke` panics when true.
    pub(crate) panics: Mutex<bool>,
    /// Why the host is not ready.
    pub(crate) unready: Mutex<Option<String>>,
    /// Entered `invoke`.
    pub(crate) invoked: AtomicUsize,
}

pub(crate) struct Double {
    pub(crate) script: Script,
    pub(super) store: Arc<SqliteStore>,
}

pub(crate) fn completed() -> OperationResult {
    OperationResult {
        status: OutcomeStatus::Completed,
        message: Some("done".into()),
        code: None,
        command_id: CommandId::from(COMMAND),
        run_id: None,
        params_effective: None,
    }
}

pub(crate) fn session(id: Uuid, project: &str) -> SessionView {
    let at = "2026-01-02T03:04:05Z".parse().unwrap();
    SessionView {
        id: id.into(),
        project_id: project.parse().unwrap(),
        title: "Ship it".into(),
        status: Status::Completed,
        agent: "demo/planner".parse().unwrap(),
        model: None,
        params: Default::default(),
        workspace_id: "default".parse().unwrap(),
        agent_session_id: None,
        active_loop_id: LOOP.into(),
        open_gates: 0,
        queued: 0,
        held: 0,
        activities: vec![],
        last_seq: 17,
        run_id: None,
        error: None,
        checkpoint_fault: None,
        created_at: at,
        updated_at: at,
    }
}

/// The ref of a tree.
pub(crate) fn reference(tree: u8) -> WorkspaceRef {
    let hex = format!("{tree:02x}").repeat(32);
    format!("v1:sha256:{hex}").parse().unwrap()
}

fn known(id: SessionId) -> Result<SessionView, Refused> {
    match id.0 {
        SESSION => Ok(session(SESSION, "default")),
        FOREIGN => Ok(session(FOREIGN, "other")),
        _ => Err(Refused::SessionNotFound(id.to_string())),
    }
}

/// The loop that the known session has.
fn known_loop(id: LoopId) -> Result<(), Refused> {
    match id.0 {
        LOOP => Ok(()),
        _ => Err(Refused::LoopNotFound(id.to_string())),
    }
}

fn state() -> CommandStateView {
    let harness_id: HarnessId = "demo/planner".parse().unwrap();
    let state = CommandState {
        commands: vec![NativeCommand {
            name: "/goal".into(),
            description: "Work toward an objective".into(),
            argument_help: None,
            composer: None,
            disabled_reason: None,
        }],
        slash_commands: true,
        ..CommandState::default()
    };
    CommandStateView {
        revision: state.revision(&harness_id),
        harness_id,
        as_of: "2026-01-02T03:04:05Z".parse().unwrap(),
        push: true,
        state,
    }
}

/// The background process that the known session has.
fn process() -> ProcessView {
    ProcessView {
        process_handle: "build-1".into(),
        loop_id: LOOP.into(),
        program: "make".into(),
        status: ProcessStatus::Failed,
        exit_code: Some(2),
        reason: Some("exit code 2".into()),
        started_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        ended_at: Some("2026-01-02T03:04:06Z".parse().unwrap()),
    }
}

pub(crate) fn gate() -> Gate {
    Gate {
        gate_id: GateId::from(GATE),
        ask: GateAsk::Permission(ApprovalRequest {
            title: "Run".into(),
            tool_name: "shell".into(),
            tool_input: "{}".into(),
            tool_use_id: "t1".into(),
            rules: vec![],
        }),
        loop_id: LOOP.into(),
        turn_id: None,
        tool_execution_id: ToolExecutionId::from(Uuid::from_u128(9)),
        opened_at: "2026-01-02T03:04:05Z".parse().unwrap(),
    }
}

impl Double {
    fn note(&self, caller: &Caller, what: String) {
        self.script.calls.lock().unwrap().push(what);
        self.script.callers.lock().unwrap().push(caller.clone());
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.script.calls.lock().unwrap().clone()
    }
}

impl Plane for Double {
    fn draft_command_state(&self, request: DraftRequest) -> Answer<'_, CommandStateView> {
        async move {
            match request.project_id.as_str() {
                "default" => Ok(state()),
                other => Err(Refused::ProjectNotFound(other.into())),
            }
        }
        .boxed()
    }

    fn create(
        &self,
        caller: Caller,
        request: CreateRequest,
        _: AbortSignal,
    ) -> Answer<'_, Created> {
        async move {
            self.note(&caller, format!("create {}", request.title));
            let id = caller.key.map_or(SESSION, |key| key.session_id.0);
            Ok(Created {
                session: session(id, request.draft.project_id.as_str()),
                command_id: COMMAND.into(),
                operation_result: matches!(request.first, First::Operation { .. }).then(completed),
            })
        }
        .boxed()
    }

    fn session(&self, id: SessionId) -> Answer<'_, SessionView> {
        async move { known(id) }.boxed()
    }

    fn sessions(&self, filter: SessionFilter) -> Answer<'_, Page<SessionView>> {
        async move {
            if filter
                .page
                .cursor
                .as_deref()
                .is_some_and(|cursor| cursor != "next")
            {
                return Err(Refused::InvalidRequest("the cursor is invalid".into()));
            }
            let all = [session(SESSION, "default"), session(FOREIGN, "other")];
            let items = all
                .into_iter()
                .filter(|s| filter.projects.is_empty() || filter.projects.contains(&s.project_id))
                .filter(|s| {
                    filter
                        .status
                        .as_deref()
                        .is_none_or(|status| status == s.status.as_str())
                })
                .collect();
            Ok(Page {
                items,
                next_cursor: None,
            })
        }
        .boxed()
    }

    fn patch(
        &self,
        id: SessionId,
        caller: Caller,
        request: SettingsRequest,
    ) -> Answer<'_, SessionView> {
        async move {
            let mut session = known(id)?;
            self.note(&caller, format!("patch model={:?}", request.model));
            session.title = request.title.unwrap_or(session.title);
            Ok(session)
        }
        .boxed()
    }

    fn shutdown(&self, id: SessionId, caller: Caller) -> Answer<'_, ShutDown> {
        async move {
            known(id)?;
            self.note(&caller, "shutdown".into());
            Ok(ShutDown {
                expired_phases: vec!["loops"],
            })
        }
        .boxed()
    }

    fn restore(&self, id: SessionId, caller: Caller) -> Answer<'_, SessionView> {
        async move {
            let session = known(id)?;
            self.note(&caller, "restore".into());
            Ok(session)
        }
        .boxed()
    }

    fn delete(&self, id: SessionId) -> Answer<'_, ()> {
        async move {
            known(id)?;
            self.note(&Caller::default(), format!("delete {id}"));
            Ok(())
        }
        .boxed()
    }

    fn messages(
        &self,
        id: SessionId,
        loop_id: Option<LoopId>,
        _: PageRequest,
    ) -> Answer<'_, Page<Message>> {
        async move {
            known(id)?;
            loop_id.map_or(Ok(()), known_loop)?;
            Ok(Page {
                items: vec![],
                next_cursor: None,
            })
        }
        .boxed()
    }

    fn command_state(&self, id: SessionId) -> Answer<'_, Arc<CommandStateRead>> {
        async move { known(id).map(|_| Arc::new(state().into())) }.boxed()
    }

    fn invoke(
        &self,
        id: SessionId,
        caller: Caller,
        request: OperationRequest,
        gone: AbortSignal,
    ) -> Answer<'_, OperationResult> {
        async move {
            known(id)?;
            self.note(&caller, format!("invoke {:?}", request.operation));
            self.script.invoked.fetch_add(1, Ordering::SeqCst);
            self.script.entered.notify_one();
            if *self.script.panics.lock().unwrap() {
                panic!("scripted");
            }
            let hold = self.script.hold.lock().unwrap().clone();
            if let Some(hold) = hold {
                tokio::select! {
                    () = hold.notified() => {}
                    reason = gone.aborted() => {
                        *self.script.gone.lock().unwrap() = Some(reason);
                        self.script.left.notify_one();
                        return Ok(OperationResult { status: OutcomeStatus::Cancelled, ..completed() });
                    }
                }
            }
            let mut answers = self.script.invoke.lock().unwrap();
            if answers.is_empty() { Ok(completed()) } else { answers.remove(0) }
        }
        .boxed()
    }

    fn submit(
        &self,
        id: SessionId,
        caller: Caller,
        request: InputRequest,
    ) -> Answer<'_, CommandId> {
        async move {
            known(id)?;
            request.loop_id.map_or(Ok(()), known_loop)?;
            self.note(&caller, format!("submit {}", request.blocks.len()));
            Ok(COMMAND.into())
        }
        .boxed()
    }

    fn queue(&self, id: SessionId) -> Answer<'_, Vec<QueuedInput>> {
        async move {
            known(id)?;
            let input = |n: u128, held| QueuedInput {
                command_id: Uuid::from_u128(n).into(),
                loop_id: LOOP.into(),
                held,
                blocks: vec![],
                created_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            };
            Ok(vec![input(21, false), input(22, true), input(20, false)])
        }
        .boxed()
    }

    fn retract(&self, id: SessionId, caller: Caller, command: CommandId) -> Answer<'_, bool> {
        async move {
            known(id)?;
            self.note(&caller, format!("retract {command}"));
            Ok(command.0 == COMMAND)
        }
        .boxed()
    }

    fn release(
        &self,
        id: SessionId,
        caller: Caller,
        _: Option<LoopId>,
        ids: Vec<CommandId>,
    ) -> Answer<'_, Vec<CommandId>> {
        async move {
            known(id)?;
            self.note(&caller, format!("release {}", ids.len()));
            Ok(vec![COMMAND.into()])
        }
        .boxed()
    }

    fn loops(&self, id: SessionId) -> Answer<'_, Vec<LoopWithModes>> {
        async move {
            known(id)?;
            let view = LoopView {
                loop_id: LOOP.into(),
                agent: "demo/planner".parse().unwrap(),
                parent_loop_id: None,
                model: Some("m1".into()),
                effort: None,
                mode: "review".into(),
                running: false,
                state: harness_core::view::LoopStanding::Open,
            };
            let modes = vec![LoopMode {
                name: "review".into(),
                label: "Review".into(),
            }];
            Ok(vec![LoopWithModes { view, modes }])
        }
        .boxed()
    }

    fn create_loop(
        &self,
        id: SessionId,
        caller: Caller,
        request: LoopRequest,
    ) -> Answer<'_, LoopId> {
        async move {
            known(id)?;
            let LoopRequest { agent, model, mode } = request;
            self.note(&caller, format!("loop {agent} {model:?} {mode:?}"));
            Ok(LoopId(caller.key.map_or(COMMAND, |key| key.command_id.0)))
        }
        .boxed()
    }

    fn activate_loop(&self, id: SessionId, caller: Caller, loop_id: LoopId) -> Answer<'_, ()> {
        async move {
            known(id)?;
            known_loop(loop_id)?;
            self.note(&caller, format!("activate {loop_id}"));
            Ok(())
        }
        .boxed()
    }

    fn set_loop_mode(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: LoopId,
        mode: String,
    ) -> Answer<'_, LoopRuntime> {
        async move {
            known(id)?;
            known_loop(loop_id)?;
            if !["", "review"].contains(&&*mode) {
                return Err(Refused::InvalidMode("the harness declares: review".into()));
            }
            self.note(&caller, format!("mode {mode}"));
            Ok(LoopRuntime {
                mode,
                runtime: Default::default(),
            })
        }
        .boxed()
    }

    fn change_inference(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: LoopId,
        model: Option<String>,
        effort: Option<String>,
    ) -> Answer<'_, LoopRuntime> {
        async move {
            known(id)?;
            known_loop(loop_id)?;
            if model.is_none() && effort.is_none() {
                return Err(Refused::NoChanges);
            }
            self.note(&caller, format!("inference {model:?} {effort:?}"));
            Ok(LoopRuntime {
                mode: String::new(),
                runtime: harness_core::event::Runtime { model, effort },
            })
        }
        .boxed()
    }

    fn compact(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
    ) -> Answer<'_, CommandId> {
        async move {
            known(id)?;
            loop_id.map_or(Ok(()), known_loop)?;
            self.note(&caller, "compact".into());
            Ok(COMMAND.into())
        }
        .boxed()
    }

    fn checkpoint(&self, id: SessionId, caller: Caller) -> Answer<'_, WorkspaceRef> {
        async move {
            known(id)?;
            if let Some(refused) = self.script.snapshot.lock().unwrap().take() {
                return Err(refused);
            }
            self.note(&caller, "checkpoint".into());
            Ok(reference(1))
        }
        .boxed()
    }

    fn rewind(&self, id: SessionId, caller: Caller, to: WorkspaceRef) -> Answer<'_, WorkspaceRef> {
        async move {
            known(id)?;
            if let Some(refused) = self.script.snapshot.lock().unwrap().take() {
                return Err(refused);
            }
            self.note(&caller, format!("rewind {to}"));
            Ok(to)
        }
        .boxed()
    }

    fn interrupt(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
    ) -> Answer<'_, bool> {
        async move {
            known(id)?;
            loop_id.map_or(Ok(()), known_loop)?;
            self.note(&caller, "interrupt".into());
            Ok(true)
        }
        .boxed()
    }

    fn processes(&self, id: SessionId) -> Answer<'_, Vec<ProcessView>> {
        async move { known(id).map(|_| vec![process()]) }.boxed()
    }

    fn stop_process(&self, id: SessionId, caller: Caller, handle: String) -> Answer<'_, ()> {
        async move {
            known(id)?;
            if handle != process().process_handle {
                return Err(Refused::ProcessNotFound(handle));
            }
            self.note(&caller, format!("stop process {handle}"));
            Ok(())
        }
        .boxed()
    }

    fn gates(&self, id: SessionId) -> Answer<'_, Vec<OpenGate>> {
        let open = || OpenGate {
            gate: gate(),
            policy: GatePolicy::Wait,
            url: None,
        };
        async move { known(id).map(|_| vec![open()]) }.boxed()
    }

    fn answer(&self, id: SessionId, caller: Caller, answer: GateAnswer) -> Answer<'_, Delivery> {
        async move {
            known(id)?;
            if answer.gate_id.0 != GATE {
                return Err(Refused::GateNotFound);
            }
            if matches!(
                answer.reply,
                GateReply::ApproveOnce | GateReply::ApproveAlways | GateReply::Deny(_)
            ) {
                answer.reply.check(&gate().ask)?;
            }
            self.note(&caller, format!("answer {:?}", answer.reply));
            Ok(Delivery::Acknowledged)
        }
        .boxed()
    }

    fn journal(&self, id: SessionId, from: Seq, limit: usize) -> Answer<'_, JournalPage> {
        async move {
            known(id)?;
            let events = (from..20)
                .take(limit)
                .map(|seq| format!("{{\"seq\":{seq}}}").into())
                .collect::<Vec<_>>();
            let next_seq = from + events.len() as u64;
            Ok(JournalPage {
                events,
                next_seq,
                done: next_seq >= 20,
            })
        }
        .boxed()
    }

    fn subscribe(&self, id: SessionId, follow: Follow) -> Answer<'_, BoxStream<'static, Item>> {
        async move {
            known(id)?;
            self.script.follows.lock().unwrap().push(follow);
            let stream = self.script.stream.lock().unwrap().take();
            Ok(stream.unwrap_or_else(|| futures::stream::pending().boxed()))
        }
        .boxed()
    }

    fn subscribe_lists(&self, project: Option<ProjectId>) -> BoxStream<'static, RowChange> {
        let changes = self.script.lists.lock().unwrap().clone();
        futures::stream::iter(changes)
            .filter(move |c| {
                futures::future::ready(project.as_ref().is_none_or(|p| p == c.project_id()))
            })
            .boxed()
    }

    fn keyed(&self, _: Option<SessionId>, key: Keyed) -> Answer<'_, KeyState> {
        async move {
            let cut = self.script.cut.lock().unwrap().take();
            match self.script.recorded.lock().unwrap().get(&key.command_id) {
                None => Ok(cut.unwrap_or(KeyState::Fresh)),
                Some((first, _, _)) if first.body_sha256 != key.body_sha256 => {
                    Err(Refused::IdempotencyConflict)
                }
                Some((_, status, body)) => Ok(KeyState::Done {
                    status: *status,
                    body: body.clone(),
                }),
            }
        }
        .boxed()
    }

    fn answered(&self, _: SessionId, key: Keyed, status: u16, body: Bytes) -> BoxFuture<'_, ()> {
        self.script
            .recorded
            .lock()
            .unwrap()
            .insert(key.command_id, (key, status, body));
        futures::future::ready(()).boxed()
    }

    fn create_project(
        &self,
        project: Project,
        workspace: Option<Workspace>,
    ) -> Answer<'_, Project> {
        async move {
            let stored = self.store.create_project(project.clone(), workspace).await;
            stored
                .map(|()| project)
                .map_err(|_| Refused::InvalidRequest("the id is taken".into()))
        }
        .boxed()
    }

    fn create_workspace(&self, workspace: Workspace) -> Answer<'_, Workspace> {
        async move {
            let stored = self.store.create_workspace(workspace.clone()).await;
            stored
                .map(|()| workspace)
                .map_err(|_| Refused::InvalidRequest("the id is taken".into()))
        }
        .boxed()
    }

    fn catalog(&self) -> Arc<dyn Catalog> {
        self.store.clone()
    }

    fn harnesses(&self) -> Arc<dyn Harnesses> {
        Arc::new(OneHarness(Arc::new(Planner(
            "demo/planner".parse().unwrap(),
        ))))
    }

    fn ready(&self) -> Result<(), String> {
        self.script
            .unready
            .lock()
            .unwrap()
            .clone()
            .map_or(Ok(()), Err)
    }
}
