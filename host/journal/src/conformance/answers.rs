//! Stored answers to requests with an idempotency key.

use super::*;
use crate::{IdempotencyScope, IdempotencyWrite, StoredResponse};
use harness_core::ids::CommandId;

pub fn command(n: u64) -> CommandId {
    CommandId(id(n))
}

/// The entry written with an intent.
pub fn intent(n: u64) -> IdempotencyWrite {
    IdempotencyWrite {
        scope: IdempotencyScope::Session,
        command_id: command(n),
        body_sha256: [7; 32],
        response: None,
    }
}

fn answered(n: u64, status: u16, body: &'static str) -> IdempotencyWrite {
    let response = Some(StoredResponse {
        status,
        body: Bytes::from_static(body.as_bytes()),
    });
    IdempotencyWrite {
        response,
        ..intent(n)
    }
}

async fn write(
    store: &dyn Store,
    session: SessionId,
    entry: IdempotencyWrite,
) -> Result<(), JournalError> {
    let mut write = append(session, Epoch(1), Vec::new());
    write.idempotency = vec![entry];
    store.append(write).await.map(drop)
}

pub async fn g5_intent_then_answer(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    assert_eq!(
        store.idempotency(Some(session), command(1)).await.unwrap(),
        None
    );
    write(&*store, session, intent(1)).await.unwrap();
    let running = store
        .idempotency(Some(session), command(1))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (running.session, running.body_sha256, running.response),
        (session, [7; 32], None)
    );
    write(&*store, session, answered(1, 200, "{}"))
        .await
        .unwrap();
    let done = store
        .idempotency(Some(session), command(1))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(done.response, answered(1, 200, "{}").response);
    assert_eq!(
        store.idempotency(None, command(1)).await.unwrap(),
        None,
        "scopes are apart"
    );
    assert_eq!(
        store.tail(session).await.unwrap().next_seq,
        3,
        "answers are no records"
    );
}

pub async fn g5_first_answer_stays(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    write(&*store, session, answered(1, 202, "first"))
        .await
        .unwrap();
    write(&*store, session, intent(1)).await.unwrap();
    write(&*store, session, answered(1, 500, "second"))
        .await
        .unwrap();
    let stored = store
        .idempotency(Some(session), command(1))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.response, answered(1, 202, "first").response);
}

pub async fn g5_other_body_is_a_collision_and_writes_nothing(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    write(&*store, session, intent(1)).await.unwrap();
    let mut other = append(session, Epoch(1), vec![event("a", "1")]);
    other.idempotency = vec![IdempotencyWrite {
        body_sha256: [8; 32],
        ..intent(1)
    }];
    check_code(store.append(other).await, "collision");
    check_keys(&*store, session, &["fence:1", "first"]).await;
    let stored = store
        .idempotency(Some(session), command(1))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.body_sha256, [7; 32]);
}

pub async fn s120_create_is_found_without_its_session(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut create = creation(session(1), 1);
    create.idempotency = vec![IdempotencyWrite {
        scope: IdempotencyScope::Create,
        ..intent(1)
    }];
    store.append(create).await.unwrap();
    let entry = store.idempotency(None, command(1)).await.unwrap().unwrap();
    assert_eq!(entry.session, session(1));
    assert_eq!(
        store
            .idempotency(Some(session(1)), command(1))
            .await
            .unwrap(),
        None
    );
}

pub async fn s120_answers_survive_a_restart_and_go_with_the_session(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let create = IdempotencyWrite {
        scope: IdempotencyScope::Create,
        ..answered(1, 201, "row")
    };
    write(&*store, session, create).await.unwrap();
    write(&*store, session, answered(2, 200, "{}"))
        .await
        .unwrap();
    let store = backend.reopen(store).await;
    let entry = store.idempotency(None, command(1)).await.unwrap().unwrap();
    assert_eq!(entry.response, answered(1, 201, "row").response);
    assert!(
        store
            .idempotency(Some(session), command(2))
            .await
            .unwrap()
            .is_some()
    );
    Journal::delete(&*store, session).await.unwrap();
    assert_eq!(store.idempotency(None, command(1)).await.unwrap(), None);
    assert_eq!(
        store.idempotency(Some(session), command(2)).await.unwrap(),
        None
    );
}
