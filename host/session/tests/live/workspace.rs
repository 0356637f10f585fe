//! Checkpoints and rewinds of a workspace (S67, S91, S94, S98, S99, S119, S120, §6.1 step 3).

use crate::scenes::turn_running_in;
use crate::support::vault::{full, reference};
use crate::support::{Seat, World, code, fixed_key, forward, joined, patient, until};
use harness_core::refusal::Refused;
use harness_core::view::Status;
use harness_core::workspace::{CheckpointPolicy, SnapshotError, WorkspaceRef};
use harness_journal::fault::Fault;
use harness_journal::{WorkspaceState, WorkspaceTarget};
use harness_session::{Caller, KeyState};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;

type Snapped = JoinHandle<Result<WorkspaceRef, Refused>>;

impl Seat {
    fn checkpoint_as(&self, caller: Caller) -> Snapped {
        let (host, id) = (self.host.clone(), self.id);
        tokio::spawn(async move { host.checkpoint(id, caller).await })
    }

    fn checkpoint(&self) -> Snapped {
        self.checkpoint_as(Caller::default())
    }

    fn rewind_as(&self, caller: Caller, tree: u8) -> Snapped {
        let (host, id) = (self.host.clone(), self.id);
        tokio::spawn(async move { host.rewind(id, caller, reference(tree)).await })
    }

    fn rewind(&self, tree: u8) -> Snapped {
        self.rewind_as(Caller::default(), tree)
    }
}

async fn with(policy: CheckpointPolicy) -> World {
    World::with(|config| {
        config.checkpoint = policy;
        config.slots = 4;
    })
    .await
}

/// Waits until so many checkpoints are recorded.
async fn recorded(seat: &Seat, checkpoints: usize) {
    patient("a checkpoint", async {
        while seat.count("WorkspaceCheckpointed").await < checkpoints {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A turn from its start to the end of its run.
async fn turn(world: &World, seat: &Seat) {
    seat.prompt("work").await;
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
}

#[tokio::test]
async fn s98_the_bytes_are_durable_before_the_event() {
    let world = World::new().await;
    let seat = world.idle().await;
    world.vault.hold();
    let asked = seat.checkpoint();
    let call = world.vault.next().await;
    assert_eq!(call.allowed.time, Some(Duration::from_secs(30)));
    assert_eq!(seat.count("WorkspaceCheckpointed").await, 0);
    assert_eq!(seat.refusal("/c now").await, "session_busy");
    call.goes_on();
    assert_eq!(joined(asked).await.unwrap(), reference(1));
    let events = seat.events().await;
    let event = events.last().unwrap();
    assert_eq!(event["type"], "WorkspaceCheckpointed");
    assert_eq!(event["ref"], reference(1).as_str());
    assert_eq!(world.vault.log(), ["checkpoint", "stored 1"]);
}

#[tokio::test]
async fn s98_a_failure_is_told_and_leaves_no_ref() {
    let world = World::new().await;
    let seat = world.idle().await;
    world.vault.hold();
    let asked = seat.checkpoint();
    world.vault.next().await.fails(full());
    let refused = joined(asked).await.unwrap_err();
    assert_eq!(refused.code(), "snapshot_failed");
    assert!(refused.to_string().contains("no space"));
    assert_eq!(seat.count("WorkspaceCheckpointed").await, 0);
    world.vault.let_go();
    turn(&world, &seat).await;
    seat.until(Status::Completed).await;
}

#[tokio::test]
async fn s119_a_session_at_work_is_not_idle() {
    let scene = turn_running_in(with(CheckpointPolicy::Off).await).await;
    assert_eq!(code(&joined(scene.seat.checkpoint()).await), "not_idle");
    assert_eq!(code(&joined(scene.seat.rewind(1)).await), "not_idle");
    // Sessions share the workspace.
    let other = scene.world.idle().await;
    let refused = joined(other.checkpoint()).await.unwrap_err();
    assert_eq!((refused.code(), refused.retryable()), ("not_idle", true));
    assert_eq!(code(&joined(other.rewind(1)).await), "not_idle");
    let seat = scene.seat.clone();
    scene.finish().await;
    assert_eq!(code(&joined(other.checkpoint()).await), "ok");
    assert_eq!(code(&joined(seat.checkpoint()).await), "ok");
}

#[tokio::test]
async fn s99_starts_of_other_sessions_wait_while_one_has_the_workspace() {
    let world = with(CheckpointPolicy::Off).await;
    let (seat, other) = (world.idle().await, world.idle().await);
    world.vault.hold();
    let asked = seat.rewind(1);
    let call = world.vault.next().await;
    other.prompt("waits").await;
    assert_eq!(other.status().await, Status::Queued);
    assert_eq!(code(&joined(other.checkpoint()).await), "not_idle");
    assert_eq!(world.probe.prompts.count(), 0);
    assert_eq!(world.host.free_slots(), 4, "no slot is held meanwhile");
    call.goes_on();
    assert_eq!(joined(asked).await.unwrap(), reference(1));
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    other.until(Status::Completed).await;
}

#[tokio::test]
async fn s99_operations_wait_for_a_workspace_that_another_session_has() {
    for text in ["/c control", "/x exclusive"] {
        let world = with(CheckpointPolicy::Off).await;
        let (seat, other) = (world.idle().await, world.idle().await);
        world.vault.hold();
        let asked = seat.checkpoint();
        let call = world.vault.next().await;
        let mut operation = other.operate(text);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut operation).await;
        assert!(early.is_err(), "it waits");
        assert_eq!(world.probe.invokes.count(), 2, "and was not invoked");
        call.goes_on();
        joined(asked).await.unwrap();
        world.probe.invokes.next().await.completes("");
        joined(operation).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn s99_an_operation_waits_for_the_workspace_within_its_bound() {
    let world = World::still(|config| config.slots = 4).await;
    let (seat, other) = (world.idle().await, world.idle().await);
    world.vault.hold();
    let asked = seat.checkpoint();
    let call = world.vault.next().await;
    let operation = other.operate("/c late");
    forward(Duration::from_secs(11)).await;
    let refused = joined(operation).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.retryable()),
        ("session_busy", true)
    );
    assert!(refused.to_string().contains("another session"), "{refused}");
    call.goes_on();
    joined(asked).await.unwrap();
}

#[tokio::test]
async fn s99_another_workspace_is_not_concerned() {
    let world = with(CheckpointPolicy::Off).await;
    let seat = world.idle().await;
    let root = world.dir.path().join("elsewhere");
    std::fs::create_dir(&root).unwrap();
    let root_path = root.to_string_lossy().into_owned();
    let target = WorkspaceTarget::Local { root_path };
    world
        .workspace("elsewhere", target, WorkspaceState::Ready)
        .await;
    let mut request = world.request(harness_session::First::Prompt(vec![
        harness_core::content::Block::Text { text: "go".into() },
    ]));
    request.draft.workspace_id = Some("elsewhere".parse().unwrap());
    world.vault.hold();
    let asked = seat.checkpoint();
    let call = world.vault.next().await;
    let created = joined(world.create_as(Caller::default(), request)).await;
    let other = world.seat(created.unwrap().session.id);
    world.probe.prompts.next().await.starts();
    let done = world.probe.dones.next().await;
    call.goes_on();
    joined(asked).await.unwrap();
    done.ends();
    other.until(Status::Completed).await;
}

#[tokio::test]
async fn s119_a_remote_workspace_is_refused_clearly() {
    let world = with(CheckpointPolicy::Required).await;
    let target = WorkspaceTarget::Remote {
        host: "far".into(),
        path: "/work".into(),
    };
    world.workspace("far", target, WorkspaceState::Ready).await;
    let mut request = world.request(World::first("/c first"));
    request.draft.workspace_id = Some("far".parse().unwrap());
    let created = world.create_as(Caller::default(), request);
    world.probe.invokes.next().await.completes("");
    let seat = world.seat(joined(created).await.unwrap().session.id);
    for asked in [seat.checkpoint(), seat.rewind(1)] {
        let refused = joined(asked).await.unwrap_err();
        assert_eq!(refused.code(), "workspace_unsupported");
        assert!(refused.to_string().contains("remote"), "{refused}");
    }
    turn(&world, &seat).await;
    seat.until(Status::Completed).await;
    assert_eq!(world.vault.log(), [""; 0]);
}

#[tokio::test]
async fn s99_a_rewind_is_recorded_before_its_way_back_is_dropped() {
    let world = World::new().await;
    let seat = world.idle().await;
    assert_eq!(joined(seat.rewind(5)).await.unwrap(), reference(5));
    assert_eq!(world.vault.log(), ["rewind", "rewound", "finish"]);
    let events = seat.events().await;
    let event = events.last().unwrap();
    assert_eq!(event["type"], "WorkspaceRestored");
    assert_eq!(
        (&event["ref"], &event["exact"]),
        (&reference(5).as_str().into(), &true.into())
    );
    assert_eq!(joined(seat.checkpoint()).await.unwrap(), reference(1));
}

#[tokio::test]
async fn s99_s119_an_unknown_ref_is_not_found_and_changes_nothing() {
    let world = World::new().await;
    let seat = world.idle().await;
    world.vault.hold();
    let asked = seat.rewind(9);
    let gone = SnapshotError::RefNotFound(reference(9).to_string());
    world.vault.next().await.fails(gone);
    assert_eq!(code(&joined(asked).await), "ref_not_found");
    assert_eq!(seat.count("WorkspaceRestored").await, 0);
    assert_eq!(*world.vault.pending.lock().unwrap(), None);
    turn(&world, &seat).await;
    seat.until(Status::Completed).await;
}

#[tokio::test]
async fn s99_an_append_that_fails_takes_the_rewind_back_and_faults_the_session() {
    let world = with(CheckpointPolicy::Off).await;
    let (seat, other) = (world.idle().await, world.idle().await);
    world.vault.hold();
    let asked = seat.rewind(1);
    let call = world.vault.next().await;
    world.faults.fail_next(Fault::Full);
    call.goes_on();
    assert_eq!(code(&joined(asked).await), "session_faulted");
    let vault = world.vault.clone();
    until("a rollback", || vault.count("roll back") == 1).await;
    assert_eq!(vault.count("finish"), 0);
    assert_eq!(seat.view().await.error.unwrap().code, "session_faulted");
    assert_eq!(code(&joined(seat.checkpoint()).await), "session_faulted");
    // The workspace is whole, so others go on.
    vault.let_go();
    turn(&world, &other).await;
    other.until(Status::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn s99_an_append_nobody_knows_of_keeps_the_workspace_closed_until_the_journal_tells() {
    for written in [true, false] {
        let world = World::still(|config| config.slots = 4).await;
        let (seat, other) = (world.idle().await, world.idle().await);
        world.vault.hold();
        let asked = seat.rewind(1);
        let call = world.vault.next().await;
        world.faults.fail_next(Fault::Ambiguous { written });
        call.goes_on();
        assert_eq!(code(&joined(asked).await), "session_faulted");
        other.prompt("waits").await;
        assert_eq!(other.status().await, Status::Queued);
        assert_eq!(world.vault.log(), ["rewind", "rewound"], "on record");
        forward(Duration::from_secs(6)).await;
        let ended = if written {
            "recover: finish"
        } else {
            "recover: roll back"
        };
        let vault = world.vault.clone();
        until("its end", || vault.count(ended) == 1).await;
        world.probe.prompts.next().await.starts();
        world.probe.dones.next().await.ends();
        other.until(Status::Completed).await;
    }
}

#[tokio::test]
async fn s99_a_failed_rollback_faults_the_session_and_keeps_the_workspace_closed() {
    let world = with(CheckpointPolicy::Off).await;
    let (seat, other) = (world.idle().await, world.idle().await);
    world.vault.hold();
    let asked = seat.rewind(1);
    let lost = SnapshotError::RollbackFailed("between two trees".into());
    world.vault.next().await.fails(lost);
    assert_eq!(code(&joined(asked).await), "snapshot_failed");
    assert_eq!(code(&seat.try_prompt("no").await), "session_faulted");
    other.prompt("waits").await;
    assert_eq!(other.status().await, Status::Queued);
    assert_eq!(code(&joined(other.checkpoint()).await), "not_idle");
    let world = world.restart().await;
    assert_eq!(
        world.vault.count("recover: roll back"),
        1,
        "before anything is served"
    );
    let seat = world.seat(seat.id);
    turn(&world, &seat).await;
    seat.until(Status::Completed).await;
}

#[tokio::test]
async fn s99_a_rewind_that_a_crash_cut_goes_the_way_the_journal_says() {
    for recorded in [false, true] {
        let world = World::new().await;
        let seat = world.idle().await;
        let mut dead = None;
        if recorded {
            world.vault.stuck.store(true, Ordering::SeqCst);
            joined(seat.rewind(1)).await.unwrap();
            world.vault.stuck.store(false, Ordering::SeqCst);
        } else {
            world.vault.hold();
            let _cut = seat.rewind(1);
            // The thread of the dead process works on it no more.
            dead = Some(world.vault.next().await);
            world.vault.let_go();
        }
        let world = world.restart().await;
        let log = world.vault.log();
        let way = log.iter().rev().find(|l| l.starts_with("recover")).unwrap();
        let expected = if recorded {
            "recover: finish"
        } else {
            "recover: roll back"
        };
        assert_eq!(way, expected, "{log:?}");
        drop(dead);
        let seat = world.seat(seat.id);
        assert_eq!(seat.count("WorkspaceRestored").await, usize::from(recorded));
    }
}

#[tokio::test]
async fn s99_what_a_rewind_could_not_remove_is_ended_before_the_next_work() {
    let world = World::new().await;
    let seat = world.idle().await;
    world.vault.stuck.store(true, Ordering::SeqCst);
    assert_eq!(
        joined(seat.rewind(1)).await.unwrap(),
        reference(1),
        "it is done"
    );
    world.vault.stuck.store(false, Ordering::SeqCst);
    joined(seat.checkpoint()).await.unwrap();
    let log = world.vault.log();
    let ended = log.iter().position(|l| l == "recover: finish").unwrap();
    let taken = log.iter().position(|l| l == "checkpoint").unwrap();
    assert!(ended < taken, "{log:?}");
}

#[tokio::test]
async fn s98_a_required_failure_latches_until_a_manual_checkpoint_succeeds() {
    let world = with(CheckpointPolicy::Required).await;
    let seat = world.idle().await;
    recorded(&seat, 1).await;
    world.vault.hold();
    turn(&world, &seat).await;
    world.vault.next().await.fails(full());
    seat.until_row("the fault", |row| row.checkpoint_fault.is_some())
        .await;
    let fault = seat.view().await.checkpoint_fault.unwrap();
    assert_eq!(fault.code, "disk_full");
    assert_eq!(seat.refusal("/c no").await, "checkpoint_faulted");
    assert_eq!(seat.refusal("/x no").await, "checkpoint_faulted");
    seat.prompt("waits").await;
    assert_eq!(seat.status().await, Status::Queued);
    let again = seat.checkpoint();
    world.vault.next().await.goes_on();
    joined(again).await.unwrap();
    world.vault.let_go();
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    assert_eq!(seat.view().await.checkpoint_fault, None);
}

#[tokio::test]
async fn s67_s91_stop_answers_after_the_required_checkpoint() {
    let scene = turn_running_in(with(CheckpointPolicy::Required).await).await;
    let (world, seat) = (&scene.world, scene.seat.clone());
    let crate::scenes::Runner::Running(call) = scene.runner else {
        unreachable!()
    };
    world.vault.hold();
    let mut stop = seat.stop();
    call.aborted().await;
    call.refuses(harness_core::provider::Refusal::Cancelled);
    let taking = world.vault.next().await;
    assert_eq!(seat.count("SessionIdle").await, 2);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut stop).await;
    assert!(early.is_err(), "not before the checkpoint is recorded");
    taking.goes_on();
    assert!(joined(stop).await.unwrap());
    assert_eq!(seat.types().await.last().unwrap(), "WorkspaceCheckpointed");
}

#[tokio::test]
async fn s98_a_required_checkpoint_waits_for_other_sessions() {
    let world = with(CheckpointPolicy::Required).await;
    let (seat, other) = (world.idle().await, world.idle().await);
    recorded(&seat, 1).await;
    recorded(&other, 1).await;
    other.prompt("long").await;
    world.probe.prompts.next().await.starts();
    let long = world.probe.dones.next().await;
    let before = world.vault.count("stored");
    turn(&world, &seat).await;
    seat.until(Status::Completed).await;
    seat.prompt("next").await;
    assert_eq!(
        seat.status().await,
        Status::Queued,
        "its checkpoint comes first"
    );
    assert_eq!(world.vault.count("stored"), before);
    long.ends();
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    let vault = world.vault.clone();
    until("each idle edge's checkpoint", || {
        vault.count("stored") == before + 3
    })
    .await;
}

#[tokio::test]
async fn s98_a_restart_takes_the_required_checkpoint_that_is_owed() {
    let world = with(CheckpointPolicy::Required).await;
    let seat = world.idle().await;
    recorded(&seat, 1).await;
    world.vault.hold();
    turn(&world, &seat).await;
    let cut = world.vault.next().await;
    let world = world.restart().await;
    let seat = world.seat(seat.id);
    let prompt = tokio::spawn({
        let seat = seat.clone();
        async move { seat.prompt("next").await }
    });
    let owed = world.vault.next().await;
    joined(prompt).await;
    drop(cut);
    assert_eq!(seat.status().await, Status::Queued);
    owed.goes_on();
    world.vault.let_go();
    world.probe.prompts.next().await.starts();
    assert_eq!(seat.count("WorkspaceCheckpointed").await, 2);
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn s98_a_store_that_does_not_answer_is_given_up_after_its_bound() {
    let world = World::still(|config| config.slots = 4).await;
    let (seat, other) = (world.idle().await, world.idle().await);
    world.vault.hold();
    let asked = seat.checkpoint();
    let call = world.vault.next().await;
    forward(Duration::from_secs(40)).await;
    let refused = joined(asked).await.unwrap_err();
    assert_eq!(refused.code(), "snapshot_failed");
    assert!(refused.to_string().contains("time"), "{refused}");
    assert!(call.allowed.cancelled.load(Ordering::SeqCst), "it is told");
    // What still reads the workspace keeps it from everybody.
    other.prompt("waits").await;
    assert_eq!(other.status().await, Status::Queued);
    call.goes_on();
    world.probe.prompts.next().await.starts();
    assert_eq!(seat.count("WorkspaceCheckpointed").await, 0, "too late");
    world.probe.dones.next().await.ends();
    other.until(Status::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn s94_shutdown_waits_for_the_workspace_within_its_phase() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    world.vault.hold();
    let rewind = seat.rewind(1);
    let call = world.vault.next().await;
    let (host, id) = (seat.host.clone(), seat.id);
    let stop = tokio::spawn(async move { host.shutdown_session(id, Caller::default()).await });
    forward(Duration::from_secs(5)).await;
    assert_eq!(seat.count("SessionStopped").await, 0);
    forward(Duration::from_secs(6)).await;
    let result = joined(stop).await.unwrap();
    assert_eq!(result.expired_phases, ["workspace"]);
    assert_eq!(code(&joined(rewind).await), "session_stopping");
    assert!(call.allowed.cancelled.load(Ordering::SeqCst));
    call.goes_on();
    let vault = world.vault.clone();
    until("a rollback", || vault.count("roll back") == 1).await;
    let types = seat.types().await;
    assert_eq!(types.last().unwrap(), "SessionStopped", "nothing after it");
}

#[tokio::test]
async fn s120_a_keyed_checkpoint_is_known_by_its_event() {
    let world = World::new().await;
    let seat = world.idle().await;
    let key = fixed_key("once", 1);
    let asked = joined(seat.checkpoint_as(key.clone())).await.unwrap();
    let keyed = key.key.unwrap();
    let known = world.host.keyed(Some(seat.id), keyed).await.unwrap();
    let expected = KeyState::Unanswered {
        session: seat.id,
        result: None,
        reference: Some(asked),
    };
    assert_eq!(known, expected);
    let other_body = fixed_key("once", 2).key.unwrap();
    let conflict = world.host.keyed(Some(seat.id), other_body).await;
    assert_eq!(code(&conflict), "idempotency_conflict");
    let rewind = fixed_key("back", 1);
    joined(seat.rewind_as(rewind.clone(), 1)).await.unwrap();
    let known = world.host.keyed(Some(seat.id), rewind.key.unwrap()).await;
    assert!(
        matches!(known.unwrap(), KeyState::Unanswered { reference: Some(r), .. } if r == reference(1))
    );
    // What was refused is not recorded.
    world.vault.hold();
    let failing = fixed_key("fails", 1);
    let asked = seat.checkpoint_as(failing.clone());
    world.vault.next().await.fails(full());
    joined(asked).await.unwrap_err();
    let known = world.host.keyed(Some(seat.id), failing.key.unwrap()).await;
    assert_eq!(known.unwrap(), KeyState::Fresh);
}

#[tokio::test]
async fn s98_checkpoints_that_wait_are_all_answered_and_keyed() {
    let world = World::new().await;
    let seat = world.idle().await;
    world.vault.hold();
    let first = seat.checkpoint();
    let call = world.vault.next().await;
    let keys: Vec<_> = (0..3).map(|n| fixed_key(&format!("k{n}"), 1)).collect();
    let waiting: Vec<_> = keys.iter().map(|k| seat.checkpoint_as(k.clone())).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.vault.let_go();
    call.goes_on();
    assert_eq!(joined(first).await.unwrap(), reference(1));
    for (asked, key) in waiting.into_iter().zip(keys) {
        let given = joined(asked).await.unwrap();
        let known = world.host.keyed(Some(seat.id), key.key.unwrap()).await;
        assert!(
            matches!(known.unwrap(), KeyState::Unanswered { reference: Some(r), .. } if r == given)
        );
    }
    assert_eq!(seat.count("WorkspaceCheckpointed").await, 4);
}

#[tokio::test]
async fn s98_a_collection_keeps_what_a_journal_names() {
    let world = World::new().await;
    let (seat, gone) = (world.idle().await, world.idle().await);
    let kept = joined(seat.checkpoint()).await.unwrap();
    joined(gone.checkpoint()).await.unwrap();
    let restored = joined(seat.rewind(9)).await.unwrap();
    world.host.delete(gone.id).await.unwrap();
    assert_eq!(world.host.collect_snapshots().await, Ok(7));
    let wanted = world.vault.wanted.lock().unwrap().clone();
    assert_eq!(wanted, [kept, restored]);
}

#[tokio::test(start_paused = true)]
async fn s98_a_session_with_a_checkpoint_fault_stays_to_say_so() {
    let world = World::still(|config| config.checkpoint = CheckpointPolicy::Required).await;
    world.vault.hold();
    let seat = {
        let created = world.create(World::first("/c first"));
        world.probe.invokes.next().await.completes("");
        world.seat(joined(created).await.unwrap().session.id)
    };
    world.vault.next().await.fails(full());
    seat.until_row("the fault", |row| row.checkpoint_fault.is_some())
        .await;
    forward(Duration::from_secs(300)).await;
    assert_eq!(world.host.live_sessions(), 1);
    assert!(seat.view().await.checkpoint_fault.is_some());
    assert_eq!(
        code(&patient("delete", world.host.delete(seat.id)).await),
        "ok"
    );
}

#[tokio::test]
async fn s98_delete_waits_for_no_workspace() {
    let world = World::new().await;
    let seat = world.idle().await;
    world.vault.hold();
    let asked = seat.checkpoint();
    let call = world.vault.next().await;
    assert_eq!(code(&world.host.delete(seat.id).await), "session_busy");
    call.goes_on();
    joined(asked).await.unwrap();
    assert_eq!(code(&world.host.delete(seat.id).await), "ok");
}
