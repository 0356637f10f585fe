//! The store, from outside: real directories, real signals, real damage.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic in a test is a failed test"
)]

mod checkpoint;
mod collect;
mod damage;
mod faults;
mod kill;
mod property;
mod rewind;
mod rules;
mod support;
