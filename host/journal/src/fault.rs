//! A journal that fails on demand: tests of what stands on a journal choose where it breaks.
//!
//! Writes are `append` and `open` calls, counted from 1 in the order in which they reach the
//! journal. Everything without a fault goes through to the real journal below.

use crate::append::{Append, Appended};
use crate::error::JournalError;
use crate::idempotency::IdempotencyEntry;
use crate::journal::{BoxFuture, Journal, Tail};
use crate::lease::{Epoch, Holder, Lease};
use crate::page::Page;
use crate::projection::{SessionFilter, SessionRow};
use crate::record::RecordPage;
use harness_core::ids::{CommandId, Seq, SessionId};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// How a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `Unavailable`; nothing is written.
    Unavailable,
    /// `Full`; nothing is written.
    Full,
    /// `LeaseLost` without a holder; nothing is written.
    LeaseLost,
    /// `LeaseLost` to process 7 of the host `elsewhere`; nothing is written.
    LeaseHeld,
    /// `Ambiguous`.
    Ambiguous {
        /// Whether it was written all the same.
        written: bool,
    },
    /// The process dies: this call and every later one never answers. Drop what uses the journal
    /// and go on with the journal below.
    Crash {
        /// Whether the write reached the disk before.
        written: bool,
    },
}

type Predicate = Box<dyn FnMut(&Append) -> bool + Send>;

#[derive(Default)]
struct Plan {
    writes: u64,
    at: BTreeMap<u64, Fault>,
    when: Vec<(Predicate, Fault)>,
}

/// The wrapper; clones share their plan.
#[derive(Clone)]
pub struct FaultJournal {
    inner: Arc<dyn Journal>,
    /// A std mutex: held to count and to look up, never across an await.
    plan: Arc<Mutex<Plan>>,
    crashed: Arc<watch::Sender<bool>>,
    held: Arc<watch::Sender<bool>>,
}

impl FaultJournal {
    /// Wraps a journal; without a plan nothing fails.
    #[must_use]
    pub fn new(inner: Arc<dyn Journal>) -> Self {
        Self {
            inner,
            plan: Arc::default(),
            crashed: Arc::new(watch::Sender::new(false)),
            held: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Fails the write of this number, once.
    pub fn fail_at(&self, write: u64, fault: Fault) {
        self.plan().at.insert(write, fault);
    }

    /// Fails the next write, once.
    pub fn fail_next(&self, fault: Fault) {
        let mut plan = self.plan();
        let next = plan.writes + 1;
        plan.at.insert(next, fault);
    }

    /// Fails the next append that the predicate picks, once.
    pub fn fail_when(&self, pick: impl FnMut(&Append) -> bool + Send + 'static, fault: Fault) {
        self.plan().when.push((Box::new(pick), fault));
    }

    /// Writes that have reached the journal.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.plan().writes
    }

    /// Makes every write wait, before it is counted, until [`FaultJournal::resume`].
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Lets held writes go on.
    pub fn resume(&self) {
        self.held.send_replace(false);
    }

    /// Returns once a crash has happened.
    pub async fn crashed(&self) {
        // The sender lives as long as self, so waiting cannot fail.
        drop(self.crashed.subscribe().wait_for(|crashed| *crashed).await);
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a write and takes its fault out of the plan.
    fn next_fault(&self, append: Option<&Append>) -> Option<Fault> {
        let mut plan = self.plan();
        plan.writes += 1;
        let number = plan.writes;
        let numbered = plan.at.remove(&number);
        let picked = append.and_then(|append| {
            let place = plan.when.iter_mut().position(|(pick, _)| pick(append))?;
            Some(plan.when.remove(place).1)
        });
        numbered.or(picked)
    }

    async fn write<T>(
        &self,
        append: Option<&Append>,
        through: impl Future<Output = Result<T, JournalError>>,
    ) -> Result<T, JournalError> {
        drop(self.held.subscribe().wait_for(|held| !held).await);
        self.alive().await;
        let Some(fault) = self.next_fault(append) else {
            let answer = through.await;
            self.alive().await;
            return answer;
        };
        let reason = || "a planned fault".to_owned();
        match fault {
            Fault::Unavailable => Err(JournalError::Unavailable { reason: reason() }),
            Fault::Full => Err(JournalError::Full),
            Fault::LeaseLost => Err(JournalError::LeaseLost { holder: None }),
            Fault::LeaseHeld => Err(JournalError::LeaseLost {
                holder: Some(Holder {
                    host: "elsewhere".into(),
                    pid: 7,
                }),
            }),
            Fault::Ambiguous { written } => {
                if written {
                    through.await?;
                }
                Err(JournalError::Ambiguous { reason: reason() })
            }
            Fault::Crash { written } => {
                if written {
                    through.await?;
                }
                self.crashed.send_replace(true);
                std::future::pending().await
            }
        }
    }

    /// Never returns after a crash: a dead process neither acts nor learns anything.
    async fn alive(&self) {
        if *self.crashed.borrow() {
            std::future::pending::<()>().await;
        }
    }

    async fn pass<T>(&self, call: impl Future<Output = T>) -> T {
        self.alive().await;
        let answer = call.await;
        self.alive().await;
        answer
    }
}

impl Journal for FaultJournal {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, JournalError>> {
        Box::pin(async move {
            let through = self.inner.append(append.clone());
            self.write(Some(&append), through).await
        })
    }

    fn open(&self, session: SessionId, at_ms: i64) -> BoxFuture<'_, Result<Lease, JournalError>> {
        Box::pin(self.write(None, self.inner.open(session, at_ms)))
    }

    fn release(&self, session: SessionId, epoch: Epoch) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(self.pass(self.inner.release(session, epoch)))
    }

    fn read(
        &self,
        session: SessionId,
        from: Seq,
        limit: usize,
    ) -> BoxFuture<'_, Result<RecordPage, JournalError>> {
        Box::pin(self.pass(self.inner.read(session, from, limit)))
    }

    fn tail(&self, session: SessionId) -> BoxFuture<'_, Result<Tail, JournalError>> {
        Box::pin(self.pass(self.inner.tail(session)))
    }

    fn delete(&self, session: SessionId) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(self.pass(self.inner.delete(session)))
    }

    fn list_sessions(
        &self,
        filter: SessionFilter,
    ) -> BoxFuture<'_, Result<Page<SessionRow>, JournalError>> {
        Box::pin(self.pass(self.inner.list_sessions(filter)))
    }

    fn projection(
        &self,
        session: SessionId,
    ) -> BoxFuture<'_, Result<Option<SessionRow>, JournalError>> {
        Box::pin(self.pass(self.inner.projection(session)))
    }

    fn sessions_needing_recovery(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SessionId>, JournalError>> {
        Box::pin(self.pass(self.inner.sessions_needing_recovery(after, limit)))
    }

    fn idempotency(
        &self,
        session: Option<SessionId>,
        command: CommandId,
    ) -> BoxFuture<'_, Result<Option<IdempotencyEntry>, JournalError>> {
        Box::pin(self.pass(self.inner.idempotency(session, command)))
    }
}
