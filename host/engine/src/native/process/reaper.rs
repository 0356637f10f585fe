//! The child that runs one program and ends all that came of it.
//!
//! Two threads. One waits for children: the kernel hands it every orphan of the tree, and when it
//! says that no child is left, none is. The other waits for the host's end of file, then kills,
//! pass after pass, until the first thread ends the process.

use super::kill::{self, Backoff};
use super::wire::{self, Launch, Report};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, set_child_subreaper, setsid};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The reaper's life.
pub(super) fn main() -> ExitCode {
    match life() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Its end of the host's socket, which arrives as standard input.
pub(super) fn control_socket() -> std::io::Result<UnixStream> {
    Ok(UnixStream::from(
        std::io::stdin().as_fd().try_clone_to_owned()?,
    ))
}

/// What supervisor and reaper both do first: their own session, heir of orphans, unreadable to
/// others of the same user (a launch holds secrets).
pub(super) fn detach() -> std::io::Result<()> {
    setsid()?;
    set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    std::env::set_current_dir("/")
}

fn life() -> std::io::Result<()> {
    let mut socket = control_socket()?;
    detach()?;
    // Without it a set-user-id program below could not be killed.
    rustix::thread::set_no_new_privs(true)?;
    socket.write_all(&[wire::READY])?;
    let Some((launch, stdio)) = wire::receive_launch(&socket)? else {
        return Ok(());
    };
    let program = match start(launch, stdio) {
        Ok(program) => program,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
            report(&socket, Report::Refused(errno));
            return Ok(());
        }
    };
    report(&socket, Report::Started);
    let reports = socket.try_clone()?;
    std::thread::spawn(move || {
        reap(program, &reports);
        std::process::exit(0);
    });
    wait_for_end_of_file(&socket);
    // Where the host may: ahead of a program that keeps every processor busy with forking.
    let _ = rustix::process::setpriority_process(None, -20);
    let mut backoff = Backoff::new();
    loop {
        kill::pass(&HashSet::new());
        backoff.pause();
    }
}

/// Starts the program in a process group of its own and keeps no descriptor of it.
fn start(launch: Launch, [stdin, stdout, stderr]: [OwnedFd; 3]) -> std::io::Result<Pid> {
    let child = Command::new(launch.program)
        .args(launch.args)
        .env_clear()
        .envs(launch.env)
        .current_dir(launch.cwd)
        .process_group(0)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| std::io::Error::from(Errno::SRCH))
}

/// Reaps children until none is left.
fn reap(program: Pid, socket: &UnixStream) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => {
                report(socket, Report::Exited(exit_code(status)))
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    report(socket, Report::Reaped);
}

/// Exit code, or 128 + signal, as shells tell it.
fn exit_code(status: WaitStatus) -> i32 {
    status
        .exit_status()
        .or_else(|| Some(128 + status.terminating_signal()?))
        .unwrap_or(-1)
}

/// A host that no longer listens is no error: its end of file follows.
fn report(mut socket: &UnixStream, report: Report) {
    let _ = socket.write_all(&report.encode());
}

/// The host never sends anything after the launch.
fn wait_for_end_of_file(mut socket: &UnixStream) {
    let mut byte = [0; 1];
    loop {
        match socket.read(&mut byte) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
