//! Granted programs: started through a supervisor, ended with everything they started.
//!
//! ```text
//! host ──socket──► supervisor (one a host; own session; subreaper)
//!   └────socket──────► reaper (one a program; own session; subreaper)
//!                         └──► the program (own process group) and its descendants
//! ```
//! Host, supervisor and reaper are one binary: its `main` calls [`supervisor_main`] first. Each
//! side of a socket needs no command to end the other: end of file means *kill everything below
//! you and go*. The kernel closes a dead host's sockets, so `kill -9` of the host is covered, and a
//! subreaper inherits what daemonizes, so a changed session or process group is too. Should a
//! reaper be killed, the supervisor inherits and ends its program.
//!
//! Invariants
//! - A program has exactly the granted environment and three descriptors, standard input, output
//!   and error; it gains no privilege by executing set-user-id files (else it could not be ended).
//! - A [`Process`] that drops takes all descendants of its program with it, and touches no other.
//! - A slot of [`Processes`] is free again only when the last descendant is reaped (N3).
//!
//! Deliberately not here: which instance or invocation a process belongs to, and a defence against
//! a program that attacks supervisor and reaper with the host's own user id: a grant trusts its
//! program with that.
//!
//! Linux only: subreapers, pidfds and `/proc`.

mod background;
mod instance;
mod kill;
mod launch;
mod output;
mod reaper;
mod resolve;
mod ring;
mod running;
mod stdin;
mod supervisor;
mod wire;

pub use background::Backgrounds;
pub use instance::{ProcessLimits, Processes};
pub use launch::Supervisor;
pub use running::Process;

use std::process::ExitCode;

/// Acts as supervisor or reaper when this binary was started as one, and tells the exit code.
///
/// `None`: an ordinary start. Call it first thing in `main`, before any thread or descriptor of
/// the program's own exists.
#[must_use]
pub fn supervisor_main() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    match name.to_str()? {
        wire::SUPERVISOR => Some(supervisor::main()),
        wire::REAPER => Some(reaper::main()),
        _ => None,
    }
}

/// Hides this process's environment and memory from granted programs, which run under the same
/// user id: secrets that configuration took from the environment stay readable in `/proc`
/// otherwise. Costs core dumps. Call it after [`supervisor_main`] in a host's `main`.
///
/// # Errors
/// What the operating system says.
pub fn hide_from_programs() -> std::io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(
        rustix::process::DumpableBehavior::NotDumpable,
    )?)
}
