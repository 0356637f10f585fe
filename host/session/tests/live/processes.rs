//! Background processes in live sessions: beyond an instance, a turn and a host (S11, S72, S94,
//! S97).

use crate::scenes::{idle, turn_running};
use crate::support::program::Script;
use crate::support::{Seat, World, breathe, code, forward, joined, patient, until};
use harness_core::provider::{InputOrigin, IoError, PromptInput};
use harness_core::view::{ProcessStatus, ProcessView, Status};
use harness_journal::fault::Fault;
use harness_session::Caller;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;

const IDLE: Duration = Duration::from_secs(70);

/// Starts a program through the newest instance.
async fn start(world: &World, script: &Arc<Script>) -> Result<String, IoError> {
    let instance = world.probe.instance();
    let background = instance.host.background().expect("a session's instance");
    patient("a start", background.start(script.program("make"))).await
}

async fn processes(seat: &Seat) -> Vec<ProcessView> {
    seat.host.processes(seat.id).await.unwrap()
}

/// The inputs of origin `process` that the provider got.
fn told(world: &World) -> Vec<PromptInput> {
    let inputs = world.probe.inputs.lock().unwrap();
    let of_process = |i: &&PromptInput| matches!(i.origin, InputOrigin::Process(_));
    inputs.iter().filter(of_process).cloned().collect()
}

async fn finish_turn(world: &World, seat: &Seat) {
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
}

async fn shut_down(seat: &Seat) -> harness_session::ShutDown {
    let shutdown = seat.host.shutdown_session(seat.id, Caller::default());
    patient("a shutdown", shutdown).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn s97_a_process_outlives_its_instance_and_its_end_brings_one_back() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let script = Script::new();
    let handle = start(&world, &script).await.unwrap();
    assert_eq!(seat.view().await.activities, ["process make"]);
    assert_eq!(seat.status().await, Status::Completed, "it is no turn");
    let first = world.probe.instance();
    for _ in 0..4 {
        forward(IDLE).await;
    }
    assert_eq!(first.disposals.lock().unwrap().len(), 1, "N5: it is idle");
    assert_eq!(world.host.live_sessions(), 1, "its session is not parked");
    assert_eq!((script.stops(), script.is_dropped()), (0, false));
    script.exits(0);
    let call = world.probe.prompts.next().await;
    assert!(call.text.contains(&handle), "{}", call.text);
    assert!(!Arc::ptr_eq(&call.instance, &first), "a fresh one");
    let info = call
        .instance
        .host
        .background()
        .unwrap()
        .info(handle.clone());
    let info = info.await.unwrap();
    assert_eq!(info.process.status, ProcessStatus::Exited);
    call.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    let origins: Vec<_> = told(&world).into_iter().map(|i| i.origin).collect();
    assert_eq!(origins, [InputOrigin::Process(handle)]);
    assert!(seat.view().await.activities.is_empty());
    forward(IDLE).await;
    forward(IDLE).await;
    until("a parked session", || world.host.live_sessions() == 0).await;
    assert!(script.is_dropped(), "with its output");
}

#[tokio::test]
async fn s97_the_end_folds_into_the_turn_that_runs() {
    let scene = turn_running().await;
    let (world, seat) = (scene.world, scene.seat);
    world.probe.declare(|i| i.features.folding = true);
    let channel = world.probe.instance().host.clone();
    let script = Script::new();
    let background = channel.background().unwrap();
    let handle = background.start(script.program("make")).await.unwrap();
    let crate::scenes::Runner::Running(done) = scene.runner else {
        panic!("no turn runs");
    };
    let turn = done.channel();
    let ready = {
        let turn = turn.clone();
        tokio::spawn(async move { turn.input_ready().await })
    };
    breathe().await;
    assert!(!ready.is_finished());
    script.exits(2);
    assert_eq!(joined(ready).await, Ok(true));
    let taken = turn.take_input().await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].origin, InputOrigin::Process(handle.clone()));
    assert_eq!(seat.count("TurnFoldedInto").await, 1);
    assert!(turn.take_input().await.unwrap().is_empty());
    done.ends();
    seat.until(Status::Completed).await;
    assert!(told(&world).is_empty(), "it starts no turn of its own");
    let view = processes(&seat).await.remove(0);
    assert_eq!(
        (view.status, view.exit_code),
        (ProcessStatus::Failed, Some(2))
    );
    assert_eq!(view.reason.as_deref(), Some("exit code 2"));
}

#[tokio::test]
async fn s97_append_first_a_start_that_cannot_be_recorded_starts_nothing() {
    let scene = idle().await;
    let script = Script::new();
    scene.world.faults.fail_next(Fault::Full);
    let refused = start(&scene.world, &script).await;
    assert!(matches!(refused, Err(IoError::Failed(_))), "{refused:?}");
    assert_eq!(script.starts(), 0);
    assert!(
        start(&scene.world, &script).await.is_ok(),
        "nothing is faulted"
    );
}

#[tokio::test]
async fn s97_an_end_that_cannot_be_recorded_faults_and_is_told_after_the_restart() {
    let scene = idle().await;
    let (world, seat) = (scene.world, scene.seat);
    let script = Script::new();
    start(&world, &script).await.unwrap();
    world.faults.fail_next(Fault::Full);
    script.exits(0);
    seat.until(Status::Failed).await;
    assert!(told(&world).is_empty());
    let world = world.restart().await;
    let seat = world.seat(seat.id);
    finish_turn(&world, &seat).await;
    assert_eq!(told(&world).len(), 1);
    assert_eq!(processes(&seat).await[0].status, ProcessStatus::Lost);
}

#[tokio::test]
async fn s97_a_program_that_cannot_be_started_is_told_to_who_asked() {
    let scene = idle().await;
    let script = Script::new();
    let error = IoError::NotFound("no make here".into());
    script.cannot_start(error.clone());
    assert_eq!(start(&scene.world, &script).await, Err(error));
    let view = processes(&scene.seat).await.remove(0);
    assert_eq!(view.status, ProcessStatus::Failed);
    assert!(scene.seat.view().await.activities.is_empty());
    assert!(told(&scene.world).is_empty());
}

#[tokio::test]
async fn s97_what_runs_is_listed_read_and_stopped() {
    let scene = idle().await;
    let (world, seat) = (scene.world, scene.seat);
    let script = Script::new();
    let handle = start(&world, &script).await.unwrap();
    script.writes(b"compiling");
    let instance = world.probe.instance();
    let background = instance.host.background().unwrap();
    let listed = background.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].written, Some(9));
    let output = background.read(handle.clone(), 4, 3).await.unwrap();
    assert_eq!((output.from, output.next), (4, 7));
    assert_eq!(output.chunks[0].data, b"ili");
    let unknown = "no such process".to_owned();
    for refused in [
        background.info(unknown.clone()).await.err(),
        background.read(unknown.clone(), 0, 1).await.err(),
        background.stop(unknown.clone()).await.err(),
    ] {
        assert!(matches!(refused, Some(IoError::NotFound(_))), "{refused:?}");
    }
    let refused = seat.host.stop_process(seat.id, unknown).await;
    assert_eq!(code(&refused), "process_not_found");
    seat.host
        .stop_process(seat.id, handle.clone())
        .await
        .unwrap();
    finish_turn(&world, &seat).await;
    assert_eq!(processes(&seat).await[0].status, ProcessStatus::Stopped);
    // What it wrote stays readable, a second stop does nothing.
    let output = background.read(handle.clone(), 0, 100).await.unwrap();
    assert_eq!(output.chunks[0].data, b"compiling");
    background.stop(handle.clone()).await.unwrap();
    // Until four later ones have ended.
    for _ in 0..4 {
        let script = Script::new();
        start(&world, &script).await.unwrap();
        script.exits(0);
        finish_turn(&world, &seat).await;
    }
    let gone = background.read(handle.clone(), 0, 100).await;
    assert_eq!(gone.err(), Some(IoError::Closed));
    assert_eq!(background.info(handle).await.unwrap().written, None);
}

#[tokio::test]
async fn s97_another_loop_does_not_see_them() {
    let scene = idle().await;
    let (world, seat) = (scene.world, scene.seat);
    let script = Script::new();
    let handle = start(&world, &script).await.unwrap();
    let first = world.probe.instance();
    let created = seat.host.create_loop(
        seat.id,
        Caller::default(),
        harness_session::LoopRequest {
            agent: world.probe.harness_id(),
            model: None,
            mode: None,
        },
    );
    let other = created.await.unwrap();
    seat.host
        .activate_loop(seat.id, Caller::default(), other)
        .await
        .unwrap();
    joined({
        let operation = seat.operate("/c there");
        world.probe.invokes.next().await.completes("");
        operation
    })
    .await
    .unwrap();
    let second = world.probe.instance();
    assert!(!Arc::ptr_eq(&first, &second));
    let theirs = second.host.background().unwrap();
    assert!(theirs.list().await.unwrap().is_empty());
    let refused = theirs.stop(handle.clone()).await;
    assert!(matches!(refused, Err(IoError::NotFound(_))), "{refused:?}");
    assert_eq!(script.stops(), 0);
    assert_eq!(processes(&seat).await.len(), 1, "a client sees all of them");
    script.exits(0);
    let call = world.probe.prompts.next().await;
    assert!(
        call.instance.scope == first.scope,
        "its end reaches its own loop"
    );
}

#[tokio::test]
async fn s97_the_limit_holds_for_the_session() {
    let world = World::with(|c| c.background_processes = 1).await;
    let seat = world.idle().await;
    let script = Script::new();
    start(&world, &script).await.unwrap();
    let refused = start(&world, &Script::new()).await;
    assert!(matches!(refused, Err(IoError::Limit(_))), "{refused:?}");
    script.exits(0);
    finish_turn(&world, &seat).await;
    assert!(start(&world, &Script::new()).await.is_ok());
}

#[tokio::test]
async fn s97_a_draft_has_no_background() {
    let world = World::new().await;
    world.host.draft_command_state(world.draft()).await.unwrap();
    let draft = world.probe.instances.lock().unwrap()[0].clone();
    assert!(draft.host.background().is_none());
}

// ---- the end of a session ---------------------------------------------------------------------

#[tokio::test]
async fn s94_a_shutdown_ends_processes_before_the_session_stops() {
    let scene = turn_running().await;
    let (world, seat) = (scene.world, scene.seat);
    let script = Script::new();
    start(&world, &script).await.unwrap();
    assert_eq!(shut_down(&seat).await, harness_session::ShutDown::default());
    assert_eq!(script.stops(), 1);
    let types = seat.types().await;
    let end = types.iter().rev().take(2).collect::<Vec<_>>();
    assert_eq!(end, ["SessionStopped", "ProcessFinished:it was stopped"]);
    let refused = start(&world, &Script::new()).await;
    assert_eq!(refused, Err(IoError::Closed));
    assert!(told(&world).is_empty());
}

#[tokio::test(start_paused = true)]
async fn s94_a_process_that_ignores_its_end_costs_its_phase_alone() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let script = Script::new();
    script.deaf.store(true, Ordering::SeqCst);
    start(&world, &script).await.unwrap();
    let call = {
        let (host, id) = (seat.host.clone(), seat.id);
        tokio::spawn(async move { host.shutdown_session(id, Caller::default()).await })
    };
    forward(Duration::from_millis(9_900)).await;
    assert_ne!(seat.status().await, Status::Stopped);
    forward(Duration::from_millis(10_200)).await;
    let how = joined(call).await.unwrap();
    assert_eq!(how.expired_phases, ["processes"]);
    assert_eq!(seat.status().await, Status::Stopped);
    assert_eq!(processes(&seat).await[0].status, ProcessStatus::Lost);
}

#[tokio::test]
async fn s97_a_deleted_session_takes_its_processes_along() {
    let scene = idle().await;
    let script = Script::new();
    start(&scene.world, &script).await.unwrap();
    scene.seat.host.delete(scene.seat.id).await.unwrap();
    assert_eq!(script.stops(), 1);
    until("its drop", || script.is_dropped()).await;
}

#[tokio::test]
async fn s97_a_program_that_starts_while_its_session_ends_is_ended() {
    let scene = idle().await;
    let script = Script::new();
    let gate = Arc::new(Notify::new());
    *script.hold.lock().unwrap() = Some(gate.clone());
    let starting = {
        let (host, script) = (scene.world.probe.instance().host.clone(), script.clone());
        tokio::spawn(async move {
            host.background()
                .unwrap()
                .start(script.program("make"))
                .await
        })
    };
    until("the start", || script.starts() == 1).await;
    let stopping = {
        let (host, id) = (scene.seat.host.clone(), scene.seat.id);
        tokio::spawn(async move { host.shutdown_session(id, Caller::default()).await })
    };
    breathe().await;
    assert!(!stopping.is_finished(), "it may still publish");
    gate.notify_one();
    joined(stopping).await.unwrap();
    assert!(joined(starting).await.is_ok());
    assert_eq!(script.stops(), 1);
    assert_eq!(scene.seat.count("ProcessFinished").await, 1);
}

#[tokio::test]
async fn s97_a_host_that_shuts_down_takes_them_along_and_the_next_one_tells() {
    let scene = idle().await;
    let (world, seat) = (scene.world, scene.seat);
    let script = Script::new();
    let handle = start(&world, &script).await.unwrap();
    let host = world.host.clone();
    assert!(joined(tokio::spawn(async move { host.shutdown().await })).await);
    assert_eq!(script.stops(), 1);
    let world = world.restart().await;
    let seat = world.seat(seat.id);
    finish_turn(&world, &seat).await;
    let inputs = told(&world);
    assert_eq!(inputs.len(), 1, "without anybody asking for the session");
    assert_eq!(inputs[0].origin, InputOrigin::Process(handle));
    assert_eq!(seat.count("ProcessLost").await, 1);
    let world = world.restart().await;
    breathe().await;
    assert_eq!(told(&world).len(), 1, "once");
}

#[tokio::test]
async fn s72_s97_a_crash_at_every_write_tells_every_end_exactly_once() {
    let play = async |world: &World, seat: &Seat| {
        let script = Script::new();
        start(world, &script).await.ok()?;
        script.exits(0);
        world.probe.prompts.next().await.starts();
        world.probe.dones.next().await.ends();
        seat.until(Status::Completed).await;
        Some(())
    };
    let writes = {
        let world = World::new().await;
        let seat = world.idle().await;
        let before = world.faults.writes();
        play(&world, &seat).await.unwrap();
        world.faults.writes() - before
    };
    assert!(writes >= 3, "start, end, turn: {writes}");
    for n in 1..=writes {
        for written in [false, true] {
            let at = format!("write {n} of {writes}, written: {written}");
            let world = World::new().await;
            let seat = world.idle().await;
            world
                .faults
                .fail_at(world.faults.writes() + n, Fault::Crash { written });
            tokio::select! {
                biased;
                () = world.faults.crashed() => {}
                _ = play(&world, &seat) => patient("the crash", world.faults.crashed()).await,
            }
            let id = seat.id;
            let world = world.restart().await;
            let seat = world.seat(id);
            // Whatever has to be told is told without anybody asking for it.
            let started = seat.count("ProcessStarted").await;
            let turns = async || {
                let events = seat.events().await;
                let of_machine = |e: &&serde_json::Value| {
                    e["type"] == "TurnStarted" && e["cause"]["agency"] == "machine"
                };
                events.iter().filter(of_machine).count()
            };
            patient(&at, async {
                while turns().await < started {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            if seat.status().await == Status::InProgress {
                finish_turn(&world, &seat).await;
            }
            assert_eq!(turns().await, started, "{at}");
            let ends = seat.count("ProcessFinished").await + seat.count("ProcessLost").await;
            assert_eq!(ends, started, "{at}");
            let seen = world.probe.prompts.count();
            let world = world.restart().await;
            breathe().await;
            assert_eq!(world.probe.prompts.count(), seen, "told again, {at}");
            world.pool_is_whole().await;
        }
    }
}
