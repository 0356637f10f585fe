//! Idle instances, parked sessions, and an actor that panics (W7, N3, N5, S78, §6.1).

use crate::scenes::idle;
use crate::support::{Hooks, World, breathe, code, forward, joined, until};
use harness_core::abort::AbortReason;
use harness_core::provider::Instance;
use harness_core::view::Status;
use harness_journal::RecordKind;
use harness_session::{Hook, Host, Parts, SessionObserver, Start};
use std::sync::Arc;
use std::time::Duration;

const IDLE: Duration = Duration::from_secs(70);

/// Time for the instance to go, then for the session.
async fn park(world: &World) {
    forward(IDLE).await;
    forward(IDLE).await;
    until("parked sessions", || world.host.live_sessions() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn n5_w7_an_idle_instance_goes_then_its_session_is_parked() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let row = seat.view().await;
    let instance = world.probe.instance();
    forward(Duration::from_secs(50)).await;
    assert!(instance.disposals.lock().unwrap().is_empty());
    forward(Duration::from_secs(20)).await;
    assert_eq!(*instance.disposals.lock().unwrap(), [AbortReason::Idle]);
    forward(IDLE).await;
    assert_eq!(world.host.live_sessions(), 0);
    // A parked session is a row.
    assert_eq!(seat.view().await, row);
    assert_eq!(world.host.live_sessions(), 0, "reading it wakes nobody");
    assert_eq!(world.listed().await, [seat.id]);
}

#[tokio::test(start_paused = true)]
async fn s78_waking_a_settled_session_appends_the_fence_only() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let before = world.kinds(seat.id).await;
    park(&world).await;
    seat.host.snapshot(seat.id).await.unwrap();
    let after = world.kinds(seat.id).await;
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(after[before.len()..], [RecordKind::Fence]);
    assert_eq!(seat.count("SessionStarted").await, 1);
    let operation = seat.operate("/c again");
    world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn n5_what_keeps_an_instance() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let instance = world.probe.instance();
    // An activity.
    instance.begin_activity("goal");
    forward(IDLE).await;
    forward(IDLE).await;
    assert!(instance.disposals.lock().unwrap().is_empty());
    instance.end_activity("goal");
    breathe().await;
    // A discovery in flight, and one that just ended.
    forward(Duration::from_secs(50)).await;
    world.probe.hold(&world.probe.hold_discovery);
    let (host, id) = (seat.host.clone(), seat.id);
    let reading = tokio::spawn(async move { host.command_state(id).await });
    let discovery = world.probe.discoveries.next().await;
    forward(IDLE).await;
    assert!(
        instance.disposals.lock().unwrap().is_empty(),
        "it is in use"
    );
    discovery.answer(Ok(None));
    joined(reading).await.unwrap();
    forward(Duration::from_secs(45)).await;
    assert!(instance.disposals.lock().unwrap().is_empty(), "it was used");
    forward(IDLE).await;
    assert_eq!(instance.disposals.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r60_a_prompt_that_waits_for_a_slot_keeps_its_session() {
    let world = World::still(|_| {}).await;
    let holder = world.idle().await;
    holder.prompt("holds").await;
    world.probe.prompts.next().await.starts();
    let holding = world.probe.dones.next().await;
    let waiter = world.idle().await;
    waiter.prompt("waits long").await;
    for _ in 0..4 {
        forward(IDLE).await;
    }
    assert_eq!(waiter.status().await, Status::Queued);
    holding.ends();
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    waiter.until(Status::Completed).await;
    assert_eq!(waiter.count("InputHeld").await, 0);
    world.pool_is_whole().await;
}

#[tokio::test(start_paused = true)]
async fn s64_a_subscriber_keeps_its_session() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    let subscription = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    forward(IDLE).await;
    forward(IDLE).await;
    assert_eq!(world.host.live_sessions(), 1);
    drop(subscription);
    forward(IDLE).await;
    park(&world).await;
}

#[tokio::test(start_paused = true)]
async fn s67_a_thousand_parked_sessions_hold_no_task() {
    let world = World::still(|c| c.slots = 4).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let seat = world.idle().await;
    park(&world).await;
    let before = metrics.num_alive_tasks();
    let created: Vec<_> = (0..1000)
        .map(|_| world.create(World::first("/c first")))
        .collect();
    for _ in 0..1000 {
        world.probe.invokes.next().await.completes("");
    }
    for created in created {
        joined(created).await.unwrap();
    }
    assert!(metrics.num_alive_tasks() >= before + 1000);
    park(&world).await;
    // Each gives its lease back before it ends.
    until("no task", || metrics.num_alive_tasks() <= before).await;
    assert_eq!(seat.status().await, Status::Completed);
}

#[tokio::test]
async fn n3_the_next_instance_starts_when_the_old_one_is_reaped() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    probe.hold(&probe.hold_end);
    let old = probe.instance();
    old.begin_activity("deaf");
    let opened = probe.opened.load(std::sync::atomic::Ordering::SeqCst);
    // It begins to end, and is not reaped yet.
    tokio::spawn(harness_core::provider::Instance::dispose(
        old.as_ref(),
        AbortReason::Superseded,
    ));
    breathe().await;
    let operation = scene.seat.operate("/c next");
    breathe().await;
    let now = probe.opened.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(now, opened, "not before its processes are reaped");
    old.reap();
    probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    assert_eq!(probe.loop_instances(), 2);
}

#[tokio::test(start_paused = true)]
async fn n3_an_idle_instance_is_waited_for_too() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    world.probe.hold(&world.probe.hold_end);
    forward(IDLE).await;
    let old = world.probe.instance();
    assert_eq!(old.disposals.lock().unwrap().len(), 1);
    let operation = seat.operate("/c next");
    breathe().await;
    assert_eq!(world.probe.loop_instances(), 1);
    old.reap();
    world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    assert_eq!(world.probe.loop_instances(), 2);
}

#[tokio::test(start_paused = true)]
async fn w7_a_draft_instance_goes_after_its_idle_period() {
    let world = World::still(|_| {}).await;
    world.host.draft_command_state(world.draft()).await.unwrap();
    let draft = world.probe.instances.lock().unwrap()[0].clone();
    forward(Duration::from_secs(40)).await;
    world.host.draft_command_state(world.draft()).await.unwrap();
    forward(Duration::from_secs(40)).await;
    assert!(draft.disposals.lock().unwrap().is_empty());
    forward(Duration::from_secs(40)).await;
    assert_eq!(*draft.disposals.lock().unwrap(), [AbortReason::Idle]);
}

/// Panics where the actor calls it.
struct Panics(Hooks);

impl SessionObserver for Panics {
    fn started(&self, hook: &Hook) {
        self.0.started(hook);
        panic!("a hook panics");
    }

    fn resumed(&self, hook: &Hook) {
        self.0.resumed(hook);
    }
}

#[tokio::test]
async fn r71_a_session_whose_actor_panicked_is_read_again_by_the_next_request() {
    let world = World::new().await;
    let host = Host::new(Parts {
        observer: Arc::new(Panics(Hooks::default())),
        ..Parts::new(
            Arc::new(world.faults.clone()),
            Arc::new(world.store.clone()),
            world.shelf.clone(),
            world.config.clone(),
        )
    });
    let (creator, body) = (host.clone(), world.request(World::first("/x go")));
    let never = harness_core::abort::AbortSignal::never();
    let created =
        tokio::spawn(async move { creator.create(Default::default(), body, never).await });
    let call = world.probe.invokes.next().await;
    let instance = call.instance.clone();
    call.starts();
    assert_eq!(code(&joined(created).await), "internal");
    until("a whole pool", || host.free_slots() == 1).await;
    until("the instance's end", || {
        !instance.disposals.lock().unwrap().is_empty()
    })
    .await;
    // Read back: the operation it had started has an outcome, its turn was lost.
    let id = host.sessions(Default::default()).await.unwrap().items[0].id;
    let seat = crate::support::Seat {
        host: host.clone(),
        id,
    };
    host.snapshot(id).await.unwrap();
    assert_eq!(seat.status().await, Status::Disconnected);
    assert_eq!(seat.last_end().await, "TurnInterrupted:host_lost");
    let operation = seat.operate("/c works");
    world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
}

#[tokio::test]
async fn s37_a_deleted_session_is_gone_at_once() {
    let scene = crate::scenes::turn_running().await;
    let (host, id) = (scene.seat.host.clone(), scene.seat.id);
    assert_eq!(code(&host.delete(id).await), "session_busy");
    let world = scene.seat.clone();
    scene.finish().await;
    host.delete(id).await.unwrap();
    assert_eq!(code(&host.session(id).await), "session_not_found");
    assert_eq!(code(&world.try_prompt("x").await), "session_not_found");
    assert_eq!(code(&host.delete(id).await), "session_not_found");
    assert_eq!(host.live_sessions(), 0);
}

#[tokio::test]
async fn s37_requests_that_race_a_delete_learn_that_the_session_is_gone() {
    for _ in 0..20 {
        let scene = idle().await;
        let (host, id) = (scene.seat.host.clone(), scene.seat.id);
        let racing: Vec<_> = (0..8)
            .map(|n| {
                let host = host.clone();
                tokio::spawn(async move {
                    if n % 2 == 0 {
                        host.delete(id).await
                    } else {
                        host.queue(id).await.map(drop)
                    }
                })
            })
            .collect();
        host.delete(id).await.ok();
        for request in racing {
            let answer = request.await.unwrap();
            assert!(
                answer.is_ok() || code(&answer) == "session_not_found",
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn s94_an_instance_that_opens_during_a_shutdown_is_ended() {
    let scene = idle().await;
    let probe = scene.world.probe.clone();
    probe
        .instance()
        .dies(harness_core::provider::CallError::Lost("gone".into()));
    probe.hold(&probe.hold_opening);
    let operation = scene.seat.operate("/c go");
    let opening = probe.openings.next().await;
    assert!(scene.seat.host.shutdown().await);
    opening.answer(Ok(()));
    let refused = joined(operation).await;
    assert!(refused.is_err(), "{refused:?}");
    until("its end", || {
        probe.instance().disposals.lock().unwrap().len() == 1
    })
    .await;
    assert_eq!(
        probe.invokes.count(),
        1,
        "the session's first operation alone"
    );
}

#[tokio::test]
async fn s94_shutdown_stops_what_runs_and_admits_nothing() {
    let scene = crate::scenes::turn_running().await;
    let waiting = scene.seat.prompt("waits").await;
    let host = scene.seat.host.clone();
    let instance = scene.world.probe.instance();
    let closing = tokio::spawn(async move { host.shutdown().await });
    assert!(joined(closing).await, "all ended");
    assert_eq!(*instance.disposals.lock().unwrap(), [AbortReason::Shutdown]);
    assert_eq!(scene.seat.last_end().await, "TurnInterrupted:shutdown");
    assert_eq!(
        code(&scene.seat.try_prompt("no").await),
        "host_shutting_down"
    );
    assert_eq!(scene.seat.refusal("/c no").await, "host_shutting_down");
    scene.world.pool_is_whole().await;
    // The next start holds what waited.
    let id = scene.seat.id;
    let world = scene.world.restart().await;
    let queue = world.seat(id).queue().await;
    assert_eq!((queue[0].command_id, queue[0].held), (waiting, true));
}

/// Processor time of this thread.
fn spent() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = stat.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(nanoseconds)
}

/// Who wanted the instance has gone, and it takes longer to open than an instance may be idle: the
/// actor waits for it, and does not look again and again.
#[tokio::test]
async fn n5_an_instance_that_is_being_opened_is_not_idle() {
    let world = World::with(|config| config.instance_idle = Duration::from_millis(10)).await;
    let seat = world.idle().await;
    let probe = world.probe.clone();
    until("an instance that is dropped", || {
        !probe.instance().is_live()
    })
    .await;
    probe.hold(&probe.hold_opening);
    let (host, id) = (seat.host.clone(), seat.id);
    let reading = tokio::spawn(async move { host.command_state(id).await.map(drop) });
    let opening = probe.openings.next().await;
    reading.abort();
    assert!(reading.await.is_err());
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = spent();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let busy = spent() - before;
    assert!(
        busy < Duration::from_millis(200),
        "busy for {busy:?} of 400 ms"
    );
    opening.answer(Ok(()));
    until("an instance that is dropped", || {
        !probe.instance().is_live()
    })
    .await;
}
