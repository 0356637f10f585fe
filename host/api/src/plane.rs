//! What the API asks of the layer below: sessions, the catalogue and the harnesses.
//!
//! `harness_session::Host` implements it. The trait is kept because every rule of this crate —
//! strictness, scopes, idempotency, framing — is tested against a recording double, without a
//! store or a component.

use bytes::Bytes;
use futures::stream::BoxStream;
use harness_core::abort::AbortSignal;
use harness_core::content::Message;
use harness_core::gate::Gate;
use harness_core::ids::{CommandId, LoopId, ProjectId, Seq, SessionId};
use harness_core::provider::{BoxFuture, Harnesses};
use harness_core::refusal::Refused;
use harness_core::view::{OperationResult, QueuedInput, SessionView};
use harness_journal::{Catalog, Page, PageRequest, Project, SessionFilter, Workspace};
use harness_session::{
    Caller, CommandStateView, CreateRequest, Created, Delivery, DraftRequest, GateAnswer,
    InputRequest, Keyed, OperationRequest, SettingsRequest,
};
use std::sync::Arc;

pub use harness_session::{Item, JournalPage, KeyState, Start};

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
    /// Deletes a session with its journal.
    fn delete(&self, id: SessionId) -> Answer<'_, ()>;
    /// Saved conversation, oldest first.
    fn messages(&self, id: SessionId, page: PageRequest) -> Answer<'_, Page<Message>>;
    /// Command state, live (R41).
    fn command_state(&self, id: SessionId) -> Answer<'_, CommandStateView>;
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
    /// Open gates, oldest first.
    fn gates(&self, id: SessionId) -> Answer<'_, Vec<Gate>>;
    /// Answers a gate.
    fn answer(&self, id: SessionId, caller: Caller, answer: GateAnswer) -> Answer<'_, Delivery>;
    /// A page of the journal.
    fn journal(&self, id: SessionId, from: Seq, limit: usize) -> Answer<'_, JournalPage>;
    /// Events of a session.
    fn subscribe(&self, id: SessionId, from: Start) -> Answer<'_, BoxStream<'static, Item>>;
    /// Sessions as they change. The stream ends when its reader is too slow.
    fn subscribe_lists(&self, project: Option<ProjectId>) -> BoxStream<'static, Arc<SessionView>>;
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
