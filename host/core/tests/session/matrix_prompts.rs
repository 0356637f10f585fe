//! Race matrix (§7.2): prompts in every state.

use crate::scenes::{
    Scene, awaiting_gate, end, exclusive_starting, faulted, idle, idle_control, prompt_starting,
    queued, stopping, turn_ended, turn_running,
};
use crate::support::{Sim, code};
use harness_core::session::Effect;
use harness_core::view::Status;

fn starts(sim: &Sim) -> usize {
    sim.effect(|e| matches!(e, Effect::StartPrompt { .. }))
}

/// Accepted, shown as queued, and started once what runs has ended, never before.
fn queues(mut scene: Scene) {
    let before = (starts(&scene.sim), scene.sim.status());
    let id = scene.sim.prompt("later");
    let sim = &scene.sim;
    assert_eq!(
        (starts(sim), sim.status()),
        before,
        "it changes nothing that runs"
    );
    assert!(
        sim.session
            .state
            .queued_inputs()
            .iter()
            .any(|q| q.command_id == id && !q.held)
    );
    let shown = sim.effect(|e| matches!(e, Effect::Publish(event) if event.body.meta().name == "InputQueued" && event.cause.command_id == Some(id)));
    assert_eq!(shown, 1, "S40: listeners see that it waits");
    end(&mut scene);
    let sim = &scene.sim;
    assert_eq!(sim.ledger.resolution(id), Some("TurnStarted"));
    assert_eq!(starts(sim), before.0 + 1);
    assert_eq!(sim.status(), Status::InProgress);
}

#[test]
fn matrix_idle_prompt_starts_with_a_slot() {
    let mut sim = idle().sim;
    let id = sim.prompt("now");
    assert_eq!(sim.ledger.resolution(id), Some("TurnStarted"));
    assert_eq!((sim.status(), sim.free), (Status::InProgress, 0));
}

#[test]
fn matrix_idle_prompt_waits_without_a_slot() {
    let mut sim = idle().sim;
    sim.free = 0;
    let id = sim.prompt("later");
    assert_eq!(sim.status(), Status::Queued);
    assert_eq!(starts(&sim), 0);
    sim.slot_comes_free();
    assert_eq!(sim.ledger.resolution(id), Some("TurnStarted"));
}

#[test]
fn matrix_queued_prompt() {
    let mut sim = queued().sim;
    let second = sim.prompt("second");
    assert_eq!(sim.session.state.queued_inputs().len(), 2);
    sim.slot_comes_free();
    assert_eq!(
        sim.ledger.resolution(second),
        None,
        "the first one goes first"
    );
    assert_eq!(starts(&sim), 1);
}

#[test]
fn matrix_prompt_starting_prompt() {
    queues(prompt_starting());
}

#[test]
fn matrix_exclusive_starting_prompt() {
    queues(exclusive_starting());
}

#[test]
fn matrix_turn_running_prompt() {
    queues(turn_running());
}

#[test]
fn matrix_idle_control_running_prompt() {
    queues(idle_control());
}

#[test]
fn matrix_awaiting_gate_prompt_is_no_answer_r76() {
    let mut scene = awaiting_gate();
    let gate = scene.gate.unwrap();
    scene.sim.prompt("left");
    assert!(
        !scene.sim.gates.contains_key(&gate),
        "the question stays open"
    );
    queues(awaiting_gate());
}

#[test]
fn matrix_turn_ended_prompt() {
    queues(turn_ended());
}

#[test]
fn matrix_stopping_prompt_starts_after_the_stop_i32() {
    let mut scene = stopping();
    let id = scene.sim.prompt("later");
    assert_eq!(starts(&scene.sim), 1);
    let mark = scene.sim.mark();
    end(&mut scene);
    let names = scene.sim.names_since(mark);
    assert_eq!(
        names,
        [
            "TurnDone",
            "LoopIdle",
            "SessionIdle",
            "SessionActive",
            "TurnStarted"
        ]
    );
    assert_eq!(scene.sim.ledger.resolution(id), Some("TurnStarted"));
}

#[test]
fn matrix_faulted_prompt() {
    let mut scene = faulted();
    let mark = scene.sim.mark();
    let (_, answer) = scene.sim.submit("no");
    assert_eq!(code(&answer), "session_faulted");
    assert_eq!(scene.sim.mark(), mark);
}
