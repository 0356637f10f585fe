//! Ends every descendant of this process, whatever group or session it moved to.
//!
//! This process is a subreaper: an orphan among its descendants becomes its child, so the tree
//! below it is complete at all times and *no child left* means *no descendant left*. A single walk
//! of `/proc` is not atomic; callers repeat the pass until the kernel says `ECHILD`.
//!
//! A program may fork and exit faster than one walk takes, so a pass begins with direct children,
//! each killed as soon as it is seen: what outlives its parent becomes one.

use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How long to wait between two passes: at first as short as a killed process needs to go, then
/// longer, for processes that the kernel holds.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// Growing pauses between passes.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(PAUSE.0)
    }

    pub(super) fn pause(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(PAUSE.1);
    }
}

/// One line of the process table.
#[derive(Clone, Copy)]
struct Entry {
    parent: i32,
    group: i32,
}

/// Rounds over the direct children in one pass.
const ROUNDS: usize = 16;

/// Kills what is below this process now, except the trees of `spared` children. Tells whether
/// there was anything.
pub(super) fn pass(spared: &HashSet<i32>) -> bool {
    kill_children(spared);
    let table = table();
    let own = getpid().as_raw_nonzero().get();
    let below = descendants(&table, own, spared);
    // Whole groups first: that is atomic. A group never spans two sessions and this process leads
    // its own session, so every group found here belongs to this tree; only this process's own and
    // those of the spared are left out.
    let own_group = getpgrp().as_raw_nonzero().get();
    let spared_groups: HashSet<i32> = spared
        .iter()
        .filter_map(|pid| Some(table.get(pid)?.group))
        .collect();
    let groups: HashSet<i32> = below
        .iter()
        .filter_map(|pid| Some(table.get(pid)?.group))
        .collect();
    for group in groups {
        if group != own_group
            && !spared_groups.contains(&group)
            && let Some(group) = Pid::from_raw(group)
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    for pid in &below {
        kill_one(*pid, |parent| parent == own || below.contains(&parent));
    }
    !below.is_empty()
}

/// Kills the direct children, and those that became one meanwhile. A kernel without the list of
/// children has only the walk.
fn kill_children(spared: &HashSet<i32>) {
    let own = getpid().as_raw_nonzero().get();
    let mut seen = HashSet::new();
    for _ in 0..ROUNDS {
        let known = seen.len();
        for tasks in std::fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .flatten()
        {
            let children =
                std::fs::read_to_string(tasks.path().join("children")).unwrap_or_default();
            for pid in children
                .split_ascii_whitespace()
                .filter_map(|pid| pid.parse().ok())
            {
                if !spared.contains(&pid) && seen.insert(pid) {
                    kill_one(pid, |parent| parent == own);
                }
            }
        }
        if seen.len() == known {
            return;
        }
    }
}

/// Kills one process, unless the number now names a process with another parent: the descriptor
/// is taken first, then the parentage is read again.
fn kill_one(pid: i32, ours: impl Fn(i32) -> bool) {
    let Some(target) = Pid::from_raw(pid) else {
        return;
    };
    let Ok(target) = pidfd_open(target, PidfdFlags::empty()) else {
        return;
    };
    if read_entry(pid).is_some_and(|entry| ours(entry.parent)) {
        let _ = pidfd_send_signal(target, Signal::KILL);
    }
}

/// All processes below `root`, without the trees of `spared`.
fn descendants(table: &HashMap<i32, Entry>, root: i32, spared: &HashSet<i32>) -> HashSet<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, entry) in table {
        children.entry(entry.parent).or_default().push(*pid);
    }
    let mut found = HashSet::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if !spared.contains(child) && found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// The process table, as far as it can be read.
fn table() -> HashMap<i32, Entry> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, read_entry(pid)?)))
        .collect()
}

fn read_entry(pid: i32) -> Option<Entry> {
    parse_entry(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses proc_pid_stat(5). The program's name is in parentheses and may itself contain some, and
/// any other byte: what follows the last one counts.
fn parse_entry(stat: &[u8]) -> Option<Entry> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    Some(Entry {
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_the_process_table() {
        let entry = parse_entry(b"41 (a) R 1 1 (\xff) S 7 9 3 0").unwrap();
        assert_eq!((entry.parent, entry.group), (7, 9));
        assert!(parse_entry(b"41 (a").is_none());
        assert!(parse_entry(b"").is_none());
    }

    #[test]
    fn spared_trees_are_left_out() {
        let entry = |parent| Entry { parent, group: 0 };
        let table = HashMap::from([
            (2, entry(1)),
            (3, entry(2)),
            (4, entry(1)),
            (5, entry(4)),
            (9, entry(8)),
            // A loop cannot happen in one kernel state, but two reads are two states.
            (10, entry(11)),
            (11, entry(10)),
        ]);
        assert_eq!(
            descendants(&table, 1, &HashSet::from([4])),
            HashSet::from([2, 3])
        );
        assert_eq!(
            descendants(&table, 10, &HashSet::new()),
            HashSet::from([10, 11])
        );
    }
}
