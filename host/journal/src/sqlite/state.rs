//! The durable state of providers: core's `StateStore` over the same file.

use super::SqliteStore;
use super::failure::failed;
use crate::error::JournalError;
use harness_core::ids::{HarnessId, SessionId};
use harness_core::provider::BoxFuture;
use harness_core::state_store::{StateError, StateScope, StateStore};
use rusqlite::{Connection, params};

/// Stored numbers of the scopes: never reuse one.
const PROVIDER: u8 = 1;
const PROJECT: u8 = 2;
const SESSION: u8 = 3;

/// A provider's scope as the table names it.
struct Place {
    provider: String,
    kind: u8,
    scope: String,
    key: String,
}

impl Place {
    fn new(provider: &HarnessId, scope: &StateScope, key: &str) -> Self {
        let (kind, scope) = match scope {
            StateScope::Provider => (PROVIDER, String::new()),
            StateScope::Project(project) => (PROJECT, project.to_string()),
            StateScope::Loop(session, of) => (SESSION, format!("{session}/{of}")),
        };
        Self {
            provider: provider.to_string(),
            kind,
            scope,
            key: key.to_owned(),
        }
    }
}

impl StateStore for SqliteStore {
    fn get<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StateError>> {
        let place = Place::new(provider, scope, key);
        Box::pin(async move {
            self.query(move |c| get(c, &place))
                .await
                .map_err(store_failed)
        })
    }

    fn set<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
        value: Vec<u8>,
        limit: u64,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        let place = Place::new(provider, scope, key);
        let session = match scope {
            StateScope::Loop(session, _) => Some(*session),
            _ => None,
        };
        Box::pin(async move {
            let own = (key.len() + value.len()) as u64;
            if own > limit {
                // Before it takes room in the writer's queue.
                return Err(StateError::Limit { bytes: own, limit });
            }
            let bytes = value.len();
            self.write(bytes, move |c| set(c, &place, session, &value, limit))
                .await
                .map_err(store_failed)?
        })
    }

    fn delete<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        let place = Place::new(provider, scope, key);
        Box::pin(async move {
            self.write(0, move |c| delete(c, &place))
                .await
                .map_err(store_failed)
        })
    }
}

/// Removes what every provider stored for a session.
pub(super) fn delete_session(
    connection: &Connection,
    session: SessionId,
) -> Result<(), JournalError> {
    connection
        // Its loops' scopes begin with it; `0` is the character after `/`.
        .prepare_cached("DELETE FROM state WHERE scope_kind = ?1 AND scope >= ?2 AND scope < ?3")
        .and_then(|mut delete| {
            delete.execute(params![
                SESSION,
                format!("{session}/"),
                format!("{session}0")
            ])
        })
        .map(drop)
        .map_err(failed)
}

fn store_failed(error: JournalError) -> StateError {
    StateError::Failed(error.to_string())
}

fn get(connection: &Connection, place: &Place) -> Result<Option<Vec<u8>>, JournalError> {
    let mut query = connection
        .prepare_cached(
            "SELECT value FROM state
             WHERE provider = ?1 AND scope_kind = ?2 AND scope = ?3 AND key = ?4",
        )
        .map_err(failed)?;
    let rows = query
        .query(params![place.provider, place.kind, place.scope, place.key])
        .map_err(failed)?;
    super::row::first(rows, |row| row.get(0).map_err(failed))
}

/// Inner errors are refusals: nothing has been written then.
fn set(
    connection: &Connection,
    place: &Place,
    session: Option<SessionId>,
    value: &[u8],
    limit: u64,
) -> Result<Result<(), StateError>, JournalError> {
    if let Some(session) = session {
        let exists = connection
            .prepare_cached("SELECT 1 FROM session WHERE id = ?1")
            .and_then(|mut query| query.exists([session.0.as_bytes()]))
            .map_err(failed)?;
        if !exists {
            return Ok(Err(StateError::Gone));
        }
    }
    let others: i64 = connection
        .prepare_cached(
            "SELECT coalesce(sum(octet_length(key) + octet_length(value)), 0) FROM state
             WHERE provider = ?1 AND scope_kind = ?2 AND scope = ?3 AND key <> ?4",
        )
        .and_then(|mut query| {
            query.query_row(
                params![place.provider, place.kind, place.scope, place.key],
                |row| row.get(0),
            )
        })
        .map_err(failed)?;
    let bytes = others.unsigned_abs() + (place.key.len() + value.len()) as u64;
    if bytes > limit {
        return Ok(Err(StateError::Limit { bytes, limit }));
    }
    connection
        .prepare_cached(
            "INSERT INTO state (provider, scope_kind, scope, key, value) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE SET value = excluded.value",
        )
        .and_then(|mut upsert| {
            upsert.execute(params![place.provider, place.kind, place.scope, place.key, value])
        })
        .map_err(failed)?;
    Ok(Ok(()))
}

fn delete(connection: &Connection, place: &Place) -> Result<(), JournalError> {
    connection
        .prepare_cached(
            "DELETE FROM state WHERE provider = ?1 AND scope_kind = ?2 AND scope = ?3 AND key = ?4",
        )
        .and_then(|mut delete| {
            delete.execute(params![place.provider, place.kind, place.scope, place.key])
        })
        .map(drop)
        .map_err(failed)
}
