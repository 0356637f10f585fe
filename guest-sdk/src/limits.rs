//! Bounds of the contract, so that a provider can refuse before the host does.
//!
//! The host enforces every one of them; a value beyond its bound is rejected
//! whole, and most breaches count as a contract violation (W3, W4, R7).

/// Commands in one command state.
pub const COMMANDS: usize = 256;
/// Modes in one command state.
pub const MODES: usize = 64;
/// Actions of one mode.
pub const ACTIONS: usize = 64;
/// Reserved arguments of one command.
pub const RESERVED_ARGUMENTS: usize = 64;
/// Bytes of an id, label, name, title or icon. Never empty.
pub const NAME_BYTES: usize = 128;
/// Bytes of a command's description, argument help or disabled reason, of a
/// mode's state or tag text, of a note.
pub const TEXT_BYTES: usize = 4 * 1024;
/// Bytes of a mode's description, of an action argument's value and of one
/// message part.
pub const PART_BYTES: usize = 256 * 1024;
/// Bytes of an outcome's message.
pub const OUTCOME_BYTES: usize = 64 * 1024;
/// Bytes of a refusal's text. The crate shortens longer ones.
pub const REFUSAL_BYTES: usize = 4 * 1024;
/// Bytes of one write to the conversation.
pub const WRITE_BYTES: usize = 1024 * 1024;
/// Calls of one channel that may be pending at once.
pub const PENDING_CALLS: usize = 64;
/// Activities open at once in one instance.
pub const ACTIVITIES: usize = 8;
/// Milliseconds an aborted call has to return before its instance is ended.
pub const DRAIN_MS: u32 = 5_000;

/// `text` cut to at most `bytes`, at a character boundary, with an ellipsis when
/// something was cut.
#[must_use]
pub fn shorten(text: &str, bytes: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = (0..=bytes.saturating_sub(MARK.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let mut short = text.get(..end).unwrap_or_default().to_owned();
    if bytes >= MARK.len() {
        short.push_str(MARK);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn shortens_at_a_character_boundary() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("äöüß", 7), "äö…");
        assert_eq!(shorten("abcdef", 5), "ab…");
        assert_eq!(shorten("abcdef", 2), "");
    }
}
