//! What a session is: ids, content, commands, events, gates, operations and the provider port.
//!
//! Pure: no I/O, no clock, no randomness, no runtime. Time and ids are inputs; the same inputs
//! give the same outputs.

pub mod abort;
pub mod admin;
pub mod codec;
pub mod command;
pub mod configuration;
pub mod content;
pub mod event;
pub mod gate;
pub mod ids;
pub mod operation;
pub mod provider;
pub mod refusal;
pub mod session;
pub mod state_store;
pub mod view;
pub mod workspace;
