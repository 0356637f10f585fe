//! What the store costs, against the same bytes in bare SQLite commits of the same run.
//!
//! `cargo run --release -p harness-journal --example measure --features conformance [DIR]`

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use harness_journal::conformance::{append, creation, event, row, session};
use harness_journal::{Epoch, Journal, NewRecord, SqliteOptions, SqliteStore};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: usize = 600;
const SESSIONS: u64 = 64;
const EACH: u64 = 100;

#[tokio::main]
async fn main() {
    let parent = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let directory = tempfile::tempdir_in(parent).unwrap();
    let store = Arc::new(SqliteStore::open(&SqliteOptions::new(directory.path())).unwrap());
    for n in 0..SESSIONS {
        store.append(creation(session(n), 1)).await.unwrap();
    }
    let bare = bare(directory.path());

    let start = Instant::now();
    for n in 0..200 {
        bare.execute("INSERT INTO t (b) VALUES (?1)", [vec![n as u8; BYTES]])
            .unwrap();
    }
    let floor = start.elapsed() / 200;
    let start = Instant::now();
    for n in 0..200 {
        one(&store, 0, &format!("single {n}")).await;
    }
    compare("one append after the other", start.elapsed() / 200, floor);

    let before = store.metrics();
    let start = Instant::now();
    let writers: Vec<_> = (0..SESSIONS)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for i in 0..EACH {
                    one(&store, n, &format!("{i}")).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let ours = start.elapsed() / (SESSIONS * EACH) as u32;
    let commits = store.metrics().commits - before.commits;
    let start = Instant::now();
    for _ in 0..EACH {
        bare.execute_batch("BEGIN").unwrap();
        for n in 0..SESSIONS {
            bare.execute("INSERT INTO t (b) VALUES (?1)", [vec![n as u8; BYTES]])
                .unwrap();
        }
        bare.execute_batch("COMMIT").unwrap();
    }
    let floor = start.elapsed() / (SESSIONS * EACH) as u32;
    compare("64 sessions at once, an append", ours, floor);
    println!("  {commits} commits for {} appends", SESSIONS * EACH);

    let many = session(1000);
    store.append(creation(many, 1)).await.unwrap();
    for block in 0..100 {
        let records = (0..1000).map(|n| record(&format!("{block}/{n}"))).collect();
        store.append(append(many, Epoch(1), records)).await.unwrap();
    }
    let start = Instant::now();
    let (mut from, mut count) = (Some(1), 0);
    while let Some(next) = from {
        let page = store.read(many, next, 1000).await.unwrap();
        count += page.records.len();
        from = page.next;
    }
    println!("replay of {count} records: {:?}", start.elapsed());
    let start = Instant::now();
    Journal::delete(&*store, many).await.unwrap();
    println!("removal of them: {:?}", start.elapsed());
}

fn record(key: &str) -> NewRecord {
    NewRecord {
        bytes: Bytes::from(vec![b'x'; BYTES]),
        ..event(key, key)
    }
}

async fn one(store: &SqliteStore, n: u64, key: &str) {
    let mut write = append(session(n), Epoch(1), vec![record(key)]);
    write.projection = Some(row("default", "in_progress", 1));
    store.append(write).await.unwrap();
}

fn bare(directory: &std::path::Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(directory.join("bare.db")).unwrap();
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .unwrap();
    connection
        .pragma_update(None, "synchronous", "FULL")
        .unwrap();
    connection.execute_batch("CREATE TABLE t (b BLOB)").unwrap();
    connection
}

fn compare(what: &str, ours: Duration, floor: Duration) {
    let ratio = ours.as_secs_f64() / floor.as_secs_f64();
    println!("{what}: {ours:?}, bare {floor:?}, ratio {ratio:.2}");
}
