//! The `Provider` port: what the session layer asks of a harness, and what it lends in return.
//!
//! `harness-engine` implements [`Harnesses`], [`Harness`] and [`Instance`] over wasm components;
//! `harness-session` consumes them and implements [`InstanceHost`] and [`Channel`], the two sides
//! a running provider talks back to. The two crates do not know each other.
//!
//! Division of labour, so that neither side guesses:
//! - The *engine* owns every deadline of requirements §7.3, the drain bound after an abort, the
//!   inactivity bound of `done` (R28) and the pausing of clocks while a call waits on a gate. Each
//!   call returns within deadline + drain bound + 250 ms (W2), whatever the component does; a call
//!   that ends abnormally leaves an instance that answers [`CallError::Lost`] to everything else.
//! - The engine checks the contract's bounds (W3, W4, R7) before a value reaches the session.
//! - The engine rejects pending host calls of an aborted channel with [`ChannelError::Stopped`] by
//!   dropping the session's future, so every future given out here must clean up when dropped.
//! - The *session* owns admission, gates, the journal and what a result means.

mod background;
mod contract;
mod delegation;
mod error;

pub use background::*;
pub use contract::*;
pub use delegation::*;
pub use error::*;

use crate::abort::{AbortReason, AbortSignal};
use crate::configuration::HarnessConfiguration;
use crate::content::{Message, NewMessage, Part, Role, Usage};
use crate::gate::{ApprovalDecision, ApprovalRequest, FormAnswer, QuestionForm};
use crate::ids::{CommandId, HarnessId, LoopId, ProjectId, SessionId, WorkspaceId};
use crate::operation::{CommandState, Execution, Operation};
use std::any::Any;
use std::sync::Arc;

/// An owned, sendable future, so that the port stays object-safe.
pub type BoxFuture<'a, T> = futures::future::BoxFuture<'a, T>;

/// All harnesses of the host.
pub trait Harnesses: Send + Sync + 'static {
    /// Every installed harness, by id.
    fn list(&self) -> Vec<Arc<dyn Harness>>;
    /// The harness of that qualified id.
    fn get(&self, id: &HarnessId) -> Option<Arc<dyn Harness>>;
}

/// Whom an instance serves (W7).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InstanceScope {
    /// Draft discovery and detection: no session.
    Draft {
        /// The project asked for.
        project: ProjectId,
        /// The workspace asked for.
        workspace: Option<WorkspaceId>,
    },
    /// One loop of one session.
    Loop {
        /// The session's project.
        project: ProjectId,
        /// The session.
        session: SessionId,
        /// The loop.
        loop_id: LoopId,
    },
}

/// One installed harness: a component under a qualified id.
pub trait Harness: Send + Sync + 'static {
    /// Its qualified id.
    fn id(&self) -> &HarnessId;
    /// What it says of itself; `None` until a load has described it.
    fn info(&self) -> Option<Arc<HarnessInfo>>;
    /// What sessions on it are run with; `None` until a load has described it.
    fn configuration(&self) -> Option<HarnessConfiguration> {
        let info = self.info()?;
        Some(HarnessConfiguration {
            declares: info.id.clone(),
            version: info.version.clone(),
            contract: None,
            loop_modes: info.loop_modes.iter().map(|m| m.name.clone()).collect(),
        })
    }
    /// Where it stands now.
    fn status(&self) -> HarnessStatus;
    /// A fresh instance, in which `run` is entered before any other call. It may still be starting:
    /// what keeps it from it ends the calls made of it.
    ///
    /// # Errors
    /// [`CallError::Unavailable`] while loading, quarantined or backing off.
    fn open(
        &self,
        scope: InstanceScope,
        host: Arc<dyn InstanceHost>,
    ) -> BoxFuture<'_, Result<Arc<dyn Instance>, CallError>>;
}

/// A validated operation that has not been performed. It goes back through
/// [`Instance::invoke`] or [`Instance::discard`]; taking it by value makes twice impossible.
pub struct Prepared {
    /// How the provider classified it.
    pub execution: Execution,
    /// The engine's handle.
    pub handle: Box<dyn Any + Send>,
}

/// A turn the provider started, opaque to the session; it goes into [`Instance::done`] once.
pub struct Started {
    /// Settings the provider changed by starting it.
    pub params: Params,
    /// The engine's handle.
    pub handle: Box<dyn Any + Send>,
}

/// What `invoke` answered.
pub enum Invocation {
    /// The operation is done.
    Completed(Outcome),
    /// Acknowledged, not completed.
    Started(Started),
}

/// One live component instance. Calls may run beside each other.
///
/// Every method but `dispose` ends on its own within its deadline; dropping the returned future
/// does not stop the guest: fire the abort signal and await.
pub trait Instance: Send + Sync + 'static {
    /// Whether new calls can still be made. False as soon as the instance is being consumed.
    fn is_live(&self) -> bool;
    /// Resolves with why, when the instance has ended and its process groups are reaped (N3).
    fn ended(&self) -> BoxFuture<'static, InstanceEnd>;
    /// Looks whether the native harness is there and fits.
    fn detect(
        &self,
        context: DiscoveryContext,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Readiness, CallError>>;
    /// Reads native state. `None`: no commands.
    fn get_command_state(
        &self,
        context: DiscoveryContext,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Option<CommandState>, CallError>>;
    /// Validates an operation; performs no mutation.
    fn prepare(
        &self,
        context: OperationContext,
        operation: Operation,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Prepared, CallError>>;
    /// Gives back a prepared operation that will not be invoked. Returns at once.
    fn discard(&self, prepared: Prepared);
    /// Performs the operation, at most once. Its abort signal is the channel's.
    fn invoke(
        &self,
        prepared: Prepared,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Invocation, CallError>>;
    /// Starts a turn with an ordinary prompt.
    fn start_prompt(
        &self,
        input: PromptInput,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>>;
    /// Adopts a turn the native side announced.
    fn adopt_turn(
        &self,
        native_turn_id: String,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>>;
    /// Runs a started turn to its native terminal event. Called exactly once a start.
    fn done(&self, started: Started) -> BoxFuture<'_, Result<Outcome, CallError>>;
    /// Compacts the native conversation's context.
    fn compact(
        &self,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Compaction, CallError>>;
    /// Aborts every call, waits the drain bound, drops the instance and reaps its processes.
    /// Idempotent; a second caller waits for the same end (R31).
    fn dispose(&self, reason: AbortReason) -> BoxFuture<'static, InstanceEnd>;
}

/// How an instance ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceEnd {
    /// Whether it was asked to end and did so in time.
    pub clean: bool,
    /// `run` returned an error: the native connection was lost (N2).
    pub disconnected: bool,
    /// For a person.
    pub reason: String,
}

/// What the session lends to `run` (the contract's `link`).
pub trait InstanceHost: Send + Sync + 'static {
    /// Its session as it is now; both ids absent in a draft instance.
    fn context(&self) -> DiscoveryContext;
    /// A native turn that no invocation asked for (N6). Dropping the future withdraws it.
    fn announce_turn(&self, turn: NativeTurn) -> BoxFuture<'_, Result<(), ChannelError>>;
    /// A whole message outside any turn (N11).
    fn append(&self, message: NewMessage) -> BoxFuture<'_, Result<(), ChannelError>>;
    /// Native work between turns (N5). It ends when the returned value drops.
    ///
    /// # Errors
    /// `Closed` in a draft instance, `Limit` beyond eight.
    fn begin_activity(&self, label: String) -> Result<Box<dyn Activity>, ChannelError>;
    /// The command state changed; never blocks (G7).
    fn state_changed(&self);
    /// The authority of this instance over delegates of its loop; none in a draft instance.
    fn delegation(&self) -> Option<Arc<dyn Delegation>> {
        None
    }
    /// Programs that outlive the instance (S97); `None` in a draft instance.
    fn background(&self) -> Option<&dyn Background> {
        None
    }
}

/// An open activity; dropping it ends it.
pub trait Activity: Send + Sync + 'static {
    /// Fires on Stop (N13) and at the end of its longest life.
    fn abort(&self) -> AbortSignal;
}

/// Which open message a write goes to.
pub type WriterId = u64;

/// What the session lends to one invocation (the contract's `channel`).
///
/// After the invocation ended every method answers [`ChannelError::Closed`] and has no effect
/// (W6). Futures clean up when dropped: a dropped approval or question withdraws its gate (N17).
pub trait Channel: Send + Sync + 'static {
    /// The invocation's context, sampled when it was reserved.
    fn context(&self) -> OperationContext;
    /// Fires on Stop, on the caller's disconnect, on shutdown.
    fn abort(&self) -> AbortSignal;
    /// The engine tells that the export was entered (N7).
    fn entered(&self);
    /// Appends a whole message.
    fn append(&self, message: NewMessage) -> BoxFuture<'_, Result<(), ChannelError>>;
    /// Opens a message to stream into.
    fn open_message(&self, role: Role) -> BoxFuture<'_, Result<WriterId, ChannelError>>;
    /// Adds a part or extends the last one; answers the part's index.
    fn delta(&self, writer: WriterId, part: Part) -> BoxFuture<'_, Result<u32, ChannelError>>;
    /// Replaces an earlier part.
    fn replace(
        &self,
        writer: WriterId,
        index: u32,
        part: Part,
    ) -> BoxFuture<'_, Result<(), ChannelError>>;
    /// Closes an open message.
    fn finish(&self, writer: WriterId) -> BoxFuture<'_, Result<(), ChannelError>>;
    /// The writer's handle dropped: closes the message if it is still open. Never blocks.
    fn abandon_writer(&self, writer: WriterId);
    /// The newest `limit` saved messages, oldest first, without the input of this turn.
    fn history(&self, limit: u32) -> BoxFuture<'_, Result<Vec<Message>, ChannelError>>;
    /// Reports token usage; never blocks.
    fn report_usage(&self, usage: Usage);
    /// Opens an approval gate and waits for its answer.
    fn request_approval(
        &self,
        request: ApprovalRequest,
    ) -> BoxFuture<'_, Result<ApprovalDecision, ChannelError>>;
    /// Opens a question gate and waits for its answer.
    fn ask(&self, form: QuestionForm) -> BoxFuture<'_, Result<FormAnswer, ChannelError>>;
    /// Closes the open gate of that `tool_use_id` or form id as withdrawn; never blocks.
    fn withdraw(&self, id: String);
    /// Resolves with true as soon as an input waits for folding, false after `close_input`.
    fn input_ready(&self) -> BoxFuture<'_, Result<bool, ChannelError>>;
    /// The inputs that wait now; each is durable as folded before it is returned (N16).
    fn take_input(&self) -> BoxFuture<'_, Result<Vec<PromptInput>, ChannelError>>;
    /// Ends a pending `input_ready`; never blocks.
    fn close_input(&self);
    /// The native side accepted a conversation (R28): durable when it returns.
    fn bind_native_session(&self, id: String) -> BoxFuture<'_, Result<(), ChannelError>>;
    /// The authority of this invocation over delegates of its loop.
    fn delegation(&self) -> Option<Arc<dyn Delegation>> {
        None
    }
}
