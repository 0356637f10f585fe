//! The suite of every backend.

use crate::support::Directory;

harness_journal::conformance!(Directory::new());
