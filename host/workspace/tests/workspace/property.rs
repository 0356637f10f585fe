//! S98 and S99 for trees and edits that nobody thought of.

use crate::support::{Place, free, place, raw};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
enum Edit {
    Write(Vec<usize>, u8, usize),
    Make(Vec<usize>),
    Link(Vec<usize>, usize),
    Mode(Vec<usize>, u32),
    Remove(Vec<usize>),
    Rename(Vec<usize>, Vec<usize>),
    HardLink(Vec<usize>, Vec<usize>),
    Rules(Vec<usize>, usize),
}

/// Few, so that edits meet.
const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"a.b",
    b"\xff",
    b"x.log",
    b"keep.log",
    b"build",
    b".git",
];
const TEXTS: &[&str] = &["a", "../..", "/", "b/c", "missing"];
const RULES: &[&str] = &[
    "",
    "*.log\n",
    "*.log\n!keep.log\nbuild/\n",
    "*\n",
    "/a\n!b\n",
    "b/c\n",
    ".gitignore\n",
];
const MODES: &[u32] = &[0o644, 0o755, 0o600, 0o500, 0o777, 0o400];

fn path(names: &[usize]) -> PathBuf {
    names.iter().map(|name| raw(NAMES[*name])).collect()
}

fn place_of(names: std::ops::Range<usize>) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(names, 1..4)
}

fn edits(names: usize, rules: bool) -> impl Strategy<Value = Vec<Edit>> {
    let at = move || place_of(0..names);
    let edit = prop_oneof![
        6 => (at(), any::<u8>(), prop_oneof![Just(0), Just(3), Just(5000)])
            .prop_map(|(at, byte, size)| Edit::Write(at, byte, size)),
        2 => at().prop_map(Edit::Make),
        1 => (at(), 0..TEXTS.len()).prop_map(|(at, text)| Edit::Link(at, text)),
        1 => (at(), 0..MODES.len()).prop_map(|(at, mode)| Edit::Mode(at, MODES[mode])),
        2 => at().prop_map(Edit::Remove),
        1 => (at(), at()).prop_map(|(a, b)| Edit::Rename(a, b)),
        1 => (at(), at()).prop_map(|(a, b)| Edit::HardLink(a, b)),
        if rules { 2 } else { 0 } => (prop::collection::vec(0..names, 0..3), 0..RULES.len())
            .prop_map(|(at, rules)| Edit::Rules(at, rules)),
    ];
    prop::collection::vec(edit, 0..30)
}

/// Edits as a user would: what cannot be done is not done.
fn apply(root: &Path, edit: &Edit) {
    // Through no symlink: an edit shall not leave the workspace.
    let inside = |path: &Path| {
        path.ancestors()
            .skip(1)
            .take_while(|parent| *parent != root)
            .all(|parent| !parent.is_symlink())
    };
    let at = |names: &[usize]| Some(root.join(path(names))).filter(|path| inside(path));
    let _ = (|| -> Option<()> {
        match edit {
            Edit::Write(names, byte, size) => {
                let path = at(names)?;
                fs::create_dir_all(path.parent()?).ok()?;
                if !path.is_symlink() {
                    fs::write(path, vec![*byte; *size]).ok()?;
                }
            }
            Edit::Make(names) => fs::create_dir_all(at(names)?).ok()?,
            Edit::Link(names, text) => symlink(TEXTS[*text], at(names)?).ok()?,
            Edit::Mode(names, mode) => {
                let path = at(names)?;
                if !path.is_symlink() {
                    use std::os::unix::fs::PermissionsExt;
                    // Directories stay ours to read and change: the edits need it.
                    let mode = if path.is_dir() { mode | 0o700 } else { *mode };
                    fs::set_permissions(path, fs::Permissions::from_mode(mode)).ok()?;
                }
            }
            Edit::Remove(names) => {
                let path = at(names)?;
                if path.is_dir() && !path.is_symlink() {
                    fs::remove_dir_all(path).ok()?;
                } else {
                    fs::remove_file(path).ok()?;
                }
            }
            Edit::Rename(a, b) => fs::rename(at(a)?, at(b)?).ok()?,
            Edit::HardLink(a, b) => fs::hard_link(at(a)?, at(b)?).ok()?,
            Edit::Rules(names, rules) => {
                let path = root.join(path(names)).join(".gitignore");
                fs::create_dir_all(path.parent()?).ok()?;
                if inside(&path) && !path.is_symlink() && !path.parent()?.is_symlink() {
                    fs::write(path, RULES[*rules]).ok()?;
                }
            }
        }
        Some(())
    })();
}

fn apply_all(p: &Place, edits: &[Edit]) {
    edits.iter().for_each(|edit| apply(&p.root, edit));
}

/// Only what is inside some `.git`.
fn git_only(tree: &BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, String> {
    let inside = |path: &Path| path.iter().any(|name| name == ".git");
    let inside = tree.iter().filter(|(path, _)| inside(path));
    inside.map(|(a, b)| (a.clone(), b.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s99_any_tree_comes_back_from_any_edits(before in edits(5, false), after in edits(5, false)) {
        let p = place();
        apply_all(&p, &before);
        let tree = p.tree();
        let taken = p.take().reference;
        prop_assert_eq!(p.hash(), taken);
        apply_all(&p, &after);
        let mutated = p.tree();
        let other = p.hash();
        prop_assert_eq!(tree == mutated, taken == other);
        let rewind = p.store.rewind(&p.root, &taken, "", &free()).unwrap();
        rewind.rollback(&free()).unwrap();
        prop_assert_eq!(p.tree(), mutated.clone());
        prop_assert_eq!(p.hash(), other);
        prop_assert!(p.rewind(&taken).exact);
        prop_assert_eq!(p.tree(), tree);
        prop_assert_eq!(p.hash(), taken);
        prop_assert!(p.packs().iter().all(|pack| pack.to_string_lossy().ends_with(".pack")));
    }

    #[test]
    fn s99_with_changing_rules_a_rewind_says_whether_it_is_exact_and_can_be_undone(
        before in edits(NAMES.len(), true),
        after in edits(NAMES.len(), true),
    ) {
        let p = place();
        apply_all(&p, &before);
        let taken = p.take().reference;
        apply_all(&p, &after);
        let mutated = p.tree();
        let rewind = match p.store.rewind(&p.root, &taken, "", &free()) {
            Ok(rewind) => rewind,
            Err(error) => {
                prop_assert_eq!(error.code(), "obstructed");
                prop_assert_eq!(p.tree(), mutated);
                return Ok(());
            }
        };
        prop_assert_eq!(git_only(&p.tree()), git_only(&mutated));
        rewind.rollback(&free()).unwrap();
        prop_assert_eq!(p.tree(), mutated.clone());
        let done = p.rewind(&taken);
        prop_assert_eq!(git_only(&p.tree()), git_only(&mutated));
        prop_assert_eq!(done.exact, p.hash() == taken);
    }
}
