//! Race matrix (requirements-operations §7.2), columns control and exclusive.

use crate::scenes::*;
use crate::support::{joined, patient};
use harness_core::view::{OutcomeStatus, Status};

/// A control joins the live owner: no slot, no status, no run of its own (R62).
async fn attaches(scene: Scene) -> Scene {
    let before = scene.seat.view().await;
    let operation = scene.seat.operate("/c join");
    let call = scene.world.probe.invokes.next().await;
    assert_eq!(scene.seat.status().await, before.status);
    say(&call.channel(), "joined").await.unwrap();
    call.completes("reply");
    let result = joined(operation).await.unwrap();
    assert_eq!(result.status, OutcomeStatus::Completed);
    assert_eq!(result.message.as_deref(), Some("reply"));
    assert_eq!(result.run_id, None, "an attached control has no run (R62)");
    let after = scene.seat.view().await;
    assert_eq!((after.status, after.run_id), (before.status, before.run_id));
    assert!(scene.seat.texts().await.contains(&"joined".into()));
    scene
}

/// Refused, its invoke is never called and what was prepared goes back.
async fn refuses(scene: Scene, text: &str, code: &str) -> Scene {
    use std::sync::atomic::Ordering::SeqCst;
    let probe = &scene.world.probe;
    let (calls, types) = (probe.native_calls(), scene.seat.types().await);
    let (prepared, discarded) = (
        probe.prepared.lock().unwrap().len(),
        probe.discards.load(SeqCst),
    );
    assert_eq!(scene.seat.refusal(text).await, code);
    assert_eq!(probe.native_calls(), calls, "invoke was called");
    assert_eq!(scene.seat.types().await, types, "something was recorded");
    let prepared = probe.prepared.lock().unwrap().len() - prepared;
    assert_eq!(probe.discards.load(SeqCst) - discarded, prepared);
    scene
}

#[tokio::test]
async fn race_idle_control_r63() {
    let scene = idle().await;
    let operation = scene.seat.operate("/c again");
    let call = scene.world.probe.invokes.next().await;
    scene.seat.until(Status::InProgress).await;
    assert_eq!(scene.world.host.free_slots(), 1, "a control takes no slot");
    call.completes("done");
    let result = joined(operation).await.unwrap();
    assert_eq!(result.status, OutcomeStatus::Completed);
    let row = scene.seat.view().await;
    assert_eq!(row.status, Status::Completed);
    assert_eq!(result.run_id, row.run_id);
    assert_eq!(scene.seat.count("TurnStarted").await, 0);
    scene.finish().await;
}

#[tokio::test]
async fn race_idle_exclusive_r60() {
    let scene = idle().await;
    let operation = scene.seat.operate("/x go");
    let call = scene.world.probe.invokes.next().await;
    assert_eq!(scene.world.host.free_slots(), 0);
    call.starts();
    let result = joined(operation).await.unwrap();
    assert_eq!(result.status, OutcomeStatus::Started);
    assert_eq!(scene.seat.status().await, Status::InProgress, "R29");
    scene.world.probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    scene.finish().await;
}

#[tokio::test]
async fn race_idle_exclusive_without_a_slot_r60() {
    let running = turn_running().await;
    let other = running.world.idle().await;
    let before = other.view().await;
    assert_eq!(other.refusal("/x go").await, "no_free_slot");
    assert_eq!(other.view().await.status, before.status);
    running.finish().await;
}

#[tokio::test]
async fn race_queued_control_r63() {
    let (scene, holder) = queued().await;
    let operation = scene.seat.operate("/c now");
    let call = scene.world.probe.invokes.next().await;
    scene.seat.until(Status::InProgress).await;
    call.completes("");
    joined(operation).await.unwrap();
    assert_eq!(scene.seat.status().await, Status::Queued);
    holder.finish().await;
    scene.world.probe.prompts.next().await.starts();
    scene.world.probe.dones.next().await.ends();
    scene.finish().await;
}

#[tokio::test]
async fn race_queued_exclusive() {
    let (scene, holder) = queued().await;
    let scene = refuses(scene, "/x go", "session_busy").await;
    holder.finish().await;
    scene.world.probe.prompts.next().await.starts();
    scene.world.probe.dones.next().await.ends();
    scene.finish().await;
}

#[tokio::test]
async fn race_prompt_starting_control_r65() {
    let mut scene = prompt_starting().await;
    let operation = scene.seat.operate("/c wait");
    let calls = scene.world.probe.invokes.count();
    crate::support::breathe().await;
    assert!(!operation.is_finished());
    assert_eq!(scene.world.probe.invokes.count(), calls, "it waits");
    if let Runner::Starting(call) = std::mem::replace(&mut scene.runner, Runner::None) {
        call.starts();
    }
    scene.runner = Runner::Running(scene.world.probe.dones.next().await);
    let call = scene.world.probe.invokes.next().await;
    call.completes("attached");
    let result = joined(operation).await.unwrap();
    assert_eq!(
        (result.status, result.run_id),
        (OutcomeStatus::Completed, None)
    );
    scene.finish().await;
}

#[tokio::test]
async fn race_prompt_starting_control_startup_fails_r65() {
    let mut scene = prompt_starting().await;
    let operation = scene.seat.operate("/c wait");
    crate::support::breathe().await;
    let calls = scene.world.probe.invokes.count();
    if let Runner::Starting(call) = std::mem::replace(&mut scene.runner, Runner::None) {
        call.refuses(harness_core::provider::Refusal::Native("no".into()));
    }
    assert_eq!(
        crate::support::code(&joined(operation).await),
        "session_busy"
    );
    assert_eq!(scene.world.probe.invokes.count(), calls);
    scene.seat.until(Status::Failed).await;
    scene.finish().await;
}

#[tokio::test]
async fn race_prompt_starting_exclusive() {
    let scene = prompt_starting().await;
    refuses(scene, "/x go", "session_busy").await.finish().await;
}

#[tokio::test]
async fn race_exclusive_starting_control_r65() {
    attaches(exclusive_starting().await).await.finish().await;
}

#[tokio::test]
async fn race_exclusive_starting_exclusive() {
    let scene = exclusive_starting().await;
    refuses(scene, "/x go", "session_busy").await.finish().await;
}

#[tokio::test]
async fn race_turn_running_control_i8() {
    attaches(turn_running().await).await.finish().await;
}

#[tokio::test]
async fn race_turn_running_exclusive_r64_i8() {
    let scene = refuses(turn_running().await, "/x go", "session_busy").await;
    let seat = scene.seat.clone();
    scene.finish().await;
    assert_eq!(seat.last_end().await, "TurnDone", "the turn ends normally");
}

#[tokio::test]
async fn race_idle_control_running_control() {
    attaches(idle_control().await).await.finish().await;
}

#[tokio::test]
async fn race_idle_control_running_exclusive() {
    let scene = idle_control().await;
    refuses(scene, "/x go", "session_busy").await.finish().await;
}

#[tokio::test]
async fn race_awaiting_gate_control() {
    attaches(awaiting_gate().await).await.finish().await;
}

#[tokio::test]
async fn race_awaiting_gate_exclusive() {
    let scene = awaiting_gate().await;
    refuses(scene, "/x go", "session_busy").await.finish().await;
}

#[tokio::test]
async fn race_turn_ended_control_r66() {
    // While the owner is open it attaches, and its reply comes before the turn's end.
    let scene = attaches(turn_ended().await).await;
    let (seat, probe) = (scene.seat.clone(), scene.world.probe.clone());
    let operation = seat.operate("/c late");
    let call = probe.invokes.next().await;
    assert_eq!(seat.count("TurnDone").await, 0);
    let finishing = tokio::spawn(scene.finish());
    say(&call.channel(), "late").await.unwrap();
    call.completes("");
    assert_eq!(joined(operation).await.unwrap().run_id, None);
    patient("the end", finishing).await.unwrap();
    // After the close it takes the idle path.
    let operation = seat.operate("/c after");
    probe.invokes.next().await.completes("");
    assert!(joined(operation).await.unwrap().run_id.is_some());
}

#[tokio::test]
async fn race_turn_ended_exclusive() {
    let scene = turn_ended().await;
    refuses(scene, "/x go", "session_busy").await.finish().await;
}

#[tokio::test]
async fn race_stopping_control_i11() {
    let scene = stopping().await;
    refuses(scene, "/c x", "session_stopping")
        .await
        .finish()
        .await;
}

#[tokio::test]
async fn race_stopping_exclusive_i11() {
    let scene = stopping().await;
    refuses(scene, "/x go", "session_stopping")
        .await
        .finish()
        .await;
}

#[tokio::test]
async fn race_faulted_control() {
    let scene = faulted().await;
    let scene = refuses(scene, "/c x", "session_faulted").await;
    scene.finish().await;
}

#[tokio::test]
async fn race_faulted_exclusive() {
    let scene = faulted().await;
    let scene = refuses(scene, "/x go", "session_faulted").await;
    scene.finish().await;
}
