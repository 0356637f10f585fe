//! Native turns and messages outside any turn (N6-N12, N14, R67).

use crate::scenes::{Runner, idle, queued, say, turn_running};
use crate::support::{World, breathe, forward, joined};
use harness_core::provider::{ChannelError, Refusal, TurnStart};
use harness_core::view::Status;
use harness_journal::RecordKind;
use std::time::Duration;

const RUNNING: TurnStart = TurnStart::Running;
const WANTED: TurnStart = TurnStart::Wanted;

#[tokio::test]
async fn n9_n10_a_native_turn_is_adopted_and_recorded() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    let announced = probe.instance().announce("n-1", RUNNING);
    let call = probe.adoptions.next().await;
    assert_eq!(joined(announced).await, Ok(()));
    assert_eq!(call.text, "n-1");
    assert_eq!(scene.seat.status().await, Status::InProgress);
    // Controls attach, prompts queue, exclusives get 409.
    let control = scene.seat.operate("/c beside");
    probe.invokes.next().await.completes("");
    assert_eq!(joined(control).await.unwrap().run_id, None);
    let waiting = scene.seat.prompt("after").await;
    assert_eq!(scene.seat.refusal("/x go").await, "session_busy");
    let command = call.command.to_string();
    call.starts();
    let done = probe.dones.next().await;
    say(&done.channel(), "step").await.unwrap();
    done.ends();
    let next = probe.prompts.next().await;
    assert_eq!(next.command, waiting);
    next.starts();
    probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    let events = scene.seat.events().await;
    let started = events.iter().find(|e| e["native"].is_object()).unwrap();
    assert_eq!(started["native"]["native_turn_id"], "n-1");
    assert_eq!(started["cause"]["command_id"], command);
    // The same id again: closed.
    let again = probe.instance().announce("n-1", RUNNING);
    assert_eq!(joined(again).await, Err(ChannelError::Closed));
    scene.finish().await;
}

#[tokio::test]
async fn n6_n7_a_running_announcement_during_a_turn_is_busy() {
    let scene = turn_running().await;
    let announced = scene.world.probe.instance().announce("n", RUNNING);
    assert_eq!(joined(announced).await, Err(ChannelError::Busy));
    // A wanted one waits, behind what people queued (N8).
    let wanted = scene.world.probe.instance().announce("w", WANTED);
    breathe().await;
    assert!(!wanted.is_finished());
    let queued = scene.seat.prompt("human").await;
    let probe = scene.world.probe.clone();
    let Runner::Running(call) = scene.runner else {
        unreachable!()
    };
    call.ends();
    let next = probe.prompts.next().await;
    assert_eq!(next.command, queued);
    assert!(!wanted.is_finished());
    next.starts();
    probe.dones.next().await.ends();
    probe.adoptions.next().await.starts();
    assert_eq!(joined(wanted).await, Ok(()));
    probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn n7_busy_only_after_the_export_was_entered() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    probe.hold(&probe.hold_entered);
    scene.seat.prompt("starts").await;
    let starting = probe.prompts.next().await;
    let announced = probe.instance().announce("n", RUNNING);
    breathe().await;
    assert!(
        !announced.is_finished(),
        "it waits for what becomes of the start"
    );
    // The invocation falls through: the announcement is reserved instead.
    starting.refuses(Refusal::Native("no".into()));
    let adopted = probe.adoptions.next().await;
    assert_eq!(joined(announced).await, Ok(()));
    adopted.starts();
    probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    // And entered: busy.
    scene.seat.prompt("again").await;
    let starting = probe.prompts.next().await;
    let announced = probe.instance().announce("m", RUNNING);
    breathe().await;
    assert!(!announced.is_finished());
    starting.channel().entered();
    assert_eq!(joined(announced).await, Err(ChannelError::Busy));
    starting.starts();
    probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    scene.finish().await;
}

#[tokio::test]
async fn n6_an_idle_control_makes_an_announcement_wait() {
    let scene = crate::scenes::idle_control().await;
    let announced = scene.world.probe.instance().announce("n", RUNNING);
    breathe().await;
    assert!(!announced.is_finished());
    let probe = scene.world.probe.clone();
    let Runner::Invoking(call, operation) = scene.runner else {
        unreachable!()
    };
    call.completes("");
    joined(operation).await.unwrap();
    probe.adoptions.next().await.starts();
    assert_eq!(joined(announced).await, Ok(()));
    probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
}

#[tokio::test]
async fn n8_a_running_turn_overdraws_the_pool() {
    let world = World::new().await;
    let (holder, native, third) = (world.idle().await, world.idle().await, world.idle().await);
    let instance = world.probe.instance();
    let seat = [&holder, &native, &third]
        .into_iter()
        .find(|s| format!("{:?}", instance.scope).contains(&s.id.to_string()))
        .unwrap();
    let holder = if seat.id == holder.id {
        &native
    } else {
        &holder
    };
    holder.prompt("holds").await;
    world.probe.prompts.next().await.starts();
    let holding = world.probe.dones.next().await;
    let announced = instance.announce("n", RUNNING);
    world.probe.adoptions.next().await.starts();
    assert_eq!(
        joined(announced).await,
        Ok(()),
        "never refused for want of a slot"
    );
    let native_done = world.probe.dones.next().await;
    // What comes back repays the overdraft before anybody is granted one.
    holding.ends();
    holder.until(Status::Completed).await;
    assert_eq!(holder.refusal("/x go").await, "no_free_slot");
    native_done.ends();
    seat.until(Status::Completed).await;
    world.pool_is_whole().await;
}

#[tokio::test]
async fn n8_n11_wanted_waits_for_a_slot() {
    let world = World::new().await;
    let holder = world.idle().await;
    holder.prompt("holds").await;
    world.probe.prompts.next().await.starts();
    let holding = world.probe.dones.next().await;
    let seat = world.idle().await;
    let wanted = world.probe.instance().announce("w", WANTED);
    breathe().await;
    assert!(!wanted.is_finished());
    holding.ends();
    world.probe.adoptions.next().await.starts();
    assert_eq!(joined(wanted).await, Ok(()));
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    world.pool_is_whole().await;
}

#[tokio::test]
async fn n6_n11_forbidden_or_undeclared_is_denied() {
    let world = World::with(|c| c.native_turns = false).await;
    world.idle().await;
    let announced = world.probe.instance().announce("n", RUNNING);
    assert!(matches!(
        joined(announced).await,
        Err(ChannelError::Denied(_))
    ));
    let scene = idle().await;
    scene
        .world
        .probe
        .declare(|i| i.features.native_turns = false);
    let announced = scene.world.probe.instance().announce("n", RUNNING);
    assert!(matches!(
        joined(announced).await,
        Err(ChannelError::Denied(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn n11_sixty_native_turns_a_minute() {
    let world = World::still(|c| c.native_turns_per_minute = 3).await;
    let seat = world.idle().await;
    let instance = world.probe.instance();
    for n in 0..3 {
        let announced = instance.announce(&format!("n{n}"), RUNNING);
        world.probe.adoptions.next().await.starts();
        joined(announced).await.unwrap();
        world.probe.dones.next().await.ends();
        seat.until(Status::Completed).await;
    }
    let next = instance.announce("n3", RUNNING);
    forward(Duration::from_secs(10)).await;
    assert_eq!(world.probe.adoptions.count(), 3, "held back");
    forward(Duration::from_secs(15)).await;
    world.probe.adoptions.next().await.starts();
    joined(next).await.unwrap();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn r67_n12_an_announcement_that_its_rate_holds_back_is_something_to_stop() {
    let world = World::still(|c| c.native_turns_per_minute = 1).await;
    let seat = world.idle().await;
    let instance = world.probe.instance();
    let first = instance.announce("n0", RUNNING);
    world.probe.adoptions.next().await.starts();
    joined(first).await.unwrap();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    let paced = instance.announce("n1", RUNNING);
    breathe().await;
    assert!(seat.stopped().await, "it is held back, and found");
    forward(Duration::from_secs(61)).await;
    assert_eq!(joined(paced).await, Err(ChannelError::Stopped));
    assert_eq!(world.probe.adoptions.count(), 1);
}

#[tokio::test]
async fn n11_a_dropped_announcement_is_withdrawn() {
    let scene = turn_running().await;
    let wanted = scene.world.probe.instance().announce("w", WANTED);
    breathe().await;
    wanted.abort();
    let _ = wanted.await;
    let probe = scene.world.probe.clone();
    scene.finish().await;
    breathe().await;
    assert_eq!(probe.adoptions.count(), 0);
}

#[tokio::test]
async fn n12_r67_after_a_stop_announcements_are_stopped_until_a_person_acts() {
    let scene = turn_running().await;
    let instance = scene.world.probe.instance();
    assert!(scene.seat.stopped().await);
    for start in [RUNNING, WANTED] {
        let announced = instance.announce("n", start);
        assert_eq!(joined(announced).await, Err(ChannelError::Stopped));
    }
    assert_eq!(scene.world.probe.adoptions.count(), 0);
    let operation = scene.seat.operate("/c resume");
    scene.world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    let announced = instance.announce("n", RUNNING);
    scene.world.probe.adoptions.next().await.starts();
    assert_eq!(joined(announced).await, Ok(()));
    scene.world.probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn r67_a_pending_announcement_is_something_to_stop() {
    let (scene, holder) = queued().await;
    let id = scene.seat.queue().await[0].command_id;
    let host = &scene.seat.host;
    host.retract(scene.seat.id, Default::default(), id)
        .await
        .unwrap();
    let wanted = scene.world.probe.instance().announce("w", WANTED);
    breathe().await;
    assert!(scene.seat.stopped().await);
    assert_eq!(joined(wanted).await, Err(ChannelError::Stopped));
    holder.finish().await;
    scene.finish().await;
}

#[tokio::test]
async fn n14_a_stop_of_a_native_turn_waits_for_done() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    let announced = probe.instance().announce("n", RUNNING);
    probe.adoptions.next().await.starts();
    joined(announced).await.unwrap();
    let done = probe.dones.next().await;
    done.ignores_abort();
    let stop = scene.seat.stop();
    done.aborted().await;
    assert_eq!(
        say(&done.channel(), "late").await,
        Err(ChannelError::Stopped)
    );
    assert!(!stop.is_finished());
    done.refuses(Refusal::Cancelled);
    assert!(joined(stop).await.unwrap());
    assert_eq!(scene.seat.status().await, Status::Cancelled);
    scene.finish().await;
}

#[tokio::test]
async fn n11_a_message_outside_any_turn_is_a_group_of_its_own() {
    let scene = turn_running().await;
    let instance = scene.world.probe.instance();
    let append = async |text: &str| {
        let message = harness_core::content::NewMessage {
            role: harness_core::content::Role::Assistant,
            parts: vec![harness_core::content::Part::Text { text: text.into() }],
        };
        instance.host.append(message).await
    };
    append("beside").await.unwrap();
    let seat = scene.seat.clone();
    scene.finish().await;
    append("between").await.unwrap();
    assert_eq!(seat.texts().await, ["runs", "beside", "between"]);
    let groups: Vec<_> = seat.events().await;
    let outside = groups
        .iter()
        .filter(|e| e["type"] == "StepDone" && e.get("turn_id").is_none());
    assert_eq!(outside.count(), 2);
}

#[tokio::test]
async fn n10_a_native_turn_without_its_start_is_void_after_a_crash() {
    let scene = idle().await;
    let seat = scene.seat.clone();
    let announced = scene.world.probe.instance().announce("n", RUNNING);
    scene.world.probe.adoptions.next().await.starts();
    joined(announced).await.unwrap();
    let done = scene.world.probe.dones.next().await;
    let kinds = scene.world.kinds(seat.id).await;
    assert!(kinds.contains(&RecordKind::Command));
    let world = scene.world.restart().await;
    drop(done);
    let seat = world.seat(seat.id);
    assert_eq!(seat.last_end().await, "TurnInterrupted:host_lost");
    assert_eq!(seat.status().await, Status::Disconnected);
    assert_eq!(world.probe.adoptions.count(), 1, "never re-sent");
    // Its id may be announced again.
    seat.host.command_state(seat.id).await.unwrap();
    let announced = world.probe.instance().announce("n", RUNNING);
    world.probe.adoptions.next().await.starts();
    assert_eq!(joined(announced).await, Ok(()));
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
}
