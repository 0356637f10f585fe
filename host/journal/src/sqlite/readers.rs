//! Read-only connections for replay, lists and lookups; they never wait for the writer.

use super::failure::failed;
use crate::error::JournalError;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// A few connections; whoever finds none free waits its turn (the semaphore is fair), so reads
/// cost at most this many blocking threads.
pub(super) struct Readers {
    free: Arc<Semaphore>,
    /// A std mutex: it is held for one push or pop and never across an await.
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn open(path: &Path, count: usize) -> Result<Self, JournalError> {
        let mut idle = Vec::with_capacity(count);
        for _ in 0..count {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
            connection.busy_timeout(super::BUSY).map_err(failed)?;
            connection.set_prepared_statement_cache_capacity(64);
            idle.push(connection);
        }
        Ok(Self {
            free: Arc::new(Semaphore::new(count)),
            idle: Arc::new(Mutex::new(idle)),
        })
    }

    /// Runs a query on a blocking thread. When the caller goes away the query still ends and
    /// gives its connection back.
    pub(super) async fn read<T, F>(&self, query: F) -> Result<T, JournalError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, JournalError> + Send + 'static,
    {
        let closed = || JournalError::Unavailable {
            reason: "the store is closed".to_owned(),
        };
        let permit = Arc::clone(&self.free)
            .acquire_owned()
            .await
            .map_err(|_| closed())?;
        let idle = Arc::clone(&self.idle);
        let connection = lock(&idle).pop().ok_or_else(closed)?;
        let work = tokio::task::spawn_blocking(move || {
            let loan = Loan {
                connection: Some(connection),
                idle,
            };
            let answer = loan.connection.as_ref().ok_or_else(closed).and_then(query);
            drop(loan);
            drop(permit);
            answer
        });
        work.await.unwrap_or_else(|error| {
            Err(JournalError::Unavailable {
                reason: format!("a query failed: {error}"),
            })
        })
    }

    /// Refuses further reads and closes the idle connections.
    pub(super) fn close(&self) {
        self.free.close();
        lock(&self.idle).clear();
    }
}

/// Gives the connection back, also when the query panics.
struct Loan {
    connection: Option<Connection>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            lock(&self.idle).push(connection);
        }
    }
}

/// A poisoned list of connections is still a list of connections.
fn lock(idle: &Mutex<Vec<Connection>>) -> std::sync::MutexGuard<'_, Vec<Connection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
