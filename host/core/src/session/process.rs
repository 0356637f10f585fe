//! Background processes in the durable state: what their events do to it (S97).

use super::state::{BackgroundProcess, MAX_ENDED_PROCESSES, ProcessEnd};
use crate::command::{ProcessNotice, ProcessState};
use crate::event::{Event, EventBody};
use indexmap::IndexMap;
use sha2::{Digest, Sha256};

/// Folds the event of a process into those of its loop.
///
/// # Errors
/// How it contradicts them.
pub(super) fn apply(
    processes: &mut IndexMap<String, BackgroundProcess>,
    event: &Event,
) -> Result<(), &'static str> {
    let (handle, end) = match &event.body {
        EventBody::ProcessStarted {
            process_handle,
            program,
        } => {
            let process = BackgroundProcess {
                program: program.clone(),
                started_at: event.at,
                end: None,
            };
            return match processes.insert(process_handle.clone(), process) {
                None => Ok(()),
                Some(_) => Err("a process starts twice"),
            };
        }
        EventBody::ProcessFinished {
            process_handle,
            state,
            reason,
            exit_code,
        } => (process_handle, (*state, reason, *exit_code)),
        EventBody::ProcessLost {
            process_handle,
            reason,
        } => (process_handle, (ProcessState::Lost, reason, None)),
        _ => return Ok(()),
    };
    let running = processes.get_mut(handle).filter(|p| p.end.is_none());
    let Some(process) = running else {
        return Err("a process ends that does not run");
    };
    let (state, reason, exit_code) = end;
    process.end = Some(ProcessEnd {
        state,
        reason: reason.clone(),
        exit_code,
        at: event.at,
    });
    let ended = processes.values().filter(|p| p.end.is_some()).count();
    if ended > MAX_ENDED_PROCESSES
        && let Some(oldest) = processes.values().position(|p| p.end.is_some())
    {
        processes.shift_remove_index(oldest);
    }
    Ok(())
}

/// What a notification says, as a digest: all of it but when it was said.
pub(super) fn digest(notice: &ProcessNotice) -> [u8; 32] {
    let state = match notice.state {
        ProcessState::Exited => "exited",
        ProcessState::Failed => "failed",
        ProcessState::Stopped => "stopped",
        ProcessState::Lost => "lost",
    };
    let mut digest = Sha256::new()
        .chain_update(notice.command_id.0.as_bytes())
        .chain_update(notice.session_id.0.as_bytes())
        .chain_update(notice.loop_id.0.as_bytes());
    for text in [&notice.process_handle, state, &notice.reason] {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    }
    digest.finalize().into()
}
