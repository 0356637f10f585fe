//! Bounds of what a person sends: prompt blocks, titles, names.

use crate::problem::Problem;
use harness_core::content::Block;

/// Most blocks of one input.
const MAX_BLOCKS: usize = 256;
const MAX_NAME: usize = 1024;
const MAX_MEDIA_TYPE: usize = 256;
const MAX_PATH: usize = 4096;
/// Longest title, in bytes.
const MAX_TITLE: usize = 1024;

/// Checks the blocks of a prompt.
pub(crate) fn check(blocks: &[Block], field: &str) -> Result<(), Problem> {
    if blocks.is_empty() {
        return Err(Problem::invalid(format!(
            "`{field}` is empty; send at least one block"
        )));
    }
    if blocks.len() > MAX_BLOCKS {
        return Err(Problem::invalid(format!(
            "`{field}` has {} blocks; at most {MAX_BLOCKS} are taken",
            blocks.len()
        )));
    }
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("{field}[{index}]");
        match block {
            Block::Text { text } if text.is_empty() => {
                return Err(Problem::invalid(format!(
                    "`{place}.text` is empty; leave the block out"
                )));
            }
            Block::Text { .. } => {}
            Block::File {
                name,
                media_type,
                uri,
            } => {
                text(&format!("{place}.name"), name, MAX_NAME)?;
                text(&format!("{place}.media_type"), media_type, MAX_MEDIA_TYPE)?;
                uri_of_file(&place, uri)?;
            }
        }
    }
    Ok(())
}

/// A `data:` URI, or a path that stays inside the workspace.
fn uri_of_file(place: &str, uri: &str) -> Result<(), Problem> {
    if uri
        .get(..5)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
    {
        return Ok(());
    }
    text(&format!("{place}.uri"), uri, MAX_PATH)?;
    let scheme = uri.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    let leaves = uri.starts_with(['/', '\\'])
        || uri.contains('\0')
        || uri.split(['/', '\\']).any(|part| part == "..");
    if scheme || leaves {
        return Err(Problem::invalid(format!(
            "`{place}.uri` is neither a `data:` URI nor a path inside the workspace; upload the content as `data:`, or name a relative path without `..`"
        )));
    }
    Ok(())
}

/// A text of 1 byte to `limit` bytes.
pub(crate) fn text(field: &str, value: &str, limit: usize) -> Result<(), Problem> {
    match value.len() {
        0 => Err(Problem::invalid(format!("`{field}` is empty"))),
        n if n > limit => Err(Problem::invalid(format!(
            "`{field}` has {n} bytes; at most {limit} are taken"
        ))),
        _ => Ok(()),
    }
}

/// A session's title; it may be empty.
pub(crate) fn title(value: &str) -> Result<(), Problem> {
    if value.len() > MAX_TITLE {
        return Err(Problem::invalid(format!(
            "`title` has {} bytes; at most {MAX_TITLE} are taken",
            value.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(uri: &str) -> Vec<Block> {
        vec![Block::File {
            name: "n".into(),
            media_type: "text/plain".into(),
            uri: uri.into(),
        }]
    }

    #[test]
    fn s103_blocks_are_bounded_and_paths_stay_inside() {
        assert!(check(&[], "blocks").is_err());
        assert!(
            check(
                &[Block::Text {
                    text: String::new()
                }],
                "blocks"
            )
            .is_err()
        );
        assert!(
            check(
                &vec![Block::Text { text: "a".into() }; MAX_BLOCKS + 1],
                "blocks"
            )
            .is_err()
        );
        for (uri, ok) in [
            ("data:text/plain;base64,YQ==", true),
            ("src/main.rs", true),
            ("a..b/c", true),
            ("/etc/passwd", false),
            ("../x", false),
            ("a/../../x", false),
            ("a\\..\\x", false),
            ("https://example.com/x", false),
            ("file:///etc/passwd", false),
            ("", false),
        ] {
            assert_eq!(check(&file(uri), "blocks").is_ok(), ok, "{uri}");
        }
    }
}
