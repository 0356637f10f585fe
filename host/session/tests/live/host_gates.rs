//! Gates of the host: opened by its own handle, answered by clients (S30, S86-S88, S117, I37).

use crate::scenes::{idle, turn_running};
use crate::support::logs::Logs;
use crate::support::{Seat, World, breathe, code, forward, joined, patient, until};
use harness_core::gate::{
    CloseReason, Field, FieldKind, FieldValue, GatePolicy, GateReply, HostAnswer, HostAsk, Shown,
};
use harness_core::ids::GateId;
use harness_core::view::Status;
use harness_journal::fault::Fault;
use harness_session::{Delivery, HostGate, Item, Start};
use serde_json::{Value, json};
use std::time::Duration;

const ADDRESS: &str = "https://login.example/authorize?state=s3cret-state";

fn page() -> HostGate {
    HostGate::waiting(HostAsk::OpenUrl {
        message: "Sign in".into(),
        url: ADDRESS.into(),
    })
}

fn form() -> HostGate {
    let field = |name: &str, secret: bool, default: Option<&str>| Field {
        name: name.into(),
        label: name.into(),
        description: None,
        kind: FieldKind::Text {},
        required: !secret,
        secret,
        default: default.map(|d| Shown::Value(FieldValue::Text(d.into()))),
    };
    HostGate::waiting(HostAsk::Form {
        message: "Who are you?".into(),
        fields: vec![
            field("name", false, None),
            field("key", true, None),
            field("other", true, Some("s3cret-default")),
        ],
    })
}

fn after(seconds: u64) -> HostGate {
    HostGate {
        policy: "respond_on_timeout".into(),
        timeout: Some(Duration::from_secs(seconds)),
        ..page()
    }
}

fn fill(values: Value) -> GateReply {
    let Value::Object(values) = values else {
        unreachable!()
    };
    GateReply::Fill(values)
}

async fn open(world: &World, seat: &Seat, gate: HostGate) -> GateId {
    let open = world.gates.open_host_gate(seat.id, gate);
    patient("an open gate", open).await.unwrap()
}

#[tokio::test]
async fn s88_the_opener_gets_the_answer_once_also_when_it_comes_first() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    let gate = open(world, seat, page()).await;
    let delivery = seat.answer(gate, GateReply::Confirm).await.unwrap();
    assert_eq!(delivery, Delivery::Acknowledged);
    breathe().await;
    let answer = patient("it", world.gates.await_gate_answer(gate)).await;
    assert_eq!(answer.unwrap(), HostAnswer::Opened);
    let again = world.gates.await_gate_answer(gate).await;
    assert_eq!(code(&again), "gate_not_found", "once");
    // And the other way round.
    let gate = open(world, seat, form()).await;
    let waiting = {
        let gates = world.gates.clone();
        tokio::spawn(async move { gates.await_gate_answer(gate).await })
    };
    breathe().await;
    let busy = world.gates.await_gate_answer(gate).await;
    assert_eq!(code(&busy), "gate_not_ready", "one waits at a time");
    seat.answer(gate, fill(json!({"name": "Ada", "key": "s3cret-key"})))
        .await
        .unwrap();
    let HostAnswer::Filled(values) = joined(waiting).await.unwrap() else {
        panic!("it is filled in");
    };
    let text = |name: &str| values[name].clone();
    assert_eq!(text("name"), FieldValue::Text("Ada".into()));
    assert_eq!(text("key"), FieldValue::Text("s3cret-key".into()));
    assert_eq!(
        text("other"),
        FieldValue::Text("s3cret-default".into()),
        "what is left out has its default"
    );
}

#[tokio::test]
async fn s88_a_wait_that_is_dropped_leaves_the_gate_open_and_takes_nothing() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    let gate = open(world, seat, page()).await;
    for _ in 0..3 {
        let wait = world.gates.await_gate_answer(gate);
        let cut = tokio::time::timeout(Duration::from_millis(10), wait).await;
        assert!(cut.is_err(), "nobody has answered");
    }
    assert_eq!(seat.view().await.open_gates, 1);
    seat.answer(gate, GateReply::Decline).await.unwrap();
    let answer = patient("it", world.gates.await_gate_answer(gate)).await;
    assert_eq!(answer.unwrap(), HostAnswer::Declined);
}

#[tokio::test]
async fn s88_s117_the_address_is_in_the_list_of_open_gates_and_nowhere_else() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    let mut stream = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    let gate = open(world, seat, page()).await;
    let listed = seat.host.gates(seat.id).await.unwrap();
    assert_eq!(listed[0].url.as_deref(), Some(ADDRESS));
    assert_eq!(listed[0].policy, GatePolicy::Wait);
    let snapshot = seat.host.snapshot(seat.id).await.unwrap();
    let snapshot = serde_json::to_string(&snapshot).unwrap();
    assert!(!snapshot.contains("s3cret") && snapshot.contains("https://login.example"));
    seat.answer(gate, GateReply::Confirm).await.unwrap();
    assert!(seat.host.gates(seat.id).await.unwrap().is_empty());
    let mut seen = Vec::new();
    while !seen.contains(&"GateResolved".to_owned()) {
        if let Some(Item::Frame(frame)) = patient("a frame", stream.next()).await {
            assert!(!frame.data.contains("s3cret"), "{}", frame.data);
            seen.push(frame.name.to_owned());
        }
    }
    assert!(seen.contains(&"GateOpened".to_owned()), "{seen:?}");
    // Forms: neither the secret nor its default.
    let form = open(world, seat, form()).await;
    let listed = seat.host.gates(seat.id).await.unwrap();
    let shown = serde_json::to_value(&listed[0].gate).unwrap();
    assert_eq!(
        shown["payload"]["fields"][2]["default"],
        json!({"redacted": true})
    );
    seat.answer(form, fill(json!({"name": "Ada", "key": "s3cret-key"})))
        .await
        .unwrap();
    world.store.close().await;
    assert!(!world.stored_anywhere("s3cret"));
    assert!(world.stored_anywhere("\"redacted\":true"));
}

#[tokio::test]
async fn s82_i37_two_answers_one_wins() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    let gate = open(world, seat, page()).await;
    let (one, other) = tokio::join!(
        seat.answer(gate, GateReply::Confirm),
        seat.answer(gate, GateReply::Decline)
    );
    let won = [code(&one), code(&other)];
    assert!(
        won.contains(&"ok") && won.contains(&"gate_not_found"),
        "{won:?}"
    );
    let answer = world.gates.await_gate_answer(gate).await.unwrap();
    let expected = if one.is_ok() {
        HostAnswer::Opened
    } else {
        HostAnswer::Declined
    };
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn s80_s88_what_cannot_be_written_opens_resolves_and_closes_nothing() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    world.faults.fail_next(Fault::Full);
    let refused = world.gates.open_host_gate(seat.id, page()).await;
    assert_eq!(code(&refused), "store_unavailable");
    assert_eq!(seat.view().await.open_gates, 0);
    let gate = open(world, seat, page()).await;
    world.faults.fail_next(Fault::Full);
    let refused = seat.answer(gate, GateReply::Confirm).await;
    assert_eq!(code(&refused), "store_unavailable");
    world.faults.fail_next(Fault::Full);
    let refused = world.gates.close_gate(gate).await;
    assert_eq!(code(&refused), "store_unavailable");
    seat.answer(gate, GateReply::Confirm).await.unwrap();
    let answer = world.gates.await_gate_answer(gate).await;
    assert_eq!(answer.unwrap(), HostAnswer::Opened);
}

#[tokio::test]
async fn s88_its_opener_closes_a_gate_that_is_not_wanted() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    let gate = open(world, seat, page()).await;
    let waiting = {
        let gates = world.gates.clone();
        tokio::spawn(async move { gates.await_gate_answer(gate).await })
    };
    breathe().await;
    assert!(world.gates.close_gate(gate).await.unwrap());
    let closed = HostAnswer::Closed(CloseReason::Withdrawn);
    assert_eq!(joined(waiting).await.unwrap(), closed);
    assert_eq!(code(&world.gates.close_gate(gate).await), "gate_not_found");
    assert_eq!(
        code(&seat.answer(gate, GateReply::Confirm).await),
        "gate_not_found"
    );
    assert_eq!(seat.types().await.last().unwrap(), "GateResolved:withdrawn");
    let unknown = world.gates.await_gate_answer(GateId::ZERO).await;
    assert_eq!(code(&unknown), "gate_not_found");
}

#[tokio::test]
async fn s86_policies_of_the_opener() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    let with = |policy: &str, timeout: Option<u64>| HostGate {
        policy: policy.into(),
        timeout: timeout.map(Duration::from_secs),
        ..page()
    };
    for (gate, refusal) in [
        (with("suspend_session", None), "policy_unsupported"),
        (with("model_decide", Some(5)), "policy_unsupported"),
        (with("ask_the_cat", None), "policy_unsupported"),
        (with("wait", Some(5)), "invalid_request"),
        (with("respond_on_timeout", None), "invalid_request"),
        (with("respond_on_timeout", Some(0)), "invalid_request"),
        (
            with("respond_on_timeout", Some(24 * 3600 + 1)),
            "invalid_request",
        ),
    ] {
        let refused = world.gates.open_host_gate(seat.id, gate).await;
        assert_eq!(code(&refused), refusal);
    }
    assert_eq!(seat.view().await.open_gates, 0, "nothing was prepared");
    let kinds = world.kinds(seat.id).await;
    assert!(!kinds.contains(&harness_journal::RecordKind::GatePrepared));
}

#[tokio::test(start_paused = true)]
async fn s86_a_host_gate_nobody_answers_closes_by_its_policy() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let gate = open(&world, &seat, after(30)).await;
    let listed = seat.host.gates(seat.id).await.unwrap();
    assert_eq!(
        listed[0].policy,
        GatePolicy::RespondOnTimeout { timeout_ms: 30_000 }
    );
    forward(Duration::from_secs(29)).await;
    assert_eq!(seat.view().await.open_gates, 1);
    // An answer that cannot be recorded is tried again.
    world.faults.fail_next(Fault::Full);
    forward(Duration::from_secs(2)).await;
    assert_eq!(seat.view().await.open_gates, 1);
    forward(Duration::from_secs(30)).await;
    let answer = patient("it", world.gates.await_gate_answer(gate)).await;
    assert_eq!(answer.unwrap(), HostAnswer::Timeout);
    let last = seat.types().await.pop().unwrap();
    assert_eq!(last, "GateResolved:policy_response");
    // A person who is earlier wins.
    let gate = open(&world, &seat, after(30)).await;
    seat.answer(gate, GateReply::Decline).await.unwrap();
    forward(Duration::from_secs(31)).await;
    let answer = world.gates.await_gate_answer(gate).await;
    assert_eq!(answer.unwrap(), HostAnswer::Declined);
}

#[tokio::test(start_paused = true)]
async fn s87_a_session_with_an_open_host_gate_stays_in_memory() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let gate = open(&world, &seat, page()).await;
    forward(Duration::from_secs(600)).await;
    assert_eq!(world.host.live_sessions(), 1);
    seat.answer(gate, GateReply::Confirm).await.unwrap();
    let answer = world.gates.await_gate_answer(gate).await;
    assert_eq!(answer.unwrap(), HostAnswer::Opened);
    forward(Duration::from_secs(600)).await;
    let host = world.host.clone();
    until("it is parked", || host.live_sessions() == 0).await;
}

#[tokio::test]
async fn s87_s88_a_restart_closes_host_gates_as_unavailable() {
    let scene = idle().await;
    let id = scene.seat.id;
    let gate = open(&scene.world, &scene.seat, page()).await;
    let world = scene.world.restart().await;
    let seat = world.seat(id);
    assert_eq!(seat.view().await.open_gates, 0, "at the start already");
    let types = seat.types().await;
    assert!(types.contains(&"GateResolved:restore_unavailable".to_owned()));
    assert_eq!(
        code(&seat.answer(gate, GateReply::Confirm).await),
        "gate_not_found"
    );
    let lost = world.gates.await_gate_answer(gate).await;
    assert_eq!(code(&lost), "gate_not_found");
}

#[tokio::test]
async fn s88_an_opener_that_left_leaves_no_gate() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    world.faults.hold();
    let open = world.gates.open_host_gate(seat.id, page());
    let cut = tokio::time::timeout(Duration::from_millis(20), open).await;
    assert!(cut.is_err(), "it waits for the store");
    world.faults.resume();
    let seat = seat.clone();
    patient("its end", async {
        while seat.count("GateResolved").await == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(seat.view().await.open_gates, 0);
}

#[tokio::test]
async fn s88_shutdown_tells_the_opener() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    let gate = open(world, seat, page()).await;
    let shut = seat.host.shutdown_session(seat.id, Default::default());
    patient("its end", shut).await.unwrap();
    let answer = patient("it", world.gates.await_gate_answer(gate)).await;
    let closed = HostAnswer::Closed(CloseReason::OwnerClosed);
    assert_eq!(answer.unwrap(), closed);
    let refused = world.gates.open_host_gate(seat.id, page()).await;
    assert_eq!(code(&refused), "session_stopped");
    world.host.shutdown().await;
    let refused = world.gates.open_host_gate(seat.id, page()).await;
    assert_eq!(code(&refused), "host_shutting_down");
}

#[tokio::test]
async fn s88_a_host_gate_is_no_work_of_the_session() {
    let scene = turn_running().await;
    let gate = open(&scene.world, &scene.seat, page()).await;
    assert_eq!(scene.seat.status().await, Status::InProgress);
    let gates = scene.world.gates.clone();
    scene.seat.answer(gate, GateReply::Confirm).await.unwrap();
    assert_eq!(
        gates.await_gate_answer(gate).await.unwrap(),
        HostAnswer::Opened
    );
    scene.finish().await;
}

#[tokio::test]
async fn s81_i37_a_secret_is_in_no_log() {
    let logs = Logs::default();
    let _collecting = logs.collect();
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    for (gate, reply) in [
        (page(), GateReply::Confirm),
        (form(), fill(json!({"name": "Ada", "key": "s3cret-key"}))),
    ] {
        let gate = open(world, seat, gate).await;
        // One that cannot be recorded is logged, as a failure and not as what it was.
        world.faults.fail_next(Fault::Full);
        let refused = seat.answer(gate, reply.clone()).await;
        assert_eq!(code(&refused), "store_unavailable");
        seat.answer(gate, reply).await.unwrap();
        world.gates.await_gate_answer(gate).await.unwrap();
    }
    assert!(logs.count(tracing::Level::ERROR) > 0, "it is collected");
    assert!(logs.levels_of("s3cret").is_empty());
}
