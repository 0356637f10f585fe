//! A channel and an instance host that record what they are asked and answer as told.

use super::{TestDelegation, context, discovery};
use harness_core::abort::{AbortHandle, AbortSignal};
use harness_core::content::{Message, NewMessage, Part, Role, Usage};
use harness_core::gate::{ApprovalDecision, ApprovalRequest, FormAnswer, QuestionForm};
use harness_core::provider::{
    Activity, Background, BoxFuture, Channel, ChannelError, Delegation, DiscoveryContext,
    InstanceHost, IoError, NativeTurn, OperationContext, Process, ProcessInfo, ProcessOutput,
    Program, PromptInput, WriterId,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What an approval or question does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It is answered at once.
    Answer,
    /// It waits for [`TestChannel::answer`].
    Wait,
}

pub(crate) struct TestChannel {
    pub(crate) abort: AbortHandle,
    pub(crate) written: Mutex<Vec<String>>,
    pub(crate) entered: AtomicUsize,
    pub(crate) withdrawn: AtomicUsize,
    pub(crate) abandoned: AtomicUsize,
    pub(crate) open_gates: AtomicUsize,
    pub(crate) native: Mutex<Option<String>>,
    pub(crate) usage: AtomicUsize,
    pub(crate) ready: Notify,
    pub(crate) wrote: Notify,
    /// What it may do with delegates.
    pub(crate) delegation: Arc<TestDelegation>,
    gate: Gate,
    answer: Notify,
}

impl TestChannel {
    pub(crate) fn new() -> Arc<Self> {
        Self::gated(Gate::Answer)
    }

    pub(crate) fn gated(gate: Gate) -> Arc<Self> {
        Arc::new(Self {
            abort: AbortHandle::new(),
            written: Mutex::default(),
            entered: AtomicUsize::new(0),
            withdrawn: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            open_gates: AtomicUsize::new(0),
            native: Mutex::default(),
            usage: AtomicUsize::new(0),
            ready: Notify::new(),
            wrote: Notify::new(),
            delegation: Arc::default(),
            gate,
            answer: Notify::new(),
        })
    }

    pub(crate) fn answer(&self) {
        self.answer.notify_one();
    }

    pub(crate) fn text(&self) -> String {
        self.written.lock().unwrap().join("\n")
    }

    pub(crate) fn count(&self) -> usize {
        self.written.lock().unwrap().len()
    }

    fn write(&self, part: &Part) {
        let text = match part {
            Part::Text { text } => text.clone(),
            other => format!("{other:?}"),
        };
        self.written.lock().unwrap().push(text);
        self.wrote.notify_waiters();
    }

    /// Counts a gate as open until it drops, as a session does.
    fn gate(&self) -> OpenGate<'_> {
        self.open_gates.fetch_add(1, Ordering::SeqCst);
        OpenGate(&self.open_gates)
    }

    async fn decide(&self) {
        let _open = self.gate();
        if self.gate == Gate::Wait {
            self.answer.notified().await;
        }
    }
}

struct OpenGate<'a>(&'a AtomicUsize);

impl Drop for OpenGate<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn ready<T: Send + 'static>(value: T) -> BoxFuture<'static, Result<T, ChannelError>> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Channel for TestChannel {
    fn delegation(&self) -> Option<Arc<dyn Delegation>> {
        Some(self.delegation.clone())
    }
    fn context(&self) -> OperationContext {
        context()
    }
    fn abort(&self) -> AbortSignal {
        self.abort.signal()
    }
    fn entered(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
    }
    fn append(&self, message: NewMessage) -> BoxFuture<'_, Result<(), ChannelError>> {
        message.parts.iter().for_each(|part| self.write(part));
        ready(())
    }
    fn open_message(&self, _: Role) -> BoxFuture<'_, Result<WriterId, ChannelError>> {
        ready(1)
    }
    fn delta(&self, _: WriterId, part: Part) -> BoxFuture<'_, Result<u32, ChannelError>> {
        self.write(&part);
        ready(0)
    }
    fn replace(&self, _: WriterId, _: u32, part: Part) -> BoxFuture<'_, Result<(), ChannelError>> {
        self.write(&part);
        ready(())
    }
    fn finish(&self, _: WriterId) -> BoxFuture<'_, Result<(), ChannelError>> {
        ready(())
    }
    fn abandon_writer(&self, _: WriterId) {
        self.abandoned.fetch_add(1, Ordering::SeqCst);
    }
    fn history(&self, _: u32) -> BoxFuture<'_, Result<Vec<Message>, ChannelError>> {
        ready(vec![])
    }
    fn report_usage(&self, _: Usage) {
        self.usage.fetch_add(1, Ordering::SeqCst);
    }
    fn request_approval(
        &self,
        _: ApprovalRequest,
    ) -> BoxFuture<'_, Result<ApprovalDecision, ChannelError>> {
        Box::pin(async {
            self.decide().await;
            Ok(ApprovalDecision::ApproveOnce)
        })
    }
    fn ask(&self, _: QuestionForm) -> BoxFuture<'_, Result<FormAnswer, ChannelError>> {
        Box::pin(async {
            self.decide().await;
            Ok(FormAnswer::Dismissed)
        })
    }
    fn withdraw(&self, _: String) {
        self.withdrawn.fetch_add(1, Ordering::SeqCst);
    }
    fn input_ready(&self) -> BoxFuture<'_, Result<bool, ChannelError>> {
        Box::pin(async {
            self.ready.notified().await;
            Ok(true)
        })
    }
    fn take_input(&self) -> BoxFuture<'_, Result<Vec<PromptInput>, ChannelError>> {
        ready(vec![])
    }
    fn close_input(&self) {
        self.ready.notify_waiters();
    }
    fn bind_native_session(&self, id: String) -> BoxFuture<'_, Result<(), ChannelError>> {
        *self.native.lock().unwrap() = Some(id);
        ready(())
    }
}

pub(crate) struct TestHost {
    session: bool,
    pub(crate) changed: AtomicUsize,
    pub(crate) announced: Mutex<Vec<String>>,
    pub(crate) appended: Mutex<Vec<String>>,
    pub(crate) activities: Arc<AtomicUsize>,
    pub(crate) activity_abort: AbortHandle,
    /// Announcements wait for this when set.
    pub(crate) hold: Mutex<Option<Arc<Notify>>>,
    /// Most announcements that were decided at the same time.
    pub(crate) concurrent: AtomicUsize,
    pending: AtomicUsize,
    /// Background processes of the session; at most four run.
    pub(crate) background: TestBackground,
}

impl TestHost {
    pub(crate) fn new(session: bool) -> Self {
        Self {
            session,
            changed: AtomicUsize::new(0),
            announced: Mutex::default(),
            appended: Mutex::default(),
            activities: Arc::default(),
            activity_abort: AbortHandle::new(),
            hold: Mutex::default(),
            concurrent: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            background: TestBackground::default(),
        }
    }
}

struct OpenActivity(Arc<AtomicUsize>, AbortSignal);

impl Activity for OpenActivity {
    fn abort(&self) -> AbortSignal {
        self.1.clone()
    }
}

impl Drop for OpenActivity {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl InstanceHost for TestHost {
    fn context(&self) -> DiscoveryContext {
        let mut context = discovery("");
        context.model = None;
        if !self.session {
            context.session_id = None;
        }
        context
    }
    fn announce_turn(&self, turn: NativeTurn) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async move {
            let pending = self.pending.fetch_add(1, Ordering::SeqCst) + 1;
            let _open = OpenGate(&self.pending);
            self.concurrent.fetch_max(pending, Ordering::SeqCst);
            self.announced.lock().unwrap().push(turn.id);
            let hold = self.hold.lock().unwrap().clone();
            if let Some(hold) = hold {
                hold.notified().await;
            }
            Ok(())
        })
    }
    fn append(&self, message: NewMessage) -> BoxFuture<'_, Result<(), ChannelError>> {
        self.appended
            .lock()
            .unwrap()
            .push(format!("{:?}", message.parts));
        ready(())
    }
    fn begin_activity(&self, _: String) -> Result<Box<dyn Activity>, ChannelError> {
        if !self.session {
            return Err(ChannelError::Closed);
        }
        if self.activities.load(Ordering::SeqCst) >= 8 {
            return Err(ChannelError::Limit("8 activities are open".into()));
        }
        self.activities.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(OpenActivity(
            self.activities.clone(),
            self.activity_abort.signal(),
        )))
    }
    fn state_changed(&self) {
        self.changed.fetch_add(1, Ordering::SeqCst);
    }
    fn background(&self) -> Option<&dyn Background> {
        self.session.then_some(&self.background)
    }
}

/// A session's side of background processes: starts what it is given and keeps it.
#[derive(Default)]
pub(crate) struct TestBackground {
    pub(crate) running: Mutex<Vec<Arc<dyn Process>>>,
}

impl TestBackground {
    fn of(&self, handle: &str) -> Result<Arc<dyn Process>, IoError> {
        let running = self.running.lock().unwrap();
        let at = handle.parse::<usize>().ok();
        let found = at.and_then(|at| running.get(at)).cloned();
        found.ok_or_else(|| IoError::NotFound("no such process".into()))
    }

    fn described(&self, at: usize) -> ProcessInfo {
        use harness_core::view::{ProcessStatus, ProcessView};
        ProcessInfo {
            process: ProcessView {
                process_handle: at.to_string(),
                loop_id: harness_core::ids::LoopId::ZERO,
                program: "flood".into(),
                status: ProcessStatus::Running,
                exit_code: None,
                reason: None,
                started_at: "2026-03-01T09:00:00Z".parse().unwrap(),
                ended_at: None,
            },
            written: self.of(&at.to_string()).ok().map(|p| p.written()),
        }
    }
}

impl Background for TestBackground {
    fn start(&self, program: Box<dyn Program>) -> BoxFuture<'_, Result<String, IoError>> {
        Box::pin(async move {
            if self.running.lock().unwrap().len() >= 4 {
                return Err(IoError::Limit("4 background processes run".into()));
            }
            let process = program.start().await?;
            let mut running = self.running.lock().unwrap();
            running.push(process);
            Ok((running.len() - 1).to_string())
        })
    }
    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, IoError>> {
        Box::pin(async {
            // Not at once, so that calls can be pending beside each other.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let many = self.running.lock().unwrap().len();
            Ok((0..many).map(|at| self.described(at)).collect())
        })
    }
    fn info(&self, handle: String) -> BoxFuture<'_, Result<ProcessInfo, IoError>> {
        Box::pin(async move {
            self.of(&handle)?;
            Ok(self.described(handle.parse().unwrap()))
        })
    }
    fn read(
        &self,
        handle: String,
        from: u64,
        max: usize,
    ) -> BoxFuture<'_, Result<ProcessOutput, IoError>> {
        Box::pin(async move { Ok(self.of(&handle)?.read(from, max)) })
    }
    fn stop(&self, handle: String) -> BoxFuture<'_, Result<(), IoError>> {
        Box::pin(async move {
            self.of(&handle)?.stop();
            Ok(())
        })
    }
}
