//! The bounds of a connection.

/// Bounds of a connection. All have defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of one line; a longer one is skipped. Default 8 MiB.
    pub line_bytes: usize,
    /// Bytes that may wait to be written. Default 16 MiB.
    pub outgoing_bytes: usize,
    /// Jobs that may run at once. Default 512.
    pub jobs: usize,
    /// Bytes of standard error kept for the reason of a disconnect. Default 1 KiB.
    pub stderr_bytes: usize,
    /// Milliseconds that a new process has for its handshake. Default 30 s.
    pub handshake_ms: u32,
    /// Milliseconds between an exit and the end of reading, for a descendant that
    /// keeps the pipe open. Default 300.
    pub exit_ms: u32,
    /// Milliseconds that live turns have after the instance's signal fired, below
    /// the host's drain bound. Default 4 s.
    pub drain_ms: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            line_bytes: 8 * 1024 * 1024,
            outgoing_bytes: 16 * 1024 * 1024,
            jobs: 512,
            stderr_bytes: 1024,
            handshake_ms: 30_000,
            exit_ms: 300,
            drain_ms: 4_000,
        }
    }
}
