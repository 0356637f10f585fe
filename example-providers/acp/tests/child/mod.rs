//! A real child process beneath the provider, and time that keeps pace with it.
//!
//! The in-memory host has virtual time that jumps when nothing can happen. A child
//! process happens outside of it, so a heartbeat ties the two together: virtual
//! time passes no faster than real time.
#![allow(dead_code)] // each test binary uses a part

use acp_provider::{Acp, native};
use futures::StreamExt;
use futures::channel::{mpsc, oneshot};
use futures::future::{FutureExt, LocalBoxFuture, Shared};
use harness_guest::connection::transport::{Pipes, Process, Transport, TransportError};
use harness_guest::task;
use harness_guest::testing::Host;
use harness_guest::types::{LocalWorkspace, Workspace};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An agent's command line, and what was started of it.
#[derive(Clone)]
pub(crate) struct Agent {
    command: Vec<String>,
    environment: Vec<(String, String)>,
    pub(crate) starts: Arc<AtomicUsize>,
    folder: Arc<tempdir::TempDir>,
}

/// Just enough of a temporary directory.
mod tempdir {
    pub(crate) struct TempDir(pub(super) std::path::PathBuf);

    impl TempDir {
        pub(crate) fn new() -> Self {
            use std::sync::atomic::{AtomicU32, Ordering};
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path =
                std::env::temp_dir().join(format!("acp-provider-{}-{number}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a temporary directory");
            Self(path)
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn scripts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/agents")
}

fn python() -> String {
    std::env::var("HARNESS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Whether the interpreter can run `code`; says so when it cannot, and fails when
/// everything is required.
fn can_run(code: &str, what: &str) -> bool {
    // Asked once for each test binary: importing takes its time.
    static FOUND: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());
    let found = *FOUND
        .lock()
        .expect("no panic under the lock")
        .entry(code.to_owned())
        .or_insert_with(|| {
            Command::new(python())
                .args(["-c", code])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        });
    if !found {
        let missing =
            format!("skipped: {what} is missing (HARNESS_TEST_PYTHON names the interpreter)");
        assert_ne!(
            std::env::var("HARNESS_TEST_REQUIRE").as_deref(),
            Ok("all"),
            "{missing}"
        );
        eprintln!("{missing}");
    }
    found
}

impl Agent {
    fn new(command: Vec<String>) -> Self {
        Self {
            command,
            environment: Vec::new(),
            starts: Arc::default(),
            folder: Arc::new(tempdir::TempDir::new()),
        }
    }

    /// The agent on the official SDK, or `None` where it cannot run.
    pub(crate) fn sdk() -> Option<Self> {
        can_run("import acp", "the Python package agent-client-protocol").then(|| {
            let script = scripts().join("sdk_agent.py");
            let mut agent = Self::new(vec![python(), "-u".into(), script.display().to_string()]);
            let folder = agent.folder.0.clone();
            agent.environment = vec![
                (
                    "ACP_AGENT_SESSIONS".into(),
                    folder.join("sessions").display().to_string(),
                ),
                (
                    "ACP_AGENT_LOG".into(),
                    folder.join("log").display().to_string(),
                ),
            ];
            agent
        })
    }

    /// The scripted agent, or `None` where it cannot run.
    pub(crate) fn hostile(trick: &str, argument: Option<&str>) -> Option<Self> {
        can_run("import json", "Python 3").then(|| {
            let script = scripts().join("hostile_agent.py").display().to_string();
            let mut command = vec![python(), "-u".into(), script, trick.to_owned()];
            command.extend(argument.map(str::to_owned));
            Self::new(command)
        })
    }

    /// The native calls the SDK agent has seen.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.0.join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// The agent loses a conversation.
    pub(crate) fn forget(&self, session: &str) {
        let file = self
            .folder
            .0
            .join("sessions")
            .join(format!("{session}.json"));
        std::fs::remove_file(file).expect("a kept conversation");
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.calls()
            .iter()
            .filter(|line| line.starts_with(call))
            .count()
    }

    /// A session over this agent.
    pub(crate) fn host(&self, config: &[(&str, &str)]) -> Host<Acp> {
        native::install(self.clone());
        let host = Host::<Acp>::with_config(config);
        self.settle_in(host)
    }

    /// The next instance of the session after a restart of the host.
    pub(crate) fn restart(&self, host: Host<Acp>) -> Host<Acp> {
        let host = host.restart();
        self.settle_in(host)
    }

    /// The next instance after the former one was lost.
    pub(crate) fn crash(&self, host: Host<Acp>) -> Host<Acp> {
        let host = host.crash();
        self.settle_in(host)
    }

    pub(crate) fn settle_in(&self, host: Host<Acp>) -> Host<Acp> {
        task::spawn(async {
            loop {
                task::sleep(Duration::from_millis(1)).await;
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        host.set_workspace(Some(Workspace::Local(LocalWorkspace {
            id: "workspace".into(),
            root_path: self.folder.0.display().to_string(),
        })));
        host
    }
}

impl Transport for Agent {
    fn open(&self) -> LocalBoxFuture<'static, Result<Pipes, TransportError>> {
        let agent = self.clone();
        Box::pin(async move {
            agent.starts.fetch_add(1, Ordering::Relaxed);
            let mut child = Command::new(&agent.command[0])
                .args(&agent.command[1..])
                .envs(agent.environment.iter().cloned())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|error| TransportError::NotFound(error.to_string()))?;
            let stdout = chunks(child.stdout.take().expect("a pipe"));
            let stderr = chunks(child.stderr.take().expect("a pipe"));
            let mut stdin = child.stdin.take().expect("a pipe");
            let (write, written) = std::sync::mpsc::channel::<Vec<u8>>();
            std::thread::spawn(move || {
                while let Ok(data) = written.recv() {
                    if stdin.write_all(&data).and_then(|()| stdin.flush()).is_err() {
                        break;
                    }
                }
            });
            let killed = Arc::new(AtomicBool::new(false));
            let kill = Arc::clone(&killed);
            let (exit, exited) = oneshot::channel();
            std::thread::spawn(move || {
                loop {
                    if killed.load(Ordering::Relaxed) {
                        let _ = child.kill();
                    }
                    if let Ok(Some(status)) = child.try_wait() {
                        let code = status.code().or(status.signal().map(|signal| 128 + signal));
                        let _ = exit.send(code.unwrap_or(-1));
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            Ok(Pipes {
                process: Rc::new(Child {
                    write,
                    kill,
                    exited: exited.shared(),
                }),
                stdout: stdout.boxed_local(),
                stderr: stderr.boxed_local(),
            })
        })
    }
}

fn chunks(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (mut sender, receiver) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        loop {
            let read = pipe.read(&mut buffer).unwrap_or(0);
            let chunk = buffer[..read].to_vec();
            if read == 0
                || futures::executor::block_on(futures::SinkExt::send(&mut sender, chunk)).is_err()
            {
                return;
            }
        }
    });
    receiver
}

struct Child {
    write: std::sync::mpsc::Sender<Vec<u8>>,
    kill: Arc<AtomicBool>,
    exited: Shared<oneshot::Receiver<i32>>,
}

impl Process for Child {
    fn write(&self, data: Vec<u8>) -> LocalBoxFuture<'_, Result<(), TransportError>> {
        let written = self.write.send(data).map_err(|_| TransportError::Closed);
        Box::pin(async move { written })
    }

    fn wait(&self) -> LocalBoxFuture<'_, Result<i32, TransportError>> {
        let exited = self.exited.clone();
        Box::pin(async move { exited.await.map_err(|_| TransportError::Closed) })
    }

    fn kill(&self) {
        self.kill.store(true, Ordering::Relaxed);
    }
}
