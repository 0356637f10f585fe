//! The real binary: run to its end, or serving until dropped.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// No start or end takes longer, on a loaded machine either.
const PATIENCE: Duration = Duration::from_secs(120);

/// The binary with nothing of this process's environment but what programs need.
pub(crate) fn harness(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_harness"));
    command
        .args(args)
        .env_clear()
        .env("PATH", "/bin:/usr/bin")
        .stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    harness(args).output().unwrap()
}

/// Standard output as text.
pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error as text.
pub(crate) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A serving host; killed when dropped.
pub(crate) struct Serving {
    child: Child,
    /// The line it printed when it was ready.
    pub(crate) ready: Value,
    logs: Option<std::thread::JoinHandle<String>>,
}

impl Serving {
    /// Starts it on a free port and waits until it is ready.
    pub(crate) fn start(data: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let data = data.to_str().unwrap();
        let mut command = harness(&["serve", "--log-format", "json", "--data-dir", data]);
        command.env("HARNESS_LISTEN", "127.0.0.1:0");
        change(&mut command);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let logs = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
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
        let mut serving = Self {
            child,
            ready: Value::Null,
            logs: Some(logs),
        };
        let line = line
            .recv_timeout(PATIENCE)
            .expect("the host is ready in time");
        if line.is_empty() {
            panic!("the host ended: {}", serving.end().1);
        }
        serving.ready = serde_json::from_str(&line).unwrap();
        serving
    }

    /// A member of the ready line.
    pub(crate) fn fact(&self, name: &str) -> &str {
        self.ready[name].as_str().unwrap()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Waits for its end: status and logs.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let end = std::time::Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(std::time::Instant::now() < end, "the host does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        (status, self.logs.take().unwrap().join().unwrap())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
