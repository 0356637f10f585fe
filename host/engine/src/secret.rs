//! A text that may hold a secret: it is handed to the operating system or a remote origin, and to
//! nothing else.
//!
//! Invariant: neither `Debug` nor any error, log line, report or guest ever shows it.

use std::fmt;
use std::sync::Arc;

/// A resolved value of the operator's configuration that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: impl Into<Arc<str>>) -> Self {
        Self(value.into())
    }

    /// The value, for the one place that hands it on.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_formatted() {
        let shown = format!("{:?}", Secret::new("hunter2"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
