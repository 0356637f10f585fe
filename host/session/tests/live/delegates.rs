//! Delegates of live sessions: through the channel and the link of a running provider (S72, S76,
//! S77, S91, S92, S94, S96, I38, I39).

use crate::support::probe::{Call, Probe};
use crate::support::{Seat, World, breathe, forward, joined, patient};
use harness_core::content::Part;
use harness_core::event::DeliveryState;
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::{
    DelegateStart, DelegateTask, Delegation, DelegationError, MAX_SPAWNS, Outcome, Refusal,
    StartedDelegate,
};
use harness_core::view::{LoopStanding, Status};
use harness_journal::fault::Fault;
use std::sync::Arc;
use std::time::Duration;

fn task(text: &str, background: bool) -> DelegateTask {
    DelegateTask {
        parts: vec![Part::Text { text: text.into() }],
        background,
        fold: false,
    }
}

fn start_on(harness: &Arc<Probe>, text: &str, background: bool) -> DelegateStart {
    DelegateStart {
        harness: harness.harness_id(),
        model: None,
        mode: String::new(),
        task: task(text, background),
    }
}

fn authority<T>(call: &Call<T>) -> Arc<dyn Delegation> {
    call.channel().delegation().expect("a session delegates")
}

async fn delegating() -> World {
    delegating_with(4).await
}

async fn delegating_with(slots: usize) -> World {
    let world = World::with(|config| config.slots = slots).await;
    for probe in [&world.probe, &world.other] {
        probe.declare(|info| info.features.delegation = true);
    }
    world
}

/// A parent whose turn runs.
async fn parent(world: &World) -> (Seat, Call<Outcome>) {
    let seat = world.idle().await;
    seat.prompt("go").await;
    world.probe.prompts.next().await.starts();
    (seat, world.probe.dones.next().await)
}

/// A child on the other harness, whose turn runs.
async fn child(
    world: &World,
    parent: &Call<Outcome>,
    background: bool,
) -> (StartedDelegate, Call<Outcome>) {
    let start = start_on(&world.other, "dig", background);
    let started = patient("a delegate", authority(parent).start(start)).await;
    world.other.prompts.next().await.starts();
    (started.unwrap(), world.other.dones.next().await)
}

async fn says(call: &Call<Outcome>, text: &str) {
    let message = harness_core::content::NewMessage {
        role: harness_core::content::Role::Assistant,
        parts: vec![Part::Text { text: text.into() }],
    };
    patient("an append", call.channel().append(message))
        .await
        .unwrap();
}

#[tokio::test]
async fn s96_a_result_is_awaited_while_the_child_works() {
    let world = delegating().await;
    let (seat, parent) = parent(&world).await;
    let (started, child) = child(&world, &parent, false).await;
    let of = authority(&parent);
    let waiting = tokio::spawn(async move {
        of.await_result(started.request_id, Duration::from_secs(60))
            .await
    });
    breathe().await;
    says(&child, "gold").await;
    child.ends();
    let result = joined(waiting).await.unwrap().expect("in time");
    assert_eq!(
        (result.state, &*result.text),
        (DeliveryState::Completed, "gold")
    );
    assert_eq!(result.loop_id, started.loop_id);
    let loops = seat.host.loops(seat.id).await.unwrap();
    let of = loops
        .iter()
        .find(|l| l.view.loop_id == started.loop_id)
        .unwrap();
    assert_eq!(
        of.view.parent_loop_id,
        Some(seat.view().await.active_loop_id)
    );
    assert_eq!(of.view.state, LoopStanding::Open);
    parent.ends();
    seat.until(Status::Completed).await;
    world.pool_is_whole().await;
}

#[tokio::test(start_paused = true)]
async fn s96_a_wait_that_times_out_leaves_the_child_running() {
    let world = World::still(|config| config.slots = 4).await;
    for probe in [&world.probe, &world.other] {
        probe.declare(|info| info.features.delegation = true);
    }
    let (_, parent) = parent(&world).await;
    let (started, child) = child(&world, &parent, false).await;
    let of = authority(&parent);
    let waiting = tokio::spawn(async move {
        of.await_result(started.request_id, Duration::from_secs(5))
            .await
    });
    forward(Duration::from_secs(6)).await;
    assert_eq!(joined(waiting).await, Ok(None));
    assert_eq!(child.abort_reason(), None, "it goes on");
    says(&child, "gold").await;
    child.ends();
    let of = authority(&parent);
    let again = of.await_result(started.request_id, Duration::from_secs(5));
    let result = patient("the result", again).await.unwrap().unwrap();
    assert_eq!(result.text, "gold");
}

#[tokio::test]
async fn s96_a_background_result_comes_back_as_an_input() {
    let world = delegating().await;
    let (seat, parent) = parent(&world).await;
    let (started, child) = child(&world, &parent, true).await;
    parent.ends();
    says(&child, "gold").await;
    child.ends();
    let told = world.probe.prompts.next().await;
    assert!(told.text.contains("gold"), "{}", told.text);
    told.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    assert_eq!(hand_backs(&world, &seat).await, 1);
    let delivered = seat.events().await.into_iter().filter(|e| {
        e["type"] == "TurnStarted" && e["cause"]["loop_id"] == started.loop_id.to_string()
    });
    assert_eq!(delivered.count(), 1);
    assert_eq!(seat.count("SessionIdle").await, 2, "one for each busy time");
}

/// Hand-backs in the journal.
async fn hand_backs(world: &World, seat: &Seat) -> usize {
    commands(world, seat, "SubagentResult").await
}

async fn commands(world: &World, seat: &Seat, kind: &str) -> usize {
    use harness_journal::Journal;
    let page = world.store.read(seat.id, 1, 1000).await.unwrap();
    let named = format!("\"type\":\"{kind}\"");
    let of = page
        .records
        .iter()
        .filter(|r| String::from_utf8_lossy(&r.bytes).contains(&named));
    of.count()
}

#[tokio::test]
async fn s92_a_stopped_child_is_idle_and_usable() {
    let world = delegating().await;
    let (seat, parent) = parent(&world).await;
    let (started, child) = child(&world, &parent, false).await;
    let of = authority(&parent);
    let stopping = tokio::spawn(async move { of.stop(started.loop_id).await });
    child.aborted().await;
    drop(child);
    assert_eq!(joined(stopping).await, Ok(true));
    assert!(seat.types().await.contains(&"LoopIdle".to_owned()));
    assert_eq!(parent.abort_reason(), None);
    let of = authority(&parent);
    let idle = patient("a stop", of.stop(started.loop_id)).await;
    assert_eq!(idle, Ok(false), "nothing runs");
    let more = patient("a message", of.send(started.loop_id, task("more", false))).await;
    let again = world.other.prompts.next().await;
    assert_eq!(again.command, more.unwrap());
    assert!(again.text.contains("more"));
    again.starts();
    world.other.dones.next().await.ends();
    parent.ends();
    seat.until(Status::Completed).await;
    let instances = world.other.loop_instances();
    assert_eq!(instances, 1, "its runtime stayed");
}

#[tokio::test]
async fn s90_stop_ends_parent_and_child_and_wakes_nobody() {
    let world = delegating().await;
    let (seat, parent) = parent(&world).await;
    let (started, child) = child(&world, &parent, true).await;
    let of = authority(&parent);
    let waiting = tokio::spawn(async move {
        of.await_result(started.request_id, Duration::from_secs(60))
            .await
    });
    breathe().await;
    parent.ignores_abort();
    let stop = seat.stop();
    parent.aborted().await;
    assert_eq!(joined(waiting).await, Err(DelegationError::Stopped));
    let of = authority(&parent);
    let refused = patient("a start", of.start(start_on(&world.other, "x", false))).await;
    assert_eq!(refused, Err(DelegationError::Stopped));
    child.aborted().await;
    drop(child);
    parent.refuses(Refusal::Cancelled);
    assert!(joined(stop).await.unwrap());
    seat.until(Status::Cancelled).await;
    breathe().await;
    assert_eq!(world.probe.prompts.count(), 1, "nobody is woken");
    assert_eq!(hand_backs(&world, &seat).await, 1);
    world.pool_is_whole().await;
}

#[tokio::test]
async fn s94_the_link_has_no_authority_in_a_session_that_shut_down() {
    let world = delegating().await;
    let (seat, parent) = parent(&world).await;
    let of = parent.instance.host.delegation().unwrap();
    let start = start_on(&world.probe, "dig", false);
    assert!(patient("a start", of.start(start)).await.is_ok());
    let shut = {
        let (host, id) = (seat.host.clone(), seat.id);
        tokio::spawn(async move { host.shutdown_session(id, Default::default()).await })
    };
    parent.aborted().await;
    let start = start_on(&world.probe, "dig", false);
    let refused = patient("a start", of.start(start)).await;
    assert_eq!(refused, Err(DelegationError::Stopping));
    drop(parent);
    joined(shut).await.unwrap();
}

#[tokio::test]
async fn s96_typed_refusals_record_nothing() {
    let world = delegating().await;
    let (seat, parent) = parent(&world).await;
    let of = authority(&parent);
    let before = seat.view().await.last_seq;
    let mut start = start_on(&world.other, "dig", false);
    start.harness = "no/such".parse().unwrap();
    let unknown = patient("a start", of.start(start)).await;
    assert_eq!(
        unknown,
        Err(DelegationError::UnknownHarness("no/such".into()))
    );
    let mut start = start_on(&world.other, "dig", false);
    start.model = Some("no such".into());
    world.other.declare(|info| {
        info.models = vec![harness_core::provider::ModelSpec {
            id: "m".into(),
            label: "m".into(),
            efforts: Vec::new(),
        }];
    });
    let model = patient("a start", of.start(start)).await;
    assert!(
        matches!(model, Err(DelegationError::Invalid(_))),
        "{model:?}"
    );
    world.other.status.lock().unwrap().state = harness_core::provider::ProviderState::Quarantined;
    let start = start_on(&world.other, "dig", false);
    let away = patient("a start", of.start(start)).await;
    assert!(
        matches!(away, Err(DelegationError::Unavailable(_))),
        "{away:?}"
    );
    let other = patient("a message", of.send(LoopId::ZERO, task("x", false))).await;
    assert_eq!(other, Err(DelegationError::NotParent));
    let none = of.await_result(CommandId::ZERO, Duration::from_secs(1));
    assert_eq!(
        patient("a wait", none).await,
        Err(DelegationError::NotParent)
    );
    assert_eq!(seat.view().await.last_seq, before);
    world.faults.fail_at(world.faults.writes() + 1, Fault::Full);
    let start = start_on(&world.probe, "dig", false);
    let failed = patient("a start", of.start(start)).await;
    assert!(
        matches!(failed, Err(DelegationError::Failed(_))),
        "{failed:?}"
    );
    assert_eq!(
        seat.host.loops(seat.id).await.unwrap().len(),
        1,
        "no phantom loop"
    );
}

#[tokio::test]
async fn s96_a_full_pool_does_not_keep_a_foreground_delegate_waiting() {
    let world = delegating_with(1).await;
    let (seat, parent) = parent(&world).await;
    let of = authority(&parent);
    let start = start_on(&world.other, "dig", false);
    let started = patient("a delegate", of.start(start)).await.unwrap();
    breathe().await;
    assert_eq!(world.other.prompts.count(), 0, "the pool is full");
    let waiting = tokio::spawn(async move {
        of.await_result(started.request_id, Duration::from_secs(60))
            .await
    });
    world.other.prompts.next().await.starts();
    world.other.dones.next().await.ends();
    assert!(joined(waiting).await.unwrap().is_some());
    parent.ends();
    seat.until(Status::Completed).await;
    world.pool_is_whole().await;
}

#[tokio::test]
async fn i39_a_restart_does_not_refill_the_quota() {
    let world = delegating().await;
    let (seat, parent) = parent(&world).await;
    let of = authority(&parent);
    let start = start_on(&world.other, "dig", false);
    let first = patient("a delegate", of.start(start)).await.unwrap();
    drop(parent);
    let id = seat.id;
    let world = world.restart().await;
    let seat = world.seat(id);
    seat.until(Status::Disconnected).await;
    seat.prompt("go on").await;
    world.probe.prompts.next().await.starts();
    let parent = world.probe.dones.next().await;
    let of = authority(&parent);
    let cut = of.await_result(first.request_id, Duration::from_secs(1));
    let cut = patient("the result", cut).await.unwrap().unwrap();
    assert_eq!(cut.state, DeliveryState::Interrupted, "S73");
    for _ in 1..MAX_SPAWNS {
        let start = start_on(&world.other, "dig", false);
        patient("a delegate", of.start(start)).await.unwrap();
    }
    let over = patient("a start", of.start(start_on(&world.other, "dig", false))).await;
    assert_eq!(over, Err(DelegationError::Quota));
    let children = patient("a list", of.list()).await.unwrap();
    assert_eq!(children.len(), MAX_SPAWNS);
}

#[tokio::test]
async fn s77_a_child_whose_harness_is_gone_is_closed() {
    let world = delegating().await;
    let (seat, parent) = parent(&world).await;
    let (started, child) = child(&world, &parent, true).await;
    drop((parent, child));
    let id = seat.id;
    let harness = world.other.harness_id();
    world.shelf.0.lock().unwrap().remove(&harness);
    let world = world.restart().await;
    let seat = world.seat(id);
    let told = world.probe.prompts.next().await;
    assert!(told.text.contains("interrupted"), "{}", told.text);
    told.starts();
    let parent = world.probe.dones.next().await;
    let loops = seat.host.loops(id).await.unwrap();
    let of = loops
        .iter()
        .find(|l| l.view.loop_id == started.loop_id)
        .unwrap();
    assert_eq!(of.view.state, LoopStanding::Closed);
    let send = authority(&parent);
    let send = patient("a message", send.send(started.loop_id, task("x", false))).await;
    assert_eq!(send, Err(DelegationError::Exited));
    assert_eq!(seat.count("LoopTombstoned").await, 1);
}

/// The parent's turn starts a background delegate and ends; the delegate's result wakes it.
async fn a_life(seat: Seat, probe: Arc<Probe>) {
    seat.prompt("go").await;
    probe.prompts.next().await.starts();
    let parent = probe.dones.next().await;
    let start = start_on(&probe, "dig", true);
    authority(&parent).start(start).await.unwrap();
    probe.prompts.next().await.starts();
    let child = probe.dones.next().await;
    says(&child, "gold").await;
    child.ends();
    seat.until_row("the result", |row| row.queued == 1).await;
    parent.ends();
    probe.prompts.next().await.starts();
    probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
}

#[tokio::test]
async fn i38_crashes_at_every_write_hand_back_once() {
    let writes = {
        let world = delegating().await;
        let seat = world.idle().await;
        let before = world.faults.writes();
        patient("the life", a_life(seat, world.probe.clone())).await;
        world.faults.writes() - before
    };
    assert!(writes >= 5, "{writes}");
    for n in 1..=writes {
        for written in [false, true] {
            let at = format!("write {n} of {writes}, written: {written}");
            let world = delegating().await;
            let seat = world.idle().await;
            let crash = Fault::Crash { written };
            world.faults.fail_at(world.faults.writes() + n, crash);
            let faults = world.faults.clone();
            let life = tokio::spawn(a_life(seat.clone(), world.probe.clone()));
            patient("the crash", faults.crashed()).await;
            life.abort();
            let id = seat.id;
            let world = world.restart().await;
            let seat = world.seat(id);
            // The next life's provider answers what it is asked.
            let probe = world.probe.clone();
            let serving = tokio::spawn(async move {
                loop {
                    probe.prompts.next().await.starts();
                    probe.dones.next().await.ends();
                }
            });
            seat.until_row(&at, |row| {
                let live = [Status::InProgress, Status::Queued, Status::AwaitingInput];
                !live.contains(&row.status) || row.held > 0
            })
            .await;
            serving.abort();
            let accepted = seat.count("DelegateRequestAccepted").await;
            let handed = hand_backs(&world, &seat).await;
            assert_eq!(handed, accepted, "one request, one hand-back: {at}");
            let settled = seat.count("DelegateDeliveryStateChanged").await;
            assert_eq!(settled, accepted, "{at}");
        }
    }
}
