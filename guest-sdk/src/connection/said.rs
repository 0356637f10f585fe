//! What a process said on its standard error, and why it ended.

use crate::limits::shorten;

/// Why a process ended, with its last words.
pub(super) fn reason(exited: Option<i32>, said: &Tail) -> String {
    let what = match exited {
        Some(code) if code > 128 => {
            format!("the native process was ended by signal {}", code - 128)
        }
        Some(code) => format!("the native process exited with code {code}"),
        None => "the native process closed its output".to_owned(),
    };
    what + &said.quoted()
}

/// The last bytes of standard error.
#[derive(Debug)]
pub(super) struct Tail {
    limit: usize,
    bytes: Vec<u8>,
}

impl Tail {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        let chunk = chunk
            .get(chunk.len().saturating_sub(self.limit)..)
            .unwrap_or_default();
        self.bytes.extend_from_slice(chunk);
        let surplus = self.bytes.len().saturating_sub(self.limit);
        self.bytes.drain(..surplus);
    }

    /// `: "last lines"`, or nothing.
    pub(super) fn quoted(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let text: String = text
            .chars()
            .map(|c| if c == '\n' || !c.is_control() { c } else { ' ' })
            .collect();
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        let last = lines
            .get(lines.len().saturating_sub(5)..)
            .unwrap_or_default()
            .join("\n");
        if last.is_empty() {
            String::new()
        } else {
            format!(": {}", shorten(&last, self.limit))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Tail, reason};

    #[test]
    fn keeps_the_last_lines_without_control_characters() {
        let mut said = Tail::new(64);
        assert_eq!(said.quoted(), "");
        for number in 0..1_000 {
            said.push(format!("line {number}\x1b[0m\r\n").as_bytes());
        }
        let quoted = said.quoted();
        assert!(quoted.ends_with("line 999 [0m"), "{quoted:?}");
        assert!(quoted.len() <= 64 + 2 && !quoted.contains('\x1b'));
        assert_eq!(
            reason(Some(137), &Tail::new(8)),
            "the native process was ended by signal 9"
        );
    }
}
