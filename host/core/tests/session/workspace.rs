//! Checkpoints by policy, who waits for them, and a workspace that sessions share (S67, S91, S98,
//! S99).

use crate::scenes::{checkpoint_faulted, idle, snapshot, turn_running};
use crate::support::{LOOP, Sim, code, full, reference, stopped};
use harness_core::operation::Execution;
use harness_core::provider::Outcome;
use harness_core::session::{Answer, Effect, Input, MAX_CHECKPOINT_WAITERS, WorkspaceJob};
use harness_core::view::Status;
use harness_core::workspace::{CheckpointPolicy, Rewound, SnapshotError};

const POLICIES: [CheckpointPolicy; 2] = [CheckpointPolicy::BestEffort, CheckpointPolicy::Required];

fn with(policy: CheckpointPolicy) -> Sim {
    let mut sim = Sim::new();
    sim.policy = policy;
    sim
}

/// A turn from its start to its end.
fn turn(sim: &mut Sim) {
    let (_, runner) = sim.running();
    sim.done(runner, Ok(Outcome::default()));
}

fn begun(sim: &Sim) -> usize {
    sim.effect(|e| *e == Effect::Checkpoint)
}

fn starts(sim: &Sim) -> usize {
    sim.effect(|e| matches!(e, Effect::StartPrompt { .. }))
}

fn watches(sim: &Sim) -> usize {
    sim.effect(|e| *e == Effect::WatchWorkspace)
}

#[test]
fn s98_policy_off_takes_none() {
    let mut sim = with(CheckpointPolicy::Off);
    turn(&mut sim);
    assert_eq!((begun(&sim), sim.status()), (0, Status::Completed));
    sim.prompt("next");
    assert_eq!(starts(&sim), 2);
}

#[test]
fn s98_an_idle_edge_is_followed_by_its_checkpoint() {
    for policy in POLICIES {
        let mut sim = with(policy);
        turn(&mut sim);
        assert_eq!(begun(&sim), 1);
        assert_eq!(sim.count("SessionIdle"), 1, "the edge is durable first");
        assert_eq!(sim.free, 1, "the slot is free meanwhile");
        let next = sim.prompt("next");
        assert_eq!(sim.ledger.resolution(next), None);
        sim.checkpointed(1);
        let event = sim
            .events()
            .find(|e| e.body.meta().name == "WorkspaceCheckpointed");
        assert!(event.unwrap().cause.is_empty(), "nobody asked for it");
        assert_eq!(sim.ledger.resolution(next), Some("TurnStarted"));
    }
}

#[test]
fn s98_chained_turns_have_no_idle_edge_and_no_checkpoint() {
    for policy in POLICIES {
        let mut sim = with(policy);
        let (_, runner) = sim.running();
        sim.prompt("second");
        sim.done(runner, Ok(Outcome::default()));
        assert_eq!((begun(&sim), starts(&sim)), (0, 2));
    }
}

#[test]
fn s98_an_idle_control_ends_in_an_idle_edge_too() {
    for policy in POLICIES {
        let mut sim = with(policy);
        let (_, invocation) = sim.control();
        sim.invoked(invocation, crate::support::completed());
        assert_eq!(begun(&sim), 1);
    }
}

#[test]
fn s98_best_effort_goes_on_after_a_failure_and_tries_at_the_next_edge() {
    let mut sim = with(CheckpointPolicy::BestEffort);
    turn(&mut sim);
    let next = sim.prompt("next");
    sim.no_checkpoint();
    assert_eq!(begun(&sim), 1, "not again at this edge");
    assert_eq!(sim.ledger.resolution(next), Some("TurnStarted"));
    assert_eq!(sim.session.view().checkpoint_fault, None);
    let runner = sim.runner();
    sim.started(runner, Ok(Default::default()));
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(begun(&sim), 2);
}

#[test]
fn s98_a_required_failure_latches_until_a_checkpoint_succeeds() {
    let mut sim = checkpoint_faulted().sim;
    let fault = sim.session.view().checkpoint_fault.unwrap();
    assert_eq!(fault.code, "disk_full");
    assert!(fault.message.contains("no space"), "the operator reads why");
    assert!(!sim.session.live.is_quiet(), "it is not parked away");
    sim.prompt("waits");
    sim.feed(Input::Advance);
    assert_eq!((begun(&sim), starts(&sim)), (1, 1), "nothing by itself");
    sim.checkpoint();
    sim.checkpointed(2);
    assert_eq!(starts(&sim), 2);
}

#[test]
fn s98_a_failed_checkpoint_leaves_no_ref() {
    for policy in [CheckpointPolicy::Off, CheckpointPolicy::Required] {
        let mut sim = with(policy);
        let mark = sim.mark();
        let (id, _) = sim.checkpoint();
        sim.no_checkpoint();
        assert_eq!(sim.mark(), mark);
        let refused = sim.snapped[&id].as_ref().unwrap_err();
        assert_eq!(refused.code(), "snapshot_failed");
        let required = policy == CheckpointPolicy::Required;
        assert_eq!(sim.session.live.workspace.fault.is_some(), required);
    }
}

#[test]
fn s98_required_checkpoints_are_taken_in_order_one_each() {
    let mut sim = with(CheckpointPolicy::Required);
    let ids: Vec<_> = (0..3).map(|_| sim.checkpoint().0).collect();
    for (tree, id) in (1..).zip(&ids) {
        let asked = vec![*id];
        let job = Some(WorkspaceJob::Checkpoint { asked });
        assert_eq!(sim.session.live.workspace.job, job);
        sim.checkpointed(tree);
        assert_eq!(sim.snapped.get(id), Some(&Ok(reference(tree))));
    }
    assert_eq!(sim.count("WorkspaceCheckpointed"), 3);
}

#[test]
fn s98_waiting_checkpoints_are_bounded() {
    let mut sim = snapshot().sim;
    for _ in 0..MAX_CHECKPOINT_WAITERS {
        assert_eq!(sim.checkpoint().1, Answer::AtWork);
    }
    assert_eq!(code(&sim.checkpoint().1), "session_busy");
    sim.checkpointed(1);
    sim.checkpointed(2);
    let events = sim.count("WorkspaceCheckpointed");
    assert_eq!(events, 1 + MAX_CHECKPOINT_WAITERS, "each has its event");
}

#[test]
fn s67_s91_who_waits_for_idle_waits_for_the_required_checkpoint() {
    for policy in POLICIES {
        let mut sim = with(policy);
        let (_, runner) = sim.running();
        assert!(matches!(sim.interrupt(), Answer::Stopping(_)));
        let queued = sim.prompt("after the stop");
        sim.done(runner, stopped());
        let told = |sim: &Sim| sim.effect(|e| matches!(e, Effect::Stopped(_)));
        assert_eq!(sim.count("SessionIdle"), 1);
        let required = policy == CheckpointPolicy::Required;
        assert_eq!(told(&sim), usize::from(!required));
        assert_eq!(sim.ledger.resolution(queued), None, "behind the checkpoint");
        sim.checkpointed(1);
        assert_eq!(told(&sim), 1);
        assert_eq!(sim.ledger.resolution(queued), Some("TurnStarted"));
    }
}

#[test]
fn s91_a_failed_required_checkpoint_ends_the_stop_as_well() {
    let mut sim = with(CheckpointPolicy::Required);
    let (_, runner) = sim.running();
    sim.interrupt();
    sim.done(runner, stopped());
    sim.no_checkpoint();
    assert_eq!(sim.effect(|e| matches!(e, Effect::Stopped(_))), 1);
    assert!(sim.session.live.stops.is_empty());
}

#[test]
fn s98_a_restart_takes_the_required_checkpoint_that_is_owed() {
    let mut sim = with(CheckpointPolicy::Required);
    turn(&mut sim);
    assert_eq!(begun(&sim), 1);
    let held = sim.prompt("typed before the crash");
    sim.crash();
    assert_eq!(begun(&sim), 2, "before anything is admitted");
    assert_eq!(code(&sim.try_control()), "session_busy");
    sim.no_checkpoint();
    assert_eq!(code(&sim.try_control()), "checkpoint_faulted");
    sim.crash();
    sim.checkpointed(1);
    sim.release(&[held]);
    assert_eq!(sim.ledger.resolution(held), Some("TurnStarted"));
    let runner = sim.runner();
    sim.started(runner, Ok(Default::default()));
    sim.done(runner, Ok(Outcome::default()));
    sim.checkpointed(2);
    let before = begun(&sim);
    sim.crash();
    assert_eq!(begun(&sim), before, "what was taken is not owed");
}

#[test]
fn s98_a_stopped_session_owes_its_checkpoint_when_it_is_taken_up_again() {
    let mut sim = with(CheckpointPolicy::Required);
    sim.running();
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin));
    let runner = sim.runner();
    sim.done(runner, stopped());
    assert_eq!((sim.status(), begun(&sim)), (Status::Stopped, 0));
    sim.feed(Input::Reopen(None));
    assert_eq!(begun(&sim), 1);
}

#[test]
fn s62_a_checkpoint_that_cannot_be_recorded_faults_the_session() {
    let mut sim = snapshot().sim;
    let waits = sim.checkpoint().0;
    sim.disk_full = true;
    sim.checkpointed(1);
    assert!(sim.session.live.faulted.is_some());
    assert_eq!(sim.snapped.len(), 2, "whoever asked is told");
    for told in sim.snapped.values() {
        assert_eq!(told.as_ref().unwrap_err().code(), "session_faulted");
    }
    assert!(sim.snapped.contains_key(&waits));
    assert_eq!(sim.count("WorkspaceCheckpointed"), 0);
}

#[test]
fn s99_a_rewind_that_cannot_be_recorded_faults_the_session_and_is_not_finished() {
    let mut sim = idle().sim;
    let (id, _) = sim.rewind(1);
    sim.disk_full = true;
    sim.rewound(1);
    assert!(sim.session.live.faulted.is_some());
    assert_eq!(sim.effect(|e| *e == Effect::FinishRewind), 0);
    assert_eq!(
        sim.snapped[&id].as_ref().unwrap_err().code(),
        "session_faulted"
    );
    sim.feed(Input::RewindFinished);
    assert_eq!(sim.snapped.len(), 1);
}

#[test]
fn s99_a_recorded_rewind_is_answered_when_it_is_finished_or_given_up() {
    let rewound = Input::Rewound(Ok(Rewound {
        reference: reference(1),
        exact: false,
    }));
    for give_up in [false, true] {
        let mut sim = idle().sim;
        let (id, _) = sim.rewind(1);
        sim.feed(rewound.clone());
        assert!(sim.snapped.is_empty(), "its store still works on it");
        assert_eq!(code(&sim.checkpoint().1), "", "the next one waits for it");
        if give_up {
            let origin = sim.origin();
            sim.feed(Input::Shutdown(origin));
            sim.feed(Input::ShutdownExpired);
        } else {
            sim.feed(Input::RewindFinished);
        }
        assert_eq!(sim.snapped.get(&id), Some(&Ok(reference(1))), "it is done");
    }
}

#[test]
fn s99_a_failed_rollback_faults_the_session() {
    let mut sim = idle().sim;
    let (id, _) = sim.rewind(1);
    let lost = SnapshotError::RollbackFailed("between two trees".into());
    assert_eq!(sim.feed(Input::Rewound(Err(lost))), Answer::None);
    assert_eq!(
        sim.snapped[&id].as_ref().unwrap_err().code(),
        "snapshot_failed"
    );
    assert!(sim.session.live.faulted.is_some());
    assert_eq!(sim.status(), Status::Failed);
}

#[test]
fn s99_other_failures_leave_the_session_as_it_was() {
    let cases = [
        (SnapshotError::RefNotFound("v1:…".into()), "ref_not_found"),
        (SnapshotError::Busy("busy".into()), "not_idle"),
        (full(), "snapshot_failed"),
    ];
    for (error, expected) in cases {
        let mut sim = idle().sim;
        let mark = sim.mark();
        let (id, _) = sim.rewind(1);
        sim.feed(Input::Rewound(Err(error)));
        assert_eq!(sim.snapped[&id].as_ref().unwrap_err().code(), expected);
        assert_eq!((sim.mark(), sim.status()), (mark, Status::Completed));
        sim.running();
    }
}

#[test]
fn s119_without_a_local_workspace_both_are_refused() {
    let mut sim = with(CheckpointPolicy::Required);
    sim.no_snapshots = Some("the session's workspace is remote");
    for answer in [sim.checkpoint().1, sim.rewind(1).1] {
        assert_eq!(code(&answer), "workspace_unsupported");
    }
    turn(&mut sim);
    assert_eq!(begun(&sim), 0, "the policy does not apply to it");
    sim.prompt("next");
    assert_eq!(starts(&sim), 2);
}

#[test]
fn s99_another_session_at_work_in_the_workspace_makes_it_not_idle() {
    let mut sim = idle().sim;
    sim.others_work = true;
    assert_eq!(code(&sim.checkpoint().1), "not_idle");
    assert_eq!(code(&sim.rewind(1).1), "not_idle");
    sim.running();
    assert_eq!(sim.status(), Status::InProgress, "both may work there");
}

#[test]
fn s99_while_another_session_has_the_workspace_starts_wait_for_it() {
    let mut sim = idle().sim;
    sim.others_hold = true;
    let id = sim.prompt("waits");
    assert_eq!((sim.status(), starts(&sim)), (Status::Queued, 0));
    assert_eq!((sim.free, watches(&sim)), (1, 1), "not for a slot");
    for execution in [Execution::Control, Execution::Exclusive] {
        let reserve = sim.prepared(execution);
        let mark = sim.mark();
        assert_eq!(sim.reserve(reserve), Answer::WaitForWorkspace);
        assert_eq!(sim.mark(), mark, "nothing is recorded");
    }
    assert_eq!(code(&sim.checkpoint().1), "not_idle");
    sim.feed(Input::WorkspaceChanged);
    assert_eq!(
        (starts(&sim), watches(&sim)),
        (0, 2),
        "still held: looks again"
    );
    sim.others_hold = false;
    sim.feed(Input::WorkspaceChanged);
    assert_eq!(sim.ledger.resolution(id), Some("TurnStarted"));
}

#[test]
fn s98_a_required_checkpoint_waits_until_nobody_else_works_there() {
    let mut sim = with(CheckpointPolicy::Required);
    sim.others_work = true;
    turn(&mut sim);
    assert_eq!((begun(&sim), watches(&sim)), (0, 1));
    let next = sim.prompt("next");
    assert_eq!(
        sim.ledger.resolution(next),
        None,
        "what is required comes first"
    );
    assert_eq!(code(&sim.try_control()), "session_busy");
    sim.others_work = false;
    sim.feed(Input::WorkspaceChanged);
    assert_eq!(begun(&sim), 1);
    sim.checkpointed(1);
    assert_eq!(sim.ledger.resolution(next), Some("TurnStarted"));
}

#[test]
fn s98_a_best_effort_checkpoint_is_left_out_while_others_work_there() {
    let mut sim = with(CheckpointPolicy::BestEffort);
    sim.others_work = true;
    turn(&mut sim);
    assert_eq!((begun(&sim), watches(&sim)), (0, 0));
    sim.others_work = false;
    turn(&mut sim);
    assert_eq!(begun(&sim), 1, "made up for at the next edge");
}

#[test]
fn s99_who_works_there_enters_and_leaves_once_a_run() {
    let mut scene = turn_running();
    let sim = &mut scene.sim;
    let second = sim.prompt("chained");
    let runner = scene.runner.unwrap();
    let count = |sim: &Sim| {
        let entered = sim.effect(|e| *e == Effect::EnterWorkspace);
        (entered, sim.effect(|e| *e == Effect::LeaveWorkspace))
    };
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(sim.ledger.resolution(second), Some("TurnStarted"));
    assert_eq!(count(sim), (1, 0), "a chained turn stays inside");
    let runner = sim.runner();
    sim.started(runner, Ok(Default::default()));
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(count(sim), (1, 1));
    assert!(!sim.session.live.workspace.inside);
    assert_eq!(sim.live().slot, sim.session.live.of(LOOP).slot);
}
