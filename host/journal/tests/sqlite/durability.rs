//! `kill -9` at random points: what was acknowledged is there, once and in order.
//!
//! The test starts itself again as the process that is killed.

use crate::support::Directory;
use harness_journal::conformance::{append, creation, event, session};
use harness_journal::{Journal, SqliteOptions, SqliteStore};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Set for the process that is killed: its data directory.
const CHILD: &str = "HARNESS_JOURNAL_TEST_KILLED";
const ROUNDS: u64 = 40;
const SESSIONS: u64 = 8;

#[test]
fn s65_acknowledged_survives_kill_9() {
    if let Ok(directory) = std::env::var(CHILD) {
        return append_until_killed(&directory);
    }
    let directory = Directory::new();
    // Per session the highest acknowledged number, over all rounds.
    let mut acknowledged: HashMap<u64, u64> = HashMap::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "durability::s65_acknowledged_survives_kill_9",
                "--nocapture",
            ])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        // A different number of answers each round, so that the kill falls anywhere in a group.
        let answers = 1 + (round * 37) % 101;
        let mut seen = 0;
        let mut line = String::new();
        while seen < answers {
            line.clear();
            assert_ne!(
                output.read_line(&mut line).unwrap(),
                0,
                "the child ended by itself"
            );
            seen += u64::from(note(&line, &mut acknowledged));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had acknowledged by then counts as well.
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        for line in whole.lines() {
            note(line, &mut acknowledged);
        }
        check(&directory, &acknowledged);
    }
    assert!(
        acknowledged.values().sum::<u64>() > ROUNDS,
        "rounds must have made progress"
    );
}

/// Reads `ack SESSION SEQ`; other lines are the test runner's.
fn note(line: &str, acknowledged: &mut HashMap<u64, u64>) -> bool {
    // The runner prints its own text before the first answer without a line break.
    let Some((_, numbers)) = line.split_once("ack ") else {
        return false;
    };
    let mut numbers = numbers
        .split_whitespace()
        .map(|n| n.parse::<u64>().unwrap());
    let (Some(session), Some(seq)) = (numbers.next(), numbers.next()) else {
        panic!("half an answer: {line:?}")
    };
    let highest = acknowledged.entry(session).or_default();
    assert!(
        seq > *highest,
        "session {session}: {seq} was given after {highest}"
    );
    *highest = seq;
    true
}

#[tokio::main(flavor = "current_thread")]
async fn check(directory: &Directory, acknowledged: &HashMap<u64, u64>) {
    let store = directory.store();
    for (&n, &highest) in acknowledged {
        let stored = harness_journal::conformance::records(&store, session(n), 1000).await;
        assert!(
            stored.len() as u64 >= highest,
            "session {n}: {} < {highest}",
            stored.len()
        );
        for (at, record) in stored.iter().enumerate() {
            assert_eq!(record.seq, at as u64 + 1, "session {n}: no gap");
            // Each event says which number its writer was given.
            if !record.key.starts_with("fence") && record.key != "first" {
                assert_eq!(record.key, record.seq.to_string());
                assert_eq!(record.bytes, body(n, record.seq));
            }
        }
    }
    store.close().await;
}

fn body(session: u64, seq: u64) -> String {
    format!("{session} {seq} ").repeat(1 + (seq % 200) as usize)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn append_until_killed(directory: &str) {
    let store = Arc::new(SqliteStore::open(&SqliteOptions::new(directory)).unwrap());
    let writers: Vec<_> = (0..SESSIONS)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let session = session(n);
                let lease = match store.open(session, 1).await {
                    Ok(lease) => lease,
                    Err(_) => store.append(creation(session, 1)).await.unwrap().lease,
                };
                let mut seq = store.tail(session).await.unwrap().next_seq;
                loop {
                    let record = event(&seq.to_string(), &body(n, seq));
                    let mut next = append(session, lease.epoch, vec![record]);
                    next.expected_next = Some(seq);
                    store.append(next).await.unwrap();
                    // One write to the pipe a line, so that a kill cuts no line in two.
                    use std::io::Write;
                    std::io::stdout()
                        .lock()
                        .write_all(format!("ack {n} {seq}\n").as_bytes())
                        .unwrap();
                    seq += 1;
                }
            })
        })
        .collect();
    // None ends by itself; the first that does has failed, and its panic ends the child.
    let (failed, _, _) = futures::future::select_all(writers).await;
    failed.unwrap();
}
