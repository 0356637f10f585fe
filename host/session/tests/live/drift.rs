//! Sessions whose configuration has drifted when they are taken up (§6.1 step 2, I39).

use crate::scenes::{idle, turn_running};
use crate::support::decider::Script;
use crate::support::{Seat, World, breathe, code, forward, until};
use harness_core::refusal::Refused;
use harness_journal::RecordKind;
use std::time::Duration;

/// A settled session whose harness is another one after the restart, not taken up yet.
async fn drifted() -> (World, Seat) {
    let scene = idle().await;
    let id = scene.seat.id;
    another_harness(&scene.world);
    let world = scene.world.restart().await;
    let seat = world.seat(id);
    (world, seat)
}

fn another_harness(world: &World) {
    *world.probe.declares.lock().unwrap() = Some("else/where".parse().unwrap());
}

async fn open(seat: &Seat) -> Result<(), Refused> {
    seat.host.snapshot(seat.id).await.map(drop)
}

#[tokio::test]
async fn i39_until_the_verdict_nothing_but_the_fence_is_written() {
    let (world, seat) = drifted().await;
    world.decider.does(Script::Silent);
    let before = world.kinds(seat.id).await;
    let opening = {
        let seat = seat.clone();
        tokio::spawn(async move { open(&seat).await })
    };
    until("the question", || world.decider.asked() == 1).await;
    breathe().await;
    let after = world.kinds(seat.id).await;
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!(after.last(), Some(&RecordKind::Fence));
    opening.abort();
}

#[tokio::test]
async fn i39_a_drift_that_is_rejected_opens_no_session() {
    let scene = turn_running().await;
    let id = scene.seat.id;
    another_harness(&scene.world);
    let world = scene.world.restart().await;
    let seat = world.seat(id);
    assert_eq!(
        *world.decider.asked.lock().unwrap(),
        ["what is installed as `demo/probe` is the harness `else/where` now, not `demo/probe`"],
        "at the start, because a turn was open"
    );
    let types = seat.types().await;
    assert_eq!(types.last().unwrap(), "RestoreErrored:restore_failed");
    assert!(
        !types.iter().any(|t| t.starts_with("TurnInterrupted")),
        "nothing is repaired"
    );
    let refused = open(&seat).await.unwrap_err();
    assert_eq!(refused.code(), "restore_failed");
    let words = refused.to_string();
    assert!(words.contains("else/where"), "{words}");
    assert!(words.contains("drift = \"accept\""), "the remedy: {words}");
    assert!(!refused.retryable());
    assert_eq!(code(&seat.try_prompt("go on").await), "restore_failed");
    // The row can be read and says why.
    let row = seat.view().await;
    assert_eq!(row.error.unwrap().code, "restore_failed");
    // Asking again makes the journal no longer.
    let kinds = world.kinds(id).await.len();
    assert_eq!(code(&open(&seat).await), "restore_failed");
    assert_eq!(world.kinds(id).await.len(), kinds);
    // The same workspace and harness again: it is taken up, and the row is clean.
    *world.probe.declares.lock().unwrap() = None;
    let world = world.restart().await;
    let seat = world.seat(id);
    assert_eq!(seat.last_end().await, "TurnInterrupted:host_lost");
    assert_eq!(seat.view().await.error, None);
}

#[tokio::test]
async fn i39_a_session_that_cannot_be_opened_can_be_deleted() {
    let (world, seat) = drifted().await;
    assert_eq!(code(&open(&seat).await), "restore_failed");
    seat.host.delete(seat.id).await.unwrap();
    assert_eq!(code(&open(&seat).await), "session_not_found");
    assert!(world.listed().await.is_empty());
}

#[tokio::test]
async fn i39_a_decider_that_fails_or_panics_rejects() {
    for (script, why) in [
        (Script::Fails, "the decider failed: no policy"),
        (Script::Panics, "the decider failed"),
    ] {
        let (world, seat) = drifted().await;
        world.decider.does(script);
        let refused = open(&seat).await.unwrap_err();
        assert_eq!(refused.code(), "restore_failed");
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn i39_a_decider_that_is_silent_rejects_after_30_s() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    another_harness(&world);
    let world = world.restart().await;
    let seat = world.seat(seat.id);
    world.decider.does(Script::Silent);
    let opening = tokio::spawn({
        let seat = seat.clone();
        async move { open(&seat).await }
    });
    until("the question", || world.decider.asked() == 1).await;
    forward(Duration::from_secs(29)).await;
    assert!(!opening.is_finished());
    forward(Duration::from_secs(2)).await;
    let refused = crate::support::joined(opening).await.unwrap_err();
    assert!(refused.to_string().contains("in time"), "{refused}");
    // Not tried again for a while, then it is.
    assert_eq!(code(&open(&seat).await), "restore_failed");
    assert_eq!(world.decider.asked(), 1);
    world.decider.does(Script::Accept);
    forward(Duration::from_secs(11)).await;
    open(&seat).await.unwrap();
    assert_eq!(world.decider.asked(), 2);
}

#[tokio::test]
async fn i39_an_accepted_drift_is_adopted_and_not_asked_again() {
    let (world, seat) = drifted().await;
    world.decider.does(Script::Accept);
    open(&seat).await.unwrap();
    let events = seat.events().await;
    let adopted = events
        .iter()
        .find(|e| e["type"] == "ConfigurationAdopted")
        .unwrap();
    assert_eq!(adopted["epoch"], 1);
    let harness = &adopted["configuration"]["harnesses"]["demo/probe"];
    assert_eq!(harness["declares"], "else/where");
    seat.prompt("works").await;
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    seat.until(harness_core::view::Status::Completed).await;
    let world = world.restart().await;
    let seat = world.seat(seat.id);
    open(&seat).await.unwrap();
    assert_eq!(world.decider.asked(), 1);
    assert_eq!(seat.count("ConfigurationAdopted").await, 1);
}

#[tokio::test]
async fn i39_another_version_is_adopted_without_a_question() {
    let scene = idle().await;
    let id = scene.seat.id;
    let started = &scene.seat.events().await[0];
    let root = started["configuration"]["workspace_root"].as_str().unwrap();
    assert!(root.ends_with("/work"), "{root}");
    scene.world.probe.declare(|info| info.version = "2".into());
    let world = scene.world.restart().await;
    let seat = world.seat(id);
    open(&seat).await.unwrap();
    assert_eq!(world.decider.asked(), 0);
    let types = seat.types().await;
    let tail: Vec<_> = types.iter().rev().take(3).rev().collect();
    assert_eq!(
        tail,
        ["RestoreStarted", "ConfigurationAdopted", "RestoreDone"]
    );
    // The same once more: the fence and nothing else.
    let before = world.kinds(id).await.len();
    let world = world.restart().await;
    open(&world.seat(id)).await.unwrap();
    assert_eq!(world.kinds(id).await.len(), before + 1);
}
