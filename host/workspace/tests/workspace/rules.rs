//! S99: what `.gitignore` excludes, compared with git itself where there is one.

use crate::support::{free, place, raw};
use harness_workspace::Bound;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Names in the tree, found by rewinding an empty place to it.
fn kept(p: &crate::support::Place) -> BTreeSet<PathBuf> {
    let reference = p.take().reference;
    let other = p.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let rewind = p.store.rewind(&other, &reference, "", &free()).unwrap();
    rewind.finish().unwrap();
    let tree = crate::support::describe(&other);
    tree.into_iter()
        .filter(|(_, text)| !text.starts_with("directory"))
        .map(|(path, _)| path)
        .collect()
}

fn fill(p: &crate::support::Place) {
    p.write(
        ".gitignore",
        "# comment\n*.log\n!keep.log\n/top\nbuild/\ndoc/*.txt\n**/deep/**/x\n\\!bang\n\\#hash\ntrail\\ \nspaced   \na?c\n[xy]z\nnode_modules\n!node_modules/kept\nfoo/**\nbar/*\n!bar/in\r\n",
    );
    for path in [
        "a.log",
        "keep.log",
        "top",
        "sub/top",
        "build/x",
        "sub/build/x",
        "sub2/build",
        "doc/a.txt",
        "doc/sub/a.txt",
        "sub/doc/a.txt",
        "deep/x",
        "deep/a/b/x",
        "q/deep/a/x",
        "!bang",
        "#hash",
        "trail ",
        "trail",
        "spaced",
        "abc",
        "a/c",
        "xz",
        "az",
        "node_modules/kept",
        "node_modules/other",
        "foo/a/b",
        "bar/in",
        "bar/out",
        "nested/a.log",
        "nested/b.tmp",
        "nested/keep.tmp",
        "nested/deeper/a.log",
        "nested/deeper/c.tmp",
        "self/x",
        "self/y",
    ] {
        p.write(path, path);
    }
    p.write(raw(b"\xff.log"), "x");
    p.write(raw(b"\xff.txt"), "x");
    p.write("nested/.gitignore", "*.tmp\n!keep.tmp\n!a.log\n");
    p.write("nested/deeper/.gitignore", "/a.log\n!c.tmp\n");
    // A file that excludes itself and all around it.
    p.write("self/.gitignore", "*\n");
    // Never followed.
    p.write("linked/f", "x");
    p.link("../self/.gitignore", "linked/.gitignore");
}

#[test]
fn s99_nested_and_negated_rules_exclude_what_git_excludes() {
    let p = place();
    fill(&p);
    let kept = kept(&p);
    let has = |path: &str| kept.contains(&PathBuf::from(path));
    for path in [
        "keep.log",
        "sub/top",
        "doc/sub/a.txt",
        "bar/in",
        "nested/a.log",
        "nested/deeper/c.tmp",
        "linked/f",
        "linked/.gitignore",
        ".gitignore",
    ] {
        assert!(has(path), "{path} is excluded");
    }
    for path in [
        "a.log",
        "top",
        "build/x",
        "node_modules/kept",
        "nested/deeper/a.log",
        "nested/b.tmp",
        "self/x",
        "self/.gitignore",
        "bar/out",
        "!bang",
    ] {
        assert!(!has(path), "{path} is not excluded");
    }
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command
            .args([
                "-c",
                "core.excludesFile=/dev/null",
                "-c",
                "safe.directory=*",
                "-C",
            ])
            .arg(&p.root)
            .args(args)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null");
        command.output()
    };
    let Ok(made) = git(&["init", "-q"]) else {
        println!("there is no git to compare with");
        return;
    };
    assert!(made.status.success());
    let listed = git(&[
        "ls-files",
        "-z",
        "--others",
        "--exclude-per-directory=.gitignore",
    ])
    .unwrap();
    assert!(listed.status.success());
    let theirs: BTreeSet<PathBuf> = listed
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| raw(name).to_owned())
        .collect();
    assert_eq!(kept, theirs);
}

#[test]
fn s99_rules_beyond_their_bound_are_refused_and_broken_lines_match_nothing() {
    let p = place();
    p.write("a.log", "x");
    p.write("[", "x");
    p.write(".gitignore", b"\xff\xfe\n[\n{\n*.log\n".as_slice());
    let taken = kept(&p);
    assert!(!taken.contains(&PathBuf::from("a.log")));
    let long = "x".repeat(300 << 10);
    let patterns: String = (0..4094).map(|n| format!("*a?b[cd]*{n}*e?\n")).collect();
    for (rules, refused) in [
        (long, true),
        (patterns.clone() + &patterns, true),
        (patterns, false),
    ] {
        p.write(".gitignore", rules);
        let taken = p
            .store
            .checkpoint(&p.root, &Bound::within(Duration::from_secs(30)));
        match taken {
            // As many patterns as there may be, none of them cheap.
            Ok(_) => assert!(!refused),
            Err(error) => {
                assert_eq!(error.code(), "rules");
                assert!(error.to_string().contains(".gitignore"));
            }
        }
    }
}
