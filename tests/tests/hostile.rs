//! Hostile guests in the real host: a typed error in time, and nobody else is disturbed.
//!
//! One host serves them all, beside a well-behaved guest whose turn streams all the while. How
//! long its client waits for the next delta is measured: that is what "undisturbed" means. The
//! tests take turns, so that none measures another.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_test_guests as guests;
use harness_tests::{Answer, Conversation, Host, Setup};
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Memory limit of a guest.
const MEMORY: u64 = 64 * MIB;
/// Deadline of every call.
const DEADLINE: Duration = Duration::from_millis(1500);
/// CPU slice.
const SLICE: Duration = Duration::from_millis(500);
/// Drain bound.
const DRAIN: Duration = Duration::from_millis(500);
/// What the host may take on top (W2).
const MARGIN: Duration = Duration::from_millis(250);
/// Pause between two deltas of the stream that must not be disturbed.
const PACE: Duration = Duration::from_millis(20);
/// Longest wait for a delta that still counts as undisturbed: no guest's slice, drain or deadline
/// fits into it.
const UNDISTURBED: Duration = Duration::from_millis(450);

/// One test at a time: they measure time.
static MACHINE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn configuration() -> String {
    let mut text = format!(
        "[limits]\nmemory = \"64MiB\"\ncpu_slice = \"{0}ms\"\ndrain = \"{1}ms\"\ncpu_burst = \"30s\"\n\
         describe_deadline = \"{2}ms\"\ndiscover_deadline = \"{2}ms\"\nprepare_deadline = \"{2}ms\"\ninvoke_deadline = \"{2}ms\"\n\
         failures = 1000\nbackoff = \"10ms\"\nbackoff_max = \"10ms\"\n",
        SLICE.as_millis(),
        DRAIN.as_millis(),
        DEADLINE.as_millis(),
    );
    for component in [
        guests::PROBE,
        guests::SPIN_IN_CALL,
        guests::MEMORY_BOMB,
        guests::HANDLE_BOMB,
        guests::TRAP_GET_COMMAND_STATE,
        guests::TRAP_PREPARE,
        guests::TRAP_INVOKE,
        guests::TRAP_START_PROMPT,
        guests::TRAP_DONE,
        guests::ABORT_DEAF,
        guests::ANNOUNCE_FLOOD,
        guests::IGNORES_STOPPED,
        guests::ACTIVITY_IGNORES_ABORT,
        guests::OVERSIZE_DISCOVERY,
        guests::OVERSIZE_MESSAGE,
        guests::CONTROL_RETURNS_STARTED,
        guests::CANCELLED_WITHOUT_ABORT,
        guests::LOG_FLOOD,
        guests::PENDING_FLOOD,
    ] {
        writeln!(text, "[[provider]]\ncomponent = {component:?}").unwrap();
    }
    text
}

/// A stream that goes on, and the longest wait for its next delta.
struct Undisturbed {
    worst: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<u64>,
    session: Conversation,
}

impl Undisturbed {
    async fn begin(host: &Host) -> Self {
        let text = format!("probe:turn stream 100000 {} tick", PACE.as_millis());
        let session = host.client().prompted("guest/probe", &text).await;
        let mut events = session.events(Some(0)).await;
        events.until(|frame| frame.event == "TokenDelta").await;
        let (worst, over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (seen, end) = (worst.clone(), over.clone());
        let task = tokio::spawn(async move {
            let (mut last, mut deltas) = (Instant::now(), 0);
            while !end.load(Ordering::Acquire) {
                let frame = events.next().await.expect("the stream goes on");
                assert!(!frame.event.starts_with("TurnFailed"), "{frame:?}");
                if frame.event == "TokenDelta" {
                    deltas += 1;
                    let waited = last.elapsed().as_millis();
                    seen.fetch_max(u64::try_from(waited).unwrap(), Ordering::AcqRel);
                    last = Instant::now();
                }
            }
            deltas
        });
        Self {
            worst,
            over,
            task,
            session,
        }
    }

    /// Longest wait since this was asked last.
    fn worst(&self) -> Duration {
        Duration::from_millis(self.worst.swap(0, Ordering::AcqRel))
    }

    async fn end(self) -> u64 {
        self.over.store(true, Ordering::Release);
        let deltas = self.task.await.expect("the stream was undisturbed");
        assert!(self.session.interrupt().await);
        deltas
    }
}

/// Highest resident memory while a future runs.
async fn peak<T>(host: &Host, work: impl Future<Output = T>) -> (T, u64) {
    let mut highest = host.resident();
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (done, highest.max(host.resident())),
            () = tokio::time::sleep(Duration::from_millis(10)) => highest = highest.max(host.resident()),
        }
    }
}

/// Repeats while the provider backs off from its last failure.
async fn retried<F: Future<Output = Answer>>(call: impl Fn() -> F) -> (Answer, Duration) {
    loop {
        let begun = Instant::now();
        let answer = call().await;
        if answer.body["code"] != "provider_unavailable" {
            return (answer, begun.elapsed());
        }
        assert_eq!(answer.body["retryable"], true);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a guest's misdeed has to come to.
enum Expected {
    /// A problem before anything was reserved.
    Problem(u16, &'static str),
    /// 200 with `uncertain` and this code.
    Uncertain(&'static str),
    /// 502 that carries an `uncertain` result.
    Violation,
    /// 200 with `completed`.
    Completed,
}

impl Expected {
    fn check(&self, what: &str, answer: &Answer) {
        let body = &answer.body;
        let seen = (
            answer.status,
            body["status"].as_str(),
            body["code"].as_str(),
        );
        match self {
            Self::Problem(status, code) => {
                assert_eq!(
                    (answer.status, body["code"].as_str()),
                    (*status, Some(*code)),
                    "{what}: {body}"
                );
            }
            Self::Uncertain(code) => {
                assert_eq!(
                    seen,
                    (200, Some("uncertain"), Some(*code)),
                    "{what}: {body}"
                );
            }
            Self::Violation => {
                assert_eq!(
                    (answer.status, body["code"].as_str()),
                    (502, Some("provider_contract_violation")),
                    "{what}: {body}"
                );
                assert_eq!(
                    body["operation_result"]["status"], "uncertain",
                    "{what}: {body}"
                );
            }
            Self::Completed => assert_eq!(seen, (200, Some("completed"), None), "{what}: {body}"),
        }
    }
}

/// W1-W5: a hostile operation ends in its typed error in time, while another session streams.
#[tokio::test(flavor = "multi_thread")]
async fn w2_hostile_operations_end_in_time_and_disturb_nobody() {
    let _machine = MACHINE.lock().await;
    let host = Setup::configured(&configuration()).start();
    let stream = Undisturbed::begin(&host).await;
    let client = host.client();
    let (slice, deadline) = (SLICE, DEADLINE + DRAIN);
    let table = [
        (
            "spin-in-call",
            "/go",
            slice,
            Expected::Uncertain("provider_timeout"),
        ),
        (
            "spin-in-call",
            "/go prepare",
            slice,
            Expected::Problem(504, "provider_timeout"),
        ),
        (
            "memory-bomb",
            "/go",
            deadline,
            Expected::Uncertain("provider_trap"),
        ),
        ("handle-bomb", "/go", deadline, Expected::Violation),
        (
            "trap-prepare",
            "/go",
            deadline,
            Expected::Problem(502, "provider_trap"),
        ),
        (
            "trap-invoke",
            "/go",
            deadline,
            Expected::Uncertain("provider_trap"),
        ),
        (
            "abort-deaf",
            "/go",
            deadline,
            Expected::Uncertain("provider_timeout"),
        ),
        (
            "oversize-message",
            "/go 70000",
            deadline,
            Expected::Violation,
        ),
        (
            "control-returns-started",
            "/go",
            deadline,
            Expected::Violation,
        ),
        (
            "cancelled-without-abort",
            "/go",
            deadline,
            Expected::Violation,
        ),
        (
            "cancelled-without-abort",
            "/go prepare",
            deadline,
            Expected::Problem(502, "provider_contract_violation"),
        ),
        (
            "activity-ignores-abort",
            "/go",
            deadline,
            Expected::Completed,
        ),
    ];
    for (guest, text, bound, expected) in &table {
        let what = format!("{guest} {text}");
        let session = client.commanded(&format!("guest/{guest}"), text).await;
        let before = host.resident();
        // The bound is the required one, to the millisecond. A machine that is busy with others may
        // delay anything, so the best of three attempts counts.
        let mut attempt = 0;
        loop {
            attempt += 1;
            stream.worst();
            let ((answer, took), highest) = peak(&host, retried(|| session.command(text))).await;
            let wait = stream.worst();
            let grown = highest.saturating_sub(before);
            println!(
                "{what}: {took:?}, longest wait of the stream {wait:?}, memory +{} MiB",
                grown / MIB
            );
            expected.check(&what, &answer);
            assert!(
                grown < 2 * MEMORY,
                "{what}: memory grew by {} MiB",
                grown / MIB
            );
            if took <= *bound + MARGIN && wait <= UNDISTURBED {
                break;
            }
            assert!(
                attempt < 3,
                "{what}: {took:?}, bound {bound:?}; the stream stood still for {wait:?}"
            );
        }
        if *guest == "activity-ignores-abort" {
            // N13: an activity that ignores its abort costs its instance, within the drain bound.
            let begun = Instant::now();
            assert!(session.interrupt().await);
            assert!(begun.elapsed() <= DRAIN + MARGIN, "{:?}", begun.elapsed());
            session
                .until("its activity is gone", |row| {
                    row["activities"] == serde_json::json!([])
                })
                .await;
        }
    }
    assert!(stream.end().await > 50, "the stream streamed");
}

/// W3, W1: hostile discovery.
#[tokio::test(flavor = "multi_thread")]
async fn w3_hostile_discovery_is_refused_whole() {
    let _machine = MACHINE.lock().await;
    let host = Setup::configured(&configuration()).start();
    let client = host.client();
    for (guest, code) in [
        ("oversize-discovery", "provider_contract_violation"),
        ("trap-get-command-state", "provider_trap"),
    ] {
        let body = serde_json::json!({"project_id": "default", "agent": format!("guest/{guest}")});
        let (answer, took) =
            retried(|| client.post("/v1/sessions/harness-command-state", body.clone())).await;
        answer.problem(502, code);
        assert!(took <= DEADLINE + DRAIN + MARGIN, "{took:?}");
    }
}

/// W1, W2: a hostile turn ends `failed` with its code, and the session takes the next prompt.
#[tokio::test(flavor = "multi_thread")]
async fn w1_hostile_turns_fail_and_the_session_goes_on() {
    let _machine = MACHINE.lock().await;
    let host = Setup::configured(&configuration()).start();
    let stream = Undisturbed::begin(&host).await;
    let client = host.client();
    for (guest, code) in [
        ("trap-start-prompt", "provider_trap"),
        ("trap-done", "provider_trap"),
        ("spin-in-call", "provider_timeout"),
        ("memory-bomb", "provider_trap"),
    ] {
        let before = host.resident();
        let work = async {
            let session = client.prompted(&format!("guest/{guest}"), "go").await;
            let row = session.until_idle().await;
            (session, row)
        };
        let ((session, row), highest) = peak(&host, work).await;
        assert_eq!(
            (&row["status"], &row["error"]["code"]),
            (&"failed".into(), &code.into()),
            "{guest}: {row}"
        );
        assert!(highest.saturating_sub(before) < 2 * MEMORY, "{guest}");
        let again = session.prompt("again").await;
        assert_eq!(
            session.turn_end(&again).await["type"],
            "TurnFailed",
            "{guest} takes the next prompt"
        );
    }
    // Floods end by themselves, and what they flood is bounded.
    for (guest, words) in [("log-flood", "flooded"), ("pending-flood", "refused")] {
        let before = host.resident();
        let work = async {
            let session = client.prompted(&format!("guest/{guest}"), "go").await;
            session.until_idle().await;
            session
        };
        let (session, highest) = peak(&host, work).await;
        let said = session.said().await;
        assert!(
            said.iter().any(|said| said.contains(words)),
            "{guest}: {said:?} {}",
            session.row().await
        );
        assert!(highest.saturating_sub(before) < 2 * MEMORY, "{guest}");
    }
    // An abort that is ignored costs the instance within the drain bound (W5).
    let deaf = client.prompted("guest/abort-deaf", "go").await;
    deaf.until("bound", |row| row["agent_session_id"] == "deaf-native")
        .await;
    stream.worst();
    let begun = Instant::now();
    assert!(deaf.interrupt().await);
    let row = deaf.until_idle().await;
    let took = begun.elapsed();
    assert!(took <= DRAIN + MARGIN, "{took:?}");
    assert_eq!(
        (&row["status"], &row["agent_session_id"]),
        (&"cancelled".into(), &"deaf-native".into())
    );
    assert!(stream.end().await > 50, "the stream streamed");
}

/// W9, N11, N12: floods of announcements are paced, bounded, and stopped by Stop.
#[tokio::test(flavor = "multi_thread")]
async fn w9_floods_of_announcements_are_paced_and_stopped() {
    let _machine = MACHINE.lock().await;
    let host = Setup::configured(&format!(
        "[sessions]\nnative_turns_per_minute = 60\n{}",
        configuration()
    ))
    .start();
    let stream = Undisturbed::begin(&host).await;
    let client = host.client();
    let before = host.resident();
    let turns = |events: &[Value]| {
        let native = events
            .iter()
            .filter(|e| e["type"] == "TurnStarted" && e["native"].is_object());
        native.count()
    };
    for guest in ["announce-flood", "ignores-stopped"] {
        let session = client.commanded(&format!("guest/{guest}"), "/go").await;
        let mut events = session.events(Some(0)).await;
        let first = events.until(|frame| frame.event == "TurnStarted").await;
        assert!(first.data["native"].is_object(), "{first:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let ran = turns(&session.journal().await);
        assert!(
            ran <= 64,
            "{guest}: {ran} native turns in two seconds, 60 a minute are allowed"
        );
        // Between two announcements there may be nothing to stop; one that stops disarms.
        let begun = loop {
            let begun = Instant::now();
            if session.interrupt().await {
                break begun;
            }
            assert!(
                turns(&session.journal().await) <= 64,
                "{guest}: nothing to stop"
            );
        };
        assert!(
            begun.elapsed() <= DRAIN + MARGIN,
            "{guest}: Stop took {:?}",
            begun.elapsed()
        );
        session.until_idle().await;
        let stopped = turns(&session.journal().await);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(
            turns(&session.journal().await),
            stopped,
            "{guest}: no turn for 3 s"
        );
    }
    let wait = stream.worst();
    assert!(wait <= UNDISTURBED, "the stream stood still for {wait:?}");
    assert!(host.resident().saturating_sub(before) < 2 * MEMORY);
    assert!(stream.end().await > 50, "the stream streamed");
}

/// W1: what one session's instance did is no refusal for the others: their prompts wait out the
/// restart.
#[tokio::test(flavor = "multi_thread")]
async fn w1_an_innocent_session_waits_out_the_restart() {
    let _machine = MACHINE.lock().await;
    let host = Setup::plain().start();
    let client = host.client();
    let innocent = client.prompted("demo/planner", "hello").await;
    innocent.until_idle().await;
    for _ in 0..2 {
        let culprit = client.prompted("demo/planner", "demo:trap").await;
        let row = culprit.until_idle().await;
        assert_eq!(row["error"]["code"], "provider_trap", "{row}");
    }
    // Both need a fresh instance: the second failure makes the provider wait 250 to 500 ms.
    let fresh = client.prompted("demo/planner", "hello").await;
    let row = fresh.until_idle().await;
    assert_eq!(row["status"], "completed", "{row}");
    let again = innocent.prompt("again").await;
    assert_eq!(innocent.turn_end(&again).await["type"], "TurnDone");
}
