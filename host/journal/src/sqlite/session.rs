//! Reading sessions: pages of records, rows, lists, stored answers; and removing one.

use super::failure::{corrupt, failed};
use super::row;
use crate::error::JournalError;
use crate::idempotency::{IdempotencyEntry, StoredResponse};
use crate::journal::Tail;
use crate::lease::Epoch;
use crate::page::{Page, checked_limit, decode_cursor, encode_cursor, time_and_id};
use crate::projection::{Projection, SessionFilter, SessionRow};
use crate::record::{Record, RecordKind, RecordPage};
use bytes::Bytes;
use harness_core::ids::{CommandId, Seq, SessionId};
use rusqlite::{Connection, Row, ToSql, params};

/// Bytes after which a page of records ends: what one replaying reader may hold at a time, give
/// or take one record.
const PAGE_BYTES: usize = 8 << 20;
/// First byte of this list's cursors.
const CURSOR: u8 = b's';
/// Most projects of a filter.
pub(super) const MAX_FILTER: usize = 1000;

/// See [`crate::Journal::read`].
pub(super) fn read(
    connection: &Connection,
    session: SessionId,
    from: Seq,
    limit: usize,
) -> Result<RecordPage, JournalError> {
    let (n, _) = find(connection, session)?;
    let mut query = connection
        .prepare_cached(
            "SELECT seq, kind, key, bytes FROM record
             WHERE session = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3",
        )
        .map_err(failed)?;
    let from = from.max(1);
    let Ok(start) = i64::try_from(from) else {
        return Ok(RecordPage {
            records: Vec::new(),
            next: None,
        });
    };
    // One more than asked for, to know whether there is more.
    let mut rows = query
        .query(params![n, start, limit as i64 + 1])
        .map_err(failed)?;
    let mut page = RecordPage {
        records: Vec::new(),
        next: None,
    };
    let mut bytes = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        let seq = row::unsigned(row, 0)?;
        let expected = from + page.records.len() as u64;
        if seq != expected {
            return Err(corrupt(format!(
                "session {session} has record {seq} where {expected} belongs"
            )));
        }
        if page.records.len() == limit || bytes >= PAGE_BYTES {
            page.next = Some(seq);
            break;
        }
        let record = record(row, seq)?;
        bytes += record.bytes.len();
        page.records.push(record);
    }
    Ok(page)
}

/// See [`crate::Journal::tail`].
pub(super) fn tail(connection: &Connection, session: SessionId) -> Result<Tail, JournalError> {
    find(connection, session).map(|(_, tail)| tail)
}

/// See [`crate::Journal::delete`].
pub(super) fn delete(connection: &Connection, session: SessionId) -> Result<(), JournalError> {
    let (n, _) = find(connection, session)?;
    let run = |sql: &str, value: &dyn ToSql| {
        connection
            .prepare_cached(sql)
            .and_then(|mut s| s.execute([value]))
            .map_err(failed)
    };
    run("DELETE FROM record WHERE session = ?1", &n)?;
    run("DELETE FROM idempotency WHERE session = ?1", &n)?;
    super::state::delete_session(connection, session)?;
    run("DELETE FROM session WHERE n = ?1", &n)?;
    Ok(())
}

/// See [`crate::Journal::projection`].
pub(super) fn projection(
    connection: &Connection,
    session: SessionId,
) -> Result<Option<SessionRow>, JournalError> {
    let mut query = connection
        .prepare_cached(
            "SELECT id, created_at_ms, project_id, status, updated_at_ms, needs_recovery, body
             FROM session WHERE id = ?1",
        )
        .map_err(failed)?;
    let rows = query.query([session.0.as_bytes()]).map_err(failed)?;
    row::first(rows, session_row)
}

/// See [`crate::Journal::list_sessions`].
pub(super) fn list(
    connection: &Connection,
    filter: &SessionFilter,
) -> Result<Page<SessionRow>, JournalError> {
    let limit = checked_limit(filter.page.limit)?;
    check_filter(filter.projects.len())?;
    let projects: Vec<&str> = filter
        .projects
        .iter()
        .map(|project| project.as_str())
        .collect();
    let projects = row::to_json(&projects)?;
    let (before_ms, before_id) = match &filter.page.cursor {
        Some(cursor) => time_and_id(&decode_cursor(CURSOR, cursor)?)?,
        None => (i64::MAX, [u8::MAX; 16]),
    };
    // Two statements, so that a list of everything walks the index of creation times.
    let which = match filter.projects.as_slice() {
        [] => "?1 = ?1",
        [_] => "project_id = ?1 ->> 0",
        _ => "project_id IN (SELECT value FROM json_each(?1))",
    };
    let sql = format!(
        "SELECT id, created_at_ms, project_id, status, updated_at_ms, needs_recovery, body
         FROM session
         WHERE {which} AND (?2 IS NULL OR status = ?2) AND (created_at_ms, id) < (?3, ?4)
         ORDER BY created_at_ms DESC, id DESC LIMIT ?5"
    );
    let mut query = connection.prepare_cached(&sql).map_err(failed)?;
    let rows = query
        .query(params![
            projects,
            filter.status,
            before_ms,
            before_id,
            limit as i64 + 1
        ])
        .map_err(failed)?;
    let mut items = row::collect(rows, session_row)?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|last| {
        let mut position = last.created_at_ms.to_be_bytes().to_vec();
        position.extend_from_slice(last.session.0.as_bytes());
        encode_cursor(CURSOR, &position)
    });
    Ok(Page { items, next_cursor })
}

/// See [`crate::Journal::sessions_needing_recovery`].
pub(super) fn needing_recovery(
    connection: &Connection,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Vec<SessionId>, JournalError> {
    let after = after.unwrap_or(SessionId::ZERO);
    let mut query = connection
        .prepare_cached(
            "SELECT id FROM session WHERE needs_recovery AND id > ?1 ORDER BY id LIMIT ?2",
        )
        .map_err(failed)?;
    let rows = query
        .query(params![after.0.as_bytes(), limit as i64])
        .map_err(failed)?;
    row::collect(rows, |row| row::uuid(row, 0).map(SessionId))
}

/// See [`crate::Journal::idempotency`].
pub(super) fn idempotency(
    connection: &Connection,
    session: Option<SessionId>,
    command: CommandId,
) -> Result<Option<IdempotencyEntry>, JournalError> {
    let scope = session.unwrap_or(SessionId::ZERO);
    let mut query = connection
        .prepare_cached(
            "SELECT session.id, body_sha256, idempotency.status, response
             FROM idempotency JOIN session ON session.n = idempotency.session
             WHERE scope = ?1 AND command_id = ?2",
        )
        .map_err(failed)?;
    let rows = query
        .query(params![scope.0.as_bytes(), command.0.as_bytes()])
        .map_err(failed)?;
    row::first(rows, |row| {
        let status: Option<u16> = row.get(2).map_err(failed)?;
        let body: Option<Vec<u8>> = row.get(3).map_err(failed)?;
        Ok(IdempotencyEntry {
            session: SessionId(row::uuid(row, 0)?),
            body_sha256: row.get(1).map_err(failed)?,
            response: status.zip(body).map(|(status, body)| StoredResponse {
                status,
                body: Bytes::from(body),
            }),
        })
    })
}

/// Refuses a filter of too many projects.
pub(super) fn check_filter(projects: usize) -> Result<(), JournalError> {
    if projects <= MAX_FILTER {
        return Ok(());
    }
    Err(JournalError::TooLarge {
        what: "the list of projects",
        size: projects as u64,
        limit: MAX_FILTER as u64,
    })
}

fn find(connection: &Connection, session: SessionId) -> Result<(i64, Tail), JournalError> {
    let mut query = connection
        .prepare_cached("SELECT n, next_seq, epoch FROM session WHERE id = ?1")
        .map_err(failed)?;
    let rows = query.query([session.0.as_bytes()]).map_err(failed)?;
    row::first(rows, |row| {
        let tail = Tail {
            next_seq: row::unsigned(row, 1)?,
            epoch: Epoch(row::unsigned(row, 2)?),
        };
        Ok((row.get(0).map_err(failed)?, tail))
    })?
    .ok_or(JournalError::NotFound { what: "session" })
}

fn record(row: &Row<'_>, seq: Seq) -> Result<Record, JournalError> {
    let code: u8 = row.get(1).map_err(failed)?;
    let bytes: Vec<u8> = row.get(3).map_err(failed)?;
    Ok(Record {
        seq,
        kind: RecordKind::from_code(code)
            .ok_or_else(|| corrupt(format!("record {seq} is of unknown kind {code}")))?,
        key: row.get(2).map_err(failed)?,
        bytes: Bytes::from(bytes),
    })
}

fn session_row(row: &Row<'_>) -> Result<SessionRow, JournalError> {
    let body: Vec<u8> = row.get(6).map_err(failed)?;
    Ok(SessionRow {
        session: SessionId(row::uuid(row, 0)?),
        created_at_ms: row.get(1).map_err(failed)?,
        projection: Projection {
            project_id: row::parsed(row, 2)?,
            status: row.get(3).map_err(failed)?,
            updated_at_ms: row.get(4).map_err(failed)?,
            needs_recovery: row.get(5).map_err(failed)?,
            body: Bytes::from(body),
        },
    })
}
