//! Order, identity and atomicity of appends.

use super::*;
use crate::{MAX_KEY_BYTES, MAX_RECORD_BYTES};

pub async fn s65_sequence_starts_at_1_without_gaps(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let two = store.append(append(
        session,
        Epoch(1),
        vec![event("a", "1"), event("b", "2")],
    ));
    let two = two.await.unwrap();
    assert_eq!(
        (two.first_seq(), two.last_seq(), two.next_seq),
        (Some(3), Some(4), 5)
    );
    let refused = vec![event("c", "3"), event("a", "other")];
    check_code(
        store.append(append(session, Epoch(1), refused)).await,
        "collision",
    );
    let one = store
        .append(append(session, Epoch(1), vec![event("d", "4")]))
        .await
        .unwrap();
    assert_eq!(
        one.first_seq(),
        Some(5),
        "a refused append uses up no number"
    );
    assert_eq!(store.tail(session).await.unwrap().next_seq, 6);
    check_keys(&*store, session, &["fence:1", "first", "a", "b", "d"]).await;
}

pub async fn s65_identical_retry_gets_the_first_sequence(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let first = append(session, Epoch(1), vec![event("a", "1"), event("b", "2")]);
    store.append(first.clone()).await.unwrap();
    store
        .append(append(session, Epoch(1), vec![event("c", "3")]))
        .await
        .unwrap();
    let mut retry = first;
    // Volatile content is outside the fingerprint: the bytes may differ.
    retry.records[0].bytes = Bytes::from_static(b"other time");
    retry.expected_next = Some(3);
    let again = store.append(retry).await.unwrap();
    let places: Vec<_> = again.records.iter().map(|r| (r.seq, r.duplicate)).collect();
    assert_eq!(places, [(3, true), (4, true)]);
    assert_eq!(again.next_seq, 6);
    let stored = records(&*store, session, 100).await;
    assert_eq!(stored[2].bytes, "1", "the first bytes stay");
    check_keys(&*store, session, &["fence:1", "first", "a", "b", "c"]).await;
}

pub async fn s65_same_key_other_content_is_a_collision(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let collision = store
        .append(append(session, Epoch(1), vec![event("first", "other")]))
        .await;
    assert_eq!(
        collision,
        Err(JournalError::Collision {
            key: "first".to_owned()
        })
    );
    let twice = vec![event("a", "1"), event("a", "2")];
    check_code(
        store.append(append(session, Epoch(1), twice)).await,
        "collision",
    );
    check_keys(&*store, session, &["fence:1", "first"]).await;
}

pub async fn s65_same_key_other_kind_is_a_collision(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let mut command = event("first", "started");
    command.kind = RecordKind::Command;
    check_code(
        store.append(append(session, Epoch(1), vec![command])).await,
        "collision",
    );
}

pub async fn s65_append_is_all_or_nothing(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let before = store.projection(session).await.unwrap();
    let mut bad = append(
        session,
        Epoch(1),
        vec![event("a", "1"), event("first", "other")],
    );
    bad.projection = Some(row("default", "failed", 9));
    bad.idempotency = vec![answers::intent(1)];
    check_code(store.append(bad).await, "collision");
    check_keys(&*store, session, &["fence:1", "first"]).await;
    assert_eq!(store.projection(session).await.unwrap(), before);
    assert_eq!(
        store
            .idempotency(Some(session), answers::command(1))
            .await
            .unwrap(),
        None
    );
}

pub async fn s65_a_repeated_append_leaves_a_newer_row_alone(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let mut old = append(session, Epoch(1), vec![event("a", "1")]);
    old.projection = Some(row("default", "in_progress", 2));
    store.append(old.clone()).await.unwrap();
    let mut newer = append(session, Epoch(1), vec![event("b", "2")]);
    newer.projection = Some(row("default", "completed", 3));
    store.append(newer).await.unwrap();
    store.append(old).await.unwrap();
    let row = store.projection(session).await.unwrap().unwrap().projection;
    assert_eq!((row.status.as_str(), row.updated_at_ms), ("completed", 3));
}

pub async fn s65_retry_with_one_new_record_writes_that_one(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let mut mixed = append(
        session,
        Epoch(1),
        vec![event("first", "started"), event("a", "1")],
    );
    mixed.expected_next = Some(3);
    let appended = store.append(mixed).await.unwrap();
    let places: Vec<_> = appended
        .records
        .iter()
        .map(|r| (r.seq, r.duplicate))
        .collect();
    assert_eq!(places, [(2, true), (3, false)]);
    check_keys(&*store, session, &["fence:1", "first", "a"]).await;
}

pub async fn s65_expected_sequence_is_checked(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let mut ahead = append(session, Epoch(1), vec![event("a", "1")]);
    ahead.expected_next = Some(4);
    let refused = store.append(ahead.clone()).await;
    assert_eq!(
        refused,
        Err(JournalError::OutOfOrder {
            expected: 4,
            next: 3
        })
    );
    ahead.expected_next = Some(3);
    assert_eq!(store.append(ahead).await.unwrap().first_seq(), Some(3));
}

pub async fn s65_keys_are_unique_per_session_only(backend: &dyn Backend) {
    let (store, first) = with_session(backend).await;
    store.append(creation(session(2), 2)).await.unwrap();
    for session in [first, session(2)] {
        store
            .append(append(session, Epoch(1), vec![event("a", "1")]))
            .await
            .unwrap();
        check_keys(&*store, session, &["fence:1", "first", "a"]).await;
    }
}

pub async fn s65_concurrent_sessions_keep_their_order(backend: &dyn Backend) {
    const SESSIONS: u64 = 16;
    const EACH: u64 = 25;
    let store = backend.open().await;
    let writers: Vec<_> = (0..SESSIONS)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                store.append(creation(session(n), 1)).await.unwrap();
                for i in 0..EACH {
                    let records = vec![event(&format!("{i}"), &format!("{n} {i}"))];
                    let appended = store.append(append(session(n), Epoch(1), records)).await;
                    assert_eq!(appended.unwrap().first_seq(), Some(i + 3));
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let keys: Vec<String> = (0..EACH).map(|i| i.to_string()).collect();
    let mut expected = vec!["fence:1", "first"];
    expected.extend(keys.iter().map(String::as_str));
    for n in 0..SESSIONS {
        check_keys(&*store, session(n), &expected).await;
    }
}

pub async fn s61_stored_bytes_are_the_given_bytes(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let bytes = Bytes::from((0..=255).cycle().take(100_000).collect::<Vec<u8>>());
    let given = NewRecord {
        bytes: bytes.clone(),
        kind: RecordKind::GatePrepared,
        ..event("a", "")
    };
    store
        .append(append(session, Epoch(1), vec![given]))
        .await
        .unwrap();
    let page = store.read(session, 3, 1).await.unwrap();
    assert_eq!(
        page.records[0].bytes, bytes,
        "no sequence number, nothing added"
    );
    assert_eq!(page.records[0].kind, RecordKind::GatePrepared);
}

pub async fn s68_record_bounds_are_enforced(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let largest = Bytes::from(vec![b'x'; MAX_RECORD_BYTES]);
    let record = |bytes: Bytes| NewRecord {
        bytes,
        ..event("big", "")
    };
    let over = record(Bytes::from(vec![b'x'; MAX_RECORD_BYTES + 1]));
    check_code(
        store.append(append(session, Epoch(1), vec![over])).await,
        "too_large",
    );
    let long = vec![event(&"k".repeat(MAX_KEY_BYTES + 1), "1")];
    check_code(
        store.append(append(session, Epoch(1), long)).await,
        "too_large",
    );
    check_code(
        store
            .append(append(session, Epoch(1), vec![event("", "1")]))
            .await,
        "invalid",
    );
    store
        .append(append(session, Epoch(1), vec![record(largest.clone())]))
        .await
        .unwrap();
    assert_eq!(
        store.read(session, 3, 1).await.unwrap().records[0].bytes,
        largest
    );
}

pub async fn s33_acknowledged_is_there_after_a_restart(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    store
        .append(append(session, Epoch(1), vec![event("a", "1")]))
        .await
        .unwrap();
    let store = backend.reopen(store).await;
    check_keys(&*store, session, &["fence:1", "first", "a"]).await;
}
