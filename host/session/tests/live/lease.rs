//! The lease of a session: held elsewhere, lost, given back (S66, I39).

use crate::scenes::{idle, turn_running};
use crate::support::logs::Logs;
use crate::support::{Seat, World, code, until};
use harness_core::refusal::Refused;
use harness_core::view::Status;
use harness_journal::fault::Fault;
use harness_journal::{Append, Journal, JournalError, NewRecord, RecordKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::Level;

async fn open(seat: &Seat) -> Result<(), Refused> {
    seat.host.snapshot(seat.id).await.map(drop)
}

fn has(append: &Append, name: &str) -> bool {
    let of = |r: &NewRecord| {
        let text = String::from_utf8_lossy(&r.bytes);
        text.contains(&format!("\"type\":\"{name}\""))
    };
    append.records.iter().any(of)
}

/// Who may write: the holder of the newest lease, or nobody.
async fn is_held(world: &World, seat: &Seat) -> bool {
    let tail = world.store.tail(seat.id).await.unwrap();
    let record = NewRecord {
        kind: RecordKind::Event,
        key: "probe".into(),
        fingerprint: [0; 32],
        bytes: "{}".into(),
    };
    let append = Append {
        session: seat.id,
        epoch: tail.epoch,
        expected_next: Some(1),
        create: None,
        records: vec![record],
        projection: None,
        idempotency: Vec::new(),
    };
    match world.store.append(append).await {
        Err(JournalError::LeaseLost { holder: None }) => false,
        Err(JournalError::OutOfOrder { .. }) => true,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s66_s102_an_opening_that_is_refused_names_the_holder() {
    let scene = idle().await;
    let id = scene.seat.id;
    let world = scene.world.restart().await;
    let seat = world.seat(id);
    world.faults.fail_next(Fault::LeaseHeld);
    let refused = open(&seat).await.unwrap_err();
    assert_eq!(refused.code(), "lease_held");
    assert!(refused.to_string().contains("process 7 on elsewhere"));
    assert!(refused.retryable());
    open(&seat).await.unwrap();
}

#[tokio::test]
async fn i39_without_restore_done_there_is_no_session_and_no_lease() {
    let scene = turn_running().await;
    let id = scene.seat.id;
    let failed = Arc::new(AtomicUsize::new(0));
    let world = scene.world.restart_with(|faults| {
        for _ in 0..2 {
            let failed = failed.clone();
            let done = move |append: &Append| {
                let hit = has(append, "RestoreDone");
                failed.fetch_add(usize::from(hit), Ordering::SeqCst);
                hit
            };
            faults.fail_when(done, Fault::Full);
        }
    });
    let world = world.await;
    let seat = world.seat(id);
    assert!(!is_held(&world, &seat).await, "given back");
    assert_eq!(code(&open(&seat).await), "store_unavailable");
    assert!(!is_held(&world, &seat).await, "given back");
    assert_eq!(failed.load(Ordering::SeqCst), 2, "at the start, and now");
    let types = seat.types().await;
    assert!(!types.iter().any(|t| t == "RestoreDone"));
    assert_eq!(types.last().unwrap(), "RestoreErrored:store_unavailable");
    // With room again it is taken up, and nothing is lost or told twice.
    open(&seat).await.unwrap();
    assert!(is_held(&world, &seat).await);
    assert_eq!(seat.last_end().await, "TurnInterrupted:host_lost");
    assert_eq!(seat.count("TurnInterrupted").await, 1);
    assert_eq!(seat.view().await.error, None);
}

#[tokio::test]
async fn s66_after_the_loss_nothing_is_written_and_everybody_is_told_by_whom() {
    let scene = turn_running().await;
    let crate::scenes::Runner::Running(call) = scene.runner else {
        unreachable!()
    };
    let (world, seat) = (scene.world, scene.seat);
    let before = world.kinds(seat.id).await;
    world.faults.fail_next(Fault::LeaseHeld);
    let refused = seat.try_prompt("too late").await.unwrap_err();
    assert_eq!(refused.code(), "session_faulted");
    assert!(
        refused.to_string().contains("process 7 on elsewhere"),
        "{refused}"
    );
    call.aborted().await;
    let row = seat.view().await;
    assert!(
        row.error
            .unwrap()
            .message
            .contains("process 7 on elsewhere")
    );
    let writes = world.faults.writes();
    for _ in 0..3 {
        assert_eq!(code(&seat.try_prompt("again").await), "session_faulted");
    }
    assert_eq!(world.faults.writes(), writes, "it is not even tried");
    call.refuses(harness_core::provider::Refusal::Cancelled);
    world.pool_is_whole().await;
    assert_eq!(world.kinds(seat.id).await, before);
    // Once it has left memory the next request looks whether it can be opened again.
    let host = seat.host.clone();
    until("it leaves memory", || host.live_sessions() == 0).await;
    open(&seat).await.unwrap();
    assert_eq!(seat.last_end().await, "TurnInterrupted:host_lost");
    seat.prompt("goes on").await;
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
}

#[tokio::test]
async fn s66_a_lease_that_is_lost_during_shutdown_is_no_error() {
    for ends in [false, true] {
        let logs = Logs::default();
        let _collecting = logs.collect();
        let scene = turn_running().await;
        let (world, seat) = (scene.world, scene.seat);
        let level = if ends {
            // The latch is written; the terminal of what it aborts is not.
            let terminal = |append: &Append| has(append, "TurnInterrupted");
            world.faults.fail_when(terminal, Fault::LeaseHeld);
            assert!(world.host.shutdown().await);
            Level::DEBUG
        } else {
            world.faults.fail_next(Fault::LeaseHeld);
            assert_eq!(code(&seat.try_prompt("late").await), "session_faulted");
            Level::ERROR
        };
        assert_eq!(logs.levels_of("the lease"), [level]);
        assert_eq!(logs.count(Level::ERROR), usize::from(!ends));
    }
}

#[tokio::test]
async fn s66_a_lease_that_is_lost_while_a_session_is_restored_names_the_holder() {
    let scene = turn_running().await;
    let id = scene.seat.id;
    let world = scene
        .world
        .restart_with(|faults| {
            for _ in 0..2 {
                let done = |append: &Append| has(append, "RestoreDone");
                faults.fail_when(done, Fault::LeaseHeld);
            }
        })
        .await;
    let seat = world.seat(id);
    let refused = open(&seat).await.unwrap_err();
    assert_eq!(refused.code(), "lease_held");
    assert!(refused.to_string().contains("process 7 on elsewhere"));
    open(&seat).await.unwrap();
    assert_eq!(seat.last_end().await, "TurnInterrupted:host_lost");
}
