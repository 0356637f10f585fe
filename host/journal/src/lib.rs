//! harness-journal
