//! Ctrl-C and SIGTERM: the first one drains, the second one ends the process at once.
//!
//! Only the processes of providers need care at a sudden end, and they have it: their supervisor
//! ends them when the host is gone, however it went.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status of a process ended by its operator's second signal, as shells report SIGINT.
const IMPATIENT: i32 = 130;

/// Both signals, from the moment it is made.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes the signals over from their default action.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let take = |kind| signal(kind).context("signals cannot be handled");
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
        })
    }

    /// Resolves with the next signal's name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// Ends the process at the next signal.
    pub(crate) async fn exit_at_next(&mut self) -> std::convert::Infallible {
        let name = self.next().await;
        tracing::warn!(signal = name, "asked a second time: ending at once");
        std::process::exit(IMPATIENT)
    }
}
