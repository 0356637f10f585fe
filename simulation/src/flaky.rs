//! The journal of one process: the store with the time it takes, its faults, and the end of the
//! process at every point of a write.

use crate::life::Life;
use harness_core::ids::{CommandId, Seq, SessionId};
use harness_journal::{
    Append, Appended, BoxFuture, Epoch, IdempotencyEntry, Journal, JournalError, Lease, Page,
    RecordPage, SessionFilter, SessionRow, Tail,
};
use std::sync::Arc;
use tokio::time::sleep;

/// A journal that fails as real ones do.
pub struct FlakyJournal(pub Arc<Life>);

/// What becomes of a write.
enum Fate {
    Written,
    Refused(JournalError),
    /// The caller is told that nobody knows; whether it was written.
    Ambiguous(bool),
}

impl FlakyJournal {
    fn fate(&self) -> Fate {
        let dice = &self.0.world.dice;
        let reason = || "a planned fault".to_owned();
        if dice.below(1000) >= self.0.plan.faults {
            return Fate::Written;
        }
        match dice.below(4) {
            0 => Fate::Refused(JournalError::Full),
            1 => Fate::Refused(JournalError::Unavailable { reason: reason() }),
            n => Fate::Ambiguous(n == 2),
        }
    }

    /// The time that the store takes; now and then a slow disk's.
    async fn takes_time(&self) {
        let dice = &self.0.world.dice;
        let time = match dice.below(20) {
            _ if self.0.plan.calm => dice.millis(2),
            0..10 => dice.millis(2),
            10..19 => dice.millis(30),
            _ => dice.millis(8_000),
        };
        if !time.is_zero() {
            sleep(time).await;
        }
    }

    async fn written(&self, append: Append) -> Result<Appended, JournalError> {
        let life = &self.0;
        life.goes_on().await;
        let number = life.hand_over(&append);
        self.takes_time().await;
        life.alive().await;
        life.finish(number);
        let fate = self.fate();
        let written = match &fate {
            Fate::Written | Fate::Ambiguous(true) => Some(life.write(&append)),
            Fate::Refused(_) | Fate::Ambiguous(false) => None,
        };
        life.goes_on().await;
        // Durable, and not acknowledged yet.
        if life.world.dice.percent(25) {
            self.takes_time().await;
            life.goes_on().await;
        }
        match (fate, written) {
            (Fate::Refused(error), _) => {
                life.world
                    .note(format_args!("a write failed: {}", error.code()));
                Err(error)
            }
            (Fate::Ambiguous(written), _) => {
                life.world
                    .note(format_args!("a write is ambiguous, written: {written}"));
                let reason = "a planned fault".to_owned();
                Err(JournalError::Ambiguous { reason })
            }
            (Fate::Written, Some(answer)) => answer,
            (Fate::Written, None) => Err(JournalError::Full),
        }
    }

    async fn through<T>(&self, call: impl Future<Output = T>) -> T {
        self.0.alive().await;
        if self.0.world.dice.percent(20) {
            self.takes_time().await;
        }
        self.0.alive().await;
        call.await
    }
}

impl Journal for FlakyJournal {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, JournalError>> {
        Box::pin(self.written(append))
    }

    fn open(&self, session: SessionId, at_ms: i64) -> BoxFuture<'_, Result<Lease, JournalError>> {
        Box::pin(async move {
            self.0.goes_on().await;
            self.takes_time().await;
            self.0.alive().await;
            let world = &self.0.world;
            if world.dice.below(1000) < self.0.plan.faults {
                let reason = "a planned fault".to_owned();
                return Err(JournalError::Unavailable { reason });
            }
            let lease = world.store.take(session, at_ms)?;
            let found = world.ledger().appended(world, session, None);
            world.hold(found);
            self.0.goes_on().await;
            Ok(lease)
        })
    }

    fn release(&self, session: SessionId, epoch: Epoch) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(self.through(self.0.world.store.release(session, epoch)))
    }

    fn read(
        &self,
        session: SessionId,
        from: Seq,
        limit: usize,
    ) -> BoxFuture<'_, Result<RecordPage, JournalError>> {
        // Pages of a few records, so that a reader has to join them.
        let limit = limit.min(7 + usize::try_from(self.0.world.dice.below(60)).unwrap_or(0));
        Box::pin(self.through(self.0.world.store.read(session, from, limit)))
    }

    fn tail(&self, session: SessionId) -> BoxFuture<'_, Result<Tail, JournalError>> {
        Box::pin(self.through(self.0.world.store.tail(session)))
    }

    fn delete(&self, session: SessionId) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(self.through(self.0.world.store.delete(session)))
    }

    fn list_sessions(
        &self,
        filter: SessionFilter,
    ) -> BoxFuture<'_, Result<Page<SessionRow>, JournalError>> {
        Box::pin(self.through(self.0.world.store.list_sessions(filter)))
    }

    fn projection(
        &self,
        session: SessionId,
    ) -> BoxFuture<'_, Result<Option<SessionRow>, JournalError>> {
        Box::pin(self.through(self.0.world.store.projection(session)))
    }

    fn sessions_needing_recovery(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SessionId>, JournalError>> {
        Box::pin(self.through(self.0.world.store.sessions_needing_recovery(after, limit)))
    }

    fn idempotency(
        &self,
        session: Option<SessionId>,
        command: CommandId,
    ) -> BoxFuture<'_, Result<Option<IdempotencyEntry>, JournalError>> {
        Box::pin(self.through(self.0.world.store.idempotency(session, command)))
    }
}
