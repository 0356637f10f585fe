//! Race matrix (§7.2): controls and exclusives in every state.

use crate::scenes::{
    Scene, awaiting_gate, end, exclusive_starting, faulted, idle, idle_control, prompt_starting,
    queued, stopping, turn_ended, turn_running,
};
use crate::support::{code, completed};
use harness_core::operation::Execution;
use harness_core::provider::Params;
use harness_core::session::Answer;
use harness_core::view::Status;

/// The control joins the live owner: no slot, no new run, same status; its result comes back.
fn attaches(mut scene: Scene) -> Scene {
    let sim = &mut scene.sim;
    let before = (sim.status(), sim.run_id(), sim.free);
    let (command, invocation) = sim.control();
    assert_eq!((sim.status(), sim.run_id(), sim.free), before, "R62");
    sim.invoked(invocation, completed());
    assert_eq!(sim.outcome(command).0, "completed");
    assert_eq!(
        sim.result(command).as_ref().unwrap().run_id,
        None,
        "the row is the turn's"
    );
    scene
}

/// Refused with that code; nothing is recorded or invoked and the run goes on undisturbed.
fn refuses(mut scene: Scene, execution: Execution, expected: &str) {
    let sim = &mut scene.sim;
    let before = (sim.mark(), sim.invokes(), sim.session.clone());
    let reserve = sim.prepared(execution);
    let answer = sim.reserve(reserve);
    assert_eq!(code(&answer), expected);
    assert_eq!(
        (sim.mark(), sim.invokes(), sim.session.clone()),
        before,
        "no trace"
    );
    if scene.sim.session.live.faulted.is_none() {
        end(&mut scene);
        assert!(
            scene.sim.live().owner.is_none(),
            "the run ends as it would have"
        );
    }
}

#[test]
fn matrix_idle_control() {
    let mut sim = idle().sim;
    sim.free = 0;
    let (command, invocation) = sim.control();
    assert_eq!(
        sim.status(),
        Status::InProgress,
        "R63, also with an exhausted pool"
    );
    sim.invoked(invocation, completed());
    assert_eq!(sim.status(), Status::Completed);
    assert_eq!(sim.outcome(command).0, "completed");
    assert_eq!(sim.count("TurnStarted"), 0, "it opens no turn");
}

#[test]
fn matrix_idle_exclusive() {
    let mut sim = idle().sim;
    sim.exclusive();
    assert_eq!((sim.status(), sim.free), (Status::InProgress, 0));
    let mut scene = idle();
    scene.sim.free = 0;
    refuses(scene, Execution::Exclusive, "no_free_slot");
}

#[test]
fn matrix_queued_control() {
    let mut sim = queued().sim;
    let (_, invocation) = sim.control();
    assert_eq!(sim.status(), Status::InProgress, "R63: from `queued` too");
    sim.invoked(invocation, completed());
    assert_eq!(
        sim.status(),
        Status::Queued,
        "and back, while the prompt waits"
    );
    sim.slot_comes_free();
    assert_eq!(
        sim.status(),
        Status::InProgress,
        "the wish for a slot survived the control"
    );
}

#[test]
fn matrix_queued_exclusive() {
    refuses(queued(), Execution::Exclusive, "session_busy");
}

#[test]
fn matrix_prompt_starting_control() {
    let mut scene = prompt_starting();
    let sim = &mut scene.sim;
    let mut reserve = sim.prepared(Execution::Control);
    assert_eq!(sim.reserve(reserve.clone()), Answer::WaitForHandle, "R65");
    sim.started(scene.runner.unwrap(), Ok(Params::new()));
    reserve.waited = true;
    assert!(
        matches!(sim.reserve(reserve), Answer::Reserved(_)),
        "then it attaches"
    );
}

#[test]
fn matrix_prompt_starting_exclusive() {
    refuses(prompt_starting(), Execution::Exclusive, "session_busy");
}

#[test]
fn matrix_exclusive_starting_control() {
    attaches(exclusive_starting());
}

#[test]
fn matrix_exclusive_starting_exclusive() {
    refuses(exclusive_starting(), Execution::Exclusive, "session_busy");
}

#[test]
fn matrix_turn_running_control() {
    attaches(turn_running());
}

#[test]
fn matrix_turn_running_exclusive_r64() {
    refuses(turn_running(), Execution::Exclusive, "session_busy");
}

#[test]
fn matrix_idle_control_running_control() {
    attaches(idle_control());
}

#[test]
fn matrix_idle_control_running_exclusive() {
    refuses(idle_control(), Execution::Exclusive, "session_busy");
}

#[test]
fn matrix_awaiting_gate_control() {
    let scene = attaches(awaiting_gate());
    assert_eq!(
        scene.sim.status(),
        Status::AwaitingInput,
        "the gate is still open"
    );
}

#[test]
fn matrix_awaiting_gate_exclusive() {
    refuses(awaiting_gate(), Execution::Exclusive, "session_busy");
}

#[test]
fn matrix_turn_ended_control() {
    let mut scene = attaches(turn_ended());
    let (_, beside) = scene.beside.unwrap();
    let sim = &mut scene.sim;
    assert_eq!(
        sim.count("TurnDone"),
        0,
        "R66: the owner is open while a control is in flight"
    );
    sim.invoked(beside, completed());
    assert_eq!(sim.count("TurnDone"), 1);
    sim.control();
    assert_eq!(
        sim.live().owner.as_ref().unwrap().turn,
        None,
        "then the idle path"
    );
}

#[test]
fn matrix_turn_ended_exclusive() {
    refuses(turn_ended(), Execution::Exclusive, "session_busy");
}

#[test]
fn matrix_stopping_control_i11() {
    refuses(stopping(), Execution::Control, "session_stopping");
}

#[test]
fn matrix_stopping_exclusive_i11() {
    refuses(stopping(), Execution::Exclusive, "session_stopping");
}

#[test]
fn matrix_faulted_control() {
    refuses(faulted(), Execution::Control, "session_faulted");
}

#[test]
fn matrix_faulted_exclusive() {
    refuses(faulted(), Execution::Exclusive, "session_faulted");
}
