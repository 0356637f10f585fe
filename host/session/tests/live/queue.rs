//! The inbox: order, bounds, retract, release, folding, and what a turn's end does to it
//! (S40-S46, S52, N16, R120, I29-I32).

use crate::scenes::{Runner, Scene, idle, turn_running};
use crate::support::{World, code, joined};
use harness_core::provider::Refusal;
use harness_core::view::Status;
use harness_session::Caller;

impl Scene {
    /// Ends the running turn, then runs `n` more.
    async fn runs(&mut self, n: usize) -> Vec<String> {
        if let Runner::Running(call) = std::mem::replace(&mut self.runner, Runner::None) {
            call.ends();
        }
        let mut texts = Vec::new();
        for _ in 0..n {
            let call = self.world.probe.prompts.next().await;
            texts.push(call.text.clone());
            call.starts();
            self.world.probe.dones.next().await.ends();
        }
        self.seat.until(Status::Completed).await;
        texts
    }
}

#[tokio::test]
async fn s43_prompts_start_one_by_one_in_order() {
    let mut scene = turn_running().await;
    for text in ["one", "two", "three"] {
        scene.seat.prompt(text).await;
    }
    let texts = scene.runs(3).await;
    assert!(texts[0].contains("one") && texts[1].contains("two") && texts[2].contains("three"));
    let types = scene.seat.types().await;
    let idles = types.iter().filter(|t| *t == "LoopIdle").count();
    assert_eq!(
        idles, 1,
        "chained turns have no idle edge between them: {types:?}"
    );
    scene.finish().await;
}

#[tokio::test]
async fn r10_a_prompt_that_begins_with_a_slash_is_literal() {
    let scene = idle().await;
    let invokes = scene.world.probe.invokes.count();
    scene.seat.prompt("/plan  x ").await;
    let call = scene.world.probe.prompts.next().await;
    assert_eq!(
        call.text, r#"[Text { text: "/plan  x " }]"#,
        "byte for byte"
    );
    assert_eq!(scene.world.probe.invokes.count(), invokes);
    call.starts();
    scene.world.probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
}

#[tokio::test]
async fn s40_i31_the_sixty_fifth_input_is_rejected() {
    let scene = turn_running().await;
    for n in 0..64 {
        scene.seat.prompt(&format!("{n}")).await;
    }
    let over = scene.seat.prompt("too many").await;
    assert_eq!(scene.seat.queue().await.len(), 64);
    let events = scene.seat.events().await;
    let rejected = events.iter().find(|e| e["type"] == "TurnRejected").unwrap();
    assert_eq!(rejected["reason"], "queue_full");
    assert_eq!(rejected["cause"]["command_id"], over.to_string());
    let Runner::Running(call) = scene.runner else {
        unreachable!()
    };
    call.refuses(Refusal::Native("stop here".into()));
    scene.seat.until(Status::Failed).await;
    assert_eq!(scene.seat.count("InputCancelled:turn_failed").await, 64);
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn s44_a_failed_turn_returns_what_waits() {
    let mut scene = turn_running().await;
    for text in ["one", "two"] {
        scene.seat.prompt(text).await;
    }
    if let Runner::Running(call) = std::mem::replace(&mut scene.runner, Runner::None) {
        call.refuses(Refusal::Native("no".into()));
    }
    scene.seat.until(Status::Failed).await;
    assert_eq!(scene.seat.count("InputCancelled:turn_failed").await, 2);
    assert!(scene.seat.queue().await.is_empty());
    scene.finish().await;
}

#[tokio::test]
async fn s44_i32_stop_keeps_what_people_queued() {
    let mut scene = turn_running().await;
    let ids = [
        scene.seat.prompt("one").await,
        scene.seat.prompt("two").await,
    ];
    if let Runner::Running(call) = std::mem::replace(&mut scene.runner, Runner::None) {
        drop(call);
    }
    assert!(scene.seat.stopped().await);
    for id in ids {
        let call = scene.world.probe.prompts.next().await;
        assert_eq!(call.command, id);
        call.starts();
        scene.world.probe.dones.next().await.ends();
    }
    scene.seat.until(Status::Completed).await;
    assert_eq!(scene.seat.count("InputCancelled").await, 0);
    scene.finish().await;
}

#[tokio::test]
async fn s46_s45_a_retracted_input_never_starts() {
    let mut scene = turn_running().await;
    let one = scene.seat.prompt("one").await;
    let two = scene.seat.prompt("two").await;
    let retract = async |id| {
        let host = &scene.seat.host;
        host.retract(scene.seat.id, Caller::default(), id)
            .await
            .unwrap()
    };
    assert!(retract(one).await);
    assert!(!retract(one).await, "a second time is a no-op");
    assert_eq!(scene.seat.count("InputCancelled:client_retracted").await, 1);
    let queue = scene.seat.queue().await;
    assert_eq!(
        queue.iter().map(|q| q.command_id).collect::<Vec<_>>(),
        [two]
    );
    let texts = scene.runs(1).await;
    assert!(texts[0].contains("two"));
    scene.finish().await;
}

#[tokio::test]
async fn s42_n16_r120_a_running_turn_folds_up_to_no_fold() {
    let scene = turn_running().await;
    let seat = scene.seat.clone();
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    let channel = call.channel();
    let refused = seat.submit(Caller::default(), "x", false, true).await;
    assert_eq!(code(&refused), "folding_unavailable");
    assert!(
        channel.take_input().await.unwrap().is_empty(),
        "not declared: nothing"
    );
    scene.world.probe.declare(|i| i.features.folding = true);
    let ready = {
        let channel = channel.clone();
        tokio::spawn(async move { channel.input_ready().await })
    };
    crate::support::breathe().await;
    assert!(!ready.is_finished());
    let one = seat.prompt("one").await;
    assert_eq!(joined(ready).await, Ok(true));
    let two = seat
        .submit(Caller::default(), "two", false, true)
        .await
        .unwrap();
    let three = seat
        .submit(Caller::default(), "three", true, false)
        .await
        .unwrap();
    let four = seat.prompt("four").await;
    // Dropped at any time, it takes nothing.
    let dropped = {
        let channel = channel.clone();
        tokio::spawn(async move { channel.input_ready().await })
    };
    dropped.abort();
    let _ = dropped.await;
    assert_eq!(seat.queue().await.len(), 4);
    let taken = channel.take_input().await.unwrap();
    let ids: Vec<_> = taken.iter().map(|i| i.command_id).collect();
    assert_eq!(ids, [one, two], "up to the first that must not fold");
    assert_eq!(
        seat.count("TurnFoldedInto").await,
        2,
        "durable before it is returned"
    );
    let left: Vec<_> = seat.queue().await.iter().map(|q| q.command_id).collect();
    assert_eq!(left, [three, four]);
    let waiting = {
        let channel = channel.clone();
        tokio::spawn(async move { channel.input_ready().await })
    };
    crate::support::breathe().await;
    channel.close_input();
    assert_eq!(joined(waiting).await, Ok(false));
    let mut scene = scene;
    scene.runs(2).await;
    assert_eq!(seat.texts().await, ["runs", "one", "two", "three", "four"]);
    scene.finish().await;
}

#[tokio::test]
async fn i30_a_stop_after_a_fold_resolves_each_input_once() {
    let scene = turn_running().await;
    scene.world.probe.declare(|i| i.features.folding = true);
    let seat = scene.seat.clone();
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    let channel = call.channel();
    seat.prompt("one").await;
    let two = seat
        .submit(Caller::default(), "two", true, false)
        .await
        .unwrap();
    let stop = seat.stop();
    let taking = tokio::spawn(async move { channel.take_input().await });
    assert!(joined(stop).await.unwrap());
    let taken = joined(taking).await;
    let folded = taken.as_ref().map_or(0, Vec::len);
    // What was not folded starts afterwards, in order.
    for _ in folded..2 {
        let next = scene.world.probe.prompts.next().await;
        next.starts();
        scene.world.probe.dones.next().await.ends();
    }
    seat.until(Status::Completed).await;
    for id in [two] {
        let events = seat.events().await;
        let resolutions = events.iter().filter(|e| {
            let kind = e["type"].as_str().unwrap();
            [
                "TurnStarted",
                "TurnFoldedInto",
                "InputCancelled",
                "TurnRejected",
            ]
            .contains(&kind)
                && e["cause"]["command_id"] == id.to_string()
        });
        assert_eq!(resolutions.count(), 1, "S45");
    }
    assert_eq!(seat.texts().await, ["runs", "one", "two"]);
    scene.finish().await;
}

#[tokio::test]
async fn r120_what_may_only_fold_ends_with_its_turn() {
    let mut scene = turn_running().await;
    scene.world.probe.declare(|i| i.features.folding = true);
    scene
        .seat
        .submit(Caller::default(), "x", false, true)
        .await
        .unwrap();
    scene.runs(0).await;
    assert_eq!(scene.seat.count("InputCancelled:turn_ended").await, 1);
    assert!(scene.seat.queue().await.is_empty());
    let refused = scene.seat.submit(Caller::default(), "x", false, true).await;
    assert_eq!(code(&refused), "folding_unavailable");
    scene.finish().await;
}

#[tokio::test]
async fn r60_a_slot_is_handed_on_in_order() {
    let world = World::new().await;
    let seats = [world.idle().await, world.idle().await, world.idle().await];
    for seat in &seats {
        seat.prompt("go").await;
    }
    for _ in 0..3 {
        world.probe.prompts.next().await.starts();
        let done = world.probe.dones.next().await;
        assert_eq!(world.host.free_slots(), 0);
        done.ends();
    }
    for seat in &seats {
        seat.until(Status::Completed).await;
    }
    world.pool_is_whole().await;
}

#[tokio::test]
async fn r60_a_slot_that_came_during_an_idle_control_is_wished_for_again() {
    let world = World::new().await;
    let (holder, waiter, taker) = (world.idle().await, world.idle().await, world.idle().await);
    holder.prompt("holds").await;
    world.probe.prompts.next().await.starts();
    let holding = world.probe.dones.next().await;
    waiter.prompt("waits").await;
    let control = waiter.operate("/c beside");
    let control_call = world.probe.invokes.next().await;
    holding.ends();
    holder.until(Status::Completed).await;
    crate::support::until("the slot goes back", || world.host.free_slots() == 1).await;
    // Another session takes it; the waiting prompt must still get its turn afterwards.
    let taking = taker.operate("/x takes");
    let taken = world.probe.invokes.next().await;
    control_call.completes("");
    joined(control).await.unwrap();
    assert_eq!(waiter.status().await, Status::Queued);
    taken.completes("");
    joined(taking).await.unwrap();
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    waiter.until(Status::Completed).await;
    world.pool_is_whole().await;
}

#[tokio::test]
async fn s52_retracting_the_only_waiting_prompt_frees_the_wish() {
    let (scene, holder) = crate::scenes::queued().await;
    let id = scene.seat.queue().await[0].command_id;
    let host = &scene.seat.host;
    assert!(
        host.retract(scene.seat.id, Caller::default(), id)
            .await
            .unwrap()
    );
    assert_eq!(scene.seat.status().await, Status::Completed);
    holder.finish().await;
    scene.world.pool_is_whole().await;
    let operation = scene.seat.operate("/x go");
    scene.world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    scene.finish().await;
}

#[tokio::test]
async fn s67_idle_edges_come_once_each() {
    let scene = idle().await;
    let seat = scene.seat.clone();
    seat.prompt("go").await;
    scene.world.probe.prompts.next().await.starts();
    let done = scene.world.probe.dones.next().await;
    let operation = seat.operate("/c beside");
    scene.world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    done.ends();
    seat.until(Status::Completed).await;
    scene.finish().await;
    let types = seat.types().await;
    let edges: Vec<_> = types
        .iter()
        .filter(|t| *t == "SessionActive" || *t == "SessionIdle")
        .collect();
    assert_eq!(edges.len() % 2, 0);
    for pair in edges.chunks(2) {
        assert_eq!(pair, ["SessionActive", "SessionIdle"], "{types:?}");
    }
}
