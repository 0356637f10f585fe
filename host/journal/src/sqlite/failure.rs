//! What an SQLite error means for the caller.

use crate::error::JournalError;
use rusqlite::ErrorCode;

/// An error before the commit: whatever it is, nothing was written.
pub(super) fn failed(error: rusqlite::Error) -> JournalError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => JournalError::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => JournalError::Corrupt {
            what: error.to_string(),
        },
        _ => match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..) => JournalError::Corrupt {
                what: error.to_string(),
            },
            other => JournalError::Unavailable {
                reason: other.to_string(),
            },
        },
    }
}

/// An error of the commit itself. A busy database has written nothing, and on a full disk the last
/// frame of the log, the one that carries the commit mark, did not fit. After any other failed
/// write or sync a later recovery may still find the frames.
pub(super) fn commit_failed(error: rusqlite::Error) -> JournalError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            failed(error)
        }
        _ => JournalError::Ambiguous {
            reason: error.to_string(),
        },
    }
}

/// A stored value that this store never writes.
pub(super) fn corrupt(what: impl Into<String>) -> JournalError {
    JournalError::Corrupt { what: what.into() }
}
