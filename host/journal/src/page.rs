//! Paging of lists: a limit and an opaque cursor.

use crate::error::JournalError;

/// Most items of a page.
pub const MAX_PAGE: usize = 1000;
const DEFAULT_PAGE: usize = 100;

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// 1 to [`MAX_PAGE`]; others are `InvalidPage`.
    pub limit: usize,
    /// Where the page before ended; `None` for the first.
    pub cursor: Option<String>,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self {
            limit: DEFAULT_PAGE,
            cursor: None,
        }
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// Items in the list's order.
    pub items: Vec<T>,
    /// Cursor of the next page; `None` at the end.
    pub next_cursor: Option<String>,
}

/// Checks a limit.
pub(crate) fn checked_limit(limit: usize) -> Result<usize, JournalError> {
    if (1..=MAX_PAGE).contains(&limit) {
        Ok(limit)
    } else {
        Err(JournalError::InvalidPage {
            what: "limit",
            rule: "it is 1 to 1000",
        })
    }
}

/// The text of a cursor over a list sorted by these bytes.
pub(crate) fn encode_cursor(list: u8, position: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(position.len() + 1);
    bytes.push(list);
    bytes.extend_from_slice(position);
    hex::encode(bytes)
}

/// The position of a cursor, refused when it is not one of this list.
pub(crate) fn decode_cursor(list: u8, cursor: &str) -> Result<Vec<u8>, JournalError> {
    if cursor.len() > 1024 {
        return Err(bad_cursor());
    }
    match hex::decode(cursor).ok().as_deref() {
        Some([first, rest @ ..]) if *first == list => Ok(rest.to_vec()),
        _ => Err(bad_cursor()),
    }
}

/// The position in a list sorted by time and id.
pub(crate) fn time_and_id(position: &[u8]) -> Result<(i64, [u8; 16]), JournalError> {
    position
        .split_first_chunk::<8>()
        .and_then(|(ms, id)| Some((i64::from_be_bytes(*ms), id.try_into().ok()?)))
        .ok_or_else(bad_cursor)
}

/// The refusal of a cursor.
pub(crate) fn bad_cursor() -> JournalError {
    JournalError::InvalidPage {
        what: "cursor",
        rule: "it is the `next_cursor` of the same list, unchanged",
    }
}
