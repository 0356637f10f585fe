//! Doubles of the host's imports: the same names and signatures as the generated
//! bindings, over the thread's [`World`](super::world::World).

/// Double of the interface `host`.
pub(crate) mod host {
    use crate::limits;
    use crate::testing::signal::Signal;
    use crate::testing::world::{
        Answer, Gate, GateKind, NativeTurnRecord, OpenActivity, Shared, current,
    };
    use crate::types::{
        AbortReason, ApprovalDecision, ApprovalRequest, ChannelError, DiscoveryContext, FormAnswer,
        HistoryEntry, Input, LogLevel, Message, MessagePart, NativeTurn, OperationContext,
        QuestionForm, Role, TurnStart, Usage,
    };
    use futures::future::{Either, select};
    use std::cell::Cell;
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::Poll;

    #[derive(Debug)]
    pub(crate) struct AbortSignal(Signal<AbortReason>);

    impl AbortSignal {
        pub(crate) fn aborted(&self) -> Option<AbortReason> {
            self.0.get()
        }

        pub(crate) async fn wait(&self) -> Option<AbortReason> {
            Some(self.0.wait().await)
        }
    }

    #[derive(Debug)]
    pub(crate) struct Discovery(pub(crate) Signal<AbortReason>);

    impl Discovery {
        pub(crate) fn context(&self) -> DiscoveryContext {
            current().borrow().discovery_context()
        }

        pub(crate) fn abort(&self) -> AbortSignal {
            AbortSignal(self.0.clone())
        }
    }

    #[derive(Debug)]
    pub(crate) struct Preparation(pub(crate) Signal<AbortReason>);

    impl Preparation {
        pub(crate) fn context(&self) -> OperationContext {
            current().borrow().operation_context()
        }

        pub(crate) fn abort(&self) -> AbortSignal {
            AbortSignal(self.0.clone())
        }
    }

    /// The life of one channel: open until its invocation ended.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct ChannelLife {
        pub(crate) abort: Signal<AbortReason>,
        closed: Rc<Cell<bool>>,
        input_closed: Rc<Cell<bool>>,
    }

    impl ChannelLife {
        pub(crate) fn close(&self) {
            self.closed.set(true);
        }

        pub(crate) fn check(&self) -> Result<(), ChannelError> {
            if self.closed.get() {
                return Err(ChannelError::Closed);
            }
            match self.abort.get() {
                Some(_) => Err(ChannelError::Stopped),
                None => Ok(()),
            }
        }

        async fn or_stopped<T>(
            &self,
            work: impl Future<Output = Result<T, ChannelError>>,
        ) -> Result<T, ChannelError> {
            self.check()?;
            match select(pin!(work), pin!(self.abort.wait())).await {
                Either::Left((result, _)) => result,
                Either::Right(_) => Err(ChannelError::Stopped),
            }
        }
    }

    #[derive(Debug)]
    pub(crate) struct Channel {
        pub(crate) life: ChannelLife,
    }

    impl Channel {
        pub(crate) fn context(&self) -> OperationContext {
            current().borrow().operation_context()
        }

        pub(crate) fn abort(&self) -> AbortSignal {
            AbortSignal(self.life.abort.clone())
        }

        pub(crate) async fn append(&self, message: Message) -> Result<(), ChannelError> {
            self.life.check()?;
            message.parts.iter().try_for_each(check_part)?;
            current().borrow_mut().messages.push(message);
            Ok(())
        }

        pub(crate) async fn open_message(&self, role: Role) -> Result<MessageWriter, ChannelError> {
            self.life.check()?;
            let world = current();
            let index = world.borrow().messages.len();
            let parts = Vec::new();
            world.borrow_mut().messages.push(Message { role, parts });
            let life = self.life.clone();
            Ok(MessageWriter { life, world, index })
        }

        pub(crate) async fn history(&self, limit: u32) -> Result<Vec<HistoryEntry>, ChannelError> {
            self.life.check()?;
            let world = current();
            let world = world.borrow();
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let skipped = world.messages.len().saturating_sub(limit);
            Ok(world
                .messages
                .iter()
                .enumerate()
                .skip(skipped)
                .map(|(index, message)| HistoryEntry {
                    id: format!("message-{index}"),
                    message: message.clone(),
                })
                .collect())
        }

        pub(crate) fn report_usage(&self, usage: Usage) {
            current().borrow_mut().usage = Some(usage);
        }

        pub(crate) fn touch(&self) {}

        pub(crate) async fn request_approval(
            &self,
            request: ApprovalRequest,
        ) -> Result<ApprovalDecision, ChannelError> {
            let id = request.tool_use_id.clone();
            match self.gate(id, GateKind::Approval(request)).await? {
                Answer::Approval(decision) => Ok(decision),
                Answer::Form(_) => Err(ChannelError::Failed("a form's answer".to_owned())),
            }
        }

        pub(crate) async fn ask(&self, form: QuestionForm) -> Result<FormAnswer, ChannelError> {
            let id = form.id.clone();
            match self.gate(id, GateKind::Form(form)).await? {
                Answer::Form(answer) => Ok(answer),
                Answer::Approval(_) => Err(ChannelError::Failed("an approval".to_owned())),
            }
        }

        async fn gate(&self, id: String, kind: GateKind) -> Result<Answer, ChannelError> {
            /// Closes the gate however its call ends.
            struct Close(Signal<Result<Answer, ChannelError>>, Shared);
            impl Drop for Close {
                fn drop(&mut self) {
                    self.0.set(Err(ChannelError::Closed));
                    let open = |gate: &Gate| gate.answer.get().is_none();
                    self.1.borrow_mut().gates.retain(open);
                }
            }
            self.life.check()?;
            let world = current();
            if world.borrow().gates.iter().any(|gate| gate.id == id) {
                return Err(ChannelError::Failed(format!("gate {id:?} is already open")));
            }
            let answer = Signal::default();
            let close = Close(answer.clone(), Rc::clone(&world));
            let gate = Gate {
                id,
                kind,
                answer: answer.clone(),
            };
            world.borrow_mut().gates.push(gate);
            let result = self.life.or_stopped(answer.wait()).await;
            drop(close);
            result
        }

        pub(crate) fn withdraw(&self, id: &str) {
            let world = current();
            let gate = world
                .borrow()
                .gates
                .iter()
                .find(|gate| gate.id == id)
                .cloned();
            if let Some(gate) = gate {
                gate.answer.set(Err(ChannelError::Closed));
            }
        }

        pub(crate) async fn input_ready(&self) -> Result<bool, ChannelError> {
            let closed = Rc::clone(&self.life.input_closed);
            let ready = poll_fn(move |cx| {
                let world = current();
                let mut world = world.borrow_mut();
                if closed.get() {
                    return Poll::Ready(Ok(false));
                }
                if !world.inputs.is_empty() || !world.programs.ends.is_empty() {
                    return Poll::Ready(Ok(true));
                }
                world.input_waiters.push(cx.waker().clone());
                Poll::Pending
            });
            self.life.or_stopped(ready).await
        }

        pub(crate) async fn take_input(&self) -> Result<Vec<Input>, ChannelError> {
            self.life.check()?;
            let world = current();
            let mut world = world.borrow_mut();
            let mut inputs = std::mem::take(&mut world.inputs);
            inputs.extend(std::mem::take(&mut world.programs.ends));
            Ok(inputs)
        }

        pub(crate) fn close_input(&self) {
            self.life.input_closed.set(true);
            let waiters = std::mem::take(&mut current().borrow_mut().input_waiters);
            waiters.into_iter().for_each(std::task::Waker::wake);
        }

        pub(crate) async fn bind_native_session(&self, id: String) -> Result<(), ChannelError> {
            self.life.check()?;
            current().borrow_mut().settings.native_session_id = Some(id);
            Ok(())
        }
    }

    #[derive(Debug)]
    pub(crate) struct MessageWriter {
        life: ChannelLife,
        world: Shared,
        index: usize,
    }

    impl MessageWriter {
        pub(crate) async fn delta(&self, part: MessagePart) -> Result<u32, ChannelError> {
            self.life.check()?;
            check_part(&part)?;
            self.edit(|parts| {
                if !parts.last_mut().is_some_and(|last| extend(last, &part)) {
                    parts.push(part);
                }
                Ok(u32::try_from(parts.len().saturating_sub(1)).unwrap_or(u32::MAX))
            })
        }

        pub(crate) async fn replace(
            &self,
            index: u32,
            part: MessagePart,
        ) -> Result<(), ChannelError> {
            self.life.check()?;
            check_part(&part)?;
            self.edit(|parts| {
                let at = usize::try_from(index).unwrap_or(usize::MAX);
                let slot = parts
                    .get_mut(at)
                    .ok_or_else(|| ChannelError::Failed(format!("no part {index}")))?;
                *slot = part;
                Ok(())
            })
        }

        pub(crate) async fn finish(&self) -> Result<(), ChannelError> {
            self.life.check()
        }

        fn edit<T>(
            &self,
            change: impl FnOnce(&mut Vec<MessagePart>) -> Result<T, ChannelError>,
        ) -> Result<T, ChannelError> {
            let mut world = self.world.borrow_mut();
            let message = world
                .messages
                .get_mut(self.index)
                .ok_or(ChannelError::Closed)?;
            change(&mut message.parts)
        }
    }

    /// The bytes that count against the bound of a part.
    fn check_part(part: &MessagePart) -> Result<(), ChannelError> {
        let bytes = match part {
            MessagePart::Text(text) | MessagePart::Reasoning(text) | MessagePart::Plan(text) => {
                text.len()
            }
            MessagePart::Code(code) => code.text.len(),
            MessagePart::ToolCall(call) => call.input_json.len(),
            MessagePart::ToolResult(result) => result.output.len(),
            MessagePart::File(file) => file.uri.len(),
            MessagePart::Notice(notice) => notice.text.len(),
        };
        if bytes > limits::PART_BYTES {
            let limit = limits::PART_BYTES;
            return Err(ChannelError::Limit(format!(
                "a part of {bytes} B, at most {limit}"
            )));
        }
        Ok(())
    }

    /// Extends `last` by `part` where the contract says so.
    fn extend(last: &mut MessagePart, part: &MessagePart) -> bool {
        match (last, part) {
            (MessagePart::Text(last), MessagePart::Text(more))
            | (MessagePart::Reasoning(last), MessagePart::Reasoning(more))
            | (MessagePart::Plan(last), MessagePart::Plan(more)) => last.push_str(more),
            (MessagePart::ToolResult(last), MessagePart::ToolResult(more))
                if last.id == more.id =>
            {
                last.output.push_str(&more.output);
                last.is_error |= more.is_error;
            }
            _ => return false,
        }
        true
    }

    #[derive(Debug)]
    pub(crate) struct Activity {
        id: u64,
        abort: Signal<AbortReason>,
        world: Shared,
    }

    impl Activity {
        pub(crate) fn abort(&self) -> AbortSignal {
            AbortSignal(self.abort.clone())
        }
    }

    impl Drop for Activity {
        fn drop(&mut self) {
            let id = self.id;
            self.world
                .borrow_mut()
                .activities
                .retain(|activity| activity.id != id);
        }
    }

    #[derive(Debug)]
    pub(crate) struct Link {
        pub(crate) abort: Signal<AbortReason>,
    }

    impl Link {
        pub(crate) fn context(&self) -> DiscoveryContext {
            current().borrow().discovery_context()
        }

        pub(crate) fn abort(&self) -> AbortSignal {
            AbortSignal(self.abort.clone())
        }

        pub(crate) async fn announce_turn(&self, turn: NativeTurn) -> Result<(), ChannelError> {
            let answer = self.decide(&turn).await;
            let world = current();
            let mut world = world.borrow_mut();
            world.announced.push(NativeTurnRecord {
                turn: turn.clone(),
                answer: answer.clone(),
            });
            answer?;
            world.turn_live = true;
            match &world.adopt {
                Some(adopt) if adopt.unbounded_send(turn).is_ok() => Ok(()),
                _ => Err(ChannelError::Closed),
            }
        }

        /// The order of N6.
        async fn decide(&self, turn: &NativeTurn) -> Result<(), ChannelError> {
            loop {
                let settled = {
                    let world = current();
                    let world = world.borrow();
                    if world.draft || self.abort.get().is_some() {
                        return Err(ChannelError::Closed);
                    }
                    if world.stopped {
                        return Err(ChannelError::Stopped);
                    }
                    if !world.native_turns {
                        let reason = "the feature native-turns is not declared";
                        return Err(ChannelError::Denied(reason.to_owned()));
                    }
                    if world.turn_live && turn.start == TurnStart::Running {
                        return Err(ChannelError::Busy);
                    }
                    if !world.turn_live && !world.control_live {
                        return Ok(());
                    }
                    world.settled.clone()
                };
                // What waits is answered by whichever comes first.
                select(pin!(settled.wait()), pin!(self.abort.wait())).await;
            }
        }

        pub(crate) async fn append(&self, message: Message) -> Result<(), ChannelError> {
            let world = current();
            if world.borrow().draft || self.abort.get().is_some() {
                return Err(ChannelError::Closed);
            }
            message.parts.iter().try_for_each(check_part)?;
            world.borrow_mut().messages.push(message);
            Ok(())
        }

        pub(crate) fn begin_activity(&self, label: &str) -> Result<Activity, ChannelError> {
            let shared = current();
            let mut world = shared.borrow_mut();
            if world.draft || self.abort.get().is_some() {
                return Err(ChannelError::Closed);
            }
            if world.activities.len() >= limits::ACTIVITIES {
                let limit = limits::ACTIVITIES;
                return Err(ChannelError::Limit(format!("at most {limit} activities")));
            }
            world.activities_made += 1;
            let (id, abort) = (world.activities_made, Signal::default());
            world.activities.push(OpenActivity {
                id,
                label: label.to_owned(),
                abort: abort.clone(),
            });
            let world = Rc::clone(&shared);
            Ok(Activity { id, abort, world })
        }
    }

    pub(crate) fn state_changed() {
        current().borrow_mut().state_changes += 1;
    }

    pub(crate) fn config() -> Vec<(String, String)> {
        current().borrow().config.clone()
    }

    pub(crate) fn log(level: LogLevel, message: &str) {
        current()
            .borrow_mut()
            .logs
            .push((level, message.to_owned()));
    }

    pub(crate) async fn sleep_ms(ms: u32) {
        crate::testing::sleep_ms(ms).await;
    }
}

/// Double of the interface `background`.
pub(crate) mod background {
    pub use crate::bindings::harness::provider::background::{
        Output, OutputChunk, OutputStream, ProcessInfo, ProcessStatus,
    };
    use crate::testing::programs::{NoStart, Started};
    use crate::testing::world::current;
    use crate::types::{IoError, Workspace};
    use std::rc::Rc;

    fn with<T>(handle: &str, look: impl FnOnce(&Started) -> T) -> Result<T, IoError> {
        let world = current();
        let world = world.borrow();
        if world.draft {
            return Err(IoError::Closed);
        }
        let known = world.programs.started.iter();
        let mut found = known.filter(|process| process.info.handle == handle);
        let unknown = || IoError::NotFound(format!("no process {handle:?}"));
        found.next().map(look).ok_or_else(unknown)
    }

    pub(crate) async fn start(
        program: String,
        _: Option<Workspace>,
        stdin: Vec<u8>,
    ) -> Result<String, IoError> {
        let shared = current();
        let mut world = shared.borrow_mut();
        if world.draft {
            return Err(IoError::Closed);
        }
        let started = world.start_program(Rc::clone(&shared), &program, &stdin);
        started.map_err(|why| match why {
            NoStart::NotGranted => IoError::Denied(format!("program {program:?} is not granted")),
            NoStart::TooMany(most) => IoError::Limit(format!("{most} background processes run")),
        })
    }

    pub(crate) async fn processes() -> Result<Vec<ProcessInfo>, IoError> {
        let world = current();
        let world = world.borrow();
        if world.draft {
            return Err(IoError::Closed);
        }
        let all = world.programs.started.iter();
        Ok(all.map(|process| process.info.clone()).collect())
    }

    pub(crate) async fn info(handle: String) -> Result<ProcessInfo, IoError> {
        with(&handle, |process| process.info.clone())
    }

    pub(crate) async fn read(handle: String, offset: u64, max: u32) -> Result<Output, IoError> {
        with(&handle, |process| {
            process.info.written.ok_or(IoError::Closed)?;
            let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            let from = index(offset).min(process.output.len());
            let to = from
                .saturating_add(index(u64::from(max)))
                .min(process.output.len());
            let data = process.output.get(from..to).unwrap_or_default().to_vec();
            let at = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
            let chunk = OutputChunk {
                source: OutputStream::Stdout,
                data,
            };
            Ok(Output {
                offset: at(from),
                next: at(to),
                chunks: (to > from).then_some(chunk).into_iter().collect(),
            })
        })?
    }

    pub(crate) async fn stop(handle: String) -> Result<(), IoError> {
        with(&handle, |_| ())?;
        let world = current();
        let mut world = world.borrow_mut();
        world.end_process(&handle, ProcessStatus::Stopped, None);
        Ok(())
    }
}

/// Double of the interface `state`.
pub(crate) mod state {
    pub use crate::bindings::harness::provider::state::Scope;
    use crate::testing::world::current;
    use crate::types::ChannelError;

    fn key(scope: Scope, key: String) -> Result<(u8, String), ChannelError> {
        let world = current();
        let world = world.borrow();
        if let Some(failure) = world.state_failure.clone() {
            return Err(failure);
        }
        match scope {
            Scope::Session if world.draft => Err(ChannelError::Denied(
                "a draft instance has no session state".to_owned(),
            )),
            _ => Ok((scope as u8, key)),
        }
    }

    pub(crate) async fn get(scope: Scope, name: String) -> Result<Option<Vec<u8>>, ChannelError> {
        let key = key(scope, name)?;
        Ok(current().borrow().stored.get(&key).cloned())
    }

    pub(crate) async fn set(
        scope: Scope,
        name: String,
        value: Vec<u8>,
    ) -> Result<(), ChannelError> {
        let key = key(scope, name)?;
        current().borrow_mut().stored.insert(key, value);
        Ok(())
    }

    pub(crate) async fn delete(scope: Scope, name: String) -> Result<(), ChannelError> {
        let key = key(scope, name)?;
        current().borrow_mut().stored.remove(&key);
        Ok(())
    }
}
