//! Texts of strangers on a terminal.

/// A text from a component, a store or a peer, without what could steer a terminal; lines stay.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\n' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// The same on one line.
pub(crate) fn printable_line(text: &str) -> String {
    printable(text).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\nb\r"), "a\u{fffd}[2J\nb\u{fffd}");
        assert_eq!(printable_line("a\nb"), "a b");
    }
}
