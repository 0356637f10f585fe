//! Every requirement has a test of its name.
//!
//! Which ids there are is in `requirements.toml`, with those that no test can carry and those that
//! have none yet. A test's name begins with the ids it stands for, `r77_s83_…`; the cases of a
//! suite that a macro makes tests of count where the macro lists them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_tests::root;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where tests are: the host's crates, the guests', and those beside them.
const PARTS: [&str; 6] = [
    "host",
    "guest-sdk",
    "example-providers",
    "bench",
    "simulation",
    "tests",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirements {
    ids: BTreeMap<char, Vec<String>>,
    exempt: BTreeMap<String, String>,
    open: BTreeMap<String, String>,
}

impl Requirements {
    fn read() -> Self {
        let text = std::fs::read_to_string(root().join("tests/requirements.toml")).unwrap();
        toml::from_str(&text).unwrap()
    }

    /// Every id, `s17a`.
    fn all(&self) -> BTreeSet<String> {
        let of = |letter: &char, numbers: &String| -> Vec<String> {
            let Some((from, to)) = numbers.split_once('-') else {
                return vec![format!("{letter}{numbers}")];
            };
            let (from, to): (u32, u32) = (from.parse().unwrap(), to.parse().unwrap());
            (from..=to).map(|n| format!("{letter}{n}")).collect()
        };
        let lists = self.ids.iter();
        let each = lists.flat_map(|(letter, list)| list.iter().flat_map(|n| of(letter, n)));
        each.collect()
    }
}

/// The ids at the beginning of a test's name. A letter behind a number tells the variants of one
/// id apart, unless there is an id of that name.
fn ids_of(name: &str, all: &BTreeSet<String>) -> Vec<String> {
    let is_id = |word: &&str| {
        let mut letters = word.chars();
        letters.next().is_some_and(|l| "rnigwsbe".contains(l))
            && letters.clone().next().is_some_and(|l| l.is_ascii_digit())
            && letters.all(|l| l.is_ascii_digit() || "abcd".contains(l))
    };
    let words = name.split('_').take_while(is_id);
    let id = |word: &str| {
        if all.contains(word) {
            return word.to_owned();
        }
        word.trim_end_matches(|l: char| l.is_ascii_alphabetic())
            .to_owned()
    };
    words.map(id).collect()
}

/// The names of the tests in a file.
fn tests_in(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut names = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let Some(rest) = line.strip_prefix("fn ") else {
            continue;
        };
        // A test and no helper: its attribute stands above, comments and others between.
        let above = lines[..index].iter().rev();
        let mut above = above.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        if above.any(|line| line.starts_with("#[") && line.contains("test")) {
            names.extend(rest.split(['(', '<']).next());
        }
    }
    // `module: case,` of a macro that makes a test of each.
    if text.contains("macro_rules! conformance") {
        let cases = lines.iter().filter_map(|line| line.strip_suffix(','));
        names.extend(
            cases
                .filter_map(|case| case.split_once(": "))
                .map(|(_, name)| name),
        );
    }
    names
}

/// The ids of every test below a directory.
fn collect(directory: &Path, all: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if name != "target" {
                collect(&path, all, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(
                tests_in(&text)
                    .into_iter()
                    .flat_map(|name| ids_of(name, all)),
            );
        }
    }
}

#[test]
fn every_requirement_has_a_test_of_its_name() {
    let requirements = Requirements::read();
    let all = requirements.all();
    let mut found = BTreeSet::new();
    for part in PARTS {
        collect(&root().join(part), &all, &mut found);
    }
    let without: BTreeSet<&String> = all.difference(&found).collect();
    let listed: BTreeSet<&String> = requirements
        .exempt
        .keys()
        .chain(requirements.open.keys())
        .collect();
    let missing: Vec<_> = without.difference(&listed).collect();
    assert!(
        missing.is_empty(),
        "ids without a test of their name: {missing:?}"
    );
    let proven: Vec<_> = listed.difference(&without).collect();
    assert!(
        proven.is_empty(),
        "listed in requirements.toml and no longer missing: {proven:?}"
    );
}

#[test]
fn the_list_says_why() {
    let requirements = Requirements::read();
    let both = requirements
        .open
        .keys()
        .find(|id| requirements.exempt.contains_key(*id));
    assert_eq!(both, None, "an id is exempt or open");
    let reasons = requirements.exempt.iter().chain(&requirements.open);
    for (id, reason) in reasons {
        assert!(!reason.is_empty(), "{id} is listed without a reason");
    }
}

#[test]
fn names_carry_their_ids_in_front() {
    let all = BTreeSet::from(["s69a".to_owned()]);
    let ids = |name: &str| ids_of(name, &all);
    assert_eq!(ids("r77_s83_rules_are_kept"), ["r77", "s83"]);
    assert_eq!(ids("n12_stop"), ["n12"]);
    assert_eq!(ids("s69a_interrupt"), ["s69a"]);
    assert_eq!(ids("s54b_interrupt"), ["s54"]);
    assert!(ids("rows_r1_are_not_first").is_empty());
    assert!(ids("a_r1_turn").is_empty());
}

#[test]
fn helpers_are_no_tests() {
    let text =
        "#[test]\n// why\nfn s1_yes() {}\nfn s2_no() {}\n#[tokio::test]\nasync fn s3_yes() {}";
    assert_eq!(tests_in(text), ["s1_yes", "s3_yes"]);
    let suite = "macro_rules! conformance {\n  appending: s65_case,\n}";
    assert_eq!(tests_in(suite), ["s65_case"]);
}
