//! What only the live layer can show: a [`support::World`] is a host over a real store and
//! scripted harnesses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a panic is a failed test"
)]

#[path = "../support/mod.rs"]
mod support;

mod activities;
mod crash;
mod creation;
mod delegates;
mod drift;
mod fairness;
mod faults;
mod gates;
mod host_gates;
mod idempotency;
mod lease;
mod loops;
mod native;
mod operations;
mod outcomes;
mod parking;
mod processes;
mod queue;
mod race_operations;
mod race_prompts;
mod race_stop;
mod scenes;
mod shutdown;
mod subscriptions;
mod surface;
mod workspace;
