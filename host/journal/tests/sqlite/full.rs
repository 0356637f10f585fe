//! A full disk fails the write, says so, loses nothing, and heals.

use crate::support::Directory;
use bytes::Bytes;
use harness_journal::conformance::{append, creation, event, records, session};
use harness_journal::{Epoch, Journal, JournalError, NewRecord, SqliteOptions, SqliteStore};
use std::path::Path;
use std::process::Command;

/// Set for the process that runs on the small disk: where that is mounted.
const CHILD: &str = "HARNESS_JOURNAL_TEST_SMALL_DISK";

fn large(key: &str, bytes: usize) -> NewRecord {
    NewRecord {
        bytes: Bytes::from(vec![b'x'; bytes]),
        ..event(key, key)
    }
}

/// Appends until the store is full; answers how many records are acknowledged.
async fn fill(store: &SqliteStore, bytes: usize) -> u64 {
    for n in 0..100_000 {
        let one = append(session(1), Epoch(1), vec![large(&n.to_string(), bytes)]);
        match store.append(one).await {
            Ok(appended) => assert_eq!(appended.first_seq(), Some(n + 3)),
            Err(error) => {
                assert_eq!(error, JournalError::Full);
                return n;
            }
        }
    }
    panic!("the disk never filled up")
}

#[tokio::test]
async fn full_database_is_definite_and_leaves_the_store_usable() {
    let directory = Directory::new();
    let options = SqliteOptions {
        max_pages: Some(200),
        ..directory.options()
    };
    let store = SqliteStore::open(&options).unwrap();
    store.append(creation(session(1), 1)).await.unwrap();
    store.append(creation(session(2), 1)).await.unwrap();
    let acknowledged = fill(&store, 20_000).await;
    assert!(acknowledged > 10);
    // In a group with one that does not fit, one that does is written.
    let small = store.append(append(session(2), Epoch(1), vec![event("small", "1")]));
    let big = store.append(append(session(1), Epoch(1), vec![large("big", 60_000)]));
    let (big, small) = tokio::join!(big, small);
    assert_eq!(big, Err(JournalError::Full));
    assert_eq!(small.unwrap().first_seq(), Some(3));
    assert_eq!(
        records(&store, session(1), 1000).await.len() as u64,
        acknowledged + 2
    );
    // Room again: deleting makes it, and the next append takes the next number.
    store
        .append(append(session(2), Epoch(1), vec![event("next", "1")]))
        .await
        .unwrap();
    Journal::delete(&store, session(1)).await.unwrap();
    let big = store
        .append(append(session(2), Epoch(1), vec![large("big", 60_000)]))
        .await;
    assert_eq!(big.unwrap().first_seq(), Some(5));
}

/// On a real small disk: a tmpfs in a mount namespace of its own, where the log cannot grow.
#[test]
fn full_disk_is_definite_and_heals() {
    if let Ok(directory) = std::env::var(CHILD) {
        return on_small_disk(Path::new(&directory));
    }
    let directory = Directory::new();
    let script = "mount -t tmpfs -o size=8m tmpfs \"$1\" && exec \"$0\" --exact \
                  full::full_disk_is_definite_and_heals --nocapture";
    let unshare = |script: &str| {
        Command::new("unshare")
            .args(["-rm", "sh", "-c", script])
            .arg(std::env::current_exe().unwrap())
            .arg(directory.path())
            .env(CHILD, directory.path())
            .output()
    };
    let may_mount = unshare("mount -t tmpfs -o size=8m tmpfs \"$1\"");
    if !may_mount.is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var("HARNESS_TEST_REQUIRE").as_deref() != Ok("all"),
            "a small disk needs unshare and user namespaces"
        );
        eprintln!("not run: no unshare or no user namespaces here, so no small disk to fill");
        return;
    }
    let output = unshare(script).unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("healed"),
        "the child must have run to its end: {text}"
    );
}

#[tokio::main(flavor = "current_thread")]
async fn on_small_disk(directory: &Path) {
    let store = SqliteStore::open(&SqliteOptions::new(directory)).unwrap();
    // Something else on the disk that can make room later.
    let ballast = directory.join("ballast");
    std::fs::write(&ballast, vec![0; 6 << 20]).unwrap();
    store.append(creation(session(1), 1)).await.unwrap();
    let acknowledged = fill(&store, 20_000).await;
    assert!(acknowledged > 10, "{acknowledged}");
    let again = store
        .append(append(session(1), Epoch(1), vec![large("again", 100_000)]))
        .await;
    assert_eq!(again, Err(JournalError::Full));
    std::fs::remove_file(&ballast).unwrap();
    let healed = store
        .append(append(session(1), Epoch(1), vec![large("healed", 100_000)]))
        .await;
    assert_eq!(healed.unwrap().first_seq(), Some(acknowledged + 3));
    assert_eq!(
        records(&store, session(1), 1000).await.len() as u64,
        acknowledged + 3
    );
    store.close().await;
    let store = SqliteStore::open(&SqliteOptions::new(directory)).unwrap();
    assert_eq!(
        records(&store, session(1), 1000).await.len() as u64,
        acknowledged + 3
    );
    println!("healed");
}
