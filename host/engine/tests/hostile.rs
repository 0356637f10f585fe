//! Components that misbehave: each ends in its typed error, in time, and hurts nobody else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a failed test

mod support;

use harness_core::abort::AbortReason;
use harness_core::ids::HarnessId;
use harness_core::provider::{BoxFuture, CallError, Harnesses, Instance};
use harness_core::state_store::{StateError, StateScope, StateStore};
use harness_engine::LoadError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::*;

/// Another instance that streams while `work` runs; its longest pause must stay short.
async fn beside_a_stream<T>(bench: &Bench, work: impl Future<Output = T>) -> T {
    let other = bench.open().await;
    let channel = TestChannel::new();
    let stop = Arc::new(AtomicBool::new(false));
    let watch = {
        let (channel, stop) = (channel.clone(), stop.clone());
        tokio::spawn(async move {
            let (mut seen, mut at, mut longest) = (channel.count(), Instant::now(), Duration::ZERO);
            while !stop.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
                if channel.count() != seen {
                    longest = longest.max(at.elapsed());
                    (seen, at) = (channel.count(), Instant::now());
                }
            }
            longest
        })
    };
    let started = start(&*other, &channel, "stream 100000").await.unwrap();
    let run = tokio::spawn(async move { other.done(started).await });
    until("the other instance streams", || channel.count() > 2).await;
    let result = work.await;
    stop.store(true, Ordering::SeqCst);
    let longest = watch.await.unwrap();
    assert!(
        longest < Duration::from_millis(400),
        "the other stream paused for {longest:?}"
    );
    channel.abort.abort(AbortReason::UserStop);
    let _ = run.await;
    result
}

fn is_dead(instance: &dyn Instance) {
    assert!(!instance.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn w2_a_spin_in_any_call_is_cut_at_its_cpu_slice() {
    let _alone = alone();
    let bench = Bench::new(&[("compact", "spin")]).await;
    let slice = limits().cpu_slice;
    for call in [
        "discover",
        "prepare",
        "invoke",
        "start-prompt",
        "done",
        "compact",
        "execution",
        "discard",
    ] {
        let instance = bench.open().await;
        let channel = TestChannel::new();
        let failed = beside_a_stream(
            &bench,
            within(slice + Duration::from_millis(250), async {
                match call {
                    "discover" => error(discover(&*instance, "spin").await),
                    "prepare" => error(prepare(&*instance, "spin").await),
                    "invoke" => error(control(&*instance, &channel, "spin").await),
                    "start-prompt" => error(start(&*instance, &channel, "spin|nothing").await),
                    "done" => error(turn(&*instance, &channel, "spin").await),
                    "compact" => error(instance.compact(command_id(), channel.clone()).await),
                    "execution" => error(prepare(&*instance, "slow-execution").await),
                    _ => {
                        drop(
                            prepare(&*instance, "nothing|spin-in-discard")
                                .await
                                .unwrap(),
                        );
                        let end = instance.ended().await;
                        assert!(!end.clean);
                        CallError::Timeout(String::new())
                    }
                }
            }),
        )
        .await;
        assert!(
            matches!(failed, CallError::Timeout(_)),
            "{call}: {failed:?}"
        );
        is_dead(&*instance);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w1_a_trap_in_any_call_is_typed_and_costs_the_instance() {
    let bench = Bench::new(&[("compact", "trap")]).await;
    for call in [
        "discover",
        "prepare",
        "invoke",
        "start-prompt",
        "done",
        "compact",
        "exit",
    ] {
        let instance = bench.open().await;
        let channel = TestChannel::new();
        let failed = match call {
            "discover" => error(discover(&*instance, "trap").await),
            "prepare" => error(prepare(&*instance, "trap").await),
            "invoke" => error(control(&*instance, &channel, "trap").await),
            "start-prompt" => error(start(&*instance, &channel, "trap|nothing").await),
            "done" => error(turn(&*instance, &channel, "trap").await),
            "compact" => error(instance.compact(command_id(), channel.clone()).await),
            _ => error(control(&*instance, &channel, "exit").await),
        };
        assert!(matches!(failed, CallError::Trap(_)), "{call}: {failed:?}");
        is_dead(&*instance);
        assert!(!instance.ended().await.clean);
        assert!(matches!(
            error(discover(&*instance, "").await),
            CallError::Lost(_)
        ));
        let fresh = bench.open().await;
        assert!(
            discover(&*fresh, "").await.is_ok(),
            "the next call gets a fresh instance"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w1_a_trap_ends_the_other_calls_of_the_instance_too() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let (turn_channel, other) = (TestChannel::gated(Gate::Wait), TestChannel::new());
    let run = turn(&*instance, &turn_channel, "approve");
    let trap = async {
        until("the gate opens", || {
            turn_channel.open_gates.load(Ordering::SeqCst) == 1
        })
        .await;
        error(control(&*instance, &other, "trap").await)
    };
    let (ended, trapped) = tokio::join!(run, trap);
    assert!(matches!(trapped, CallError::Trap(_)) && matches!(error(ended), CallError::Trap(_)));
    instance.ended().await;
    let open = turn_channel.open_gates.load(Ordering::SeqCst);
    assert_eq!(open, 0, "its gate is abandoned");
}

#[tokio::test(flavor = "multi_thread")]
async fn w5_an_abort_deaf_call_is_terminated_after_the_drain_bound() {
    let _alone = alone();
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let run = turn(&*instance, &channel, "deaf");
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        channel.abort.abort(AbortReason::UserStop);
    };
    let most = Duration::from_millis(100) + limits().drain + Duration::from_millis(250);
    let (ended, ()) =
        beside_a_stream(&bench, within(most, async { tokio::join!(run, stop) })).await;
    assert_eq!(error(ended), CallError::Terminated(AbortReason::UserStop));
    is_dead(&*instance);
}

#[tokio::test(flavor = "multi_thread")]
async fn w2_a_call_past_its_deadline_ends_within_deadline_and_drain_bound() {
    let _alone = alone();
    let bench = Bench::new(&[]).await;
    let limits = limits();
    let grace = limits.drain + Duration::from_millis(250);
    for (script, lives) in [("wait", true), ("sleepcancel", true), ("deaf", false)] {
        let (instance, channel) = (bench.open().await, TestChannel::new());
        let failed = within(
            limits.discover_deadline + grace,
            discover(&*instance, script),
        )
        .await;
        assert!(
            matches!(error(failed), CallError::Timeout(_)),
            "discover {script}"
        );
        assert_eq!(instance.is_live(), lives, "discover {script}");

        let instance = bench.open().await;
        let failed = within(limits.prepare_deadline + grace, prepare(&*instance, script)).await;
        assert!(
            matches!(error(failed), CallError::Timeout(_)),
            "prepare {script}"
        );
        assert_eq!(instance.is_live(), lives, "prepare {script}");

        let instance = bench.open().await;
        let failed = within(
            limits.invoke_deadline + grace,
            control(&*instance, &channel, script),
        )
        .await;
        assert!(
            matches!(error(failed), CallError::Timeout(_)),
            "invoke {script}"
        );
        assert_eq!(instance.is_live(), lives, "invoke {script}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spin_over_sleeps_of_no_length_ends_at_its_deadline_or_cpu_rate() {
    let _alone = alone();
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let most = limits().invoke_deadline + limits().drain + Duration::from_millis(250);
    let failed =
        beside_a_stream(&bench, within(most, control(&*instance, &channel, "spin0"))).await;
    assert!(matches!(error(failed), CallError::Timeout(_)));

    let mut spec = spec(&[]);
    spec.limits.cpu_burst = Duration::from_millis(300);
    spec.limits.invoke_deadline = Duration::from_secs(60);
    let bench = Bench::with(spec).await;
    let instance = bench.open().await;
    let failed = within(
        Duration::from_secs(2),
        control(&*instance, &channel, "yieldspin"),
    )
    .await;
    let failed = error(failed);
    assert!(
        matches!(&failed, CallError::Timeout(text) if text.contains("processor time")),
        "{failed:?}"
    );
    is_dead(&*instance);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_sleeps_through_a_synchronous_poll_does_not_hold_its_store_long() {
    let _alone = alone();
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let most = limits().invoke_deadline + limits().drain;
    let failed = within(most, control(&*instance, &channel, "thread-sleep 60000")).await;
    assert!(matches!(error(failed), CallError::Timeout(_)));
    is_dead(&*instance);
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
async fn bombs_are_stopped_at_the_memory_limit() {
    let bench = Bench::new(&[]).await;
    for script in ["bomb", "handles", "own-handles"] {
        let instance = bench.open().await;
        let channel = TestChannel::new();
        let before = resident();
        let prepared = prepare(&*instance, &format!("nothing|{script}"))
            .await
            .unwrap();
        let failed = error(
            instance
                .invoke(prepared, command_id(), channel.clone())
                .await,
        );
        let grown = resident().saturating_sub(before);
        assert!(
            matches!(failed, CallError::Trap(_) | CallError::Violation(_)),
            "{script}: {failed:?}"
        );
        assert!(
            grown < 2 * limits().memory,
            "{script}: the host grew by {grown} bytes"
        );
        is_dead(&*instance);
    }
    let instance = bench.open().await;
    control(&*instance, &TestChannel::new(), "alloc 32")
        .await
        .map(drop)
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn w4_a_write_beyond_the_host_call_bound_costs_the_store() {
    let mut spec = spec(&[]);
    spec.limits.memory = 256 * 1024 * 1024;
    let bench = Bench::with(spec).await;
    let instance = bench.open().await;
    let failed = error(control(&*instance, &TestChannel::new(), "huge 40").await);
    assert!(matches!(failed, CallError::Violation(_)), "{failed:?}");
    is_dead(&*instance);
}

#[tokio::test(flavor = "multi_thread")]
async fn w9_the_output_of_one_turn_is_bounded() {
    let mut spec = spec(&[]);
    spec.limits.turn_output = 100_000;
    let bench = Bench::with(spec).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    let failed = error(turn(&*instance, &channel, "floodsink 1000").await);
    assert_eq!(failed.code(), "provider_failed", "{failed:?}");
    assert_eq!(channel.count(), 100);
    assert_eq!(
        channel.abandoned.load(Ordering::SeqCst),
        1,
        "the open message is closed with its handle"
    );
    assert!(instance.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn w9_a_log_flood_is_cut_and_counted() {
    let bench = Bench::new(&[]).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    control(&*instance, &channel, "log 5000;eprint 100;print last")
        .await
        .map(drop)
        .unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    control(&*instance, &channel, "print after")
        .await
        .map(drop)
        .unwrap();
    let admin: &dyn harness_core::admin::ProviderAdmin = &bench.registry;
    let lines = admin.logs(&bench.id, usize::MAX).unwrap();
    let bytes: usize = lines.iter().map(|line| line.text.len()).sum();
    assert!(bytes < 100 * 1024, "{bytes}");
    assert!(
        lines.iter().any(|line| line.text.contains("were dropped")),
        "{:?}",
        lines.last()
    );
    assert_eq!(lines.last().unwrap().text, "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn describing_components_that_spin_trap_or_lie_are_not_loaded() {
    let _alone = alone();
    let registry = harness_engine::Registry::new(shared_engine(), Arc::new(MemoryState::default()));
    for how in ["spin", "trap", "bad"] {
        let most = limits().cpu_slice + Duration::from_millis(250) + Duration::from_secs(5);
        let failed = within(most, registry.load(spec(&[("describe", how)])))
            .await
            .unwrap_err();
        assert!(
            matches!(failed, LoadError::Describe(_)),
            "{how}: {failed:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n11_a_flood_of_announcements_is_decided_one_by_one() {
    let bench = Bench::new(&[("run", "announceflood 200")]).await;
    let hold = Arc::new(tokio::sync::Notify::new());
    *bench.host.hold.lock().unwrap() = Some(hold.clone());
    let instance = bench.open().await;
    until("one is pending", || {
        bench.host.announced.lock().unwrap().len() == 1
    })
    .await;
    assert!(
        discover(&*instance, "").await.is_ok(),
        "nothing else is held up"
    );
    assert_eq!(bench.host.announced.lock().unwrap().len(), 1);
    *bench.host.hold.lock().unwrap() = None;
    hold.notify_one();
    let admin: &dyn harness_core::admin::ProviderAdmin = &bench.registry;
    let told = || {
        admin
            .logs(&bench.id, 100)
            .unwrap()
            .iter()
            .any(|l| l.text == "136 limited of 200")
    };
    until("the guest got its answers", told).await;
    assert_eq!(bench.host.announced.lock().unwrap().len(), 64);
    assert_eq!(bench.host.concurrent.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn n13_an_activity_that_ignores_its_abort_costs_the_instance() {
    let _alone = alone();
    let bench = Bench::new(&[("run", "activity goal")]).await;
    let instance = bench.open().await;
    until("the activity began", || {
        bench.host.activities.load(Ordering::SeqCst) == 1
    })
    .await;
    bench.host.activity_abort.abort(AbortReason::UserStop);
    let end = within(
        limits().drain + Duration::from_millis(250),
        instance.ended(),
    )
    .await;
    assert!(!end.clean && end.reason.contains("activity"), "{end:?}");
    assert_eq!(
        bench.host.activities.load(Ordering::SeqCst),
        0,
        "it ended with its handle"
    );
}

/// State whose host code panics.
struct Broken;

impl StateStore for Broken {
    fn get<'a>(
        &'a self,
        _: &'a HarnessId,
        _: &'a StateScope,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StateError>> {
        panic!("host code fails")
    }
    fn set<'a>(
        &'a self,
        _: &'a HarnessId,
        _: &'a StateScope,
        _: &'a str,
        _: Vec<u8>,
        _: u64,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        panic!("host code fails")
    }
    fn delete<'a>(
        &'a self,
        _: &'a HarnessId,
        _: &'a StateScope,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        panic!("host code fails")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r71_a_host_panic_ends_one_instance_and_nothing_else() {
    // A panic prints its stack, which holds up whoever takes one meanwhile.
    let _alone = alone();
    let registry = harness_engine::Registry::new(shared_engine(), Arc::new(Broken));
    let id = registry.load(spec(&[])).await.unwrap().id;
    let harness = registry.get(&id).unwrap();
    let host = Arc::new(TestHost::new(true));
    let other = harness.open(scope(), host.clone()).await.unwrap();
    let instance = harness.open(scope(), host).await.unwrap();
    let failed = error(control(&*instance, &TestChannel::new(), "get").await);
    assert!(matches!(failed, CallError::Trap(_)), "{failed:?}");
    assert!(!instance.ended().await.clean);
    assert!(discover(&*other, "").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_reaches_nothing_through_wasi() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let reached = reply(control(&*instance, &TestChannel::new(), "wasi").await);
    assert_eq!(
        reached,
        "0 variables, 0 bytes of input, file false, directory false, tcp false, udp false"
    );
}
