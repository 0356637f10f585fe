//! The embedded store: one SQLite file in WAL mode, one writer thread, a few readers.
//!
//! Invariants: one process a data directory, by an operating-system lock; every write goes
//! through the one writer and is synced before it is answered; opening takes over every lease.
//! Deliberately not here: anything that knows what a record or a row says.

mod append;
mod catalog;
mod failure;
mod lock;
mod metrics;
mod readers;
mod row;
mod schema;
mod session;
mod state;
mod writer;

use crate::append::{Append, Appended};
use crate::error::JournalError;
use crate::idempotency::IdempotencyEntry;
use crate::journal::{BoxFuture, Journal, Tail};
use crate::lease::{Epoch, Holder, Lease};
use crate::page::{Page, checked_limit};
use crate::projection::{SessionFilter, SessionRow};
use crate::record::RecordPage;
use failure::failed;
use harness_core::ids::{CommandId, Seq, SessionId};
use lock::DirectoryLock;
use metrics::Counters;
use readers::Readers;
use rusqlite::{Connection, OpenFlags};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use writer::Writer;

pub use metrics::Metrics;

/// Name of the database in the data directory.
const DATABASE_FILE: &str = "harness.db";
/// How long to wait for a foreign lock on the database, as a backup tool takes it.
const BUSY: Duration = Duration::from_secs(5);
/// Log size in pages at which the writer copies it into the database: 8 MiB, so that a busy host
/// pays the copy once in thousands of commits and a restart reads little.
const CHECKPOINT_PAGES: u32 = 2048;
/// Log size in bytes above which the file is cut after a copy.
const LOG_BYTES: i64 = 64 << 20;

/// How to open the store.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// Data directory; created (mode 0700) when missing.
    pub directory: PathBuf,
    /// Read connections, 1 to 64: how many replays and lists may run at once.
    pub readers: usize,
    /// Most pages of 4 KiB the database may have; beyond, writes are `Full`. `None`: the disk.
    pub max_pages: Option<u32>,
}

impl SqliteOptions {
    /// Defaults for a data directory.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            readers: 4,
            max_pages: None,
        }
    }
}

/// The embedded store; clones share it.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    writer: Writer,
    readers: Readers,
    counters: Arc<Counters>,
    holder: Holder,
}

impl SqliteStore {
    /// Opens or creates the store and takes over every lease in it. Blocks on the disk.
    ///
    /// # Errors
    /// `Locked` names the process that has it open; `NewerVersion`; `Corrupt`; `Full`;
    /// `Unavailable` when the directory cannot be used; `Invalid` options.
    pub fn open(options: &SqliteOptions) -> Result<Self, JournalError> {
        if !(1..=64).contains(&options.readers) {
            return Err(JournalError::Invalid {
                what: "readers",
                rule: "it is 1 to 64",
            });
        }
        let directory = &options.directory;
        prepare_directory(directory)?;
        let lock = DirectoryLock::take(directory)?;
        let holder = lock.holder().clone();
        let path = directory.join(DATABASE_FILE);
        let connection = open_writer(&path, options.max_pages)?;
        sync_directory(directory)?;
        let counters = Arc::new(Counters::default());
        let readers = Readers::open(&path, options.readers)?;
        let writer = Writer::start(connection, lock, Arc::clone(&counters))?;
        Ok(Self {
            inner: Arc::new(Inner {
                writer,
                readers,
                counters,
                holder,
            }),
        })
    }

    /// Finishes the writes that are queued, refuses later ones and releases the data directory.
    /// Dropping every clone does the same, in the background.
    pub async fn close(&self) {
        self.inner.readers.close();
        self.inner.writer.close().await;
    }

    /// What the writer did since the store was opened.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.inner.counters.snapshot()
    }

    async fn write<T, F>(&self, bytes: usize, run: F) -> Result<T, JournalError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, JournalError> + Send + 'static,
    {
        self.inner.writer.write(bytes, run).await
    }

    async fn query<T, F>(&self, query: F) -> Result<T, JournalError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, JournalError> + Send + 'static,
    {
        self.inner.readers.read(query).await
    }
}

impl Journal for SqliteStore {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, JournalError>> {
        Box::pin(async move {
            let bytes = append.checked_bytes()?;
            let holder = self.inner.holder.clone();
            self.write(bytes, move |connection| {
                append::append(connection, &append, &holder)
            })
            .await
        })
    }

    fn open(&self, session: SessionId, at_ms: i64) -> BoxFuture<'_, Result<Lease, JournalError>> {
        let holder = self.inner.holder.clone();
        Box::pin(self.write(0, move |c| append::open(c, session, at_ms, &holder)))
    }

    fn release(&self, session: SessionId, epoch: Epoch) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(self.write(0, move |c| append::release(c, session, epoch)))
    }

    fn read(
        &self,
        session: SessionId,
        from: Seq,
        limit: usize,
    ) -> BoxFuture<'_, Result<RecordPage, JournalError>> {
        Box::pin(async move {
            let limit = checked_limit(limit)?;
            self.query(move |c| session::read(c, session, from, limit))
                .await
        })
    }

    fn tail(&self, session: SessionId) -> BoxFuture<'_, Result<Tail, JournalError>> {
        Box::pin(self.query(move |c| session::tail(c, session)))
    }

    fn delete(&self, session: SessionId) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(self.write(0, move |c| session::delete(c, session)))
    }

    fn list_sessions(
        &self,
        filter: SessionFilter,
    ) -> BoxFuture<'_, Result<Page<SessionRow>, JournalError>> {
        Box::pin(self.query(move |c| session::list(c, &filter)))
    }

    fn projection(
        &self,
        session: SessionId,
    ) -> BoxFuture<'_, Result<Option<SessionRow>, JournalError>> {
        Box::pin(self.query(move |c| session::projection(c, session)))
    }

    fn sessions_needing_recovery(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SessionId>, JournalError>> {
        Box::pin(async move {
            let limit = checked_limit(limit)?;
            self.query(move |c| session::needing_recovery(c, after, limit))
                .await
        })
    }

    fn idempotency(
        &self,
        session: Option<SessionId>,
        command: CommandId,
    ) -> BoxFuture<'_, Result<Option<IdempotencyEntry>, JournalError>> {
        Box::pin(self.query(move |c| session::idempotency(c, session, command)))
    }
}

fn unavailable(what: &str, path: &Path, error: &std::io::Error) -> JournalError {
    if error.kind() == std::io::ErrorKind::StorageFull {
        return JournalError::Full;
    }
    JournalError::Unavailable {
        reason: format!("{what} {}: {error}", path.display()),
    }
}

fn prepare_directory(directory: &Path) -> Result<(), JournalError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| unavailable("cannot create the data directory", directory, &error))
}

/// Makes the files' names durable, not only their contents.
fn sync_directory(directory: &Path) -> Result<(), JournalError> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| unavailable("cannot sync the data directory", directory, &error))
}

fn open_writer(path: &Path, max_pages: Option<u32>) -> Result<Connection, JournalError> {
    // SQLite gives the log and its index the mode of the database: others may not read them.
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| unavailable("cannot open the database", path, &error))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(128);
    // Before anything that writes: a newer database must stay as it is.
    schema::refuse_newer(&connection)?;
    let set = |name: &str, value: &dyn rusqlite::ToSql| {
        connection
            .pragma_update_and_check(None, name, value, |_| Ok(()))
            .map_err(failed)
    };
    set("journal_mode", &"WAL")?;
    // Sync the log at every commit: acknowledged means on the disk.
    connection
        .pragma_update(None, "synchronous", "FULL")
        .map_err(failed)?;
    set("wal_autocheckpoint", &CHECKPOINT_PAGES)?;
    set("journal_size_limit", &LOG_BYTES)?;
    connection
        .pragma_update(None, "foreign_keys", true)
        .map_err(failed)?;
    // Savepoints and sorts in memory: a full disk must not fail a write in a temporary file.
    connection
        .pragma_update(None, "temp_store", "MEMORY")
        .map_err(failed)?;
    if let Some(pages) = max_pages {
        set("max_page_count", &pages)?;
    }
    schema::migrate(&mut connection)?;
    append::take_over(&connection)?;
    Ok(connection)
}
