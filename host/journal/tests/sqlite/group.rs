//! Group commit: concurrent writers share commits, and a bad one fails alone.

use crate::support::Directory;
use harness_journal::conformance::{append, check_keys, creation, event, records, session};
use harness_journal::{Epoch, Journal};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_share_commits() {
    const SESSIONS: u64 = 64;
    const EACH: u64 = 20;
    let directory = Directory::new();
    let store = Arc::new(directory.store());
    for n in 0..SESSIONS {
        store.append(creation(session(n), 1)).await.unwrap();
    }
    let before = store.metrics();
    let writers: Vec<_> = (0..SESSIONS)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for i in 0..EACH {
                    let one = append(session(n), Epoch(1), vec![event(&format!("{i}"), "x")]);
                    store.append(one).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let after = store.metrics();
    let (commits, writes) = (after.commits - before.commits, after.writes - before.writes);
    assert_eq!(writes, SESSIONS * EACH);
    assert!(
        commits * 4 < writes,
        "{commits} commits for {writes} appends of {SESSIONS} sessions"
    );
}

#[tokio::test]
async fn s65_a_bad_append_in_a_group_fails_alone() {
    let directory = Directory::new();
    let store = directory.store();
    for n in 0..3 {
        store.append(creation(session(n), 1)).await.unwrap();
    }
    let before = store.metrics();
    let one = |n: u64, key: &str, text: &str| {
        store.append(append(
            session(n),
            Epoch(1),
            vec![event("ok", "1"), event(key, text)],
        ))
    };
    // Handed over together from one thread; whatever groups they fall into, the middle one fails
    // after it has written its first record.
    let (first, bad, last) =
        tokio::join!(one(0, "a", "1"), one(1, "first", "other"), one(2, "a", "1"));
    assert_eq!(first.unwrap().last_seq(), Some(4));
    assert_eq!(bad.unwrap_err().code(), "collision");
    assert_eq!(last.unwrap().last_seq(), Some(4));
    check_keys(&store, session(1), &["fence:1", "first"]).await;
    check_keys(&store, session(2), &["fence:1", "first", "ok", "a"]).await;
    assert!(store.metrics().commits > before.commits);
    assert_eq!(
        store.metrics().failures,
        0,
        "a refusal is no failed transaction"
    );
}

#[tokio::test]
async fn s65_concurrent_appends_of_one_session_have_no_gap() {
    let directory = Directory::new();
    let store = directory.store();
    store.append(creation(session(1), 1)).await.unwrap();
    let keys: Vec<String> = (0..300).map(|i| i.to_string()).collect();
    let many = keys
        .iter()
        .map(|key| store.append(append(session(1), Epoch(1), vec![event(key, "x")])));
    let answers = futures::future::join_all(many).await;
    let stored = records(&store, session(1), 1000).await;
    assert_eq!(stored.len(), 302);
    for (key, answer) in keys.iter().zip(answers) {
        let seq = answer.unwrap().first_seq().unwrap();
        assert_eq!(
            stored[seq as usize - 1].key,
            *key,
            "each is where its answer says"
        );
    }
}
