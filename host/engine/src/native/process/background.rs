//! Granted programs that outlive the instance that started them (S97).
//!
//! The session decides whether and when one starts and owns what runs; here it is started, its
//! output collected and its end seen. It ends with its owner, with [`Process::stop`], with the
//! provider it was granted to, and with the host, like every program of this module.
//!
//! [`Process::stop`]: harness_core::provider::Process::stop

use super::ring::Ring;
use super::running::{self, Life};
use super::{ProcessLimits, Supervisor, resolve};
use crate::grants::ProcessGrant;
use crate::native::{ByteStream, IoError};
use bytes::Bytes;
use futures::StreamExt;
use harness_core::provider::{
    BoxFuture, OutputStream, Process, ProcessOutput, Program, ProgramEnd,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Largest standard input of a background program, in bytes.
const MAX_STDIN: usize = 1024 * 1024;
/// Bytes a second that are taken from one program; one that writes faster waits.
const RATE: f64 = 16.0 * 1024.0 * 1024.0;
/// How far ahead of its rate a program may write.
const BURST: Duration = Duration::from_millis(50);

/// The programs that a provider may start in the background.
#[derive(Clone)]
pub struct Backgrounds {
    supervisor: Supervisor,
    grants: Arc<BTreeMap<String, ProcessGrant>>,
    /// Bytes of output that are kept of each.
    output: usize,
    /// The provider is gone.
    ended: CancellationToken,
}

impl Backgrounds {
    /// None started yet; `output`: bytes that are kept of what each writes.
    #[must_use]
    pub fn new(
        supervisor: Supervisor,
        grants: Arc<BTreeMap<String, ProcessGrant>>,
        output: u64,
    ) -> Self {
        Self {
            supervisor,
            grants,
            output: usize::try_from(output).unwrap_or(usize::MAX),
            ended: CancellationToken::new(),
        }
    }

    /// The provider is gone: ends what runs and starts no more.
    pub fn close(&self) {
        self.ended.cancel();
    }

    /// A program that may be started in the background, with what it reads from standard input.
    ///
    /// # Errors
    /// [`IoError::Denied`] without a grant that allows it, [`IoError::Limit`] beyond the bound of
    /// standard input, [`IoError::Closed`] when the provider is gone.
    pub fn program(
        &self,
        name: &str,
        workspace: Option<&Path>,
        stdin: Vec<u8>,
    ) -> Result<Box<dyn Program>, IoError> {
        let grant = self.grants.get(name);
        let grant =
            grant.ok_or_else(|| IoError::Denied(format!("program {name:?} is not granted")))?;
        if !grant.background {
            return Err(IoError::Denied(format!(
                "program {name:?} is not granted to run in the background"
            )));
        }
        if stdin.len() > MAX_STDIN {
            return Err(IoError::Limit(format!(
                "standard input of {} bytes, at most {MAX_STDIN}",
                stdin.len()
            )));
        }
        if self.ended.is_cancelled() {
            return Err(IoError::Closed);
        }
        Ok(Box::new(Unstarted {
            of: self.clone(),
            name: name.to_owned(),
            grant: grant.clone(),
            workspace: workspace.map(Path::to_path_buf),
            stdin,
        }))
    }
}

struct Unstarted {
    of: Backgrounds,
    name: String,
    grant: ProcessGrant,
    workspace: Option<PathBuf>,
    stdin: Vec<u8>,
}

impl Program for Unstarted {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(self: Box<Self>) -> BoxFuture<'static, Result<Arc<dyn Process>, IoError>> {
        Box::pin(async move {
            let Self {
                of,
                name,
                grant,
                workspace,
                stdin,
            } = *self;
            let launch = tokio::task::spawn_blocking(move || {
                resolve::launch(&name, &grant, workspace.as_deref())
            });
            let failed = |error: tokio::task::JoinError| IoError::Failed(error.to_string());
            let launch = launch.await.map_err(failed)??;
            // How many may run is the session's business.
            let slots = Arc::new(Semaphore::new(1));
            let slot = slots.acquire_owned().await;
            let life = Life {
                abort: None,
                instance: of.ended,
                slot: slot.map_err(|error| IoError::Failed(error.to_string()))?,
            };
            let limits = ProcessLimits::default();
            let process = running::Process::start(of.supervisor, launch, limits, life).await?;
            Ok(Arc::new(Running::new(process, stdin, of.output)) as Arc<dyn Process>)
        })
    }
}

/// A background program that runs or has run. Dropping it ends the program.
struct Running {
    process: running::Process,
    // A std mutex: held for a copy of at most the ring, never across an await.
    ring: Arc<Mutex<Ring>>,
    end: watch::Receiver<Option<ProgramEnd>>,
}

fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    fn new(process: running::Process, stdin: Vec<u8>, output: usize) -> Self {
        let ring = Arc::new(Mutex::new(Ring::new(output)));
        // A program that does not read it is no failure; the write ends with the program.
        tokio::spawn(process.write_stdin(Bytes::from(stdin)));
        process.close_stdin();
        let (stdout, stderr) = (process.stdout().0, process.stderr().0);
        let collected = tokio::spawn(collect(stdout, stderr, ring.clone()));
        let (sender, end) = watch::channel(None);
        let outcome = process.outcome();
        tokio::spawn(async move {
            // Whatever it started ends with it, so that nothing goes on that nobody knows of.
            let ended = outcome.await;
            let _ = collected.await;
            sender.send_replace(Some(ended));
        });
        Self { process, ring, end }
    }
}

impl Process for Running {
    fn written(&self) -> u64 {
        lock(&self.ring).written()
    }

    fn read(&self, from: u64, max: usize) -> ProcessOutput {
        lock(&self.ring).read(from, max)
    }

    fn stop(&self) {
        self.process.kill();
    }

    fn ended(&self) -> BoxFuture<'static, ProgramEnd> {
        let mut end = self.end.clone();
        Box::pin(async move {
            let ended = end.wait_for(Option::is_some).await;
            ended
                .ok()
                .and_then(|ended| ended.clone())
                .unwrap_or(ProgramEnd::Lost)
        })
    }
}

/// Takes what both streams bring, at a bounded rate, until both have ended.
async fn collect(mut stdout: ByteStream, mut stderr: ByteStream, ring: Arc<Mutex<Ring>>) {
    let mut due = Instant::now();
    loop {
        let (stream, chunk) = tokio::select! {
            Some(chunk) = stdout.next() => (OutputStream::Stdout, chunk),
            Some(chunk) = stderr.next() => (OutputStream::Stderr, chunk),
            else => return,
        };
        lock(&ring).push(stream, &chunk);
        let now = Instant::now();
        // The cast is exact: a chunk has at most some ten thousand bytes.
        let costs = Duration::from_secs_f64(chunk.len() as f64 / RATE);
        due = due.max(now) + costs;
        if due > now + BURST {
            tokio::time::sleep_until(due).await;
        }
    }
}

impl std::fmt::Debug for Backgrounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backgrounds(ended: {})", self.ended.is_cancelled())
    }
}
