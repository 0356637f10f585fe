//! Creation, rows, lists, pages of records, and removal.

use super::*;
use crate::{MAX_PAGE, PageRequest, SessionFilter};

fn page(limit: usize, cursor: Option<String>) -> PageRequest {
    PageRequest { limit, cursor }
}

async fn listed(store: &dyn Store, filter: SessionFilter) -> Vec<SessionId> {
    let page = store.list_sessions(filter).await.unwrap();
    page.items.iter().map(|item| item.session).collect()
}

pub async fn s101_session_and_first_records_are_one_unit(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut refused = creation(session(1), 1);
    refused.records.push(event("first", "other"));
    check_code(store.append(refused).await, "collision");
    assert_eq!(
        store.projection(session(1)).await.unwrap(),
        None,
        "no session is listed"
    );
    check_code(store.tail(session(1)).await, "not_found");
    let mut bare = creation(session(1), 1);
    bare.records.clear();
    check_code(store.append(bare).await, "invalid");
    let mut rowless = creation(session(1), 1);
    rowless.projection = None;
    check_code(store.append(rowless).await, "invalid");
    let created = store.append(creation(session(1), 1)).await.unwrap();
    assert_eq!(
        (created.lease.epoch, created.lease.fence_seq),
        (Epoch::FIRST, 1)
    );
    assert_eq!((created.first_seq(), created.next_seq), (Some(2), 3));
    check_keys(&*store, session(1), &["fence:1", "first"]).await;
}

pub async fn s101_repeated_create_is_the_same_create(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let mut newer = append(session, Epoch(1), vec![event("a", "1")]);
    newer.projection = Some(row("default", "failed", 5));
    store.append(newer).await.unwrap();
    let again = store.append(creation(session, 1)).await.unwrap();
    assert_eq!(
        (again.records[0].seq, again.records[0].duplicate),
        (2, true)
    );
    assert_eq!((again.lease.epoch, again.next_seq), (Epoch::FIRST, 4));
    let status = store
        .projection(session)
        .await
        .unwrap()
        .unwrap()
        .projection
        .status;
    assert_eq!(status, "failed", "the newer row stays");
    store.open(session, 6).await.unwrap();
    check_code(store.append(creation(session, 1)).await, "lease_lost");
}

pub async fn s101_create_over_another_session_is_a_collision(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let mut other = creation(session, 1);
    other.records = vec![event("second", "started")];
    check_code(store.append(other).await, "collision");
    let mut other = creation(session, 1);
    other.records = vec![event("first", "other")];
    check_code(store.append(other).await, "collision");
    check_keys(&*store, session, &["fence:1", "first"]).await;
}

pub async fn s108_row_follows_the_append(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let mut next = append(session, Epoch(1), vec![event("a", "1")]);
    next.projection = Some(row("elsewhere", "in_progress", 5));
    store.append(next).await.unwrap();
    let stored = store.projection(session).await.unwrap().unwrap();
    assert_eq!((stored.session, stored.created_at_ms), (session, 1));
    let expected = Projection {
        project_id: "default".parse().unwrap(),
        ..row("default", "in_progress", 5)
    };
    assert_eq!(
        stored.projection, expected,
        "a session stays in its project"
    );
    let mut alone = append(session, Epoch(1), Vec::new());
    alone.projection = Some(row("default", "completed", 6));
    store.append(alone).await.unwrap();
    let stored = store.projection(session).await.unwrap().unwrap();
    assert_eq!(
        stored.projection.status, "completed",
        "a row may change without a record"
    );
}

pub async fn s108_list_is_newest_first_and_filtered(backend: &dyn Backend) {
    let store = backend.open().await;
    for (n, at, project, status) in [
        (1, 10, "a", "completed"),
        (2, 30, "b", "completed"),
        (3, 20, "a", "failed"),
        (4, 20, "c", "completed"),
    ] {
        let mut create = creation(session(n), at);
        create.projection = Some(row(project, status, 99 - at));
        store.append(create).await.unwrap();
    }
    let filter = |projects: &[&str], status: Option<&str>| SessionFilter {
        projects: projects.iter().map(|p| p.parse().unwrap()).collect(),
        status: status.map(str::to_owned),
        page: PageRequest::default(),
    };
    let of = |ns: &[u64]| ns.iter().map(|n| session(*n)).collect::<Vec<_>>();
    assert_eq!(listed(&*store, filter(&[], None)).await, of(&[2, 4, 3, 1]));
    assert_eq!(listed(&*store, filter(&["a"], None)).await, of(&[3, 1]));
    assert_eq!(
        listed(&*store, filter(&["a", "c"], None)).await,
        of(&[4, 3, 1])
    );
    assert_eq!(
        listed(&*store, filter(&[], Some("completed"))).await,
        of(&[2, 4, 1])
    );
    assert_eq!(
        listed(&*store, filter(&["a"], Some("failed"))).await,
        of(&[3])
    );
    assert_eq!(listed(&*store, filter(&["none"], None)).await, of(&[]));
}

pub async fn s108_pages_are_complete_and_bounded(backend: &dyn Backend) {
    let store = backend.open().await;
    // Equal times: the id decides.
    for n in 0..25 {
        store
            .append(creation(session(n), (n / 10) as i64))
            .await
            .unwrap();
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let filter = SessionFilter {
            page: page(10, cursor),
            ..SessionFilter::default()
        };
        let answer = store.list_sessions(filter).await.unwrap();
        seen.extend(answer.items.iter().map(|item| item.session));
        // A session that is created meanwhile shifts nothing.
        store
            .append(creation(session(100 + seen.len() as u64), 1000))
            .await
            .unwrap();
        cursor = answer.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..25).rev().map(session).collect::<Vec<_>>());
    for limit in [0, MAX_PAGE + 1] {
        let filter = SessionFilter {
            page: page(limit, None),
            ..SessionFilter::default()
        };
        check_code(store.list_sessions(filter).await, "invalid_page");
        check_code(store.read(session(0), 1, limit).await, "invalid_page");
        check_code(
            store.sessions_needing_recovery(None, limit).await,
            "invalid_page",
        );
    }
    for bad in ["", "zz", "70", "7300", &"73".repeat(4000)] {
        let page = page(10, Some(bad.to_owned()));
        let filter = SessionFilter {
            page,
            ..SessionFilter::default()
        };
        check_code(store.list_sessions(filter).await, "invalid_page");
    }
}

pub async fn s107_journal_pages_join_without_gap(backend: &dyn Backend) {
    let (store, session) = with_session(backend).await;
    let new = (0..20).map(|i| event(&format!("{i}"), "x")).collect();
    store.append(append(session, Epoch(1), new)).await.unwrap();
    for limit in [1, 7, 22, 1000] {
        let all = records(&*store, session, limit).await;
        let sequence: Vec<_> = all.iter().map(|record| record.seq).collect();
        assert_eq!(sequence, (1..=22).collect::<Vec<_>>(), "pages of {limit}");
    }
    let middle = store.read(session, 5, 2).await.unwrap();
    assert_eq!((middle.records[0].seq, middle.next), (5, Some(7)));
    let zero = store.read(session, 0, 1).await.unwrap();
    assert_eq!(zero.records[0].seq, 1, "0 counts as 1");
    for beyond in [23, u64::MAX] {
        let tip = store.read(session, beyond, 10).await.unwrap();
        assert!(tip.records.is_empty() && tip.next.is_none());
    }
    // Bytes end a page too, and never leave it empty.
    let large = |key: &str| NewRecord {
        bytes: Bytes::from(vec![0; 9 << 20]),
        ..event(key, key)
    };
    for key in ["l1", "l2"] {
        store
            .append(append(session, Epoch(1), vec![large(key)]))
            .await
            .unwrap();
    }
    let first = store.read(session, 23, 1000).await.unwrap();
    assert_eq!((first.records.len(), first.next), (1, Some(24)));
}

pub async fn s78_sessions_with_open_work_are_found(backend: &dyn Backend) {
    let store = backend.open().await;
    for n in 0..5 {
        let mut create = creation(session(n), 1);
        create.projection.as_mut().unwrap().needs_recovery = n != 2;
        store.append(create).await.unwrap();
    }
    let store = backend.reopen(store).await;
    let first = store.sessions_needing_recovery(None, 3).await.unwrap();
    assert_eq!(first, [session(0), session(1), session(3)]);
    let rest = store
        .sessions_needing_recovery(first.last().copied(), 3)
        .await
        .unwrap();
    assert_eq!(rest, [session(4)]);
    let lease = store.open(session(4), 2).await.unwrap();
    let mut settled = append(session(4), lease.epoch, vec![event("a", "1")]);
    settled.projection = Some(row("default", "completed", 2));
    store.append(settled).await.unwrap();
    let left = store
        .sessions_needing_recovery(first.last().copied(), 3)
        .await
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
}

pub async fn deleted_session_leaves_nothing(backend: &dyn Backend) {
    let (store, gone) = with_session(backend).await;
    store.append(creation(session(2), 2)).await.unwrap();
    Journal::delete(&*store, gone).await.unwrap();
    check_code(store.read(gone, 1, 10).await, "not_found");
    check_code(
        store
            .append(append(gone, Epoch(1), vec![event("a", "1")]))
            .await,
        "not_found",
    );
    assert_eq!(store.projection(gone).await.unwrap(), None);
    assert_eq!(
        listed(&*store, SessionFilter::default()).await,
        [session(2)]
    );
    check_keys(&*store, session(2), &["fence:1", "first"]).await;
    let created = store.append(creation(gone, 3)).await.unwrap();
    assert_eq!(
        created.first_seq(),
        Some(2),
        "nothing of the old journal is left"
    );
}
