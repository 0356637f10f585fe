//! harness-core
