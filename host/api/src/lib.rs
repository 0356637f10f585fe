//! harness-api
