//! How runs and requests end: late controls, Stop, a client that leaves, failures (R66-R72).

use crate::scenes::{idle, prompt_starting, turn_running};
use crate::support::{LOOP, Sim, completed, patch, stopped, with_patch};
use harness_core::abort::AbortReason;
use harness_core::event::{EventBody, InterruptReason};
use harness_core::operation::Execution;
use harness_core::provider::{CallError, Outcome, ParamValue};
use harness_core::session::{Answer, Effect, Input, Invoked};
use harness_core::view::Status;

#[test]
fn r66_i10_a_late_reply_is_in_history_before_the_terminal() {
    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    let (command, control) = scene.sim.control();
    scene.sim.done(runner, Ok(Outcome::default()));
    assert_eq!((scene.sim.count("TurnDone"), scene.sim.free), (0, 0));
    scene.sim.invoked_with(control, completed(), &["late"]);
    let names = scene.sim.names_since(0);
    let at = |name: &str| names.iter().rposition(|n| *n == name).unwrap();
    assert!(at("StepDone") < at("NativeOperationResolved"));
    assert!(at("NativeOperationResolved") < at("TurnDone"));
    assert_eq!(scene.sim.outcome(command).0, "completed");
    assert_eq!(scene.sim.history(), ["work", "late"]);
    assert_eq!(scene.sim.free, 1);
}

#[test]
fn r67_stop_signals_controls_then_activities_then_the_run_then_gates() {
    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    let (_, control) = scene.sim.control();
    scene.sim.feed(Input::ActivityBegan {
        loop_id: LOOP,
        id: 1,
        label: "watch".into(),
    });
    scene.sim.ask(runner, crate::support::form());
    let before = scene.sim.effects.len();
    scene.sim.interrupt();
    let order: Vec<_> = scene.sim.effects[before..]
        .iter()
        .filter_map(|e| match e {
            Effect::Abort { invocation, reason } => {
                assert_eq!(*reason, AbortReason::UserStop);
                Some(if *invocation == control {
                    "control"
                } else {
                    "run"
                })
            }
            Effect::AbortActivities(_) => Some("activities"),
            Effect::AnswerGate { .. } => Some("gate"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["control", "activities", "run", "gate"]);
}

#[test]
fn r67_queued_prompts_stay_through_a_stop() {
    let mut scene = turn_running();
    let (a, b) = (scene.sim.prompt("a"), scene.sim.prompt("b"));
    scene.sim.interrupt();
    let queue = |sim: &Sim| {
        sim.session
            .state
            .queued_inputs()
            .iter()
            .map(|q| q.command_id)
            .collect::<Vec<_>>()
    };
    assert_eq!(queue(&scene.sim), [a, b], "visible, in order");
    assert_eq!(scene.sim.retract(a), Answer::Bool(true), "and retractable");
    scene.sim.done(scene.runner.unwrap(), stopped());
    assert_eq!(scene.sim.ledger.resolution(b), Some("TurnStarted"));
}

#[test]
fn r69_a_client_that_leaves_aborts_its_request_alone() {
    let mut scene = turn_running();
    let (command, control) = scene.sim.control();
    scene.sim.feed(Input::CallerGone(command));
    assert!(scene.sim.is_aborted(control));
    assert!(!scene.sim.is_aborted(scene.runner.unwrap()));
    scene.sim.invoked(control, stopped());
    assert_eq!(scene.sim.outcome(command).0, "cancelled");
    scene
        .sim
        .done(scene.runner.unwrap(), Ok(Outcome::default()));
    let mut sim = idle().sim;
    let (command, exclusive) = sim.exclusive();
    sim.feed(Input::CallerGone(command));
    sim.invoked(exclusive, stopped());
    assert!(matches!(
        sim.last("TurnInterrupted"),
        EventBody::TurnInterrupted {
            reason: InterruptReason::CallerGone,
            ..
        }
    ));
    assert_eq!(sim.status(), Status::Cancelled);
}

#[test]
fn r69_the_first_reason_of_an_abort_stays() {
    let mut sim = idle().sim;
    let (command, exclusive) = sim.exclusive();
    sim.feed(Input::CallerGone(command));
    sim.interrupt();
    sim.invoked(exclusive, stopped());
    assert!(matches!(
        sim.last("TurnInterrupted"),
        EventBody::TurnInterrupted {
            reason: InterruptReason::CallerGone,
            ..
        }
    ));
}

#[test]
fn r70_a_completed_outcome_stands_after_an_abort() {
    for execution in [Execution::Control, Execution::Exclusive] {
        let mut sim = idle().sim;
        let (command, invocation) = sim.operation(execution);
        sim.interrupt();
        sim.invoked(invocation, Ok(Invoked::Completed(with_patch("plan"))));
        assert_eq!(sim.outcome(command).0, "completed");
        assert_eq!(
            sim.mode(),
            Some(&ParamValue::Text("plan".into())),
            "params are saved"
        );
    }
}

#[test]
fn r70_abort_before_invoke_is_cancelled() {
    for execution in [Execution::Control, Execution::Exclusive] {
        let mut sim = idle().sim;
        let (command, invocation) = sim.operation(execution);
        sim.feed(Input::CallerGone(command));
        sim.invoked(invocation, stopped());
        assert_eq!(sim.outcome(command), ("cancelled".into(), None));
        assert_eq!((sim.status(), sim.free), (Status::Cancelled, 1));
    }
}

#[test]
fn r71_everything_is_released_on_every_failure_before_acceptance() {
    let failures: [fn() -> CallError; 4] = [
        || CallError::Trap("x".into()),
        || CallError::Timeout("x".into()),
        || CallError::Lost("x".into()),
        || CallError::Violation("x".into()),
    ];
    for failure in failures {
        for abort in [false, true] {
            let mut scene = prompt_starting();
            if abort {
                scene.sim.interrupt();
            }
            scene.sim.started(scene.runner.unwrap(), Err(failure()));
            let expected = if abort {
                Status::Cancelled
            } else {
                Status::Failed
            };
            assert_eq!(
                scene.sim.status(),
                expected,
                "{:?} abort={abort}",
                failure()
            );
            assert!(scene.sim.session.live.is_quiet());
            assert_eq!(scene.sim.free, 1);
        }
    }
}

#[test]
fn r72_a_completion_whose_owner_is_gone_changes_nothing() {
    let mut sim = idle().sim;
    let (_, first) = sim.exclusive();
    sim.invoked(first, completed());
    let (_, second) = sim.running();
    let before = (sim.session.clone(), sim.mark());
    let message = sim.message("late");
    sim.feed(Input::Step {
        invocation: first,
        messages: vec![message],
    });
    sim.feed(Input::Bind {
        invocation: first,
        native_session_id: "old".into(),
    });
    sim.invoked(first, Ok(Invoked::Completed(with_patch("plan"))));
    sim.done(first, Ok(with_patch("plan")));
    sim.started(first, Ok(patch("plan")));
    assert_eq!((sim.session.clone(), sim.mark()), before);
    assert_eq!(sim.runner(), second);
}
