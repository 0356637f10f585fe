//! A serving host: started, killed as a crash kills it, ended as an operator ends it.

use crate::{Client, PATIENCE, harness};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The bootstrap admin token of every host under test.
pub const TOKEN: &str = "end-to-end-0123456789";

/// How a host is started. A host that is started again keeps it.
#[derive(Clone, Debug)]
pub struct Setup {
    directory: Arc<TempDir>,
    data: PathBuf,
    /// Variables besides the usual ones.
    pub env: Vec<(String, String)>,
    /// Flags besides the usual ones.
    pub args: Vec<String>,
}

impl Setup {
    /// Without a configuration file.
    ///
    /// # Panics
    /// No temporary directory can be made.
    #[must_use]
    pub fn plain() -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        Self {
            data: directory.path().join("data"),
            directory,
            env: Vec::new(),
            args: Vec::new(),
        }
    }

    /// With this configuration file.
    ///
    /// # Panics
    /// It cannot be written.
    #[must_use]
    pub fn configured(config: &str) -> Self {
        let mut setup = Self::plain();
        let file = setup.path("harness.toml");
        std::fs::write(&file, config).unwrap();
        setup.args = vec!["--config".to_owned(), file.display().to_string()];
        setup
    }

    /// With another data directory.
    #[must_use]
    pub fn data(mut self, data: &Path) -> Self {
        self.data = data.to_path_buf();
        self
    }

    /// A path in the test's own directory, which lives as long as this value.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// The command line, with nothing of this process's environment but `PATH`.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(harness());
        command
            .args([
                "serve",
                "--log-format",
                "json",
                "--listen",
                "127.0.0.1:0",
                "--data-dir",
            ])
            .arg(&self.data)
            .args(&self.args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HARNESS_TOKEN", TOKEN)
            .env("HARNESS_LOG", "info")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    /// It does not become ready.
    #[must_use]
    pub fn start(self) -> Host {
        let command = self.command();
        Host::spawn(self, command)
    }
}

/// A serving host; killed when dropped.
pub struct Host {
    setup: Setup,
    child: Child,
    ready: Value,
    logs: Option<std::thread::JoinHandle<String>>,
}

impl Host {
    /// Starts `command`, which has to run a host of `setup`.
    ///
    /// # Panics
    /// It does not become ready.
    #[must_use]
    pub fn spawn(setup: Setup, mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the host can be started");
        let mut stderr = child.stderr.take().unwrap();
        let logs = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let stdout = child.stdout.take().unwrap();
        let (send, line) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = String::new();
            let _ = reader.read_line(&mut line);
            let _ = send.send(line);
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
        });
        let mut host = Self {
            setup,
            child,
            ready: Value::Null,
            logs: Some(logs),
        };
        let line = line
            .recv_timeout(PATIENCE)
            .expect("the host is ready in time");
        if line.is_empty() {
            let (status, logs) = host.wait();
            panic!("the host ended with {status}: {logs}");
        }
        host.ready = serde_json::from_str(&line).expect("a ready line is JSON");
        host
    }

    /// The line it printed when it was ready.
    #[must_use]
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// Its base URL.
    ///
    /// # Panics
    /// The ready line has none.
    #[must_use]
    pub fn url(&self) -> &str {
        self.ready["url"].as_str().unwrap()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it was started.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// A client with the admin token.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.url(), TOKEN)
    }

    /// Resident memory of the process, in bytes.
    ///
    /// # Panics
    /// It is gone.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1024
    }

    /// Kills it with SIGKILL and returns what is needed to start it again.
    ///
    /// # Panics
    /// It cannot be killed.
    #[must_use]
    pub fn kill(mut self) -> Setup {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.setup.clone()
    }

    /// Ends it with SIGTERM: status and logs.
    ///
    /// # Panics
    /// It does not end.
    #[must_use]
    pub fn end(mut self) -> (ExitStatus, String) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        self.wait()
    }

    fn wait(&mut self) -> (ExitStatus, String) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "the host does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let logs = self.logs.take().map(|logs| logs.join().unwrap());
        (status, logs.unwrap_or_default())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(logs) = self.logs.take().and_then(|logs| logs.join().ok())
        {
            let tail: Vec<&str> = logs.lines().rev().take(30).collect();
            for line in tail.iter().rev() {
                eprintln!("host: {line}");
            }
        }
    }
}
