//! What `.gitignore` files exclude.
//!
//! Only `.gitignore` files inside the workspace count: no global or parent files, and none that
//! is a symlink. Patterns alone decide, whether or not git tracks the file. Nested files win over
//! outer ones, later lines over earlier ones, and nothing below an excluded directory can be
//! included again: a walk does not descend there. A line that is no UTF-8 or no valid pattern
//! matches nothing, as in git.
//!
//! A rewind looks at two generations of these files at once, what is there now and what the
//! snapshot has; each is a [`View`], and what either excludes is left alone.

use crate::error::{WorkspaceError, show};
use crate::limits::{MAX_RULES, MAX_RULES_BYTES};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Patterns of one file.
pub(crate) fn compile(path: &[u8], bytes: &[u8]) -> Result<Arc<Gitignore>, WorkspaceError> {
    let refused = |reason: String| WorkspaceError::Rules {
        path: show(path),
        reason,
    };
    if bytes.len() as u64 > MAX_RULES_BYTES {
        return Err(refused(format!("it has more than {MAX_RULES_BYTES} bytes")));
    }
    if bytes.iter().filter(|b| **b == b'\n').count() >= MAX_RULES {
        return Err(refused(format!("it has more than {MAX_RULES} lines")));
    }
    let mut builder = GitignoreBuilder::new("");
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    for line in bytes.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Ok(line) = std::str::from_utf8(line) {
            // An invalid pattern matches nothing.
            drop(builder.add_line(None, line));
        }
    }
    let compiled = builder.build();
    compiled
        .map(Arc::new)
        .map_err(|error| refused(error.to_string()))
}

/// Rules that hold in a directory, the innermost first.
#[derive(Debug, Clone, Default)]
pub(crate) struct View(Option<Arc<Level>>);

#[derive(Debug)]
struct Level {
    /// Bytes of a path before what these patterns are matched with.
    base: usize,
    patterns: Arc<Gitignore>,
    outer: View,
}

impl View {
    /// With the patterns of this directory's own file.
    pub(crate) fn with(&self, directory: &[u8], patterns: Arc<Gitignore>) -> Self {
        if patterns.is_empty() {
            return self.clone();
        }
        let base = match directory.len() {
            0 => 0,
            length => length + 1,
        };
        Self(Some(Arc::new(Level {
            base,
            patterns,
            outer: self.clone(),
        })))
    }

    pub(crate) fn excludes(&self, path: &[u8], is_directory: bool) -> bool {
        let mut level = &self.0;
        while let Some(rules) = level {
            let below = path.get(rules.base..).unwrap_or_default();
            let below = Path::new(OsStr::from_bytes(below));
            match rules.patterns.matched(below, is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => level = &rules.outer.0,
            }
        }
        false
    }
}

/// The `.gitignore` files of a snapshot, by directory.
pub(crate) type Generation = HashMap<Vec<u8>, Arc<Gitignore>>;
