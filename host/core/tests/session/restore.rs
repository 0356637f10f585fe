//! What a restart finds and repairs (§6, R80, S52, S54, S70, S72, S74, S78, S87, I38, I39).

use crate::scenes::{
    awaiting_gate, exclusive_starting, idle, idle_control, prompt_starting, queued, turn_ended,
    turn_running,
};
use crate::support::{Sim, code, completed, form, restore_of};
use harness_core::event::{CancelReason, EventBody, InterruptReason};
use harness_core::gate::{CloseReason, GateReply};
use harness_core::ids::CommandId;
use harness_core::provider::{Outcome, Params, TurnStart};
use harness_core::session::{Answer, Effect, Input, Invoked, Record};
use harness_core::view::{OutcomeStatus, Status};

fn held(sim: &Sim) -> Vec<CommandId> {
    let queue = sim.session.state.queued_inputs();
    queue
        .iter()
        .filter(|q| q.held)
        .map(|q| q.command_id)
        .collect()
}

/// A session with these prompts held after a crash.
fn with_held(texts: &[&str]) -> (Sim, Vec<CommandId>) {
    let mut sim = idle().sim;
    sim.free = 0;
    let ids: Vec<_> = texts.iter().map(|t| sim.prompt(t)).collect();
    sim.crash();
    sim.free = 1;
    sim.feed(Input::Advance);
    assert_eq!(held(&sim), ids);
    (sim, ids)
}

/// Nothing native is called because of a restart.
fn calls(effects: &[Effect]) -> usize {
    let is_call = |e: &&Effect| {
        matches!(
            e,
            Effect::StartPrompt { .. }
                | Effect::Invoke { .. }
                | Effect::Adopt { .. }
                | Effect::CallDone(_)
        )
    };
    effects.iter().filter(is_call).count()
}

#[test]
fn s52_an_unresolved_prompt_is_held_and_never_starts_by_itself() {
    let (mut sim, ids) = with_held(&["a", "b"]);
    assert_eq!(sim.count("InputHeld"), 2);
    assert_eq!(sim.status(), Status::Completed, "held is not queued");
    assert_eq!((sim.session.view().held, sim.session.view().queued), (2, 0));
    sim.crash();
    sim.crash();
    assert_eq!(
        sim.count("InputHeld"),
        2,
        "one a hold, even over several restarts"
    );
    assert_eq!(held(&sim), ids);
    assert_eq!(calls(&sim.effects), 0);
}

#[test]
fn s52_the_next_submit_releases_the_held_ones_ahead_of_itself() {
    let (mut sim, ids) = with_held(&["a", "b"]);
    let mark = sim.mark();
    let next = sim.prompt("c");
    assert_eq!(sim.count("InputReleased"), 2);
    let shown =
        |e: &Effect| matches!(e, Effect::Publish(event) if event.cause.command_id == Some(next));
    assert_eq!(
        sim.effect(shown),
        1,
        "listeners see that it waits behind them"
    );
    let names = sim.names_since(mark);
    let at = |name: &str| names.iter().position(|n| *n == name).unwrap();
    assert!(
        at("InputReleased") < at("TurnStarted"),
        "released before it can start"
    );
    assert_eq!(
        sim.ledger.resolution(ids[0]),
        Some("TurnStarted"),
        "the oldest starts"
    );
    let queue: Vec<_> = sim
        .session
        .state
        .queued_inputs()
        .iter()
        .map(|q| q.command_id)
        .collect();
    assert_eq!(queue, [ids[1], next]);
}

#[test]
fn s52_release_of_one_does_not_wait_for_those_before_it() {
    let (mut sim, ids) = with_held(&["a", "b"]);
    let stranger = CommandId(uuid::Uuid::from_u128(404));
    let mark = sim.mark();
    assert_eq!(
        sim.release(&[stranger]),
        Answer::Released(vec![]),
        "S114: not held, left out"
    );
    assert_eq!(sim.mark(), mark);
    assert_eq!(
        sim.release(&[ids[1], stranger]),
        Answer::Released(vec![ids[1]])
    );
    assert_eq!(sim.ledger.resolution(ids[1]), Some("TurnStarted"));
    assert_eq!(held(&sim), [ids[0]]);
}

#[test]
fn s52_release_of_all_starts_the_oldest() {
    let (mut sim, ids) = with_held(&["a", "b"]);
    assert_eq!(sim.release(&[]), Answer::Released(ids.clone()));
    assert_eq!(sim.ledger.resolution(ids[0]), Some("TurnStarted"));
    assert_eq!(sim.ledger.resolution(ids[1]), None);
}

#[test]
fn s52_a_crash_after_release_and_before_the_start_holds_again() {
    let (mut sim, ids) = with_held(&["a"]);
    sim.free = 0;
    sim.release(&[]);
    assert_eq!(sim.status(), Status::Queued);
    sim.crash();
    assert_eq!(held(&sim), ids);
    assert_eq!(sim.count("InputHeld"), 2, "a hold of its own");
}

#[test]
fn s52_a_held_input_is_retractable_and_counts_and_survives_a_failing_turn() {
    let (mut sim, ids) = with_held(&["a", "b"]);
    assert_eq!(sim.retract(ids[1]), Answer::Bool(true));
    sim.inbox = 1;
    let rejected = sim.prompt("c");
    assert_eq!(sim.ledger.resolution(rejected), Some("TurnRejected"));
    assert_eq!(held(&sim), [ids[0]], "what is rejected releases nothing");
    assert_eq!(sim.announce(1, "n", TurnStart::Running), Answer::Accepted);
    let runner = sim.runner();
    let trap = harness_core::provider::CallError::Trap("x".into());
    sim.started(runner, Err(trap));
    assert_eq!(held(&sim), [ids[0]], "S44: untouched by a failing turn");
}

#[test]
fn s52_a_held_input_never_folds() {
    let (mut sim, ids) = with_held(&["a"]);
    sim.harness.as_mut().unwrap().features.folding = true;
    let runner = sim.native(1, "n");
    let taken = sim.feed(Input::TakeInput(runner));
    assert_eq!(taken, Answer::Inputs(Vec::new()));
    assert_eq!(held(&sim), ids);
}

#[test]
fn s52_a_control_runs_beside_held_inputs() {
    let (mut sim, ids) = with_held(&["a"]);
    let (_, control) = sim.control();
    sim.invoked(control, completed());
    assert_eq!((held(&sim), sim.status()), (ids, Status::Completed));
    assert_eq!(
        sim.interrupt(),
        Answer::Bool(false),
        "§11: and Stop leaves them held"
    );
}

#[test]
fn s54_r80_an_operation_without_outcome_becomes_uncertain() {
    for scene in [idle_control(), exclusive_starting()] {
        let mut sim = scene.sim;
        let before = sim.effects.len();
        sim.crash();
        assert_eq!(calls(&sim.effects[before..]), 0, "never sent again");
        let EventBody::NativeOperationResolved {
            outcome, reason, ..
        } = sim.last("NativeOperationResolved")
        else {
            panic!();
        };
        assert_eq!(
            (*outcome, reason.as_deref()),
            (OutcomeStatus::Uncertain, Some("host_lost"))
        );
        assert_eq!(sim.status(), Status::Disconnected);
        assert_eq!(sim.session.snapshot().uncertain_operations.len(), 1, "S108");
        let mark = sim.mark();
        sim.crash();
        assert_eq!(sim.mark(), mark, "the outcome never changes later");
    }
}

#[test]
fn s54_an_acknowledged_operation_keeps_its_outcome() {
    let mut scene = exclusive_starting();
    scene
        .sim
        .invoked(scene.runner.unwrap(), Ok(Invoked::Started(Params::new())));
    scene.sim.crash();
    assert_eq!(scene.sim.count("NativeOperationResolved"), 1);
    assert_eq!(scene.sim.status(), Status::Disconnected);
}

#[test]
fn s54_an_attached_control_is_uncertain_beside_its_interrupted_turn() {
    for scene in [turn_ended(), {
        let mut scene = turn_running();
        scene.beside = Some(scene.sim.control());
        scene
    }] {
        let mut sim = scene.sim;
        let mark = sim.mark();
        sim.crash();
        assert_eq!(
            sim.names_since(mark),
            [
                "RestoreStarted",
                "NativeOperationResolved",
                "TurnInterrupted",
                "LoopIdle",
                "SessionIdle",
                "RestoreDone"
            ],
            "in the order of §6.1"
        );
        assert_eq!(sim.status(), Status::Disconnected);
    }
}

#[test]
fn s72_an_open_turn_is_closed_once_as_host_lost() {
    for scene in [prompt_starting(), turn_running()] {
        let mut sim = scene.sim;
        let run = sim.run_id();
        sim.crash();
        let lost = EventBody::TurnInterrupted {
            run_id: run.unwrap(),
            reason: InterruptReason::HostLost,
            usage: None,
        };
        assert_eq!(*sim.last("TurnInterrupted"), lost);
        assert_eq!(sim.status(), Status::Disconnected);
        sim.crash();
        assert_eq!(sim.count("TurnInterrupted"), 1);
        let next = sim.prompt("next");
        assert_eq!(
            sim.ledger.resolution(next),
            Some("TurnStarted"),
            "the next prompt works"
        );
    }
}

#[test]
fn s87_open_gates_close_as_restore_unavailable() {
    let mut scene = awaiting_gate();
    let gate = scene.gate.unwrap();
    let mark = scene.sim.mark();
    scene.sim.crash();
    let closed = EventBody::GateResolved {
        gate_id: gate,
        reason: CloseReason::RestoreUnavailable,
        source: None,
    };
    assert_eq!(*scene.sim.last("GateResolved"), closed);
    assert_eq!(
        scene.sim.names_since(mark)[..3],
        ["RestoreStarted", "GateResolved", "TurnInterrupted"]
    );
    assert_eq!(
        code(&scene.sim.answer(gate, GateReply::Decline)),
        "gate_not_found"
    );
}

#[test]
fn s72_text_that_could_only_fold_is_cancelled() {
    let mut scene = turn_running();
    scene.sim.harness.as_mut().unwrap().features.folding = true;
    let (id, _) = scene.sim.submit_as("x", false, true);
    scene.sim.crash();
    assert_eq!(scene.sim.ledger.resolution(id), Some("InputCancelled"));
    let ended = EventBody::InputCancelled {
        reason: CancelReason::TurnEnded,
    };
    assert_eq!(*scene.sim.last("InputCancelled"), ended);
}

#[test]
fn s74_what_was_folded_belongs_to_the_cut_turn() {
    let mut scene = turn_running();
    scene.sim.harness.as_mut().unwrap().features.folding = true;
    scene.sim.prompt("folded");
    scene.sim.feed(Input::TakeInput(scene.runner.unwrap()));
    scene.sim.crash();
    assert!(held(&scene.sim).is_empty());
    assert_eq!(scene.sim.history(), ["work", "folded"]);
}

#[test]
fn s78_ids_stay_and_a_settled_session_is_woken_without_a_word() {
    let mut sim = idle().sim;
    let (_, control) = sim.control();
    sim.invoked(control, completed());
    let (ids, mark) = (
        (sim.session.state.id, sim.session.state.active_loop),
        sim.mark(),
    );
    sim.crash();
    assert_eq!(sim.mark(), mark, "§6.1: nothing is appended");
    assert_eq!((sim.session.state.id, sim.session.state.active_loop), ids);
    assert_eq!(sim.count("SessionStarted"), 1);
}

#[test]
fn s75_repairs_have_deterministic_ids() {
    for mut scene in [
        awaiting_gate(),
        queued(),
        turn_ended(),
        exclusive_starting(),
    ] {
        let mut restored = restore_of(&scene.sim.journal);
        std::mem::swap(&mut restored, &mut scene.sim.session);
        let keys = |sim: &mut Sim| {
            let decision = sim.decide(Input::Restore {
                lost: Vec::new(),
                now: None,
            });
            decision.records.iter().map(Record::key).collect::<Vec<_>>()
        };
        let first = keys(&mut scene.sim);
        assert_eq!(
            first,
            keys(&mut scene.sim),
            "a restore that was cut is retried"
        );
        assert!(!first.is_empty());
    }
}

/// One session's life with everything in it that the journal knows.
fn rich_life() -> Sim {
    let mut sim = Sim::new();
    sim.harness.as_mut().unwrap().features.folding = true;
    let (_, control) = sim.control();
    sim.invoked_with(control, completed(), &["note"]);
    let (_, runner) = sim.running();
    sim.feed(Input::Bind {
        invocation: runner,
        native_session_id: "n-1".into(),
    });
    let gate = sim.ask(runner, form());
    sim.answer(gate, GateReply::Decline);
    sim.prompt("folded");
    sim.feed(Input::TakeInput(runner));
    sim.prompt("queued");
    sim.submit_as("fold only", false, true);
    let (_, beside) = sim.control();
    sim.done(runner, Ok(Outcome::default()));
    sim.invoked_with(beside, completed(), &["beside"]);
    let next = sim.runner();
    sim.interrupt();
    sim.started(next, crate::support::stopped());
    let (_, exclusive) = sim.exclusive();
    sim.ask(exclusive, form());
    sim.invoked(
        exclusive,
        Ok(Invoked::Started(crate::support::patch("plan"))),
    );
    sim.done(exclusive, Ok(Outcome::default()));
    let native = sim.native(1, "goal-1");
    sim.done(native, Ok(Outcome::default()));
    sim.set(Some("Title"), None, Some("demo/other"));
    sim
}

#[test]
fn i38_a_crash_at_every_append_point_restores_what_was_promised() {
    let journal = rich_life().journal;
    for cut in 2..=journal.len() {
        let mut sim = Sim::new();
        for record in &journal[2..cut] {
            sim.ledger.record(record, sim.journal.len() as u64 + 1);
            sim.journal.push(record.clone());
        }
        sim.session = restore_of(&sim.journal);
        sim.ids.broken = false;
        sim.crash();
        assert_eq!(
            calls(&sim.effects),
            0,
            "cut at {cut}: nothing is sent again"
        );
        assert!(!matches!(
            sim.status(),
            Status::InProgress | Status::AwaitingInput | Status::Queued
        ));
        for record in &journal[..cut] {
            let Record::Command(command) = record else {
                continue;
            };
            let id = command.id();
            match command.body.type_name() {
                "UserInput" => assert!(
                    sim.ledger.resolution(id).is_some() || held(&sim).contains(&id),
                    "cut at {cut}: input {id} is lost"
                ),
                "NativeOperation" => assert!(
                    sim.session
                        .state
                        .loops
                        .values()
                        .all(|l| !l.operations.contains_key(&id)),
                    "cut at {cut}: operation {id} has no outcome"
                ),
                _ => {}
            }
        }
        let mark = sim.mark();
        sim.crash();
        let again = sim.names_since(mark);
        assert!(
            again.iter().all(|n| n.starts_with("Restore")),
            "cut at {cut}: repaired once, then {again:?}"
        );
    }
}

#[test]
fn s70_i39_history_after_a_restart_is_what_it_was() {
    let mut sim = rich_life();
    let before = sim.history();
    assert_eq!(before, ["note", "work", "folded", "beside", "queued"]);
    sim.crash();
    assert_eq!(sim.history(), before);
}
