//! What a session is: ids, content, commands, events, gates, operations and the provider port.
//!
//! Pure: no I/O, no clock, no randomness, no runtime. Time and ids are inputs; the same inputs
//! give the same outputs.

pub mod abort;
pub mod admin;
pub mod content;
pub mod gate;
pub mod ids;
pub mod operation;
pub mod provider;
pub mod state_store;
pub mod refusal;
pub mod view;
