//! The HTTP plane: one API over sessions, providers and tokens for every client.
//!
//! [`router`] turns an [`ApiState`] into an axum router; whoever owns the listener serves it and
//! calls [`ApiState::close`] when it stops, so that event streams end. The crate parses at its edge into domain types, authenticates, bounds, and translates refusals into
//! problem documents (RFC 9457). What a session may do is decided below, behind [`Plane`].
//!
//! Invariants:
//! - Every answer carries `x-request-id`; every answer that is not a success is a problem
//!   document with a stable code (S110).
//! - A request body or query is refused when it holds anything that is not understood (G2).
//! - Work that changes something runs in a task of its own: a client that leaves fires a signal
//!   and never drops the work half done (R69).
//! - An event is serialised once, however many subscribers it has.

mod auth;
mod blocks;
mod code;
mod edge;
mod extract;
mod flight;
mod frame;
mod host;
mod idempotency;
mod json;
mod openapi;
mod page;
pub mod plane;
mod policy;
mod problem;
mod roots;
mod router;
mod routes;
mod sse;
mod state;
mod trace;

pub use auth::{hash_token, new_token};
pub use code::Code;
pub use openapi::document;
pub use plane::Plane;
pub use policy::Policy;
pub use problem::ProblemDocument;
pub use router::router;
pub use state::{ApiParts, ApiState, JoinTrace, RenderMetrics};
