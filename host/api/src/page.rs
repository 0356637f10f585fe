//! Lists: `?limit=` and an opaque `?cursor=`, answered as `{items, next_cursor}`.

use crate::problem::Problem;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use harness_journal::{MAX_PAGE, Page, PageRequest};
use serde::{Deserialize, Serialize};

const DEFAULT_PAGE: usize = 100;

/// One page of a list.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Listed<T> {
    /// Items in the list's order.
    pub(crate) items: Vec<T>,
    /// Cursor of the next page; null at the end.
    pub(crate) next_cursor: Option<String>,
}

/// Which page of a list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// Most items, 1 to 1000; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<usize>,
    /// `next_cursor` of the page before, unchanged.
    pub(crate) cursor: Option<String>,
}

/// A limit within 1 to 1000.
pub(crate) fn limit(given: Option<usize>) -> Result<usize, Problem> {
    match given.unwrap_or(DEFAULT_PAGE) {
        limit @ 1..=MAX_PAGE => Ok(limit),
        other => Err(Problem::invalid(format!(
            "`limit` is {other}; 1 to {MAX_PAGE} are taken"
        ))),
    }
}

pub(crate) fn request(
    limit_given: Option<usize>,
    cursor: Option<String>,
) -> Result<PageRequest, Problem> {
    Ok(PageRequest {
        limit: limit(limit_given)?,
        cursor,
    })
}

impl PageQuery {
    /// For a list that the store pages.
    pub(crate) fn stored(self) -> Result<PageRequest, Problem> {
        request(self.limit, self.cursor)
    }

    /// The asked part of a list that is whole in memory. Its cursor names the last item and its
    /// place: when the item is gone by the next page, the place is where the page begins.
    pub(crate) fn of<T>(
        self,
        items: Vec<T>,
        name: impl Fn(&T) -> String,
    ) -> Result<Listed<T>, Problem> {
        let limit = limit(self.limit)?;
        let begin = match self.cursor {
            None => 0,
            Some(cursor) => {
                let (place, id) = read_cursor(&cursor).ok_or_else(|| {
                    Problem::invalid(
                        "`cursor` is not the `next_cursor` of this list; send that unchanged",
                    )
                })?;
                items
                    .iter()
                    .position(|item| name(item) == id)
                    .map_or(place, |found| found + 1)
            }
        };
        let total = items.len();
        let page: Vec<T> = items.into_iter().skip(begin).take(limit).collect();
        let end = begin.saturating_add(page.len());
        let next_cursor = page
            .last()
            .filter(|_| end < total)
            .map(|last| URL_SAFE_NO_PAD.encode(format!("{}:{}", end - 1, name(last))));
        Ok(Listed {
            items: page,
            next_cursor,
        })
    }
}

fn read_cursor(cursor: &str) -> Option<(usize, String)> {
    if cursor.len() > 1024 {
        return None;
    }
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (place, id) = text.split_once(':')?;
    Some((place.parse().ok()?, id.to_owned()))
}

impl<T> Listed<T> {
    /// A page of the store, its items as they go out.
    pub(crate) fn from_page<S>(page: Page<S>, item: impl Fn(S) -> T) -> Self {
        Self {
            items: page.items.into_iter().map(item).collect(),
            next_cursor: page.next_cursor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(items: &[&str], limit: usize, cursor: Option<String>) -> Listed<String> {
        let items = items.iter().map(|&s| s.to_owned()).collect();
        PageQuery {
            limit: Some(limit),
            cursor,
        }
        .of(items, Clone::clone)
        .unwrap()
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_repeat() {
        let first = page(&["a", "b", "c"], 2, None);
        assert_eq!(first.items, ["a", "b"]);
        let second = page(&["a", "b", "c"], 2, first.next_cursor.clone());
        assert_eq!(second.items, ["c"]);
        assert_eq!(second.next_cursor, None);
        // "a" went away meanwhile, then "b" itself.
        assert_eq!(page(&["b", "c"], 2, first.next_cursor.clone()).items, ["c"]);
        assert_eq!(page(&["a", "c"], 2, first.next_cursor).items, ["c"]);
    }

    #[test]
    fn g2_bad_limits_and_cursors_are_refused() {
        for (limit, cursor) in [(0, None), (1001, None), (1, Some("!")), (1, Some("YQ"))] {
            let query = PageQuery {
                limit: Some(limit),
                cursor: cursor.map(str::to_owned),
            };
            assert!(query.of(vec!["a".to_owned()], Clone::clone).is_err());
        }
    }
}
