//! Programs as an instance sees them: real processes, a real supervisor, a host that is killed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic in a helper is a failed test"
)]
#![cfg(target_os = "linux")]

use bytes::Bytes;
use futures::StreamExt;
use harness_core::abort::{AbortHandle, AbortReason};
use harness_engine::native::IoError;
use harness_engine::native::process::{Process, ProcessLimits, Processes, Supervisor};
use harness_engine::{ProcessCwd, ProcessGrant, Secret};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// Far beyond what anything here needs: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it never happened")
}

fn supervisor() -> Supervisor {
    Supervisor::binary(env!("CARGO_BIN_EXE_native-host"))
}

fn grant(command: &[&str]) -> ProcessGrant {
    ProcessGrant {
        background: false,
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        env: BTreeMap::from([(
            "PATH".to_owned(),
            Secret::new(std::env::var("PATH").unwrap()),
        )]),
        cwd: ProcessCwd::Workspace,
    }
}

/// One program named `it`, in a workspace of its own.
struct Bench {
    processes: Processes,
    workspace: tempfile::TempDir,
}

impl Bench {
    fn new(grant: ProcessGrant) -> Self {
        Self::limited(grant, ProcessLimits::default())
    }

    fn shell(script: &str) -> Self {
        Self::new(grant(&["sh", "-c", script]))
    }

    fn limited(grant: ProcessGrant, limits: ProcessLimits) -> Self {
        let grants = Arc::new(BTreeMap::from([("it".to_owned(), grant)]));
        Self {
            processes: Processes::new(supervisor(), grants, limits),
            workspace: tempfile::tempdir().unwrap(),
        }
    }

    async fn start(&self) -> Process {
        self.try_start().await.unwrap()
    }

    async fn try_start(&self) -> Result<Process, IoError> {
        soon(
            self.processes
                .spawn("it", Some(self.workspace.path()), None),
        )
        .await
    }

    /// Everything that runs in the workspace, whatever became of its group, session or parent.
    fn alive(&self) -> Vec<PathBuf> {
        alive_in(self.workspace.path())
    }

    /// Waits until a file holds something: the program got that far.
    async fn reached(&self, file: &str) -> String {
        reached(self.workspace.path(), file).await
    }
}

async fn reached(directory: &Path, file: &str) -> String {
    soon(async {
        loop {
            match std::fs::read_to_string(directory.join(file)) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    })
    .await
}

/// Resolves when so many processes run in the directory: those that only fork and go have gone.
async fn settled(directory: &Path, count: usize) {
    soon(async {
        while alive_in(directory).len() != count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Processes whose working directory is the given one. Zombies have none.
fn alive_in(directory: &Path) -> Vec<PathBuf> {
    let directory = directory.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    processes
        .filter(|process| std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == directory))
        .collect()
}

async fn read_all(process: &Process) -> (Vec<u8>, Result<(), IoError>) {
    let (stream, end) = process.stdout();
    let chunks: Vec<Bytes> = soon(stream.collect()).await;
    (chunks.concat(), soon(end).await)
}

/// A program that leaves descendants of every kind: in its group, in a group of its own, in a
/// session of its own, daemonized twice. It writes a line to `ready` when all of them run.
const FAMILY: &str = r#"
import os, signal, sys, time
def child(work):
    if os.fork() == 0:
        work()
        os._exit(0)
def stay():
    open(f"up-{os.getpid()}", "w").close()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        time.sleep(1000)
def daemon():
    os.setsid()
    child(lambda: (os.setsid(), child(stay)))
child(stay)
child(lambda: (os.setpgid(0, 0), stay()))
child(lambda: (os.setsid(), stay()))
child(daemon)
while len([name for name in os.listdir(".") if name.startswith("up-")]) < 4:
    time.sleep(0.005)
print("up", file=open("ready", "w"))
"#;

fn family(and_then: &str) -> ProcessGrant {
    grant(&["python3", "-c", &format!("{FAMILY}\n{and_then}")])
}

#[tokio::test]
async fn output_exit_code_and_environment() {
    let mut grant = grant(&[
        "sh",
        "-c",
        "/usr/bin/env; pwd; ls /proc/self/fd >&2; exit 7",
    ]);
    grant.env.insert("TOKEN".into(), Secret::new("s3cret"));
    let bench = Bench::new(grant);
    let process = bench.start().await;
    let (mut errors, _) = process.stderr();
    let (output, end) = read_all(&process).await;
    assert_eq!(soon(process.wait()).await, Ok(7));
    assert_eq!(end, Ok(()));
    let output = String::from_utf8(output).unwrap();
    let mut lines: Vec<&str> = output.lines().collect();
    assert_eq!(
        Path::new(lines.pop().unwrap()),
        bench.workspace.path().canonicalize().unwrap()
    );
    // `sh` adds the last ones by itself.
    lines.retain(|line| {
        !["PWD=", "OLDPWD=", "SHLVL=", "_="]
            .iter()
            .any(|own| line.starts_with(own))
    });
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            format!("PATH={}", std::env::var("PATH").unwrap()).as_str(),
            "TOKEN=s3cret"
        ]
    );
    // Three, and the one that `ls` reads the directory with.
    assert_eq!(soon(errors.next()).await.unwrap(), "0\n1\n2\n3\n");
    assert_eq!(
        soon(process.stdout().1).await,
        Err(IoError::Closed),
        "taken once"
    );
}

#[tokio::test]
async fn a_signal_is_told_as_shells_do() {
    let bench = Bench::shell("kill -TERM $$");
    assert_eq!(soon(bench.start().await.wait()).await, Ok(128 + 15));
}

#[tokio::test]
async fn n18_concurrent_writes_go_out_whole_and_in_call_order() {
    let bench = Bench::new(grant(&["cat"]));
    let process = bench.start().await;
    let (stream, end) = process.stdout();
    let mut expected = Vec::new();
    let mut writes = Vec::new();
    for turn in 0..40_u8 {
        // Sizes around the pipe's buffer, so that writes need several rounds.
        let data = vec![turn; 1 + usize::from(turn) * 5_000];
        expected.extend_from_slice(&data);
        writes.push(process.write_stdin(Bytes::from(data)));
    }
    process.close_stdin();
    // Polled backwards, and every third one never.
    let mut kept = Vec::new();
    for (turn, write) in writes.into_iter().enumerate().rev() {
        if turn % 3 == 0 {
            drop(write)
        } else {
            kept.push(write)
        }
    }
    let (chunks, written): (Vec<Bytes>, _) = soon(futures::future::join(
        stream.collect(),
        futures::future::join_all(kept),
    ))
    .await;
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    assert_eq!(soon(end).await, Ok(()));
    // Dropped writes may be missing, but only whole; the others are all there, in order.
    let got = chunks.concat();
    let mut rest = got.as_slice();
    for turn in 0..40_u8 {
        let length = 1 + usize::from(turn) * 5_000;
        let run = rest.iter().take_while(|byte| **byte == turn).count();
        assert!(
            run == length || (run == 0 && turn % 3 == 0),
            "write {turn}: {run} of {length} bytes"
        );
        rest = rest.get(run..).unwrap();
    }
    assert!(rest.is_empty(), "bytes out of order");
}

#[tokio::test]
async fn a_program_that_does_not_read_meets_a_bound() {
    let limits = ProcessLimits {
        stdin_bytes: 300_000,
        ..ProcessLimits::default()
    };
    let bench = Bench::limited(grant(&["sleep", "1000"]), limits);
    let process = bench.start().await;
    let blocked = process.write_stdin(Bytes::from(vec![0; 300_000]));
    assert!(matches!(
        soon(process.write_stdin(Bytes::from(vec![0; 1]))).await,
        Err(IoError::Limit(_))
    ));
    process.kill();
    assert_eq!(soon(blocked).await, Err(IoError::Closed));
    assert_eq!(soon(process.wait()).await, Ok(128 + 9));
    assert_eq!(
        soon(process.write_stdin(Bytes::new())).await,
        Err(IoError::Closed)
    );
}

#[tokio::test]
async fn w9_a_flood_waits_for_its_reader() {
    let bench = Bench::new(grant(&[
        "python3",
        "-c",
        "import os\nn = 0\nwhile True:\n  n += os.write(1, b'x' * 65536)\n  open('written.new', 'w').write(f'{n}\\n')\n  os.rename('written.new', 'written')",
    ]));
    let process = bench.start().await;
    let (mut stream, end) = process.stdout();
    let first = soon(stream.next()).await.unwrap().len();
    // Let it write what it can: until the count has stood still for a while.
    let mut written = bench.reached("written").await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        written = bench.reached("written").await;
    }
    let ahead = written.parse::<usize>().unwrap() - first;
    assert!(ahead <= 1024 * 1024, "{ahead} bytes are buffered somewhere");
    // Reading on makes it go on.
    let mut read = first;
    while read < 8 * 1024 * 1024 {
        read += soon(stream.next()).await.unwrap().len();
    }
    process.kill();
    let _rest: Vec<Bytes> = soon(stream.collect()).await;
    assert_eq!(soon(end).await, Err(IoError::Closed), "ended from here");
}

#[tokio::test]
async fn a_dropped_stream_closes_the_pipe() {
    let bench = Bench::new(grant(&["yes"]));
    let process = bench.start().await;
    drop(process.stdout());
    assert_eq!(soon(process.wait()).await, Ok(128 + 13), "SIGPIPE");
}

#[tokio::test]
async fn n3_kill_takes_every_descendant_and_nobody_else() {
    let bench = Bench::new(family("signal.pause()"));
    let other = Bench {
        processes: bench.processes.clone(),
        workspace: tempfile::tempdir().unwrap(),
    };
    let (victim, bystander) = (bench.start().await, other.start().await);
    bench.reached("ready").await;
    other.reached("ready").await;
    // The program, one child in each kind of group, one daemon.
    settled(bench.workspace.path(), 5).await;
    settled(other.workspace.path(), 5).await;
    victim.kill();
    soon(victim.reaped()).await;
    assert!(bench.alive().is_empty(), "{:?}", bench.alive());
    assert_eq!(soon(victim.wait()).await, Ok(128 + 9));
    assert_eq!(other.alive().len(), 5, "the other program is untouched");
    drop(bystander);
    soon(other.processes.reaped()).await;
    assert!(other.alive().is_empty());
}

#[tokio::test]
async fn n3_descendants_of_a_program_that_ended_go_with_its_handle() {
    let bench = Bench::new(family("sys.exit(3)"));
    let process = bench.start().await;
    assert_eq!(soon(process.wait()).await, Ok(3));
    // They live as long as the handle.
    settled(bench.workspace.path(), 4).await;
    assert_eq!(bench.processes.live(), 1);
    let reaped = process.reaped();
    drop(process);
    soon(reaped).await;
    assert!(bench.alive().is_empty());
    soon(bench.processes.reaped()).await;
    assert_eq!(bench.processes.live(), 0);
}

#[tokio::test]
async fn a_program_that_forks_without_end_is_ended() {
    // 64 at a time; each lives briefly and leaves a successor, every second one in a new session.
    let bench = Bench::new(grant(&[
        "python3",
        "-c",
        "import os, time\nfor _ in range(6): os.fork()\nprint('up', file=open('ready', 'a'))\nwhile True:\n  if os.fork(): os._exit(0)\n  os.setsid() if os.getpid() % 2 else None",
    ]));
    let process = bench.start().await;
    bench.reached("ready").await;
    process.kill();
    soon(process.reaped()).await;
    assert!(bench.alive().is_empty());
}

#[tokio::test]
async fn slots_are_bounded_and_free_when_reaped() {
    let bench = Bench::new(grant(&["sleep", "1000"]));
    let mut running = Vec::new();
    for _ in 0..4 {
        running.push(bench.start().await);
    }
    assert!(matches!(bench.try_start().await, Err(IoError::Limit(_))));
    let ended = running.pop().unwrap();
    let reaped = ended.reaped();
    drop(ended);
    soon(reaped).await;
    running.push(
        soon(async {
            // The slot follows the report within one turn of the task that watches over it.
            loop {
                match bench.try_start().await {
                    Err(IoError::Limit(_)) => tokio::task::yield_now().await,
                    started => break started.unwrap(),
                }
            }
        })
        .await,
    );
    bench.processes.close();
    soon(bench.processes.reaped()).await;
    assert!(bench.alive().is_empty());
    assert_eq!(soon(running[0].wait()).await, Ok(128 + 9));
    assert!(matches!(bench.try_start().await, Err(IoError::Closed)));
}

#[tokio::test]
async fn an_abort_ends_the_program_and_a_start() {
    let bench = Bench::new(grant(&["sleep", "1000"]));
    let abort = AbortHandle::new();
    let workspace = Some(bench.workspace.path());
    let process = soon(bench.processes.spawn("it", workspace, Some(abort.signal())))
        .await
        .unwrap();
    abort.abort(AbortReason::UserStop);
    assert_eq!(soon(process.wait()).await, Ok(128 + 9));
    let again = bench.processes.spawn("it", workspace, Some(abort.signal()));
    assert!(matches!(soon(again).await, Err(IoError::Closed)));
}

#[tokio::test]
async fn a_dropped_start_leaves_nothing() {
    let bench = Bench::new(grant(&["sleep", "1000"]));
    bench.start().await.kill();
    for delay in 0..20 {
        let start = bench
            .processes
            .spawn("it", Some(bench.workspace.path()), None);
        let _ = tokio::time::timeout(Duration::from_micros(delay * 400), start).await;
        // The next one may need its slot.
        soon(bench.processes.reaped()).await;
    }
    assert!(bench.alive().is_empty());
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let bench = Bench::new(grant(&["no-such-program"]));
    assert!(matches!(bench.try_start().await, Err(IoError::NotFound(_))));
    assert!(matches!(
        soon(bench.processes.spawn("other", None, None)).await,
        Err(IoError::Denied(_))
    ));
    assert!(matches!(
        soon(bench.processes.spawn("it", None, None)).await,
        Err(IoError::NotFound(_))
    ));
    let bench = Bench::new(grant(&["sh"]));
    assert!(matches!(
        soon(bench.processes.spawn("it", None, None)).await,
        Err(IoError::Denied(_))
    ));
    // Executable for the file system, not for the kernel.
    let script = bench.workspace.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let bench = Bench::new(grant(&[script.to_str().unwrap()]));
    assert!(matches!(bench.try_start().await, Err(IoError::NotFound(_))));
    let grants = Arc::new(BTreeMap::from([("it".to_owned(), grant(&["sh"]))]));
    let processes = Processes::new(
        Supervisor::binary("/bin/true"),
        grants,
        ProcessLimits::default(),
    );
    let started = soon(processes.spawn("it", Some(Path::new("/")), None)).await;
    assert!(
        matches!(&started, Err(IoError::Failed(why)) if why.contains("supervisor")),
        "{started:?}"
    );
    soon(processes.reaped()).await;
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn kill9(pid: u32) {
    let status = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// A host of its own that runs the family in a directory, and what ends it.
async fn host(directory: &Path) -> tokio::process::Child {
    let host = tokio::process::Command::new(env!("CARGO_BIN_EXE_native-host"))
        .arg(directory)
        .args(family("print('on', flush=True)\nsignal.pause()").command)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut host = host.unwrap();
    let mut line = String::new();
    let output = host.stdout.as_mut().unwrap();
    soon(BufReader::new(output).read_line(&mut line))
        .await
        .unwrap();
    assert_eq!(line, "on\n");
    settled(directory, 5).await;
    host
}

#[tokio::test]
async fn no_descendant_outlives_a_host_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = host(directory.path()).await;
    let supervisor = children(host.id().unwrap());
    assert_eq!(supervisor.len(), 1, "one child");
    kill9(host.id().unwrap());
    soon(host.wait()).await.unwrap();
    settled(directory.path(), 0).await;
    soon(async {
        while Path::new(&format!("/proc/{}/cwd", supervisor[0]))
            .symlink_metadata()
            .is_ok()
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn no_descendant_outlives_a_host_that_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = host(directory.path()).await;
    drop(host.stdin.take());
    let mut rest = Vec::new();
    soon(host.stdout.take().unwrap().read_to_end(&mut rest))
        .await
        .unwrap();
    assert!(soon(host.wait()).await.unwrap().success());
    assert!(
        alive_in(directory.path()).is_empty(),
        "it had waited until all were reaped"
    );
}

#[tokio::test]
async fn a_killed_reaper_leaves_its_program_to_the_supervisor() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = host(directory.path()).await;
    let supervisor = children(host.id().unwrap())[0];
    let reaper = children(supervisor)[0];
    kill9(reaper);
    settled(directory.path(), 0).await;
    drop(host.stdin.take());
    assert!(soon(host.wait()).await.unwrap().success());
}

#[tokio::test]
async fn a_killed_supervisor_costs_nothing_but_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut host = host(directory.path()).await;
    kill9(children(host.id().unwrap())[0]);
    assert_eq!(
        alive_in(directory.path()).len(),
        5,
        "reapers do not need it"
    );
    drop(host.stdin.take());
    assert!(soon(host.wait()).await.unwrap().success());
    assert!(alive_in(directory.path()).is_empty());

    // `$PPID` is the reaper, and its parent the supervisor.
    let bench = Bench::shell("echo $PPID; exec sleep 1000");
    let first = bench.start().await;
    let (mut output, _) = first.stdout();
    let reaper = String::from_utf8(soon(output.next()).await.unwrap().to_vec()).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", reaper.trim())).unwrap();
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .unwrap();
    kill9(parent.trim().parse().unwrap());
    let second = bench.start().await;
    assert_eq!(bench.alive().len(), 2);
    drop((first, second));
    soon(bench.processes.reaped()).await;
    assert!(bench.alive().is_empty());
}
