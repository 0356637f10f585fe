//! The router, driven without a socket over a recording double of the layer below.
//!
//! The catalogue is the real embedded store; sessions, harnesses and providers are scripted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic in a test is its failure, in its helpers too"
)]

mod auth;
mod commands;
mod document;
mod guide;
mod host_gates;
mod idempotency;
mod journey;
mod lists;
mod loops;
mod refusals;
mod snapshots;
mod streams;
mod support;
