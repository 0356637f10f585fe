//! Race matrix (§7.2): Stop and gate answers in every state.

use crate::scenes::{
    Scene, awaiting_gate, exclusive_starting, faulted, idle, idle_control, prompt_starting, queued,
    stopping, turn_ended, turn_running,
};
use crate::support::{code, completed, form, stopped};
use harness_core::event::{EventBody, InterruptReason};
use harness_core::gate::{CloseReason, FormAnswer, GateReply};
use harness_core::ids::{CommandId, GateId};
use harness_core::provider::{ChannelError, Params};
use harness_core::session::{Answer, Effect, GateValue, Invoked};
use harness_core::view::Status;
use uuid::Uuid;

fn interrupted(scene: &Scene) {
    let expected = EventBody::TurnInterrupted {
        run_id: scene.sim.run_id().unwrap(),
        reason: InterruptReason::User,
        usage: None,
    };
    assert_eq!(*scene.sim.last("TurnInterrupted"), expected);
    assert_eq!(scene.sim.status(), Status::Cancelled);
    assert_eq!(scene.sim.effect(|e| matches!(e, Effect::Stopped(_))), 1);
    assert!(scene.sim.live().owner.is_none(), "the owner is gone");
    assert_eq!(scene.sim.free, 1, "and the slot is back");
}

/// The stop is claimed and the runner sees its abort.
fn claims(scene: &mut Scene) {
    assert!(matches!(scene.sim.interrupt(), Answer::Stopping(_)));
    assert!(scene.sim.is_aborted(scene.runner.unwrap()));
    assert_eq!(
        scene.sim.effect(|e| matches!(e, Effect::Stopped(_))),
        0,
        "not before the runner is back"
    );
}

#[test]
fn matrix_idle_stop() {
    let mut sim = idle().sim;
    let mark = sim.mark();
    assert_eq!(sim.interrupt(), Answer::Bool(false));
    assert_eq!(sim.mark(), mark, "R67: without effect");
}

#[test]
fn matrix_queued_stop() {
    let mut sim = queued().sim;
    let mark = sim.mark();
    assert_eq!(
        sim.interrupt(),
        Answer::Bool(false),
        "R67: no turn, nothing to stop"
    );
    assert_eq!((sim.mark(), sim.status()), (mark, Status::Queued));
}

#[test]
fn matrix_prompt_starting_stop() {
    let mut scene = prompt_starting();
    claims(&mut scene);
    let runner = scene.runner.unwrap();
    scene.sim.started(runner, stopped());
    assert_eq!(scene.sim.called_done(runner), 0);
    interrupted(&scene);
}

#[test]
fn matrix_prompt_starting_stop_with_a_late_session() {
    let mut scene = prompt_starting();
    claims(&mut scene);
    let runner = scene.runner.unwrap();
    scene.sim.started(runner, Ok(Params::new()));
    assert_eq!(scene.sim.called_done(runner), 1, "it is stopped by `done`");
    scene.sim.done(runner, Ok(Default::default()));
    interrupted(&scene);
}

#[test]
fn matrix_exclusive_starting_stop_r68_i13() {
    let mut scene = exclusive_starting();
    claims(&mut scene);
    let runner = scene.runner.unwrap();
    let command = scene.sim.live().owner.as_ref().unwrap().cause;
    let bound = scene.sim.feed(harness_core::session::Input::Bind {
        invocation: runner,
        native_session_id: "late".into(),
    });
    assert_eq!(
        bound,
        Answer::Accepted,
        "the native id is recorded nevertheless"
    );
    scene
        .sim
        .invoked(runner, Ok(Invoked::Started(Params::new())));
    assert_eq!(
        scene.sim.called_done(runner),
        1,
        "the late session is stopped"
    );
    assert!(!scene.sim.results.contains_key(&command), "and waited for");
    scene.sim.done(runner, stopped());
    assert_eq!(scene.sim.outcome(command), ("cancelled".into(), None));
    assert_eq!(
        scene.sim.session.view().agent_session_id.as_deref(),
        Some("late")
    );
    interrupted(&scene);
}

#[test]
fn matrix_turn_running_stop() {
    let mut scene = turn_running();
    claims(&mut scene);
    scene.sim.done(scene.runner.unwrap(), stopped());
    interrupted(&scene);
}

#[test]
fn matrix_idle_control_running_stop() {
    let mut scene = idle_control();
    claims(&mut scene);
    let command = scene.sim.live().owner.as_ref().unwrap().cause;
    scene.sim.invoked(scene.runner.unwrap(), stopped());
    assert_eq!(scene.sim.outcome(command).0, "cancelled");
    assert_eq!(scene.sim.status(), Status::Cancelled);
    assert_eq!(scene.sim.effect(|e| matches!(e, Effect::Stopped(_))), 1);
}

#[test]
fn matrix_awaiting_gate_stop_i12() {
    let mut scene = awaiting_gate();
    claims(&mut scene);
    let gate = scene.gate.unwrap();
    assert_eq!(
        scene.sim.gates[&gate],
        GateValue::Rejected(ChannelError::Stopped)
    );
    let closed = EventBody::GateResolved {
        gate_id: gate,
        reason: CloseReason::Abandoned,
        source: None,
    };
    assert_eq!(*scene.sim.last("GateResolved"), closed);
    scene.sim.done(scene.runner.unwrap(), stopped());
    interrupted(&scene);
}

#[test]
fn matrix_turn_ended_stop() {
    let mut scene = turn_ended();
    let (command, beside) = scene.beside.unwrap();
    assert!(matches!(scene.sim.interrupt(), Answer::Stopping(_)));
    assert!(scene.sim.is_aborted(beside), "the controls are aborted");
    scene.sim.invoked(beside, stopped());
    assert_eq!(scene.sim.outcome(command).0, "cancelled");
    assert_eq!(scene.sim.count("TurnDone"), 1, "the runner's result stands");
    assert_eq!(scene.sim.status(), Status::Completed);
}

#[test]
fn matrix_stopping_stop_joins() {
    let mut scene = stopping();
    let mark = scene.sim.mark();
    assert!(matches!(scene.sim.interrupt(), Answer::Stopping(_)));
    assert_eq!(scene.sim.mark(), mark, "the second records nothing");
    scene.sim.done(scene.runner.unwrap(), stopped());
    assert_eq!(
        scene.sim.effect(|e| matches!(e, Effect::Stopped(_))),
        1,
        "both hear of one end"
    );
}

#[test]
fn matrix_faulted_stop() {
    let mut scene = faulted();
    let mark = scene.sim.mark();
    assert_eq!(scene.sim.interrupt(), Answer::Bool(true), "a turn ran");
    scene.sim.done(scene.runner.unwrap(), stopped());
    assert!(
        scene.sim.live().owner.is_none(),
        "it always frees the owner"
    );
    assert_eq!(
        (scene.sim.mark(), scene.sim.free),
        (mark, 1),
        "and writes nothing"
    );
    assert_eq!(scene.sim.interrupt(), Answer::Bool(false));
    assert_eq!(scene.sim.status(), Status::Failed);
}

// ---- gate answers ---------------------------------------------------------------------------

fn left() -> GateReply {
    GateReply::Answer(vec![vec!["left".into()], vec![]])
}

fn no_gate(mut scene: Scene) {
    let unknown = GateId(Uuid::from_u128(9_999));
    let mark = scene.sim.mark();
    let answer = scene.sim.answer(unknown, left());
    assert_eq!(code(&answer), "gate_not_found");
    assert_eq!(scene.sim.mark(), mark);
}

/// A gate that opens in this state is answered like any other; the owner stays the same (R45).
fn delivered(mut scene: Scene, by: harness_core::session::InvocationId) {
    let sim = &mut scene.sim;
    let owner = (sim.run_id(), sim.runner());
    let gate = sim.ask(by, form());
    assert_eq!(sim.status(), Status::AwaitingInput, "R75");
    assert_eq!(sim.answer(gate, left()), Answer::Accepted);
    let given = FormAnswer::Submitted(vec![vec!["left".into()], vec![]]);
    assert_eq!(sim.gates[&gate], GateValue::Form(given));
    assert_eq!(sim.status(), Status::InProgress);
    assert_eq!((sim.run_id(), sim.runner()), owner, "no resume, no new run");
    assert_eq!(code(&sim.answer(gate, left())), "gate_not_found", "once");
}

#[test]
fn matrix_idle_gate_answer() {
    no_gate(idle());
    no_gate(queued());
}

#[test]
fn matrix_prompt_starting_gate_answer() {
    no_gate(prompt_starting());
}

#[test]
fn matrix_exclusive_starting_gate_answer() {
    let scene = exclusive_starting();
    let runner = scene.runner.unwrap();
    delivered(scene, runner);
}

#[test]
fn matrix_turn_running_gate_answer() {
    no_gate(turn_running());
}

#[test]
fn matrix_idle_control_running_gate_answer() {
    let scene = idle_control();
    let runner = scene.runner.unwrap();
    delivered(scene, runner);
}

#[test]
fn matrix_awaiting_gate_gate_answer_i37() {
    let mut scene = awaiting_gate();
    let gate = scene.gate.unwrap();
    assert_eq!(scene.sim.answer(gate, left()), Answer::Accepted);
    let loser = scene.sim.answer(gate, GateReply::Decline);
    assert_eq!(
        code(&loser),
        "gate_not_found",
        "the loser hears that it is gone"
    );
    assert_eq!(scene.sim.count("GateResolved"), 1);
}

#[test]
fn matrix_turn_ended_gate_answer() {
    let scene = turn_ended();
    let (_, beside) = scene.beside.unwrap();
    delivered(scene, beside);
}

#[test]
fn matrix_stopping_gate_answer() {
    let mut scene = stopping();
    let gate = scene.gate.unwrap();
    assert_eq!(code(&scene.sim.answer(gate, left())), "gate_not_found");
}

#[test]
fn matrix_faulted_gate_answer() {
    let mut scene = faulted();
    let gate = scene.gate.unwrap();
    assert_eq!(code(&scene.sim.answer(gate, left())), "session_faulted");
}

// ---- further pairs of §7.2 ------------------------------------------------------------------

#[test]
fn matrix_two_exclusives_at_once() {
    let mut sim = idle().sim;
    let (first, second) = {
        use harness_core::operation::Execution::Exclusive;
        (sim.prepared(Exclusive), sim.prepared(Exclusive))
    };
    assert!(matches!(sim.reserve(first), Answer::Reserved(_)));
    assert_eq!(code(&sim.reserve(second)), "session_busy");
    assert_eq!(sim.invokes(), 1);
}

#[test]
fn matrix_stop_during_prepare() {
    let mut scene = turn_running();
    let prepared = scene
        .sim
        .prepared(harness_core::operation::Execution::Control);
    scene.sim.interrupt();
    assert_eq!(code(&scene.sim.reserve(prepared)), "session_stopping");
}

#[test]
fn matrix_harness_swap_during_prepare() {
    let mut sim = idle().sim;
    let prepared = sim.prepared(harness_core::operation::Execution::Control);
    assert_eq!(sim.set(None, None, Some("demo/other")), Answer::Accepted);
    assert_eq!(code(&sim.reserve(prepared)), "harness_changed");
    assert_eq!(sim.invokes(), 0);
}

#[test]
fn matrix_settings_change_during_prepare() {
    let mut sim = idle().sim;
    let prepared = sim.prepared(harness_core::operation::Execution::Control);
    sim.set(None, Some(crate::support::patch("plan")), None);
    assert_eq!(code(&sim.reserve(prepared)), "status_changed");
    let prepared = sim.prepared(harness_core::operation::Execution::Control);
    sim.set(Some("Another title"), None, None);
    assert!(
        matches!(sim.reserve(prepared), Answer::Reserved(_)),
        "a title is no setting of it"
    );
}

#[test]
fn matrix_two_approvals_of_one_confirmation() {
    let mut sim = idle().sim;
    let mut second = sim.prepared(harness_core::operation::Execution::Exclusive);
    let (_, first) = sim.exclusive();
    sim.invoked(first, completed());
    second.origin.command_id = CommandId(Uuid::from_u128(77));
    assert_eq!(
        code(&sim.reserve(second)),
        "status_changed",
        "another run came between"
    );
}
