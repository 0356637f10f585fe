//! Shutting a session down and taking it up again (S94, S102, S118, I40).

use crate::scenes::{idle, turn_running};
use crate::support::{Seat, World, code, forward, joined, patient, until};
use harness_core::provider::Refusal;
use harness_core::refusal::Refused;
use harness_core::view::Status;
use harness_journal::fault::Fault;
use harness_session::{Caller, Item, ShutDown, Start};
use std::time::Duration;
use tokio::task::JoinHandle;

impl Seat {
    fn shuts_down(&self) -> JoinHandle<Result<ShutDown, Refused>> {
        let (host, id) = (self.host.clone(), self.id);
        tokio::spawn(async move { host.shutdown_session(id, Caller::default()).await })
    }
}

#[tokio::test]
async fn s94_i40_concurrent_shutdowns_share_one_result() {
    let scene = turn_running().await;
    let seat = scene.seat.clone();
    seat.prompt("waits").await;
    let calls: Vec<_> = (0..4).map(|_| seat.shuts_down()).collect();
    for call in calls {
        assert_eq!(joined(call).await.unwrap(), ShutDown::default());
    }
    assert_eq!(seat.status().await, Status::Stopped);
    let types = seat.types().await;
    assert_eq!(types.last().unwrap(), "SessionStopped");
    for once in ["SessionStopped", "TurnInterrupted", "InputCancelled"] {
        assert_eq!(seat.count(once).await, 1, "{once}");
    }
    assert_eq!(code(&seat.try_prompt("no").await), "session_stopped");
    assert_eq!(seat.refusal("/c no").await, "session_stopped");
    let again = joined(seat.shuts_down()).await;
    assert_eq!(again.unwrap(), ShutDown::default(), "S118: already stopped");
    assert_eq!(seat.types().await, types, "I40: nothing after it");
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn s102_a_stopped_session_gives_its_lease_back_and_is_taken_up_again() {
    let scene = idle().await;
    let (world, seat) = (scene.world, scene.seat);
    joined(seat.shuts_down()).await.unwrap();
    let host = world.host.clone();
    until("a parked session", || host.live_sessions() == 0).await;
    let world = world.restart().await;
    let seat = world.seat(seat.id);
    assert_eq!(seat.status().await, Status::Stopped);
    let calls = (0..3).map(|_| seat.host.restore(seat.id, Caller::default()));
    let rows = patient("a restore", futures::future::join_all(calls)).await;
    for row in rows {
        assert_ne!(row.unwrap().status, Status::Stopped);
    }
    assert_eq!(seat.count("RestoreDone").await, 1, "concurrent calls join");
    seat.prompt("again").await;
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn s94_i40_a_wedged_loop_costs_its_phase_alone() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    seat.prompt("wedged").await;
    let wedged = world.probe.prompts.next().await;
    wedged.ignores_abort();
    world
        .probe
        .hold_end
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let call = seat.shuts_down();
    wedged.aborted().await;
    forward(Duration::from_millis(9_900)).await;
    assert_ne!(seat.status().await, Status::Stopped);
    forward(Duration::from_millis(200)).await;
    seat.until(Status::Stopped).await;
    assert!(!call.is_finished(), "its instance has a phase of its own");
    forward(Duration::from_millis(10_100)).await;
    let how = joined(call).await.unwrap();
    assert_eq!(how.expired_phases, ["loops", "instances"]);
    let types = seat.types().await;
    wedged.instance.reap();
    wedged.refuses(Refusal::Cancelled);
    forward(Duration::from_millis(100)).await;
    assert_eq!(seat.types().await, types, "nothing after SessionStopped");
    assert_eq!(types.last().unwrap(), "SessionStopped");
}

#[tokio::test]
async fn s94_a_faulted_session_is_torn_down_and_says_so() {
    let scene = turn_running().await;
    let seat = scene.seat.clone();
    scene.world.faults.fail_next(Fault::Full);
    let how = joined(seat.shuts_down()).await;
    assert_eq!(
        code(&how),
        "store_unavailable",
        "the intent was not written"
    );
    let how = joined(seat.shuts_down()).await;
    assert_eq!(code(&how), "session_faulted");
    let instance = scene.world.probe.instances.lock().unwrap()[0].clone();
    until("a disposed instance", || {
        !instance.disposals.lock().unwrap().is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn s94_a_notification_that_was_due_is_not_shown_after_the_stop() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    forward(Duration::from_secs(1)).await;
    let mut subscription = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    subscription.next().await.unwrap();
    let instance = world.probe.instance();
    // The first is shown at once, the second is held back by its rate (G7).
    for _ in 0..2 {
        instance.host.state_changed();
        forward(Duration::from_millis(20)).await;
    }
    joined(seat.shuts_down()).await.unwrap();
    forward(Duration::from_secs(1)).await;
    let mut seen = Vec::new();
    while let std::task::Poll::Ready(Some(Item::Frame(frame))) =
        futures::poll!(Box::pin(subscription.next()))
    {
        seen.push(frame.name);
    }
    assert_eq!(seen, ["command_state_changed", "SessionStopped"]);
}
