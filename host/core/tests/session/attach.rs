//! Controls beside a run, and Stop over both (R62, R64, R66-R68, S57, S58).

use crate::scenes::{exclusive_starting, idle, idle_control, turn_ended, turn_running};
use crate::support::{code, completed, stopped};
use harness_core::provider::{Outcome, Params};
use harness_core::session::{Answer, Input, Invoked};
use harness_core::view::Status;

#[test]
fn r62_i8_a_control_during_a_turn_joins_its_owner() {
    let mut scene = turn_running();
    let sim = &mut scene.sim;
    let owner = (sim.run_id(), sim.status(), sim.free);
    let (command, control) = sim.control();
    assert_eq!((sim.run_id(), sim.status(), sim.free), owner);
    sim.ask(control, crate::support::form());
    assert_eq!(
        sim.status(),
        Status::AwaitingInput,
        "an ask it opens counts (R75)"
    );
    sim.invoked_with(control, completed(), &["beside"]);
    assert_eq!(sim.outcome(command).0, "completed");
    let step = sim
        .events()
        .rev()
        .find(|e| e.body.meta().name == "StepDone")
        .unwrap();
    assert!(!step.turn_id.is_zero(), "its messages belong to the turn");
    assert_eq!(step.cause.command_id, Some(command));
}

#[test]
fn r64_i8_exclusive_during_turn_is_409() {
    let mut scene = turn_running();
    assert_eq!(code(&scene.sim.try_exclusive()), "session_busy");
    assert_eq!(scene.sim.invokes(), 0);
    scene
        .sim
        .done(scene.runner.unwrap(), Ok(Outcome::default()));
    assert_eq!(
        scene.sim.status(),
        Status::Completed,
        "the turn is unaffected"
    );
    scene.sim.exclusive();
}

#[test]
fn s57_a_control_joins_while_the_owner_is_open_and_the_terminal_waits_for_all() {
    let mut scene = turn_ended();
    let (_, first) = scene.beside.unwrap();
    let (_, second) = scene.sim.control();
    scene.sim.invoked_with(first, completed(), &["first"]);
    assert_eq!(scene.sim.count("TurnDone"), 0);
    scene.sim.invoked_with(second, completed(), &["second"]);
    assert_eq!(scene.sim.count("TurnDone"), 1);
    assert_eq!(scene.sim.history(), ["work", "first", "second"]);
    let (_, third) = scene.sim.control();
    scene.sim.invoked(third, completed());
    assert_eq!(
        scene.sim.count("TurnDone"),
        1,
        "a later one takes the idle path"
    );
}

#[test]
fn s57_controls_that_joined_an_idle_control_keep_its_owner_open() {
    let mut scene = idle_control();
    let runner = scene.runner.unwrap();
    let run = scene.sim.run_id();
    let (command, second) = scene.sim.control();
    scene.sim.invoked(runner, completed());
    assert_eq!(
        (scene.sim.status(), scene.sim.run_id()),
        (Status::InProgress, run)
    );
    let trap = harness_core::provider::CallError::Trap("x".into());
    scene.sim.invoked(second, Err(trap));
    assert_eq!(scene.sim.outcome(command).0, "uncertain");
    assert_eq!(
        scene.sim.status(),
        Status::Completed,
        "the row is the first one's"
    );
}

#[test]
fn r67_i11_from_the_claim_on_nothing_new_is_invoked() {
    let mut scene = turn_running();
    scene.sim.interrupt();
    assert_eq!(code(&scene.sim.try_control()), "session_stopping");
    assert_eq!(code(&scene.sim.try_exclusive()), "session_stopping");
    assert_eq!(scene.sim.invokes(), 0);
}

#[test]
fn r68_i6_a_stop_during_startup_ends_cancelled_with_the_native_id() {
    let mut scene = exclusive_starting();
    let runner = scene.runner.unwrap();
    let command = scene.sim.live().owner.as_ref().unwrap().cause;
    scene.sim.feed(Input::CallerGone(command));
    scene
        .sim
        .invoked(runner, Ok(Invoked::Started(crate::support::patch("plan"))));
    let bind = Input::Bind {
        invocation: runner,
        native_session_id: "late".into(),
    };
    assert_eq!(scene.sim.feed(bind), Answer::Accepted);
    scene.sim.done(runner, Ok(Outcome::default()));
    assert_eq!(scene.sim.outcome(command).0, "cancelled");
    assert_eq!(scene.sim.status(), Status::Cancelled);
    assert_eq!(
        scene.sim.session.view().agent_session_id.as_deref(),
        Some("late")
    );
    assert_eq!(
        scene.sim.count("SessionParamsChanged"),
        0,
        "what was cancelled changes nothing"
    );
}

#[test]
fn r68_a_late_id_is_not_recorded_under_another_harness() {
    let mut scene = idle_control();
    scene.sim.set(None, None, Some("demo/other"));
    let bind = Input::Bind {
        invocation: scene.runner.unwrap(),
        native_session_id: "old".into(),
    };
    assert!(matches!(scene.sim.feed(bind), Answer::Channel(_)));
    assert_eq!(scene.sim.session.view().agent_session_id, None);
}

#[test]
fn s58_a_stop_ends_everything_of_the_run() {
    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    let (command, control) = scene.sim.control();
    let gate = scene.sim.ask(control, crate::support::form());
    let queued = scene.sim.prompt("stays");
    scene.sim.interrupt();
    assert!(scene.sim.is_aborted(runner) && scene.sim.is_aborted(control));
    assert!(scene.sim.gates.contains_key(&gate), "pending asks reject");
    scene.sim.done(runner, stopped());
    assert_eq!(
        scene.sim.count("TurnInterrupted"),
        0,
        "the terminal waits for the control"
    );
    scene.sim.invoked(control, stopped());
    assert_eq!(scene.sim.outcome(command).0, "cancelled");
    assert_eq!(scene.sim.count("TurnInterrupted"), 1);
    assert_eq!(scene.sim.ledger.resolution(queued), Some("TurnStarted"));
}

#[test]
fn s43_an_idle_edge_is_written_once_and_only_when_something_ran() {
    let mut sim = idle().sim;
    let (_, control) = sim.control();
    sim.invoked(control, completed());
    assert_eq!(
        (sim.count("LoopIdle"), sim.count("SessionIdle")),
        (0, 1),
        "S67: no loop ran"
    );
    let (_, runner) = sim.running();
    sim.prompt("next");
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(
        (sim.count("LoopIdle"), sim.count("SessionIdle")),
        (0, 1),
        "chained"
    );
    let runner = sim.runner();
    sim.started(runner, Ok(Params::new()));
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!((sim.count("LoopIdle"), sim.count("SessionIdle")), (1, 2));
    assert_eq!(sim.count("SessionActive"), 2);
}

#[test]
fn s45_every_way_out_of_the_queue_is_written_once() {
    let mut scene = turn_running();
    scene.sim.harness.as_mut().unwrap().features.folding = true;
    let runner = scene.runner.unwrap();
    let folded = scene.sim.prompt("folded");
    scene.sim.feed(Input::TakeInput(runner));
    let retracted = scene.sim.prompt("retracted");
    scene.sim.retract(retracted);
    let started = scene.sim.prompt("started");
    scene.sim.done(runner, Ok(Outcome::default()));
    let failed = scene.sim.prompt("failed");
    let runner = scene.sim.runner();
    scene.sim.started(
        runner,
        Err(harness_core::provider::CallError::Trap("x".into())),
    );
    let how = |id| scene.sim.ledger.resolution(id);
    assert_eq!(how(folded), Some("TurnFoldedInto"));
    assert_eq!(how(retracted), Some("InputCancelled"));
    assert_eq!(how(started), Some("TurnStarted"));
    assert_eq!(how(failed), Some("InputCancelled"));
}
