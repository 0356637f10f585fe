//! Operations on a session: admission before reserve, results, and what is left behind.

use crate::scenes::{idle, say};
use crate::support::seat::request;
use crate::support::{World, code, joined};
use harness_core::abort::AbortSignal;
use harness_core::provider::{CallError, ParamValue, Params};
use harness_core::view::ParamsEffective;
use harness_session::{Caller, OperationRequest};
use std::sync::atomic::Ordering;

fn plan() -> Params {
    Params::from([("plan".into(), ParamValue::Boolean(true))])
}

async fn refused_with(
    scene: &crate::scenes::Scene,
    change: impl FnOnce(&mut OperationRequest),
) -> &'static str {
    let mut asked = request("/c go");
    change(&mut asked);
    let never = AbortSignal::never();
    code(&joined(scene.seat.operate_as(Caller::default(), asked, never)).await)
}

#[tokio::test]
async fn r24_i15_a_stale_harness_or_revision_is_refused_before_prepare() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    let types = scene.seat.types().await;
    let prepared = probe.prepared.lock().unwrap().len();
    let other = scene.world.other.harness_id();
    assert_eq!(
        refused_with(&scene, |r| r.harness_id = Some(other)).await,
        "stale_harness"
    );
    assert_eq!(
        refused_with(&scene, |r| r.expected_revision = Some("old".into())).await,
        "stale_state"
    );
    assert_eq!(
        refused_with(&scene, |r| {
            r.operation = harness_core::operation::Operation::Command { text: "".into() };
        })
        .await,
        "invalid_request"
    );
    assert_eq!(probe.prepared.lock().unwrap().len(), prepared);
    assert_eq!(scene.seat.types().await, types);
}

#[tokio::test]
async fn i23_r80_the_current_revision_passes_and_an_old_one_never_does() {
    let scene = idle().await;
    let read = async || {
        scene
            .seat
            .host
            .command_state(scene.seat.id)
            .await
            .unwrap()
            .view
            .revision
            .clone()
    };
    let old = read().await;
    scene.world.probe.publish_command("/new");
    let current = read().await;
    assert_ne!(old, current);
    let invokes = scene.world.probe.invokes.count();
    assert_eq!(
        refused_with(&scene, |r| r.expected_revision = Some(old)).await,
        "stale_state"
    );
    assert_eq!(scene.world.probe.invokes.count(), invokes);
    let asked = OperationRequest {
        expected_revision: Some(current),
        ..request("/c go")
    };
    let running = scene
        .seat
        .operate_as(Caller::default(), asked, AbortSignal::never());
    scene.world.probe.invokes.next().await.completes("");
    joined(running).await.unwrap();
}

#[tokio::test]
async fn r41_a_notification_between_read_and_reserve_compares_again() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    let revision = scene
        .seat
        .host
        .command_state(scene.seat.id)
        .await
        .unwrap()
        .view
        .revision
        .clone();
    probe.hold(&probe.hold_preparation);
    let asked = OperationRequest {
        expected_revision: Some(revision),
        ..request("/c go")
    };
    let running = scene
        .seat
        .operate_as(Caller::default(), asked, AbortSignal::never());
    let preparation = probe.preparations.next().await;
    probe.publish_command("/moved");
    probe.instance().host.state_changed();
    let (invokes, discards) = (probe.invokes.count(), probe.discards.load(Ordering::SeqCst));
    preparation.prepares();
    assert_eq!(code(&joined(running).await), "stale_state");
    assert_eq!(probe.invokes.count(), invokes);
    assert_eq!(probe.discards.load(Ordering::SeqCst), discards + 1);
}

#[tokio::test]
async fn r22_prepare_gets_the_stored_settings_and_the_workspace() {
    let scene = idle().await;
    let operation = scene.seat.operate("/c one");
    scene
        .world
        .probe
        .invokes
        .next()
        .await
        .completes_with("", plan());
    let result = joined(operation).await.unwrap();
    assert_eq!(result.params_effective, Some(ParamsEffective::Now));
    let operation = scene.seat.operate("/c two");
    scene.world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    let (context, _) = scene.world.probe.prepared.lock().unwrap().pop().unwrap();
    assert_eq!(context.params["plan"], ParamValue::Boolean(true), "R79");
    assert_eq!(context.session_id, scene.seat.id);
    assert_eq!(context.project_id.to_string(), "default");
    assert!(context.workspace.is_some() && context.model.is_none());
}

#[tokio::test]
async fn r63_i9_two_idle_controls_see_the_saved_history() {
    let world = World::new().await;
    let seat = world.idle().await;
    for (n, text) in ["one", "two"].into_iter().enumerate() {
        let operation = seat.operate("/c go");
        let call = world.probe.invokes.next().await;
        assert_eq!(call.channel().history(10).await.unwrap().len(), n);
        say(&call.channel(), text).await.unwrap();
        call.completes("");
        joined(operation).await.unwrap();
    }
    assert_eq!(seat.texts().await, ["one", "two"]);
    assert_eq!(seat.count("TurnStarted").await, 0);
}

#[tokio::test]
async fn r9_r8_a_provider_without_commands() {
    let world = World::new().await;
    world.probe.declare(|i| i.features.commands = false);
    let created = joined(world.create(World::first("/c go"))).await.unwrap();
    let result = created.operation_result.unwrap();
    assert_eq!(result.code.as_deref(), Some("unsupported_operation"));
    let state = world.host.draft_command_state(world.draft()).await.unwrap();
    assert!(state.state.commands.is_empty() && !state.push);
    let read = world.host.command_state(created.session.id).await.unwrap();
    let state = &read.view;
    assert!(!state.state.slash_commands && !state.push);
    world.seat(created.session.id).prompt("works").await;
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
}

#[tokio::test]
async fn r78_a_remote_workspace_and_a_need_of_none() {
    let world = World::new().await;
    let remote = harness_journal::WorkspaceTarget::Remote {
        host: "h".into(),
        path: "/p".into(),
    };
    world
        .workspace("away", remote, harness_journal::WorkspaceState::Ready)
        .await;
    let mut body = world.request(World::first("/c go"));
    body.draft.workspace_id = Some("away".parse().unwrap());
    let created = world.create_as(Caller::default(), body);
    world.probe.invokes.next().await.completes("");
    joined(created).await.unwrap();
    let (context, _) = world.probe.prepared.lock().unwrap().pop().unwrap();
    assert!(matches!(
        context.workspace,
        Some(harness_core::provider::Workspace::Remote { .. })
    ));
    world
        .probe
        .declare(|i| i.workspace = harness_core::provider::WorkspaceNeed::None);
    world.idle().await;
    let (context, _) = world.probe.prepared.lock().unwrap().pop().unwrap();
    assert_eq!(context.workspace, None);
}

#[tokio::test]
async fn s59_i42_a_prepare_that_hangs_delays_nobody() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    probe.hold(&probe.hold_preparation);
    let hanging = scene.seat.operate("/x hangs");
    let preparation = probe.preparations.next().await;
    scene.seat.prompt("beside").await;
    probe.prompts.next().await.starts();
    let done = probe.dones.next().await;
    let approval = crate::scenes::ask(done.channel());
    let gate = scene.seat.gate().await;
    let reply = harness_core::gate::GateReply::ApproveOnce;
    scene.seat.answer(gate.gate_id, reply).await.unwrap();
    joined(approval).await.unwrap();
    assert!(scene.seat.stopped().await);
    assert!(!hanging.is_finished());
    preparation.fails(CallError::Timeout("cut".into()));
    assert_eq!(code(&joined(hanging).await), "provider_timeout");
    scene.world.pool_is_whole().await;
}
