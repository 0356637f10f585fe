//! Native operations: admission, outcomes, settings patches (R26-R31, R42, R50, R60-R72, S53-S55).

use crate::scenes::{idle, prompt_starting, queued, turn_running};
use crate::support::{Sim, code, completed, outcome, patch, refused, stopped};
use harness_core::abort::AbortReason;
use harness_core::event::{EventBody, InterruptReason};
use harness_core::operation::{Execution, Operation};
use harness_core::provider::{CallError, Outcome, ParamValue, Params};
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Effect, Input, Invoked};
use harness_core::view::{OutcomeStatus, ParamsEffective, Status};

fn with_patch(mode: &str) -> Outcome {
    Outcome {
        message: None,
        params: patch(mode),
    }
}

fn stored_mode(sim: &Sim) -> Option<&ParamValue> {
    sim.session.state.params.get("mode")
}

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
        (sim.status(), stored_mode(&sim)),
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
    assert_eq!(stored_mode(&sim), Some(&ParamValue::Text("plan".into())));
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
        stored_mode(&sim),
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
        (sim.count("SessionParamsChanged"), stored_mode(&sim)),
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
fn r60_the_order_of_an_exclusives_checks() {
    // Busy and no slot and another run in between: busy comes first.
    let mut sim = idle().sim;
    let stale = sim.prepared(Execution::Exclusive);
    let (_, first) = sim.exclusive();
    assert_eq!(code(&sim.reserve(stale.clone())), "session_busy");
    sim.invoked(first, completed());
    sim.free = 0;
    assert_eq!(
        code(&sim.reserve(stale.clone())),
        "no_free_slot",
        "then the slot"
    );
    sim.free = 1;
    assert_eq!(
        code(&sim.reserve(stale)),
        "status_changed",
        "then the status it observed"
    );
    assert_eq!(sim.free, 1, "with the slot given back");
}

#[test]
fn r60_prompts_in_the_queue_keep_exclusives_out() {
    let mut sim = queued().sim;
    assert_eq!(code(&sim.try_exclusive()), "session_busy");
    sim.crash();
    assert_eq!(sim.status(), Status::Completed);
    assert_eq!(
        code(&sim.try_exclusive()),
        "session_busy",
        "held ones count too"
    );
}

#[test]
fn r60_the_last_slot_goes_to_one_of_two_sessions() {
    let (mut first, mut second) = (idle().sim, idle().sim);
    first.exclusive();
    second.free = first.free;
    let before = second.session.clone();
    assert_eq!(code(&second.try_exclusive()), "no_free_slot");
    assert_eq!(second.session, before, "its status is unchanged");
}

#[test]
fn r61_s53_an_intent_that_is_not_durable_reserves_nothing() {
    for execution in [Execution::Control, Execution::Exclusive] {
        let mut sim = idle().sim;
        sim.disk_full = true;
        let before = sim.session.clone();
        let reserve = sim.prepared(execution);
        assert_eq!(code(&sim.reserve(reserve)), "store_unavailable");
        assert_eq!(
            (sim.session.clone(), sim.free, sim.invokes()),
            (before, 1, 0)
        );
    }
}

#[test]
fn r63_i9_idle_controls_see_history_and_add_to_it() {
    let mut sim = idle().sim;
    for (seen, reply) in [(0, "one"), (1, "two")] {
        let (_, control) = sim.control();
        assert_eq!(sim.history().len(), seen);
        sim.invoked_with(control, completed(), &[reply]);
    }
    assert_eq!(sim.history(), ["one", "two"]);
    assert_eq!(sim.count("TurnStarted"), 0);
    let groups: Vec<_> = sim
        .events()
        .filter(|e| e.body.meta().name == "StepDone")
        .collect();
    assert!(
        groups
            .iter()
            .all(|e| e.turn_id.is_zero() && e.cause.command_id.is_some()),
        "S56"
    );
}

#[test]
fn r65_a_control_waits_for_a_starting_prompt_in_vain() {
    let mut scene = prompt_starting();
    let mut reserve = scene.sim.prepared(Execution::Control);
    assert_eq!(scene.sim.reserve(reserve.clone()), Answer::WaitForHandle);
    reserve.waited = true;
    assert_eq!(
        code(&scene.sim.reserve(reserve.clone())),
        "session_busy",
        "the bound passed"
    );
    let trap = CallError::Trap("x".into());
    scene.sim.started(scene.runner.unwrap(), Err(trap));
    assert_eq!(
        scene.sim.effect(|e| *e == Effect::RetryWaiting),
        2,
        "waiters are told of the failure"
    );
    assert_eq!(
        code(&scene.sim.reserve(reserve)),
        "session_busy",
        "startup failed"
    );
    assert_eq!(scene.sim.invokes(), 0);
}

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
            Effect::AbortActivities => Some("activities"),
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
            stored_mode(&sim),
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

#[test]
fn s53_step_6_a_state_that_moved_on_is_read_again() {
    let mut sim = idle().sim;
    let mut reserve = sim.prepared(Execution::Control);
    reserve.state_epoch = Some(sim.session.live.state_epoch);
    sim.feed(Input::StateChanged);
    assert_eq!(sim.reserve(reserve.clone()), Answer::Reread);
    assert_eq!(sim.invokes(), 0);
    reserve.state_epoch = Some(sim.session.live.state_epoch);
    assert!(matches!(sim.reserve(reserve), Answer::Reserved(_)));
}
