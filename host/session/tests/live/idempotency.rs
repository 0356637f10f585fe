//! Keyed requests (G5, S120): the intent, its answer, what a restart leaves of both.

use crate::support::seat::request;
use crate::support::{World, code, fixed_key, joined};
use harness_core::abort::AbortSignal;
use harness_core::content::Block;
use harness_core::view::{OutcomeStatus, Status};
use harness_journal::fault::Fault;
use harness_session::{First, KeyState};

#[tokio::test]
async fn g5_s120_a_keyed_submit_is_remembered_with_its_answer() {
    let world = World::new().await;
    let seat = world.idle().await;
    let caller = fixed_key("k", 1);
    let key = caller.key.unwrap();
    let state = async |key| seat.host.keyed(Some(seat.id), key).await;
    assert_eq!(state(key).await, Ok(KeyState::Fresh));
    let id = seat.prompt_as(caller.clone(), "once").await.unwrap();
    assert_eq!(id, key.command_id);
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    let unanswered = KeyState::Unanswered {
        session: seat.id,
        result: None,
        reference: None,
    };
    assert_eq!(
        state(key).await,
        Ok(unanswered),
        "the host was lost in between"
    );
    seat.host.answered(seat.id, key, 202, "body".into()).await;
    let done = KeyState::Done {
        status: 202,
        body: "body".into(),
    };
    assert_eq!(state(key).await, Ok(done.clone()));
    let other = fixed_key("k", 2).key.unwrap();
    assert_eq!(code(&state(other).await), "idempotency_conflict");
    let id = seat.id;
    let world = world.restart().await;
    assert_eq!(world.host.keyed(Some(id), key).await, Ok(done));
    assert_eq!(
        code(&world.host.keyed(Some(id), other).await),
        "idempotency_conflict"
    );
    assert_eq!(world.probe.prompts.count(), 1);
}

#[tokio::test]
async fn g5_a_refusal_before_reserve_stores_nothing() {
    let scene = crate::scenes::turn_running().await;
    let caller = fixed_key("k", 1);
    let (key, never) = (caller.key.unwrap(), AbortSignal::never());
    let refused = joined(scene.seat.operate_as(caller, request("/x go"), never)).await;
    assert_eq!(code(&refused), "session_busy");
    let state = scene.seat.host.keyed(Some(scene.seat.id), key).await;
    assert_eq!(state, Ok(KeyState::Fresh));
    scene.finish().await;
}

#[tokio::test]
async fn r80_g5_a_keyed_operation_that_a_crash_cut_is_uncertain_for_good() {
    let world = World::new().await;
    let seat = world.idle().await;
    let caller = fixed_key("k", 1);
    let key = caller.key.unwrap();
    let running = seat.operate_as(caller, request("/x go"), AbortSignal::never());
    let call = world.probe.invokes.next().await;
    call.ignores_abort();
    let invokes = world.probe.invokes.count();
    let world = world.restart().await;
    running.abort();
    let seat = world.seat(seat.id);
    for _ in 0..2 {
        let state = seat.host.keyed(Some(seat.id), key).await.unwrap();
        let KeyState::Unanswered { result, .. } = state else {
            panic!("{state:?}")
        };
        assert_eq!(result.unwrap().status, OutcomeStatus::Uncertain);
    }
    assert_eq!(seat.status().await, Status::Disconnected);
    assert_eq!(world.probe.invokes.count(), invokes, "never re-sent");
}

#[tokio::test]
async fn g5_an_operations_result_is_recovered_when_its_answer_was_not_kept() {
    let world = World::new().await;
    let seat = world.idle().await;
    let caller = fixed_key("k", 1);
    let key = caller.key.unwrap();
    let running = seat.operate_as(caller, request("/c go"), AbortSignal::never());
    world.probe.invokes.next().await.completes("reply");
    let result = joined(running).await.unwrap();
    world.faults.fail_next(Fault::Full);
    seat.host.answered(seat.id, key, 200, "lost".into()).await;
    let id = seat.id;
    let world = world.restart().await;
    let state = world.host.keyed(Some(id), key).await.unwrap();
    let expected = KeyState::Unanswered {
        session: id,
        result: Some(result),
        reference: None,
    };
    assert_eq!(state, expected);
}

#[tokio::test]
async fn s101_s120_a_keyed_creation_has_one_session() {
    let world = World::new().await;
    let caller = fixed_key("new", 1);
    let key = caller.key.unwrap();
    assert_eq!(world.host.keyed(None, key).await, Ok(KeyState::Fresh));
    let first = First::Prompt(vec![Block::Text { text: "hi".into() }]);
    let created = joined(world.create_as(caller, world.request(first)))
        .await
        .unwrap();
    assert_eq!(created.session.id, key.session_id);
    assert_eq!(created.command_id, key.command_id);
    world
        .host
        .answered(created.session.id, key, 201, "row".into())
        .await;
    let done = KeyState::Done {
        status: 201,
        body: "row".into(),
    };
    assert_eq!(world.host.keyed(None, key).await, Ok(done.clone()));
    let call = world.probe.prompts.next().await;
    drop(call);
    let world = world.restart().await;
    assert_eq!(world.host.keyed(None, key).await, Ok(done));
    assert_eq!(world.listed().await, [key.session_id]);
}
