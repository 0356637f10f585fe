//! A journal that refuses (S19, S32, S61, S62, I28, I35): who asked is told, what runs is ended,
//! and nothing stays behind: neither owner nor slot nor a caller without an answer.

use crate::scenes::*;
use crate::support::{World, code, joined};
use harness_core::view::Status;
use harness_journal::fault::Fault;
use harness_session::{Item, Start};

impl Scene {
    /// The session is faulted: what runs is let go, and the pool is whole.
    pub async fn finish_faulted(self) {
        let Self {
            world,
            seat,
            runner,
            beside,
            ..
        } = self;
        if let Some((call, operation)) = beside {
            call.completes("");
            assert_eq!(code(&joined(operation).await), "session_faulted");
        }
        match runner {
            Runner::None => {}
            Runner::Starting(call) => call.starts(),
            Runner::Invoking(call, operation) => {
                call.completes("");
                assert_eq!(code(&joined(operation).await), "session_faulted");
            }
            Runner::Running(call) => call.ends(),
        }
        world.pool_is_whole().await;
        seat.until(Status::Failed).await;
        assert_eq!(code(&seat.try_prompt("more").await), "session_faulted");
        // The next process takes it up where the journal ends.
        let id = seat.id;
        let world = world.restart().await;
        let seat = world.seat(id);
        assert_ne!(seat.status().await, Status::InProgress);
        // What was accepted and never started is held; a new prompt goes behind it (S52).
        let held = seat.view().await.held;
        seat.prompt("goes on").await;
        for _ in 0..=held {
            world.probe.prompts.next().await.starts();
            world.probe.dones.next().await.ends();
        }
        seat.until(Status::Completed).await;
    }
}

#[tokio::test]
async fn s62_the_end_of_a_turn_that_cannot_be_written() {
    for fault in [Fault::Full, Fault::Unavailable] {
        let scene = turn_running().await;
        scene.world.faults.fail_next(fault);
        scene.finish_faulted().await;
    }
}

#[tokio::test]
async fn s62_the_outcome_of_a_control_that_cannot_be_written() {
    let scene = idle_control().await;
    scene.world.faults.fail_next(Fault::Full);
    scene.finish_faulted().await;
}

#[tokio::test]
async fn s62_the_outcome_of_an_exclusive_that_cannot_be_written() {
    let scene = exclusive_starting().await;
    scene.world.faults.fail_next(Fault::Full);
    scene.finish_faulted().await;
}

#[tokio::test]
async fn s62_a_started_exclusive_that_cannot_be_written_is_ended() {
    let mut scene = exclusive_starting().await;
    let Runner::Invoking(call, operation) = std::mem::replace(&mut scene.runner, Runner::None)
    else {
        unreachable!()
    };
    scene.world.faults.fail_next(Fault::Full);
    scene.world.probe.hold(&scene.world.probe.ignore_aborts);
    call.starts();
    let done = scene.world.probe.dones.next().await;
    assert!(done.abort_reason().is_some(), "it is ended, not run");
    done.ends();
    assert_eq!(code(&joined(operation).await), "session_faulted");
    scene.finish_faulted().await;
}

#[tokio::test]
async fn s62_the_late_end_of_a_control_that_joined_a_turn() {
    let scene = turn_ended().await;
    scene.world.faults.fail_next(Fault::Full);
    scene.finish_faulted().await;
}

#[tokio::test]
async fn s62_a_prompt_that_cannot_start_gives_its_slot_back() {
    let scene = idle().await;
    let next = scene.world.faults.writes() + 1;
    scene.world.faults.fail_at(next + 1, Fault::Full);
    // The input is accepted; its start is another append.
    let submitted = scene.seat.try_prompt("go").await;
    assert_eq!(code(&submitted), "ok");
    assert_eq!(scene.world.probe.prompts.count(), 0);
    scene.finish_faulted().await;
}

#[tokio::test]
async fn s32_i28_a_submit_that_cannot_be_recorded_leaves_nothing() {
    for (fault, then) in [
        (Fault::Full, "ok"),
        (Fault::Ambiguous { written: false }, "session_faulted"),
    ] {
        let scene = idle().await;
        scene.world.faults.fail_next(fault);
        assert_eq!(
            code(&scene.seat.try_prompt("lost").await),
            "store_unavailable"
        );
        assert_eq!(scene.world.probe.prompts.count(), 0);
        let again = scene.seat.try_prompt("again").await;
        assert_eq!(code(&again), then, "the store could tell, or could not");
        let id = scene.seat.id;
        if then == "ok" {
            scene.world.probe.prompts.next().await.starts();
            scene.world.probe.dones.next().await.ends();
            scene.seat.until(Status::Completed).await;
        }
        let world = scene.world.restart().await;
        assert!(world.seat(id).queue().await.is_empty(), "nothing is held");
    }
}

#[tokio::test]
async fn r61_an_intent_that_cannot_be_recorded_gives_everything_back() {
    for text in ["/c go", "/x go"] {
        let scene = idle().await;
        let (row, calls) = (scene.seat.view().await, scene.world.probe.native_calls());
        scene.world.faults.fail_next(Fault::Full);
        assert_eq!(scene.seat.refusal(text).await, "store_unavailable");
        assert_eq!(scene.seat.view().await, row, "the prior status is restored");
        assert_eq!(scene.world.probe.native_calls(), calls);
        scene.finish().await;
    }
}

#[tokio::test]
async fn s61_i35_nobody_sees_what_is_not_durable() {
    let scene = turn_running().await;
    let (seat, faults) = (scene.seat.clone(), scene.world.faults.clone());
    let mut subscription = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    subscription.next().await.unwrap();
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    faults.hold();
    let channel = call.channel();
    let writing = tokio::spawn(async move { say(&channel, "durable first").await });
    crate::support::breathe().await;
    assert!(!writing.is_finished());
    let enduring = async |s: &mut harness_session::Subscription| {
        loop {
            match s.next().await {
                Some(Item::Frame(frame)) if frame.seq.is_none() => {}
                other => return other,
            }
        }
    };
    let early = futures::poll!(Box::pin(enduring(&mut subscription)));
    assert!(early.is_pending(), "it is not in the store yet");
    faults.resume();
    joined(writing).await.unwrap();
    match enduring(&mut subscription).await {
        Some(Item::Frame(frame)) => assert_eq!(frame.name, "StepDone"),
        other => panic!("{other:?}"),
    }
    // Now one that fails: nobody sees it, a stop that waits for idle is told.
    call.ignores_abort();
    faults.fail_next(Fault::Full);
    assert!(say(&call.channel(), "never").await.is_err());
    assert!(seat.stopped().await);
    scene.finish_faulted().await;
}

#[tokio::test]
async fn s62_a_stop_under_way_is_answered_when_its_end_cannot_be_written() {
    let mut scene = stopping().await;
    let stop = scene.stop.take().unwrap();
    scene.world.faults.fail_next(Fault::Full);
    if let Runner::Running(call) = std::mem::replace(&mut scene.runner, Runner::None) {
        call.refuses(harness_core::provider::Refusal::Cancelled);
    }
    assert!(joined(stop).await.unwrap());
    scene.finish_faulted().await;
}

#[tokio::test]
async fn s62_one_faulted_session_is_nobody_elses_fault() {
    let world = World::with(|c| c.slots = 2).await;
    let (one, two) = (world.idle().await, world.idle().await);
    one.prompt("fails").await;
    world.probe.prompts.next().await.starts();
    let call = world.probe.dones.next().await;
    world.faults.fail_next(Fault::Full);
    call.ends();
    one.until(Status::Failed).await;
    two.prompt("works").await;
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    two.until(Status::Completed).await;
    world.pool_is_whole().await;
}
