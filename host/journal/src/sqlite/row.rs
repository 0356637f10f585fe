//! Reading columns into domain types; a value that this store never writes is `Corrupt`.

use super::failure::{corrupt, failed};
use crate::error::JournalError;
use rusqlite::Row;
use std::str::FromStr;
use uuid::Uuid;

/// A 16-byte id.
pub(super) fn uuid(row: &Row<'_>, column: usize) -> Result<Uuid, JournalError> {
    let bytes: [u8; 16] = row.get(column).map_err(failed)?;
    Ok(Uuid::from_bytes(bytes))
}

/// A number that is never negative.
pub(super) fn unsigned(row: &Row<'_>, column: usize) -> Result<u64, JournalError> {
    let number: i64 = row.get(column).map_err(failed)?;
    u64::try_from(number).map_err(|_| corrupt(format!("the number {number} is negative")))
}

/// A number as SQLite stores it.
pub(super) fn signed(number: u64) -> Result<i64, JournalError> {
    i64::try_from(number).map_err(|_| JournalError::Invalid {
        what: "number",
        rule: "it is below 2^63",
    })
}

/// A text that is an id or a name of a closed set.
pub(super) fn parsed<T>(row: &Row<'_>, column: usize) -> Result<T, JournalError>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    let text: String = row.get(column).map_err(failed)?;
    text.parse()
        .map_err(|error: T::Err| corrupt(error.to_string()))
}

/// A JSON text.
pub(super) fn json<T: serde::de::DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
) -> Result<T, JournalError> {
    let text: String = row.get(column).map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| corrupt(error.to_string()))
}

/// A value as JSON text.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, JournalError> {
    serde_json::to_string(value).map_err(|error| JournalError::Unavailable {
        reason: error.to_string(),
    })
}

/// Gathers rows, stopping at the first error.
pub(super) fn collect<T>(
    mut rows: rusqlite::Rows<'_>,
    mut read: impl FnMut(&Row<'_>) -> Result<T, JournalError>,
) -> Result<Vec<T>, JournalError> {
    let mut items = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        items.push(read(row)?);
    }
    Ok(items)
}

/// The first row, if any.
pub(super) fn first<T>(
    mut rows: rusqlite::Rows<'_>,
    read: impl FnOnce(&Row<'_>) -> Result<T, JournalError>,
) -> Result<Option<T>, JournalError> {
    match rows.next().map_err(failed)? {
        Some(row) => read(row).map(Some),
        None => Ok(None),
    }
}
