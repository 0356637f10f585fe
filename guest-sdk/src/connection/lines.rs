//! Bytes into lines, with a bound.
//!
//! A peer may never send a newline, or send ten megabytes before one. The
//! splitter keeps at most the bound; a longer line is reported once, by its first
//! and last bytes, and skipped to its newline, so that the stream stays usable.

/// Bytes kept of either end of a line that is too long.
const EDGE_BYTES: usize = 512;

/// One line without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Within the bound. Carriage returns before the newline are stripped.
    Whole(Vec<u8>),
    /// Beyond the bound and dropped.
    Oversize(Oversize),
}

/// What is known of a line that was too long to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oversize {
    /// Bytes of the whole line.
    pub bytes: usize,
    /// The bound it broke, in bytes.
    pub limit: usize,
    /// Its first bytes, at most 512.
    pub head: Vec<u8>,
    /// Its last bytes, at most 512; may overlap `head`.
    pub tail: Vec<u8>,
}

/// Splits a byte stream into lines of at most `limit` bytes.
#[derive(Debug)]
pub struct LineSplitter {
    limit: usize,
    buffer: Vec<u8>,
    skipping: Option<Oversize>,
}

impl LineSplitter {
    /// A splitter for lines of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            buffer: Vec::new(),
            skipping: None,
        }
    }

    /// Takes the next bytes and gives every line they complete to `line`.
    pub fn push(&mut self, mut bytes: &[u8], line: &mut impl FnMut(Line)) {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = bytes.split_at(at);
            self.extend(head);
            self.complete(line);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.extend(bytes);
    }

    /// The stream ended: a last line without a newline is a line too.
    pub fn finish(&mut self, line: &mut impl FnMut(Line)) {
        if !self.buffer.is_empty() || self.skipping.is_some() {
            self.complete(line);
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        if let Some(skipped) = &mut self.skipping {
            skipped.bytes += bytes.len();
            keep_tail(&mut skipped.tail, bytes);
            return;
        }
        if self.buffer.len() + bytes.len() <= self.limit {
            self.buffer.extend_from_slice(bytes);
            return;
        }
        let held = std::mem::take(&mut self.buffer);
        let mut head: Vec<u8> = held.iter().take(EDGE_BYTES).copied().collect();
        head.extend(bytes.iter().take(EDGE_BYTES - head.len()));
        let mut tail = Vec::new();
        keep_tail(&mut tail, &held);
        keep_tail(&mut tail, bytes);
        self.skipping = Some(Oversize {
            bytes: held.len() + bytes.len(),
            limit: self.limit,
            head,
            tail,
        });
    }

    fn complete(&mut self, line: &mut impl FnMut(Line)) {
        if let Some(skipped) = self.skipping.take() {
            line(Line::Oversize(skipped));
            return;
        }
        let mut whole = std::mem::take(&mut self.buffer);
        while whole.last() == Some(&b'\r') {
            whole.pop();
        }
        line(Line::Whole(whole));
    }
}

/// Appends to `tail` and keeps its last [`EDGE_BYTES`].
fn keep_tail(tail: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = bytes
        .get(bytes.len().saturating_sub(EDGE_BYTES)..)
        .unwrap_or_default();
    tail.extend_from_slice(bytes);
    let surplus = tail.len().saturating_sub(EDGE_BYTES);
    tail.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(limit: usize, chunks: &[&[u8]]) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut splitter = LineSplitter::new(limit);
        for chunk in chunks {
            splitter.push(chunk, &mut |line| lines.push(line));
        }
        splitter.finish(&mut |line| lines.push(line));
        lines
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_do_not_depend_on_chunk_borders() {
        let expected = vec![whole("one"), whole(""), whole("two"), whole("three")];
        let text = b"one\n\ntwo\r\nthree";
        for size in 1..=text.len() {
            let chunks: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(split(64, &chunks), expected, "chunks of {size}");
        }
    }

    #[test]
    fn an_oversize_line_is_reported_once_and_the_next_line_survives() {
        for size in [1, 7, 4096] {
            let text = [b"HEAD".as_slice(), &vec![b'x'; 5000], b"TAIL\nnext\n"].concat();
            let chunks: Vec<&[u8]> = text.chunks(size).collect();
            let lines = split(1000, &chunks);
            let [Line::Oversize(long), next] = lines.as_slice() else {
                panic!("unexpected lines {lines:?}");
            };
            assert_eq!((long.bytes, long.limit), (5008, 1000));
            assert!(long.head.starts_with(b"HEAD") && long.head.len() == EDGE_BYTES);
            assert!(long.tail.ends_with(b"TAIL") && long.tail.len() == EDGE_BYTES);
            assert_eq!(*next, whole("next"));
        }
    }

    #[test]
    fn an_endless_line_is_reported_at_the_end_of_the_stream() {
        let lines = split(10, &[&[b'x'; 100]]);
        assert!(matches!(lines.as_slice(), [Line::Oversize(long)] if long.bytes == 100));
    }

    #[test]
    fn memory_stays_within_the_bound() {
        let mut splitter = LineSplitter::new(1024);
        for _ in 0..10_000 {
            splitter.push(&[b'x'; 1000], &mut |_| panic!("no line yet"));
            assert!(splitter.buffer.capacity() <= 4096);
        }
    }
}
