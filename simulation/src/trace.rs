//! What happened in a run, line by line: a digest to compare two runs by, and the last lines to
//! read when one went wrong.

use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Lines kept to be read.
const KEPT: usize = 400;

/// The trace of a run.
pub struct Trace {
    inner: Mutex<Inner>,
    /// Whether every line is printed as it comes.
    echo: bool,
}

struct Inner {
    digest: Sha256,
    last: VecDeque<String>,
    lines: u64,
}

impl Trace {
    /// An empty trace.
    #[must_use]
    pub fn new(echo: bool) -> Self {
        Self {
            inner: Mutex::new(Inner {
                digest: Sha256::new(),
                last: VecDeque::new(),
                lines: 0,
            }),
            echo,
        }
    }

    /// Adds a line.
    pub fn note(&self, line: String) {
        if self.echo {
            println!("{line}");
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.digest.update(line.as_bytes());
        inner.digest.update(b"\n");
        inner.lines += 1;
        if inner.last.len() == KEPT {
            inner.last.pop_front();
        }
        inner.last.push_back(line);
    }

    /// Digest over all lines.
    #[must_use]
    pub fn digest(&self) -> String {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        hex::encode(inner.digest.clone().finalize())
    }

    /// How many lines there are.
    #[must_use]
    pub fn lines(&self) -> u64 {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.lines
    }

    /// The last lines.
    #[must_use]
    pub fn last(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.last.iter().cloned().collect()
    }
}
