//! The tables, and which version of them a database has.
//!
//! `user_version` is the schema version. A database of a newer version is refused untouched; an
//! older one is brought up step by step, each step in its own transaction. Steps are never edited
//! once released.

use super::failure::failed;
use crate::error::JournalError;
use rusqlite::{Connection, TransactionBehavior};

/// Step n brings version n to n + 1.
const STEPS: &[&str] = &[V1, V2];

/// Records live in a rowid table and are found by a covering-free unique index on
/// (session, seq): a session is replayed in order, records of one commit lie together, and large
/// bodies never sit inside an index page. `session` is a small integer, because it is repeated
/// in every record and twice in its indexes.
const V1: &str = "
CREATE TABLE session (
    n INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    created_at_ms INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    fence_seq INTEGER NOT NULL,
    next_seq INTEGER NOT NULL,
    holder TEXT,
    project_id TEXT NOT NULL,
    status TEXT NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    needs_recovery INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX session_newest ON session (created_at_ms, id);
CREATE INDEX session_project ON session (project_id, created_at_ms, id);
CREATE INDEX session_recovery ON session (id) WHERE needs_recovery;

CREATE TABLE record (
    session INTEGER NOT NULL REFERENCES session (n),
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX record_seq ON record (session, seq);
CREATE UNIQUE INDEX record_key ON record (session, key);

CREATE TABLE idempotency (
    scope BLOB NOT NULL,
    command_id BLOB NOT NULL,
    session INTEGER NOT NULL REFERENCES session (n),
    body_sha256 BLOB NOT NULL,
    status INTEGER,
    response BLOB,
    PRIMARY KEY (scope, command_id)
) STRICT;
CREATE INDEX idempotency_session ON idempotency (session);

CREATE TABLE state (
    provider TEXT NOT NULL,
    scope_kind INTEGER NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (provider, scope_kind, scope, key)
) STRICT;
CREATE INDEX state_scope ON state (scope_kind, scope);

CREATE TABLE project (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    default_workspace_id TEXT
) STRICT;
CREATE TABLE workspace (
    id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES project (id),
    target TEXT NOT NULL,
    state TEXT NOT NULL
) STRICT;
CREATE TABLE token (
    id BLOB PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    created_at_ms INTEGER NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    projects TEXT NOT NULL
) STRICT;
CREATE INDEX token_oldest ON token (created_at_ms, id);
CREATE TABLE permission_rule (
    harness_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    rule TEXT NOT NULL,
    PRIMARY KEY (harness_id, workspace_id, rule)
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;
";

/// Keys are ids that grow with time, whichever session they belong to: with the key in front, the
/// sessions that share a commit write the same few pages of this index, and not one page each.
const V2: &str = "
DROP INDEX record_key;
CREATE UNIQUE INDEX record_key ON record (key, session);
";

/// Newest version this build knows.
pub(super) const KNOWN: u32 = STEPS.len() as u32;

/// Refuses a database this build does not know; writes nothing.
///
/// # Errors
/// `NewerVersion`, `Corrupt`.
pub(super) fn refuse_newer(connection: &Connection) -> Result<(), JournalError> {
    match version(connection)? {
        found if found > KNOWN => Err(JournalError::NewerVersion {
            found,
            known: KNOWN,
        }),
        _ => Ok(()),
    }
}

/// Brings the database to [`KNOWN`].
pub(super) fn migrate(connection: &mut Connection) -> Result<(), JournalError> {
    let found = version(connection)?;
    for (from, step) in STEPS.iter().enumerate().skip(found as usize) {
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        transaction.execute_batch(step).map_err(failed)?;
        transaction
            .pragma_update(None, "user_version", from as i64 + 1)
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

fn version(connection: &Connection) -> Result<u32, JournalError> {
    let stored: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failed)?;
    u32::try_from(stored).map_err(|_| JournalError::Corrupt {
        what: format!("schema version {stored}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_of_every_older_version_is_brought_up_with_what_it_holds() {
        for (older, _) in STEPS.iter().enumerate().skip(1) {
            let mut database = Connection::open_in_memory().unwrap();
            for step in &STEPS[..older] {
                database.execute_batch(step).unwrap();
            }
            database
                .pragma_update(None, "user_version", older as i64)
                .unwrap();
            database
                .execute_batch(
                    "INSERT INTO session (n, id, created_at_ms, epoch, fence_seq, next_seq,
                         project_id, status, updated_at_ms, needs_recovery, body)
                     VALUES (1, x'01', 0, 1, 1, 2, 'default', 'completed', 0, 0, x'');
                     INSERT INTO record (session, seq, kind, key, fingerprint, bytes)
                     VALUES (1, 1, 1, 'k', zeroblob(32), x'7b7d');",
                )
                .unwrap();
            migrate(&mut database).unwrap();
            assert_eq!(version(&database).unwrap(), KNOWN);
            let again = database.execute(
                "INSERT INTO record (session, seq, kind, key, fingerprint, bytes)
                 VALUES (1, 2, 1, 'k', zeroblob(32), x'7b7d')
                 ON CONFLICT (key, session) DO NOTHING",
                [],
            );
            assert_eq!(again.unwrap(), 0, "from {older}: the record is still known");
        }
    }
}
