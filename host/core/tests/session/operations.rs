//! What operations return: contract, settings patches, hooks (R26-R31, R49, R50, R79).

use crate::scenes::{idle, turn_running};
use crate::support::{Sim, completed, outcome, patch, refused, stopped, with_patch};
use harness_core::abort::AbortReason;
use harness_core::event::EventBody;
use harness_core::operation::{Execution, Operation};
use harness_core::provider::{CallError, Outcome, ParamValue, Params};
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Effect, Input, Invoked};
use harness_core::view::{OutcomeStatus, ParamsEffective, Status};

fn unknown_param() -> Params {
    [("nope".to_owned(), ParamValue::Boolean(true))].into()
}

#[test]
fn r26_i20_a_control_that_starts_a_turn_breaks_the_contract() {
    let mut sim = idle().sim;
    let (command, control) = sim.control();
    sim.invoked(control, Ok(Invoked::Started(patch("plan"))));
    assert!(sim.is_aborted(control), "its session is aborted");
    assert_eq!(sim.called_done(control), 1, "and awaited");
    assert!(
        !sim.results.contains_key(&command),
        "the caller waits for that"
    );
    sim.done(control, Ok(Outcome::default()));
    let Refused::Violation { result, .. } = sim.problem(command) else {
        panic!("a contract violation");
    };
    assert_eq!(result.status, OutcomeStatus::Uncertain);
    assert_eq!(sim.problem(command).code(), "provider_contract_violation");
    assert_eq!(
        (sim.status(), sim.mode()),
        (Status::Failed, None),
        "no params are saved"
    );
}

#[test]
fn r26_an_attached_control_that_starts_leaves_the_turn_alone() {
    let mut scene = turn_running();
    let (command, control) = scene.sim.control();
    scene
        .sim
        .invoked(control, Ok(Invoked::Started(Params::new())));
    scene.sim.done(control, stopped());
    assert_eq!(
        scene.sim.problem(command).code(),
        "provider_contract_violation"
    );
    assert_eq!(scene.sim.status(), Status::InProgress);
    assert!(!scene.sim.is_aborted(scene.runner.unwrap()));
    scene
        .sim
        .done(scene.runner.unwrap(), Ok(Outcome::default()));
    assert_eq!(
        scene.sim.status(),
        Status::Completed,
        "the row is the turn's"
    );
}

#[test]
fn r27_an_exclusive_may_complete_at_once() {
    let mut sim = idle().sim;
    let (command, invocation) = sim.exclusive();
    let run = sim.run_id();
    sim.invoked(invocation, Ok(Invoked::Completed(outcome("done"))));
    let result = sim.result(command).as_ref().unwrap();
    assert_eq!(
        (result.status, result.run_id),
        (OutcomeStatus::Completed, run)
    );
    assert_eq!(result.message.as_deref(), Some("done"));
    assert_eq!(
        (sim.status(), sim.free),
        (Status::Completed, 1),
        "and the slot is free"
    );
    assert_eq!(sim.count("TurnDone"), 1);
}

#[test]
fn r29_started_is_an_acknowledgement_only() {
    let mut sim = idle().sim;
    let (command, invocation) = sim.exclusive();
    sim.invoked(invocation, Ok(Invoked::Started(Params::new())));
    assert_eq!(sim.outcome(command).0, "started");
    assert_eq!(sim.status(), Status::InProgress);
    sim.feed(Input::CallerGone(command));
    assert!(
        !sim.is_aborted(invocation),
        "R69: the request's part is void after `started`"
    );
    sim.done(invocation, Ok(Outcome::default()));
    assert_eq!(sim.status(), Status::Completed);
    let terminal = sim
        .events()
        .rev()
        .find(|e| e.body.meta().name == "TurnDone")
        .unwrap();
    assert_eq!(
        terminal.cause.command_id,
        Some(command),
        "the terminal has the same command id"
    );
    assert_eq!(sim.count("NativeOperationResolved"), 1);
}

#[test]
fn r30_when_a_patch_takes_effect() {
    let mut sim = idle().sim;
    let effective = |sim: &Sim, command| sim.result(command).as_ref().unwrap().params_effective;
    let (command, control) = sim.control();
    sim.invoked(control, Ok(Invoked::Completed(with_patch("plan"))));
    assert_eq!(
        effective(&sim, command),
        Some(ParamsEffective::Now),
        "idle control"
    );
    assert_eq!(sim.mode(), Some(&ParamValue::Text("plan".into())));
    let (command, exclusive) = sim.exclusive();
    sim.invoked(exclusive, Ok(Invoked::Completed(with_patch("work"))));
    assert_eq!(
        effective(&sim, command),
        Some(ParamsEffective::Now),
        "completed exclusive"
    );
    let (command, exclusive) = sim.exclusive();
    sim.invoked(exclusive, Ok(Invoked::Started(patch("plan"))));
    assert_eq!(
        effective(&sim, command),
        Some(ParamsEffective::NextTurn),
        "started exclusive"
    );
    let (command, control) = sim.control();
    sim.invoked(control, Ok(Invoked::Completed(with_patch("work"))));
    assert_eq!(
        effective(&sim, command),
        Some(ParamsEffective::NextTurn),
        "attached control"
    );
    assert_eq!(
        sim.mode(),
        Some(&ParamValue::Text("work".into())),
        "durable at once"
    );
    let (command, control) = sim.control();
    sim.invoked(control, completed());
    assert_eq!(effective(&sim, command), None, "no patch, no word");
}

#[test]
fn r79_w4_an_invalid_patch_writes_nothing() {
    for bad in [
        unknown_param(),
        patch("sleep"),
        [("mode".to_owned(), ParamValue::Boolean(true))].into(),
    ] {
        let mut sim = idle().sim;
        let (command, control) = sim.control();
        let outcome = Outcome {
            message: None,
            params: bad.clone(),
        };
        sim.invoked(control, Ok(Invoked::Completed(outcome)));
        assert_eq!(sim.problem(command).code(), "provider_contract_violation");
        assert_eq!(
            (sim.count("SessionParamsChanged"), sim.status()),
            (0, Status::Failed)
        );
        let (command, exclusive) = sim.exclusive();
        sim.invoked(exclusive, Ok(Invoked::Started(bad)));
        assert_eq!(
            sim.called_done(exclusive),
            1,
            "the session it returned is stopped"
        );
        sim.done(exclusive, stopped());
        assert_eq!(sim.problem(command).code(), "provider_contract_violation");
        assert_eq!(
            (sim.count("SessionParamsChanged"), sim.status()),
            (0, Status::Failed)
        );
    }
}

#[test]
fn r30_i14_a_harness_swap_during_a_control_keeps_its_patch_out() {
    let mut sim = idle().sim;
    let (command, control) = sim.control();
    assert_eq!(sim.set(None, None, Some("demo/other")), Answer::Accepted);
    let changes = sim.count("SessionParamsChanged");
    sim.invoked(control, Ok(Invoked::Completed(with_patch("plan"))));
    let Refused::HarnessChanged {
        result: Some(result),
    } = sim.problem(command)
    else {
        panic!("{:?}", sim.problem(command));
    };
    assert_eq!(result.status, OutcomeStatus::Completed, "what was executed");
    assert_eq!(
        (sim.count("SessionParamsChanged"), sim.mode()),
        (changes, None)
    );
    let EventBody::NativeOperationResolved {
        outcome, reason, ..
    } = sim.last("NativeOperationResolved")
    else {
        panic!();
    };
    assert_eq!(
        (*outcome, reason.as_deref()),
        (OutcomeStatus::Completed, Some("harness_changed"))
    );
}

#[test]
fn r31_disposed_before_invoke_is_rejected() {
    let mut sim = idle().sim;
    let (command, exclusive) = sim.exclusive();
    let gone = CallError::Unavailable {
        reason: "unloaded".into(),
        loading: false,
    };
    sim.invoked(exclusive, Err(gone));
    assert_eq!(
        sim.outcome(command),
        ("rejected".into(), Some("provider_unavailable".into()))
    );
    assert_eq!(sim.status(), Status::Failed);
}

#[test]
fn r31_i19_disposed_during_invoke_is_uncertain() {
    let mut sim = idle().sim;
    let (command, exclusive) = sim.exclusive();
    sim.invoked(
        exclusive,
        Err(CallError::Terminated(AbortReason::Superseded)),
    );
    assert_eq!(
        sim.outcome(command),
        ("uncertain".into(), Some("provider_unavailable".into()))
    );
    assert_eq!((sim.status(), sim.free), (Status::Failed, 1));
}

#[test]
fn r50_a_first_operation_that_was_never_reserved_leaves_a_failed_row() {
    for execution in [None, Some(Execution::Exclusive)] {
        let mut sim = idle().sim;
        let origin = sim.origin();
        let command = origin.command_id;
        sim.feed(Input::RejectFirst {
            origin,
            operation: Operation::Command {
                text: "/goal".into(),
            },
            execution,
            code: "no_free_slot".into(),
            message: "x".repeat(10_000),
        });
        assert_eq!(
            sim.names_since(2),
            ["NativeOperation", "NativeOperationResolved"]
        );
        let EventBody::NativeOperationResolved {
            outcome,
            reason,
            message,
            ..
        } = sim.last("NativeOperationResolved")
        else {
            panic!();
        };
        assert_eq!(
            (*outcome, reason.as_deref()),
            (OutcomeStatus::Rejected, Some("no_free_slot"))
        );
        assert!(message.as_ref().unwrap().len() <= 4096, "S68");
        assert_eq!(sim.status(), Status::Failed);
        assert_eq!(sim.session.view().error.unwrap().code, "no_free_slot");
        let (retry, invocation) = sim.control();
        sim.invoked(invocation, completed());
        assert_eq!(
            sim.outcome(retry).0,
            "completed",
            "retrying in the row works"
        );
        assert_eq!(
            sim.effect(
                |e| matches!(e, Effect::Hook { first: true, command_id } if *command_id == retry)
            ),
            1,
            "R49: the rejected one fired none"
        );
        assert_ne!(retry, command);
    }
}

#[test]
fn r49_i4_hooks_fire_once_an_accepted_operation() {
    let mut sim = idle().sim;
    let hooks = |sim: &Sim| {
        sim.effects
            .iter()
            .filter_map(|e| match e {
                Effect::Hook { first, .. } => Some(*first),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    let (_, rejected) = sim.control();
    sim.invoked(
        rejected,
        refused(harness_core::provider::Refusal::Unsupported("no".into())),
    );
    assert_eq!(hooks(&sim), Vec::<bool>::new());
    let (_, first) = sim.control();
    sim.invoked(first, completed());
    let (_, second) = sim.exclusive();
    sim.invoked(second, Ok(Invoked::Started(Params::new())));
    sim.done(second, Ok(Outcome::default()));
    assert_eq!(hooks(&sim), [true, false]);
}
