//! Race matrix (§11): the rows `snapshot or rewind` and `checkpoint-faulted`, and the column
//! `checkpoint / rewind`.

use crate::scenes::{
    Scene, awaiting_gate, checkpoint_faulted, exclusive_starting, faulted, idle, idle_control,
    prompt_starting, queued, rewinding, snapshot, stopping, turn_ended, turn_running,
};
use crate::support::{LOOP, Sim, code, reference};
use harness_core::event::{CompactionReason, EventBody};
use harness_core::gate::GateReply;
use harness_core::ids::{CommandId, GateId};
use harness_core::operation::Execution;
use harness_core::provider::Compaction;
use harness_core::session::{Answer, Effect, Input, WorkspaceJob};
use harness_core::view::Status;
use uuid::Uuid;

type Make = fn() -> Scene;

/// A snapshot is being taken; the workspace is being rewound.
const AT_WORK: [Make; 2] = [snapshot, rewinding];

/// What is at work ends well.
fn outcome(sim: &mut Sim) {
    match sim.session.live.workspace.job {
        Some(WorkspaceJob::Checkpoint { .. }) => sim.checkpointed(1),
        Some(WorkspaceJob::Rewind { .. }) => sim.rewound(1),
        None => panic!("nothing is at work"),
    }
}

fn starts(sim: &Sim) -> usize {
    sim.effect(|e| matches!(e, Effect::StartPrompt { .. }))
}

fn compacts(sim: &Sim) -> usize {
    sim.effect(|e| matches!(e, Effect::Compact { .. }))
}

/// Refused with that code; nothing is recorded, invoked or changed.
fn refuses(sim: &mut Sim, expected: &str, ask: impl FnOnce(&mut Sim) -> Answer) {
    let before = (sim.mark(), sim.effects.len(), sim.session.clone());
    let answer = ask(sim);
    assert_eq!(code(&answer), expected);
    assert_eq!(
        (sim.mark(), sim.effects.len(), sim.session.clone()),
        before,
        "no trace"
    );
}

#[test]
fn matrix_s98_snapshot_or_rewind_operations() {
    for make in AT_WORK {
        let sim = &mut make().sim;
        refuses(sim, "session_busy", Sim::try_control);
        refuses(sim, "session_busy", Sim::try_exclusive);
        outcome(sim);
        sim.control();
    }
}

#[test]
fn matrix_s98_snapshot_or_rewind_prompt() {
    for make in AT_WORK {
        let sim = &mut make().sim;
        let id = sim.prompt("later");
        assert_eq!((starts(sim), sim.status()), (0, Status::Queued));
        assert_eq!(sim.free, 1, "no slot is taken meanwhile");
        let shown = sim.effect(
            |e| matches!(e, Effect::Publish(event) if event.body.meta().name == "InputQueued"),
        );
        assert_eq!(shown, 1, "S40");
        outcome(sim);
        assert_eq!(sim.ledger.resolution(id), Some("TurnStarted"));
        let names = sim.names_since(0);
        let place = |what: &[&str]| names.iter().position(|n| what.contains(n)).unwrap();
        let events = ["WorkspaceCheckpointed", "WorkspaceRestored"];
        assert!(
            place(&events) < place(&["TurnStarted"]),
            "after its outcome"
        );
    }
}

#[test]
fn matrix_s98_snapshot_or_rewind_stop() {
    for make in AT_WORK {
        let sim = &mut make().sim;
        let mark = sim.mark();
        assert_eq!(sim.interrupt(), Answer::Bool(false));
        assert_eq!(sim.mark(), mark);
        assert!(sim.session.live.workspace.job.is_some(), "it continues");
        let abandoned = sim.effect(|e| *e == Effect::AbandonWorkspaceJob);
        assert_eq!(abandoned, 0);
    }
}

#[test]
fn matrix_s98_snapshot_or_rewind_gate_reply() {
    for make in AT_WORK {
        refuses(&mut make().sim, "gate_not_found", |sim| {
            sim.answer(GateId(Uuid::from_u128(9)), GateReply::ApproveOnce)
        });
    }
}

#[test]
fn matrix_s98_snapshot_or_rewind_retract_and_release() {
    for make in AT_WORK {
        let mut sim = make().sim;
        let kept = sim.prompt("kept");
        let taken = sim.prompt("taken back");
        assert_eq!(sim.retract(taken), Answer::Bool(true));
        assert_eq!(sim.ledger.resolution(taken), Some("InputCancelled"));
        // Held inputs come of a crash, which ends the job as well.
        sim.crash();
        sim.checkpoint();
        assert_eq!(sim.release(&[]), Answer::Released(vec![kept]));
        assert_eq!(starts(&sim), 0, "released, it waits for the outcome");
        outcome(&mut sim);
        assert_eq!(sim.ledger.resolution(kept), Some("TurnStarted"));
    }
}

#[test]
fn matrix_s98_snapshot_or_rewind_setting_change() {
    for make in AT_WORK {
        let sim = &mut make().sim;
        assert_eq!(sim.set(Some("new"), None, None), Answer::Accepted);
        let mode = "review".to_owned();
        let set = sim.feed(Input::SetLoopMode {
            loop_id: LOOP,
            mode,
        });
        assert!(matches!(set, Answer::LoopRuntime { .. }));
        assert_eq!(sim.session.state.title, "new");
    }
}

#[test]
fn matrix_s98_snapshot_or_rewind_compact() {
    for make in AT_WORK {
        let sim = &mut make().sim;
        sim.harness.as_mut().unwrap().features.compaction = true;
        assert_eq!(sim.compact(LOOP).1, Answer::Accepted);
        assert_eq!(compacts(sim), 0, "it waits");
        outcome(sim);
        assert_eq!(compacts(sim), 1);
    }
}

#[test]
fn matrix_s98_snapshot_or_rewind_checkpoint_and_rewind() {
    for make in AT_WORK {
        let sim = &mut make().sim;
        refuses(sim, "not_idle", |sim| sim.rewind(3).1);
        let asked: Vec<CommandId> = (0..3).map(|_| sim.checkpoint().0).collect();
        outcome(sim);
        assert!(sim.snapped.keys().all(|id| !asked.contains(id)));
        let again = Some(WorkspaceJob::Checkpoint {
            asked: asked.clone(),
        });
        assert_eq!(sim.session.live.workspace.job, again, "coalesced");
        sim.checkpointed(5);
        for id in &asked {
            assert_eq!(sim.snapped.get(id), Some(&Ok(reference(5))));
        }
        assert!(!sim.session.live.workspace.held);
    }
}

#[test]
fn matrix_s94_snapshot_or_rewind_shutdown() {
    for make in AT_WORK {
        let sim = &mut make().sim;
        let waits = sim.checkpoint().0;
        let origin = sim.origin();
        assert_eq!(sim.feed(Input::Shutdown(origin)), Answer::ShuttingDown);
        assert_eq!(sim.count("SessionStopped"), 0, "it is waited for");
        let told = sim.snapped.get(&waits).unwrap().as_ref().unwrap_err();
        assert_eq!(told.code(), "session_stopping");
        outcome(sim);
        let names = sim.names_since(sim.mark() - 2);
        assert_eq!(names.last(), Some(&"SessionStopped"));
        assert!(names[0].starts_with("Workspace"), "{names:?}");
    }
}

#[test]
fn matrix_s94_snapshot_or_rewind_shutdown_gives_up_after_its_phase() {
    for make in AT_WORK {
        let sim = &mut make().sim;
        let origin = sim.origin();
        sim.feed(Input::Shutdown(origin));
        assert_eq!(sim.feed(Input::ShutdownExpired), Answer::Bool(true));
        assert_eq!(sim.effect(|e| *e == Effect::AbandonWorkspaceJob), 1);
        assert_eq!(sim.count("SessionStopped"), 1);
        let mark = sim.mark();
        let late = sim.feed(Input::Rewound(Err(crate::support::full())));
        assert_eq!(late, Answer::None);
        sim.checkpointed(1);
        assert_eq!(sim.mark(), mark, "nothing after SessionStopped");
        assert!(sim.snapped.values().all(Result::is_err));
    }
}

#[test]
fn matrix_s98_checkpoint_faulted_operations() {
    let sim = &mut checkpoint_faulted().sim;
    refuses(sim, "checkpoint_faulted", Sim::try_control);
    refuses(sim, "checkpoint_faulted", Sim::try_exclusive);
}

#[test]
fn matrix_s98_checkpoint_faulted_prompt() {
    let sim = &mut checkpoint_faulted().sim;
    let before = starts(sim);
    let first = sim.prompt("first");
    let second = sim.prompt("second");
    assert_eq!((starts(sim), sim.status()), (before, Status::Queued));
    assert_eq!(sim.free, 1);
    // Exclusives are refused with prompts waiting, too.
    refuses(sim, "checkpoint_faulted", Sim::try_exclusive);
    let (asked, answer) = sim.checkpoint();
    assert_eq!(answer, Answer::AtWork);
    sim.no_checkpoint();
    assert_eq!(starts(sim), before, "one that fails changes nothing");
    assert!(sim.snapped[&asked].is_err());
    sim.checkpoint();
    sim.checkpointed(1);
    assert_eq!(sim.session.view().checkpoint_fault, None);
    assert_eq!(sim.ledger.resolution(first), Some("TurnStarted"));
    assert_eq!(sim.ledger.resolution(second), None, "in order");
}

#[test]
fn matrix_s98_checkpoint_faulted_rest_equals_idle() {
    let mut sim = checkpoint_faulted().sim;
    sim.harness.as_mut().unwrap().features.compaction = true;
    assert_eq!(sim.interrupt(), Answer::Bool(false));
    assert_eq!(
        code(&sim.answer(GateId(Uuid::from_u128(9)), GateReply::ApproveOnce)),
        "gate_not_found"
    );
    assert_eq!(sim.release(&[]), Answer::Released(Vec::new()));
    assert_eq!(sim.set(Some("new"), None, None), Answer::Accepted);
    let (_, answer) = sim.compact(LOOP);
    assert_eq!((answer, compacts(&sim)), (Answer::Accepted, 1), "it runs");
    let runner = sim.runner();
    sim.compacted(runner, Ok(Compaction::default()));
    let (rewind, answer) = sim.rewind(4);
    assert_eq!(answer, Answer::AtWork);
    sim.rewound(4);
    assert_eq!(sim.snapped.get(&rewind), Some(&Ok(reference(4))));
    assert!(
        sim.session.live.workspace.fault.is_some(),
        "a checkpoint alone ends it"
    );
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin));
    assert_eq!(sim.status(), Status::Stopped);
}

#[test]
fn matrix_s98_checkpoint_while_idle() {
    let sim = &mut idle().sim;
    let mark = sim.mark();
    let (id, answer) = sim.checkpoint();
    assert_eq!((answer, sim.mark()), (Answer::AtWork, mark));
    assert_eq!(sim.effect(|e| *e == Effect::Checkpoint), 1);
    sim.checkpointed(7);
    assert_eq!(sim.names_since(mark), ["WorkspaceCheckpointed"]);
    let event = sim.events().last().unwrap();
    assert_eq!(event.cause.command_id, Some(id));
    let expected = EventBody::WorkspaceCheckpointed {
        reference: reference(7),
        entries: 1,
        bytes: 2,
    };
    assert_eq!(event.body, expected);
    assert_eq!(sim.snapped.get(&id), Some(&Ok(reference(7))));
    assert_eq!(sim.effect(|e| *e == Effect::FreeWorkspace), 1);
}

#[test]
fn matrix_s99_rewind_while_idle() {
    let sim = &mut idle().sim;
    let mark = sim.mark();
    let (id, answer) = sim.rewind(7);
    assert_eq!((answer, sim.mark()), (Answer::AtWork, mark));
    sim.rewound(7);
    let expected = EventBody::WorkspaceRestored {
        reference: reference(7),
        exact: true,
    };
    let event = sim.events().last().unwrap();
    assert_eq!((&event.body, event.cause.command_id), (&expected, Some(id)));
    assert_eq!(sim.effect(|e| *e == Effect::FinishRewind), 1);
    assert_eq!(sim.snapped.get(&id), Some(&Ok(reference(7))));
}

#[test]
fn matrix_s98_s99_held_inputs_stay_held() {
    let mut sim = queued().sim;
    sim.crash();
    let held = |sim: &Sim| sim.session.state.queued_inputs().iter().all(|q| q.held);
    sim.free = 1;
    sim.checkpoint();
    sim.checkpointed(1);
    sim.rewind(1);
    sim.rewound(1);
    assert!(held(&sim) && sim.session.state.queued_inputs().len() == 1);
    assert_eq!(starts(&sim), 0);
}

#[test]
fn matrix_s98_s99_not_idle() {
    let scenes: [Make; 7] = [
        prompt_starting,
        exclusive_starting,
        turn_running,
        awaiting_gate,
        turn_ended,
        stopping,
        idle_control,
    ];
    for make in scenes {
        let sim = &mut make().sim;
        refuses(sim, "not_idle", |sim| sim.checkpoint().1);
        refuses(sim, "not_idle", |sim| sim.rewind(1).1);
    }
    let sim = &mut idle().sim;
    sim.harness.as_mut().unwrap().features.compaction = true;
    sim.compact(LOOP);
    assert_eq!(compacts(sim), 1);
    refuses(sim, "not_idle", |sim| sim.checkpoint().1);
    refuses(sim, "not_idle", |sim| sim.rewind(1).1);
    sim.interrupt();
    let runner = sim.runner();
    sim.compacted(
        runner,
        crate::support::refused(harness_core::provider::Refusal::Cancelled),
    );
    let rejected = sim.last("CompactionRejected");
    assert!(matches!(
        rejected,
        EventBody::CompactionRejected {
            reason: CompactionReason::Interrupted,
            ..
        }
    ));
}

#[test]
fn matrix_s98_s99_in_another_loop_counts() {
    let sim = &mut idle().sim;
    let other = sim.create_loop(None);
    sim.submit_to(other, "works");
    refuses(sim, "not_idle", |sim| sim.checkpoint().1);
    refuses(sim, "not_idle", |sim| sim.rewind(1).1);
}

#[test]
fn matrix_s98_s99_closing_stopped_and_faulted() {
    let sim = &mut faulted().sim;
    refuses(sim, "session_faulted", |sim| sim.checkpoint().1);
    refuses(sim, "session_faulted", |sim| sim.rewind(1).1);
    let sim = &mut turn_running().sim;
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin));
    refuses(sim, "session_stopping", |sim| sim.checkpoint().1);
    refuses(sim, "session_stopping", |sim| sim.rewind(1).1);
    let runner = sim.runner();
    sim.done(runner, crate::support::stopped());
    refuses(sim, "session_stopped", |sim| sim.checkpoint().1);
    refuses(sim, "session_stopped", |sim| sim.rewind(1).1);
    let sim = &mut idle().sim;
    sim.feed(Input::Close);
    refuses(sim, "host_shutting_down", |sim| sim.checkpoint().1);
    refuses(sim, "host_shutting_down", |sim| sim.rewind(1).1);
}

#[test]
fn s51_nothing_that_begins_a_run_passes_by_the_one_predicate() {
    let mut sim = snapshot().sim;
    sim.harness.as_mut().unwrap().features.compaction = true;
    sim.prompt("prompt");
    sim.compact(LOOP);
    sim.announce(1, "native", harness_core::provider::TurnStart::Running);
    sim.announce(2, "wanted", harness_core::provider::TurnStart::Wanted);
    for execution in [Execution::Control, Execution::Exclusive] {
        let reserve = sim.prepared(execution);
        assert_eq!(code(&sim.reserve(reserve)), "session_busy");
    }
    assert!(sim.session.live.owners().next().is_none());
    assert!(sim.announcements.is_empty(), "the native side waits");
    sim.checkpointed(1);
    assert!(sim.live().owner.is_some());
}
