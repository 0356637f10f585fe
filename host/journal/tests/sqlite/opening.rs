//! Opening a data directory: its lock, its version, its damage, its end.

use crate::support::Directory;
use harness_journal::conformance::{append, check_code, check_keys, creation, event, session};
use harness_journal::{Epoch, Journal, JournalError, SqliteOptions, SqliteStore};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for the process that holds the lock: its data directory.
const CHILD: &str = "HARNESS_JOURNAL_TEST_HOLDER";

#[test]
fn s66_second_process_is_refused_and_told_the_holder() {
    if let Ok(directory) = std::env::var(CHILD) {
        let _store = SqliteStore::open(&SqliteOptions::new(directory)).unwrap();
        println!("open");
        // Until it is killed.
        loop {
            std::thread::park();
        }
    }
    let directory = Directory::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "opening::s66_second_process_is_refused_and_told_the_holder",
        ])
        .arg("--nocapture")
        .env(CHILD, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(
        output
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with("open"))
    );
    let refused = SqliteStore::open(&directory.options()).err().unwrap();
    match &refused {
        JournalError::Locked {
            holder: Some(holder),
        } => assert_eq!(holder.pid, child.id()),
        other => panic!("{other:?}"),
    }
    assert!(
        refused
            .to_string()
            .contains(&format!("process {}", child.id())),
        "{refused}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    // The file still names the dead process; the lock is what counts.
    SqliteStore::open(&directory.options()).unwrap();
}

#[tokio::test]
async fn s66_same_process_cannot_open_it_twice() {
    let directory = Directory::new();
    let store = directory.store();
    check_code(
        SqliteStore::open(&directory.options()).map(|_| ()),
        "store_locked",
    );
    store.close().await;
    directory.store();
}

#[tokio::test]
async fn newer_version_is_refused_and_left_alone() {
    let directory = Directory::new();
    directory.store().close().await;
    let database = directory.path().join("harness.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.pragma_update(None, "user_version", 7).unwrap();
    connection
        .pragma_update(None, "wal_checkpoint", "TRUNCATE")
        .unwrap();
    drop(connection);
    let before = std::fs::read(&database).unwrap();
    let refused = SqliteStore::open(&directory.options()).err().unwrap();
    assert_eq!(refused, JournalError::NewerVersion { found: 7, known: 2 });
    assert!(refused.to_string().contains("newer build"), "{refused}");
    assert_eq!(std::fs::read(&database).unwrap(), before);
}

#[tokio::test]
async fn foreign_file_is_refused() {
    let directory = Directory::new();
    std::fs::write(
        directory.path().join("harness.db"),
        "not a database ".repeat(1000),
    )
    .unwrap();
    check_code(
        SqliteStore::open(&directory.options()).map(|_| ()),
        "store_corrupt",
    );
}

#[tokio::test]
async fn directory_that_cannot_be_made_is_refused() {
    let directory = Directory::new();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let options = SqliteOptions::new(file.join("data"));
    check_code(SqliteStore::open(&options).map(|_| ()), "store_unavailable");
}

#[tokio::test]
async fn nobody_else_may_read_the_data() {
    let directory = Directory::new();
    let data = directory.path().join("a/b");
    let store = SqliteStore::open(&SqliteOptions::new(&data)).unwrap();
    store.append(creation(session(1), 1)).await.unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    for file in ["harness.db", "harness.db-wal", "harness.db-shm"] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
}

/// A copy of the files as a power cut leaves them, its log changed by `damage`.
async fn crashed_copy(from: &Directory, damage: impl FnOnce(&mut Vec<u8>)) -> Directory {
    let copy = Directory::new();
    std::fs::copy(
        from.path().join("harness.db"),
        copy.path().join("harness.db"),
    )
    .unwrap();
    let mut log = std::fs::read(from.path().join("harness.db-wal")).unwrap();
    damage(&mut log);
    std::fs::File::create(copy.path().join("harness.db-wal"))
        .unwrap()
        .write_all(&log)
        .unwrap();
    copy
}

#[tokio::test]
async fn s65_torn_tail_of_the_log_loses_only_what_was_not_acknowledged() {
    let directory = Directory::new();
    let store = directory.store();
    store.append(creation(session(1), 1)).await.unwrap();
    store
        .append(append(session(1), Epoch(1), vec![event("a", "1")]))
        .await
        .unwrap();
    let acknowledged = directory
        .path()
        .join("harness.db-wal")
        .metadata()
        .unwrap()
        .size();
    store
        .append(append(session(1), Epoch(1), vec![event("b", "2")]))
        .await
        .unwrap();
    let whole = directory
        .path()
        .join("harness.db-wal")
        .metadata()
        .unwrap()
        .size();
    assert!(whole > acknowledged);
    // Cut anywhere inside the last transaction, or filled with something else.
    for keep in [
        acknowledged,
        acknowledged + 1,
        acknowledged + 24,
        whole - 4096,
        whole - 1,
    ] {
        let copy = crashed_copy(&directory, |log| log.truncate(keep as usize)).await;
        check_keys(&copy.store(), session(1), &["fence:1", "first", "a"]).await;
        let copy = crashed_copy(&directory, |log| log[keep as usize..].fill(0xa5)).await;
        let store = copy.store();
        check_keys(&store, session(1), &["fence:1", "first", "a"]).await;
        let lease = store.open(session(1), 2).await.unwrap();
        assert_eq!(lease.fence_seq, 4, "writing goes on");
    }
    let copy = crashed_copy(&directory, |_| {}).await;
    check_keys(&copy.store(), session(1), &["fence:1", "first", "a", "b"]).await;
}

#[tokio::test]
async fn closed_store_finishes_what_is_queued_and_refuses_the_rest() {
    let directory = Directory::new();
    let store = directory.store();
    let many = (0..30).map(|n| store.append(creation(session(n), 1)));
    let (created, ()) = tokio::join!(futures::future::join_all(many), store.close());
    for answer in created {
        answer.unwrap();
    }
    check_code(
        store.append(creation(session(99), 1)).await,
        "store_unavailable",
    );
    check_code(store.tail(session(1)).await, "store_unavailable");
    store.close().await;
    let again = directory.store();
    for n in 0..30 {
        check_keys(&again, session(n), &["fence:1", "first"]).await;
    }
    check_code(again.tail(session(99)).await, "not_found");
}

#[tokio::test]
async fn dropped_append_is_written_whole_or_not_at_all() {
    let directory = Directory::new();
    let store = directory.store();
    store.append(creation(session(1), 1)).await.unwrap();
    for n in 0..20 {
        let records = vec![event(&format!("{n}a"), "1"), event(&format!("{n}b"), "1")];
        let write = store.append(append(session(1), Epoch(1), records));
        // Handed over by the first poll, then given up.
        tokio::select! {
            biased;
            _ = write => {}
            () = std::future::ready(()) => {}
        }
    }
    store.close().await;
    let again = directory.store();
    assert_eq!(again.tail(session(1)).await.unwrap().next_seq, 43);
}
