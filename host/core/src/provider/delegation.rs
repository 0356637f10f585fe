//! What a running provider may do with delegates: loops that its own loop starts and owns (S96).
//!
//! A *request* is one message from a loop to a child of it; it settles once, when the turn that it
//! opened or was folded into has ended, or when it left the child's inbox without one. Whoever
//! asks is the loop that the caller's instance serves: no argument names a parent.

use super::BoxFuture;
use crate::content::{Block, Part};
use crate::event::DeliveryState;
use crate::ids::{CommandId, HarnessId, LoopId};

/// Loops below a loop that no other started.
pub const MAX_DEPTH: usize = 3;
/// Delegates that a session may ever start (S76).
pub const MAX_SPAWNS: usize = 64;
/// Requests of one loop with a hand-back that has not reached it.
pub const MAX_HAND_BACKS: usize = 32;
/// Calls of one session that wait for a result.
pub const MAX_AWAITS: usize = 64;
/// Settled requests that a child remembers.
pub const MAX_SETTLED: usize = 64;
/// Largest task, in bytes of its text, names and addresses.
pub const MAX_TASK_BYTES: usize = 1024 * 1024;
/// Parts of one task.
pub const MAX_TASK_PARTS: usize = 64;
/// Largest text of a result, in bytes; what is beyond it is cut.
pub const MAX_RESULT_BYTES: usize = 256 * 1024;

/// Why a delegation call was refused. A closed set, and nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DelegationError {
    /// The calling turn or operation was stopped, or the session took the authority back (S94).
    #[error("the caller was stopped")]
    Stopped,
    /// The calling invocation or instance is over.
    #[error("the caller is over")]
    Closed,
    /// A stop is under way there, or session or host end (S91).
    #[error("a stop is under way")]
    Stopping,
    /// Not granted, or not declared.
    #[error("denied: {0}")]
    Denied(String),
    /// No harness of that id is installed.
    #[error("no harness `{0}` is installed")]
    UnknownHarness(String),
    /// The harness is installed and cannot run now.
    #[error("the harness is not available: {0}")]
    Unavailable(String),
    /// Delegates nest too deep.
    #[error("a delegate is at most {MAX_DEPTH} loops below the first")]
    Depth,
    /// The session has started all the delegates it may.
    #[error("a session starts at most {MAX_SPAWNS} delegates in its life")]
    Quota,
    /// The loop or request is of another parent, or does not exist.
    #[error("the caller is not the parent of that loop or request")]
    NotParent,
    /// The child is closed for good.
    #[error("the delegate is closed")]
    Exited,
    /// The child's inbox is full.
    #[error("the delegate's inbox is full")]
    QueueFull,
    /// A mode, model or task that is not possible.
    #[error("{0}")]
    Invalid(String),
    /// A size or count bound.
    #[error("limit: {0}")]
    Limit(String),
    /// The host failed; nothing was recorded.
    #[error("host failure: {0}")]
    Failed(String),
}

/// What a child is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateTask {
    /// Text and files, taken literally.
    pub parts: Vec<Part>,
    /// The result comes to the parent as an input of its own.
    pub background: bool,
    /// Offered to the child's running turn; else it waits for a turn of its own.
    pub fold: bool,
}

/// A child to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateStart {
    /// Its harness.
    pub harness: HarnessId,
    /// Its model; the harness's default when absent.
    pub model: Option<String>,
    /// Its loop mode; empty: the base mode.
    pub mode: String,
    /// Its first task.
    pub task: DelegateTask,
}

/// A child that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartedDelegate {
    /// The child.
    pub loop_id: LoopId,
    /// The request that its first task is.
    pub request_id: CommandId,
}

/// How a request settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateResult {
    /// The request.
    pub request_id: CommandId,
    /// The child.
    pub loop_id: LoopId,
    /// How: never `fallback_queued`.
    pub state: DeliveryState,
    /// Text of the last message of the turn, at most [`MAX_RESULT_BYTES`].
    pub text: String,
    /// Why, unless completed: a stable code and a sentence.
    pub error: Option<(String, String)>,
}

/// Where a cancelled request was found (S4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelledAt {
    /// It had settled already.
    Noop,
    /// In the child's inbox.
    Queued,
    /// In its turn, which is being stopped.
    Active,
}

/// A child as its parent sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateInfo {
    /// The child.
    pub loop_id: LoopId,
    /// Its harness.
    pub harness: HarnessId,
    /// It takes no request any more.
    pub closed: bool,
    /// It runs something.
    pub running: bool,
    /// Requests that have not settled, oldest first.
    pub open_requests: Vec<CommandId>,
}

/// A call's answer.
pub type Delegated<'a, T> = BoxFuture<'a, Result<T, DelegationError>>;

/// The authority of one caller over the delegates of its loop. Futures clean up when dropped; what
/// was accepted stays accepted (S96).
pub trait Delegation: Send + Sync + 'static {
    /// Starts a child with its first task.
    fn start(&self, start: DelegateStart) -> Delegated<'_, StartedDelegate>;
    /// Tells a child more; answers the request.
    fn send(&self, child: LoopId, task: DelegateTask) -> Delegated<'_, CommandId>;
    /// Waits for a result at most that long; `None`: it takes longer, and goes on.
    fn await_result(
        &self,
        request: CommandId,
        timeout: std::time::Duration,
    ) -> Delegated<'_, Option<DelegateResult>>;
    /// Takes a request back; no hand-back follows.
    fn cancel(&self, request: CommandId) -> Delegated<'_, CancelledAt>;
    /// Stops what runs in a child and below it; returns when the child is idle (S92). False:
    /// nothing ran.
    fn stop(&self, child: LoopId) -> Delegated<'_, bool>;
    /// The children, in order of creation.
    fn list(&self) -> Delegated<'_, Vec<DelegateInfo>>;
}

impl DelegateTask {
    /// The task as it is stored.
    ///
    /// # Errors
    /// Parts that are neither text nor file, none at all, or too much of them.
    pub fn blocks(&self) -> Result<Vec<Block>, DelegationError> {
        if self.parts.is_empty() || self.parts.len() > MAX_TASK_PARTS {
            return Err(DelegationError::Limit(format!(
                "a task has 1 to {MAX_TASK_PARTS} parts"
            )));
        }
        let mut bytes = 0;
        let mut blocks = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let block = match part {
                Part::Text { text } => {
                    bytes += text.len();
                    Block::Text { text: text.clone() }
                }
                Part::File {
                    name,
                    media_type,
                    uri,
                } => {
                    bytes += name.len() + media_type.len() + uri.len();
                    Block::File {
                        name: name.clone(),
                        media_type: media_type.clone(),
                        uri: uri.clone(),
                    }
                }
                _ => {
                    return Err(DelegationError::Invalid(
                        "a task is made of text and files".into(),
                    ));
                }
            };
            blocks.push(block);
        }
        if bytes > MAX_TASK_BYTES {
            return Err(DelegationError::Limit(format!(
                "a task has at most {MAX_TASK_BYTES} bytes"
            )));
        }
        Ok(blocks)
    }
}
