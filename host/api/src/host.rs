//! The live session layer as the plane of this API.

use crate::plane::{Answer, Follow, Item, JournalPage, KeyState, Plane};
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use futures::{FutureExt, future, stream};
use harness_core::abort::AbortSignal;
use harness_core::content::Message;
use harness_core::ids::{CommandId, LoopId, ProjectId, Seq, SessionId};
use harness_core::provider::{BoxFuture, Harnesses};
use harness_core::view::{OperationResult, ProcessView, QueuedInput, SessionView};
use harness_core::workspace::WorkspaceRef;
use harness_journal::{Catalog, Page, PageRequest, Project, SessionFilter, Workspace};
use harness_session::{
    Caller, CommandStateRead, CommandStateView, CreateRequest, Created, Delivery, DraftRequest,
    GateAnswer, Host, InputRequest, Keyed, LoopRequest, LoopRuntime, LoopWithModes, OpenGate,
    OperationRequest, RowChange, SettingsRequest, ShutDown,
};
use std::sync::Arc;
use tokio_stream::wrappers::BroadcastStream;

impl Plane for Host {
    fn draft_command_state(&self, request: DraftRequest) -> Answer<'_, CommandStateView> {
        Host::draft_command_state(self, request).boxed()
    }

    fn create(
        &self,
        caller: Caller,
        request: CreateRequest,
        gone: AbortSignal,
    ) -> Answer<'_, Created> {
        Host::create(self, caller, request, gone).boxed()
    }

    fn session(&self, id: SessionId) -> Answer<'_, SessionView> {
        Host::session(self, id).boxed()
    }

    fn sessions(&self, filter: SessionFilter) -> Answer<'_, Page<SessionView>> {
        Host::sessions(self, filter).boxed()
    }

    fn patch(
        &self,
        id: SessionId,
        caller: Caller,
        request: SettingsRequest,
    ) -> Answer<'_, SessionView> {
        Host::patch(self, id, caller, request).boxed()
    }

    fn shutdown(&self, id: SessionId, caller: Caller) -> Answer<'_, ShutDown> {
        Host::shutdown_session(self, id, caller).boxed()
    }

    fn restore(&self, id: SessionId, caller: Caller) -> Answer<'_, SessionView> {
        Host::restore(self, id, caller).boxed()
    }

    fn delete(&self, id: SessionId) -> Answer<'_, ()> {
        Host::delete(self, id).boxed()
    }

    fn messages(
        &self,
        id: SessionId,
        loop_id: Option<LoopId>,
        page: PageRequest,
    ) -> Answer<'_, Page<Message>> {
        Host::messages(self, id, loop_id, page).boxed()
    }

    fn loops(&self, id: SessionId) -> Answer<'_, Vec<LoopWithModes>> {
        Host::loops(self, id).boxed()
    }

    fn create_loop(
        &self,
        id: SessionId,
        caller: Caller,
        request: LoopRequest,
    ) -> Answer<'_, LoopId> {
        Host::create_loop(self, id, caller, request).boxed()
    }

    fn activate_loop(&self, id: SessionId, caller: Caller, loop_id: LoopId) -> Answer<'_, ()> {
        Host::activate_loop(self, id, caller, loop_id).boxed()
    }

    fn set_loop_mode(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: LoopId,
        mode: String,
    ) -> Answer<'_, LoopRuntime> {
        Host::set_loop_mode(self, id, caller, loop_id, mode).boxed()
    }

    fn change_inference(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: LoopId,
        model: Option<String>,
        effort: Option<String>,
    ) -> Answer<'_, LoopRuntime> {
        Host::change_inference(self, id, caller, loop_id, model, effort).boxed()
    }

    fn compact(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
    ) -> Answer<'_, CommandId> {
        Host::compact(self, id, caller, loop_id).boxed()
    }

    fn checkpoint(&self, id: SessionId, caller: Caller) -> Answer<'_, WorkspaceRef> {
        Host::checkpoint(self, id, caller).boxed()
    }

    fn rewind(
        &self,
        id: SessionId,
        caller: Caller,
        reference: WorkspaceRef,
    ) -> Answer<'_, WorkspaceRef> {
        Host::rewind(self, id, caller, reference).boxed()
    }

    fn command_state(&self, id: SessionId) -> Answer<'_, Arc<CommandStateRead>> {
        Host::command_state(self, id).boxed()
    }

    fn invoke(
        &self,
        id: SessionId,
        caller: Caller,
        request: OperationRequest,
        gone: AbortSignal,
    ) -> Answer<'_, OperationResult> {
        Host::invoke(self, id, caller, request, gone).boxed()
    }

    fn submit(
        &self,
        id: SessionId,
        caller: Caller,
        request: InputRequest,
    ) -> Answer<'_, CommandId> {
        Host::submit(self, id, caller, request).boxed()
    }

    fn queue(&self, id: SessionId) -> Answer<'_, Vec<QueuedInput>> {
        Host::queue(self, id).boxed()
    }

    fn retract(&self, id: SessionId, caller: Caller, command: CommandId) -> Answer<'_, bool> {
        Host::retract(self, id, caller, command).boxed()
    }

    fn release(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
        ids: Vec<CommandId>,
    ) -> Answer<'_, Vec<CommandId>> {
        Host::release(self, id, caller, loop_id, ids).boxed()
    }

    fn interrupt(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
    ) -> Answer<'_, bool> {
        Host::interrupt(self, id, caller, loop_id).boxed()
    }

    fn processes(&self, id: SessionId) -> Answer<'_, Vec<ProcessView>> {
        Host::processes(self, id).boxed()
    }

    fn stop_process(&self, id: SessionId, _: Caller, handle: String) -> Answer<'_, ()> {
        Host::stop_process(self, id, handle).boxed()
    }

    fn gates(&self, id: SessionId) -> Answer<'_, Vec<OpenGate>> {
        Host::gates(self, id).boxed()
    }

    fn answer(&self, id: SessionId, caller: Caller, answer: GateAnswer) -> Answer<'_, Delivery> {
        Host::answer(self, id, caller, answer).boxed()
    }

    fn journal(&self, id: SessionId, from: Seq, limit: usize) -> Answer<'_, JournalPage> {
        Host::journal(self, id, from, limit).boxed()
    }

    fn subscribe(&self, id: SessionId, follow: Follow) -> Answer<'_, BoxStream<'static, Item>> {
        async move {
            let subscription = Host::subscribe(self, id, follow).await?;
            let items = stream::unfold(subscription, async |mut subscription| {
                subscription.next().await.map(|item| (item, subscription))
            });
            Ok(items.boxed())
        }
        .boxed()
    }

    fn subscribe_lists(&self, project: Option<ProjectId>) -> BoxStream<'static, RowChange> {
        // Rows have no replay: a reader that missed some is cut off and reads the list again.
        BroadcastStream::new(self.rows())
            .take_while(|row| future::ready(row.is_ok()))
            .filter_map(|row| future::ready(row.ok()))
            .filter(move |row| {
                future::ready(project.as_ref().is_none_or(|id| id == row.project_id()))
            })
            .boxed()
    }

    fn keyed(&self, session: Option<SessionId>, key: Keyed) -> Answer<'_, KeyState> {
        Host::keyed(self, session, key).boxed()
    }

    fn answered(
        &self,
        session: SessionId,
        key: Keyed,
        status: u16,
        body: Bytes,
    ) -> BoxFuture<'_, ()> {
        Host::answered(self, session, key, status, body).boxed()
    }

    fn create_project(
        &self,
        project: Project,
        workspace: Option<Workspace>,
    ) -> Answer<'_, Project> {
        Host::create_project(self, project, workspace).boxed()
    }

    fn create_workspace(&self, workspace: Workspace) -> Answer<'_, Workspace> {
        Host::create_workspace(self, workspace).boxed()
    }

    fn catalog(&self) -> Arc<dyn Catalog> {
        Host::catalog(self).clone()
    }

    fn harnesses(&self) -> Arc<dyn Harnesses> {
        Host::harnesses(self).clone()
    }

    fn ready(&self) -> Result<(), String> {
        Host::ready(self)
    }
}
