//! The embedded store: the conformance suite, and what is its own: files, locks, crashes, groups.

// Helpers of tests: a panic here is a failed test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod support;

mod conformance;
mod durability;
mod fault;
mod full;
mod group;
mod opening;
mod properties;
