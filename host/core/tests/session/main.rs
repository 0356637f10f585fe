//! What sessions decide, by table and by property, over [`support::Sim`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

#[path = "../support/mod.rs"]
mod support;

mod activities;
mod acts;
mod admission;
mod attach;
mod compaction;
mod contradictions;
mod delegates;
mod delegates_restore;
mod drift;
mod endings;
mod faults;
mod gates;
mod hand_backs;
mod host_gates;
mod loops;
mod matrix_operations;
mod matrix_prompts;
mod matrix_stop;
mod matrix_workspace;
mod native;
mod operations;
mod outcomes;
mod processes;
mod property;
mod queue;
mod refusals;
mod restore;
mod rules;
mod scenes;
mod settings;
mod shutdown;
mod workspace;
