//! Background programs as a session keeps them: real processes under a real supervisor.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic in a helper is a failed test"
)]
#![cfg(target_os = "linux")]

use harness_core::provider::{IoError, OutputStream, Process, ProgramEnd};
use harness_engine::native::process::{Backgrounds, Supervisor};
use harness_engine::{ProcessCwd, ProcessGrant, Secret};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of output that are kept.
const KEPT: u64 = 64 * 1024;

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .expect("it never happened")
}

/// One program, `it`, which runs that script; and `front`, which may not run in the background.
fn granted(script: &str) -> Backgrounds {
    let grant = |background| ProcessGrant {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        env: BTreeMap::from([("PATH".to_owned(), Secret::new("/usr/bin:/bin"))]),
        cwd: ProcessCwd::Path("/".into()),
        background,
    };
    let grants = [
        ("it".to_owned(), grant(true)),
        ("front".to_owned(), grant(false)),
    ];
    let supervisor = Supervisor::binary(env!("CARGO_BIN_EXE_native-host"));
    Backgrounds::new(supervisor, Arc::new(grants.into()), KEPT)
}

async fn start(of: &Backgrounds, stdin: &str) -> Arc<dyn Process> {
    let program = of.program("it", None, stdin.as_bytes().to_vec()).unwrap();
    soon(program.start()).await.unwrap()
}

fn text(process: &dyn Process, of: OutputStream) -> String {
    let output = process.read(0, usize::MAX);
    let of_stream = output.chunks.into_iter().filter(|chunk| chunk.stream == of);
    let bytes: Vec<u8> = of_stream.flat_map(|chunk| chunk.data).collect();
    String::from_utf8(bytes).unwrap()
}

/// Waits until the process has written a line, and answers it.
async fn line(process: &dyn Process) -> String {
    soon(async {
        loop {
            let text = text(process, OutputStream::Stdout);
            if let Some((line, _)) = text.split_once('\n') {
                return line.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

async fn is_gone(pid: &str) {
    soon(async {
        while Path::new(&format!("/proc/{pid}/cwd")).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn s97_it_reads_its_input_and_what_it_wrote_is_kept() {
    let of = granted("read name; echo \"hello $name\"; cat >/dev/null; echo oops >&2; exit 3");
    let process = start(&of, "world\n").await;
    assert_eq!(soon(process.ended()).await, ProgramEnd::Exited(3));
    assert_eq!(text(&*process, OutputStream::Stdout), "hello world\n");
    assert_eq!(text(&*process, OutputStream::Stderr), "oops\n");
    assert_eq!(process.written(), 17);
    process.stop();
    assert_eq!(
        soon(process.ended()).await,
        ProgramEnd::Exited(3),
        "it ended by itself"
    );
}

#[tokio::test]
async fn s97_its_end_takes_along_what_it_started() {
    let of = granted("sleep 1000 & echo $!; exit 0");
    let process = start(&of, "").await;
    assert_eq!(soon(process.ended()).await, ProgramEnd::Exited(0));
    is_gone(&line(&*process).await).await;
}

#[tokio::test]
async fn s97_it_is_stopped_with_what_it_started() {
    let of = granted("sleep 1000 & echo $!; wait");
    for how in ["stop", "drop", "close"] {
        let of = of.clone();
        let process = start(&of, "").await;
        let pid = line(&*process).await;
        let ended = process.ended();
        match how {
            "stop" => process.stop(),
            "close" => of.close(),
            _ => drop(process),
        }
        assert_eq!(soon(ended).await, ProgramEnd::Stopped, "{how}");
        is_gone(&pid).await;
    }
    let refused = of.program("it", None, Vec::new()).err();
    assert_eq!(refused, Some(IoError::Closed), "the provider is gone");
}

#[tokio::test]
async fn s97_a_flood_is_held_back_and_its_newest_bytes_are_kept() {
    let of = granted("exec yes");
    let process = start(&of, "").await;
    soon(async {
        while process.written() < 4 << 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let output = process.read(0, usize::MAX);
    let kept: usize = output.chunks.iter().map(|chunk| chunk.data.len()).sum();
    assert!(kept as u64 <= KEPT, "{kept}");
    assert_eq!(output.next - output.from, kept as u64);
    assert!(output.from > 3 << 20);
    let (before, at) = (process.written(), tokio::time::Instant::now());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let rate = (process.written() - before) as f64 / at.elapsed().as_secs_f64();
    assert!(rate < 40e6, "{rate} bytes a second");
    process.stop();
    assert_eq!(soon(process.ended()).await, ProgramEnd::Stopped);
}

#[tokio::test]
async fn s97_what_may_not_run_in_the_background_is_refused() {
    let of = granted("true");
    let refusal = |name: &str, stdin: usize| of.program(name, None, vec![0; stdin]).err();
    assert!(
        matches!(refusal("front", 0), Some(IoError::Denied(why)) if why.contains("background"))
    );
    assert!(matches!(refusal("other", 0), Some(IoError::Denied(_))));
    assert!(matches!(
        refusal("it", (1 << 20) + 1),
        Some(IoError::Limit(_))
    ));
    assert_eq!(refusal("it", 1 << 20), None);
}

#[tokio::test]
async fn s97_a_program_that_is_not_there_is_not_found() {
    let grant = ProcessGrant {
        command: vec!["/nowhere/at/all".into()],
        env: BTreeMap::new(),
        cwd: ProcessCwd::Path("/".into()),
        background: true,
    };
    let grants = Arc::new(BTreeMap::from([("it".to_owned(), grant)]));
    let supervisor = Supervisor::binary(env!("CARGO_BIN_EXE_native-host"));
    let of = Backgrounds::new(supervisor, grants, KEPT);
    let program = of.program("it", None, Vec::new()).unwrap();
    let started = soon(program.start()).await;
    assert!(matches!(started, Err(IoError::NotFound(_))));
}
