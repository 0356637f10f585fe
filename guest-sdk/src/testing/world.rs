//! What the host knows: one per thread, shared by the doubles and by [`Host`].
//!
//! [`Host`]: super::Host

use super::programs::Programs;
use super::signal::Signal;
use crate::types::{
    AbortReason, ApprovalDecision, ApprovalRequest, ChannelError, DiscoveryContext, FormAnswer,
    LogLevel, Message, NativeTurn, OperationContext, Param, QuestionForm, Usage, Workspace,
};
use futures::channel::mpsc::UnboundedSender;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Shared by everything of one thread.
pub(crate) type Shared = Rc<RefCell<World>>;

thread_local! {
    static WORLD: RefCell<Shared> = RefCell::new(Shared::default());
}

pub(crate) fn current() -> Shared {
    WORLD.with_borrow(Rc::clone)
}

pub(super) fn install(world: Shared) {
    WORLD.set(world);
}

/// The settings of the one session.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) project_id: String,
    pub(crate) session_id: String,
    pub(crate) native_session_id: Option<String>,
    pub(crate) workspace: Option<Workspace>,
    pub(crate) model: Option<String>,
    pub(crate) params: Vec<Param>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            project_id: "project".to_owned(),
            session_id: "session".to_owned(),
            native_session_id: None,
            workspace: None,
            model: None,
            params: Vec::new(),
        }
    }
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateKind {
    /// May this tool run?
    Approval(ApprovalRequest),
    /// Questions.
    Form(QuestionForm),
}

/// An open request for a human answer.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The `tool-use-id` or the form's id.
    pub id: String,
    /// What is asked.
    pub kind: GateKind,
    pub(crate) answer: Signal<Result<Answer, ChannelError>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Approval(ApprovalDecision),
    Form(FormAnswer),
}

/// A native turn that was announced, and what the host said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeTurnRecord {
    /// As announced.
    pub turn: NativeTurn,
    /// What the announcement answered.
    pub answer: Result<(), ChannelError>,
}

/// An activity that is open.
#[derive(Debug)]
pub(crate) struct OpenActivity {
    pub(crate) id: u64,
    pub(crate) label: String,
    pub(crate) abort: Signal<AbortReason>,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) config: Vec<(String, String)>,
    /// Serves discovery only; belongs to no session.
    pub(crate) draft: bool,
    pub(crate) native_turns: bool,
    pub(crate) logs: Vec<(LogLevel, String)>,
    pub(crate) state_changes: usize,
    pub(crate) usage: Option<Usage>,
    pub(crate) stored: BTreeMap<(u8, String), Vec<u8>>,
    pub(crate) state_failure: Option<ChannelError>,
    /// The conversation, open messages included, in the order they were begun.
    pub(crate) messages: Vec<Message>,
    pub(crate) gates: Vec<Gate>,
    /// Inputs offered to the live turn.
    pub(crate) inputs: Vec<crate::types::Input>,
    pub(crate) input_waiters: Vec<std::task::Waker>,
    pub(crate) activities: Vec<OpenActivity>,
    pub(crate) activities_made: u64,
    pub(crate) announced: Vec<NativeTurnRecord>,
    pub(crate) adopt: Option<UnboundedSender<NativeTurn>>,
    /// A turn is starting or running.
    pub(crate) turn_live: bool,
    /// A control runs without a turn.
    pub(crate) control_live: bool,
    /// Fires when the turn or control above ends; replaced then.
    pub(crate) settled: Signal<()>,
    /// A Stop was claimed and no person has begun anything since.
    pub(crate) stopped: bool,
    /// What was asked of delegates.
    pub(crate) delegation: super::delegation::Delegation,
    /// Background programs and what became of them.
    pub(crate) programs: Programs,
    /// Signals of the calls in flight.
    pub(crate) calls: Vec<Signal<AbortReason>>,
}

impl World {
    pub(crate) fn discovery_context(&self) -> DiscoveryContext {
        let settings = self.settings.clone();
        DiscoveryContext {
            project_id: settings.project_id,
            session_id: (!self.draft).then_some(settings.session_id),
            native_session_id: settings.native_session_id.filter(|_| !self.draft),
            workspace: settings.workspace,
            model: settings.model,
            effort: None,
            loop_mode: None,
            params: settings.params,
        }
    }

    pub(crate) fn operation_context(&self) -> OperationContext {
        let settings = self.settings.clone();
        OperationContext {
            project_id: settings.project_id,
            session_id: settings.session_id,
            loop_id: "loop".to_owned(),
            native_session_id: settings.native_session_id,
            workspace: settings.workspace,
            model: settings.model,
            effort: None,
            loop_mode: None,
            params: settings.params,
        }
    }

    /// The turn or control ended: announcements that wait may go on.
    pub(crate) fn settle(&mut self) -> Signal<()> {
        std::mem::take(&mut self.settled)
    }
}
