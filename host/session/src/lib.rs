//! Live sessions: one actor each, over `harness-core`'s decisions, a journal and a provider.

mod requests;

pub use requests::*;
