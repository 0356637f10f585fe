//! Requests to granted origins, with headers and secrets that the host adds.
//!
//! Invariants
//! - A request goes to an origin that was granted (scheme, host and port, exactly), at an address
//!   that is public or named by that grant; redirects are followed here, each hop checked anew.
//! - Injected headers go to the origin they were granted for, only in a request that the guest
//!   addressed to it; the guest can neither read nor replace them.
//! - No proxy, cookie store, credential helper or retry of the host's environment takes part.
//!
//! Deliberately not here: caching, decompression (the guest gets the bytes as sent), WebSockets.

mod address;
mod body;
mod fetch;
mod headers;
mod instance;
mod origin;
mod resolver;

pub use instance::{Http, HttpLimits};
pub use origin::{GrantError, Origins};

use crate::native::{ByteStream, End};
use bytes::Bytes;
use std::time::Duration;

/// What a guest asks for.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// A method token; `CONNECT` and `TRACE` are refused.
    pub method: String,
    /// Absolute `http` or `https` URL, at most 8 KiB.
    pub url: String,
    /// At most 64 headers and 32 KiB of them.
    pub headers: Vec<(String, String)>,
    /// At most [`HttpLimits::request_bytes`].
    pub body: Bytes,
    /// Bound of the whole exchange, the response body included. None: the response must begin
    /// within [`HttpLimits::head_timeout`], its body may take as long as it is read.
    pub timeout: Option<Duration>,
}

/// What a granted origin answered.
#[derive(Debug)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Headers in order, without those of the connection; bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// The body, as fast as it is read.
    pub body: ByteStream,
    /// Why the body ended; `limit` when it was too large or took too long.
    pub done: End,
}
