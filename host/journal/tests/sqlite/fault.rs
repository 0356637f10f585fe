//! The failing journal fails where it is told, as it is told, and nowhere else.

use crate::support::Directory;
use harness_journal::conformance::{append, check_code, check_keys, creation, event, session};
use harness_journal::fault::{Fault, FaultJournal};
use harness_journal::{Epoch, Journal, SqliteStore};
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

async fn faulty() -> (Directory, SqliteStore, FaultJournal) {
    let directory = Directory::new();
    let store = directory.store();
    store.append(creation(session(1), 1)).await.unwrap();
    let faulty = FaultJournal::new(Arc::new(store.clone()));
    (directory, store, faulty)
}

fn one(key: &str) -> harness_journal::Append {
    append(session(1), Epoch(1), vec![event(key, "1")])
}

#[tokio::test]
async fn faults_hit_the_chosen_write_only() {
    let (_directory, store, faulty) = faulty().await;
    faulty.fail_at(2, Fault::Unavailable);
    faulty.fail_at(3, Fault::Full);
    faulty.fail_at(4, Fault::LeaseLost);
    faulty.fail_at(5, Fault::Ambiguous { written: false });
    faulty.fail_at(6, Fault::Ambiguous { written: true });
    faulty.append(one("1")).await.unwrap();
    check_code(faulty.append(one("2")).await, "store_unavailable");
    check_code(faulty.append(one("3")).await, "store_full");
    check_code(faulty.append(one("4")).await, "lease_lost");
    check_code(faulty.append(one("5")).await, "store_ambiguous");
    check_code(faulty.append(one("6")).await, "store_ambiguous");
    // A retry finds out what became of the ambiguous ones.
    assert!(!faulty.append(one("5")).await.unwrap().records[0].duplicate);
    assert!(faulty.append(one("6")).await.unwrap().records[0].duplicate);
    assert_eq!(faulty.writes(), 8);
    faulty.fail_when(|append| append.records[0].key == "8", Fault::Full);
    faulty.append(one("7")).await.unwrap();
    check_code(faulty.append(one("8")).await, "store_full");
    faulty.fail_next(Fault::Full);
    check_code(faulty.open(session(1), 1).await, "store_full");
    check_keys(
        &store,
        session(1),
        &["fence:1", "first", "1", "6", "5", "7"],
    )
    .await;
}

#[tokio::test]
async fn crash_answers_nobody_any_more() {
    for written in [false, true] {
        let (_directory, store, faulty) = faulty().await;
        faulty.fail_next(Fault::Crash { written });
        let dead = faulty.clone();
        let call = tokio::spawn(async move { dead.append(one("a")).await.is_ok() });
        faulty.crashed().await;
        assert!(!call.is_finished());
        call.abort();
        assert!(is_pending(faulty.append(one("b"))).await);
        assert!(is_pending(faulty.tail(session(1))).await);
        let keys: &[&str] = if written {
            &["fence:1", "first", "a"]
        } else {
            &["fence:1", "first"]
        };
        check_keys(&store, session(1), keys).await;
    }
}

#[tokio::test]
async fn held_write_waits_for_resume() {
    let (_directory, store, faulty) = faulty().await;
    faulty.hold();
    let mut write = faulty.append(one("a"));
    assert!(is_pending(&mut write).await);
    check_keys(&store, session(1), &["fence:1", "first"]).await;
    faulty.resume();
    write.await.unwrap();
    check_keys(&store, session(1), &["fence:1", "first", "a"]).await;
}

/// Whether one poll leaves it waiting.
async fn is_pending(mut call: impl Future + Unpin) -> bool {
    std::future::poll_fn(|context| {
        let pending = std::pin::Pin::new(&mut call).poll(context).is_pending();
        Poll::Ready(pending)
    })
    .await
}
