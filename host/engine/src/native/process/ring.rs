//! The newest bytes that a background process wrote, with where in its output they stand.
//!
//! Invariant: what is kept costs no more than the limit, however small the writes are: a change
//! between the two streams counts as much as [`SWITCH_BYTES`] bytes.

use harness_core::provider::{OutputChunk, OutputStream, ProcessOutput};
use std::collections::VecDeque;

/// What a change of the stream costs to remember.
const SWITCH_BYTES: usize = 16;

/// See the module.
pub(super) struct Ring {
    limit: usize,
    bytes: VecDeque<u8>,
    /// Runs of bytes of one stream, oldest first; they add up to `bytes`.
    runs: VecDeque<(OutputStream, usize)>,
    /// Bytes written since the start.
    written: u64,
}

impl Ring {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: VecDeque::new(),
            runs: VecDeque::new(),
            written: 0,
        }
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn push(&mut self, stream: OutputStream, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.written += data.len() as u64;
        let kept = data.get(data.len().saturating_sub(self.limit)..);
        let kept = kept.unwrap_or_default();
        self.bytes.extend(kept);
        match self.runs.back_mut() {
            Some((last, length)) if *last == stream => *length += kept.len(),
            _ => self.runs.push_back((stream, kept.len())),
        }
        while self.cost() > self.limit {
            let beyond = self.cost() - self.limit;
            let Some((_, length)) = self.runs.front_mut() else {
                return;
            };
            // A whole run gives its switch back too.
            let dropped = beyond.min(*length);
            *length -= dropped;
            if *length == 0 {
                self.runs.pop_front();
            }
            self.bytes.drain(..dropped);
        }
    }

    fn cost(&self) -> usize {
        self.bytes.len() + SWITCH_BYTES * self.runs.len().saturating_sub(1)
    }

    pub(super) fn read(&self, from: u64, max: usize) -> ProcessOutput {
        let oldest = self.written - self.bytes.len() as u64;
        let from = from.clamp(oldest, self.written);
        let skip = usize::try_from(from - oldest).unwrap_or(usize::MAX);
        let (mut skip, mut left) = (skip, max);
        let mut bytes = self.bytes.iter().skip(skip).copied();
        let mut output = ProcessOutput {
            from,
            next: from,
            chunks: Vec::new(),
        };
        for (stream, length) in &self.runs {
            if left == 0 {
                break;
            }
            let here = length.saturating_sub(skip);
            skip = skip.saturating_sub(*length);
            let taken = here.min(left);
            if taken == 0 {
                continue;
            }
            left -= taken;
            output.next += taken as u64;
            output.chunks.push(OutputChunk {
                stream: *stream,
                data: bytes.by_ref().take(taken).collect(),
            });
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutputStream::{Stderr, Stdout};

    fn text(output: &ProcessOutput) -> Vec<(OutputStream, String)> {
        let chunks = output.chunks.iter();
        chunks
            .map(|c| (c.stream, String::from_utf8(c.data.clone()).unwrap()))
            .collect()
    }

    #[test]
    fn s97_the_newest_bytes_are_kept_with_their_offsets() {
        let mut ring = Ring::new(40);
        ring.push(Stdout, b"one ");
        ring.push(Stderr, b"two ");
        ring.push(Stderr, b"");
        ring.push(Stderr, b"three ");
        let all = ring.read(0, 100);
        assert_eq!((all.from, all.next), (0, 14));
        assert_eq!(
            text(&all),
            [(Stdout, "one ".into()), (Stderr, "two three ".into())]
        );
        let some = ring.read(2, 5);
        assert_eq!((some.from, some.next), (2, 7));
        assert_eq!(text(&some), [(Stdout, "e ".into()), (Stderr, "two".into())]);
        assert_eq!(ring.read(14, 10), ring.read(99, 10), "nothing yet");
        assert_eq!(ring.read(3, 0).chunks, []);
        ring.push(Stderr, &[b'x'; 30]);
        assert_eq!(ring.written(), 44);
        let rest = ring.read(0, 100);
        assert_eq!((rest.from, rest.next), (4, 44), "the first run is gone");
        ring.push(Stdout, &[b'y'; 100]);
        let rest = ring.read(0, 1000);
        assert_eq!((rest.from, rest.next), (104, 144));
        assert_eq!(text(&rest), [(Stdout, "y".repeat(40))]);
    }

    #[test]
    fn s97_a_change_of_stream_at_every_byte_costs_no_more() {
        let mut ring = Ring::new(1000);
        for n in 0..100_000 {
            ring.push(if n % 2 == 0 { Stdout } else { Stderr }, b"z");
            assert!(ring.cost() <= 1000);
            assert_eq!(
                ring.runs.iter().map(|(_, n)| n).sum::<usize>(),
                ring.bytes.len()
            );
        }
        assert!(ring.runs.len() < 100);
        let kept = ring.read(0, usize::MAX);
        assert_eq!(kept.next, 100_000);
        assert_eq!(kept.chunks.len(), ring.runs.len());
    }
}
