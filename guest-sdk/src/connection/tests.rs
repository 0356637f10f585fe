//! The loop against an in-memory process.

use super::transport::{Pipes, Process, Transport, TransportError};
use super::*;
use crate::testing::{advance, block_on, run_until_stalled, spawn};
use std::time::Duration;

/// One started process, from the outside.
pub(crate) struct Fake {
    pub(crate) stdout: mpsc::UnboundedSender<Vec<u8>>,
    pub(crate) stderr: mpsc::UnboundedSender<Vec<u8>>,
    pub(crate) exit: Option<oneshot::Sender<i32>>,
    pub(crate) written: Shared<Vec<u8>>,
    pub(crate) killed: Shared<bool>,
}

impl Fake {
    pub(crate) fn say(&self, text: impl AsRef<[u8]>) {
        self.stdout
            .unbounded_send(text.as_ref().to_vec())
            .unwrap_or(());
        run_until_stalled();
    }

    pub(crate) fn written(&self) -> Vec<String> {
        run_until_stalled();
        let bytes = self.written.get();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    fn exit(&mut self, code: i32) {
        if let Some(exit) = self.exit.take() {
            exit.send(code).unwrap_or(());
        }
    }

    fn close(self) {
        drop(self);
        run_until_stalled();
    }
}

struct FakeProcess {
    exit: futures::future::Shared<oneshot::Receiver<i32>>,
    written: Shared<Vec<u8>>,
    killed: Shared<bool>,
    reads_input: bool,
}

impl Process for FakeProcess {
    fn write(&self, data: Vec<u8>) -> LocalBoxFuture<'_, Result<(), TransportError>> {
        if !self.reads_input {
            return std::future::pending().boxed_local();
        }
        self.written.with(|written| written.extend(data));
        async { Ok(()) }.boxed_local()
    }

    fn wait(&self) -> LocalBoxFuture<'_, Result<i32, TransportError>> {
        let exit = self.exit.clone();
        async move { exit.await.map_err(|_| TransportError::Closed) }.boxed_local()
    }

    fn kill(&self) {
        self.killed.replace(true);
    }
}

/// Starts in-memory processes.
#[derive(Clone)]
pub(crate) struct FakeTransport {
    pub(crate) started: Shared<Vec<Fake>>,
    pub(crate) failure: Shared<Option<TransportError>>,
    pub(crate) reads_input: bool,
}

impl Default for FakeTransport {
    fn default() -> Self {
        Self {
            started: Shared::new(Vec::new()),
            failure: Shared::new(None),
            reads_input: true,
        }
    }
}

impl FakeTransport {
    pub(crate) fn take(&self) -> Fake {
        run_until_stalled();
        self.started.with(|started| started.remove(0))
    }

    fn starts(&self) -> usize {
        run_until_stalled();
        self.started.with(|started| started.len())
    }
}

impl Transport for FakeTransport {
    fn open(&self) -> LocalBoxFuture<'static, Result<Pipes, TransportError>> {
        let this = self.clone();
        async move {
            if let Some(failure) = this.failure.get() {
                return Err(failure);
            }
            let (stdout, out) = mpsc::unbounded();
            let (stderr, err) = mpsc::unbounded();
            let (exit, exited) = oneshot::channel();
            let (written, killed) = (Shared::default(), Shared::default());
            let process = FakeProcess {
                exit: exited.shared(),
                written: written.clone(),
                killed: killed.clone(),
                reads_input: this.reads_input,
            };
            this.started.with(|started| {
                started.push(Fake {
                    stdout,
                    stderr,
                    exit: Some(exit),
                    written,
                    killed,
                });
            });
            Ok(Pipes {
                process: Rc::new(process),
                stdout: lossy_when_dropped(out).boxed_local(),
                stderr: err.boxed_local(),
            })
        }
        .boxed_local()
    }
}

/// A pipe whose read, like a component's, holds data before it resolves: dropped
/// in between, the data is gone.
fn lossy_when_dropped(
    pipe: mpsc::UnboundedReceiver<Vec<u8>>,
) -> impl futures::Stream<Item = Vec<u8>> {
    futures::stream::unfold(pipe, |mut pipe| async move {
        let chunk = pipe.next().await?;
        wit_bindgen::yield_async().await;
        Some((chunk, pipe))
    })
}

#[derive(Clone, Default)]
struct Recorder {
    lines: Shared<Vec<String>>,
    oversize: Shared<Vec<usize>>,
    closed: Shared<Vec<ConnectionError>>,
    refuse: Shared<Option<String>>,
    stall: Shared<bool>,
    pressed: Shared<Option<oneshot::Sender<()>>>,
    press: Shared<bool>,
}

impl Protocol for Recorder {
    fn open(&self) -> LocalBoxFuture<'static, Result<(), String>> {
        if self.stall.get() {
            return std::future::pending().boxed_local();
        }
        let refuse = self.refuse.get();
        async move { refuse.map_or(Ok(()), Err) }.boxed_local()
    }

    fn line(&self, line: Vec<u8>) {
        let line = String::from_utf8_lossy(&line).into_owned();
        self.lines.with(|lines| lines.push(line));
    }

    fn oversize(&self, line: Oversize) {
        self.oversize.with(|sizes| sizes.push(line.bytes));
    }

    fn closed(&self, reason: &ConnectionError) {
        self.closed.with(|closed| closed.push(reason.clone()));
    }

    fn pressure(&self) -> Option<LocalBoxFuture<'static, ()>> {
        if !self.press.get() {
            return None;
        }
        let (sender, resumed) = oneshot::channel();
        self.pressed.replace(Some(sender));
        Some(resumed.map(drop).boxed_local())
    }
}

struct Rig {
    transport: FakeTransport,
    connection: Connection,
    recorder: Recorder,
    abort: Option<oneshot::Sender<()>>,
    ended: Shared<Option<Result<(), ConnectionError>>>,
}

impl Rig {
    fn new(transport: FakeTransport, options: Options) -> Self {
        let connection = Connection::new(transport.clone(), options);
        let recorder = Recorder::default();
        let (abort, aborted) = oneshot::channel();
        let ended = Shared::new(None);
        let (running, protocol, end) = (connection.clone(), recorder.clone(), ended.clone());
        spawn(async move {
            let result = running.run(aborted, &protocol).await;
            end.replace(Some(result));
        });
        run_until_stalled();
        Self {
            transport,
            connection,
            recorder,
            abort: Some(abort),
            ended,
        }
    }

    /// A rig whose process is there.
    fn open() -> (Self, Fake) {
        let rig = Self::new(FakeTransport::default(), Options::default());
        rig.ready().expect("ready");
        let process = rig.transport.take();
        (rig, process)
    }

    fn ready(&self) -> Result<(), ConnectionError> {
        let connection = self.connection.clone();
        block_on(async move { connection.ready().await })
    }
}

#[test]
fn the_process_starts_on_the_first_ready() {
    let rig = Rig::new(FakeTransport::default(), Options::default());
    advance(Duration::from_secs(60));
    assert_eq!(rig.transport.starts(), 0);
    rig.ready().expect("ready");
    rig.ready().expect("ready");
    assert_eq!(rig.transport.starts(), 1);
}

#[test]
fn a_start_that_failed_is_tried_again() {
    let transport = FakeTransport::default();
    transport
        .failure
        .replace(Some(TransportError::NotFound("agent".into())));
    let rig = Rig::new(transport, Options::default());
    assert!(
        matches!(rig.ready(), Err(ConnectionError::Unavailable(text)) if text.contains("agent"))
    );
    rig.transport.failure.replace(None);
    rig.ready().expect("ready");
    assert_eq!(rig.ended.get(), None);
}

#[test]
fn a_refused_handshake_is_unavailable_and_tried_again() {
    let rig = Rig::new(FakeTransport::default(), Options::default());
    rig.recorder.refuse.replace(Some("version 99".into()));
    assert_eq!(
        rig.ready(),
        Err(ConnectionError::Unavailable("version 99".into()))
    );
    assert!(rig.transport.take().killed.get(), "its process is ended");
    rig.recorder.refuse.replace(None);
    rig.ready().expect("ready");
}

#[test]
fn a_handshake_has_a_time_limit() {
    let rig = Rig::new(FakeTransport::default(), Options::default());
    rig.recorder.stall.replace(true);
    assert!(
        matches!(rig.ready(), Err(ConnectionError::Unavailable(text)) if text.contains("30000 ms"))
    );
}

/// The trap this module exists for: a `select!` that drops a read loses data.
#[test]
fn no_line_is_lost_however_often_the_loop_is_woken() {
    let (rig, process) = Rig::open();
    let connection = rig.connection.clone();
    spawn(async move {
        for number in 0..4_000 {
            connection
                .send(format!("{number}").into_bytes())
                .expect("sent");
            connection.spawn(async {}).expect("a job");
            connection.clock().breathe().await;
        }
    });
    let text: String = (0..2_001)
        .map(|number| format!("line {number}\n"))
        .collect();
    for chunk in text.as_bytes().chunks(13) {
        process.stdout.unbounded_send(chunk.to_vec()).expect("open");
        if chunk.len() % 5 == 0 {
            run_until_stalled();
        }
    }
    run_until_stalled();
    let lines = rig.recorder.lines.get();
    assert_eq!(lines.len(), 2_001);
    assert_eq!(lines.last().map(String::as_str), Some("line 2000"));
    let expected: Vec<_> = (0..4_000).map(|number| number.to_string()).collect();
    assert_eq!(process.written(), expected, "n18: whole and in order");
}

#[test]
fn an_oversize_line_is_reported_and_the_connection_survives() {
    let rig = Rig::new(
        FakeTransport::default(),
        Options {
            line_bytes: 1024,
            ..Options::default()
        },
    );
    rig.ready().expect("ready");
    let process = rig.transport.take();
    for _ in 0..10 {
        process.say(vec![b'x'; 1000]);
    }
    process.say("\nnext\n");
    assert_eq!(rig.recorder.oversize.get(), [10_000]);
    assert_eq!(rig.recorder.lines.get(), ["next"]);
    assert_eq!(rig.ended.get(), None);
}

#[test]
fn the_end_tells_code_and_last_words_to_everybody() {
    let (rig, mut process) = Rig::open();
    process
        .stderr
        .unbounded_send(b"first\nlast words\n".to_vec())
        .expect("open");
    process.say("no newline");
    process.exit(3);
    process.close();
    advance(Duration::from_secs(1));
    let Some(Err(ConnectionError::Disconnected(reason))) = rig.ended.get() else {
        panic!("not disconnected: {:?}", rig.ended.get());
    };
    assert!(
        reason.contains("code 3") && reason.contains("last words"),
        "{reason}"
    );
    assert_eq!(rig.recorder.lines.get(), ["no newline"]);
    assert_eq!(rig.recorder.closed.with(|closed| closed.len()), 1);
    assert!(matches!(rig.ready(), Err(ConnectionError::Disconnected(_))));
    assert!(rig.connection.send(b"x".to_vec()).is_err());
    assert!(rig.connection.spawn(async {}).is_err());
}

#[test]
fn a_descendant_that_keeps_the_pipe_open_does_not_hide_an_exit() {
    let (rig, mut process) = Rig::open();
    process.exit(128 + 9);
    advance(Duration::from_secs(1));
    assert!(matches!(
        rig.ended.get(),
        Some(Err(ConnectionError::Disconnected(reason))) if reason.contains("signal 9")
    ));
}

#[test]
fn jobs_do_not_hold_up_the_reader_and_are_bounded() {
    let (rig, process) = Rig::open();
    for _ in 0..Options::default().jobs {
        rig.connection
            .spawn(std::future::pending())
            .expect("within the bound");
    }
    assert!(matches!(
        rig.connection.spawn(async {}),
        Err(ConnectionError::Congested(_))
    ));
    process.say("still read\n");
    assert_eq!(rig.recorder.lines.get(), ["still read"]);
}

#[test]
fn a_process_that_does_not_read_is_congested_not_a_leak() {
    let transport = FakeTransport {
        reads_input: false,
        ..FakeTransport::default()
    };
    let rig = Rig::new(transport, Options::default());
    rig.ready().expect("ready");
    let sent = (0..1_000)
        .take_while(|_| rig.connection.send(vec![b'x'; 1024 * 1024]).is_ok())
        .count();
    assert!((15..=17).contains(&sent), "{sent}");
}

#[test]
fn back_pressure_pauses_the_reader_until_it_is_gone() {
    let (rig, process) = Rig::open();
    rig.recorder.press.replace(true);
    process.say("one\n");
    process.say("two\n");
    assert_eq!(rig.recorder.lines.get(), ["one"]);
    rig.recorder.press.replace(false);
    let resume = rig.recorder.pressed.replace(None).expect("paused");
    resume.send(()).expect("waiting");
    run_until_stalled();
    assert_eq!(rig.recorder.lines.get(), ["one", "two"]);
}

#[test]
fn the_end_of_the_instance_waits_for_live_turns_within_a_bound() {
    for (held, ends_after) in [(false, 0), (true, 4_000)] {
        let (mut rig, process) = Rig::open();
        let in_use = held.then(|| rig.connection.in_use());
        rig.abort.take().map(|abort| abort.send(()));
        run_until_stalled();
        assert_eq!(rig.ended.get().is_some(), !held);
        process.say("heard\n");
        advance(Duration::from_millis(ends_after));
        assert_eq!(rig.ended.get(), Some(Ok(())), "held: {held}");
        assert_eq!(rig.recorder.lines.get().len(), usize::from(held));
        assert!(process.killed.get());
        drop(in_use);
    }
}

#[test]
fn a_turn_that_lets_go_ends_the_instance_at_once() {
    let (mut rig, _process) = Rig::open();
    let in_use = rig.connection.in_use();
    rig.abort.take().map(|abort| abort.send(()));
    run_until_stalled();
    assert_eq!(rig.ended.get(), None);
    drop(in_use);
    run_until_stalled();
    assert_eq!(rig.ended.get(), Some(Ok(())));
}

#[test]
fn kill_ends_the_connection() {
    let (rig, process) = Rig::open();
    rig.connection.kill();
    run_until_stalled();
    assert!(process.killed.get());
    assert!(matches!(
        rig.ended.get(),
        Some(Err(ConnectionError::Disconnected(_)))
    ));
}
