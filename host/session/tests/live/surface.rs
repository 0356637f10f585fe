//! The surface of a session and of its loops, as an application sees it (S23-S26, S31, S36, S69,
//! I34).

use crate::scenes::{idle, prompt_starting, turn_running};
use crate::support::{Seat, World, code, joined, patient, until};
use harness_core::codec::decode_command;
use harness_core::command::{Agency, Command, CommandBody};
use harness_core::ids::LoopId;
use harness_core::provider::{HarnessInfo, LoopMode, ModelSpec};
use harness_core::view::Status;
use harness_journal::fault::Fault;
use harness_journal::{Journal, RecordKind};
use harness_session::{Caller, Item, LoopRuntime, Start};

/// The commands of a session's journal, in order.
async fn commands(world: &World, seat: &Seat) -> Vec<Command> {
    let page = world.store.read(seat.id, 1, 1000).await.unwrap();
    let records = page.records.iter();
    let commands = records.filter(|r| r.kind == RecordKind::Command);
    commands
        .map(|r| decode_command(&r.bytes).unwrap())
        .collect()
}

fn with_modes(info: &mut HarnessInfo) {
    info.loop_modes = ["plan", "review"]
        .map(|name| LoopMode {
            name: name.into(),
            label: name.into(),
        })
        .into();
    info.models = vec![ModelSpec {
        id: "large".into(),
        label: "Large".into(),
        efforts: vec!["high".into()],
    }];
}

/// A world whose session has one loop with modes and a model.
async fn configured() -> (World, Seat, LoopId) {
    let world = World::new().await;
    world.probe.declare(with_modes);
    let seat = world.idle().await;
    let loop_id = seat.view().await.active_loop_id;
    (world, seat, loop_id)
}

/// What the loop says that its next turn uses.
async fn runtime(seat: &Seat, loop_id: LoopId) -> (String, Option<String>, Option<String>) {
    let loops = seat.host.loops(seat.id).await.unwrap();
    let view = loops
        .into_iter()
        .find(|l| l.view.loop_id == loop_id)
        .unwrap()
        .view;
    (view.mode, view.model, view.effort)
}

#[tokio::test]
async fn s23_a_stop_is_told_whether_it_stopped_and_a_shutdown_that_it_ended() {
    let scene = turn_running().await;
    assert!(scene.seat.stopped().await, "a turn was cancelled");
    assert!(!scene.seat.stopped().await, "there was nothing to stop");
    let seat = &scene.seat;
    let shut = seat.host.shutdown_session(seat.id, Caller::default()).await;
    assert!(shut.unwrap().expired_phases.is_empty());
    // The durable trace is the intent and its consequence.
    let trace: Vec<_> = commands(&scene.world, seat).await;
    let trace = trace.iter().map(|c| c.body.type_name());
    let trace: Vec<_> = trace
        .filter(|t| ["Interrupt", "Shutdown"].contains(t))
        .collect();
    assert_eq!(trace, ["Interrupt", "Shutdown"]);
    assert_eq!(seat.count("TurnInterrupted:user").await, 1);
    assert_eq!(seat.count("SessionStopped").await, 1);
}

#[tokio::test]
async fn s24_nobody_waits_for_the_answer_and_nothing_changes() {
    let (world, seat, loop_id) = configured().await;
    // The asker is gone while its request is being written down.
    world.faults.hold();
    let (host, id) = (seat.host.clone(), seat.id);
    let asking = tokio::spawn(async move {
        let mode = "plan".to_owned();
        host.set_loop_mode(id, Caller::default(), loop_id, mode)
            .await
    });
    let (host, id) = (seat.host.clone(), seat.id);
    let prompting = tokio::spawn(async move {
        let seat = Seat { host, id };
        seat.prompt("nobody waits").await
    });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    asking.abort();
    prompting.abort();
    assert!(asking.await.is_err() && prompting.await.is_err());
    world.faults.resume();
    let call = world.probe.prompts.next().await;
    assert_eq!(call.channel().context().loop_mode.as_deref(), Some("plan"));
    call.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    assert_eq!(seat.count("LoopModeChanged").await, 1);
}

#[tokio::test]
async fn s25_a_refused_change_changes_nothing_and_a_change_is_whole() {
    let (world, seat, loop_id) = configured().await;
    let before = (runtime(&seat, loop_id).await, seat.types().await);
    let (host, id) = (&seat.host, seat.id);
    let change = async |model: Option<&str>, effort: Option<&str>| {
        let (model, effort) = (model.map(str::to_owned), effort.map(str::to_owned));
        let caller = Caller::default();
        host.change_inference(id, caller, loop_id, model, effort)
            .await
    };
    let refused = [
        (Some("large"), Some("none"), "invalid_effort"),
        (Some("none"), Some("high"), "invalid_model"),
        (None, None, "no_changes"),
    ];
    for (model, effort, expected) in refused {
        assert_eq!(code(&change(model, effort).await), expected);
    }
    assert_eq!((runtime(&seat, loop_id).await, seat.types().await), before);
    let both = change(Some("large"), Some("high")).await.unwrap();
    assert_eq!(both.runtime.model.as_deref(), Some("large"));
    assert_eq!(both.runtime.effort.as_deref(), Some("high"));
    let types = seat.types().await;
    assert_eq!(types.len(), before.1.len() + 1, "one event for both");
    // What is not durable is not applied. Where nothing was written for certain, that is all; a
    // store that cannot tell faults the session (S62).
    let now = runtime(&seat, loop_id).await;
    let mode = async || {
        host.set_loop_mode(id, Caller::default(), loop_id, "plan".into())
            .await
    };
    for fault in [Fault::Full, Fault::Ambiguous { written: false }] {
        world.faults.fail_next(fault);
        assert_eq!(code(&mode().await), "store_unavailable");
        let shown = (runtime(&seat, loop_id).await, seat.types().await);
        assert_eq!(shown, (now.clone(), types.clone()), "{fault:?}");
    }
    assert_eq!(code(&mode().await), "session_faulted");
}

#[tokio::test]
async fn i34_a_running_turn_keeps_what_it_started_with_and_a_failed_change_is_none() {
    let (world, seat, loop_id) = configured().await;
    let prompt = async |text: &str| {
        seat.prompt(text).await;
        world.probe.prompts.next().await
    };
    let caller = Caller::default;
    let (host, id) = (&seat.host, seat.id);
    let running = prompt("runs").await;
    let mode = host
        .set_loop_mode(id, caller(), loop_id, "plan".into())
        .await;
    assert_eq!(mode.unwrap().mode, "plan");
    let model = Some("large".to_owned());
    let effort = Some("high".to_owned());
    let inference = host
        .change_inference(id, caller(), loop_id, model, effort)
        .await;
    assert_eq!(inference.unwrap().runtime.model.as_deref(), Some("large"));
    running.starts();
    let done = world.probe.dones.next().await;
    let context = done.channel().context();
    assert_eq!(
        (context.loop_mode, context.model, context.effort),
        (None, None, None)
    );
    done.ends();
    seat.until(Status::Completed).await;
    let next = prompt("uses them").await;
    let context = next.channel().context();
    assert_eq!(context.loop_mode.as_deref(), Some("plan"));
    assert_eq!(context.model.as_deref(), Some("large"));
    assert_eq!(context.effort.as_deref(), Some("high"));
    let old = runtime(&seat, loop_id).await;
    world.faults.fail_next(Fault::Full);
    let failed = host
        .set_loop_mode(id, caller(), loop_id, "review".into())
        .await;
    assert_eq!(code(&failed), "store_unavailable");
    assert_eq!(
        runtime(&seat, loop_id).await,
        old,
        "the old values are reported"
    );
    next.starts();
    world.probe.dones.next().await.ends();
    // After the fault the next process says the same.
    let world = world.restart().await;
    assert_eq!(runtime(&world.seat(seat.id), loop_id).await, old);
}

#[tokio::test]
async fn s31_the_host_alone_stamps_who_when_and_where() {
    let scene = idle().await;
    let (world, seat) = (&scene.world, &scene.seat);
    let before = jiff::Timestamp::now();
    let caller = || Caller {
        identity: Some("token:alice".into()),
        key: None,
    };
    let ids = [
        seat.prompt_as(caller(), "one").await.unwrap(),
        seat.prompt_as(caller(), "two").await.unwrap(),
    ];
    assert_ne!(ids[0], ids[1], "each intent has an id of its own");
    let loop_id = seat.view().await.active_loop_id;
    let stamped = commands(world, seat).await;
    for id in ids {
        let command = stamped.iter().find(|c| c.id() == id).unwrap();
        assert_eq!(command.header.agency, Agency::User);
        assert_eq!(command.header.caller.as_deref(), Some("token:alice"));
        assert!(command.header.created_at >= before);
        let CommandBody::UserInput { target_loop_id, .. } = command.body else {
            panic!("{command:?}");
        };
        assert_eq!(
            target_loop_id, loop_id,
            "the active loop, though none was named"
        );
    }
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
}

#[tokio::test]
async fn s36_a_loop_shows_what_was_acknowledged_last_and_lends_a_copy_of_its_modes() {
    let (world, seat, loop_id) = configured().await;
    let acknowledged: LoopRuntime = seat
        .host
        .set_loop_mode(seat.id, Caller::default(), loop_id, "plan".into())
        .await
        .unwrap();
    let shown = runtime(&seat, loop_id).await;
    assert_eq!(shown.0, acknowledged.mode);
    assert_eq!(
        (shown.1, shown.2),
        (acknowledged.runtime.model, acknowledged.runtime.effort)
    );
    let names = async || {
        let mut loops = seat.host.loops(seat.id).await.unwrap();
        let of = loops.remove(0);
        of.modes
    };
    let mut catalogue = names().await;
    let listed: Vec<_> = catalogue.iter().map(|m| m.name.clone()).collect();
    assert_eq!(
        listed,
        ["", "plan", "review"],
        "the base mode is one of them"
    );
    catalogue.clear();
    assert_eq!(names().await.len(), 3, "changing the copy changes nothing");
    for mode in listed {
        let set = seat
            .host
            .set_loop_mode(seat.id, Caller::default(), loop_id, mode.clone());
        assert_eq!(set.await.unwrap().mode, mode, "each of them can be set");
        assert_eq!(runtime(&seat, loop_id).await.0, mode);
    }
    drop(world);
}

#[tokio::test]
async fn s69_a_change_of_command_state_is_told_without_it_and_kept_nowhere() {
    let scene = prompt_starting().await;
    let seat = &scene.seat;
    let mut subscription = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    subscription.next().await.unwrap();
    let before = seat.events().await.len();
    scene.world.probe.publish_command("secret-name");
    scene.world.probe.instance().host.state_changed();
    let frame = patient("the notification", async {
        loop {
            match subscription.next().await {
                Some(Item::Frame(frame)) if frame.name == "command_state_changed" => break frame,
                Some(_) => {}
                None => panic!("the stream ended"),
            }
        }
    })
    .await;
    assert_eq!(frame.seq, None, "ephemeral");
    assert!(
        !frame.data.contains("secret-name"),
        "no state in it: {}",
        frame.data
    );
    assert_eq!(seat.events().await.len(), before, "and not in the journal");
    // Who is told reads again.
    let read = seat.host.command_state(seat.id).await.unwrap();
    assert_eq!(read.view.state.commands[0].name, "secret-name");
    let pool = seat.host.clone();
    let stop = seat.stop();
    drop(scene.runner);
    joined(stop).await.unwrap();
    until("a whole pool", || pool.free_slots() == 1).await;
}
