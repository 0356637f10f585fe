//! Every hostile guest against the engine: its typed error, in time, with a bounded host.
//!
//! A guest without a test of its name does not compile. What only a session or the HTTP plane can
//! judge (a control that answers `started`, announcements after a Stop) is judged there; here the
//! engine must survive it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a failed test

mod support;

use harness_core::abort::AbortReason;
use harness_core::admin::ProviderAdmin;
use harness_core::provider::{CallError, Instance, Invocation, ProgramEnd};
use harness_engine::{
    ComponentSource, DelegationGrant, LoadError, ProcessCwd, ProcessGrant, ProviderSpec, Secret,
};
use harness_test_guests::{assert_test_exists, foreach_hostile_guest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::*;

foreach_hostile_guest!(assert_test_exists);

/// The guest of that name, with settings and the tests' limits.
fn guest(name: &str, config: &[(&str, &str)]) -> ProviderSpec {
    let path = harness_test_guests::GUESTS
        .iter()
        .find(|(guest, _)| *guest == name)
        .unwrap()
        .1;
    let mut spec = ProviderSpec::new(ComponentSource::File(path.into()));
    spec.config = config
        .iter()
        .map(|&(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    spec.limits = limits();
    spec
}

async fn bench(name: &str) -> Bench {
    Bench::with(guest(name, &[])).await
}

async fn refused(spec: ProviderSpec) -> LoadError {
    let _machine = shared();
    let registry = harness_engine::Registry::new(shared_engine(), Arc::new(MemoryState::default()));
    let most = limits().describe_deadline + Duration::from_secs(20);
    let loaded = tokio::time::timeout(most, registry.load(spec));
    loaded.await.expect("an answer in time").unwrap_err()
}

/// Prepares and invokes the control `text`.
async fn go(
    instance: &dyn Instance,
    channel: &Arc<TestChannel>,
    text: &str,
) -> Result<Invocation, CallError> {
    let prepared = prepare(instance, text).await?;
    instance
        .invoke(prepared, command_id(), channel.clone())
        .await
}

fn slice() -> Duration {
    limits().cpu_slice + Duration::from_millis(250)
}

fn grace() -> Duration {
    limits().drain + Duration::from_millis(250)
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn spin_in_call() {
    let _alone = alone();
    let bench = bench("spin_in_call").await;
    let channel = TestChannel::new();
    for text in ["/go", "/go prepare"] {
        let instance = bench.open().await;
        let failed = error(within(slice(), go(&*instance, &channel, text)).await);
        assert!(
            matches!(failed, CallError::Timeout(_)),
            "{text}: {failed:?}"
        );
        assert!(!instance.is_live());
    }
    let instance = bench.open().await;
    let failed = error(within(slice(), turn(&*instance, &channel, "x")).await);
    assert!(matches!(failed, CallError::Timeout(_)), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn spin_at_instantiation() {
    let failed = refused(guest("spin_at_instantiation", &[])).await;
    assert!(
        matches!(&failed, LoadError::Describe(text) if text.contains("without yielding")),
        "{failed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn spin_zero_sleeps() {
    let _alone = alone();
    let mut spec = guest("spin_zero_sleeps", &[]);
    spec.limits.cpu_burst = Duration::from_millis(300);
    spec.limits.inactivity = Duration::from_secs(60);
    let bench = Bench::with(spec).await;
    let instance = bench.open().await;
    let failed = error(
        within(
            Duration::from_secs(3),
            turn(&*instance, &TestChannel::new(), "x"),
        )
        .await,
    );
    assert!(
        matches!(&failed, CallError::Timeout(text) if text.contains("processor time")),
        "{failed:?}"
    );
    assert!(!instance.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_bomb() {
    let bench = bench("memory_bomb").await;
    let instance = bench.open().await;
    let before = resident();
    let failed = error(go(&*instance, &TestChannel::new(), "/go").await);
    let grown = resident().saturating_sub(before);
    assert!(matches!(failed, CallError::Trap(_)), "{failed:?}");
    assert!(
        grown < 2 * limits().memory,
        "the host grew by {grown} bytes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn table_bomb() {
    let before = resident();
    let failed = refused(guest("table_bomb", &[])).await;
    let grown = resident().saturating_sub(before);
    assert!(matches!(failed, LoadError::Describe(_)), "{failed:?}");
    assert!(
        grown < 2 * limits().memory,
        "the host grew by {grown} bytes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn handle_bomb() {
    let bench = bench("handle_bomb").await;
    let channel = TestChannel::new();
    let before = resident();
    let instance = bench.open().await;
    let failed = error(go(&*instance, &channel, "/go").await);
    assert!(matches!(failed, CallError::Violation(_)), "{failed:?}");
    let instance = bench.open().await;
    let failed = error(turn(&*instance, &channel, "x").await);
    assert!(matches!(failed, CallError::Violation(_)), "{failed:?}");
    let grown = resident().saturating_sub(before);
    assert!(
        grown < 2 * limits().memory,
        "the host grew by {grown} bytes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn log_flood() {
    let mut spec = guest("log_flood", &[]);
    spec.limits.inactivity = Duration::from_secs(60);
    let bench = Bench::with(spec).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    let ended = turn(&*instance, &channel, "x").await;
    assert!(ended.is_ok(), "{}", error(ended));
    assert_eq!(channel.text(), "flooded");
    let lines = bench.registry.logs(&bench.id, usize::MAX).unwrap();
    let bytes: usize = lines.iter().map(|line| line.text.len()).sum();
    assert!(bytes < 1024 * 1024, "{bytes} bytes of log were kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversize_discovery() {
    for case in [
        "total",
        "commands",
        "modes",
        "actions",
        "reserved",
        "name",
        "text",
        "description",
        "empty",
        "twice",
    ] {
        let bench = Bench::with(guest("oversize_discovery", &[("case", case)])).await;
        let instance = bench.open().await;
        let failed = error(discover(&*instance, "").await);
        assert!(
            matches!(failed, CallError::Violation(_)),
            "{case}: {failed:?}"
        );
        assert!(instance.is_live(), "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oversize_message() {
    let bench = bench("oversize_message").await;
    let instance = bench.open().await;
    for (prompt, said) in [
        ("262144", "accepted"),
        ("262145", "limit"),
        ("parts 4", "accepted"),
        ("parts 5", "limit"),
    ] {
        let channel = TestChannel::new();
        let ended = turn(&*instance, &channel, prompt).await;
        assert!(ended.is_ok(), "{prompt}: {}", error(ended));
        assert_eq!(
            channel.written.lock().unwrap().last().unwrap(),
            said,
            "{prompt}"
        );
    }
    let channel = TestChannel::new();
    assert_eq!(
        reply(go(&*instance, &channel, "/go 65536").await).len(),
        65536
    );
    assert!(matches!(
        error(go(&*instance, &channel, "/go 65537").await),
        CallError::Violation(_)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_describe() {
    assert!(matches!(
        refused(guest("trap_describe", &[])).await,
        LoadError::Describe(_)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_run() {
    let _alone = alone();
    let bench = bench("trap_run").await;
    let instance = bench.open().await;
    let end = within(Duration::from_secs(1), instance.ended()).await;
    assert!(!end.clean && !end.disconnected, "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_detect() {
    let bench = bench("trap_detect").await;
    let report = bench.registry.report(&bench.id).unwrap();
    assert_eq!(report.restarts, 1);
    assert!(bench.try_open().await.is_ok());
}

/// Opens an instance, runs `call`, and expects a trap that costs the instance.
async fn traps<T>(
    name: &str,
    call: impl AsyncFnOnce(&dyn Instance, &Arc<TestChannel>) -> Result<T, CallError>,
) {
    let bench = bench(name).await;
    let instance = bench.open().await;
    let failed = error(call(&*instance, &TestChannel::new()).await);
    assert!(matches!(failed, CallError::Trap(_)), "{failed:?}");
    assert!(!instance.is_live());
    assert!(
        bench.try_open().await.is_ok(),
        "the next call gets a fresh instance"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_get_command_state() {
    traps("trap_get_command_state", async |instance, _| {
        discover(instance, "").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_prepare() {
    traps("trap_prepare", async |instance, _| {
        prepare(instance, "/go").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_execution() {
    traps("trap_execution", async |instance, _| {
        prepare(instance, "/go").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_discard() {
    let _alone = alone();
    let bench = bench("trap_discard").await;
    let instance = bench.open().await;
    instance.discard(prepare(&*instance, "/go").await.unwrap());
    assert!(!within(Duration::from_secs(1), instance.ended()).await.clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_invoke() {
    traps("trap_invoke", async |instance, channel| {
        go(instance, channel, "/go").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_start_prompt() {
    traps("trap_start_prompt", async |instance, channel| {
        start(instance, channel, "x").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_done() {
    traps("trap_done", async |instance, channel| {
        turn(instance, channel, "x").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_compact() {
    traps("trap_compact", async |instance, channel| {
        instance.compact(command_id(), channel.clone()).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_adopt_turn() {
    let bench = bench("trap_adopt_turn").await;
    let instance = bench.open().await;
    until("it announced", || {
        !bench.host.announced.lock().unwrap().is_empty()
    })
    .await;
    let failed = error(
        instance
            .adopt_turn("native-1".into(), command_id(), TestChannel::new())
            .await,
    );
    assert!(matches!(failed, CallError::Trap(_)), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn abort_deaf() {
    let _alone = alone();
    let bench = bench("abort_deaf").await;
    for what in ["/go", "prompt"] {
        let (instance, channel) = (bench.open().await, TestChannel::new());
        let call = async {
            match what {
                "/go" => error(go(&*instance, &channel, "/go").await),
                _ => error(turn(&*instance, &channel, "x").await),
            }
        };
        let stop = async {
            until("it is entered", || {
                channel.entered.load(Ordering::SeqCst) == 1
            })
            .await;
            channel.abort.abort(AbortReason::UserStop);
        };
        let (failed, ()) = within(grace(), async { tokio::join!(call, stop) }).await;
        assert_eq!(
            failed,
            CallError::Terminated(AbortReason::UserStop),
            "{what}"
        );
        assert!(!instance.is_live());
    }
    let bench = Bench::with(guest("abort_deaf", &[("deaf", "discover")])).await;
    let instance = bench.open().await;
    let failed = within(
        limits().discover_deadline + grace(),
        discover(&*instance, ""),
    )
    .await;
    assert!(matches!(error(failed), CallError::Timeout(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn control_returns_started() {
    let bench = bench("control_returns_started").await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    let Invocation::Started(started) = go(&*instance, &channel, "/go").await.unwrap() else {
        panic!("it completed")
    };
    // What the session does with it (R26): it does not want the turn.
    drop(started);
    let told = || {
        let lines = bench.registry.logs(&bench.id, 100).unwrap();
        lines
            .iter()
            .any(|line| line.text.contains("the leaked turn was aborted"))
    };
    until("the leaked turn was aborted", told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_without_abort() {
    let bench = Bench::with(guest("cancelled_without_abort", &[("case", "discover")])).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    for text in ["/go", "/go prepare"] {
        assert!(
            matches!(
                error(go(&*instance, &channel, text).await),
                CallError::Violation(_)
            ),
            "{text}"
        );
    }
    assert!(matches!(
        error(discover(&*instance, "").await),
        CallError::Violation(_)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn announce_flood() {
    let _alone = alone();
    let bench = bench("announce_flood").await;
    *bench.host.hold.lock().unwrap() = Some(Arc::default());
    let before = resident();
    let instance = bench.open().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.host.concurrent.load(Ordering::SeqCst), 1);
    assert!(
        bench.host.announced.lock().unwrap().len() <= 1,
        "the session decides them one by one"
    );
    let grown = resident().saturating_sub(before);
    assert!(
        grown < 2 * limits().memory,
        "the host grew by {grown} bytes"
    );
    within(grace(), instance.dispose(AbortReason::Shutdown)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ignores_stopped() {
    let _alone = alone();
    let bench = bench("ignores_stopped").await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    go(&*instance, &channel, "/go").await.map(drop).unwrap();
    until("it announces", || {
        bench.host.announced.lock().unwrap().len() > 2
    })
    .await;
    let id = bench.host.announced.lock().unwrap().last().unwrap().clone();
    let started = instance
        .adopt_turn(id, command_id(), channel.clone())
        .await
        .unwrap();
    channel.abort.abort(AbortReason::UserStop);
    let failed = error(within(grace(), instance.done(started)).await);
    assert_eq!(failed, CallError::Terminated(AbortReason::UserStop));
}

#[tokio::test(flavor = "multi_thread")]
async fn activity_ignores_abort() {
    let _alone = alone();
    let bench = bench("activity_ignores_abort").await;
    let instance = bench.open().await;
    go(&*instance, &TestChannel::new(), "/go")
        .await
        .map(drop)
        .unwrap();
    until("the activity is open", || {
        bench.host.activities.load(Ordering::SeqCst) == 1
    })
    .await;
    bench.host.activity_abort.abort(AbortReason::UserStop);
    assert!(!within(grace(), instance.ended()).await.clean);
    assert_eq!(bench.host.activities.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn activity_flood() {
    let bench = bench("activity_flood").await;
    let instance = bench.open().await;
    let text = reply(go(&*instance, &TestChannel::new(), "/go").await);
    assert!(text.starts_with("8 ") && text.contains("Limit"), "{text}");
}

/// The bomb, allowed to start delegates on its own harness.
async fn bomb() -> Bench {
    let mut spec = guest("delegate_bomb", &[]);
    spec.grants.delegation = Some(DelegationGrant::default());
    Bench::with(spec).await
}

#[tokio::test(flavor = "multi_thread")]
async fn delegate_bomb() {
    let bench = bomb().await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let text = reply(go(&*instance, &channel, "/go").await);
    assert!(text.starts_with("64 ") && text.contains("Quota"), "{text}");
    let asked = channel.delegation.asked.lock().unwrap();
    assert_eq!(
        asked[0], "start guest/delegate-bomb true",
        "its own harness"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_every_delegation_call_reaches_the_session() {
    let bench = bomb().await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let text = reply(go(&*instance, &channel, "/go each").await);
    assert_eq!(
        text,
        "None CancelledAt::Queued true 1 Err(DelegationError::NotParent)"
    );
    let asked = channel.delegation.asked.lock().unwrap().clone();
    let verbs: Vec<_> = asked.iter().map(|a| a.split(' ').next().unwrap()).collect();
    assert_eq!(verbs, ["start", "send", "await", "cancel", "stop"]);
    assert!(asked[2].ends_with("50ms"), "{}", asked[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_another_harness_takes_a_grant_that_names_it() {
    let bench = bomb().await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let text = reply(go(&*instance, &channel, "/go other").await);
    assert!(
        text.contains("Denied") && text.contains("some/other"),
        "{text}"
    );
    assert!(channel.delegation.asked.lock().unwrap().is_empty());
    let mut spec = guest("delegate_bomb", &[]);
    let harnesses = Some(vec!["some/other".parse().unwrap()]);
    spec.grants.delegation = Some(DelegationGrant { harnesses });
    let bench = Bench::with(spec).await;
    let instance = bench.open().await;
    let text = reply(go(&*instance, &channel, "/go other").await);
    assert_eq!(text, "started");
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_without_the_grant_it_cannot_be_loaded() {
    assert_eq!(
        refused(guest("delegate_bomb", &[])).await,
        LoadError::NotGranted {
            interface: "delegation".into()
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r75_the_clock_stands_still_while_a_delegate_works() {
    let bench = bomb().await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let settle = channel.delegation.clone();
    let late = limits().invoke_deadline * 2;
    tokio::spawn(async move {
        tokio::time::sleep(late).await;
        settle.settle.notify_one();
    });
    let text = reply(go(&*instance, &channel, "/go wait").await);
    assert!(text.contains("half") && text.contains("Failed"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_an_abort_ends_the_wait_for_a_delegate() {
    let _alone = alone();
    let bench = bomb().await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let (abort, delegation) = (channel.abort.clone(), channel.delegation.clone());
    tokio::spawn(async move {
        until("it waits", || delegation.asked.lock().unwrap().len() == 2).await;
        abort.abort(AbortReason::UserStop);
    });
    let text = within(grace(), go(&*instance, &channel, "/go wait")).await;
    let text = reply(text);
    assert!(text.contains("Stopped"), "{text}");
}

/// The guest with a program that writes without end and may run in the background, and one that
/// may not.
fn background_guest() -> ProviderSpec {
    let mut spec = guest("background_flood", &[]);
    for (name, background) in [("flood", true), ("foreground", false)] {
        let grant = ProcessGrant {
            background,
            command: ["sh", "-c", "yes & yes >&2"].map(str::to_owned).to_vec(),
            env: [("PATH".to_owned(), Secret::new("/usr/bin:/bin"))].into(),
            cwd: ProcessCwd::Path("/".into()),
        };
        spec.grants.process.insert(name.to_owned(), grant);
    }
    spec.limits.background_output = 64 * 1024;
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn background_flood() {
    let _alone = alone();
    // `foreground` is of no use to a guest that does not import `process`.
    let failed = refused(background_guest()).await;
    let unused = LoadError::UnusedGrant {
        interface: "process".into(),
    };
    assert_eq!(failed, unused);
    let mut spec = background_guest();
    spec.grants.process.remove("foreground");
    let mut none = background_guest();
    none.grants.process.clear();
    let bench = Bench::with(spec).await;
    let failed = refused(none).await;
    let missing = LoadError::NotGranted {
        interface: "background".into(),
    };
    assert_eq!(failed, missing);
    assert!(failed.to_string().contains("background = true"), "{failed}");

    let instance = bench.open().await;
    let says = async |text: &str| {
        let channel = TestChannel::new();
        reply(go(&*instance, &channel, &format!("/go {text}")).await)
    };
    let text = says("start").await;
    assert!(text.starts_with("4 ") && text.contains("Limit"), "{text}");
    assert!(says("ungranted").await.contains("Denied"));
    assert!(says("foreground").await.contains("Denied"));
    assert!(says("stdin").await.contains("Limit"));
    assert!(says("handle").await.contains("NotFound"));
    assert_eq!(says("pending").await, "refused 936");
    let written = || {
        let running = bench.host.background.running.lock().unwrap();
        running
            .iter()
            .map(|process| process.written())
            .min()
            .unwrap()
    };
    until("each has written more than is kept", || written() > 1 << 20).await;
    let kept = says("read").await;
    let numbers: Vec<u64> = kept
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [kept, end, from] = numbers.as_slice() else {
        panic!("{kept}");
    };
    assert!(
        *kept <= 128 * 1024 && *from > 0,
        "{kept} of {end} from {from}"
    );

    // They outlive the instance, and end with the provider.
    let instance = bench.open().await;
    drop(instance.dispose(AbortReason::Idle).await);
    let (before, running) = (
        written(),
        bench.host.background.running.lock().unwrap().clone(),
    );
    until("they go on", || written() > before).await;
    bench.registry.remove(&bench.id).await.unwrap();
    for process in running {
        let end = within(Duration::from_secs(20), process.ended()).await;
        assert_eq!(end, ProgramEnd::Stopped);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_flood() {
    let bench = bench("pending_flood").await;
    let (instance, channel) = (bench.open().await, TestChannel::gated(Gate::Wait));
    let ended = turn(&*instance, &channel, "x").await;
    assert!(ended.is_ok(), "{}", error(ended));
    assert_eq!(channel.text(), "refused 936");
    assert_eq!(channel.open_gates.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_import() {
    let failed = refused(guest("ungranted_import", &[])).await;
    assert_eq!(
        failed,
        LoadError::NotGranted {
            interface: "process".into()
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_contract_version() {
    let failed = refused(guest("wrong_contract_version", &[])).await;
    assert_eq!(
        failed,
        LoadError::ContractVersion {
            wanted: "9.9.9".into()
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn core_module() {
    assert_eq!(
        refused(guest("core_module", &[])).await,
        LoadError::CoreModule
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated() {
    assert!(matches!(
        refused(guest("truncated", &[])).await,
        LoadError::Truncated { .. }
    ));
}
