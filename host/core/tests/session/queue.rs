//! The prompt queue: order, bounds, resolutions, folding (S32, S40, S42-S46, S50, S56, R120).

use crate::scenes::{idle, queued, turn_running};
use crate::support::{Sim, code, stopped};
use harness_core::command::Agency;
use harness_core::content::{Block, NewMessage, Part, Role};
use harness_core::event::{CancelReason, EventBody, RejectReason};
use harness_core::ids::{CommandId, LoopId, MessageId};
use harness_core::provider::{CallError, Outcome, Params};
use harness_core::session::{Answer, Effect, Input, Sink};
use harness_core::view::Status;
use uuid::Uuid;

fn fail() -> Result<Outcome, CallError> {
    Err(CallError::Trap("x".into()))
}

fn cancelled_as(sim: &Sim, input: CommandId) -> Option<CancelReason> {
    sim.events().find_map(|e| match &e.body {
        EventBody::InputCancelled { reason } if e.cause.command_id == Some(input) => Some(*reason),
        _ => None,
    })
}

fn folding(sim: &mut Sim) {
    sim.harness.as_mut().unwrap().features.folding = true;
}

#[test]
fn s32_i27_the_id_of_a_prompt_is_that_of_its_record_and_reply() {
    let mut sim = idle().sim;
    let mark = sim.mark();
    let id = sim.prompt("hello");
    assert_eq!(
        sim.names_since(mark),
        ["UserInput", "SessionActive", "TurnStarted"]
    );
    let started = sim
        .events()
        .rev()
        .find(|e| e.body.meta().name == "TurnStarted")
        .unwrap();
    assert_eq!(started.cause.command_id, Some(id));
    assert_eq!(started.cause.agency, Some(Agency::User), "S50");
    let said = sim.effects.iter().find_map(|e| match e {
        Effect::StartPrompt { input, .. } => Some(input),
        _ => None,
    });
    assert_eq!(
        said.unwrap().command_id,
        id,
        "and the one the provider sees"
    );
}

#[test]
fn s33_a_prompt_that_is_not_durable_is_not_there() {
    let mut sim = idle().sim;
    sim.disk_full = true;
    let (id, answer) = sim.submit("hello");
    assert_eq!(code(&answer), "store_unavailable");
    sim.crash();
    assert!(sim.session.state.queued_inputs().is_empty());
    assert_eq!(sim.ledger.resolution(id), None);
}

#[test]
fn s40_i31_the_65th_input_is_rejected() {
    let mut sim = turn_running().sim;
    for n in 0..64 {
        sim.prompt(&format!("{n}"));
    }
    let id = sim.prompt("one too many");
    assert_eq!(sim.ledger.resolution(id), Some("TurnRejected"));
    let rejected = EventBody::TurnRejected {
        reason: RejectReason::QueueFull,
        retryable: true,
    };
    assert_eq!(*sim.last("TurnRejected"), rejected);
    assert_eq!(sim.session.state.queued_inputs().len(), 64);
}

#[test]
fn s40_s43_the_queue_is_first_in_first_out_one_a_turn() {
    let mut scene = turn_running();
    let ids: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|t| scene.sim.prompt(t))
        .collect();
    let sim = &mut scene.sim;
    for (n, id) in ids.iter().enumerate() {
        let runner = sim.runner();
        let mark = sim.mark();
        sim.done(runner, Ok(Outcome::default()));
        assert_eq!(
            sim.names_since(mark),
            ["TurnDone", "TurnStarted"],
            "no idle edge between"
        );
        assert_eq!(sim.ledger.resolution(*id), Some("TurnStarted"));
        assert_eq!(sim.session.state.queued_inputs().len(), 2 - n);
        let next = sim.runner();
        sim.started(next, Ok(Params::new()));
    }
    let runner = sim.runner();
    let mark = sim.mark();
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(
        sim.names_since(mark),
        ["TurnDone", "LoopIdle", "SessionIdle"]
    );
    assert_eq!(sim.history(), ["work", "a", "b", "c"]);
    assert_eq!(
        sim.effect(|e| matches!(e, Effect::TakeSlot(_))),
        1,
        "the slot carries over"
    );
}

#[test]
fn s40_without_ids_a_prompt_is_rejected_as_internal() {
    let mut sim = idle().sim;
    sim.ids.broken = true;
    let id = sim.prompt("hello");
    assert_eq!(sim.ledger.resolution(id), Some("TurnRejected"));
    let rejected = EventBody::TurnRejected {
        reason: RejectReason::Internal,
        retryable: true,
    };
    assert_eq!(*sim.last("TurnRejected"), rejected);
    assert_eq!((sim.status(), sim.free), (Status::Completed, 1));
    assert_eq!(code(&sim.try_exclusive()), "internal");
    assert_eq!(code(&sim.try_control()), "internal");
    sim.ids.broken = false;
    let next = sim.prompt("again");
    assert_eq!(sim.ledger.resolution(next), Some("TurnStarted"));
}

#[test]
fn s44_a_failed_turn_returns_the_whole_queue() {
    let mut scene = turn_running();
    let (a, b) = (scene.sim.prompt("a"), scene.sim.prompt("b"));
    scene.sim.done(scene.runner.unwrap(), fail());
    for id in [a, b] {
        assert_eq!(cancelled_as(&scene.sim, id), Some(CancelReason::TurnFailed));
    }
    assert_eq!(scene.sim.status(), Status::Failed);
}

#[test]
fn s44_an_interrupt_keeps_what_people_typed() {
    let mut scene = turn_running();
    let (a, b) = (scene.sim.prompt("a"), scene.sim.prompt("b"));
    scene.sim.interrupt();
    scene.sim.done(scene.runner.unwrap(), stopped());
    assert_eq!(cancelled_as(&scene.sim, a), None);
    assert_eq!(scene.sim.ledger.resolution(a), Some("TurnStarted"));
    assert_eq!(scene.sim.session.state.queued_inputs()[0].command_id, b);
}

#[test]
fn s46_a_queued_input_is_taken_back_once() {
    let mut scene = turn_running();
    let id = scene.sim.prompt("a");
    let mark = scene.sim.mark();
    assert_eq!(scene.sim.retract(id), Answer::Bool(true));
    assert_eq!(
        scene.sim.names_since(mark),
        ["CancelQueuedInput", "InputCancelled"]
    );
    let event = scene.sim.events().next_back().unwrap();
    assert!(event.turn_id.is_zero());
    assert_eq!(
        cancelled_as(&scene.sim, id),
        Some(CancelReason::ClientRetracted)
    );
    let mark = scene.sim.mark();
    assert_eq!(scene.sim.retract(id), Answer::Bool(false), "noop");
    let running = scene.sim.live().owner.as_ref().unwrap().cause;
    assert_eq!(
        scene.sim.retract(running),
        Answer::Bool(false),
        "the starting one is not queued"
    );
    assert_eq!(scene.sim.mark(), mark, "no event");
}

#[test]
fn s46_taking_the_last_waiting_prompt_back_gives_up_the_wish_for_a_slot() {
    let mut sim = queued().sim;
    let id = sim.session.state.queued_inputs()[0].command_id;
    sim.retract(id);
    assert_eq!((sim.status(), sim.wishes()), (Status::Completed, false));
    sim.slot_comes_free();
    assert_eq!(sim.free, 1, "nothing takes it");
    sim.free = 0;
    sim.prompt("again");
    assert!(sim.wishes(), "a new prompt wishes anew");
}

#[test]
fn s40_what_is_no_prompt_is_refused() {
    let mut sim = idle().sim;
    let mark = sim.mark();
    let submit = |sim: &mut Sim, blocks, loop_id, no_fold, fold_only| {
        let origin = sim.origin();
        let input = Input::Submit {
            origin,
            blocks,
            loop_id,
            no_fold,
            fold_only,
        };
        code(&sim.feed(input))
    };
    let text = || vec![Block::Text { text: "x".into() }];
    let nowhere = Some(LoopId(Uuid::from_u128(404)));
    assert_eq!(
        submit(&mut sim, vec![], None, false, false),
        "invalid_request"
    );
    assert_eq!(
        submit(&mut sim, text(), None, true, true),
        "invalid_request"
    );
    assert_eq!(
        submit(&mut sim, text(), nowhere, false, false),
        "loop_not_found",
        "I28"
    );
    assert_eq!(sim.mark(), mark);
}

#[test]
fn r120_text_that_only_folds_needs_a_turn_that_takes_it() {
    let mut sim = idle().sim;
    folding(&mut sim);
    assert_eq!(
        code(&sim.submit_as("x", false, true).1),
        "folding_unavailable",
        "no turn"
    );
    let mut scene = turn_running();
    assert_eq!(
        code(&scene.sim.submit_as("x", false, true).1),
        "folding_unavailable",
        "no feature"
    );
    folding(&mut scene.sim);
    let (id, answer) = scene.sim.submit_as("x", false, true);
    assert_eq!(answer, Answer::Accepted);
    scene
        .sim
        .done(scene.runner.unwrap(), Ok(Outcome::default()));
    assert_eq!(cancelled_as(&scene.sim, id), Some(CancelReason::TurnEnded));
}

#[test]
fn s42_i29_inputs_fold_in_order_up_to_the_first_that_must_not() {
    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    folding(&mut scene.sim);
    let (a, b) = (scene.sim.prompt("a"), scene.sim.prompt("b"));
    let (c, _) = scene.sim.submit_as("c", true, false);
    let d = scene.sim.prompt("d");
    let Answer::Inputs(taken) = scene.sim.feed(Input::TakeInput(runner)) else {
        panic!("inputs");
    };
    assert_eq!(
        taken.iter().map(|i| i.command_id).collect::<Vec<_>>(),
        [a, b]
    );
    assert_eq!(scene.sim.ledger.resolution(b), Some("TurnFoldedInto"));
    scene.sim.done(runner, Ok(Outcome::default()));
    assert_eq!(
        scene.sim.ledger.resolution(c),
        Some("TurnStarted"),
        "its own turn"
    );
    assert_eq!(scene.sim.ledger.resolution(d), None);
    assert_eq!(scene.sim.history(), ["work", "a", "b", "c"]);
}

#[test]
fn s42_a_control_takes_nothing_from_the_turn() {
    let mut scene = turn_running();
    folding(&mut scene.sim);
    let id = scene.sim.prompt("a");
    let (_, control) = scene.sim.control();
    let taken = scene.sim.feed(Input::TakeInput(control));
    assert_eq!(taken, Answer::Inputs(Vec::new()));
    assert_eq!(scene.sim.ledger.resolution(id), None);
}

#[test]
fn n16_without_the_feature_nothing_is_taken() {
    let mut scene = turn_running();
    let id = scene.sim.prompt("a");
    let mark = scene.sim.mark();
    let taken = scene.sim.feed(Input::TakeInput(scene.runner.unwrap()));
    assert_eq!(taken, Answer::Inputs(Vec::new()));
    assert_eq!(
        (scene.sim.mark(), scene.sim.ledger.resolution(id)),
        (mark, None)
    );
}

#[test]
fn i30_an_input_taken_before_a_stop_is_resolved_once() {
    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    folding(&mut scene.sim);
    let (a, b) = (scene.sim.prompt("a"), scene.sim.prompt("b"));
    scene.sim.retract(b);
    scene.sim.feed(Input::TakeInput(runner));
    scene.sim.interrupt();
    let c = scene.sim.prompt("c");
    assert_eq!(
        scene.sim.feed(Input::TakeInput(runner)),
        Answer::Channel(harness_core::provider::ChannelError::Stopped)
    );
    scene.sim.done(runner, stopped());
    assert_eq!(scene.sim.ledger.resolution(a), Some("TurnFoldedInto"));
    assert_eq!(scene.sim.ledger.resolution(c), Some("TurnStarted"));
}

#[test]
fn s56_a_turns_steps_carry_its_id_and_usage() {
    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    let usage = harness_core::content::Usage {
        input_tokens: 3,
        output_tokens: 4,
        ..Default::default()
    };
    scene.sim.feed(Input::Usage {
        invocation: runner,
        usage,
    });
    let message = scene.sim.message("reply");
    scene.sim.feed(Input::Step {
        invocation: runner,
        messages: vec![message],
    });
    let step = scene.sim.events().next_back().unwrap();
    assert!(!step.turn_id.is_zero());
    assert!(matches!(&step.body, EventBody::StepDone { usage: Some(u), .. } if *u == usage));
    let (_, control) = scene.sim.control();
    scene
        .sim
        .invoked_with(control, crate::support::completed(), &["note"]);
    let of_control = scene.sim.last("StepDone");
    assert!(matches!(
        of_control,
        EventBody::StepDone { usage: None, .. }
    ));
    scene.sim.done(runner, Ok(Outcome::default()));
    assert!(
        matches!(scene.sim.last("TurnDone"), EventBody::TurnDone { usage: Some(u), .. } if *u == usage)
    );
    assert_eq!(scene.sim.history(), ["work", "reply", "note"]);
}

#[test]
fn s68_whatever_a_provider_writes_fits_its_records() {
    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    let mut sink = Sink::new(None);
    // Control characters take six times their size in JSON.
    let part = || Part::Text {
        text: "\u{1}".repeat(256 * 1024),
    };
    let id = |n| MessageId(Uuid::from_u128(n));
    let (writer, _) = sink.open(Role::Assistant, id(1), scene.sim.now).unwrap();
    let written = (0..64).take_while(|_| sink.delta(writer, part()).is_ok());
    assert_eq!(
        written.count(),
        5,
        "a message that could not be stored is refused in time"
    );
    for n in 2..4 {
        let parts = vec![part(), part(), part(), part()];
        let message = NewMessage {
            role: Role::Assistant,
            parts,
        };
        sink.append(message, id(n), scene.sim.now).unwrap();
    }
    sink.finish(writer);
    let messages = sink.step();
    assert_eq!(messages.len(), 3);
    let before = scene.sim.count("StepDone");
    scene.sim.feed(Input::Step {
        invocation: runner,
        messages,
    });
    assert!(scene.sim.session.live.faulted.is_none());
    assert!(
        scene.sim.count("StepDone") > before + 1,
        "in several groups"
    );
    assert_eq!(scene.sim.history().len(), 4, "in order and whole");
}
