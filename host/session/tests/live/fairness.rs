//! Order, bounds and patience of the actor: nothing is acknowledged early, nothing is held up by
//! somebody else, no flood blocks it (S29, S33, R61, R65, R69, R70, W9), and the smaller verbs of a
//! host (S37, S107, S114).

use crate::scenes::{Runner, idle, prompt_starting, say, turn_running};
use crate::support::seat::request;
use crate::support::{World, breathe, code, forward, joined};
use harness_core::abort::{AbortHandle, AbortReason};
use harness_core::ids::LoopId;
use harness_core::provider::{ParamValue, Params};
use harness_core::view::{OutcomeStatus, Status};
use harness_journal::{PageRequest, SessionFilter};
use harness_session::{Caller, SettingsRequest};
use std::time::Duration;

#[tokio::test]
async fn s33_r61_nothing_is_acknowledged_before_it_is_durable() {
    let scene = idle().await;
    let (faults, probe) = (scene.world.faults.clone(), scene.world.probe.clone());
    faults.hold();
    let seat = scene.seat.clone();
    let submitting = tokio::spawn(async move { seat.prompt("waits for the disk").await });
    breathe().await;
    assert!(!submitting.is_finished());
    assert_eq!(probe.prompts.count(), 0);
    faults.resume();
    joined(submitting).await;
    probe.prompts.next().await.starts();
    probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    // A second operation sees the state before a reserve or after it, never between.
    faults.hold();
    let invokes = probe.invokes.count();
    let one = scene.seat.operate("/x one");
    let two = scene.seat.operate("/x two");
    breathe().await;
    assert_eq!(
        probe.invokes.count(),
        invokes,
        "not before its intent is durable"
    );
    faults.resume();
    probe.invokes.next().await.completes("");
    let codes = [code(&joined(one).await), code(&joined(two).await)];
    assert_eq!(codes.iter().filter(|c| **c == "ok").count(), 1, "{codes:?}");
    scene.finish().await;
}

#[tokio::test]
async fn s29_stop_overtakes_what_waits() {
    let scene = turn_running().await;
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    call.ignores_abort();
    let (channel, faults) = (call.channel(), scene.world.faults.clone());
    faults.hold();
    let writes: Vec<_> = (0..100)
        .map(|n| {
            let channel = channel.clone();
            tokio::spawn(async move { say(&channel, &format!("{n}")).await })
        })
        .collect();
    breathe().await;
    let stop = scene.seat.stop();
    breathe().await;
    faults.resume();
    call.aborted().await;
    let mut written = 0;
    for write in writes {
        written += usize::from(joined(write).await.is_ok());
    }
    assert!(written < 10, "{written} writes came before the stop");
    scene.finish().await;
    assert!(joined(stop).await.unwrap());
}

#[tokio::test]
async fn w9_a_flood_of_writes_neither_deadlocks_nor_loses_one() {
    let scene = turn_running().await;
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    // Many more than the mailbox holds, while calls start and return beside them.
    let channel = call.channel();
    let writes: Vec<_> = (0..1000)
        .map(|n| {
            let channel = channel.clone();
            tokio::spawn(async move { say(&channel, &format!("{n}")).await })
        })
        .collect();
    let controls: Vec<_> = (0..5).map(|_| scene.seat.operate("/c beside")).collect();
    for _ in 0..5 {
        scene.world.probe.invokes.next().await.completes("");
    }
    for control in controls {
        joined(control).await.unwrap();
    }
    for write in writes {
        joined(write).await.unwrap();
    }
    let seat = scene.seat.clone();
    scene.finish().await;
    assert_eq!(
        seat.host.snapshot(seat.id).await.unwrap().session.status,
        Status::Completed
    );
    let mut texts = Vec::new();
    let mut page = PageRequest {
        limit: 300,
        cursor: None,
    };
    loop {
        let found = seat
            .host
            .messages(seat.id, None, page.clone())
            .await
            .unwrap();
        texts.extend(found.items);
        match found.next_cursor {
            Some(cursor) => page.cursor = Some(cursor),
            None => break,
        }
    }
    assert_eq!(texts.len(), 1001, "each once");
}

#[tokio::test(start_paused = true)]
async fn r65_a_control_waits_ten_seconds_for_the_handle() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    seat.prompt("slow").await;
    let starting = world.probe.prompts.next().await;
    let invokes = world.probe.invokes.count();
    let operation = seat.operate("/c waits");
    forward(Duration::from_secs(9)).await;
    assert!(!operation.is_finished());
    forward(Duration::from_secs(2)).await;
    assert_eq!(code(&joined(operation).await), "session_busy");
    assert_eq!(world.probe.invokes.count(), invokes);
    starting.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
}

#[tokio::test]
async fn r65_stop_tells_a_control_that_waits() {
    let scene = prompt_starting().await;
    let operation = scene.seat.operate("/c waits");
    breathe().await;
    assert!(scene.seat.stopped().await);
    assert_eq!(code(&joined(operation).await), "session_stopping");
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn r70_a_caller_gone_before_the_reserve_leaves_nothing() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    let types = scene.seat.types().await;
    probe.hold(&probe.hold_preparation);
    let gone = AbortHandle::new();
    let running = scene
        .seat
        .operate_as(Caller::default(), request("/x go"), gone.signal());
    let preparation = probe.preparations.next().await;
    preparation.ignores_abort();
    gone.abort(AbortReason::CallerGone);
    let invokes = probe.invokes.count();
    breathe().await;
    preparation.prepares();
    assert_eq!(code(&joined(running).await), "request_withdrawn");
    assert_eq!(probe.invokes.count(), invokes);
    assert_eq!(scene.seat.types().await, types);
    scene.finish().await;
}

#[tokio::test]
async fn r70_a_caller_gone_while_the_intent_is_written_is_cancelled_without_invoke() {
    let scene = idle().await;
    let (probe, faults) = (&scene.world.probe, scene.world.faults.clone());
    let invokes = probe.invokes.count();
    faults.hold();
    let gone = AbortHandle::new();
    let running = scene
        .seat
        .operate_as(Caller::default(), request("/x go"), gone.signal());
    breathe().await;
    gone.abort(AbortReason::CallerGone);
    breathe().await;
    faults.resume();
    let result = joined(running).await.unwrap();
    assert_eq!(result.status, OutcomeStatus::Cancelled);
    assert_eq!(probe.invokes.count(), invokes, "invoke is not called");
    assert_eq!(scene.seat.status().await, Status::Cancelled);
    assert_eq!(scene.seat.last_end().await, "TurnInterrupted:caller_gone");
    scene.finish().await;
}

#[tokio::test]
async fn s37_settings_are_checked_and_wait_for_nobody() {
    let scene = turn_running().await;
    let patch = async |change: &dyn Fn(&mut SettingsRequest)| {
        let mut request = SettingsRequest::default();
        change(&mut request);
        scene.seat.patch(request).await
    };
    let renamed = patch(&|r| r.title = Some("Renamed".into())).await.unwrap();
    assert_eq!(renamed.title, "Renamed");
    assert_eq!(
        code(&patch(&|r| r.title = Some(String::new())).await),
        "invalid_request"
    );
    let with = |id: &str, value| Some(Params::from([(id.to_owned(), value)]));
    let unknown = with("no", ParamValue::Boolean(true));
    assert_eq!(
        code(&patch(&|r| r.params = unknown.clone()).await),
        "invalid_params"
    );
    let wrong = with("tone", ParamValue::Text("loud".into()));
    assert_eq!(
        code(&patch(&|r| r.params = wrong.clone()).await),
        "invalid_params"
    );
    let warm = with("tone", ParamValue::Text("warm".into()));
    let row = patch(&|r| r.params = warm.clone()).await.unwrap();
    assert_eq!(row.params["tone"], ParamValue::Text("warm".into()));
    assert_eq!(row.params["plan"], ParamValue::Boolean(false), "merged");
    let other = scene.world.other.harness_id();
    assert_eq!(
        code(&patch(&|r| r.agent = Some(other.clone())).await),
        "session_busy"
    );
    let none = "demo/none".parse().unwrap();
    let nowhere = SettingsRequest {
        agent: Some(none),
        ..SettingsRequest::default()
    };
    assert_eq!(code(&scene.seat.patch(nowhere).await), "harness_not_found");
    scene.finish().await;
}

#[tokio::test]
async fn s107_s108_pages_and_lists() {
    let world = World::new().await;
    let seats = [world.idle().await, world.idle().await, world.idle().await];
    let mut filter = SessionFilter {
        page: PageRequest {
            limit: 2,
            cursor: None,
        },
        ..SessionFilter::default()
    };
    let first = world.host.sessions(filter.clone()).await.unwrap();
    let newest: Vec<_> = first.items.iter().map(|row| row.id).collect();
    assert_eq!(newest, [seats[2].id, seats[1].id], "newest first");
    filter.page.cursor = first.next_cursor;
    let rest = world.host.sessions(filter).await.unwrap();
    assert_eq!(rest.items[0].id, seats[0].id);
    assert_eq!(rest.next_cursor, None);
    // The journal in pages of one is the journal.
    let whole = world.host.journal(seats[0].id, 1, 1000).await.unwrap();
    let (mut pieces, mut from) = (Vec::new(), 0);
    loop {
        let page = world.host.journal(seats[0].id, from, 1).await.unwrap();
        assert!(page.events.len() <= 1);
        pieces.extend(page.events);
        from = page.next_seq;
        if page.done {
            break;
        }
    }
    assert_eq!(pieces, whole.events);
    for limit in [0, 1001] {
        let page = world.host.journal(seats[0].id, 1, limit).await;
        assert_eq!(code(&page), "invalid_request");
    }
    let unknown = harness_core::ids::SessionId(uuid::Uuid::now_v7());
    assert_eq!(
        code(&world.host.journal(unknown, 1, 1).await),
        "session_not_found"
    );
    assert_eq!(
        code(&world.host.snapshot(unknown).await),
        "session_not_found"
    );
    assert_eq!(
        world.host.live_sessions(),
        3,
        "an unknown id leaves no actor behind"
    );
}

#[tokio::test]
async fn s104_s114_an_unknown_loop_is_told() {
    let scene = idle().await;
    let (host, id) = (scene.seat.host.clone(), scene.seat.id);
    let unknown = Some(LoopId(uuid::Uuid::now_v7()));
    let stopped = host.interrupt(id, Caller::default(), unknown).await;
    assert_eq!(code(&stopped), "loop_not_found");
    let released = host
        .release(id, Caller::default(), unknown, Vec::new())
        .await;
    assert_eq!(code(&released), "loop_not_found");
    let request = harness_session::InputRequest {
        blocks: vec![harness_core::content::Block::Text { text: "x".into() }],
        loop_id: unknown,
        no_fold: false,
        fold_only: false,
    };
    let submitted = host.submit(id, Caller::default(), request).await;
    assert_eq!(code(&submitted), "loop_not_found");
    let empty = harness_session::InputRequest {
        blocks: Vec::new(),
        loop_id: None,
        no_fold: false,
        fold_only: false,
    };
    let submitted = host.submit(id, Caller::default(), empty).await;
    assert_eq!(code(&submitted), "invalid_request");
    scene.finish().await;
}
