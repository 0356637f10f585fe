//! Floors: what the same work costs with nothing of ours in the way.

use anyhow::Result;
use axum::Router;
use axum::routing::{get, post};
use rusqlite::Connection;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the records that one operation appends, commit by commit.
pub(crate) type Commits = Vec<Vec<Vec<u8>>>;

fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, bytes BLOB NOT NULL)",
    )?;
    Ok(connection)
}

fn commit<'a>(
    connection: &mut Connection,
    records: impl Iterator<Item = &'a Vec<u8>>,
) -> Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare_cached("INSERT INTO log (bytes) VALUES (?1)")?;
        for bytes in records {
            insert.execute([bytes])?;
        }
    }
    Ok(transaction.commit()?)
}

/// A bare axum server with a JSON route of these bytes, and one that makes these commits first.
pub(crate) async fn server(json: String, dir: &Path, commits: Commits) -> Result<SocketAddr> {
    let connection = Arc::new(Mutex::new(open(&dir.join("floor-server.db"))?));
    let body = bytes::Bytes::from(json);
    let answer = move || {
        let body = body.clone();
        async move { ([("content-type", "application/json")], body) }
    };
    let durable = move || {
        let (connection, commits) = (connection.clone(), commits.clone());
        async move {
            let written = tokio::task::spawn_blocking(move || {
                let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                commits
                    .iter()
                    .try_for_each(|records| commit(&mut connection, records.iter()))
            });
            match written.await {
                Ok(Ok(())) => (
                    [("content-type", "application/json")],
                    r#"{"status":"completed"}"#,
                ),
                _ => (
                    [("content-type", "application/json")],
                    r#"{"status":"failed"}"#,
                ),
            }
        }
    };
    let router = Router::new()
        .route("/json", get(answer))
        .route("/durable", post(durable));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// Operations a second when the commits of `batch` operations share each transaction.
pub(crate) fn batched(dir: &Path, commits: &Commits, batch: usize, time: Duration) -> Result<f64> {
    let mut connection = open(&dir.join("floor-batched.db"))?;
    let start = Instant::now();
    let mut operations = 0;
    while start.elapsed() < time {
        for records in commits {
            commit(&mut connection, (0..batch).flat_map(|_| records.iter()))?;
        }
        operations += batch;
    }
    Ok(operations as f64 / start.elapsed().as_secs_f64())
}

/// Median time of these commits, one operation after the other.
pub(crate) fn ordered(dir: &Path, commits: &Commits, rounds: usize) -> Result<Duration> {
    let mut connection = open(&dir.join("floor-ordered.db"))?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        for records in commits {
            commit(&mut connection, records.iter())?;
        }
        times.push(start.elapsed());
    }
    Ok(crate::median(times))
}
