//! New sessions and draft discovery (R14, R15, R40, R43, R47-R53, I1-I7, S101).

use crate::scenes::say;
use crate::support::seat::request;
use crate::support::{World, code, command, forward, joined};
use harness_core::abort::{AbortHandle, AbortReason};
use harness_core::content::Block;
use harness_core::provider::{CallError, ParamValue, Params, Refusal};
use harness_core::view::{OutcomeStatus, Status};
use harness_journal::fault::Fault;
use harness_journal::{WorkspaceState, WorkspaceTarget};
use harness_session::{Caller, First};
use std::time::Duration;

fn prompt(text: &str) -> First {
    First::Prompt(vec![Block::Text { text: text.into() }])
}

#[tokio::test]
async fn r14_r15_i1_draft_discovery_leaves_no_trace() {
    let world = World::new().await;
    let mut draft = world.draft();
    draft.params = Params::from([("plan".into(), ParamValue::Boolean(true))]);
    let state = world.host.draft_command_state(draft.clone()).await.unwrap();
    assert_eq!(state.harness_id, world.probe.harness_id());
    assert!(world.listed().await.is_empty());
    assert_eq!(world.probe.native_calls(), 0);
    let seen = world.probe.discovered.lock().unwrap().remove(0);
    assert_eq!(
        (seen.session_id, seen.native_session_id.clone()),
        (None, None)
    );
    // Resolved exactly as a creation with the same body resolves it.
    let mut body = world.request(World::first("/c go"));
    body.draft = draft;
    let created = world.create_as(Caller::default(), body);
    world.probe.invokes.next().await.completes("");
    let created = joined(created).await.unwrap();
    let (context, _) = world.probe.prepared.lock().unwrap().remove(0);
    assert_eq!(context.session_id, created.session.id);
    assert_eq!(context.native_session_id, None);
    assert_eq!(
        (context.workspace, context.model, context.params),
        (seen.workspace, seen.model, seen.params)
    );
}

#[tokio::test]
async fn w7_n4_twenty_draft_discoveries_share_one_instance_and_start_nothing() {
    let world = World::new().await;
    for _ in 0..20 {
        world.host.draft_command_state(world.draft()).await.unwrap();
    }
    assert_eq!(world.probe.instances.lock().unwrap().len(), 1);
    assert_eq!(world.probe.native_calls(), 0);
    let draft = world.probe.instances.lock().unwrap()[0].clone();
    let announced = draft.announce("n", harness_core::provider::TurnStart::Running);
    assert_eq!(
        joined(announced).await,
        Err(harness_core::provider::ChannelError::Closed),
        "N6: a draft instance announces nothing"
    );
    assert!(draft.host.begin_activity("x".into()).is_err());
}

#[tokio::test]
async fn r40_i2_draft_discovery_refuses_what_creation_refuses() {
    let world = World::new().await;
    let refused = async |change: &dyn Fn(&mut harness_session::DraftRequest)| {
        let mut draft = world.draft();
        change(&mut draft);
        let drafted = code(&world.host.draft_command_state(draft.clone()).await);
        let mut body = world.request(World::first("/c go"));
        body.draft = draft;
        let created = code(&joined(world.create_as(Caller::default(), body)).await);
        assert_eq!(drafted, created);
        drafted
    };
    let remote = WorkspaceTarget::Remote {
        host: "h".into(),
        path: "/".into(),
    };
    world.workspace("away", remote, WorkspaceState::Ready).await;
    let broken = WorkspaceTarget::Local {
        root_path: "/nowhere".into(),
    };
    world
        .workspace("broken", broken, WorkspaceState::Failed)
        .await;
    world.project("other").await;
    assert_eq!(
        refused(&|d| d.workspace_id = Some("none".parse().unwrap())).await,
        "workspace_not_found"
    );
    assert_eq!(
        refused(&|d| d.project_id = "none".parse().unwrap()).await,
        "project_not_found"
    );
    assert_eq!(
        refused(&|d| {
            d.project_id = "other".parse().unwrap();
            d.workspace_id = Some("away".parse().unwrap());
        })
        .await,
        "workspace_not_found",
        "another project's workspace"
    );
    assert_eq!(
        refused(&|d| d.agent = "demo/none".parse().unwrap()).await,
        "harness_not_found"
    );
    assert_eq!(
        refused(&|d| d.workspace_id = Some("broken".parse().unwrap())).await,
        "workspace_failed"
    );
    assert_eq!(
        refused(&|d| d.params = Params::from([("no".into(), ParamValue::Boolean(true))])).await,
        "invalid_params"
    );
    world
        .probe
        .declare(|i| i.workspace = harness_core::provider::WorkspaceNeed::Local);
    assert_eq!(
        refused(&|d| d.workspace_id = Some("away".parse().unwrap())).await,
        "workspace_unsupported"
    );
    world.probe.status.lock().unwrap().state = harness_core::provider::ProviderState::Quarantined;
    assert_eq!(refused(&|_| {}).await, "provider_not_ready");
    assert!(
        world.probe.instances.lock().unwrap().is_empty(),
        "never called"
    );
    assert!(world.listed().await.is_empty());
}

#[tokio::test]
async fn r47_r48_i3_a_control_as_first_operation() {
    let world = World::new().await;
    let created = world.create(World::first("/c  go "));
    let call = world.probe.invokes.next().await;
    assert_eq!(call.text, "/c  go ", "byte for byte (I18)");
    let patch = Params::from([("plan".into(), ParamValue::Boolean(true))]);
    call.completes_with("ok", patch);
    let created = joined(created).await.unwrap();
    let row = created.session;
    assert_eq!(
        (row.status, row.agent_session_id.clone()),
        (Status::Completed, None)
    );
    assert_eq!(row.params["plan"], ParamValue::Boolean(true));
    let result = created.operation_result.unwrap();
    assert_eq!(result.status, OutcomeStatus::Completed);
    assert_eq!(result.command_id, created.command_id);
    let (context, _) = world.probe.prepared.lock().unwrap().remove(0);
    assert_eq!(context.session_id, row.id, "the new row's id in prepare");
    assert_eq!(world.listed().await, [row.id]);
    assert_eq!(world.probe.native_calls(), 1);
    assert!(
        world.seat(row.id).messages().await.is_empty(),
        "no synthetic input"
    );
}

#[tokio::test]
async fn r48_i3_an_exclusive_as_first_operation() {
    let world = World::new().await;
    let created = world.create(World::first("/x go"));
    let call = world.probe.invokes.next().await;
    call.channel()
        .bind_native_session("n-1".into())
        .await
        .unwrap();
    call.starts();
    let created = joined(created).await.unwrap();
    assert_eq!(created.session.status, Status::InProgress);
    assert_eq!(created.session.agent_session_id.as_deref(), Some("n-1"));
    assert_eq!(
        created.operation_result.unwrap().status,
        OutcomeStatus::Started
    );
    world.probe.dones.next().await.ends();
    world
        .seat(created.session.id)
        .until(Status::Completed)
        .await;
    assert_eq!(world.listed().await.len(), 1);
    assert_eq!(world.probe.prompts.count(), 0);
}

#[tokio::test]
async fn s101_a_prompt_as_first() {
    let world = World::new().await;
    let created = joined(world.create(prompt("hello"))).await.unwrap();
    let call = world.probe.prompts.next().await;
    assert_eq!(call.command, created.command_id);
    call.starts();
    world.probe.dones.next().await.ends();
    let seat = world.seat(created.session.id);
    seat.until(Status::Completed).await;
    assert_eq!(seat.texts().await, ["hello"]);
}

#[tokio::test]
async fn s101_a_prompt_that_cannot_be_recorded_leaves_no_session() {
    let world = World::new().await;
    world.faults.fail_next(Fault::Full);
    let created = joined(world.create(prompt("hello"))).await;
    assert_eq!(code(&created), "store_unavailable");
    assert!(world.listed().await.is_empty());
    assert_eq!(world.probe.native_calls(), 0);
    assert_eq!(world.host.live_sessions(), 0);
}

/// R50: 201, the row failed, the problem's code in the result; a retry works in that row.
async fn rejected_first(
    world: &World,
    text: &str,
    code: &str,
    act: impl AsyncFnOnce(&World),
) -> harness_session::Created {
    let created = world.create(World::first(text));
    act(world).await;
    let created = joined(created).await.unwrap();
    assert_eq!(created.session.status, Status::Failed);
    let result = created.operation_result.clone().unwrap();
    assert_eq!(result.status, OutcomeStatus::Rejected);
    assert_eq!(result.code.as_deref(), Some(code));
    assert!(
        world.hooks.names().is_empty(),
        "a rejected one fires no hook"
    );
    let seat = world.seat(created.session.id);
    assert_eq!(seat.count("NativeOperationResolved").await, 1);
    world.pool_is_whole().await;
    created
}

#[tokio::test]
async fn r50_r49_i4_i5_a_rejected_first_operation_and_its_retry() {
    let world = World::new().await;
    let created = rejected_first(&world, "/c go", "command_disabled", async |w| {
        let no = Refusal::NotAllowed("because".into());
        w.probe.invokes.next().await.refuses(no);
    })
    .await;
    let reason = created.operation_result.unwrap().message.unwrap();
    assert_eq!(reason, "because", "the provider's reason");
    let seat = world.seat(created.session.id);
    for _ in 0..2 {
        let again = seat.operate("/c again");
        world.probe.invokes.next().await.completes("");
        joined(again).await.unwrap();
    }
    assert_eq!(seat.status().await, Status::Completed);
    assert_eq!(world.hooks.names(), ["started", "resumed"]);
    assert_eq!(world.listed().await, [seat.id], "no second row");
}

/// The answer, its result and the journal name one command, without a key too.
#[tokio::test]
async fn r50_a_rejected_first_operation_has_one_id() {
    let world = World::new().await;
    world.probe.hold(&world.probe.hold_preparation);
    let created = rejected_first(&world, "/c go", "command_disabled", async |w| {
        let no = Refusal::NotAllowed("no".into());
        w.probe.preparations.next().await.refuses(no);
    })
    .await;
    let events = world.seat(created.session.id).events().await;
    let outcome = events
        .iter()
        .find(|e| e["type"] == "NativeOperationResolved");
    let recorded = outcome.unwrap()["cause"]["command_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(created.command_id.to_string(), recorded);
    let result = created.operation_result.unwrap();
    assert_eq!(result.command_id, created.command_id);
}

#[tokio::test]
async fn r50_a_first_operation_refused_in_preparation() {
    let table = [
        (Refusal::Unsupported("u".into()), "unsupported_operation"),
        (Refusal::InvalidOperation("i".into()), "invalid_argument"),
        (Refusal::NotAllowed("n".into()), "command_disabled"),
        (Refusal::StaleRevision("s".into()), "stale_state"),
        (Refusal::Unavailable("u".into()), "provider_unavailable"),
        (Refusal::Native("n".into()), "provider_failed"),
    ];
    for (refusal, expected) in table {
        let world = World::new().await;
        world.probe.hold(&world.probe.hold_preparation);
        rejected_first(&world, "/x go", expected, async |w| {
            w.probe.preparations.next().await.refuses(refusal.clone());
        })
        .await;
        assert_eq!(world.probe.invokes.count(), 0);
    }
}

#[tokio::test]
async fn r50_a_first_operation_that_traps_times_out_or_finds_no_slot() {
    let world = World::new().await;
    world.probe.hold(&world.probe.hold_preparation);
    let trap = async |w: &World| {
        let trap = CallError::Trap("t".into());
        w.probe.preparations.next().await.fails(trap);
    };
    rejected_first(&world, "/x go", "provider_trap", trap).await;
    let late = async |w: &World| {
        let late = CallError::Timeout("t".into());
        w.probe.preparations.next().await.fails(late);
    };
    rejected_first(&world, "/x go", "provider_timeout", late).await;
    let scene = crate::scenes::turn_running().await;
    let created = joined(scene.world.create(World::first("/x go")))
        .await
        .unwrap();
    let result = created.operation_result.unwrap();
    assert_eq!(result.code.as_deref(), Some("no_free_slot"));
    assert_eq!(created.session.status, Status::Failed);
    scene.finish().await;
}

#[tokio::test]
async fn r50_a_stale_revision_on_creation() {
    let world = World::new().await;
    let body = world.request(First::Operation {
        operation: command("/c go"),
        expected_revision: Some("old".into()),
    });
    let created = joined(world.create_as(Caller::default(), body))
        .await
        .unwrap();
    let result = created.operation_result.unwrap();
    assert_eq!(result.code.as_deref(), Some("stale_state"));
    assert_eq!(world.probe.prepared.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn r51_i6_abort_during_the_startup_of_a_first_operation() {
    let world = World::new().await;
    let gone = AbortHandle::new();
    let (host, body, signal) = (
        world.host.clone(),
        world.request(World::first("/x go")),
        gone.signal(),
    );
    let created = tokio::spawn(async move { host.create(Caller::default(), body, signal).await });
    let call = world.probe.invokes.next().await;
    call.ignores_abort();
    gone.abort(AbortReason::CallerGone);
    assert_eq!(call.aborted().await, AbortReason::CallerGone);
    call.channel()
        .bind_native_session("late".into())
        .await
        .unwrap();
    call.starts();
    world.probe.dones.next().await.ends();
    let created = joined(created).await.unwrap();
    assert_eq!(created.session.status, Status::Cancelled);
    assert_eq!(created.session.agent_session_id.as_deref(), Some("late"));
    let result = created.operation_result.unwrap();
    assert_eq!(result.status, OutcomeStatus::Cancelled);
    world.pool_is_whole().await;
}

#[tokio::test]
async fn r51_a_disconnected_first_operation() {
    let world = World::new().await;
    let created = world.create(World::first("/x go"));
    let lost = Refusal::Disconnected("gone".into());
    world.probe.invokes.next().await.refuses(lost);
    let created = joined(created).await.unwrap();
    assert_eq!(created.session.status, Status::Disconnected);
    let result = created.operation_result.unwrap();
    assert_eq!(result.status, OutcomeStatus::Uncertain);
    assert_eq!(result.code.as_deref(), Some("provider_unavailable"));
}

#[tokio::test]
async fn r52_i7_a_workspace_that_cannot_be_linked() {
    let world = World::new().await;
    world.host.draft_command_state(world.draft()).await.ok();
    let seat = world.idle().await;
    std::fs::remove_dir(world.dir.path().join("work")).unwrap();
    let calls = world.probe.native_calls();
    let created = joined(world.create(World::first("/c go"))).await;
    assert_eq!(code(&created), "workspace_link_failed");
    let rows = world.listed().await;
    let id = *rows.iter().find(|id| **id != seat.id).unwrap();
    assert_eq!(world.seat(id).status().await, Status::Failed);
    assert_eq!(world.probe.native_calls(), calls);
    let prompted = joined(world.create(prompt("x"))).await;
    assert_eq!(code(&prompted), "workspace_link_failed");
}

#[tokio::test(start_paused = true)]
async fn r40_r43_a_workspace_that_is_being_set_up() {
    let world = World::still(|_| {}).await;
    let local = WorkspaceTarget::Local {
        root_path: world.dir.path().to_string_lossy().into_owned(),
    };
    let starting = WorkspaceState::Initializing;
    world.workspace("slow", local, starting).await;
    let mut body = world.request(World::first("/c go"));
    body.draft.workspace_id = Some("slow".parse().unwrap());
    let drafted = world.host.draft_command_state(body.draft.clone()).await;
    assert_eq!(code(&drafted), "workspace_not_ready", "no wait");
    // Creation waits, at most thirty seconds.
    let refused = world.create_as(Caller::default(), body.clone());
    forward(Duration::from_secs(25)).await;
    assert!(!refused.is_finished());
    forward(Duration::from_secs(10)).await;
    assert_eq!(code(&joined(refused).await), "workspace_not_ready");
    assert!(world.listed().await.is_empty());
    let created = world.create_as(Caller::default(), body);
    let (id, ready) = ("slow".parse().unwrap(), WorkspaceState::Ready);
    let catalog = world.host.catalog();
    catalog.set_workspace_state(id, ready).await.unwrap();
    forward(Duration::from_secs(1)).await;
    world.probe.invokes.next().await.completes("");
    joined(created).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s33_who_was_told_reads_what_follows_from_it() {
    let world = World::new().await;
    for _ in 0..40 {
        let created = world.create(World::first("/c go"));
        world.probe.invokes.next().await.completes("");
        let created = joined(created).await.unwrap();
        assert_eq!(created.session.status, Status::Completed);
        let seat = world.seat(created.session.id);
        world.host.snapshot(seat.id).await.unwrap();
        let operation = seat.operate("/x go");
        world.probe.invokes.next().await.completes_with(
            "",
            Params::from([("plan".into(), ParamValue::Boolean(true))]),
        );
        joined(operation).await.unwrap();
        let row = seat.view().await;
        assert_eq!(row.status, Status::Completed);
        assert_eq!(row.params["plan"], ParamValue::Boolean(true));
        world.pool_is_whole().await;
    }
}

#[tokio::test]
async fn r53_a_harness_swapped_between_row_and_preparation() {
    let world = World::new().await;
    world.probe.hold(&world.probe.hold_opening);
    let created = world.create(World::first("/c go"));
    let opening = world.probe.openings.next().await;
    // The harness is gone before it is prepared: 201, failed, rejected.
    opening.fails(CallError::Unavailable {
        reason: "replaced".into(),
        loading: false,
    });
    let created = joined(created).await.unwrap();
    assert_eq!(created.session.status, Status::Failed);
    let result = created.operation_result.unwrap();
    assert_eq!(result.code.as_deref(), Some("provider_unavailable"));
    // Later requests on the row quote the wrong harness.
    let seat = world.seat(created.session.id);
    let mut wrong = request("/c go");
    wrong.harness_id = Some(world.other.harness_id());
    let never = harness_core::abort::AbortSignal::never();
    let refused = joined(seat.operate_as(Caller::default(), wrong, never)).await;
    assert_eq!(code(&refused), "stale_harness");
}

#[tokio::test]
async fn r43_a_first_operation_writes_into_the_new_conversation() {
    let world = World::new().await;
    let created = world.create(World::first("/c go"));
    let call = world.probe.invokes.next().await;
    assert!(call.channel().history(10).await.unwrap().is_empty());
    say(&call.channel(), "reply").await.unwrap();
    call.completes("");
    let created = joined(created).await.unwrap();
    assert_eq!(world.seat(created.session.id).texts().await, ["reply"]);
}

#[tokio::test]
async fn s32_a_session_being_created_answers_nobody_before_it_is_durable() {
    let world = World::new().await;
    world.probe.hold(&world.probe.hold_preparation);
    let mut caller = crate::support::fixed_key("create", 1);
    caller.identity = None;
    let id = caller.key.unwrap().session_id;
    let created = world.create_as(caller, world.request(World::first("/c go")));
    let preparation = world.probe.preparations.next().await;
    assert_eq!(code(&world.host.session(id).await), "session_not_found");
    assert_eq!(code(&world.host.snapshot(id).await), "session_not_found");
    preparation.prepares();
    world.probe.invokes.next().await.completes("");
    let created = joined(created).await.unwrap();
    assert_eq!(created.session.id, id);
    world.host.snapshot(id).await.unwrap();
}
