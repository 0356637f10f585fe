//! What an actor is told.

use super::delegates::Ended;
use super::{Opened, ProcessMsg};
use crate::fanout::Feed;
use crate::filter::EventFilter;
use crate::requests::{Delivery, Keyed, OpenGate, ShutDown};
use crate::signals::Guard;
use crate::slots::Slot;
use crate::workplaces::Alone;
use harness_core::abort::AbortSignal;
use harness_core::content::{Message, NewMessage, Part, Role};
use harness_core::gate::{GateAsk, GatePolicy, HostSecrets};
use harness_core::ids::{CommandId, GateId, LoopId};
use harness_core::provider::{
    CallError, ChannelError, Compaction, DelegateResult, DelegationError, Instance,
    Invocation as Invoked, NativeTurn, Outcome, Prepared, Started, WriterId,
};
use harness_core::refusal::Refused;
use harness_core::session::{
    Answer, DelegateCall, GateValue, Input, InvocationId, LinkId, Origin, Reserve,
};
use harness_core::view::{OperationResult, Snapshot};
use harness_core::workspace::{
    OpenRewind, Snapshot as WorkspaceSnapshot, SnapshotError, WorkspaceRef,
};
use harness_journal::{IdempotencyScope, StoredResponse};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Where an announcement's decision comes; dropping it takes the announcement back.
pub(crate) type Announced = (oneshot::Receiver<Result<(), ChannelError>>, Guard);

/// An answer to an import that can be refused.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, ChannelError>>;

/// A write to the conversation.
pub(crate) enum SinkOp {
    Append(NewMessage),
    Open(Role),
    Delta(WriterId, Part),
    Replace(WriterId, u32, Part),
    Finish(WriterId),
}

/// What a write answers.
pub(crate) enum SinkReply {
    Done,
    Writer(WriterId),
    Index(u32),
}

/// What asking a person answers at once.
pub(crate) enum Asked {
    /// A stored rule decided.
    Decided(GateValue),
    /// A gate is open.
    Open {
        gate_id: GateId,
        answer: oneshot::Receiver<GateValue>,
        guard: Guard,
    },
}

/// What waiting for a delegate's result answers at once.
pub(crate) enum Awaited {
    /// It has settled.
    Settled(Box<DelegateResult>),
    /// It comes later.
    Later {
        result: oneshot::Receiver<Result<Box<DelegateResult>, DelegationError>>,
        guard: Guard,
    },
}

/// How a component call returned.
pub(crate) enum Returned {
    Started(Result<Started, CallError>),
    Invoked(Result<Invoked, CallError>),
    Done(Result<Outcome, CallError>),
    Compacted(Result<Compaction, CallError>),
}

/// An operation that passed preparation.
pub(crate) struct ReserveCall {
    pub(crate) reserve: Reserve,
    pub(crate) prepared: Prepared,
    pub(crate) instance: Arc<dyn Instance>,
    /// Fires when its HTTP request is gone.
    pub(crate) gone: AbortSignal,
    pub(crate) keyed: Option<(IdempotencyScope, Keyed)>,
    pub(crate) reply: oneshot::Sender<Reserved>,
}

/// What becomes of it.
pub(crate) enum Reserved {
    /// The command state moved on: compare again.
    Reread(Prepared),
    /// Its result, or why there is none. `true`: refused before reserve, nothing was recorded.
    Ended(Result<OperationResult, Refused>, bool),
}

/// What a fed input answers.
pub(crate) struct Fed {
    pub(crate) answer: Answer,
    /// How a gate answer reached the provider.
    pub(crate) delivery: Delivery,
}

/// A message to a session's actor.
pub(crate) enum Msg {
    /// A client's request.
    Feed {
        input: Input,
        keyed: Option<(IdempotencyScope, Keyed)>,
        reply: oneshot::Sender<Fed>,
    },
    /// A provider's import.
    Import { input: Input, reply: Reply<Answer> },
    /// A client's checkpoint or rewind; answered when it has ended.
    OnWorkspace {
        input: Input,
        command_id: CommandId,
        keyed: Option<(IdempotencyScope, Keyed)>,
        reply: oneshot::Sender<Result<WorkspaceRef, Refused>>,
    },
    /// That checkpoint ended.
    Checkpointed {
        job: u64,
        result: Result<WorkspaceSnapshot, SnapshotError>,
    },
    /// That rewind changed the workspace, or failed.
    Rewound {
        job: u64,
        result: Result<Box<dyn OpenRewind>, SnapshotError>,
        /// The workspace is kept from others until it is known what becomes of it.
        alone: Arc<Alone>,
    },
    /// That rewind left nothing behind.
    RewindFinished { job: u64 },
    /// Others came to the workspace or left it.
    WorkspaceChanged,
    /// A prepared operation.
    Reserve(Box<ReserveCall>),
    /// The HTTP request of an operation is gone.
    CallerGone(CommandId),
    /// Stop; answered when it has ended.
    Interrupt {
        origin: Origin,
        /// The loop with its delegates; all loops when absent.
        loop_id: Option<LoopId>,
        reply: oneshot::Sender<Result<bool, Refused>>,
    },
    /// A write to a conversation.
    Sink {
        invocation: InvocationId,
        op: SinkOp,
        reply: Reply<SinkReply>,
    },
    /// A question to a person.
    Ask {
        invocation: InvocationId,
        ask: GateAsk,
        stored_rules: bool,
        reply: Reply<Asked>,
    },
    /// A loop waits for a delegate's result.
    Await {
        parent: LoopId,
        invocation: Option<InvocationId>,
        request: CommandId,
        reply: oneshot::Sender<Result<Awaited, DelegationError>>,
    },
    /// A loop stops a delegate; the inner answer comes when it is idle (S92).
    StopDelegate {
        call: Box<DelegateCall>,
        reply: oneshot::Sender<Result<Ended, DelegationError>>,
    },
    /// The host asks a person (S88).
    OpenHostGate {
        ask: GateAsk,
        secrets: HostSecrets,
        policy: GatePolicy,
        loop_id: Option<LoopId>,
        reply: oneshot::Sender<Opened>,
    },
    /// The time of a host gate's policy is up.
    HostGateTimeout(GateId),
    /// Open gates.
    Gates {
        reply: oneshot::Sender<Vec<OpenGate>>,
    },
    /// The bound of a stop's barrier passed (S91).
    BarrierExpired(CommandId),
    /// A native turn began.
    Announce {
        loop_id: LoopId,
        turn: NativeTurn,
        reply: Reply<Announced>,
    },
    /// Saved messages for the provider.
    History {
        invocation: InvocationId,
        limit: usize,
        reply: Reply<Vec<Message>>,
    },
    /// Saved messages of a loop, of the active one when none is named, for a client: at most
    /// `limit`, from the given index.
    Messages {
        loop_id: Option<LoopId>,
        from: usize,
        limit: usize,
        reply: oneshot::Sender<Result<Vec<Message>, Refused>>,
    },
    /// The whole picture.
    Snapshot { reply: oneshot::Sender<Snapshot> },
    /// A new subscriber, with the picture it starts from.
    Subscribe {
        filter: EventFilter,
        reply: oneshot::Sender<(Feed, Snapshot)>,
    },
    /// Somebody needs the instance of a loop; of the active one when none is named.
    NeedInstance {
        loop_id: Option<LoopId>,
        reply: oneshot::Sender<Result<Arc<dyn Instance>, CallError>>,
    },
    /// An instance was opened.
    Opened {
        loop_id: LoopId,
        generation: u64,
        result: Result<Arc<dyn Instance>, CallError>,
    },
    /// An invocation runs in this instance.
    Ran {
        invocation: InvocationId,
        instance: Arc<dyn Instance>,
    },
    /// A component call returned.
    Returned {
        invocation: InvocationId,
        returned: Returned,
    },
    /// A slot that was waited for.
    SlotGranted(LoopId, Slot),
    /// The drain bound of these activities passed.
    DrainExpired(LoopId, Vec<LinkId>),
    /// The instance whose activities ignored their abort is gone.
    Drained(LoopId),
    /// The answer of a keyed request, to be kept.
    Answered {
        scope: IdempotencyScope,
        key: Keyed,
        response: StoredResponse,
        reply: oneshot::Sender<()>,
    },
    /// About background processes.
    Process(ProcessMsg),
    /// Delete the session; refused while it is live.
    Delete {
        reply: oneshot::Sender<Result<(), Refused>>,
    },
    /// Shut the session down; answered when it has stopped (S94).
    Shutdown {
        origin: Origin,
        reply: oneshot::Sender<Result<ShutDown, Refused>>,
    },
    /// What runs did not end within its phase.
    ShutdownExpired,
    /// The instances of a session that stopped are gone, or their phase has passed.
    ShutDown { in_time: bool },
    /// The host shuts down.
    Close { reply: oneshot::Sender<()> },
}
