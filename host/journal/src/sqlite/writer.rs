//! The one thread that writes: it takes every job that waits, runs them in one transaction, commits
//! once (one fsync), and answers all of them afterwards.
//!
//! Invariants: a job is answered only after its commit; each job has its own savepoint, so one
//! that fails leaves no trace and does not fail its neighbours; when the shared transaction fails
//! as a whole, and provably wrote nothing, every job is tried again alone. While one commit waits
//! for the disk the next jobs gather, so the group grows with the load and there is no timer.

use super::failure::{commit_failed, failed};
use super::lock::DirectoryLock;
use super::metrics::Counters;
use crate::error::JournalError;
use rusqlite::Connection;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Jobs that may wait for the writer. More than one per live session of a busy host; a full queue
/// makes callers wait, which is the back-pressure a session needs when the disk is slow.
const QUEUE_JOBS: usize = 1024;
/// KiB that waiting jobs may hold: the memory a slow disk can cost. Two of the largest appends.
const QUEUE_KIB: u32 = 64 << 10;

/// A write, erased of its answer's type.
trait Job: Send {
    /// Runs in the current transaction; called again when a transaction was lost.
    fn run(&mut self, connection: &Connection) -> Result<(), JournalError>;
    /// Gives the answer: that of the last run, or the error that took it away.
    fn answer(self: Box<Self>, lost: Option<JournalError>);
}

struct Typed<T, F> {
    run: F,
    outcome: Option<Result<T, JournalError>>,
    reply: oneshot::Sender<Result<T, JournalError>>,
    /// Room in the queue, given back when the job has been answered.
    _room: OwnedSemaphorePermit,
}

impl<T, F> Job for Typed<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, JournalError> + Send,
{
    fn run(&mut self, connection: &Connection) -> Result<(), JournalError> {
        match (self.run)(connection) {
            Ok(value) => {
                self.outcome = Some(Ok(value));
                Ok(())
            }
            Err(error) => {
                self.outcome = Some(Err(error.clone()));
                Err(error)
            }
        }
    }

    fn answer(self: Box<Self>, lost: Option<JournalError>) {
        let outcome = match (self.outcome, lost) {
            // A refusal stands whatever became of the transaction: it wrote nothing.
            (Some(Err(error)), _) | (_, Some(error)) => Err(error),
            (Some(Ok(value)), None) => Ok(value),
            (None, None) => Err(JournalError::Unavailable {
                reason: "not run".to_owned(),
            }),
        };
        // Nobody waits any more: the write stands all the same.
        drop(self.reply.send(outcome));
    }
}

enum Message {
    Job(Box<dyn Job>),
    Close(oneshot::Sender<()>),
}

/// Handle of the writer thread.
pub(super) struct Writer {
    queue: mpsc::Sender<Message>,
    room: Arc<Semaphore>,
}

impl Writer {
    /// Starts the thread, which owns the connection and the lock: the lock goes last.
    pub(super) fn start(
        connection: Connection,
        lock: DirectoryLock,
        counters: Arc<Counters>,
    ) -> Result<Self, JournalError> {
        let (queue, jobs) = mpsc::channel(QUEUE_JOBS);
        let _detached: JoinHandle<()> = std::thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || serve(connection, lock, jobs, &counters))
            .map_err(|error| JournalError::Unavailable {
                reason: error.to_string(),
            })?;
        Ok(Self {
            queue,
            room: Arc::new(Semaphore::new(QUEUE_KIB as usize)),
        })
    }

    /// Runs a write of about `bytes` bytes and answers when it is durable.
    pub(super) async fn write<T, F>(&self, bytes: usize, run: F) -> Result<T, JournalError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, JournalError> + Send + 'static,
    {
        let kib = u32::try_from(bytes / 1024 + 1)
            .unwrap_or(QUEUE_KIB)
            .min(QUEUE_KIB);
        let room = Arc::clone(&self.room)
            .acquire_many_owned(kib)
            .await
            .map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        let job = Typed {
            run,
            outcome: None,
            reply,
            _room: room,
        };
        self.queue
            .send(Message::Job(Box::new(job)))
            .await
            .map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| {
            Err(JournalError::Ambiguous {
                reason: "the writer thread ended".to_owned(),
            })
        })
    }

    /// Finishes what is queued and releases the data directory.
    pub(super) async fn close(&self) {
        let (done, finished) = oneshot::channel();
        if self.queue.send(Message::Close(done)).await.is_ok() {
            // An error means the thread is gone, which is what was wanted.
            drop(finished.await);
        }
    }
}

fn closed() -> JournalError {
    JournalError::Unavailable {
        reason: "the store is closed".to_owned(),
    }
}

fn serve(
    connection: Connection,
    lock: DirectoryLock,
    mut jobs: mpsc::Receiver<Message>,
    counters: &Counters,
) {
    let mut closing = None;
    while closing.is_none() {
        let Some(first) = jobs.blocking_recv() else {
            break;
        };
        let mut group: Vec<Box<dyn Job>> = Vec::new();
        let mut next = Some(first);
        // At most what the queue held: a group is bounded by QUEUE_JOBS and QUEUE_KIB.
        while let Some(message) = next.take() {
            match message {
                Message::Job(job) => group.push(job),
                Message::Close(done) => {
                    closing = Some(done);
                    break;
                }
            }
            if group.len() < QUEUE_JOBS {
                next = jobs.try_recv().ok();
            }
        }
        if !group.is_empty() {
            commit_group(&connection, group, counters);
        }
    }
    jobs.close();
    while let Some(message) = jobs.blocking_recv() {
        if let Message::Job(job) = message {
            job.answer(Some(closed()));
        }
    }
    if let Err((_, error)) = connection.close() {
        tracing::warn!(%error, "the journal database did not close cleanly");
    }
    drop(lock);
    if let Some(done) = closing {
        // Whoever closed may have stopped waiting.
        let _ = done.send(());
    }
}

/// Commits the jobs together; alone, each, when that fails without having written.
fn commit_group(connection: &Connection, mut group: Vec<Box<dyn Job>>, counters: &Counters) {
    let outcome = transact(connection, &mut group, counters);
    match outcome {
        Err(error) if error.is_definite() && group.len() > 1 => {
            tracing::warn!(%error, jobs = group.len(), "group commit failed; trying each alone");
            for job in group {
                let mut alone = vec![job];
                let lost = transact(connection, &mut alone, counters).err();
                alone.into_iter().for_each(|job| job.answer(lost.clone()));
            }
        }
        outcome => {
            let lost = outcome.err();
            group.into_iter().for_each(|job| job.answer(lost.clone()));
        }
    }
}

/// One transaction. An error means that none of the jobs is committed (or that nobody knows).
fn transact(
    connection: &Connection,
    group: &mut [Box<dyn Job>],
    counters: &Counters,
) -> Result<(), JournalError> {
    let outcome = run_all(connection, group).and_then(|any| {
        if !any {
            // Nothing but refusals: no commit to wait for.
            return execute(connection, "ROLLBACK").map_err(failed);
        }
        execute(connection, "COMMIT").map_err(commit_failed)?;
        counters.committed(group.len());
        Ok(())
    });
    if let Err(error) = &outcome {
        tracing::error!(%error, "journal transaction failed");
        counters.failed();
        if !connection.is_autocommit()
            && let Err(error) = execute(connection, "ROLLBACK")
        {
            tracing::error!(%error, "journal rollback failed");
        }
    }
    outcome
}

/// Runs every job in its savepoint; says whether any succeeded.
fn run_all(connection: &Connection, group: &mut [Box<dyn Job>]) -> Result<bool, JournalError> {
    execute(connection, "BEGIN IMMEDIATE").map_err(failed)?;
    let mut any = false;
    for job in group {
        execute(connection, "SAVEPOINT job").map_err(failed)?;
        let result = job.run(connection);
        // A full disk or an I/O error may roll the whole transaction back on its own; then the
        // jobs before this one are lost as well, and the group must be tried again one by one.
        if connection.is_autocommit() {
            return Err(result.err().unwrap_or_else(|| JournalError::Unavailable {
                reason: "the transaction ended early".to_owned(),
            }));
        }
        if result.is_err() {
            execute(connection, "ROLLBACK TO job").map_err(failed)?;
        }
        execute(connection, "RELEASE job").map_err(failed)?;
        any |= result.is_ok();
    }
    Ok(any)
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
