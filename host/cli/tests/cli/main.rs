//! The real binary, as an operator runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod help;
mod provider;
mod serve;
mod support;
mod telemetry;
mod tls;
mod token;
