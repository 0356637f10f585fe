//! The durable state of providers.

use super::*;
use harness_core::ids::{HarnessId, LoopId};
use harness_core::state_store::{StateError, StateScope};

const LIMIT: u64 = 1000;

fn provider(id: &str) -> HarnessId {
    id.parse().unwrap()
}

pub async fn state_is_kept_per_provider_and_scope(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let scopes = [
        StateScope::Provider,
        StateScope::Project("default".parse().unwrap()),
        StateScope::Loop(session, LoopId(Uuid::from_u128(1))),
        StateScope::Loop(session, LoopId(Uuid::from_u128(2))),
    ];
    for (n, scope) in scopes.iter().enumerate() {
        for id in ["a/a", "b/b"] {
            let value = format!("{id} {n}").into_bytes();
            store
                .set(&provider(id), scope, "key", vec![0], LIMIT)
                .await
                .unwrap();
            store
                .set(&provider(id), scope, "key", value, LIMIT)
                .await
                .unwrap();
        }
    }
    let store = backend.reopen(store).await;
    for (n, scope) in scopes.iter().enumerate() {
        for id in ["a/a", "b/b"] {
            let value = store
                .get(&provider(id), scope, "key")
                .await
                .unwrap()
                .unwrap();
            assert_eq!(value, format!("{id} {n}").into_bytes());
            assert_eq!(
                store.get(&provider(id), scope, "other").await.unwrap(),
                None
            );
        }
    }
    StateStore::delete(&*store, &provider("a/a"), &scopes[0], "key")
        .await
        .unwrap();
    StateStore::delete(&*store, &provider("a/a"), &scopes[0], "key")
        .await
        .unwrap();
    assert_eq!(
        store
            .get(&provider("a/a"), &scopes[0], "key")
            .await
            .unwrap(),
        None
    );
    assert!(
        store
            .get(&provider("b/b"), &scopes[0], "key")
            .await
            .unwrap()
            .is_some()
    );
}

pub async fn state_limit_counts_keys_and_values(backend: &dyn Backend) {
    let store = backend.open().await;
    let (id, scope) = (provider("a/a"), StateScope::Provider);
    store
        .set(&id, &scope, "äa", vec![0; 497], LIMIT)
        .await
        .unwrap();
    let refused = store.set(&id, &scope, "b", vec![0; 500], LIMIT).await;
    assert_eq!(
        refused,
        Err(StateError::Limit {
            bytes: 1001,
            limit: LIMIT
        })
    );
    assert_eq!(
        store.get(&id, &scope, "b").await.unwrap(),
        None,
        "nothing was written"
    );
    store
        .set(&id, &scope, "b", vec![0; 499], LIMIT)
        .await
        .unwrap();
    store
        .set(&id, &scope, "b", vec![1; 499], LIMIT)
        .await
        .unwrap();
    let project = StateScope::Project("p".parse().unwrap());
    let alone = store.set(&id, &project, "b", vec![0; 1000], LIMIT).await;
    assert_eq!(
        alone,
        Err(StateError::Limit {
            bytes: 1001,
            limit: LIMIT
        })
    );
    StateStore::delete(&*store, &id, &scope, "äa")
        .await
        .unwrap();
    store
        .set(&id, &scope, "c", vec![0; 499], LIMIT)
        .await
        .unwrap();
}

pub async fn n19_session_state_goes_with_its_session(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let (id, scope) = (
        provider("a/a"),
        StateScope::Loop(session, LoopId(Uuid::from_u128(1))),
    );
    store.set(&id, &scope, "key", vec![1], LIMIT).await.unwrap();
    store
        .set(&id, &StateScope::Provider, "key", vec![2], LIMIT)
        .await
        .unwrap();
    Journal::delete(&*store, session).await.unwrap();
    assert_eq!(store.get(&id, &scope, "key").await.unwrap(), None);
    assert_eq!(
        store.set(&id, &scope, "key", vec![1], LIMIT).await,
        Err(StateError::Gone)
    );
    assert_eq!(
        store.get(&id, &StateScope::Provider, "key").await.unwrap(),
        Some(vec![2])
    );
}
