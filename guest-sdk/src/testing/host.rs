//! The host's side of the contract, driven by a test.

use super::delegation::{DelegateRequest, result_of};
use super::doubles::host as double;
use super::executor;
use super::programs::{self, ProgramRun, Script};
use super::signal::Signal;
use super::world::{self, Answer, Gate, NativeTurnRecord, Shared, World};
use crate::background::ProcessInfo;
use crate::delegation::{DelegationError, ResultState};
use crate::dispatch::{self, StartedTurn};
use crate::provider::{Invocation, Prepared, Provider};
use crate::types::{
    AbortReason, ApprovalDecision, ChannelError, CommandState, Compaction, Error, Execution,
    Features, FormAnswer, Input, InputOrigin, LogLevel, Message, MessagePart, ModeActionOperation,
    NativeTurn, Operation, Outcome, Param, Readiness, Workspace,
};
use crate::{Channel, Discovery, Link, Preparation};
use futures::StreamExt;
use futures::channel::mpsc;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// What an operation came to.
#[derive(Debug)]
pub enum Reply {
    /// It is done; its params were merged into the session's.
    Completed(Outcome),
    /// It started a turn, which runs whenever the test lets time pass.
    Started(Turn),
}

impl Reply {
    /// The outcome of a completed operation.
    ///
    /// # Panics
    ///
    /// When it started a turn.
    #[must_use]
    pub fn completed(self) -> Outcome {
        match self {
            Self::Completed(outcome) => outcome,
            Self::Started(_) => panic!("the operation started a turn"),
        }
    }

    /// The turn that was started.
    ///
    /// # Panics
    ///
    /// When the operation completed at once.
    #[must_use]
    pub fn started(self) -> Turn {
        match self {
            Self::Started(turn) => turn,
            Self::Completed(outcome) => panic!("completed at once: {outcome:?}"),
        }
    }
}

/// A turn that was started; `done` runs beside the test.
#[derive(Clone, Debug)]
pub struct Turn(Signal<Result<Outcome, Error>>);

/// One session of provider `P`, see the [module](super).
pub struct Host<P: Provider> {
    provider: Rc<P>,
    world: Shared,
    life: Signal<AbortReason>,
    ran: Signal<Result<(), Error>>,
    ids: Rc<RefCell<u64>>,
}

impl<P: Provider> Host<P> {
    /// A session's instance: `run` is called and left pending.
    #[must_use]
    pub fn start() -> Self {
        Self::with(World::default())
    }

    /// A draft instance: discovery only.
    #[must_use]
    pub fn draft() -> Self {
        Self::with(World {
            draft: true,
            ..World::default()
        })
    }

    /// A session's instance with the operator's settings.
    #[must_use]
    pub fn with_config(config: &[(&str, &str)]) -> Self {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self::with(World {
            config: config.iter().map(own).collect(),
            ..World::default()
        })
    }

    fn with(world: World) -> Self {
        executor::reset();
        let world = Rc::new(RefCell::new(world));
        world::install(Rc::clone(&world));
        Self::instance(world, Rc::default())
    }

    fn instance(world: Shared, ids: Rc<RefCell<u64>>) -> Self {
        let provider = Rc::new(P::default());
        let (life, ran) = (Signal::default(), Signal::default());
        let (adopt, mut adoptions) = mpsc::unbounded();
        // Outside the borrow: a description may read the settings.
        let features = P::describe().features;
        {
            let mut world = world.borrow_mut();
            world.native_turns = features.contains(Features::NATIVE_TURNS);
            world.adopt = Some(adopt);
        }
        let host = Self {
            provider: Rc::clone(&provider),
            world: Rc::clone(&world),
            life: life.clone(),
            ran: ran.clone(),
            ids: Rc::clone(&ids),
        };
        let (tell, mut ends) = mpsc::unbounded();
        {
            let mut world = world.borrow_mut();
            world.programs.tell = Some(tell);
            // Those of the host before this one.
            world.tell_ends();
        }
        let teller = (Rc::clone(&host.provider), Rc::clone(&world));
        executor::spawn(async move {
            while ends.next().await.is_some() {
                start_ends(&teller.0, &teller.1).await;
            }
        });
        let link = Link::new(double::Link { abort: life });
        executor::spawn(async move {
            ran.set(dispatch::run(&*provider, link).await);
        });
        let adopter = (Rc::clone(&host.provider), world, ids);
        executor::spawn(async move {
            while let Some(turn) = adoptions.next().await {
                adopt_turn(&adopter.0, &adopter.1, &adopter.2, turn).await;
            }
        });
        executor::run_until_stalled();
        host
    }

    /// Ends the instance as a restart of the host does, after the drain bound, and
    /// starts the next one over the same durable state and conversation.
    #[must_use]
    pub fn restart(self) -> Self {
        self.abort_all(AbortReason::Shutdown);
        self.life.set(AbortReason::Shutdown);
        executor::advance(Duration::from_millis(u64::from(crate::limits::DRAIN_MS)));
        self.crash()
    }

    /// Loses the instance without a word, as `kill -9` does, and starts the next
    /// one over the same durable state and conversation.
    #[must_use]
    pub fn crash(self) -> Self {
        executor::reset();
        {
            let mut world = self.world.borrow_mut();
            world.turn_live = false;
            world.control_live = false;
            world.stopped = false;
            world.gates.clear();
            world.inputs.clear();
            world.activities.clear();
            world.calls.clear();
            world.lose_processes();
        }
        Self::instance(Rc::clone(&self.world), Rc::clone(&self.ids))
    }

    // ---- calls ------------------------------------------------------------

    /// `detect`.
    ///
    /// # Errors
    ///
    /// The provider's.
    pub fn detect(&self) -> Result<Readiness, Error> {
        let (provider, request) = (Rc::clone(&self.provider), self.discovery());
        executor::block_on(async move { dispatch::detect(&*provider, request).await })
    }

    /// `get-command-state`.
    ///
    /// # Errors
    ///
    /// The provider's.
    pub fn discover(&self) -> Result<Option<CommandState>, Error> {
        let (provider, request) = (Rc::clone(&self.provider), self.discovery());
        executor::block_on(async move { dispatch::get_command_state(&*provider, request).await })
    }

    /// `prepare-operation`, then `discard`: how the operation would run.
    ///
    /// # Errors
    ///
    /// The provider's refusal.
    pub fn classify(&self, operation: Operation) -> Result<Execution, Error> {
        let provider = Rc::clone(&self.provider);
        let request = Preparation::new(double::Preparation(Signal::default()));
        executor::block_on(async move {
            let prepared = dispatch::prepare(&*provider, request, operation).await?;
            let execution = execution(&prepared);
            provider.discard(prepared);
            Ok(execution)
        })
    }

    /// A native command, prepared and invoked; see [`perform`](Self::perform).
    ///
    /// # Errors
    ///
    /// The provider's refusal.
    pub fn command(&self, text: &str) -> Result<Reply, Error> {
        self.perform(Operation::Command(text.to_owned()))
    }

    /// A mode action, prepared and invoked; see [`perform`](Self::perform).
    ///
    /// # Errors
    ///
    /// The provider's refusal.
    pub fn action(&self, mode: &str, action: &str, argument: Option<&str>) -> Result<Reply, Error> {
        self.perform(Operation::ModeAction(ModeActionOperation {
            mode_id: mode.to_owned(),
            action_id: action.to_owned(),
            argument: argument.map(str::to_owned),
        }))
    }

    /// Prepares and invokes an operation. Params of its answer are merged into the
    /// session's, as the settings owner does.
    ///
    /// # Errors
    ///
    /// The provider's refusal, or `NotAllowed("session_busy")` for an exclusive
    /// while a turn runs, which never reaches `invoke`.
    pub fn perform(&self, operation: Operation) -> Result<Reply, Error> {
        let (provider, world) = (Rc::clone(&self.provider), Rc::clone(&self.world));
        let command_id = self.next_id("command");
        let request = Preparation::new(double::Preparation(Signal::default()));
        executor::block_on(async move {
            let prepared = dispatch::prepare(&*provider, request, operation).await?;
            let exclusive = execution(&prepared) == Execution::Exclusive;
            let beside = world.borrow().turn_live;
            if exclusive && beside {
                provider.discard(prepared);
                return Err(Error::NotAllowed("session_busy".to_owned()));
            }
            let (life, channel) = open_channel(&world, &command_id);
            {
                let mut world = world.borrow_mut();
                world.stopped = false;
                world.turn_live |= exclusive;
                world.control_live = !exclusive && !beside;
            }
            let result = dispatch::invoke(&*provider, prepared, channel).await;
            Ok(match result {
                Ok(Invocation::Started { turn, params }) => {
                    merge_params(&world, params);
                    Reply::Started(run_turn(&provider, &world, turn, life))
                }
                other => {
                    life.close();
                    let settled = {
                        let mut world = world.borrow_mut();
                        world.turn_live &= !exclusive;
                        world.control_live = false;
                        world.settle()
                    };
                    settled.set(());
                    match other? {
                        Invocation::Completed(outcome) => {
                            merge_params(&world, outcome.params.clone());
                            Reply::Completed(outcome)
                        }
                        Invocation::Started { .. } => unreachable!("handled above"),
                    }
                }
            })
        })
    }

    /// An ordinary prompt of one text part; its turn runs whenever the test lets
    /// time pass.
    ///
    /// # Errors
    ///
    /// The provider's, or `NotAllowed("session_busy")` while a turn runs (the real
    /// host queues it).
    pub fn prompt(&self, text: &str) -> Result<Turn, Error> {
        if self.turn_live() {
            return Err(Error::NotAllowed("session_busy".to_owned()));
        }
        self.prompt_with(user_input(&self.next_id("prompt"), text))
    }

    fn prompt_with(&self, input: Input) -> Result<Turn, Error> {
        let (provider, world) = (Rc::clone(&self.provider), Rc::clone(&self.world));
        let command_id = input.command_id.clone();
        {
            let mut world = world.borrow_mut();
            world.turn_live = true;
            world.stopped = false;
        }
        executor::block_on(async move {
            let (life, channel) = open_channel(&world, &command_id);
            match dispatch::start_prompt(&*provider, input, channel).await {
                Ok(started) => Ok(run_turn(&provider, &world, started, life)),
                Err(error) => {
                    life.close();
                    settle(&world);
                    Err(error)
                }
            }
        })
    }

    /// `compact`.
    ///
    /// # Errors
    ///
    /// The provider's.
    pub fn compact(&self) -> Result<Compaction, Error> {
        let (provider, world) = (Rc::clone(&self.provider), Rc::clone(&self.world));
        let command_id = self.next_id("compact");
        executor::block_on(async move {
            let (life, channel) = open_channel(&world, &command_id);
            let result = dispatch::compact(&*provider, channel).await;
            life.close();
            result
        })
    }

    /// Lets time pass until the turn ends.
    ///
    /// # Errors
    ///
    /// What `done` answered.
    pub fn finish(&self, turn: Turn) -> Result<Outcome, Error> {
        executor::block_on(async move { turn.0.wait().await })
    }

    /// How the turn ended, or `None` while it runs.
    #[must_use]
    pub fn ended(&self, turn: &Turn) -> Option<Result<Outcome, Error>> {
        turn.0.get()
    }

    /// Stop: fires the signals of every call in flight and of every activity, and
    /// answers announcements with `stopped` until a person begins something.
    /// Returns whether there was anything to stop.
    pub fn stop(&self) -> bool {
        let any = {
            let mut world = self.world.borrow_mut();
            world.stopped = true;
            world.turn_live || world.control_live || !world.activities.is_empty()
        };
        self.abort_all(AbortReason::UserStop);
        executor::run_until_stalled();
        any
    }

    fn abort_all(&self, reason: AbortReason) {
        let signals: Vec<_> = {
            let mut world = self.world.borrow_mut();
            let activities = world.activities.iter().map(|open| open.abort.clone());
            let activities: Vec<_> = activities.collect();
            world.calls.drain(..).chain(activities).collect()
        };
        signals.into_iter().for_each(|signal| signal.set(reason));
    }

    /// Lets `time` pass.
    pub fn advance(&self, time: Duration) {
        executor::advance(time);
    }

    /// Offers an input to the live turn (`folding`).
    pub fn offer_input(&self, text: &str) {
        let input = user_input(&self.next_id("input"), text);
        self.offer(input);
    }

    fn offer(&self, input: Input) {
        let waiters = {
            let mut world = self.world.borrow_mut();
            world.inputs.push(input);
            std::mem::take(&mut world.input_waiters)
        };
        waiters.into_iter().for_each(std::task::Waker::wake);
        executor::run_until_stalled();
    }

    // ---- delegates --------------------------------------------------------

    /// What the provider told its delegates, in order.
    #[must_use]
    pub fn delegate_requests(&self) -> Vec<DelegateRequest> {
        executor::run_until_stalled();
        self.world.borrow().delegation.requests.clone()
    }

    /// A delegate comes to an end with a request. One that was made in the
    /// background is handed back: folded into the live turn where the provider
    /// takes input, else as a turn of its own, which is returned.
    ///
    /// # Errors
    ///
    /// What `start-prompt` answered.
    ///
    /// # Panics
    ///
    /// When there is no such request, or it has settled.
    pub fn settle_delegate(
        &self,
        request_id: &str,
        state: ResultState,
        text: &str,
    ) -> Result<Option<Turn>, Error> {
        let requests = self.delegate_requests();
        let found = requests.iter().find(|r| r.request_id == request_id);
        let request = found.expect("no request of that id");
        assert!(request.result.get().is_none(), "it has settled");
        request.result.set(result_of(request, state, text));
        executor::run_until_stalled();
        if !request.task.background {
            return Ok(None);
        }
        let input = Input {
            origin: InputOrigin::Delegate(request_id.to_owned()),
            ..user_input(&self.next_id("hand-back"), text)
        };
        if self.turn_live() {
            self.offer(input);
            return Ok(None);
        }
        self.prompt_with(input).map(Some)
    }

    /// Makes every call about delegates fail with `failure`, or work again.
    pub fn fail_delegation(&self, failure: Option<DelegationError>) {
        self.world.borrow_mut().delegation.failure = failure;
    }

    // ---- background programs ------------------------------------------------

    /// Grants a program that may run in the background; `run` tells what becomes of
    /// one that is started with that standard input. Its end reaches the provider as
    /// the real host's does: as a turn when none runs, else from `take_input`.
    pub fn grant_program(&self, name: &str, run: impl Fn(&[u8]) -> ProgramRun + 'static) {
        let script = Script::new(run);
        let granted = &mut self.world.borrow_mut().programs.granted;
        granted.insert(name.to_owned(), script);
    }

    /// Every background process that was started, in order.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessInfo> {
        let world = self.world.borrow();
        let started = world.programs.started.iter();
        started.map(|process| process.info.clone()).collect()
    }

    // ---- people -----------------------------------------------------------

    /// The gates that wait for an answer.
    #[must_use]
    pub fn gates(&self) -> Vec<Gate> {
        executor::run_until_stalled();
        self.world.borrow().gates.clone()
    }

    /// Answers an approval.
    ///
    /// # Panics
    ///
    /// When no gate of that id is open.
    pub fn decide(&self, id: &str, decision: ApprovalDecision) {
        self.answer(id, Answer::Approval(decision));
    }

    /// Answers a form.
    ///
    /// # Panics
    ///
    /// When no gate of that id is open.
    pub fn reply(&self, id: &str, answer: FormAnswer) {
        self.answer(id, Answer::Form(answer));
    }

    fn answer(&self, id: &str, answer: Answer) {
        let gate = self.gates().into_iter().find(|gate| gate.id == id);
        let gate = gate.expect("no open gate of that id");
        gate.answer.set(Ok(answer));
        executor::run_until_stalled();
    }

    // ---- settings and what happened ----------------------------------------

    /// Sets the session's stored model.
    pub fn set_model(&self, model: Option<&str>) {
        self.world.borrow_mut().settings.model = model.map(str::to_owned);
    }

    /// Sets the session's workspace.
    pub fn set_workspace(&self, workspace: Option<Workspace>) {
        self.world.borrow_mut().settings.workspace = workspace;
    }

    /// Sets one of the session's stored params.
    pub fn set_param(&self, param: Param) {
        merge_params(&self.world, vec![param]);
    }

    /// Makes every call of `state` fail with `failure`, or work again.
    pub fn fail_state(&self, failure: Option<ChannelError>) {
        self.world.borrow_mut().state_failure = failure;
    }

    /// The session's stored params.
    #[must_use]
    pub fn params(&self) -> Vec<Param> {
        self.world.borrow().settings.params.clone()
    }

    /// The native conversation the provider bound.
    #[must_use]
    pub fn native_session_id(&self) -> Option<String> {
        self.world.borrow().settings.native_session_id.clone()
    }

    /// The conversation without the person's inputs, open messages included.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        self.world.borrow().messages.clone()
    }

    /// The text, reasoning and plans of each message.
    #[must_use]
    pub fn transcript(&self) -> Vec<String> {
        let text = |part: &MessagePart| match part {
            MessagePart::Text(text) | MessagePart::Reasoning(text) | MessagePart::Plan(text) => {
                Some(text.clone())
            }
            _ => None,
        };
        let message = |message: &Message| message.parts.iter().filter_map(text).collect();
        self.world.borrow().messages.iter().map(message).collect()
    }

    /// The announcements so far, in order.
    #[must_use]
    pub fn native_turns(&self) -> Vec<NativeTurnRecord> {
        self.world.borrow().announced.clone()
    }

    /// The labels of the activities that are open.
    #[must_use]
    pub fn activities(&self) -> Vec<String> {
        let world = self.world.borrow();
        world
            .activities
            .iter()
            .map(|open| open.label.clone())
            .collect()
    }

    /// Whether a turn is starting or running.
    #[must_use]
    pub fn turn_live(&self) -> bool {
        self.world.borrow().turn_live
    }

    /// How often `state-changed` was called.
    #[must_use]
    pub fn state_changes(&self) -> usize {
        self.world.borrow().state_changes
    }

    /// The log so far.
    #[must_use]
    pub fn logs(&self) -> Vec<(LogLevel, String)> {
        self.world.borrow().logs.clone()
    }

    /// What `run` answered, or `None` while it is pending.
    #[must_use]
    pub fn ran(&self) -> Option<Result<(), Error>> {
        self.ran.get()
    }

    fn discovery(&self) -> Discovery {
        Discovery::new(double::Discovery(Signal::default()))
    }

    fn next_id(&self, kind: &str) -> String {
        next_id(&self.ids, kind)
    }
}

fn next_id(ids: &RefCell<u64>, kind: &str) -> String {
    let mut last = ids.borrow_mut();
    *last += 1;
    format!("{kind}-{last}")
}

fn user_input(command_id: &str, text: &str) -> Input {
    Input {
        command_id: command_id.to_owned(),
        origin: InputOrigin::User,
        parts: vec![MessagePart::Text(text.to_owned())],
    }
}

fn execution<C, E>(prepared: &Prepared<C, E>) -> Execution {
    match prepared {
        Prepared::Control(_) => Execution::Control,
        Prepared::Exclusive(_) => Execution::Exclusive,
    }
}

fn open_channel(world: &Shared, command_id: &str) -> (double::ChannelLife, Channel) {
    let life = double::ChannelLife::default();
    world.borrow_mut().calls.push(life.abort.clone());
    let raw = double::Channel { life: life.clone() };
    (life, Channel::new(raw, command_id.to_owned()))
}

fn merge_params(world: &Shared, params: Vec<Param>) {
    let stored = &mut world.borrow_mut().settings.params;
    for param in params {
        stored.retain(|existing| existing.id != param.id);
        stored.push(param);
    }
}

fn settle(world: &Shared) {
    let settled = {
        let mut world = world.borrow_mut();
        world.turn_live = false;
        world.settle()
    };
    settled.set(());
}

/// Calls `done` beside the test.
fn run_turn<P: Provider>(
    provider: &Rc<P>,
    world: &Shared,
    started: StartedTurn<P>,
    life: double::ChannelLife,
) -> Turn {
    let end = Signal::default();
    let (provider, world, result) = (Rc::clone(provider), Rc::clone(world), end.clone());
    executor::spawn(async move {
        let outcome = dispatch::done(&*provider, started).await;
        life.close();
        if let Ok(outcome) = &outcome {
            merge_params(&world, outcome.params.clone());
        }
        settle(&world);
        result.set(outcome);
    });
    Turn(end)
}

/// Starts a turn with each end of a background process, one after the other.
async fn start_ends<P: Provider>(provider: &Rc<P>, world: &Shared) {
    loop {
        let input = match programs::next_end(world) {
            Ok(Some(input)) => input,
            Ok(None) => return,
            Err(settled) => {
                settled.wait().await;
                continue;
            }
        };
        let command_id = input.command_id.clone();
        let (life, channel) = open_channel(world, &command_id);
        match dispatch::start_prompt(&**provider, input, channel).await {
            Ok(started) => drop(run_turn(provider, world, started, life)),
            Err(error) => {
                life.close();
                let line = format!("start-prompt: {error:?}");
                world.borrow_mut().logs.push((LogLevel::Error, line));
                settle(world);
            }
        }
    }
}

async fn adopt_turn<P: Provider>(
    provider: &Rc<P>,
    world: &Shared,
    ids: &Rc<RefCell<u64>>,
    turn: NativeTurn,
) {
    let command_id = next_id(ids, "native");
    let (life, channel) = open_channel(world, &command_id);
    match dispatch::adopt_turn(&**provider, turn.id, channel).await {
        Ok(started) => drop(run_turn(provider, world, started, life)),
        Err(error) => {
            life.close();
            let line = format!("adopt-turn: {error:?}");
            world.borrow_mut().logs.push((LogLevel::Error, line));
            settle(world);
        }
    }
}
