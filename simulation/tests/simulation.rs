//! The simulation in the tests: its runs repeat, and a bounded number of seeds breaks no rule.
#![allow(clippy::panic, reason = "a panic is a failed test")]

use harness_simulation::{Options, Report, run};
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A run of its own thread: one whose tasks never wait does not come to its end.
fn watched(seed: u64) -> Report {
    let (done, report) = mpsc::channel();
    std::thread::spawn(move || done.send(run(seed, Options::default())));
    let report = report.recv_timeout(Duration::from_secs(30));
    report.unwrap_or_else(|_| panic!("seed {seed} does not come to its end: a task never waits"))
}

/// The same seed is the same run, line by line.
#[test]
fn a_seed_replays_exactly() {
    for seed in 0..40 {
        let (one, other) = (watched(seed), watched(seed));
        let first = one.last.iter().zip(&other.last).find(|(a, b)| a != b);
        assert_eq!(first, None, "seed {seed}");
        assert_eq!(
            (one.digest, one.lines),
            (other.digest, other.lines),
            "seed {seed}"
        );
    }
}

/// Different seeds are different runs.
#[test]
fn seeds_differ() {
    let digests: BTreeSet<_> = (0..20).map(|seed| watched(seed).digest).collect();
    assert_eq!(digests.len(), 20);
}

/// What the rules are about happens: a simulation that meets nothing proves nothing.
#[test]
fn everything_comes_up() {
    let mut seen = BTreeSet::new();
    for seed in 0..150 {
        seen.extend(watched(seed).kinds);
        if seen.len() >= WANTED.len() && WANTED.iter().all(|kind| seen.contains(kind)) {
            return;
        }
    }
    let missing: Vec<_> = WANTED.iter().filter(|kind| !seen.contains(*kind)).collect();
    panic!("never seen: {missing:?}");
}

const WANTED: [&str; 35] = [
    "ActiveLoopChanged",
    "CompactWaiterRejected",
    "CompactWaiterResolved",
    "CompactionCommitted",
    "CompactionRejected",
    "ConfigurationAdopted",
    "DelegateDeliveryStateChanged",
    "DelegateRequestAccepted",
    "GateOpened",
    "GateResolved",
    "InputCancelled",
    "InputHeld",
    "InputReleased",
    "LoopIdle",
    "LoopInferenceChanged",
    "LoopModeChanged",
    "LoopStarted",
    "NativeOperationResolved",
    "NativeSessionBound",
    "PermissionDecided",
    "PermissionRequested",
    "RestoreDone",
    "RestoreStarted",
    "SessionActive",
    "SessionIdle",
    "SessionParamsChanged",
    "SessionStarted",
    "SessionStopped",
    "StepDone",
    "TurnDone",
    "TurnFailed",
    "TurnFoldedInto",
    "TurnInterrupted",
    "TurnRejected",
    "TurnStarted",
];

/// I38, I39 and every rule of `check`, over as many seeds as fit into the time of a test.
#[test]
fn i38_i39_s45_s54_no_seed_breaks_a_rule() {
    let begun = Instant::now();
    for seed in 0..1_000 {
        let report = watched(seed);
        if let Some(violation) = report.violation {
            let last = report.last.join("\n");
            panic!("{last}\nseed {seed}: {violation}\nagain: just simulate --seed {seed}");
        }
        if begun.elapsed() > Duration::from_secs(40) {
            assert!(seed >= 50, "only {seed} seeds in {:?}", begun.elapsed());
            return;
        }
    }
}
