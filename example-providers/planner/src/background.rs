//! A program that goes on without a turn: `demo:background`.
//!
//! The program is whatever the operator granted as `sleep`; it reads from standard
//! input how many seconds it has to run. The demo starts it and forgets about it:
//! its end comes as a turn of its own, in this instance, a later one, or after a
//! restart of the host.

use harness_guest::background::{Process, ProcessStatus};
use harness_guest::prelude::*;

/// The name under which the operator grants the program.
pub const PROGRAM: &str = "sleep";
/// How much of what it wrote is quoted, in bytes.
const QUOTED: u32 = 256;

/// Starts the program and ends the turn.
///
/// # Errors
///
/// As [`Channel::say`].
pub async fn start(seconds: u32, channel: &Channel) -> Result<(), Error> {
    let started = harness_guest::background::start(PROGRAM, None, format!("{seconds}\n")).await;
    let text = match started {
        Ok(process) => format!(
            "Process {} runs in the background for {seconds} s. This turn is over; the end of the \
             process will start another.",
            process.handle()
        ),
        Err(IoError::Denied(why)) => format!(
            "Nothing was started: {why}. The operator can grant a program `{PROGRAM}` that may run \
             in the background; the README of this demo tells how."
        ),
        Err(error) => format!("Nothing was started: {}", reason(&error)),
    };
    channel.say(text).await?;
    Ok(())
}

/// Tells how a process ended and what it wrote last.
///
/// # Errors
///
/// As [`Channel::say`].
pub async fn tell(process: &Process, channel: &Channel) -> Result<(), Error> {
    let handle = process.handle();
    let text = match process.info().await {
        Ok(info) => {
            let how = match info.status {
                ProcessStatus::Running => "still runs",
                ProcessStatus::Exited => "has exited",
                ProcessStatus::Failed => "has failed",
                ProcessStatus::Stopped => "was stopped",
                ProcessStatus::Lost => "was lost with its host",
            };
            let reason = info.reason.map(|reason| format!(" ({reason})"));
            let wrote = match process.tail(QUOTED).await {
                Ok(output) if output.trim().is_empty() => "It wrote nothing.".to_owned(),
                Ok(output) => format!("It wrote: “{}”.", output.trim()),
                Err(_) => "What it wrote is gone.".to_owned(),
            };
            let reason = reason.unwrap_or_default();
            format!("Background process {handle} {how}{reason}. {wrote}")
        }
        Err(error) => format!("Background process {handle} ended: {}", reason(&error)),
    };
    channel.say(text).await?;
    Ok(())
}

fn reason(error: &IoError) -> String {
    match error {
        IoError::Denied(why)
        | IoError::NotFound(why)
        | IoError::Failed(why)
        | IoError::Limit(why) => format!("{why}."),
        IoError::Closed => "the session is ending.".to_owned(),
    }
}
