//! Pages of lists: a limit, and a cursor that names its list.

use harness_journal::{JournalError, MAX_PAGE, Page};

pub(super) fn checked(limit: usize) -> Result<usize, JournalError> {
    if (1..=MAX_PAGE).contains(&limit) {
        return Ok(limit);
    }
    Err(JournalError::InvalidPage {
        what: "limit",
        rule: "it is 1 to 1000",
    })
}

/// What follows the cursor in a sorted list, at most `limit` items of it.
pub(super) fn page<T>(
    list: char,
    items: impl Iterator<Item = (String, T)>,
    limit: usize,
    cursor: Option<&str>,
) -> Result<Page<T>, JournalError> {
    let limit = checked(limit)?;
    let mut items: Vec<(String, T)> = items.collect();
    if let Some(cursor) = cursor {
        let bad = || JournalError::InvalidPage {
            what: "cursor",
            rule: "it is the `next_cursor` of the same list, unchanged",
        };
        let text = hex::decode(cursor)
            .ok()
            .and_then(|b| String::from_utf8(b).ok());
        let text = text.ok_or_else(bad)?;
        let name = text
            .strip_prefix(list)
            .filter(|n| n.len() > 1 && n.len() < 512);
        let name = name.ok_or_else(bad)?;
        items.retain(|(at, _)| at.as_str() > name);
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().filter(|_| more);
    Ok(Page {
        next_cursor: last.map(|(at, _)| hex::encode(format!("{list}{at}"))),
        items: items.into_iter().map(|(_, item)| item).collect(),
    })
}
