//! Race matrix (requirements-operations §7.2), columns prompt and gate answer.

use crate::scenes::*;
use crate::support::{code, joined};
use harness_core::gate::{ApprovalDecision, GateReply};
use harness_core::ids::GateId;
use harness_core::view::Status;

/// The prompt is queued, and starts when what runs has ended.
async fn queues(scene: Scene) {
    let (seat, probe) = (scene.seat.clone(), scene.world.probe.clone());
    let prompts = probe.prompts.count();
    let id = seat.prompt("next").await;
    let queue = seat.queue().await;
    assert_eq!(queue.last().unwrap().command_id, id);
    assert!(!queue.last().unwrap().held);
    assert_eq!(probe.prompts.count(), prompts, "it must not start yet");
    let finishing = tokio::spawn(scene.finish());
    let call = probe.prompts.next().await;
    assert_eq!(call.command, id);
    call.starts();
    probe.dones.next().await.ends();
    joined(finishing).await;
    assert!(seat.queue().await.is_empty());
    seat.until(Status::Completed).await;
}

/// No gate of that id.
async fn no_gate(scene: Scene) {
    let unknown = GateId(uuid::Uuid::now_v7());
    let result = scene.seat.answer(unknown, GateReply::ApproveOnce).await;
    assert_eq!(code(&result), "gate_not_found");
    scene.finish().await;
}

/// An approval asked through that call is answered and reaches it.
async fn delivers(scene: Scene, channel: std::sync::Arc<dyn harness_core::provider::Channel>) {
    let before = scene.seat.view().await;
    let approval = ask(channel);
    let gate = scene.seat.gate().await;
    scene.seat.until(Status::AwaitingInput).await;
    let reply = GateReply::Deny(Some("no".into()));
    let delivery = scene.seat.answer(gate.gate_id, reply).await.unwrap();
    assert_eq!(delivery, harness_session::Delivery::Acknowledged);
    let decision = joined(approval).await.unwrap();
    assert_eq!(decision, ApprovalDecision::Deny(Some("no".into())));
    let after = scene.seat.view().await;
    assert_eq!((after.status, after.run_id), (before.status, before.run_id));
    scene.finish().await;
}

#[tokio::test]
async fn race_idle_prompt() {
    let scene = idle().await;
    let id = scene.seat.prompt("go").await;
    let call = scene.world.probe.prompts.next().await;
    assert_eq!(call.command, id);
    assert_eq!(scene.seat.status().await, Status::InProgress);
    call.starts();
    scene.world.probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    scene.finish().await;
}

#[tokio::test]
async fn race_idle_prompt_without_a_slot() {
    // Being queued is the state of `queued`; the slot starts it.
    let (scene, holder) = queued().await;
    assert_eq!(scene.seat.queue().await.len(), 1);
    holder.finish().await;
    scene.world.probe.prompts.next().await.starts();
    scene.world.probe.dones.next().await.ends();
    scene.finish().await;
}

#[tokio::test]
async fn race_queued_prompt() {
    let (scene, holder) = queued().await;
    scene.seat.prompt("second").await;
    assert_eq!(scene.seat.queue().await.len(), 2);
    holder.finish().await;
    for _ in 0..2 {
        scene.world.probe.prompts.next().await.starts();
        scene.world.probe.dones.next().await.ends();
    }
    scene.seat.until(Status::Completed).await;
    scene.finish().await;
}

#[tokio::test]
async fn race_prompt_starting_prompt() {
    queues(prompt_starting().await).await;
}

#[tokio::test]
async fn race_exclusive_starting_prompt() {
    queues(exclusive_starting().await).await;
}

#[tokio::test]
async fn race_turn_running_prompt() {
    queues(turn_running().await).await;
}

#[tokio::test]
async fn race_idle_control_running_prompt() {
    queues(idle_control().await).await;
}

#[tokio::test]
async fn race_awaiting_gate_prompt() {
    // It is never taken as the answer (R76).
    let scene = awaiting_gate().await;
    let seat = scene.seat.clone();
    seat.prompt("yes").await;
    assert_eq!(seat.status().await, Status::AwaitingInput);
    seat.host
        .retract(
            seat.id,
            Default::default(),
            seat.queue().await[0].command_id,
        )
        .await
        .unwrap();
    queues(scene).await;
}

#[tokio::test]
async fn race_turn_ended_prompt() {
    queues(turn_ended().await).await;
}

#[tokio::test]
async fn race_stopping_prompt_i32() {
    let scene = stopping().await;
    let seat = scene.seat.clone();
    queues(scene).await;
    let types = seat.types().await;
    let at = |what: &str| types.iter().rposition(|t| t == what).unwrap();
    let idle = types
        .iter()
        .position(|t| t == "TurnInterrupted:user")
        .unwrap();
    let rest = types[idle..]
        .iter()
        .position(|t| t == "SessionIdle")
        .unwrap()
        + idle;
    assert!(rest < at("TurnStarted"), "first idle is durable: {types:?}");
}

#[tokio::test]
async fn race_faulted_prompt() {
    let scene = faulted().await;
    assert_eq!(code(&scene.seat.try_prompt("x").await), "session_faulted");
    scene.finish().await;
}

#[tokio::test]
async fn race_idle_gate() {
    no_gate(idle().await).await;
}

#[tokio::test]
async fn race_prompt_starting_gate() {
    no_gate(prompt_starting().await).await;
}

#[tokio::test]
async fn race_turn_running_gate() {
    no_gate(turn_running().await).await;
}

#[tokio::test]
async fn race_exclusive_starting_gate() {
    let scene = exclusive_starting().await;
    let Runner::Invoking(call, _) = &scene.runner else {
        unreachable!()
    };
    let channel = call.channel();
    delivers(scene, channel).await;
}

#[tokio::test]
async fn race_idle_control_running_gate() {
    let scene = idle_control().await;
    let Runner::Invoking(call, _) = &scene.runner else {
        unreachable!()
    };
    let channel = call.channel();
    delivers(scene, channel).await;
}

#[tokio::test]
async fn race_turn_ended_gate() {
    let scene = turn_ended().await;
    let channel = scene.beside.as_ref().unwrap().0.channel();
    delivers(scene, channel).await;
}

#[tokio::test]
async fn race_awaiting_gate_gate_s82() {
    let mut scene = awaiting_gate().await;
    let (gate, approval) = scene.gate.take().unwrap();
    let one = scene.seat.answer(gate.gate_id, GateReply::ApproveOnce);
    let two = scene.seat.answer(gate.gate_id, GateReply::Deny(None));
    let (one, two) = tokio::join!(one, two);
    let lost = [&one, &two].into_iter().filter(|r| r.is_err());
    assert_eq!(lost.count(), 1, "{one:?} {two:?}");
    let won = one.is_ok();
    let loser = if won { &two } else { &one };
    assert!(matches!(code(loser), "gate_not_found" | "gate_not_ready"));
    let decision = joined(approval).await.unwrap();
    assert_eq!(decision == ApprovalDecision::ApproveOnce, won);
    assert_eq!(scene.seat.status().await, Status::InProgress);
    scene.finish().await;
}

#[tokio::test]
async fn race_stopping_gate() {
    let mut scene = awaiting_gate().await;
    if let Runner::Running(call) = &scene.runner {
        call.ignores_abort();
        scene.stop = Some(scene.seat.stop());
        call.aborted().await;
    }
    let (gate, approval) = scene.gate.take().unwrap();
    assert!(joined(approval).await.is_err(), "the ask rejects (R67)");
    let late = scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveOnce)
        .await;
    assert_eq!(code(&late), "gate_not_found");
    scene.finish().await;
}

#[tokio::test]
async fn race_faulted_gate() {
    let scene = faulted().await;
    let unknown = GateId(uuid::Uuid::now_v7());
    let result = scene.seat.answer(unknown, GateReply::ApproveOnce).await;
    assert_eq!(code(&result), "session_faulted");
    scene.finish().await;
}
