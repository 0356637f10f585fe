//! harness-engine
