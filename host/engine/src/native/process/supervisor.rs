//! The child that starts reapers and survives the host just long enough to leave nothing behind.
//!
//! It is small on purpose: it reads one message at a time, executes itself as a reaper, and waits.
//! Reapers end their own programs; the supervisor inherits a program only when its reaper was
//! killed, and then ends it.

use super::kill::{self, Backoff};
use super::reaper::{control_socket, detach};
use super::wire;
use rustix::io::Errno;
use rustix::process::WaitOptions;
use std::collections::HashSet;
use std::io::Write;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The reapers that live. A std mutex: held while one is started, so that a fresh one is never
/// taken for an orphan, and while orphans are looked for.
#[derive(Default)]
struct Reapers {
    live: Mutex<HashSet<i32>>,
    started: Condvar,
}

impl Reapers {
    fn lock(&self) -> MutexGuard<'_, HashSet<i32>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The supervisor's life.
pub(super) fn main() -> ExitCode {
    close_inherited();
    match life() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Whatever descriptors the host's own parent left open end here, so that no program gets them.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<RawFd> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        let _ = nix::unistd::close(fd);
    }
}

fn life() -> std::io::Result<()> {
    let mut socket = control_socket()?;
    detach()?;
    socket.write_all(&[wire::READY])?;
    let reapers = Arc::new(Reapers::default());
    let waiter = reapers.clone();
    std::thread::spawn(move || wait_for_children(&waiter));
    let mut byte = [0; 1];
    // An error is as good as an end of file: without its host the supervisor has no purpose.
    while let Ok(Some(fds)) = wire::receive_with_fds(&socket, &mut byte) {
        for fd in fds {
            // A reaper that cannot be started shows as the end of its socket.
            let _ = start_reaper(&reapers, fd);
        }
    }
    // From here on nobody is spared. The waiting thread reaps; this one kills until all are gone.
    let mut backoff = Backoff::new();
    while kill::pass(&HashSet::new()) {
        backoff.pause();
    }
    Ok(())
}

fn start_reaper(reapers: &Reapers, socket: OwnedFd) -> std::io::Result<()> {
    let mut live = reapers.lock();
    let child = Command::new("/proc/self/exe")
        .arg0(wire::REAPER)
        .env_clear()
        .env(wire::MARKER, "1")
        .stdin(socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    live.extend(i32::try_from(child.id()).ok());
    reapers.started.notify_one();
    Ok(())
}

/// Reaps reapers, and ends what a killed one left behind.
fn wait_for_children(reapers: &Reapers) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                reapers.lock().remove(&pid.as_raw_nonzero().get());
                if status.exit_status() != Some(0) {
                    end_orphans(reapers);
                }
            }
            Err(Errno::CHILD) => {
                let live = reapers.lock();
                drop(reapers.started.wait_while(live, |live| live.is_empty()));
            }
            Ok(None) | Err(_) => {}
        }
    }
}

/// Kills and reaps every child that is no reaper, until there is none.
fn end_orphans(reapers: &Reapers) {
    let mut backoff = Backoff::new();
    loop {
        {
            let mut live = reapers.lock();
            while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
                live.remove(&pid.as_raw_nonzero().get());
            }
            if !kill::pass(&live) {
                return;
            }
        }
        backoff.pause();
    }
}
