//! What the puppet holds on to between calls, and what it counted.

use crate::Ready;
use crate::exports::harness::provider::provider::{Execution, Prepared};
use crate::harness::provider::host::{AbortSignal, Activity, Channel};
use crate::harness::provider::process::Process;
use std::cell::RefCell;

#[derive(Default)]
struct Kept {
    memory: Vec<Vec<u8>>,
    aborts: Vec<AbortSignal>,
    channels: Vec<(Channel, AbortSignal)>,
    activities: Vec<Activity>,
    processes: Vec<Process>,
    discarded: u32,
    done: u32,
}

thread_local!(static KEPT: RefCell<Kept> = RefCell::default());

fn with<T>(f: impl FnOnce(&mut Kept) -> T) -> T {
    KEPT.with(|kept| f(&mut kept.borrow_mut()))
}

/// Keeps that many MiB.
pub(crate) fn memory(mib: usize) {
    with(|kept| kept.memory.push(vec![1; mib << 20]));
}

pub(crate) fn abort(abort: AbortSignal) {
    with(|kept| kept.aborts.push(abort));
}

pub(crate) fn activity(activity: Activity) {
    with(|kept| kept.activities.push(activity));
}

pub(crate) fn process(process: Process) {
    with(|kept| kept.processes.push(process));
}

pub(crate) fn channel(channel: Channel) {
    let abort = channel.abort();
    with(|kept| kept.channels.push((channel, abort)));
}

pub(crate) fn take_channel() -> Option<(Channel, AbortSignal)> {
    with(|kept| kept.channels.pop())
}

/// A guest resource whose handle is never given away or dropped.
pub(crate) fn forget_a_resource() {
    std::mem::forget(Prepared::new(Ready {
        steps: vec![],
        execution: Execution::Control,
    }));
}

pub(crate) fn discarded() {
    with(|kept| kept.discarded += 1);
}

pub(crate) fn done() {
    with(|kept| kept.done += 1);
}

pub(crate) fn counts() -> String {
    with(|kept| format!("{} discarded, {} turns done", kept.discarded, kept.done))
}
