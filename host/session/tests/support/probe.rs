//! A provider that the test scripts: every call that does something natively waits until the test
//! answers it, and is counted. Discovery and preparation answer by themselves unless held.

use super::patient;
use harness_core::abort::{AbortReason, AbortSignal};
use harness_core::ids::{CommandId, HarnessId};
use harness_core::operation::{CommandState, Execution, NativeCommand, Operation};
use harness_core::provider::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot, watch};

/// Calls of one kind, in the order in which they came in.
pub struct Inbox<T> {
    sender: mpsc::UnboundedSender<Call<T>>,
    calls: tokio::sync::Mutex<mpsc::UnboundedReceiver<Call<T>>>,
    count: AtomicUsize,
    what: &'static str,
}

impl<T> Inbox<T> {
    fn new(what: &'static str) -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        let calls = tokio::sync::Mutex::new(calls);
        let count = AtomicUsize::new(0);
        Self {
            sender,
            calls,
            count,
            what,
        }
    }

    /// The next call; fails the test when none comes.
    pub async fn next(&self) -> Call<T> {
        let mut calls = self.calls.lock().await;
        patient(self.what, calls.recv()).await.unwrap()
    }

    /// How many came in since the start, over all hosts.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// A call that waits for its answer. Dropped, it honours its abort and else never returns.
pub struct Call<T> {
    /// Text of the operation or prompt, native id of an adopted turn.
    pub text: String,
    /// The host command.
    pub command: CommandId,
    pub instance: Arc<ProbeInstance>,
    channel: Option<Arc<dyn Channel>>,
    deaf: Arc<AtomicBool>,
    answer: oneshot::Sender<Result<T, CallError>>,
}

impl<T> Call<T> {
    pub fn channel(&self) -> Arc<dyn Channel> {
        self.channel.clone().unwrap()
    }

    pub fn answer(self, result: Result<T, CallError>) {
        let _ = self.answer.send(result);
    }

    pub fn fails(self, error: CallError) {
        self.answer(Err(error));
    }

    pub fn refuses(self, refusal: Refusal) {
        self.answer(Err(CallError::Refused(refusal)));
    }

    /// From now on an abort does not end it.
    pub fn ignores_abort(&self) {
        self.deaf.store(true, Ordering::SeqCst);
    }

    /// Waits for its abort.
    pub async fn aborted(&self) -> AbortReason {
        let signal = self.channel().abort();
        patient("the abort", signal.aborted()).await
    }

    /// The reason, if its abort has fired.
    pub fn abort_reason(&self) -> Option<AbortReason> {
        self.channel().abort().reason()
    }

    fn native(&self, params: Params) -> Started {
        Started {
            params,
            handle: Box::new(Native {
                command: self.command,
                channel: self.channel(),
            }),
        }
    }
}

struct Native {
    command: CommandId,
    channel: Arc<dyn Channel>,
}

impl Call<Invocation> {
    pub fn completes(self, message: &str) {
        self.completes_with(message, Params::new());
    }

    pub fn completes_with(self, message: &str, params: Params) {
        let message = (!message.is_empty()).then(|| message.into());
        self.answer(Ok(Invocation::Completed(Outcome { message, params })));
    }

    pub fn starts(self) {
        self.starts_with(Params::new());
    }

    pub fn starts_with(self, params: Params) {
        let started = self.native(params);
        self.answer(Ok(Invocation::Started(started)));
    }
}

impl Call<Started> {
    pub fn starts(self) {
        let started = self.native(Params::new());
        self.answer(Ok(started));
    }
}

impl Call<Outcome> {
    pub fn ends(self) {
        self.answer(Ok(Outcome::default()));
    }
}

/// A scripted harness.
pub struct Probe {
    id: HarnessId,
    info: Mutex<Arc<HarnessInfo>>,
    pub status: Mutex<HarnessStatus>,
    pub state: Mutex<CommandState>,
    pub instances: Mutex<Vec<Arc<ProbeInstance>>>,
    pub discovered: Mutex<Vec<DiscoveryContext>>,
    pub prepared: Mutex<Vec<(OperationContext, Operation)>>,
    pub hold_discovery: AtomicBool,
    pub hold_preparation: AtomicBool,
    pub hold_opening: AtomicBool,
    /// Disposed instances end only when the test reaps them.
    pub hold_end: AtomicBool,
    /// No call honours its abort.
    pub ignore_aborts: AtomicBool,
    /// Exports are not reported as entered.
    pub hold_entered: AtomicBool,
    pub opened: AtomicUsize,
    pub discards: AtomicUsize,
    pub discoveries: Inbox<Option<CommandState>>,
    pub preparations: Inbox<Prepared>,
    pub openings: Inbox<()>,
    pub invokes: Inbox<Invocation>,
    pub prompts: Inbox<Started>,
    pub adoptions: Inbox<Started>,
    pub dones: Inbox<Outcome>,
    me: std::sync::Weak<Probe>,
}

impl Probe {
    pub fn new(id: &str) -> Arc<Self> {
        let id: HarnessId = id.parse().unwrap();
        let info = Arc::new(info(&id));
        Arc::new_cyclic(|me| Self {
            id,
            info: Mutex::new(info),
            status: Mutex::new(HarnessStatus {
                state: ProviderState::Ready,
                reason: None,
                readiness: None,
            }),
            state: Mutex::new(CommandState {
                slash_commands: true,
                ..CommandState::default()
            }),
            instances: Mutex::default(),
            discovered: Mutex::default(),
            prepared: Mutex::default(),
            hold_discovery: false.into(),
            hold_preparation: false.into(),
            hold_opening: false.into(),
            hold_end: false.into(),
            ignore_aborts: false.into(),
            hold_entered: false.into(),
            opened: 0.into(),
            discards: 0.into(),
            discoveries: Inbox::new("a discovery"),
            preparations: Inbox::new("a preparation"),
            openings: Inbox::new("an opening"),
            invokes: Inbox::new("an invoke"),
            prompts: Inbox::new("a start-prompt"),
            adoptions: Inbox::new("an adopt-turn"),
            dones: Inbox::new("a done"),
            me: me.clone(),
        })
    }

    pub fn harness_id(&self) -> HarnessId {
        self.id.clone()
    }

    /// Changes what it declares.
    pub fn declare(&self, change: impl FnOnce(&mut HarnessInfo)) {
        let mut info = self.info.lock().unwrap();
        let mut next = (**info).clone();
        change(&mut next);
        *info = Arc::new(next);
    }

    /// Publishes one command, so that the revision changes.
    pub fn publish_command(&self, name: &str) {
        self.state.lock().unwrap().commands = vec![NativeCommand {
            name: name.into(),
            description: String::new(),
            argument_help: None,
            composer: None,
            disabled_reason: None,
        }];
    }

    /// The newest instance of a loop.
    pub fn instance(&self) -> Arc<ProbeInstance> {
        let instances = self.instances.lock().unwrap();
        let of_loop = |i: &&Arc<ProbeInstance>| matches!(i.scope, InstanceScope::Loop { .. });
        instances.iter().rev().find(of_loop).unwrap().clone()
    }

    /// Instances ever opened for loops.
    pub fn loop_instances(&self) -> usize {
        let instances = self.instances.lock().unwrap();
        let of_loop = |i: &&Arc<ProbeInstance>| matches!(i.scope, InstanceScope::Loop { .. });
        instances.iter().filter(of_loop).count()
    }

    /// Everything native that was ever begun.
    pub fn native_calls(&self) -> usize {
        self.invokes.count() + self.prompts.count() + self.adoptions.count()
    }

    pub fn hold(&self, flag: &AtomicBool) {
        flag.store(true, Ordering::SeqCst);
    }
}

fn info(id: &HarnessId) -> HarnessInfo {
    let param = |id: &str, default, choices: &[&str]| ParamSpec {
        id: id.into(),
        label: id.into(),
        description: None,
        control: ParamControl::Inline,
        default,
        choices: choices
            .iter()
            .map(|c| ParamChoice {
                value: (*c).into(),
                label: (*c).into(),
            })
            .collect(),
    };
    HarnessInfo {
        id: id.clone(),
        label: "Probe".into(),
        version: "1".into(),
        models: Vec::new(),
        loop_modes: Vec::new(),
        params: vec![
            param("plan", ParamValue::Boolean(false), &[]),
            param("tone", ParamValue::Text("dry".into()), &["dry", "warm"]),
        ],
        workspace: WorkspaceNeed::Any,
        timeout: TimeoutStrategy::Activity,
        features: Features {
            commands: true,
            state_push: true,
            native_turns: true,
            ..Features::default()
        },
    }
}

impl Harness for Probe {
    fn id(&self) -> &HarnessId {
        &self.id
    }

    fn info(&self) -> Option<Arc<HarnessInfo>> {
        Some(self.info.lock().unwrap().clone())
    }

    fn status(&self) -> HarnessStatus {
        self.status.lock().unwrap().clone()
    }

    fn open(
        &self,
        scope: InstanceScope,
        host: Arc<dyn InstanceHost>,
    ) -> BoxFuture<'_, Result<Arc<dyn Instance>, CallError>> {
        Box::pin(async move {
            self.opened.fetch_add(1, Ordering::SeqCst);
            let instance = Arc::new(ProbeInstance {
                probe: self.me.upgrade().unwrap(),
                scope,
                host,
                life: watch::channel(Life::Live).0,
                disposals: Mutex::default(),
                activities: Mutex::default(),
            });
            if self.hold_opening.load(Ordering::SeqCst) {
                let never = AbortSignal::never();
                instance
                    .held(&self.openings, String::new(), None, None, never)
                    .await?;
            }
            self.instances.lock().unwrap().push(instance.clone());
            Ok(instance as Arc<dyn Instance>)
        })
    }
}

#[derive(Clone, PartialEq)]
enum Life {
    Live,
    /// Being consumed: its calls end with this.
    Ending(CallError),
    Gone(CallError),
}

/// One scripted instance.
pub struct ProbeInstance {
    pub probe: Arc<Probe>,
    pub scope: InstanceScope,
    /// What the session lends to its `run`.
    pub host: Arc<dyn InstanceHost>,
    life: watch::Sender<Life>,
    pub disposals: Mutex<Vec<AbortReason>>,
    activities: Mutex<BTreeMap<String, Box<dyn Activity>>>,
}

impl ProbeInstance {
    /// It ends by itself: calls under way end with this.
    pub fn dies(&self, error: CallError) {
        self.activities.lock().unwrap().clear();
        self.life.send_replace(Life::Gone(error));
    }

    /// Its processes are reaped (see [`Probe::hold_end`]).
    pub fn reap(&self) {
        self.dies(CallError::Lost("reaped".into()));
    }

    pub fn begin_activity(&self, label: &str) -> AbortSignal {
        let activity = self.host.begin_activity(label.into()).unwrap();
        let signal = activity.abort();
        self.activities
            .lock()
            .unwrap()
            .insert(label.into(), activity);
        signal
    }

    pub fn end_activity(&self, label: &str) {
        let ended = self.activities.lock().unwrap().remove(label);
        assert!(ended.is_some(), "no activity {label}");
    }

    /// Announces a native turn in the background.
    pub fn announce(
        &self,
        id: &str,
        start: TurnStart,
    ) -> tokio::task::JoinHandle<Result<(), ChannelError>> {
        let (host, turn) = (
            self.host.clone(),
            NativeTurn {
                id: id.into(),
                start,
                reason: "goal".into(),
                cause: None,
            },
        );
        tokio::spawn(async move { host.announce_turn(turn).await })
    }

    async fn ending(&self) -> CallError {
        let mut life = self.life.subscribe();
        let ended = life.wait_for(|l| *l != Life::Live).await.unwrap();
        match &*ended {
            Life::Ending(error) | Life::Gone(error) => error.clone(),
            Life::Live => unreachable!(),
        }
    }

    async fn held<T>(
        self: &Arc<Self>,
        inbox: &Inbox<T>,
        text: String,
        command: Option<CommandId>,
        channel: Option<Arc<dyn Channel>>,
        abort: AbortSignal,
    ) -> Result<T, CallError> {
        if !self.is_live() {
            return Err(CallError::Lost("the instance has ended".into()));
        }
        let (answer, mut answered) = oneshot::channel();
        let deaf = self.probe.ignore_aborts.load(Ordering::SeqCst);
        let deaf = Arc::new(AtomicBool::new(deaf));
        inbox.count.fetch_add(1, Ordering::SeqCst);
        if let Some(channel) = &channel
            && !self.probe.hold_entered.load(Ordering::SeqCst)
        {
            channel.entered();
        }
        let _ = inbox.sender.send(Call {
            text,
            command: command.unwrap_or(CommandId::ZERO),
            instance: self.clone(),
            channel,
            deaf: deaf.clone(),
            answer,
        });
        let mut answer = Box::pin(async move {
            match (&mut answered).await {
                Ok(result) => result,
                Err(_) => std::future::pending().await,
            }
        });
        tokio::select! {
            biased;
            result = &mut answer => return result,
            error = self.ending() => return Err(error),
            _ = abort.aborted() => {}
        }
        if !deaf.load(Ordering::SeqCst) {
            return Err(CallError::Refused(Refusal::Cancelled));
        }
        tokio::select! {
            biased;
            result = &mut answer => result,
            error = self.ending() => Err(error),
        }
    }

    fn arc(&self) -> Arc<Self> {
        let instances = self.probe.instances.lock().unwrap();
        let me = instances.iter().find(|i| std::ptr::eq(i.as_ref(), self));
        me.unwrap().clone()
    }
}

impl Instance for ProbeInstance {
    fn is_live(&self) -> bool {
        *self.life.borrow() == Life::Live
    }

    fn ended(&self) -> BoxFuture<'static, InstanceEnd> {
        let mut life = self.life.subscribe();
        Box::pin(async move {
            let _ = life.wait_for(|l| matches!(l, Life::Gone(_))).await;
            InstanceEnd {
                clean: true,
                disconnected: false,
                reason: "ended".into(),
            }
        })
    }

    fn detect(
        &self,
        _: DiscoveryContext,
        _: AbortSignal,
    ) -> BoxFuture<'_, Result<Readiness, CallError>> {
        Box::pin(async {
            Ok(Readiness {
                native_version: None,
                compatibility: Compatibility::Supported,
                models: Vec::new(),
            })
        })
    }

    fn get_command_state(
        &self,
        context: DiscoveryContext,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Option<CommandState>, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            me.probe.discovered.lock().unwrap().push(context);
            if me.probe.hold_discovery.load(Ordering::SeqCst) {
                let inbox = &me.probe.discoveries;
                return me.held(inbox, String::new(), None, None, abort).await;
            }
            let state = me.probe.state.lock().unwrap().clone();
            if me.is_live() {
                Ok(Some(state))
            } else {
                Err(CallError::Lost("the instance has ended".into()))
            }
        })
    }

    fn prepare(
        &self,
        context: OperationContext,
        operation: Operation,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Prepared, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let text = match &operation {
                Operation::Command { text } => text.clone(),
                Operation::ModeAction { action_id, .. } => action_id.clone(),
            };
            let recorded = (context, operation);
            me.probe.prepared.lock().unwrap().push(recorded);
            if me.probe.hold_preparation.load(Ordering::SeqCst) {
                let inbox = &me.probe.preparations;
                return me.held(inbox, text, None, None, abort).await;
            }
            if me.is_live() {
                Ok(prepared(&text))
            } else {
                Err(CallError::Lost("the instance has ended".into()))
            }
        })
    }

    fn discard(&self, _: Prepared) {
        self.probe.discards.fetch_add(1, Ordering::SeqCst);
    }

    fn invoke(
        &self,
        prepared: Prepared,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Invocation, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let text = *prepared.handle.downcast::<String>().unwrap();
            let abort = channel.abort();
            me.held(
                &me.probe.invokes,
                text,
                Some(command_id),
                Some(channel),
                abort,
            )
            .await
        })
    }

    fn start_prompt(
        &self,
        input: PromptInput,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let text = format!("{:?}", input.parts);
            let (command, abort) = (input.command_id, channel.abort());
            me.held(&me.probe.prompts, text, Some(command), Some(channel), abort)
                .await
        })
    }

    fn adopt_turn(
        &self,
        native_turn_id: String,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let abort = channel.abort();
            let (inbox, command) = (&me.probe.adoptions, Some(command_id));
            me.held(inbox, native_turn_id, command, Some(channel), abort)
                .await
        })
    }

    fn done(&self, started: Started) -> BoxFuture<'_, Result<Outcome, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let native = *started.handle.downcast::<Native>().unwrap();
            let abort = native.channel.abort();
            let (inbox, command) = (&me.probe.dones, Some(native.command));
            me.held(inbox, String::new(), command, Some(native.channel), abort)
                .await
        })
    }

    fn compact(
        &self,
        _: CommandId,
        _: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Compaction, CallError>> {
        Box::pin(async { Ok(Compaction::default()) })
    }

    fn dispose(&self, reason: AbortReason) -> BoxFuture<'static, InstanceEnd> {
        self.disposals.lock().unwrap().push(reason);
        let error = CallError::Terminated(reason);
        self.life.send_modify(|life| {
            if *life == Life::Live {
                *life = Life::Ending(error.clone());
            }
        });
        if !self.probe.hold_end.load(Ordering::SeqCst) {
            self.dies(error);
        }
        self.ended()
    }
}

/// What preparation answers by itself: texts that begin with `/x` are exclusive.
pub fn prepared(text: &str) -> Prepared {
    let execution = if text.starts_with("/x") {
        Execution::Exclusive
    } else {
        Execution::Control
    };
    Prepared {
        execution,
        handle: Box::new(text.to_owned()),
    }
}

impl Call<Prepared> {
    pub fn prepares(self) {
        let ready = prepared(&self.text);
        self.answer(Ok(ready));
    }
}

/// The harnesses of a world; a test may take one away.
#[derive(Default)]
pub struct Shelf(pub Mutex<BTreeMap<HarnessId, Arc<Probe>>>);

impl Shelf {
    pub fn put(&self, probe: &Arc<Probe>) {
        let mut shelf = self.0.lock().unwrap();
        shelf.insert(probe.harness_id(), probe.clone());
    }
}

impl Harnesses for Shelf {
    fn list(&self) -> Vec<Arc<dyn Harness>> {
        let shelf = self.0.lock().unwrap();
        shelf
            .values()
            .map(|p| p.clone() as Arc<dyn Harness>)
            .collect()
    }

    fn get(&self, id: &HarnessId) -> Option<Arc<dyn Harness>> {
        let shelf = self.0.lock().unwrap();
        shelf.get(id).map(|p| p.clone() as Arc<dyn Harness>)
    }
}
