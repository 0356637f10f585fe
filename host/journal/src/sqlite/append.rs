//! Writing to a session: the append itself, and the openings that fence it (S65, S66).
//!
//! Everything here runs inside the writer's transaction; an error undoes all of it.

use super::failure::{corrupt, failed};
use super::row;
use crate::append::{Append, Appended, AppendedRecord};
use crate::error::JournalError;
use crate::idempotency::{IdempotencyScope, IdempotencyWrite};
use crate::lease::{Epoch, Holder, Lease};
use crate::projection::Projection;
use crate::record::{NewRecord, RecordKind};
use bytes::Bytes;
use harness_core::ids::{Seq, SessionId};
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};

/// The writer's columns of a session.
struct Head {
    n: i64,
    epoch: Epoch,
    fence_seq: Seq,
    next_seq: Seq,
    holder: Option<Holder>,
}

/// Ends every lease: whoever holds the store's file lock holds them all, and must open a session
/// before it writes (S66).
pub(super) fn take_over(connection: &Connection) -> Result<(), JournalError> {
    connection
        .execute(
            "UPDATE session SET holder = NULL WHERE holder IS NOT NULL",
            [],
        )
        .map(drop)
        .map_err(failed)
}

/// See [`crate::Journal::append`].
pub(super) fn append(
    connection: &Connection,
    append: &Append,
    holder: &Holder,
) -> Result<Appended, JournalError> {
    let session = append.session;
    let stored = head(connection, session)?;
    let (head, fresh) = match (stored, &append.create) {
        (None, None) => return Err(JournalError::NotFound { what: "session" }),
        (None, Some(new)) => {
            let row = append.projection.as_ref().ok_or(JournalError::Invalid {
                what: "append",
                rule: "a session is created with its row",
            })?;
            (
                create(connection, session, new.created_at_ms, row, holder)?,
                true,
            )
        }
        (Some(head), Some(_)) => {
            check_lease(&head, Epoch::FIRST)?;
            return repeated_create(connection, append, &head);
        }
        (Some(head), None) => {
            check_lease(&head, append.epoch)?;
            (head, false)
        }
    };
    let expected = append.expected_next.filter(|_| !fresh);
    let (records, next_seq) = write_records(connection, &head, &append.records, expected)?;
    let repeated = !records.is_empty() && records.iter().all(|record| record.duplicate);
    if !repeated {
        if next_seq != head.next_seq || append.projection.is_some() {
            update_head(connection, &head, next_seq, append.projection.as_ref())?;
        }
        for entry in &append.idempotency {
            write_idempotency(connection, session, &head, entry)?;
        }
    }
    Ok(Appended {
        lease: head.lease(session),
        records,
        next_seq,
    })
}

/// See [`crate::Journal::open`].
pub(super) fn open(
    connection: &Connection,
    session: SessionId,
    at_ms: i64,
    holder: &Holder,
) -> Result<Lease, JournalError> {
    let mut head = head(connection, session)?.ok_or(JournalError::NotFound { what: "session" })?;
    head.epoch = Epoch(head.epoch.0.saturating_add(1));
    head.fence_seq = head.next_seq;
    let fence = fence(head.epoch, holder, at_ms)?;
    insert(connection, &head, head.fence_seq, &fence)?;
    connection
        .prepare_cached(
            "UPDATE session SET epoch = ?2, fence_seq = ?3, next_seq = ?4, holder = ?5 WHERE n = ?1",
        )
        .and_then(|mut update| {
            update.execute(params![
                head.n,
                head.epoch.0 as i64,
                head.fence_seq as i64,
                head.fence_seq as i64 + 1,
                holder_text(holder),
            ])
        })
        .map_err(failed)?;
    Ok(head.lease(session))
}

/// See [`crate::Journal::release`].
pub(super) fn release(
    connection: &Connection,
    session: SessionId,
    epoch: Epoch,
) -> Result<(), JournalError> {
    connection
        .prepare_cached("UPDATE session SET holder = NULL WHERE id = ?1 AND epoch = ?2")
        .and_then(|mut update| update.execute(params![session.0.as_bytes(), epoch.0 as i64]))
        .map(drop)
        .map_err(failed)
}

impl Head {
    fn lease(&self, session: SessionId) -> Lease {
        Lease {
            session,
            epoch: self.epoch,
            fence_seq: self.fence_seq,
        }
    }
}

fn head(connection: &Connection, session: SessionId) -> Result<Option<Head>, JournalError> {
    let mut query = connection
        .prepare_cached("SELECT n, epoch, fence_seq, next_seq, holder FROM session WHERE id = ?1")
        .map_err(failed)?;
    let rows = query.query([session.0.as_bytes()]).map_err(failed)?;
    row::first(rows, |row| {
        let holder: Option<String> = row.get(4).map_err(failed)?;
        let holder = holder
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| corrupt(format!("the holder of a lease: {error}")))?;
        Ok(Head {
            n: row.get(0).map_err(failed)?,
            epoch: Epoch(row::unsigned(row, 1)?),
            fence_seq: row::unsigned(row, 2)?,
            next_seq: row::unsigned(row, 3)?,
            holder,
        })
    })
}

fn check_lease(head: &Head, epoch: Epoch) -> Result<(), JournalError> {
    if head.epoch == epoch && head.holder.is_some() {
        return Ok(());
    }
    Err(JournalError::LeaseLost {
        holder: head.holder.clone(),
    })
}

fn create(
    connection: &Connection,
    session: SessionId,
    created_at_ms: i64,
    row: &Projection,
    holder: &Holder,
) -> Result<Head, JournalError> {
    connection
        .prepare_cached(
            "INSERT INTO session (id, created_at_ms, epoch, fence_seq, next_seq, holder,
                 project_id, status, updated_at_ms, needs_recovery, body)
             VALUES (?1, ?2, 1, 1, 2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )
        .and_then(|mut insert| {
            insert.execute(params![
                session.0.as_bytes(),
                created_at_ms,
                holder_text(holder),
                row.project_id.as_str(),
                row.status,
                row.updated_at_ms,
                row.needs_recovery,
                row.body.as_ref(),
            ])
        })
        .map_err(failed)?;
    let head = Head {
        n: connection.last_insert_rowid(),
        epoch: Epoch::FIRST,
        fence_seq: 1,
        next_seq: 2,
        holder: Some(holder.clone()),
    };
    insert(
        connection,
        &head,
        1,
        &fence(Epoch::FIRST, holder, created_at_ms)?,
    )?;
    Ok(head)
}

/// The answer to a create whose session exists: its places, if it is the same create again.
fn repeated_create(
    connection: &Connection,
    append: &Append,
    head: &Head,
) -> Result<Appended, JournalError> {
    let mut records = Vec::with_capacity(append.records.len());
    for record in &append.records {
        let seq = stored_seq(connection, head, record)?.ok_or_else(|| JournalError::Collision {
            key: append.session.to_string(),
        })?;
        records.push(AppendedRecord {
            seq,
            duplicate: true,
        });
    }
    Ok(Appended {
        lease: head.lease(append.session),
        records,
        next_seq: head.next_seq,
    })
}

/// Writes what is new; answers every record's place and the next free number.
fn write_records(
    connection: &Connection,
    head: &Head,
    records: &[NewRecord],
    mut expected: Option<Seq>,
) -> Result<(Vec<AppendedRecord>, Seq), JournalError> {
    let mut next_seq = head.next_seq;
    let mut places = Vec::with_capacity(records.len());
    for record in records {
        if insert(connection, head, next_seq, record)? {
            if let Some(expected) = expected.take().filter(|expected| *expected != next_seq) {
                return Err(JournalError::OutOfOrder {
                    expected,
                    next: next_seq,
                });
            }
            places.push(AppendedRecord {
                seq: next_seq,
                duplicate: false,
            });
            next_seq += 1;
        } else {
            let seq = stored_seq(connection, head, record)?
                .ok_or_else(|| corrupt(format!("record {next_seq} is there already")))?;
            places.push(AppendedRecord {
                seq,
                duplicate: true,
            });
        }
    }
    Ok((places, next_seq))
}

/// Inserts a record; `false` when its key is there already.
fn insert(
    connection: &Connection,
    head: &Head,
    seq: Seq,
    record: &NewRecord,
) -> Result<bool, JournalError> {
    connection
        .prepare_cached(
            "INSERT INTO record (session, seq, kind, key, fingerprint, bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (key, session) DO NOTHING",
        )
        .and_then(|mut insert| {
            insert.execute(params![
                head.n,
                seq as i64,
                record.kind.code(),
                record.key,
                record.fingerprint,
                record.bytes.as_ref(),
            ])
        })
        .map(|written| written == 1)
        .map_err(failed)
}

/// Where a record with this key is; `Collision` when it is another one.
fn stored_seq(
    connection: &Connection,
    head: &Head,
    record: &NewRecord,
) -> Result<Option<Seq>, JournalError> {
    let mut query = connection
        .prepare_cached("SELECT seq, fingerprint, kind FROM record WHERE key = ?2 AND session = ?1")
        .map_err(failed)?;
    let rows = query.query(params![head.n, record.key]).map_err(failed)?;
    row::first(rows, |row| {
        let fingerprint: [u8; 32] = row.get(1).map_err(failed)?;
        let kind: u8 = row.get(2).map_err(failed)?;
        if fingerprint != record.fingerprint || kind != record.kind.code() {
            return Err(JournalError::Collision {
                key: record.key.clone(),
            });
        }
        row::unsigned(row, 0)
    })
}

fn update_head(
    connection: &Connection,
    head: &Head,
    next_seq: Seq,
    projection: Option<&Projection>,
) -> Result<(), JournalError> {
    let next_seq = row::signed(next_seq)?;
    let updated = match projection {
        None => connection
            .prepare_cached("UPDATE session SET next_seq = ?2 WHERE n = ?1")
            .and_then(|mut update| update.execute(params![head.n, next_seq])),
        Some(new) => connection
            .prepare_cached(
                "UPDATE session SET next_seq = ?2, status = ?3, updated_at_ms = ?4,
                     needs_recovery = ?5, body = ?6 WHERE n = ?1",
            )
            .and_then(|mut update| {
                update.execute(params![
                    head.n,
                    next_seq,
                    new.status,
                    new.updated_at_ms,
                    new.needs_recovery,
                    new.body.as_ref(),
                ])
            }),
    };
    updated.map(drop).map_err(failed)
}

fn write_idempotency(
    connection: &Connection,
    session: SessionId,
    head: &Head,
    entry: &IdempotencyWrite,
) -> Result<(), JournalError> {
    let scope = match entry.scope {
        IdempotencyScope::Create => SessionId::ZERO,
        IdempotencyScope::Session => session,
    };
    let (status, body) = match &entry.response {
        Some(response) => (Some(response.status), Some(response.body.as_ref())),
        None => (None, None),
    };
    let written = connection
        .prepare_cached(
            "INSERT INTO idempotency (scope, command_id, session, body_sha256, status, response)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (scope, command_id) DO UPDATE
             SET status = coalesce(status, excluded.status),
                 response = coalesce(response, excluded.response)
             WHERE body_sha256 = excluded.body_sha256 AND session = excluded.session",
        )
        .and_then(|mut upsert| {
            upsert.execute(params![
                scope.0.as_bytes(),
                entry.command_id.0.as_bytes(),
                head.n,
                entry.body_sha256,
                status,
                body,
            ])
        })
        .map_err(failed)?;
    if written == 0 {
        return Err(JournalError::Collision {
            key: entry.command_id.to_string(),
        });
    }
    Ok(())
}

/// The fence of an opening; its key is its epoch, so two openings cannot share one.
fn fence(epoch: Epoch, holder: &Holder, at_ms: i64) -> Result<NewRecord, JournalError> {
    let content = serde_json::json!({
        "type": "Fence", "v": 1, "epoch": epoch, "holder": holder, "at_ms": at_ms,
    });
    let bytes = Bytes::from(row::to_json(&content)?);
    Ok(NewRecord {
        kind: RecordKind::Fence,
        key: format!("fence:{epoch}"),
        fingerprint: Sha256::digest(&bytes).into(),
        bytes,
    })
}

fn holder_text(holder: &Holder) -> String {
    serde_json::json!(holder).to_string()
}
