//! Calls into a well-behaved component: values, errors, aborts, clocks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a failed test

mod support;

use harness_core::abort::{AbortHandle, AbortReason};
use harness_core::operation::{Execution, Operation};
use harness_core::provider::{CallError, ChannelError, Invocation, Outcome, Refusal};
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_state_comes_back_unchanged() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let state = discover(&*instance, "state 3").await.unwrap().unwrap();
    assert_eq!(
        state
            .commands
            .iter()
            .map(|c| c.name.as_str())
            .collect::<Vec<_>>(),
        ["/c0", "/c1", "/c2"]
    );
    assert!(state.slash_commands);
    assert_eq!(discover(&*instance, "").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn w3_r7_an_oversize_state_is_a_violation_and_the_instance_lives() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let refused = error(discover(&*instance, "state 257").await);
    assert!(
        matches!(&refused, CallError::Violation(text) if text.contains("257")),
        "{refused:?}"
    );
    assert!(instance.is_live());
    assert!(discover(&*instance, "state 256").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn r21_prepare_classifies_and_discard_gives_back() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let exclusive = prepare(&*instance, "exclusive").await.unwrap();
    assert_eq!(exclusive.execution, Execution::Exclusive);
    let dropped = prepare(&*instance, "nothing").await.unwrap();
    assert_eq!(dropped.execution, Execution::Control);
    instance.discard(exclusive);
    drop(dropped);
    let channel = TestChannel::new();
    assert_eq!(
        reply(control(&*instance, &channel, "counts").await),
        "2 discarded, 0 turns done"
    );
    let operation = Operation::ModeAction {
        mode_id: "m".into(),
        action_id: "a".into(),
        argument: None,
    };
    let refused = error(
        instance
            .prepare(
                context(),
                operation,
                harness_core::abort::AbortSignal::never(),
            )
            .await,
    );
    assert_eq!(refused.code(), "unsupported_operation");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_keep_their_kind_and_text() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    for (script, code) in [
        ("stale", "stale_state"),
        ("refuse 10", "provider_failed"),
        ("disconnected", "provider_unavailable"),
        ("nonsense", "invalid_argument"),
    ] {
        assert_eq!(
            error(prepare(&*instance, script).await).code(),
            code,
            "{script}"
        );
    }
    assert!(matches!(
        error(prepare(&*instance, "refuse 4097").await),
        CallError::Violation(_)
    ));
    assert!(instance.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn r10_r25_a_control_replies_and_writes_through_a_complete_channel() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let script = "say  a  b ;context;history;usage;take;dropready;bind n-1;message id";
    assert_eq!(
        reply(control(&*instance, &channel, script).await),
        command_id().to_string()
    );
    assert_eq!(
        channel.text(),
        format!(" a  b \n{} None\nhistory 0\ntook 0", session())
    );
    assert_eq!(channel.entered.load(Ordering::SeqCst), 1);
    assert_eq!(channel.usage.load(Ordering::SeqCst), 1);
    assert_eq!(channel.native.lock().unwrap().as_deref(), Some("n-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn r26_w3_replies_are_bounded_and_patches_are_checked() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    assert_eq!(
        reply(control(&*instance, &channel, "reply 65536").await).len(),
        65536
    );
    for script in ["reply 65537", "param a;param a"] {
        assert!(
            matches!(
                error(control(&*instance, &channel, script).await),
                CallError::Violation(_)
            ),
            "{script}"
        );
    }
    assert!(instance.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn w3_an_oversize_sink_write_is_refused_and_the_run_goes_on() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    control(&*instance, &channel, "big 262144;big 262145;say on")
        .await
        .map(drop)
        .unwrap();
    let written = channel.written.lock().unwrap().clone();
    assert_eq!(
        (written.len(), written[0].len(), written[2].as_str()),
        (3, 262_144, "on")
    );
    assert!(written[1].contains("Limit"), "{}", written[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_streams_and_a_control_runs_beside_it() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let (channel, beside) = (TestChannel::new(), TestChannel::new());
    let started = start(&*instance, &channel, "stream 40").await.unwrap();
    let run = instance.done(started);
    let other = async {
        until("the stream runs", || channel.count() > 3).await;
        let before = channel.count();
        assert_eq!(
            reply(control(&*instance, &beside, "message beside").await),
            "beside"
        );
        assert!(
            before < 40 && channel.count() < 40,
            "the control ran while the turn streamed"
        );
    };
    let (outcome, ()) = tokio::join!(run, other);
    assert_eq!(outcome.unwrap(), Outcome::default());
    assert_eq!(channel.count(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn r26_an_invocation_may_start_a_turn_that_goes_on_in_its_channel() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let prepared = prepare(
        &*instance,
        "exclusive|say one;param p;started|say two;message end",
    )
    .await
    .unwrap();
    let Invocation::Started(started) = instance
        .invoke(prepared, command_id(), channel.clone())
        .await
        .unwrap()
    else {
        panic!("it completed")
    };
    assert_eq!(started.params.len(), 1);
    assert_eq!(
        instance.done(started).await.unwrap().message.as_deref(),
        Some("end")
    );
    assert_eq!(channel.text(), "one\ntwo");
}

#[tokio::test(flavor = "multi_thread")]
async fn r31_a_started_turn_that_nobody_wants_is_stopped_and_passed_to_done() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    drop(start(&*instance, &channel, "sleepcancel").await.unwrap());
    let probe = TestChannel::new();
    let end = std::time::Instant::now() + Duration::from_secs(5);
    while reply(control(&*instance, &probe, "counts").await) != "0 discarded, 1 turns done" {
        assert!(std::time::Instant::now() < end, "the turn was not stopped");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w6_handles_answer_closed_after_the_end() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let (first, second) = (TestChannel::new(), TestChannel::new());
    control(&*instance, &first, "keep-channel")
        .await
        .map(drop)
        .unwrap();
    first.abort.abort(AbortReason::UserStop);
    let late = reply(control(&*instance, &second, "use-kept-channel").await);
    assert_eq!(
        late,
        "Err(ChannelError::Closed) None None Err(ChannelError::Closed) 36"
    );
    assert_eq!(
        first.count() + first.withdrawn.load(Ordering::SeqCst) + first.usage.load(Ordering::SeqCst),
        0
    );
    assert!(
        std::sync::Arc::strong_count(&first) == 1,
        "the session's channel is let go of"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_reaches_a_waiting_guest_and_pending_host_calls() {
    let _alone = alone();
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    for script in ["wait", "sleepcancel", "ready;say x"] {
        let channel = TestChannel::new();
        let run = turn(&*instance, &channel, script);
        let stop = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            channel.abort.abort(AbortReason::UserStop);
        };
        let (ended, ()) = within(Duration::from_millis(300), async {
            tokio::join!(run, stop)
        })
        .await;
        assert_eq!(
            error(ended),
            CallError::Refused(Refusal::Cancelled),
            "{script}"
        );
        assert_eq!(channel.count(), 0, "{script}");
    }
    assert!(instance.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn w4_cancelled_without_an_abort_is_a_violation_except_from_done() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    assert!(matches!(
        error(control(&*instance, &channel, "cancelled").await),
        CallError::Violation(_)
    ));
    assert!(matches!(
        error(prepare(&*instance, "cancelled").await),
        CallError::Violation(_)
    ));
    assert_eq!(
        error(turn(&*instance, &channel, "cancelled").await),
        CallError::Refused(Refusal::Cancelled)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r75_a_call_parked_on_a_gate_does_not_time_out() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    for script in ["approve", "ask"] {
        let channel = TestChannel::gated(Gate::Wait);
        let run = control(&*instance, &channel, script);
        let answer = async {
            until("the gate opens", || {
                channel.open_gates.load(Ordering::SeqCst) == 1
            })
            .await;
            tokio::time::sleep(limits().invoke_deadline + Duration::from_millis(300)).await;
            channel.answer();
        };
        let (ended, ()) = tokio::join!(run, answer);
        assert!(ended.is_ok(), "{script}: {}", error(ended));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_an_abort_or_a_dropped_question_closes_its_gate() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::gated(Gate::Wait);
    let run = control(&*instance, &channel, "approve");
    let stop = async {
        until("the gate opens", || {
            channel.open_gates.load(Ordering::SeqCst) == 1
        })
        .await;
        channel.abort.abort(AbortReason::UserStop);
    };
    let (ended, ()) = tokio::join!(run, stop);
    assert_eq!(error(ended), CallError::Refused(Refusal::Cancelled));
    assert_eq!(channel.open_gates.load(Ordering::SeqCst), 0);

    let channel = TestChannel::gated(Gate::Wait);
    assert_eq!(
        reply(control(&*instance, &channel, "dropask;message on").await),
        "on"
    );
    assert_eq!(channel.open_gates.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn n15_silence_ends_a_turn_and_signs_of_life_do_not() {
    let _alone = alone();
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    // 50 ms a touch, far longer than the bound of silence in all.
    assert!(turn(&*instance, &channel, "touch 30").await.is_ok());
    assert!(turn(&*instance, &channel, "stream 100").await.is_ok());
    let silence = limits().inactivity;
    let ended = within(
        silence + limits().drain,
        turn(&*instance, &channel, "sleepcancel"),
    )
    .await;
    assert!(matches!(error(ended), CallError::Timeout(_)));
    assert!(instance.is_live(), "it returned within the drain bound");
}

#[tokio::test(flavor = "multi_thread")]
async fn r28_a_provider_may_take_its_own_time() {
    let bench = Bench::new(&[("timeout", "provider")]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    assert!(turn(&*instance, &channel, "sleep 1500").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_aborts_and_the_call_is_awaited() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let channel = TestChannel::new();
    let run = turn(&*instance, &channel, "wait");
    assert!(
        tokio::time::timeout(Duration::from_millis(50), run)
            .await
            .is_err()
    );
    let probe = TestChannel::new();
    let end = std::time::Instant::now() + Duration::from_secs(5);
    while !reply(control(&*instance, &probe, "counts").await).ends_with("1 turns done") {
        assert!(std::time::Instant::now() < end, "the turn was not ended");
    }
    assert!(instance.is_live());
    let admin: &dyn harness_core::admin::ProviderAdmin = &bench.registry;
    let lines = admin.logs(&bench.id, 100).unwrap();
    assert!(
        lines.iter().any(|line| line.text.contains("CallerGone")),
        "{lines:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_preparation_see_their_own_abort() {
    let bench = Bench::new(&[]).await;
    let instance = bench.open().await;
    let handle = AbortHandle::new();
    let run = instance.get_command_state(discovery("wait"), handle.signal());
    let stop = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        handle.abort(AbortReason::OwnerStopped);
    };
    let (ended, ()) = tokio::join!(run, stop);
    assert_eq!(error(ended), CallError::Refused(Refusal::Cancelled));
    assert!(instance.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn n19_state_is_the_instances_own_and_bounded() {
    let bench = Bench::new(&[]).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    control(&*instance, &channel, "set hello")
        .await
        .map(drop)
        .unwrap();
    let again = bench.open().await;
    assert_eq!(reply(control(&*again, &channel, "get").await), "hello");
    let refused = error(control(&*instance, &channel, "setbig 1024").await);
    assert!(
        matches!(
            &refused,
            CallError::Refused(Refusal::Channel(ChannelError::Limit(_)))
        ),
        "{refused:?}"
    );
    let draft = bench.open_draft().await;
    let refused = error(control(&*draft, &channel, "set x").await);
    assert!(
        matches!(
            &refused,
            CallError::Refused(Refusal::Channel(ChannelError::Denied(_)))
        ),
        "{refused:?}"
    );
    assert_eq!(bench.state.0.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn compact_answers_its_summary() {
    let bench = Bench::new(&[("compact", "say compacting")]).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    let compaction = instance
        .compact(command_id(), channel.clone())
        .await
        .unwrap();
    assert_eq!(compaction.summary.as_deref(), Some("short"));
    assert_eq!(channel.text(), "compacting");
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_host_calls_of_a_channel_are_bounded() {
    let bench = Bench::new(&[]).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    let run = control(&*instance, &channel, "pending 80");
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        channel.ready.notify_waiters();
    };
    let (ended, ()) = tokio::join!(run, release);
    assert_eq!(reply(ended), "16 limited");
}
