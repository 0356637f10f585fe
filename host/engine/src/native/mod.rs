//! The ways out of the sandbox: granted programs ([`process`]) and granted origins ([`http`]).
//!
//! Plain Rust, without wasmtime: `imports` binds these types to the contract's interfaces.
//!
//! Invariants
//! - Only what a grant names is reached; a secret goes to the program or origin it was granted for
//!   and nowhere else.
//! - Whatever is started here ends with its handle, its instance and the host.
//! - Bytes move at the reader's pace: neither a program nor a server makes the host grow.

mod error;
pub mod http;
pub mod process;
mod stream;

pub use error::IoError;
pub use stream::{ByteStream, End};
