//! What the API asks of the layer below: sessions, the catalogue and the harnesses.
//!
//! `harness_session::Host` implements it. The trait is kept because every rule of this crate —
//! strictness, scopes, idempotency, framing — is tested against a recording double, without a
//! store or a component.

use bytes::Bytes;
use futures::stream::BoxStream;
use harness_core::abort::AbortSignal;
use harness_core::content::Message;
use harness_core::ids::{CommandId, LoopId, ProjectId, Seq, SessionId};
use harness_core::provider::{BoxFuture, Harnesses};
use harness_core::refusal::Refused;
use harness_core::view::{OperationResult, ProcessView, QueuedInput, SessionView};
use harness_core::workspace::WorkspaceRef;
use harness_journal::{Catalog, Page, PageRequest, Project, SessionFilter, Workspace};
use harness_session::{
    Caller, CommandStateRead, CommandStateView, CreateRequest, Created, Delivery, DraftRequest,
    GateAnswer, InputRequest, Keyed, LoopRequest, LoopRuntime, LoopWithModes, OpenGate,
    OperationRequest, RowChange, SettingsRequest, ShutDown,
};
use std::sync::Arc;

pub use harness_session::{EventFilter, Follow, Item, JournalPage, KeyState, Loops, Start};

/// An answer from the plane.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Refused>>;

/// Everything below the API.
pub trait Plane: Send + Sync + 'static {
    /// Draft discovery (R40).
    fn draft_command_state(&self, request: DraftRequest) -> Answer<'_, CommandStateView>;
    /// Creates a session (R43); `gone` fires when the caller has left.
    fn create(
        &self,
        caller: Caller,
        request: CreateRequest,
        gone: AbortSignal,
    ) -> Answer<'_, Created>;
    /// One session.
    fn session(&self, id: SessionId) -> Answer<'_, SessionView>;
    /// Sessions, newest first.
    fn sessions(&self, filter: SessionFilter) -> Answer<'_, Page<SessionView>>;
    /// Changes settings.
    fn patch(
        &self,
        id: SessionId,
        caller: Caller,
        request: SettingsRequest,
    ) -> Answer<'_, SessionView>;
    /// Shuts a session down (S118).
    fn shutdown(&self, id: SessionId, caller: Caller) -> Answer<'_, ShutDown>;
    /// Takes a session up again (S102).
    fn restore(&self, id: SessionId, caller: Caller) -> Answer<'_, SessionView>;
    /// Deletes a session with its journal.
    fn delete(&self, id: SessionId) -> Answer<'_, ()>;
    /// Saved conversation of a loop, of the active one when none is named, oldest first.
    fn messages(
        &self,
        id: SessionId,
        loop_id: Option<LoopId>,
        page: PageRequest,
    ) -> Answer<'_, Page<Message>>;
    /// Loops with their mode catalogues, in order of creation (S112).
    fn loops(&self, id: SessionId) -> Answer<'_, Vec<LoopWithModes>>;
    /// Begins another loop.
    fn create_loop(
        &self,
        id: SessionId,
        caller: Caller,
        request: LoopRequest,
    ) -> Answer<'_, LoopId>;
    /// Makes a loop the active one (S111).
    fn activate_loop(&self, id: SessionId, caller: Caller, loop_id: LoopId) -> Answer<'_, ()>;
    /// Sets a loop's mode (S116).
    fn set_loop_mode(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: LoopId,
        mode: String,
    ) -> Answer<'_, LoopRuntime>;
    /// Sets a loop's model, effort or both (S116).
    fn change_inference(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: LoopId,
        model: Option<String>,
        effort: Option<String>,
    ) -> Answer<'_, LoopRuntime>;
    /// Compacts a loop's conversation (S115).
    fn compact(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
    ) -> Answer<'_, CommandId>;
    /// Takes a snapshot of the session's workspace (S119).
    fn checkpoint(&self, id: SessionId, caller: Caller) -> Answer<'_, WorkspaceRef>;
    /// Makes the session's workspace what a snapshot says (S119).
    fn rewind(
        &self,
        id: SessionId,
        caller: Caller,
        reference: WorkspaceRef,
    ) -> Answer<'_, WorkspaceRef>;
    /// Command state, live (R41).
    fn command_state(&self, id: SessionId) -> Answer<'_, Arc<CommandStateRead>>;
    /// Runs an operation (R42); `gone` fires when the caller has left.
    fn invoke(
        &self,
        id: SessionId,
        caller: Caller,
        request: OperationRequest,
        gone: AbortSignal,
    ) -> Answer<'_, OperationResult>;
    /// Accepts a prompt (S103).
    fn submit(&self, id: SessionId, caller: Caller, request: InputRequest)
    -> Answer<'_, CommandId>;
    /// Queued and held inputs, in order.
    fn queue(&self, id: SessionId) -> Answer<'_, Vec<QueuedInput>>;
    /// Retracts a queued input (S113).
    fn retract(&self, id: SessionId, caller: Caller, command: CommandId) -> Answer<'_, bool>;
    /// Releases held inputs (S114); all of the loop when `ids` is empty.
    fn release(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
        ids: Vec<CommandId>,
    ) -> Answer<'_, Vec<CommandId>>;
    /// Stops what runs (R67).
    fn interrupt(&self, id: SessionId, caller: Caller, loop_id: Option<LoopId>)
    -> Answer<'_, bool>;
    /// Background processes of all loops: those that run, and the newest that ended.
    fn processes(&self, id: SessionId) -> Answer<'_, Vec<ProcessView>>;
    /// Ends a background process; nothing happens when it has ended.
    fn stop_process(&self, id: SessionId, caller: Caller, handle: String) -> Answer<'_, ()>;
    /// Open gates, oldest first, with what only memory knows of them.
    fn gates(&self, id: SessionId) -> Answer<'_, Vec<OpenGate>>;
    /// Answers a gate.
    fn answer(&self, id: SessionId, caller: Caller, answer: GateAnswer) -> Answer<'_, Delivery>;
    /// A page of the journal.
    fn journal(&self, id: SessionId, from: Seq, limit: usize) -> Answer<'_, JournalPage>;
    /// Events of a session that pass the filter.
    fn subscribe(&self, id: SessionId, follow: Follow) -> Answer<'_, BoxStream<'static, Item>>;
    /// Sessions as they change or are deleted. The stream ends when its reader is too slow.
    fn subscribe_lists(&self, project: Option<ProjectId>) -> BoxStream<'static, RowChange>;
    /// Whether a keyed request was answered before.
    fn keyed(&self, session: Option<SessionId>, key: Keyed) -> Answer<'_, KeyState>;
    /// Records the answer to a keyed request.
    fn answered(
        &self,
        session: SessionId,
        key: Keyed,
        status: u16,
        body: Bytes,
    ) -> BoxFuture<'_, ()>;
    /// Stores a project, with its default workspace when given, and begins to set that up.
    fn create_project(&self, project: Project, workspace: Option<Workspace>)
    -> Answer<'_, Project>;
    /// Stores a workspace and begins to set it up.
    fn create_workspace(&self, workspace: Workspace) -> Answer<'_, Workspace>;
    /// Projects, workspaces and tokens.
    fn catalog(&self) -> Arc<dyn Catalog>;
    /// Installed harnesses.
    fn harnesses(&self) -> Arc<dyn Harnesses>;
    /// Whether the host can take work.
    ///
    /// # Errors
    /// Why not, for the log.
    fn ready(&self) -> Result<(), String>;
}
