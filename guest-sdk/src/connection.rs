//! The connection to a native harness: one process, one reader, one writer.
//!
//! A component has no background tasks: what is to be read must be read inside
//! [`Provider::run`](crate::Provider::run). [`Connection::run`] is that loop. All
//! other calls talk to it through cheap, synchronous handles.
//!
//! Invariants:
//! - the process starts on the first [`ready`](Connection::ready), not before;
//! - at most one read is pending and it is never dropped while the process lives;
//! - a [`Protocol`] sees lines synchronously, so the reader cannot wait for the
//!   turn it feeds; what has to wait becomes a job ([`Connection::spawn`]);
//! - lines go out whole and in the order of [`send`](Connection::send), whatever
//!   becomes of the call that sent them;
//! - when the process is gone, everyone who waits learns why, and `run` ends.
//!
//! Deliberately not here: what a line means ([`rpc`](crate::rpc)).

mod error;
#[cfg(target_family = "wasm")]
pub mod granted;
mod jobs;
pub mod lines;
mod options;
mod said;
pub mod transport;

use crate::Shared;
pub use error::ConnectionError;
use futures::channel::{mpsc, oneshot};
use futures::future::{Fuse, FusedFuture, FutureExt, LocalBoxFuture};
use futures::stream::StreamExt;
use jobs::{JobCount, Jobs};
use lines::{Line, LineSplitter, Oversize};
pub use options::Options;
use said::{Tail, reason};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use transport::{Clock, HostClock, Pipes, Process, Transport, TransportError};

/// What is spoken over the lines. Everything but the handshake is synchronous:
/// the reader must not wait for anything but bytes.
pub trait Protocol {
    /// The handshake of a new process, run beside the reader. Until it is done
    /// [`Connection::ready`] waits. An error's text becomes the reason.
    fn open(&self) -> LocalBoxFuture<'static, Result<(), String>>;
    /// One line.
    fn line(&self, line: Vec<u8>);
    /// A line beyond the bound was skipped.
    fn oversize(&self, line: Oversize);
    /// The process is gone: fail everything that waits for it.
    fn closed(&self, reason: &ConnectionError);
    /// While there is one, nothing is read: the back-pressure of a consumer that
    /// is behind. It must resolve without anything further being read.
    fn pressure(&self) -> Option<LocalBoxFuture<'static, ()>> {
        None
    }
}

/// A handle on the connection; clones are the same connection.
#[derive(Clone)]
pub struct Connection(Rc<Inner>);

impl std::fmt::Debug for Connection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Connection")
            .field("phase", &self.0.phase.borrow())
            .finish_non_exhaustive()
    }
}

struct Inner {
    transport: Box<dyn Transport>,
    clock: Rc<dyn Clock>,
    options: Options,
    phase: RefCell<Phase>,
    outgoing: Shared<Outgoing>,
    users: Cell<usize>,
    killed: Cell<bool>,
    open_jobs: Cell<usize>,
    /// Wakes the loop: someone wants the process, sent a line, let go, or killed.
    nudge: mpsc::UnboundedSender<()>,
    nudged: RefCell<Option<mpsc::UnboundedReceiver<()>>>,
    jobs: mpsc::UnboundedSender<LocalBoxFuture<'static, ()>>,
    new_jobs: RefCell<Option<mpsc::UnboundedReceiver<LocalBoxFuture<'static, ()>>>>,
}

type Waiter = oneshot::Sender<Result<(), ConnectionError>>;

#[derive(Debug)]
enum Phase {
    /// No process; the loop starts one as soon as somebody waits.
    Idle(Vec<Waiter>),
    /// A process that has not completed its handshake.
    Opening(Vec<Waiter>),
    Open,
    Closed(ConnectionError),
}

#[derive(Debug, Default)]
struct Outgoing {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// A turn or call that still needs the connection while the instance ends.
#[derive(Debug)]
pub struct InUse(Connection);

impl Drop for InUse {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.users.set(inner.users.get().saturating_sub(1));
        self.0.nudge();
    }
}

/// How one process ended.
enum End {
    /// The instance ends.
    Aborted,
    /// No handshake came about; another start may fare better.
    NeverOpened(String),
    /// A working connection was lost.
    Lost(String),
}

impl Connection {
    /// A connection over `transport`. Nothing is started yet.
    #[must_use]
    pub fn new(transport: impl Transport + 'static, options: Options) -> Self {
        Self::with_clock(transport, options, Rc::new(HostClock))
    }

    /// As [`new`](Self::new), with a clock of one's own.
    #[must_use]
    pub fn with_clock(
        transport: impl Transport + 'static,
        options: Options,
        clock: Rc<dyn Clock>,
    ) -> Self {
        let (nudge, nudged) = mpsc::unbounded();
        let (jobs, new_jobs) = mpsc::unbounded();
        Self(Rc::new(Inner {
            transport: Box::new(transport),
            clock,
            options,
            phase: RefCell::new(Phase::Idle(Vec::new())),
            outgoing: Shared::default(),
            users: Cell::new(0),
            killed: Cell::new(false),
            open_jobs: Cell::new(0),
            nudge,
            nudged: RefCell::new(Some(nudged)),
            jobs,
            new_jobs: RefCell::new(Some(new_jobs)),
        }))
    }

    /// Waits for a process that completed its handshake, starting one when there
    /// is none. May be dropped.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be started (the next call tries again),
    /// `Disconnected` when it was lost.
    pub async fn ready(&self) -> Result<(), ConnectionError> {
        let answer = match &mut *self.0.phase.borrow_mut() {
            Phase::Open => return Ok(()),
            Phase::Closed(reason) => return Err(reason.clone()),
            Phase::Idle(waiters) | Phase::Opening(waiters) => {
                let (sender, answer) = oneshot::channel();
                waiters.push(sender);
                answer
            }
        };
        self.nudge();
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Whether a process is there and has completed its handshake.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(&*self.0.phase.borrow(), Phase::Open)
    }

    /// Queues one line, without its newline. It goes out whole, after all that
    /// was queued before, also when the caller goes away.
    ///
    /// # Errors
    ///
    /// `Disconnected` without a process, `Congested` beyond
    /// [`Options::outgoing_bytes`].
    pub fn send(&self, mut line: Vec<u8>) -> Result<(), ConnectionError> {
        match &*self.0.phase.borrow() {
            Phase::Open | Phase::Opening(_) => {}
            Phase::Closed(reason) => return Err(reason.clone()),
            Phase::Idle(_) => {
                return Err(ConnectionError::Unavailable(
                    "the native process is not running".to_owned(),
                ));
            }
        }
        line.push(b'\n');
        let limit = self.0.options.outgoing_bytes;
        self.0.outgoing.with(|outgoing| {
            // A single line beyond the bound still goes out when nothing waits.
            if outgoing.bytes > 0 && outgoing.bytes + line.len() > limit {
                return Err(ConnectionError::Congested(format!(
                    "the native process does not read its input: {} bytes wait, the limit is {limit}",
                    outgoing.bytes
                )));
            }
            outgoing.bytes += line.len();
            outgoing.lines.push_back(line);
            Ok(())
        })?;
        self.nudge();
        Ok(())
    }

    /// Runs `job` inside [`run`](Self::run), beside the reader: for what a line
    /// sets off and has to wait. Jobs are dropped when `run` ends.
    ///
    /// # Errors
    ///
    /// `Congested` beyond [`Options::jobs`], `Disconnected` after the end.
    pub fn spawn(&self, job: impl Future<Output = ()> + 'static) -> Result<(), ConnectionError> {
        if let Phase::Closed(reason) = &*self.0.phase.borrow() {
            return Err(reason.clone());
        }
        let limit = self.0.options.jobs;
        if self.0.open_jobs.get() >= limit {
            return Err(ConnectionError::Congested(format!(
                "{limit} jobs of the native connection are pending"
            )));
        }
        let guard = JobCount::new(Rc::clone(&self.0));
        let job = async move {
            let _guard = guard;
            job.await;
        };
        self.0
            .jobs
            .unbounded_send(job.boxed_local())
            .map_err(|_| ended())
    }

    /// Keeps the connection open for a while after the instance's signal fired,
    /// so that a live turn can be interrupted in an orderly way.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        self.0.users.set(self.0.users.get() + 1);
        InUse(self.clone())
    }

    /// Ends the process: the last resort against a native side that does not stop.
    pub fn kill(&self) {
        self.0.killed.set(true);
        self.nudge();
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> Rc<dyn Clock> {
        Rc::clone(&self.0.clock)
    }

    fn nudge(&self) {
        // Fails only after `run` ended, when nobody is left to be woken.
        let _ = self.0.nudge.unbounded_send(());
    }

    /// The life of the connection, to be awaited in
    /// [`Provider::run`](crate::Provider::run) under a
    /// [`Link::hold`](crate::Link::hold). Returns ok when `aborted` resolves.
    ///
    /// # Errors
    ///
    /// `Disconnected` with the reason when an open connection is lost.
    pub async fn run<T>(
        &self,
        aborted: impl Future<Output = T>,
        protocol: &dyn Protocol,
    ) -> Result<(), ConnectionError> {
        let (Some(mut nudged), Some(new_jobs)) = (
            self.0.nudged.borrow_mut().take(),
            self.0.new_jobs.borrow_mut().take(),
        ) else {
            return Err(ConnectionError::Unavailable(
                "the connection already runs".to_owned(),
            ));
        };
        let mut aborted = pin!(aborted.fuse());
        let mut jobs = Jobs::new(new_jobs);
        let result = loop {
            if !self.wanted() {
                futures::select_biased! {
                    _ = aborted => break Ok(()),
                    _ = jobs.next() => {}
                    _ = nudged.next() => forget_more(&mut nudged),
                }
                continue;
            }
            let mut opening = self.0.transport.open().fuse();
            let opened = loop {
                futures::select_biased! {
                    _ = aborted => break None,
                    _ = jobs.next() => {}
                    opened = opening => break Some(opened),
                }
            };
            let Some(opened) = opened else { break Ok(()) };
            let pipes = match opened {
                Ok(pipes) => pipes,
                Err(error) => {
                    self.settle(Err(ConnectionError::Unavailable(format!(
                        "the native process cannot be started: {error}"
                    ))));
                    continue;
                }
            };
            self.opening();
            match self
                .serve(pipes, aborted.as_mut(), &mut nudged, &mut jobs, protocol)
                .await
            {
                End::Aborted => break Ok(()),
                End::NeverOpened(reason) => {
                    let reason = ConnectionError::Unavailable(reason);
                    protocol.closed(&reason);
                    self.settle(Err(reason));
                }
                End::Lost(reason) => break Err(ConnectionError::Disconnected(reason)),
            }
        };
        let reason = result.clone().err().unwrap_or_else(ended);
        self.close(&reason);
        protocol.closed(&reason);
        result
    }

    /// Moves lines between one process and the protocol until one of them ends.
    async fn serve<T>(
        &self,
        pipes: Pipes,
        mut aborted: std::pin::Pin<&mut Fuse<impl Future<Output = T>>>,
        nudged: &mut mpsc::UnboundedReceiver<()>,
        jobs: &mut Jobs,
        protocol: &dyn Protocol,
    ) -> End {
        let Pipes {
            process,
            mut stdout,
            mut stderr,
        } = pipes;
        let _killer = KillOnDrop(Rc::clone(&process));
        self.0.killed.set(false);
        let clock = &self.0.clock;
        let mut splitter = LineSplitter::new(self.0.options.line_bytes);
        let mut said = Tail::new(self.0.options.stderr_bytes);
        let mut stderr_open = true;
        let mut unread = 0_usize;
        let mut handshake = protocol.open().fuse();
        let mut patience = clock.sleep(self.0.options.handshake_ms).fuse();
        let mut exit = wait(Rc::clone(&process)).boxed_local().fuse();
        let mut exited = None;
        let mut writing: Fuse<LocalBoxFuture<'static, Result<(), TransportError>>> =
            Fuse::terminated();
        let mut pause: Fuse<LocalBoxFuture<'static, ()>> = Fuse::terminated();
        let mut after_exit: Fuse<LocalBoxFuture<'static, ()>> = Fuse::terminated();
        let mut draining: Fuse<LocalBoxFuture<'static, ()>> = Fuse::terminated();
        loop {
            if self.0.killed.get() {
                let opened = self.is_open();
                return self.ended("ended by the provider".to_owned(), opened);
            }
            if writing.is_terminated()
                && exited.is_none()
                && let Some(batch) = self.next_batch()
            {
                let process = Rc::clone(&process);
                writing = async move { process.write(batch).await }
                    .boxed_local()
                    .fuse();
            }
            if !draining.is_terminated() && self.0.users.get() == 0 {
                return End::Aborted;
            }
            // Not polling the stream keeps its pending read.
            let paused = !pause.is_terminated();
            let mut next_chunk = if paused {
                Fuse::terminated()
            } else {
                stdout.next().fuse()
            };
            let mut next_said = if stderr_open {
                stderr.next().fuse()
            } else {
                Fuse::terminated()
            };
            futures::select_biased! {
                _ = aborted => draining = clock.sleep(self.0.options.drain_ms).fuse(),
                () = draining => return End::Aborted,
                _ = nudged.next() => forget_more(nudged),
                chunk = next_said => match chunk {
                    Some(chunk) => said.push(&chunk),
                    None => stderr_open = false,
                },
                chunk = next_chunk => match chunk {
                    Some(chunk) => {
                        unread += chunk.len();
                        splitter.push(&chunk, &mut |line| deliver(protocol, line));
                        if let Some(pressure) = protocol.pressure() {
                            pause = pressure.fuse();
                        } else if unread >= BREATHE_BYTES {
                            unread = 0;
                            pause = clock.breathe().fuse();
                        }
                    }
                    None => {
                        splitter.finish(&mut |line| deliver(protocol, line));
                        if exited.is_none() {
                            exited = soon(clock, self.0.options.exit_ms, &mut exit).await;
                        }
                        drain_said(clock, &mut stderr, stderr_open, &mut said).await;
                        return self.ended(reason(exited, &said), self.is_open());
                    }
                },
                () = pause => if let Some(pressure) = protocol.pressure() {
                    pause = pressure.fuse();
                },
                opened = handshake => match opened {
                    Ok(()) => {
                        patience = Fuse::terminated();
                        self.settle(Ok(()));
                    }
                    Err(text) => return End::NeverOpened(text + &said.quoted()),
                },
                () = patience => return End::NeverOpened(format!(
                    "the native process did not complete its handshake within {} ms{}",
                    self.0.options.handshake_ms, said.quoted(),
                )),
                written = writing => if let Err(error) = written {
                    // An exit explains itself better than the pipe it broke.
                    exited = exited.or(soon(clock, self.0.options.exit_ms, &mut exit).await);
                    if exited.is_none() {
                        return self.ended(
                            format!("the native process takes no input: {error}{}", said.quoted()),
                            self.is_open(),
                        );
                    }
                    after_exit = clock.sleep(self.0.options.exit_ms).fuse();
                },
                code = exit => {
                    exited = Some(code);
                    after_exit = clock.sleep(self.0.options.exit_ms).fuse();
                },
                () = after_exit => return self.ended(reason(exited, &said), self.is_open()),
                _ = jobs.next() => {}
            }
        }
    }

    fn ended(&self, reason: String, opened: bool) -> End {
        if opened {
            End::Lost(reason)
        } else {
            End::NeverOpened(reason)
        }
    }

    fn wanted(&self) -> bool {
        matches!(&*self.0.phase.borrow(), Phase::Idle(waiters) if !waiters.is_empty())
    }

    fn opening(&self) {
        self.0.outgoing.replace(Outgoing::default());
        let mut phase = self.0.phase.borrow_mut();
        if let Phase::Idle(waiters) = &mut *phase {
            *phase = Phase::Opening(std::mem::take(waiters));
        }
    }

    /// Ends the wait of everyone in `ready`.
    fn settle(&self, result: Result<(), ConnectionError>) {
        let next = if result.is_ok() {
            Phase::Open
        } else {
            Phase::Idle(Vec::new())
        };
        let former = self.0.phase.replace(next);
        if let Phase::Idle(waiters) | Phase::Opening(waiters) = former {
            for waiter in waiters {
                // A caller that went away needs no answer.
                let _ = waiter.send(result.clone());
            }
        }
    }

    fn close(&self, reason: &ConnectionError) {
        let former = self.0.phase.replace(Phase::Closed(reason.clone()));
        self.0.outgoing.replace(Outgoing::default());
        if let Phase::Idle(waiters) | Phase::Opening(waiters) = former {
            for waiter in waiters {
                let _ = waiter.send(Err(reason.clone()));
            }
        }
    }

    /// The lines to be written next, in one piece.
    fn next_batch(&self) -> Option<Vec<u8>> {
        self.0.outgoing.with(|outgoing| {
            let mut batch = outgoing.lines.pop_front()?;
            while batch.len() < WRITE_BYTES
                && let Some(line) = outgoing.lines.pop_front()
            {
                batch.extend_from_slice(&line);
            }
            outgoing.bytes = outgoing.bytes.saturating_sub(batch.len());
            Some(batch)
        })
    }
}

/// Bytes after which the reader lets the other tasks have a go: a flood that is
/// always ready would else use up the CPU slice of the whole instance.
const BREATHE_BYTES: usize = 256 * 1024;
/// Bytes after which a write takes no further line.
const WRITE_BYTES: usize = 64 * 1024;

fn ended() -> ConnectionError {
    ConnectionError::Disconnected("the instance ended".to_owned())
}

/// One wake-up serves all nudges that came before it.
fn forget_more(nudged: &mut mpsc::UnboundedReceiver<()>) {
    while let Some(Some(())) = nudged.next().now_or_never() {}
}

fn deliver(protocol: &dyn Protocol, line: Line) {
    match line {
        Line::Whole(line) => protocol.line(line),
        Line::Oversize(long) => protocol.oversize(long),
    }
}

async fn wait(process: Rc<dyn Process>) -> i32 {
    match process.wait().await {
        Ok(code) => code,
        // Unknown how it ended; the end of its output will tell that it did.
        Err(_) => std::future::pending().await,
    }
}

/// What `exit` answers within `ms`.
async fn soon(
    clock: &Rc<dyn Clock>,
    ms: u32,
    mut exit: &mut (impl FusedFuture<Output = i32> + Unpin),
) -> Option<i32> {
    if exit.is_terminated() {
        return None;
    }
    let mut timer = clock.sleep(ms).fuse();
    futures::select_biased! {
        code = exit => Some(code),
        () = timer => None,
    }
}

/// The last words: what is in the pipe of standard error already.
async fn drain_said(
    clock: &Rc<dyn Clock>,
    stderr: &mut (impl futures::Stream<Item = Vec<u8>> + Unpin),
    open: bool,
    said: &mut Tail,
) {
    if !open {
        return;
    }
    let mut timer = clock.sleep(100).fuse();
    loop {
        futures::select_biased! {
            chunk = stderr.next().fuse() => match chunk {
                Some(chunk) => said.push(&chunk),
                None => return,
            },
            () = timer => return,
        }
    }
}

struct KillOnDrop(Rc<dyn Process>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

#[cfg(test)]
pub(crate) mod tests;
