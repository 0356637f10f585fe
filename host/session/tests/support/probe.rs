//! A provider that the test scripts: every call that does something natively waits until the test
//! answers it, and is counted. Discovery and preparation answer by themselves unless held.

use super::instance::ProbeInstance;
use super::patient;
use harness_core::abort::{AbortReason, AbortSignal};
use harness_core::configuration::HarnessConfiguration;
use harness_core::ids::{CommandId, HarnessId};
use harness_core::operation::{CommandState, Execution, NativeCommand, Operation};
use harness_core::provider::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};

/// Calls of one kind, in the order in which they came in.
pub struct Inbox<T> {
    pub sender: mpsc::UnboundedSender<Call<T>>,
    calls: tokio::sync::Mutex<mpsc::UnboundedReceiver<Call<T>>>,
    pub calls_seen: AtomicUsize,
    what: &'static str,
}

impl<T> Inbox<T> {
    fn new(what: &'static str) -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        let calls = tokio::sync::Mutex::new(calls);
        let calls_seen = AtomicUsize::new(0);
        Self {
            sender,
            calls,
            calls_seen,
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
        self.calls_seen.load(Ordering::SeqCst)
    }
}

/// A call that waits for its answer. Dropped, it honours its abort and else never returns.
pub struct Call<T> {
    /// Text of the operation or prompt, native id of an adopted turn.
    pub text: String,
    /// The host command.
    pub command: CommandId,
    pub instance: Arc<ProbeInstance>,
    pub from: Option<Arc<dyn Channel>>,
    pub deaf: Arc<AtomicBool>,
    pub answer: oneshot::Sender<Result<T, CallError>>,
}

impl<T> Call<T> {
    pub fn channel(&self) -> Arc<dyn Channel> {
        self.from.clone().unwrap()
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

/// What a started turn holds.
pub struct Native {
    pub command: CommandId,
    pub channel: Arc<dyn Channel>,
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
    /// What its component declares to be, if not what it is installed as.
    pub declares: Mutex<Option<HarnessId>>,
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
    /// Inputs of `start-prompt`, in order.
    pub inputs: Mutex<Vec<PromptInput>>,
    pub prompts: Inbox<Started>,
    pub adoptions: Inbox<Started>,
    pub dones: Inbox<Outcome>,
    pub compactions: Inbox<Compaction>,
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
            declares: Mutex::default(),
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
            inputs: Mutex::default(),
            prompts: Inbox::new("a start-prompt"),
            adoptions: Inbox::new("an adopt-turn"),
            dones: Inbox::new("a done"),
            compactions: Inbox::new("a compaction"),
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

    fn configuration(&self) -> Option<HarnessConfiguration> {
        let info = self.info.lock().unwrap();
        let declares = self.declares.lock().unwrap().clone();
        Some(HarnessConfiguration {
            declares: declares.unwrap_or_else(|| self.id.clone()),
            version: info.version.clone(),
            contract: Some("0.1.0".into()),
            loop_modes: info.loop_modes.iter().map(|m| m.name.clone()).collect(),
        })
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
            let probe = self.me.upgrade().unwrap();
            let instance = Arc::new(ProbeInstance::new(probe, scope, host));
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
