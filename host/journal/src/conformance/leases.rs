//! Openings, epochs and fences.

use super::*;

pub async fn s66_fence_is_the_first_append_of_an_opening(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let lease = store.open(session, 7).await.unwrap();
    assert_eq!(
        (lease.epoch, lease.fence_seq, lease.session),
        (Epoch(2), 3, session)
    );
    store
        .append(append(session, lease.epoch, vec![event("a", "1")]))
        .await
        .unwrap();
    check_keys(&*store, session, &["fence:1", "first", "fence:2", "a"]).await;
    let stored = records(&*store, session, 100).await;
    assert_eq!(stored[0].kind, RecordKind::Fence);
    let fence: serde_json::Value = serde_json::from_slice(&stored[2].bytes).unwrap();
    assert_eq!(
        (&fence["type"], &fence["v"], &fence["at_ms"]),
        (&"Fence".into(), &1.into(), &7.into())
    );
    assert_eq!(fence["epoch"], 2);
}

pub async fn s66_stale_epoch_is_refused_and_names_the_holder(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    store.open(session, 2).await.unwrap();
    let refused = store
        .append(append(session, Epoch(1), vec![event("a", "1")]))
        .await;
    match refused {
        Err(JournalError::LeaseLost {
            holder: Some(holder),
        }) => {
            assert_eq!(holder.pid, std::process::id());
        }
        other => panic!("{other:?}"),
    }
    // Also when the append would be a mere repetition: after a loss everything is refused.
    let repeated = append(session, Epoch(1), vec![event("first", "started")]);
    check_code(store.append(repeated).await, "lease_lost");
    let future = append(session, Epoch(3), vec![event("a", "1")]);
    check_code(store.append(future).await, "lease_lost");
    check_keys(&*store, session, &["fence:1", "first", "fence:2"]).await;
}

pub async fn s66_released_lease_refuses_appends(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    store.release(session, Epoch(1)).await.unwrap();
    let refused = store
        .append(append(session, Epoch(1), vec![event("a", "1")]))
        .await;
    assert_eq!(refused, Err(JournalError::LeaseLost { holder: None }));
    let lease = store.open(session, 2).await.unwrap();
    store.release(session, Epoch(1)).await.unwrap();
    let kept = store
        .append(append(session, lease.epoch, vec![event("a", "1")]))
        .await;
    assert_eq!(
        kept.unwrap().first_seq(),
        Some(4),
        "releasing a lost lease leaves the new one"
    );
}

pub async fn s66_reopening_the_store_takes_over_every_lease(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let store = backend.reopen(store).await;
    check_code(
        store
            .append(append(session, Epoch(1), vec![event("a", "1")]))
            .await,
        "lease_lost",
    );
    let lease = store.open(session, 2).await.unwrap();
    assert_eq!(
        lease.epoch,
        Epoch(2),
        "at once, without waiting for a time to live"
    );
    store
        .append(append(session, lease.epoch, vec![event("a", "1")]))
        .await
        .unwrap();
    check_keys(&*store, session, &["fence:1", "first", "fence:2", "a"]).await;
}

pub async fn s66_fence_cannot_be_appended(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let fence = NewRecord {
        kind: RecordKind::Fence,
        ..event("fence:2", "")
    };
    check_code(
        store.append(append(session, Epoch(1), vec![fence])).await,
        "invalid",
    );
}

pub async fn s66_unknown_session_cannot_be_opened(backend: &dyn Backend) {
    let store = backend.open().await;
    check_code(store.open(session(9), 1).await, "not_found");
    let records = vec![event("a", "1")];
    check_code(
        store.append(append(session(9), Epoch(1), records)).await,
        "not_found",
    );
    check_code(store.read(session(9), 1, 10).await, "not_found");
    check_code(store.tail(session(9)).await, "not_found");
    check_code(Journal::delete(&*store, session(9)).await, "not_found");
    assert_eq!(store.projection(session(9)).await.unwrap(), None);
}
