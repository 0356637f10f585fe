//! harness-session
