//! The life of an instance and of a provider: run, link, dispose, restart, quarantine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a failed test

mod support;

use harness_core::abort::AbortReason;
use harness_core::admin::{AdminError, ProviderAdmin};
use harness_core::provider::{CallError, Harnesses, ProviderState};
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::*;

#[tokio::test(flavor = "multi_thread")]
async fn n1_run_is_entered_first_and_stays_pending() {
    let _alone = alone();
    let bench = Bench::new(&[("run", "changed;linksay hello;announce 1")]).await;
    let instance = bench.open().await;
    assert!(discover(&*instance, "").await.is_ok());
    until("run said hello", || {
        bench.host.appended.lock().unwrap().len() == 1
    })
    .await;
    until("run announced", || {
        bench.host.announced.lock().unwrap().len() == 1
    })
    .await;
    assert_eq!(bench.host.changed.load(Ordering::SeqCst), 1);
    assert!(instance.is_live());
    let end = within(limits().drain, instance.dispose(AbortReason::Idle)).await;
    assert!(end.clean && !end.disconnected, "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n1_inspecting_and_describing_start_no_run() {
    let bench = Bench::new(&[("detect", "trap"), ("run", "linksay hello")]).await;
    // The detection met the trap; the load described the component before in an instance of its own.
    let report = bench.registry.report(&bench.id).unwrap();
    assert_eq!((report.state, report.restarts), (ProviderState::Ready, 1));
    assert!(report.reason.unwrap().contains("detection"));
    assert!(bench.host.appended.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn n2_a_lost_connection_ends_the_instance_after_its_calls() {
    let _alone = alone();
    let bench = Bench::new(&[("run", "sleep 300;disconnected")]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    // It ends within the drain bound after the loss, so it may end well.
    let ended = turn(&*instance, &channel, "sleep 500;say end").await;
    assert!(ended.is_ok(), "{}", error(ended));
    let end = within(limits().drain, instance.ended()).await;
    assert!(
        end.disconnected && !end.clean && end.reason.contains("told to"),
        "{end:?}"
    );
    assert_eq!(bench.registry.report(&bench.id).unwrap().restarts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn n2_no_new_calls_after_a_lost_connection() {
    let bench = Bench::new(&[("run", "disconnected")]).await;
    let instance = bench.open().await;
    until("the loss is known", || !instance.is_live()).await;
    assert!(matches!(
        error(discover(&*instance, "").await),
        CallError::Lost(_)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn n3_dispose_aborts_every_call_and_is_idempotent() {
    let _alone = alone();
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let run = turn(&*instance, &channel, "wait");
    let dispose = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        tokio::join!(
            instance.dispose(AbortReason::Shutdown),
            instance.dispose(AbortReason::Idle)
        )
    };
    let (ended, (first, second)) =
        within(limits().drain, async { tokio::join!(run, dispose) }).await;
    assert_eq!(error(ended).code(), "session_stopping");
    assert!(first.clean, "{first:?}");
    assert_eq!(first, second);
    assert!(!instance.is_live());
    assert_eq!(bench.registry.report(&bench.id).unwrap().instances, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn r31_dispose_terminates_what_does_not_end_and_reports_it() {
    let _alone = alone();
    for config in [("deafrun", "yes"), ("run", "")] {
        let bench = Bench::new(&[config]).await;
        let instance = bench.open().await;
        let channel = TestChannel::new();
        let call = async {
            if config.0 == "run" {
                Some(turn(&*instance, &channel, "deaf").await)
            } else {
                None
            }
        };
        let dispose = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            instance.dispose(AbortReason::Shutdown).await
        };
        let most = limits().drain + Duration::from_millis(300);
        let (ended, end) = within(most, async { tokio::join!(call, dispose) }).await;
        assert!(!end.clean, "{end:?}");
        if let Some(ended) = ended {
            assert_eq!(error(ended), CallError::Terminated(AbortReason::Shutdown));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r31_after_a_dispose_invoke_is_not_called() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let prepared = prepare(&*instance, "nothing|say x").await.unwrap();
    let end = instance.dispose(AbortReason::Superseded);
    let channel = TestChannel::new();
    assert_eq!(
        error(
            instance
                .invoke(prepared, command_id(), channel.clone())
                .await
        )
        .code(),
        "provider_unavailable"
    );
    assert_eq!(channel.entered.load(Ordering::SeqCst), 0);
    assert!(end.await.clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn n3_pending_link_calls_end_with_the_instance() {
    let bench = Bench::new(&[("run", "announce 1")]).await;
    *bench.host.hold.lock().unwrap() = Some(std::sync::Arc::default());
    let instance = bench.open().await;
    until("it is pending", || {
        bench.host.announced.lock().unwrap().len() == 1
    })
    .await;
    assert!(instance.dispose(AbortReason::Idle).await.clean);
    let told = |text: &str| {
        bench
            .registry
            .logs(&bench.id, 100)
            .unwrap()
            .iter()
            .any(|l| l.text.contains(text))
    };
    until("the call was answered", || {
        told("announce Err(ChannelError::Closed)")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_an_instance_ends_it() {
    let _alone = alone();
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let ended = instance.ended();
    drop(instance);
    assert!(within(limits().drain, ended).await.clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn w1_the_first_restart_is_immediate_and_later_ones_back_off() {
    let mut spec = spec(&[]);
    spec.limits.failures = 3;
    spec.limits.backoff = Duration::from_secs(600);
    spec.limits.backoff_max = Duration::from_secs(600);
    let bench = Bench::with(spec).await;
    let fail = async || {
        let instance = bench.open().await;
        assert!(matches!(
            error(discover(&*instance, "trap").await),
            CallError::Trap(_)
        ));
        instance.ended().await;
    };
    fail().await;
    fail().await;
    let waiting = error(bench.try_open().await);
    assert!(
        matches!(&waiting, CallError::Unavailable { loading: false, reason } if reason.contains("restarts in")),
        "{waiting:?}"
    );
    assert_eq!(
        bench.registry.report(&bench.id).unwrap().state,
        ProviderState::Ready
    );
    let report = bench.registry.report(&bench.id).unwrap();
    assert_eq!((report.recent_failures, report.restarts), (2, 2));
    assert!(report.last_failure.unwrap().contains("unreachable"));
    bench.registry.release(&bench.id).unwrap();
    assert!(
        bench.try_open().await.is_ok(),
        "a release ends a backoff too"
    );
}

/// A provider that failed twice and so restarts 0.5 to 1 times `backoff` later.
async fn backing_off(backoff: Duration) -> Bench {
    let mut spec = spec(&[]);
    spec.limits.backoff = backoff;
    spec.limits.backoff_max = backoff;
    let bench = Bench::with(spec).await;
    for _ in 0..2 {
        let instance = bench.open().await;
        assert!(matches!(
            error(discover(&*instance, "trap").await),
            CallError::Trap(_)
        ));
        instance.ended().await;
    }
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn w1_an_open_waits_out_a_short_backoff() {
    let _alone = alone();
    let backoff = Duration::from_millis(600);
    let bench = backing_off(backoff).await;
    let start = std::time::Instant::now();
    // Two innocent sessions: none of them is refused for what the third one did.
    let (first, second) = within(backoff + Duration::from_millis(250), async {
        tokio::join!(bench.open(), bench.open())
    })
    .await;
    assert!(
        start.elapsed() >= backoff / 3,
        "it started during the backoff, after {:?}",
        start.elapsed()
    );
    assert!(discover(&*first, "").await.is_ok() && discover(&*second, "").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn w1_a_long_backoff_is_told_at_once() {
    let _alone = alone();
    let bench = backing_off(Duration::from_secs(10)).await;
    let told = within(Duration::from_millis(250), bench.try_open()).await;
    assert!(
        matches!(error(told), CallError::Unavailable { loading: false, reason } if reason.contains("restarts in")),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn w1_an_open_that_waits_sees_the_provider_removed() {
    let bench = backing_off(Duration::from_millis(800)).await;
    let harness = bench.registry.get(&bench.id).unwrap();
    let (waiting, removed) = tokio::join!(
        harness.open(scope(), bench.host.clone()),
        bench.registry.remove(&bench.id)
    );
    removed.unwrap();
    assert!(matches!(
        error(waiting),
        CallError::Unavailable { reason, .. } if reason.contains("removed")
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn n_failures_in_a_window_quarantine_the_provider() {
    let mut spec = spec(&[]);
    spec.limits.failures = 3;
    let bench = Bench::with(spec).await;
    for _ in 0..3 {
        let end = std::time::Instant::now() + Duration::from_secs(5);
        let instance = loop {
            match bench.try_open().await {
                Ok(instance) => break instance,
                Err(CallError::Unavailable { .. }) if std::time::Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(other) => panic!("{other:?}"),
            }
        };
        assert!(matches!(
            error(discover(&*instance, "trap").await),
            CallError::Trap(_)
        ));
        instance.ended().await;
    }
    let report = bench.registry.report(&bench.id).unwrap();
    assert_eq!(report.state, ProviderState::Quarantined);
    assert!(matches!(
        error(bench.try_open().await),
        CallError::Unavailable { loading: false, .. }
    ));
    assert_eq!(
        bench.registry.release(&bench.id).unwrap().state,
        ProviderState::Ready
    );
    assert!(bench.try_open().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_an_incompatible_native_harness_keeps_the_provider_from_work() {
    let bench = Bench::new(&[("compat", "no")]).await;
    let report = bench.registry.report(&bench.id).unwrap();
    assert_eq!(
        (report.state, report.reason.as_deref()),
        (ProviderState::Incompatible, Some("too old"))
    );
    assert!(matches!(
        error(bench.try_open().await),
        CallError::Unavailable { loading: false, .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_detection_is_shown() {
    let bench = Bench::new(&[]).await;
    let status = bench.registry.get(&bench.id).unwrap().status();
    assert_eq!(
        status.readiness.unwrap().native_version.as_deref(),
        Some("9")
    );
    assert_eq!(status.state, ProviderState::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_a_provider_ends_its_instances() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let harness = bench.registry.get(&bench.id).unwrap();
    bench.registry.remove(&bench.id).await.unwrap();
    assert!(instance.ended().await.clean);
    assert!(bench.registry.get(&bench.id).is_none());
    let refused = error(harness.open(scope(), bench.host.clone()).await);
    assert!(matches!(refused, CallError::Unavailable { .. }));
    assert_eq!(
        bench.registry.remove(&bench.id).await,
        Err(AdminError::NotFound(bench.id.clone()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_live_instances_is_bounded() {
    let _machine = shared();
    let mut config = harness_engine::EngineConfig::new(None, harness_engine::HostKey::new([1; 32]));
    config.instances = 2;
    let engine = harness_engine::Engine::new(config).unwrap();
    let registry =
        harness_engine::Registry::new(engine, std::sync::Arc::new(MemoryState::default()));
    let id = registry.load(spec(&[])).await.unwrap().id;
    let harness = registry.get(&id).unwrap();
    let host = std::sync::Arc::new(TestHost::new(true));
    let first = harness.open(scope(), host.clone()).await.unwrap();
    let _second = harness.open(scope(), host.clone()).await.unwrap();
    assert!(matches!(
        error(harness.open(scope(), host.clone()).await),
        CallError::Unavailable { .. }
    ));
    first.dispose(AbortReason::Idle).await;
    assert!(harness.open(scope(), host).await.is_ok());
}
