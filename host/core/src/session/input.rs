//! What happens to a session, and what a decision asks its actor to do.

use super::live::{InvocationId, LinkId};
use crate::abort::AbortReason;
use crate::command::ProcessNotice;
use crate::configuration::Configuration;
use crate::content::{Block, Message, NewMessage, Usage};
use crate::event::{Event, Runtime};
use crate::gate::{ApprovalDecision, FormAnswer, Gate, GateAsk, GateReply, HostAnswer};
use crate::ids::{CommandId, GateId, HarnessId, LoopId};
use crate::operation::{Execution, Operation};
use crate::provider::{
    CallError, CancelledAt, ChannelError, Compaction, DelegateInfo, DelegateResult, DelegateStart,
    DelegateTask, DelegationError, IoError, ModelSpec, NativeTurn, Outcome, Params, ProgramEnd,
    PromptInput, StartedDelegate,
};
use crate::refusal::Refused;
use crate::view::OperationResult;
use crate::workspace::{Rewound, Snapshot, SnapshotError, WorkspaceRef};

/// Who asked, for a command's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The command's id.
    pub command_id: CommandId,
    /// Opaque authenticated identity.
    pub caller: Option<String>,
}

/// An operation that passed preparation and asks to be reserved (§7.1 steps 6 and 7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserve {
    /// Who asked.
    pub origin: Origin,
    /// The loop whose harness prepared it.
    pub loop_id: LoopId,
    /// That harness.
    pub harness_id: HarnessId,
    /// What is asked.
    pub operation: Operation,
    /// How it was classified.
    pub execution: Execution,
    /// Revision the client saw.
    pub expected_revision: Option<String>,
    /// [`super::State::settings_epoch`] that preparation saw.
    pub settings_epoch: u64,
    /// The last reserve that preparation saw.
    pub run_id: Option<crate::ids::RunId>,
    /// [`super::LiveLoop::state_epoch`] before the read that the revision was compared with.
    pub state_epoch: Option<u64>,
    /// It has waited for a starting prompt already (R65).
    pub waited: bool,
}

/// What a running provider asks about delegates of its loop (S96).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateCall {
    /// The loop whose instance asks; the parent of all that the call is about.
    pub parent: LoopId,
    /// The invocation that asks; none: the instance by itself.
    pub invocation: Option<InvocationId>,
    /// What.
    pub act: DelegateAct,
}

/// What is to be done with a delegate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelegateAct {
    /// Starts a child with a first task.
    Start(DelegateStart),
    /// Tells a child more.
    Send {
        /// The child.
        child: LoopId,
        /// What.
        task: DelegateTask,
    },
    /// Waits for a result, which comes at once or as [`Effect::AnswerAwait`].
    Await {
        /// Number of the wait.
        id: LinkId,
        /// The request.
        request: CommandId,
    },
    /// Takes a request back (S4).
    Cancel(CommandId),
    /// Stops what runs in a child and below it (S92).
    Stop(LoopId),
    /// Tells which children there are.
    List,
}

/// What a delegation call is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelegateAnswer {
    /// A child was started.
    Started(StartedDelegate),
    /// The message is this request.
    Sent(CommandId),
    /// The request has settled.
    Settled(Box<DelegateResult>),
    /// It has not: [`Effect::AnswerAwait`] comes.
    Awaiting,
    /// Where the cancelled request was.
    Cancelled(CancelledAt),
    /// The children.
    Children(Vec<DelegateInfo>),
}

/// How `invoke` answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invoked {
    /// The operation is done.
    Completed(Outcome),
    /// The provider accepted; these settings changed by it.
    Started(Params),
}

/// Everything that can happen to a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A prompt (S103).
    Submit {
        /// Who asked.
        origin: Origin,
        /// What it says.
        blocks: Vec<Block>,
        /// The loop; the active one when absent.
        loop_id: Option<LoopId>,
        /// Never folds.
        no_fold: bool,
        /// Only folds.
        fold_only: bool,
    },
    /// A prepared operation.
    Reserve(Box<Reserve>),
    /// A first operation that met a problem before reserve (R50).
    RejectFirst {
        /// Who asked.
        origin: Origin,
        /// What was asked.
        operation: Operation,
        /// How it was classified, if it was.
        execution: Option<Execution>,
        /// Code of the problem.
        code: String,
        /// The reason.
        message: String,
    },
    /// The component's export was entered (N7).
    Entered(InvocationId),
    /// `start-prompt` or `adopt-turn` returned.
    Started {
        /// The invocation.
        invocation: InvocationId,
        /// Settings changed, or why it failed.
        result: Result<Params, CallError>,
        /// Messages that are complete and not committed.
        messages: Vec<Message>,
    },
    /// `invoke` returned.
    Invoked {
        /// The invocation.
        invocation: InvocationId,
        /// How.
        result: Result<Invoked, CallError>,
        /// Messages that are complete and not committed.
        messages: Vec<Message>,
    },
    /// `done` returned.
    Done {
        /// The invocation.
        invocation: InvocationId,
        /// How.
        result: Result<Outcome, CallError>,
        /// Messages that are complete and not committed.
        messages: Vec<Message>,
    },
    /// Messages are complete: a step group (S56).
    Step {
        /// The invocation.
        invocation: InvocationId,
        /// In order.
        messages: Vec<Message>,
    },
    /// Token usage was reported.
    Usage {
        /// The invocation.
        invocation: InvocationId,
        /// So far.
        usage: Usage,
    },
    /// The native side accepted a conversation.
    Bind {
        /// The invocation.
        invocation: InvocationId,
        /// Native id.
        native_session_id: String,
    },
    /// The provider takes the inputs that wait (S42, N16).
    TakeInput(InvocationId),
    /// The provider asks a person.
    Ask {
        /// The invocation.
        invocation: InvocationId,
        /// What.
        ask: GateAsk,
        /// Every rule of the request is stored already (S83).
        stored_rules: bool,
    },
    /// The provider withdraws its request of that id (N17).
    Withdraw {
        /// The invocation.
        invocation: InvocationId,
        /// The provider's id of it.
        provider_id: String,
    },
    /// The provider dropped its call (N17).
    Unasked(GateId),
    /// The gate's policy answers: its time is up (S86).
    GateTimeout(GateId),
    /// A person answers.
    Answer {
        /// Who.
        origin: Origin,
        /// The gate.
        gate_id: GateId,
        /// The answer.
        reply: GateReply,
    },
    /// Claims a gate for an answer that needs something else first (S80); who claimed it answers
    /// with [`Input::AnswerClaimed`], or gives it back.
    ClaimGate {
        /// The gate.
        gate_id: GateId,
        /// The answer that is to follow.
        reply: GateReply,
    },
    /// Gives a claimed gate back.
    UnclaimGate(GateId),
    /// Answers a gate that was claimed for it.
    AnswerClaimed {
        /// Who.
        origin: Origin,
        /// The gate.
        gate_id: GateId,
        /// The answer.
        reply: GateReply,
    },
    /// The host asks a person (S88).
    OpenHostGate {
        /// What, as it is stored.
        ask: GateAsk,
        /// The loop at which it is shown; the active one when absent.
        loop_id: Option<LoopId>,
    },
    /// The opener of a host gate no longer wants it.
    CloseHostGate(GateId),
    /// A new loop (S30).
    CreateLoop {
        /// Its id.
        loop_id: LoopId,
        /// Its harness.
        harness_id: HarnessId,
        /// Its model.
        model: Option<String>,
        /// Its mode; empty: the base mode.
        mode: String,
    },
    /// Makes a loop the active one (S35).
    SetActiveLoop(LoopId),
    /// Another mode for a loop (S20).
    SetLoopMode {
        /// The loop.
        loop_id: LoopId,
        /// The mode; empty: the base mode.
        mode: String,
    },
    /// Another model or effort for a loop (S21).
    ChangeInference {
        /// The loop.
        loop_id: LoopId,
        /// Models that were found natively.
        native: Vec<ModelSpec>,
        /// The model; unchanged when absent.
        model: Option<String>,
        /// The effort; unchanged when absent.
        effort: Option<String>,
    },
    /// Compacts the conversation of a loop (S34).
    Compact {
        /// Who asked.
        origin: Origin,
        /// The loop; the active one when absent.
        loop_id: Option<LoopId>,
    },
    /// `compact` returned.
    Compacted {
        /// The invocation.
        invocation: InvocationId,
        /// How.
        result: Result<Compaction, CallError>,
        /// Messages that are complete and not committed.
        messages: Vec<Message>,
    },
    /// A snapshot of the workspace (S98).
    Checkpoint(Origin),
    /// Makes the workspace what a snapshot of it says (S99).
    Rewind {
        /// Who asked.
        origin: Origin,
        /// The snapshot.
        reference: WorkspaceRef,
    },
    /// The checkpoint that ran has ended.
    Checkpointed(Result<Snapshot, SnapshotError>),
    /// The rewind that ran has changed the workspace, or has failed.
    Rewound(Result<Rewound, SnapshotError>),
    /// What a way back from the rewind would have needed is dropped.
    RewindFinished,
    /// Others came to the workspace or left it.
    WorkspaceChanged,
    /// Stop (R67).
    Interrupt {
        /// Who asked.
        origin: Origin,
        /// The loop with its delegates; every loop when absent (S90).
        loop_id: Option<LoopId>,
    },
    /// The stop of that command did not end within its bound: its loops are freed (S91).
    BarrierExpired(CommandId),
    /// Every activity of the loop ended after a stop, or the drain bound passed.
    ActivitiesSettled(LoopId),
    /// The HTTP request of an operation is gone (R69).
    CallerGone(CommandId),
    /// The native side began a turn (N6).
    Announce {
        /// The loop whose instance said it.
        loop_id: LoopId,
        /// Its number.
        id: LinkId,
        /// What.
        turn: NativeTurn,
    },
    /// So many announcements of the loop are held back by their rate.
    Paced {
        /// The loop.
        loop_id: LoopId,
        /// How many.
        announcements: usize,
    },
    /// The announcing call was dropped.
    Unannounce(LinkId),
    /// A message outside any turn (N11).
    LinkAppend {
        /// The loop whose instance said it.
        loop_id: LoopId,
        /// What it says.
        message: NewMessage,
    },
    /// An activity began.
    ActivityBegan {
        /// The loop whose instance opened it.
        loop_id: LoopId,
        /// Its number.
        id: LinkId,
        /// Its label.
        label: String,
    },
    /// An activity ended.
    ActivityEnded {
        /// The loop.
        loop_id: LoopId,
        /// Its number.
        id: LinkId,
    },
    /// An instance starts a granted program that outlives it (S97).
    StartProcess {
        /// The loop whose instance asked.
        loop_id: LoopId,
        /// The harness of that instance.
        harness: HarnessId,
        /// The operator's name of the program.
        program: String,
    },
    /// A background process ended.
    ProcessEnded {
        /// The loop.
        loop_id: LoopId,
        /// The process.
        process_handle: String,
        /// How.
        end: ProgramEnd,
    },
    /// A process notification, perhaps said again (S97).
    NotifyProcess(ProcessNotice),
    /// Background processes did not end within their phase of a shutdown.
    ProcessesExpired,
    /// Takes a queued or held input back (S46).
    Retract {
        /// Who asked.
        origin: Origin,
        /// The input.
        target: CommandId,
    },
    /// Releases held inputs (S52); empty: all.
    Release {
        /// Who asked.
        origin: Origin,
        /// The loop; all of them when absent.
        loop_id: Option<LoopId>,
        /// The inputs.
        targets: Vec<CommandId>,
    },
    /// Changes settings; values are validated by the caller.
    Settings {
        /// Who asked.
        origin: Origin,
        /// New title.
        title: Option<String>,
        /// New model; `Some(None)` clears it.
        model: Option<Option<String>>,
        /// All parameters after the change.
        params: Option<Params>,
        /// Another harness.
        agent: Option<HarnessId>,
    },
    /// A provider asks about delegates.
    Delegate(Box<DelegateCall>),
    /// The call that waited for a result is gone.
    Unawait(LinkId),
    /// The provider of that loop says its command state changed (G7).
    StateChanged(LoopId),
    /// Looks whether something waits that can go on now. Fed after every other input.
    Advance,
    /// Adopts the configuration of now, where it is known, and repairs what a lost process left
    /// open (§6.1).
    Restore {
        /// Delegates whose harness is not installed any more: they are closed (S77).
        lost: Vec<LoopId>,
        /// What the session is run with now.
        now: Option<Box<Configuration>>,
    },
    /// Shuts the session down for good (S94).
    Shutdown(Origin),
    /// What runs did not end within the bound of its phase: the session stops without it.
    ShutdownExpired,
    /// Takes a session that was shut down up again (S102), under the configuration of now.
    Reopen(Option<Box<Configuration>>),
    /// The host shuts down: what runs is stopped, nothing new is admitted.
    Close,
    /// The journal refused an enduring event (S62).
    Fault(String),
    /// Somebody else holds the session's lease now; who, in words (S66).
    LeaseLost(String),
}

/// What the asker of an input is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Nothing to say.
    None,
    /// Done, or accepted.
    Accepted,
    /// Interrupted, retracted.
    Bool(bool),
    /// What the next turn of a loop uses (S20).
    LoopRuntime {
        /// Its mode.
        mode: String,
        /// Its model and effort.
        runtime: Runtime,
    },
    /// These were released.
    Released(Vec<CommandId>),
    /// The operation runs as this invocation; its result comes as [`Effect::Resolve`].
    Reserved(InvocationId),
    /// A prompt is starting: ask again when its handle is there, or the bound passed (R65).
    WaitForHandle,
    /// Another session has the workspace: ask again when it was left, or the bound passed (S99).
    WaitForWorkspace,
    /// The command state moved on since the read: read again and compare (step 6).
    Reread,
    /// An open gate: its answer comes as [`Effect::AnswerGate`] or [`Effect::AnswerHostGate`].
    Asked(GateId),
    /// The gate is claimed.
    Claimed(Box<Gate>),
    /// A stored rule answered the request.
    Approved(ApprovalDecision),
    /// The folded inputs.
    Inputs(Vec<PromptInput>),
    /// Wait: the result of the checkpoint or rewind comes as [`Effect::AnswerWorkspace`].
    AtWork,
    /// Wait: the session shuts down, the end comes as [`Effect::ShutDown`].
    ShuttingDown,
    /// Wait: the stop of that command is under way, its end comes as [`Effect::Stopped`].
    Stopping(CommandId),
    /// What a delegation call is told.
    Delegate(Result<DelegateAnswer, DelegationError>),
    /// A host import is refused.
    Channel(ChannelError),
    /// The handle of a process whose start is durable, or why it may not start.
    Process(Result<String, IoError>),
    /// What became of a process notification.
    Notified(Notified),
    /// Refused.
    Refused(Box<Refused>),
}

/// What became of a process notification (S97).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notified {
    /// It is durable and waits to reach the provider.
    Dispatched,
    /// The same was said before; nothing follows from it.
    Duplicate,
    /// Something else was said before under this id; nothing follows from it.
    Collision,
    /// The loop's set is full, or the loop is gone: to be said again with the same id.
    Stopped,
    /// It is about another session; nothing was recorded.
    WrongSession,
}

/// What a waiting gate call gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateValue {
    /// Of an approval.
    Approval(ApprovalDecision),
    /// Of a form.
    Form(FormAnswer),
    /// Nobody will answer.
    Rejected(ChannelError),
}

/// What a decision asks its actor to do, in order, once its records are durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Calls `start-prompt`.
    StartPrompt {
        /// The invocation.
        invocation: InvocationId,
        /// The loop.
        loop_id: LoopId,
        /// What to say.
        input: PromptInput,
    },
    /// Calls `invoke` on what was prepared for the command.
    Invoke {
        /// The invocation.
        invocation: InvocationId,
        /// The command.
        command_id: CommandId,
    },
    /// Calls `adopt-turn`.
    Adopt {
        /// The invocation.
        invocation: InvocationId,
        /// The loop.
        loop_id: LoopId,
        /// The host command.
        command_id: CommandId,
        /// The native turn.
        native_turn_id: String,
    },
    /// Calls `compact`.
    Compact {
        /// The invocation.
        invocation: InvocationId,
        /// The loop.
        loop_id: LoopId,
        /// The first command that asked for it.
        command_id: CommandId,
    },
    /// The session works in the workspace it was let into.
    EnterWorkspace,
    /// It does not any more.
    LeaveWorkspace,
    /// Feeds [`Input::WorkspaceChanged`] when somebody else leaves the workspace.
    WatchWorkspace,
    /// Takes a snapshot; the session has the workspace alone until the next job or
    /// [`Effect::FreeWorkspace`].
    Checkpoint,
    /// Changes the workspace to that snapshot; as [`Effect::Checkpoint`].
    Rewind {
        /// Who asked.
        command_id: CommandId,
        /// The snapshot.
        reference: WorkspaceRef,
    },
    /// The rewind's event is durable: drops what a way back would need. Ends in
    /// [`Input::RewindFinished`].
    FinishRewind,
    /// Nobody waits for the job that runs any more: it is to give up.
    AbandonWorkspaceJob,
    /// The session does not need the workspace alone any more.
    FreeWorkspace,
    /// Who asked for a checkpoint or a rewind has the result.
    AnswerWorkspace {
        /// The command.
        command_id: CommandId,
        /// The snapshot, or why there is none.
        result: Result<WorkspaceRef, Box<Refused>>,
    },
    /// Calls `done` on what the invocation started.
    CallDone(InvocationId),
    /// Fires an invocation's abort signal.
    Abort {
        /// The invocation.
        invocation: InvocationId,
        /// Why.
        reason: AbortReason,
    },
    /// The invocation is over: its channel answers `closed` from now on.
    CloseChannel(InvocationId),
    /// An operation has its result.
    Resolve {
        /// The operation.
        command_id: CommandId,
        /// The result, or the problem of §6 that carries it.
        result: Result<OperationResult, Box<Refused>>,
    },
    /// A gate has its answer.
    AnswerGate {
        /// The gate.
        gate_id: GateId,
        /// The answer.
        value: GateValue,
    },
    /// A wait for a delegate's result is over.
    AnswerAwait {
        /// Its number.
        id: LinkId,
        /// The result.
        result: Result<Box<DelegateResult>, DelegationError>,
    },
    /// A gate of the host has its answer, without what is only in memory.
    AnswerHostGate {
        /// The gate.
        gate_id: GateId,
        /// The answer.
        answer: HostAnswer,
    },
    /// An announcement has its answer.
    AnswerAnnouncement {
        /// Its number.
        id: LinkId,
        /// The answer.
        result: Result<(), ChannelError>,
    },
    /// Fires the signal of every activity of the loop; when the drain bound passes and one is still open, the
    /// instance is disposed of. Ends in [`Input::ActivitiesSettled`].
    AbortActivities(LoopId),
    /// An ephemeral event for who listens now.
    Publish(Box<Event>),
    /// The free slot that was offered is the loop's.
    TakeSlot(LoopId),
    /// The pool is overdrawn by one (N8).
    OverdrawSlot(LoopId),
    /// The loop wants a slot; [`Input::Advance`] comes when it is there.
    WaitForSlot(LoopId),
    /// The loop's slot, or its wish for one, is given back.
    ReleaseSlot(LoopId),
    /// A prompt's handle is there, or its startup failed: controls that wait ask again.
    RetryWaiting,
    /// The stop of that command has ended.
    Stopped(CommandId),
    /// Ends every background process of the session; each end comes as [`Input::ProcessEnded`], and
    /// [`Input::ProcessesExpired`] when the bound of that phase has passed.
    EndProcesses,
    /// The session has stopped: its instances are disposed of, and who asked is told.
    ShutDown,
    /// Feeds [`Input::BarrierExpired`] when the bound of that stop has passed (S91).
    WatchBarrier(CommandId),
    /// The loop's command state may have changed: one coalesced G7 frame.
    NotifyState(LoopId),
    /// The first operation of the row was accepted, or a later one (R49).
    Hook {
        /// True for the first.
        first: bool,
        /// The operation.
        command_id: CommandId,
    },
    /// The loop's instance belongs to another harness now: dispose of it.
    DisposeInstance(LoopId),
}
