//! Words that tests are written in: what clients and providers do, and how they look at it.

use super::{HARNESS, LOOP, Resolved, Sim, full, reference};
use harness_core::command::{Command, CommandBody};
use harness_core::content::{Block, Message, Part, Role};
use harness_core::event::{Event, EventBody};
use harness_core::gate::{GateAsk, GateReply};
use harness_core::ids::{CommandId, GateId, LoopId, MessageId, RunId};
use harness_core::operation::{Execution, Operation};
use harness_core::provider::{
    CallError, ChannelError, Compaction, DelegateStart, DelegateTask, DelegationError, NativeTurn,
    Outcome, ParamValue, Params, ProgramEnd, TurnStart,
};
use harness_core::refusal::Refused;
use harness_core::session::{
    Answer, DelegateAct, DelegateAnswer, DelegateCall, Effect, Input, InvocationId, Invoked,
    LinkId, Origin, Record, Reserve,
};
use harness_core::view::Status;
use harness_core::workspace::{Rewound, Snapshot};
use uuid::Uuid;

impl Sim {
    pub(crate) fn origin(&mut self) -> Origin {
        use harness_core::ids::Ids;
        // Ids of requests are minted outside and never fail with those of decisions.
        let broken = std::mem::take(&mut self.ids.broken);
        let command_id = CommandId(self.ids.mint().unwrap());
        self.ids.broken = broken;
        Origin {
            command_id,
            caller: Some("token:alice".into()),
        }
    }

    // ---- clients ----------------------------------------------------------------------------

    pub(crate) fn submit(&mut self, text: &str) -> (CommandId, Answer) {
        self.submit_as(text, false, false)
    }

    pub(crate) fn submit_as(
        &mut self,
        text: &str,
        no_fold: bool,
        fold_only: bool,
    ) -> (CommandId, Answer) {
        let origin = self.origin();
        let id = origin.command_id;
        let blocks = vec![Block::Text { text: text.into() }];
        let input = Input::Submit {
            origin,
            blocks,
            loop_id: None,
            no_fold,
            fold_only,
        };
        (id, self.feed(input))
    }

    /// A prompt that is accepted.
    pub(crate) fn prompt(&mut self, text: &str) -> CommandId {
        let (id, answer) = self.submit(text);
        assert_eq!(answer, Answer::Accepted, "the prompt is accepted");
        id
    }

    /// What preparation saw, taken now.
    pub(crate) fn prepared(&mut self, execution: Execution) -> Reserve {
        Reserve {
            origin: self.origin(),
            loop_id: self.session.state.active_loop,
            harness_id: self.session.state.agent.clone(),
            operation: Operation::Command {
                text: "/goal  ship".into(),
            },
            execution,
            expected_revision: None,
            settings_epoch: self.session.state.settings_epoch,
            run_id: self.session.state.run_id,
            state_epoch: None,
            waited: false,
        }
    }

    pub(crate) fn reserve(&mut self, reserve: Reserve) -> Answer {
        self.feed(Input::Reserve(Box::new(reserve)))
    }

    pub(crate) fn try_control(&mut self) -> Answer {
        let reserve = self.prepared(Execution::Control);
        self.reserve(reserve)
    }

    pub(crate) fn try_exclusive(&mut self) -> Answer {
        let reserve = self.prepared(Execution::Exclusive);
        self.reserve(reserve)
    }

    /// An operation that is reserved.
    pub(crate) fn operation(&mut self, execution: Execution) -> (CommandId, InvocationId) {
        let reserve = self.prepared(execution);
        let id = reserve.origin.command_id;
        match self.reserve(reserve) {
            Answer::Reserved(invocation) => (id, invocation),
            other => panic!("not reserved: {other:?}"),
        }
    }

    pub(crate) fn control(&mut self) -> (CommandId, InvocationId) {
        self.operation(Execution::Control)
    }

    pub(crate) fn exclusive(&mut self) -> (CommandId, InvocationId) {
        self.operation(Execution::Exclusive)
    }

    pub(crate) fn interrupt(&mut self) -> Answer {
        let origin = self.origin();
        self.feed(Input::Interrupt {
            origin,
            loop_id: None,
        })
    }

    pub(crate) fn interrupt_loop(&mut self, loop_id: LoopId) -> Answer {
        let origin = self.origin();
        let loop_id = Some(loop_id);
        self.feed(Input::Interrupt { origin, loop_id })
    }

    pub(crate) fn submit_to(&mut self, loop_id: LoopId, text: &str) -> (CommandId, Answer) {
        let origin = self.origin();
        let id = origin.command_id;
        let input = Input::Submit {
            origin,
            blocks: vec![Block::Text { text: text.into() }],
            loop_id: Some(loop_id),
            no_fold: false,
            fold_only: false,
        };
        (id, self.feed(input))
    }

    /// Another loop on the same harness.
    pub(crate) fn create_loop(&mut self, model: Option<&str>) -> LoopId {
        let loop_id = LoopId(self.origin().command_id.0);
        self.feed(Input::CreateLoop {
            loop_id,
            harness_id: HARNESS.parse().unwrap(),
            model: model.map(str::to_owned),
            mode: String::new(),
        });
        loop_id
    }

    /// One of the loops there are.
    pub(crate) fn nth_loop(&self, at: usize) -> LoopId {
        let loops: Vec<_> = self.session.state.loops.keys().copied().collect();
        loops[at % loops.len()]
    }

    pub(crate) fn compact(&mut self, loop_id: LoopId) -> (CommandId, Answer) {
        let origin = self.origin();
        let id = origin.command_id;
        let loop_id = Some(loop_id);
        (id, self.feed(Input::Compact { origin, loop_id }))
    }

    pub(crate) fn compacted(
        &mut self,
        invocation: InvocationId,
        result: Result<Compaction, CallError>,
    ) {
        self.feed(Input::Compacted {
            invocation,
            result,
            messages: Vec::new(),
        });
    }

    pub(crate) fn checkpoint(&mut self) -> (CommandId, Answer) {
        let origin = self.origin();
        (origin.command_id, self.feed(Input::Checkpoint(origin)))
    }

    pub(crate) fn rewind(&mut self, to: u8) -> (CommandId, Answer) {
        let origin = self.origin();
        let id = origin.command_id;
        let reference = reference(to);
        (id, self.feed(Input::Rewind { origin, reference }))
    }

    /// The snapshot that was being taken is durable.
    pub(crate) fn checkpointed(&mut self, tree: u8) {
        let reference = reference(tree);
        self.feed(Input::Checkpointed(Ok(Snapshot {
            reference,
            entries: 1,
            bytes: 2,
        })));
    }

    /// There is no snapshot.
    pub(crate) fn no_checkpoint(&mut self) {
        self.feed(Input::Checkpointed(Err(full())));
    }

    pub(crate) fn rewound(&mut self, tree: u8) {
        let reference = reference(tree);
        self.feed(Input::Rewound(Ok(Rewound {
            reference,
            exact: true,
        })));
        self.feed(Input::RewindFinished);
    }

    pub(crate) fn answer(&mut self, gate_id: GateId, reply: GateReply) -> Answer {
        let origin = self.origin();
        self.feed(Input::Answer {
            origin,
            gate_id,
            reply,
        })
    }

    pub(crate) fn retract(&mut self, target: CommandId) -> Answer {
        let origin = self.origin();
        self.feed(Input::Retract { origin, target })
    }

    pub(crate) fn release(&mut self, targets: &[CommandId]) -> Answer {
        let origin = self.origin();
        self.feed(Input::Release {
            origin,
            loop_id: None,
            targets: targets.to_vec(),
        })
    }

    pub(crate) fn set(
        &mut self,
        title: Option<&str>,
        params: Option<Params>,
        agent: Option<&str>,
    ) -> Answer {
        let origin = self.origin();
        self.feed(Input::Settings {
            origin,
            title: title.map(str::to_owned),
            model: None,
            params,
            agent: agent.map(|a| a.parse().unwrap()),
        })
    }

    // ---- the provider -----------------------------------------------------------------------

    pub(crate) fn message(&mut self, text: &str) -> Message {
        use harness_core::ids::Ids;
        Message {
            id: MessageId(self.ids.mint().unwrap_or(Uuid::max())),
            role: Role::Assistant,
            turn_id: self.live().owner.as_ref().and_then(|o| o.turn),
            created_at: self.now,
            parts: vec![Part::Text { text: text.into() }],
        }
    }

    /// The invocation that runs the live turn, or the idle control.
    pub(crate) fn runner(&self) -> InvocationId {
        self.live().owner.as_ref().expect("a run is live").runner
    }

    pub(crate) fn started(&mut self, invocation: InvocationId, result: Result<Params, CallError>) {
        self.feed(Input::Entered(invocation));
        self.feed(Input::Started {
            invocation,
            result,
            messages: Vec::new(),
        });
    }

    pub(crate) fn invoked(&mut self, invocation: InvocationId, result: Result<Invoked, CallError>) {
        self.invoked_with(invocation, result, &[]);
    }

    pub(crate) fn invoked_with(
        &mut self,
        invocation: InvocationId,
        result: Result<Invoked, CallError>,
        texts: &[&str],
    ) {
        let messages = texts.iter().map(|t| self.message(t)).collect();
        self.feed(Input::Invoked {
            invocation,
            result,
            messages,
        });
    }

    pub(crate) fn done(&mut self, invocation: InvocationId, result: Result<Outcome, CallError>) {
        self.feed(Input::Done {
            invocation,
            result,
            messages: Vec::new(),
        });
    }

    /// A prompt whose turn runs.
    pub(crate) fn running(&mut self) -> (CommandId, InvocationId) {
        let id = self.prompt("work");
        let runner = self.runner();
        self.started(runner, Ok(Params::new()));
        (id, runner)
    }

    pub(crate) fn ask(&mut self, invocation: InvocationId, ask: GateAsk) -> GateId {
        let input = Input::Ask {
            invocation,
            ask,
            stored_rules: false,
        };
        match self.feed(input) {
            Answer::Asked(gate) => gate,
            other => panic!("not asked: {other:?}"),
        }
    }

    pub(crate) fn announce(&mut self, id: LinkId, native: &str, start: TurnStart) -> Answer {
        let turn = NativeTurn {
            id: native.into(),
            start,
            reason: "goal".into(),
            cause: None,
        };
        self.feed(Input::Announce {
            loop_id: LOOP,
            id,
            turn,
        })
    }

    /// A native turn that was adopted and runs.
    pub(crate) fn native(&mut self, id: LinkId, native: &str) -> InvocationId {
        assert_eq!(
            self.announce(id, native, TurnStart::Running),
            Answer::Accepted
        );
        assert_eq!(self.announcements.get(&id), Some(&Ok(())), "it is reserved");
        let runner = self.runner();
        self.started(runner, Ok(Params::new()));
        runner
    }

    // ---- delegates --------------------------------------------------------------------------

    /// What the instance of a loop asks, outside any invocation.
    pub(crate) fn delegate(
        &mut self,
        parent: LoopId,
        act: DelegateAct,
    ) -> Result<DelegateAnswer, DelegationError> {
        let call = DelegateCall {
            parent,
            invocation: None,
            act,
        };
        match self.feed(Input::Delegate(Box::new(call))) {
            Answer::Delegate(result) => result,
            Answer::Refused(refused) => Err(DelegationError::Failed(refused.to_string())),
            // A stop: its end is an effect.
            Answer::Stopping(_) | Answer::Bool(_) => Ok(DelegateAnswer::Awaiting),
            other => panic!("a delegation call is answered: {other:?}"),
        }
    }

    pub(crate) fn task(text: &str, background: bool, fold: bool) -> DelegateTask {
        let parts = vec![Part::Text { text: text.into() }];
        DelegateTask {
            parts,
            background,
            fold,
        }
    }

    pub(crate) fn try_child(
        &mut self,
        parent: LoopId,
        background: bool,
    ) -> Result<(LoopId, CommandId), DelegationError> {
        let start = DelegateStart {
            harness: HARNESS.parse().unwrap(),
            model: None,
            mode: String::new(),
            task: Self::task("dig", background, false),
        };
        match self.delegate(parent, DelegateAct::Start(start))? {
            DelegateAnswer::Started(started) => Ok((started.loop_id, started.request_id)),
            other => panic!("{other:?}"),
        }
    }

    /// A child that was started.
    pub(crate) fn child(&mut self, parent: LoopId, background: bool) -> (LoopId, CommandId) {
        self.try_child(parent, background)
            .expect("a child is started")
    }

    pub(crate) fn send_child(
        &mut self,
        parent: LoopId,
        child: LoopId,
        background: bool,
        fold: bool,
    ) -> Result<CommandId, DelegationError> {
        let task = Self::task("more", background, fold);
        match self.delegate(parent, DelegateAct::Send { child, task })? {
            DelegateAnswer::Sent(request) => Ok(request),
            other => panic!("{other:?}"),
        }
    }

    /// The invocation that runs a loop's turn.
    pub(crate) fn runner_of(&self, loop_id: LoopId) -> InvocationId {
        let owner = self.session.live.of(loop_id).owner.as_ref();
        owner.expect("a run is live").runner
    }

    /// A loop's turn says something and ends well.
    pub(crate) fn answer_turn(&mut self, loop_id: LoopId, text: &str) {
        let invocation = self.runner_of(loop_id);
        let started = self.session.live.invocation(invocation).unwrap().started;
        if !started {
            self.started(invocation, Ok(Params::new()));
        }
        let mut message = self.message(text);
        message.turn_id = self.session.live.of(loop_id).owner.as_ref().unwrap().turn;
        self.feed(Input::Done {
            invocation,
            result: Ok(Outcome::default()),
            messages: vec![message],
        });
    }

    pub(crate) fn announced(&self, id: LinkId) -> Option<&Result<(), ChannelError>> {
        self.announcements.get(&id)
    }

    /// A background process whose start is durable.
    pub(crate) fn process(&mut self, program: &str) -> String {
        match self.try_process(LOOP, program) {
            Answer::Process(Ok(handle)) => handle,
            other => panic!("not started: {other:?}"),
        }
    }

    pub(crate) fn try_process(&mut self, loop_id: LoopId, program: &str) -> Answer {
        self.feed(Input::StartProcess {
            loop_id,
            harness: HARNESS.parse().unwrap(),
            program: program.into(),
        })
    }

    pub(crate) fn process_ended(&mut self, handle: &str, end: ProgramEnd) -> Answer {
        self.feed(Input::ProcessEnded {
            loop_id: LOOP,
            process_handle: handle.into(),
            end,
        })
    }

    /// Id of the notification of that process.
    pub(crate) fn notice_of(&self, handle: &str) -> CommandId {
        let said = |record: &Record| match record {
            Record::Command(Command {
                body: CommandBody::ProcessNotification { notification },
                ..
            }) => Some(notification.clone()).filter(|n| n.process_handle == handle),
            _ => None,
        };
        self.journal
            .iter()
            .find_map(said)
            .expect("it was said")
            .command_id
    }

    // ---- looking ----------------------------------------------------------------------------

    pub(crate) fn status(&self) -> Status {
        self.session.status()
    }

    pub(crate) fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.journal.iter().filter_map(|r| match r {
            Record::Event(event) => Some(event),
            Record::Command(_) => None,
        })
    }

    /// Event types since a place in the journal.
    pub(crate) fn names_since(&self, mark: usize) -> Vec<&'static str> {
        self.journal
            .iter()
            .skip(mark)
            .map(|r| match r {
                Record::Event(event) => event.body.meta().name,
                Record::Command(command) => command.body.type_name(),
            })
            .collect()
    }

    pub(crate) fn mark(&self) -> usize {
        self.journal.len()
    }

    pub(crate) fn last(&self, name: &str) -> &EventBody {
        let found = self.events().rev().find(|e| e.body.meta().name == name);
        &found
            .unwrap_or_else(|| panic!("no {name} in the journal"))
            .body
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.events().filter(|e| e.body.meta().name == name).count()
    }

    pub(crate) fn result(&self, command: CommandId) -> &Resolved {
        self.results
            .get(&command)
            .expect("the operation is answered")
    }

    /// An outcome that is no problem document, as its wire word and code.
    pub(crate) fn outcome(&self, command: CommandId) -> (String, Option<String>) {
        let result = self.result(command).as_ref().expect("a result, no problem");
        let word = serde_json::to_value(result.status).unwrap();
        (word.as_str().unwrap().to_owned(), result.code.clone())
    }

    pub(crate) fn problem(&self, command: CommandId) -> &Refused {
        self.result(command).as_ref().expect_err("a problem")
    }

    pub(crate) fn effect(&self, what: impl Fn(&Effect) -> bool) -> usize {
        self.effects.iter().filter(|e| what(e)).count()
    }

    pub(crate) fn invokes(&self) -> usize {
        self.effect(|e| matches!(e, Effect::Invoke { .. }))
    }

    pub(crate) fn is_aborted(&self, invocation: InvocationId) -> bool {
        self.effect(|e| matches!(e, Effect::Abort { invocation: i, .. } if *i == invocation)) > 0
    }

    pub(crate) fn called_done(&self, invocation: InvocationId) -> usize {
        self.effect(|e| *e == Effect::CallDone(invocation))
    }

    pub(crate) fn history(&self) -> Vec<String> {
        let text = |m: &Message| match m.parts.first() {
            Some(Part::Text { text }) => text.clone(),
            other => format!("{other:?}"),
        };
        let active = self.session.state.active_loop;
        self.session.history.of(active).iter().map(text).collect()
    }

    /// The stored value of the one declared parameter.
    pub(crate) fn mode(&self) -> Option<&ParamValue> {
        self.session.state.params.get("mode")
    }

    pub(crate) fn run_id(&self) -> Option<RunId> {
        self.session.view().run_id
    }
}
