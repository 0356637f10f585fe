//! One granted program that runs, as its owner sees it.

use super::output;
use super::stdin::{Bounds, Stdin};
use super::wire::{self, Launch, Report};
use super::{ProcessLimits, Supervisor};
use crate::native::{ByteStream, End, IoError, error, stream};
use bytes::Bytes;
use harness_core::abort::AbortSignal;
use harness_core::provider::ProgramEnd;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

/// How long a reaper may take to execute the program.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A program that runs, with its standard streams. Dropping it ends the program and everything it
/// started.
///
/// Futures returned here do not borrow the process: holding one does not keep it alive.
pub struct Process {
    switch: Arc<Switch>,
    stdin: Stdin,
    stdout: Mutex<Option<pipe::Receiver>>,
    stderr: Mutex<Option<pipe::Receiver>>,
    status: watch::Receiver<Status>,
}

/// What is known of a program.
#[derive(Debug, Clone, Default)]
pub(super) struct Status {
    /// How it ended.
    exit: Option<Result<i32, IoError>>,
    /// It was ended from here, before it ended by itself.
    pub(super) ended_by_handle: bool,
    /// No descendant is left.
    pub(super) gone: bool,
}

/// Ends the program: closing this side of the reaper's socket is the command.
struct Switch {
    /// A std mutex: held for one take.
    reaper: Mutex<Option<OwnedWriteHalf>>,
    status: watch::Sender<Status>,
}

impl Switch {
    fn off(&self) {
        let reaper = self
            .reaper
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if reaper.is_some() {
            self.status
                .send_modify(|status| status.ended_by_handle = status.exit.is_none());
        }
    }
}

/// What a program's life depends on besides its handle.
pub(super) struct Life {
    /// Ends with this invocation.
    pub(super) abort: Option<AbortSignal>,
    /// Ends with this instance.
    pub(super) instance: CancellationToken,
    /// Given back when the last descendant is reaped.
    pub(super) slot: OwnedSemaphorePermit,
}

impl Process {
    /// Starts a program and waits until it is executed.
    pub(super) async fn start(
        supervisor: Supervisor,
        launch: Launch,
        limits: ProcessLimits,
        life: Life,
    ) -> Result<Self, IoError> {
        let pipe_failed = |e: std::io::Error| error::os("creating a pipe", &e);
        let (stdin, their_stdin) = pipe::pipe().map_err(pipe_failed)?;
        let (their_stdout, stdout) = pipe::pipe().map_err(pipe_failed)?;
        let (their_stderr, stderr) = pipe::pipe().map_err(pipe_failed)?;
        let stdio: [OwnedFd; 3] = [
            their_stdin.into_blocking_fd().map_err(pipe_failed)?,
            their_stdout.into_blocking_fd().map_err(pipe_failed)?,
            their_stderr.into_blocking_fd().map_err(pipe_failed)?,
        ];
        let program = launch.program.clone();
        let socket = tokio::task::spawn_blocking(move || supervisor.launch(&launch, &stdio))
            .await
            .map_err(|error| IoError::Failed(format!("start of {program:?}: {error}")))??;
        let socket_failed = |e: std::io::Error| error::os("talking to the program's reaper", &e);
        socket.set_nonblocking(true).map_err(socket_failed)?;
        let (mut reports, reaper) = UnixStream::from_std(socket)
            .map_err(socket_failed)?
            .into_split();
        match tokio::time::timeout(START_TIMEOUT, next_report(&mut reports)).await {
            Ok(Some(Report::Started)) => {}
            Ok(Some(Report::Refused(errno))) => {
                let refused = std::io::Error::from_raw_os_error(errno);
                return Err(error::os(&format!("start of {program:?}"), &refused));
            }
            Ok(_) => {
                return Err(IoError::Failed(format!(
                    "start of {program:?}: its reaper was lost"
                )));
            }
            Err(_) => {
                return Err(IoError::Failed(format!(
                    "start of {program:?} took longer than {START_TIMEOUT:?}"
                )));
            }
        }
        let (sender, status) = watch::channel(Status::default());
        let switch = Arc::new(Switch {
            reaper: Mutex::new(Some(reaper)),
            status: sender,
        });
        let bounds = Bounds {
            bytes: limits.stdin_bytes,
            writes: limits.stdin_writes,
        };
        let (stdin, writer) = Stdin::new(stdin, bounds);
        tokio::spawn(watch_over(switch.clone(), reports, writer, life));
        Ok(Self {
            switch,
            stdin,
            stdout: Mutex::new(Some(stdout)),
            stderr: Mutex::new(Some(stderr)),
            status,
        })
    }

    /// Queues one whole write to standard input, in the order of the calls (N18); the future
    /// resolves when the program's pipe took all of it. A future that is dropped: the write goes
    /// out whole or not at all.
    ///
    /// # Errors
    /// [`IoError::Limit`] at once when too much waits already; [`IoError::Closed`] after
    /// [`Self::close_stdin`] or when the program no longer reads.
    pub fn write_stdin(
        &self,
        data: Bytes,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.stdin.write(data)
    }

    /// End of file on standard input, after the writes that wait.
    pub fn close_stdin(&self) {
        self.stdin.close();
    }

    /// Standard output; a second call gets an ended stream. Dropping it closes the pipe.
    pub fn stdout(&self) -> (ByteStream, End) {
        self.take(&self.stdout)
    }

    /// Standard error; a second call gets an ended stream. Dropping it closes the pipe.
    pub fn stderr(&self) -> (ByteStream, End) {
        self.take(&self.stderr)
    }

    fn take(&self, pipe: &Mutex<Option<pipe::Receiver>>) -> (ByteStream, End) {
        let pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
        pipe.map_or_else(stream::closed, |pipe| {
            output::read(pipe, self.status.clone())
        })
    }

    /// Resolves with the exit code, or 128 + signal, when the program itself ended; what it started
    /// may live on until this handle ends.
    ///
    /// # Errors
    /// [`IoError::Failed`] when the program was lost together with its reaper.
    pub fn wait(&self) -> impl Future<Output = Result<i32, IoError>> + Send + use<> {
        let mut status = self.status.clone();
        async move {
            let ended = status.wait_for(|status| status.exit.is_some()).await;
            ended
                .ok()
                .and_then(|status| status.exit.clone())
                .unwrap_or_else(|| Err(lost()))
        }
    }

    /// How the program ended, when no descendant of it is left; what it started and left behind is
    /// ended with it.
    pub(super) fn outcome(&self) -> impl Future<Output = ProgramEnd> + Send + use<> {
        let (mut status, switch) = (self.status.clone(), self.switch.clone());
        async move {
            let end = {
                let ended = status.wait_for(|status| status.exit.is_some()).await;
                match ended.as_deref() {
                    Ok(status) if status.ended_by_handle => ProgramEnd::Stopped,
                    Ok(Status {
                        exit: Some(Ok(code)),
                        ..
                    }) => ProgramEnd::Exited(*code),
                    _ => ProgramEnd::Lost,
                }
            };
            switch.off();
            let _ = status.wait_for(|status| status.gone).await;
            end
        }
    }

    /// Ends the program and everything it started. Returns at once; see [`Self::reaped`].
    pub fn kill(&self) {
        self.switch.off();
    }

    /// Resolves when no descendant of the program is left (N3).
    pub fn reaped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut status = self.status.clone();
        async move {
            let _ = status.wait_for(|status| status.gone).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.switch.off();
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Process({:?})", *self.status.borrow())
    }
}

fn lost() -> IoError {
    IoError::Failed("the program was lost together with its reaper".into())
}

/// Follows one program to the end of its last descendant.
async fn watch_over(
    switch: Arc<Switch>,
    mut reports: OwnedReadHalf,
    writer: impl Future<Output = ()> + Send,
    life: Life,
) {
    let aborted = async {
        match &life.abort {
            Some(abort) => drop(abort.aborted().await),
            None => std::future::pending().await,
        }
    };
    let ended_early = async {
        tokio::select! {
            () = aborted => {}
            () = life.instance.cancelled() => {}
        }
        switch.off();
        std::future::pending::<()>().await;
    };
    let reaped = async {
        loop {
            match next_report(&mut reports).await {
                Some(Report::Exited(code)) => switch
                    .status
                    .send_modify(|status| status.exit = Some(Ok(code))),
                Some(Report::Reaped) => return true,
                Some(Report::Started | Report::Refused(_)) => {}
                None => return false,
            }
        }
    };
    let writer = async {
        writer.await;
        std::future::pending::<()>().await;
    };
    let clean = tokio::select! {
        clean = reaped => clean,
        () = ended_early => false,
        () = writer => false,
    };
    if !clean {
        tracing::warn!("the reaper of a program was killed; the supervisor ends what it left");
    }
    switch.status.send_modify(|status| {
        status.exit.get_or_insert_with(|| Err(lost()));
        status.gone = true;
    });
    drop(life.slot);
}

/// The next report; `None` when the reaper is gone.
async fn next_report(reports: &mut OwnedReadHalf) -> Option<Report> {
    let mut report = [0; Report::BYTES];
    reports.read_exact(&mut report).await.ok()?;
    wire::Report::decode(report)
}
