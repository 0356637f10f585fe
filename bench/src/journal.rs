//! The journal alone: what is left of a control when nobody asks for it and nobody performs it.

use crate::stack::Stack;
use anyhow::{Context, Result};
use bytes::Bytes;
use harness_core::ids::SessionId;
use harness_journal::{Append, Epoch, Journal, NewRecord, NewSession, Projection, Record};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Controls a second whose two appends are made by `sessions` sessions at a time, with the row of
/// a session beside each of them, as its actor does.
pub(crate) async fn controls(
    stack: &Stack,
    commits: [Vec<Record>; 2],
    sessions: usize,
    time: Duration,
) -> Result<f64> {
    let listed = Journal::list_sessions(&stack.store, Default::default()).await?;
    let row = listed.items.into_iter().next().context("a session")?;
    let commits = Arc::new(commits);
    let start = Instant::now();
    let tasks: Vec<_> = (0..sessions)
        .map(|_| {
            let (store, row, commits) =
                (stack.store.clone(), row.projection.clone(), commits.clone());
            tokio::spawn(async move {
                let session = SessionId::from(uuid::Uuid::now_v7());
                let mut append = of(session, &row, commits.iter().flatten());
                append.create = Some(NewSession { created_at_ms: 0 });
                let epoch = Journal::append(&store, append).await?.lease.epoch;
                let mut done = 0u64;
                while start.elapsed() < time {
                    for records in commits.iter() {
                        let mut append = of(session, &row, records.iter());
                        append.epoch = epoch;
                        Journal::append(&store, append).await?;
                    }
                    done += 1;
                }
                Ok::<_, anyhow::Error>(done)
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// These records again, under ids of their own.
fn of<'a>(
    session: SessionId,
    row: &Projection,
    records: impl Iterator<Item = &'a Record>,
) -> Append {
    let records = records.map(|record| {
        let id = uuid::Uuid::now_v7();
        let mut fingerprint = [0; 32];
        for (byte, of_id) in fingerprint.iter_mut().zip(id.as_bytes()) {
            *byte = *of_id;
        }
        NewRecord {
            kind: record.kind,
            key: id.to_string(),
            fingerprint,
            bytes: Bytes::clone(&record.bytes),
        }
    });
    Append {
        session,
        epoch: Epoch::FIRST,
        expected_next: None,
        create: None,
        records: records.collect(),
        projection: Some(row.clone()),
        idempotency: Vec::new(),
    }
}
