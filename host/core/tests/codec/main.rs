//! The bytes of commands and events: golden files, round trips and everything that is no record.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

mod commands;
mod events;
mod fields;
mod frames;
mod golden;
mod json;
mod refused;
mod rules;
mod samples;
