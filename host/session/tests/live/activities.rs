//! Activities: native work between turns, which Stop reaches (N2, N5, N13, W5).

use crate::scenes::idle;
use crate::support::{World, breathe, code, forward, joined, patient};
use harness_core::abort::AbortReason;
use harness_core::provider::CallError;
use std::time::Duration;

#[tokio::test]
async fn n13_stop_reaches_an_open_activity() {
    let scene = idle().await;
    let instance = scene.world.probe.instance();
    let signal = instance.begin_activity("goal");
    scene
        .seat
        .until_row("an activity", |r| r.activities == ["goal"])
        .await;
    let stop = scene.seat.stop();
    assert_eq!(
        patient("abort", signal.aborted()).await,
        AbortReason::UserStop
    );
    breathe().await;
    assert!(!stop.is_finished(), "it waits for the handles");
    instance.end_activity("goal");
    assert!(joined(stop).await.unwrap(), "interrupted: true");
    assert!(scene.seat.view().await.activities.is_empty());
    assert!(!scene.seat.stopped().await);
    scene.finish().await;
}

#[tokio::test]
async fn n13_an_activity_counts_before_the_actor_saw_it() {
    let scene = idle().await;
    let instance = scene.world.probe.instance();
    instance.begin_activity("goal");
    let stop = scene.seat.stop();
    breathe().await;
    instance.end_activity("goal");
    assert!(joined(stop).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn n13_w5_an_activity_that_ignores_its_abort_costs_the_instance() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let instance = world.probe.instance();
    instance.begin_activity("deaf");
    seat.until_row("an activity", |r| r.activities.len() == 1)
        .await;
    let stop = seat.stop();
    forward(Duration::from_secs(4)).await;
    assert!(!stop.is_finished());
    forward(Duration::from_secs(2)).await;
    assert!(joined(stop).await.unwrap());
    assert_eq!(*instance.disposals.lock().unwrap(), [AbortReason::UserStop]);
    assert!(seat.view().await.activities.is_empty());
}

#[tokio::test(start_paused = true)]
async fn n13_a_later_activity_is_not_ended_by_an_earlier_stop() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let instance = world.probe.instance();
    instance.begin_activity("first");
    let stop = seat.stop();
    breathe().await;
    instance.end_activity("first");
    assert!(joined(stop).await.unwrap());
    let operation = seat.operate("/c go on");
    world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    let signal = instance.begin_activity("second");
    forward(Duration::from_secs(10)).await;
    assert_eq!(signal.reason(), None);
    assert!(instance.disposals.lock().unwrap().is_empty());
    assert_eq!(seat.view().await.activities, ["second"]);
}

#[tokio::test(start_paused = true)]
async fn n5_an_activity_has_a_longest_life() {
    let world = World::still(|c| c.activity_life = Duration::from_secs(60)).await;
    let seat = world.idle().await;
    let instance = world.probe.instance();
    let signal = instance.begin_activity("long");
    forward(Duration::from_secs(59)).await;
    assert_eq!(signal.reason(), None);
    forward(Duration::from_secs(2)).await;
    assert_eq!(signal.reason(), Some(AbortReason::Deadline));
    forward(Duration::from_secs(6)).await;
    assert_eq!(
        instance.disposals.lock().unwrap().len(),
        1,
        "it did not end by itself"
    );
    seat.until_row("no activity", |r| r.activities.is_empty())
        .await;
}

#[tokio::test]
async fn n2_w1_an_instance_that_dies_between_turns_changes_no_row() {
    let scene = idle().await;
    let row = scene.seat.view().await;
    let instance = scene.world.probe.instance();
    instance.begin_activity("goal");
    scene
        .seat
        .until_row("an activity", |r| !r.activities.is_empty())
        .await;
    instance.dies(CallError::Lost("exit".into()));
    scene
        .seat
        .until_row("none", |r| r.activities.is_empty())
        .await;
    assert_eq!(scene.seat.status().await, row.status);
    assert_eq!(
        code(&scene.seat.host.command_state(scene.seat.id).await),
        "ok"
    );
    assert_eq!(scene.world.probe.loop_instances(), 2);
}
