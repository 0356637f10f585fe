//! Every requirement has a test of its name.
//!
//! The lists are the requirements' own numbers: those that no test can carry are left out with
//! their reason. A test's name begins with the ids it stands for, `r77_s83_…`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_tests::root;
use std::collections::BTreeSet;
use std::path::Path;

/// R46 describes client helpers, R73 is withdrawn; the other numbers that are absent are
/// unassigned. R90 to R112 describe a composer, R120 folding: neither is in this build.
const R: &[u32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
    30, 31, 40, 41, 42, 43, 44, 45, 47, 48, 49, 50, 51, 52, 53, 60, 61, 62, 63, 64, 65, 66, 67, 68,
    69, 70, 71, 72, 74, 75, 76, 77, 78, 79, 80,
];
const N: &[u32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
];
const I: &[u32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 25, 26, 27, 28, 30, 31,
    35, 36, 37, 38, 39, 41, 42, 43, 44, 45,
];
const G: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8];
const W: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9];

/// Ids that have no test yet. An id that gets one has to leave this list.
const KNOWN_MISSING: &[&str] = &[];

/// The ids at the beginning of a function's name.
fn ids_of(name: &str) -> impl Iterator<Item = String> + '_ {
    name.split('_')
        .take_while(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .is_some_and(|first| "rnigwsbe".contains(first))
                && letters
                    .clone()
                    .next()
                    .is_some_and(|second| second.is_ascii_digit())
                && letters.all(|rest| rest.is_ascii_digit() || "abcd".contains(rest))
        })
        .map(|word| {
            word.trim_end_matches(|c: char| c.is_ascii_alphabetic())
                .to_owned()
        })
}

/// Collects the ids of every test below a directory.
fn collect(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if name != "target" {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
            for (index, line) in lines.iter().enumerate() {
                let line = line.strip_prefix("async ").unwrap_or(line);
                let Some(rest) = line.strip_prefix("fn ") else {
                    continue;
                };
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                // A test and no helper: its attribute stands above, comments and others between.
                let above = lines[..index]
                    .iter()
                    .rev()
                    .take_while(|line| line.starts_with("#[") || line.starts_with("//"));
                if above
                    .clone()
                    .any(|line| line.starts_with("#[") && line.contains("test"))
                {
                    found.extend(ids_of(name));
                }
            }
        }
    }
}

#[test]
fn ids_have_tests() {
    let mut found = BTreeSet::new();
    for part in ["host", "guest-sdk", "example-providers", "tests"] {
        collect(&root().join(part), &mut found);
    }
    let wanted = [("r", R), ("n", N), ("i", I), ("g", G), ("w", W)];
    let missing: Vec<String> = wanted
        .iter()
        .flat_map(|(letter, numbers)| {
            numbers
                .iter()
                .map(move |number| format!("{letter}{number}"))
        })
        .filter(|id| !found.contains(id))
        .collect();
    assert_eq!(missing, KNOWN_MISSING, "ids without a test of their name");
}

#[test]
fn names_carry_their_ids_in_front() {
    let ids = |name: &str| ids_of(name).collect::<Vec<_>>();
    assert_eq!(ids("r77_s83_rules_are_kept"), ["r77", "s83"]);
    assert_eq!(ids("n12_stop"), ["n12"]);
    assert_eq!(ids("s69a_interrupt"), ["s69"]);
    assert!(ids("rows_r1_are_not_first").is_empty());
    assert!(ids("a_r1_turn").is_empty());
}
