//! The host's end of the supervisor: started with the first program, started again if it is lost.

use super::wire;
use crate::native::IoError;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the supervisor or a reaper may take to say that it is up. A binary that does not call
/// [`super::supervisor_main`] never does.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts programs for the whole host. Clones share one supervisor child; when the last one drops,
/// so does every program.
#[derive(Clone)]
pub struct Supervisor(Arc<Inner>);

struct Inner {
    binary: PathBuf,
    /// A std mutex: held while the child is looked up or started, on a blocking thread
    /// only; reapers start beside each other.
    child: Mutex<Option<Arc<SupervisorChild>>>,
}

struct SupervisorChild {
    socket: Option<UnixStream>,
    child: Option<Child>,
}

impl Supervisor {
    /// A supervisor that is this binary, executed again. Its file may be replaced meanwhile.
    #[must_use]
    pub fn this_binary() -> Self {
        Self::binary("/proc/self/exe")
    }

    /// A supervisor that is another binary whose `main` calls [`super::supervisor_main`] first.
    #[must_use]
    pub fn binary(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Inner {
            binary: path.into(),
            child: Mutex::new(None),
        }))
    }

    /// Starts a program; the socket brings its reports and ends it by closing. Blocks for some
    /// milliseconds.
    pub(super) fn launch(
        &self,
        launch: &wire::Launch,
        stdio: &[OwnedFd; 3],
    ) -> Result<UnixStream, IoError> {
        let failed =
            |error: io::Error| IoError::Failed(format!("start of {:?}: {error}", launch.program));
        let socket = self.reaper().map_err(failed)?;
        let [stdin, stdout, stderr] = stdio;
        wire::send_launch(
            &socket,
            launch,
            [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        )
        .map_err(failed)?;
        Ok(socket)
    }

    /// The socket of a fresh reaper that is up and waits for its launch.
    fn reaper(&self) -> io::Result<UnixStream> {
        let running = self.child(None)?;
        match running.start_reaper() {
            Ok(reaper) => Ok(reaper),
            // It was killed: the programs it had started end with their own reapers.
            Err(_) => self.child(Some(&running))?.start_reaper(),
        }
    }

    /// The supervisor child; a new one when there is none yet or it is the `lost` one.
    fn child(&self, lost: Option<&Arc<SupervisorChild>>) -> io::Result<Arc<SupervisorChild>> {
        let mut child = self.0.child.lock().unwrap_or_else(PoisonError::into_inner);
        match child.as_ref() {
            Some(running) if !lost.is_some_and(|lost| Arc::ptr_eq(lost, running)) => {
                Ok(running.clone())
            }
            _ => {
                let fresh = Arc::new(SupervisorChild::start(&self.0.binary)?);
                *child = Some(fresh.clone());
                Ok(fresh)
            }
        }
    }
}

impl SupervisorChild {
    fn start(binary: &std::path::Path) -> io::Result<Self> {
        if std::env::var_os(wire::MARKER).is_some() {
            return Err(io::Error::other(
                "this process is itself supervised and does not act as a supervisor",
            ));
        }
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(binary)
            .arg0(wire::SUPERVISOR)
            .env_clear()
            .env(wire::MARKER, "1")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let supervisor = Self {
            socket: Some(ours.try_clone()?),
            child: Some(child),
        };
        ours.set_write_timeout(Some(START_TIMEOUT))?;
        wait_until_ready(&ours).map_err(|error| {
            io::Error::other(format!(
                "{} does not act as a supervisor: {error}",
                binary.display()
            ))
        })?;
        Ok(supervisor)
    }

    fn start_reaper(&self) -> io::Result<UnixStream> {
        let Some(link) = &self.socket else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let (ours, theirs) = UnixStream::pair()?;
        wire::send_with_fds(link, &[0], &[theirs.as_fd()])?;
        // The supervisor's copy alone decides from here on: if it dies, this side sees the end.
        drop(theirs);
        wait_until_ready(&ours)?;
        Ok(ours)
    }
}

/// Waits for a child's first byte; an error when it ends or takes too long.
fn wait_until_ready(mut socket: &UnixStream) -> io::Result<()> {
    socket.set_read_timeout(Some(START_TIMEOUT))?;
    socket.read_exact(&mut [0; 1])?;
    socket.set_read_timeout(None)
}

impl Drop for SupervisorChild {
    fn drop(&mut self) {
        // End of file: it ends what it started, then itself. A thread takes its exit status, so
        // that a dropping task does not wait for that.
        self.socket = None;
        if let Some(mut child) = self.child.take() {
            std::thread::spawn(move || child.wait());
        }
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Supervisor({})", self.0.binary.display())
    }
}
