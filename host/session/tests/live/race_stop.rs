//! Race matrix (requirements-operations §7.2): the column stop, and the pairs below the table.

use crate::scenes::*;
use crate::support::seat::request;
use crate::support::{World, code, joined};
use harness_core::abort::AbortSignal;
use harness_core::gate::GateReply;
use harness_core::provider::{ParamValue, Params};
use harness_core::view::{OutcomeStatus, Status};
use harness_session::{Caller, OperationRequest, SettingsRequest};

/// Stop ends the run as interrupted, and everything is free afterwards.
async fn interrupts(mut scene: Scene) {
    let seat = scene.seat.clone();
    assert!(seat.stopped().await);
    assert_eq!(seat.status().await, Status::Cancelled);
    if let Runner::Invoking(_, operation) = std::mem::replace(&mut scene.runner, Runner::None) {
        let result = joined(operation).await.unwrap();
        assert_eq!(result.status, OutcomeStatus::Cancelled);
    }
    assert!(!seat.stopped().await, "nothing is left to stop");
    scene.finish().await;
}

#[tokio::test]
async fn race_idle_stop_i33() {
    let scene = idle().await;
    let types = scene.seat.types().await;
    assert!(!scene.seat.stopped().await);
    assert_eq!(scene.seat.types().await, types, "no event");
    scene.finish().await;
}

#[tokio::test]
async fn race_queued_stop() {
    let (scene, holder) = queued().await;
    assert!(!scene.seat.stopped().await);
    assert_eq!(scene.seat.queue().await.len(), 1, "it stays queued");
    holder.finish().await;
    scene.world.probe.prompts.next().await.starts();
    scene.world.probe.dones.next().await.ends();
    scene.finish().await;
}

#[tokio::test]
async fn race_prompt_starting_stop() {
    let scene = prompt_starting().await;
    let seat = scene.seat.clone();
    interrupts(scene).await;
    assert_eq!(seat.last_end().await, "TurnInterrupted:user");
}

#[tokio::test]
async fn race_prompt_starting_stop_while_its_instance_opens() {
    let world = World::new().await;
    world.probe.hold(&world.probe.hold_opening);
    let created = world.create(harness_session::First::Prompt(vec![
        harness_core::content::Block::Text { text: "go".into() },
    ]));
    let seat = world.seat(joined(created).await.unwrap().session.id);
    let opening = world.probe.openings.next().await;
    assert!(seat.stopped().await, "a stop waits for no instance");
    opening.answer(Ok(()));
    crate::support::breathe().await;
    assert_eq!(world.probe.prompts.count(), 0, "it is never called");
    world.pool_is_whole().await;
}

#[tokio::test]
async fn race_exclusive_starting_stop_r68_i13() {
    let mut scene = exclusive_starting().await;
    let seat = scene.seat.clone();
    let Runner::Invoking(call, operation) = std::mem::replace(&mut scene.runner, Runner::None)
    else {
        unreachable!()
    };
    call.ignores_abort();
    let stop = seat.stop();
    call.aborted().await;
    // The native session comes back all the same: its id is recorded, and it is ended.
    let channel = call.channel();
    channel.bind_native_session("late-1".into()).await.unwrap();
    call.starts();
    let done = scene.world.probe.dones.next().await;
    assert!(
        done.abort_reason().is_some(),
        "done runs under a fired abort"
    );
    done.ends();
    assert!(joined(stop).await.unwrap());
    let result = joined(operation).await.unwrap();
    assert_eq!(result.status, OutcomeStatus::Cancelled);
    let row = seat.view().await;
    assert_eq!(row.status, Status::Cancelled);
    assert_eq!(row.agent_session_id.as_deref(), Some("late-1"));
    scene.finish().await;
}

#[tokio::test]
async fn race_turn_running_stop_r67() {
    let scene = turn_running().await;
    let seat = scene.seat.clone();
    interrupts(scene).await;
    assert_eq!(seat.last_end().await, "TurnInterrupted:user");
}

#[tokio::test]
async fn race_idle_control_running_stop() {
    interrupts(idle_control().await).await;
}

#[tokio::test]
async fn race_awaiting_gate_stop_s85() {
    let mut scene = awaiting_gate().await;
    let (gate, approval) = scene.gate.take().unwrap();
    let seat = scene.seat.clone();
    interrupts(scene).await;
    assert!(joined(approval).await.is_err());
    assert_eq!(seat.count("GateResolved:abandoned").await, 1);
    assert!(seat.host.gates(seat.id).await.unwrap().is_empty());
    let late = seat.answer(gate.gate_id, GateReply::ApproveOnce).await;
    assert_eq!(code(&late), "gate_not_found");
}

#[tokio::test]
async fn race_turn_ended_stop() {
    let mut scene = turn_ended().await;
    let (_call, operation) = scene.beside.take().unwrap();
    assert!(scene.seat.stopped().await);
    let result = joined(operation).await.unwrap();
    assert_eq!(result.status, OutcomeStatus::Cancelled);
    assert_eq!(
        scene.seat.last_end().await,
        "TurnDone",
        "the runner's result stands"
    );
    scene.finish().await;
}

#[tokio::test]
async fn race_stopping_stop() {
    let mut scene = stopping().await;
    let again = scene.seat.stop();
    crate::support::breathe().await;
    assert!(!again.is_finished(), "it joins");
    if let Runner::Running(call) = std::mem::replace(&mut scene.runner, Runner::None) {
        call.refuses(harness_core::provider::Refusal::Cancelled);
    }
    assert!(joined(again).await.unwrap());
    assert_eq!(scene.seat.count("TurnInterrupted").await, 1);
    scene.finish().await;
}

#[tokio::test]
async fn race_faulted_stop() {
    let mut scene = faulted().await;
    let types = scene.seat.types().await;
    assert!(scene.seat.stopped().await, "a turn runs");
    assert_eq!(scene.seat.types().await, types, "nothing can be written");
    if let Runner::Running(call) = std::mem::replace(&mut scene.runner, Runner::None) {
        call.ends();
    }
    scene.world.pool_is_whole().await;
    assert!(!scene.seat.stopped().await);
    scene.finish().await;
}

#[tokio::test]
async fn r60_of_two_exclusives_at_once_one_runs() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    probe.hold(&probe.hold_preparation);
    let operations = [scene.seat.operate("/x one"), scene.seat.operate("/x two")];
    let preparations = [
        probe.preparations.next().await,
        probe.preparations.next().await,
    ];
    let invokes = probe.invokes.count();
    for preparation in preparations {
        preparation.prepares();
    }
    probe.invokes.next().await.completes("");
    let mut codes = Vec::new();
    for operation in operations {
        codes.push(code(&joined(operation).await));
    }
    codes.sort_unstable();
    assert!(
        matches!(codes[..], ["ok", "session_busy" | "status_changed"]),
        "{codes:?}"
    );
    assert_eq!(probe.invokes.count(), invokes + 1);
    scene.finish().await;
}

#[tokio::test]
async fn r60_the_last_slot_goes_to_one_of_two_sessions() {
    let scene = idle().await;
    let other = scene.world.idle().await;
    let probe = &scene.world.probe;
    probe.hold(&probe.hold_preparation);
    let operations = [scene.seat.operate("/x one"), other.operate("/x two")];
    for _ in 0..2 {
        probe.preparations.next().await.prepares();
    }
    let call = probe.invokes.next().await;
    let running = call.text == "/x one";
    let [one, two] = operations;
    let (won, lost, loser) = if running {
        (one, two, &other)
    } else {
        (two, one, &scene.seat)
    };
    assert_eq!(code(&joined(lost).await), "no_free_slot");
    assert_eq!(loser.status().await, Status::Completed, "unchanged");
    call.completes("");
    joined(won).await.unwrap();
    scene.finish().await;
}

#[tokio::test]
async fn r60_a_free_slot_is_not_hidden_by_another_sessions_appends() {
    // Writing in one session must not make another see an exhausted pool.
    let control = idle_control().await;
    let other = control.world.idle().await;
    let Runner::Invoking(call, _) = &control.runner else {
        unreachable!()
    };
    let channel = call.channel();
    let writing = tokio::spawn(async move {
        for n in 0..50 {
            say(&channel, &format!("{n}")).await.unwrap();
        }
    });
    for _ in 0..5 {
        let operation = other.operate("/x go");
        let call = control.world.probe.invokes.next().await;
        call.completes("");
        joined(operation).await.unwrap();
    }
    joined(writing).await;
    control.finish().await;
}

#[tokio::test]
async fn r65_harness_swap_during_prepare_is_harness_changed() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    probe.hold(&probe.hold_preparation);
    let operation = scene.seat.operate("/c go");
    let preparation = probe.preparations.next().await;
    scene
        .seat
        .swap(scene.world.other.harness_id())
        .await
        .unwrap();
    let invokes = probe.invokes.count();
    preparation.prepares();
    let result = joined(operation).await;
    assert_eq!(code(&result), "harness_changed");
    assert_eq!(probe.invokes.count(), invokes);
    scene.finish().await;
}

#[tokio::test]
async fn r30_i14_harness_swap_during_a_control_with_a_patch() {
    let mut scene = idle_control().await;
    let Runner::Invoking(call, operation) = std::mem::replace(&mut scene.runner, Runner::None)
    else {
        unreachable!()
    };
    let swapped = scene
        .seat
        .swap(scene.world.other.harness_id())
        .await
        .unwrap();
    let patch = Params::from([("plan".into(), ParamValue::Boolean(true))]);
    call.completes_with("done", patch);
    match joined(operation).await {
        Err(harness_core::refusal::Refused::HarnessChanged {
            result: Some(result),
        }) => {
            assert_eq!(result.status, OutcomeStatus::Completed);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.seat.view().await.params, swapped.params);
    assert_eq!(
        scene.seat.count("SessionParamsChanged").await,
        1,
        "the swap's own"
    );
    let probe = scene.world.probe.clone();
    crate::support::until("the old instance's end", || {
        !probe.instance().disposals.lock().unwrap().is_empty()
    })
    .await;
    scene.finish().await;
}

#[tokio::test]
async fn r79_settings_change_during_prepare_is_status_changed() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    probe.hold(&probe.hold_preparation);
    let operation = scene.seat.operate("/x go");
    let preparation = probe.preparations.next().await;
    let change = SettingsRequest {
        params: Some(Params::from([("plan".into(), ParamValue::Boolean(true))])),
        ..SettingsRequest::default()
    };
    scene.seat.patch(change).await.unwrap();
    let invokes = probe.invokes.count();
    preparation.prepares();
    assert_eq!(code(&joined(operation).await), "status_changed");
    assert_eq!(probe.invokes.count(), invokes);
    scene.finish().await;
}

#[tokio::test]
async fn r67_stop_during_prepare_is_session_stopping() {
    let scene = turn_running().await;
    let probe = scene.world.probe.clone();
    probe.hold(&probe.hold_preparation);
    let operation = scene.seat.operate("/c go");
    let preparation = probe.preparations.next().await;
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    call.ignores_abort();
    let stop = scene.seat.stop();
    call.aborted().await;
    let invokes = probe.invokes.count();
    preparation.prepares();
    assert_eq!(code(&joined(operation).await), "session_stopping");
    assert_eq!(probe.invokes.count(), invokes);
    scene.finish().await;
    assert!(joined(stop).await.unwrap());
}

#[tokio::test]
async fn r80_two_clients_approving_one_confirmation() {
    let scene = idle().await;
    let revision = scene
        .seat
        .host
        .command_state(scene.seat.id)
        .await
        .unwrap()
        .view
        .revision
        .clone();
    let approve = || OperationRequest {
        expected_revision: Some(revision.clone()),
        ..request("/x approve")
    };
    let go = || {
        let never = AbortSignal::never();
        scene.seat.operate_as(Caller::default(), approve(), never)
    };
    let (one, two) = (go(), go());
    let call = scene.world.probe.invokes.next().await;
    // Executing it changes the native state.
    scene.world.probe.publish_command("/approved");
    call.completes("");
    let codes = [code(&joined(one).await), code(&joined(two).await)];
    let won = codes.iter().filter(|c| **c == "ok").count();
    assert_eq!(won, 1, "{codes:?}");
    let lost = codes.iter().find(|c| **c != "ok").unwrap();
    assert!(
        ["stale_state", "session_busy", "status_changed"].contains(lost),
        "{lost}"
    );
    scene.finish().await;
}
