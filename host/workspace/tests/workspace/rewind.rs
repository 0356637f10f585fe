//! S99: exactly what the snapshot says, and nothing else touched.

use crate::support::{Place, describe, free, place, place_with, raw};
use harness_workspace::fault::{Hook, Step};
use harness_workspace::{Bound, Limits, Options, Phase, Recovery, Ref};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

#[test]
fn s99_every_kind_of_change_is_taken_back() {
    let p = place();
    p.write("same", "same");
    p.write("changed", "before");
    p.write("gone/deep/file", "x");
    p.make("empty/inner");
    p.write("mode", "x");
    p.mode("mode", 0o755);
    p.link("same", "link");
    p.write("file-to-directory", "x");
    p.write("directory-to-file/x", "x");
    p.write("directory-to-link/x", "x");
    p.link("elsewhere", "link-to-directory");
    p.write(raw(b"n\xff"), "x");
    p.write("locked/f", "x");
    p.mode("locked/f", 0o400);
    p.mode("locked", 0o500);
    let tree = p.tree();
    let untouched = fs::metadata(p.root.join("same")).unwrap().ino();
    let taken = p.take().reference;

    p.write("changed", "after!");
    p.remove("gone");
    p.remove("empty");
    p.mode("mode", 0o600);
    p.remove("link");
    p.link("changed", "link");
    p.remove("file-to-directory");
    p.write("file-to-directory/in/it", "x");
    p.remove("directory-to-file");
    p.write("directory-to-file", "x");
    p.remove("directory-to-link");
    p.link("same", "directory-to-link");
    p.remove("link-to-directory");
    p.write("link-to-directory/x", "x");
    p.write("new/one/two", "x");
    p.make("new/empty");
    p.remove(raw(b"n\xff"));
    p.write("locked/g", "x");
    p.write("locked2/h", "x");
    p.mode("locked2", 0o500);
    let mutated = p.tree();

    // Back and forth again, without and with an event.
    let rewind = p.store.rewind(&p.root, &taken, "first", &free()).unwrap();
    assert_eq!(p.tree(), visible(&tree, &p));
    rewind.rollback(&free()).unwrap();
    assert_eq!(p.tree(), mutated);
    assert_eq!(p.store.pending(&p.root).unwrap(), None);

    let done = p.rewind(&taken);
    assert!(done.exact);
    assert_eq!(done.reference, taken);
    assert_eq!(p.tree(), tree);
    assert_eq!(p.hash(), taken);
    // What did not change was not written anew.
    assert_eq!(fs::metadata(p.root.join("same")).unwrap().ino(), untouched);
    assert_eq!(p.take().reference, taken);
    let again = p.rewind(&taken);
    assert_eq!((again.written, again.removed, again.bytes), (0, 0, 0));
}

/// The tree with the staging directory that is there until the rewind is finished.
fn visible(
    tree: &std::collections::BTreeMap<std::path::PathBuf, String>,
    p: &Place,
) -> std::collections::BTreeMap<std::path::PathBuf, String> {
    let mut tree = tree.clone();
    for (path, text) in p.tree() {
        if path.to_string_lossy().starts_with(".harness-rewind-") {
            assert_eq!(text, "directory 700");
            tree.insert(path, text);
        }
    }
    tree
}

#[test]
fn s99_git_and_excluded_things_are_not_touched_and_keep_their_directories() {
    let p = place();
    p.write(".gitignore", "*.log\nbuild/\n");
    p.write("src/a", "1");
    p.write(".git/HEAD", "ref");
    let taken = p.take().reference;
    p.write(".git/HEAD", "other ref");
    p.write("src/b", "2");
    p.write("src/a", "2");
    p.write("src/x.log", "log");
    p.write("build/out", "out");
    p.write("more/y.log", "log");
    p.write("more/z", "z");
    p.write("more/.git", "gitdir: x");
    p.write("deep/er/q.log", "log");
    rustix::fs::mkfifoat(rustix::fs::CWD, p.root.join("pipe"), 0o600.into()).unwrap();
    let done = p.rewind(&taken);
    assert!(done.exact);
    assert_eq!(p.hash(), taken);
    let tree = p.tree();
    let text = |path: &str| tree.get(Path::new(path)).map(String::as_str);
    assert_eq!(text(".git/HEAD"), Some("file 644 other ref"));
    assert_eq!(text("src/a"), Some("file 644 1"));
    assert_eq!(text("src/b"), None);
    assert_eq!(text("src/x.log"), Some("file 644 log"));
    assert_eq!(text("build/out"), Some("file 644 out"));
    assert_eq!(text("more/y.log"), Some("file 644 log"));
    assert_eq!(text("more/.git"), Some("file 644 gitdir: x"));
    assert_eq!(text("more/z"), None);
    assert_eq!(text("deep/er/q.log"), Some("file 644 log"));
    assert_eq!(text("pipe"), Some("pipe 600"));
}

#[test]
fn s99_rules_that_changed_meanwhile_never_cost_an_excluded_file() {
    // Excluded only now: it was never stored, so it is left alone, and said to be there.
    let p = place();
    p.write("a", "1");
    let taken = p.take().reference;
    p.write(".gitignore", "secret\n");
    p.write("secret", "key");
    let done = p.rewind(&taken);
    assert!(!done.exact);
    assert_eq!(fs::read(p.root.join("secret")).unwrap(), b"key");
    assert!(!p.root.join(".gitignore").exists());

    // Excluded only then: the same.
    let p = place();
    p.write(".gitignore", "secret\n");
    p.write("secret", "key");
    let taken = p.take().reference;
    p.remove(".gitignore");
    let done = p.rewind(&taken);
    assert!(done.exact);
    assert_eq!(fs::read(p.root.join("secret")).unwrap(), b"key");
    assert_eq!(p.hash(), taken);

    // Held by the snapshot and excluded now: the snapshot's content, and the way back to now's.
    let p = place();
    p.write("build/a", "then");
    let taken = p.take().reference;
    p.write(".gitignore", "build/\n");
    p.write("build/a", "now");
    p.write("build/b", "now");
    let mutated = p.tree();
    let rewind = p.store.rewind(&p.root, &taken, "", &free()).unwrap();
    assert_eq!(fs::read(p.root.join("build/a")).unwrap(), b"then");
    assert_eq!(fs::read(p.root.join("build/b")).unwrap(), b"now");
    assert!(!rewind.rewound().exact);
    rewind.rollback(&free()).unwrap();
    assert_eq!(p.tree(), mutated);

    // A directory with rules of its own that exclude all of it, made since.
    let p = place();
    p.write("a", "1");
    let taken = p.take().reference;
    p.write(".cache/.gitignore", "*\n");
    p.write(".cache/v/x", "x");
    assert!(p.rewind(&taken).exact);
    assert_eq!(p.hash(), taken);
    assert_eq!(fs::read(p.root.join(".cache/v/x")).unwrap(), b"x");

    // An empty directory that is full of excluded things now cannot be empty again.
    let p = place();
    p.write(".gitignore", "*.log\n");
    p.make("logs");
    let taken = p.take().reference;
    p.write("logs/a.log", "x");
    assert!(!p.rewind(&taken).exact);
    assert!(p.root.join("logs/a.log").exists());
}

#[test]
fn s99_what_is_never_touched_stands_in_the_way_and_nothing_changes() {
    let p = place();
    p.write(".gitignore", "*.log\n");
    p.write("x", "file");
    p.write("y", "1");
    let taken = p.take().reference;
    p.remove("x");
    p.write("x/a.log", "precious");
    p.write("y", "2");
    let mutated = p.tree();
    assert_eq!(p.refused(&taken), "obstructed");
    assert_eq!(p.tree(), mutated);
    p.remove("x");
    rustix::fs::mkfifoat(rustix::fs::CWD, p.root.join("x"), 0o600.into()).unwrap();
    let mutated = p.tree();
    assert_eq!(p.refused(&taken), "obstructed");
    assert_eq!(p.tree(), mutated);
    assert_eq!(p.store.pending(&p.root).unwrap(), None);
    p.remove("x");
    assert!(p.rewind(&taken).exact);
}

#[test]
fn s99_a_symlink_in_place_of_a_directory_is_replaced_as_a_leaf() {
    let p = place();
    let outside = p.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "outside").unwrap();
    fs::write(outside.join("g"), "outside").unwrap();
    p.write("d/f", "inside");
    let taken = p.take().reference;
    p.remove("d");
    p.link(&outside, "d");
    // Not even a checkpoint looks through it.
    let linked = p.take();
    assert_eq!((linked.entries, linked.bytes), (1, 0));
    assert!(p.rewind(&taken).exact);
    assert_eq!(fs::read(p.root.join("d/f")).unwrap(), b"inside");
    assert!(p.root.join("d").symlink_metadata().unwrap().is_dir());
    assert!(p.rewind(&linked.reference).exact);
    assert_eq!(fs::read_link(p.root.join("d")).unwrap(), outside);
    let outside = describe(&outside);
    assert_eq!(outside.len(), 2);
    assert!(outside.values().all(|text| text == "file 644 outside"));
}

/// Swaps a directory for a symlink at one step of a rewind, as a hostile process would.
fn swap_at(step: Step) -> (Place, Ref, std::path::PathBuf, String) {
    let hook: &'static Mutex<Option<Box<dyn FnOnce() + Send>>> = Box::leak(Box::default());
    let p = place_with(Options {
        hook: Some(Hook::new(move |at| {
            if at == step
                && let Some(swap) = hook.lock().unwrap().take()
            {
                swap();
            }
            Ok(())
        })),
        ..Options::default()
    });
    let outside = p.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for name in ["f", "gone", "new"] {
        fs::write(outside.join(name), "outside").unwrap();
    }
    p.write("d/e/f", "1");
    p.write("d/e/gone", "1");
    let taken = p.take().reference;
    p.write("d/e/f", "2");
    p.remove("d/e/gone");
    p.write("d/e/new", "2");
    let root = p.root.clone();
    let target = outside.clone();
    *hook.lock().unwrap() = Some(Box::new(move || {
        fs::rename(root.join("d/e"), root.join("d/was")).unwrap();
        symlink(&target, root.join("d/e")).unwrap();
    }));
    let code = p.refused(&taken).to_owned();
    (p, taken, outside, code)
}

#[test]
fn s99_a_parent_swapped_for_a_symlink_is_refused_and_nothing_outside_is_touched() {
    for step in [
        Step::Stage,
        Step::Staged,
        Step::Remove,
        Step::Move,
        Step::Moved,
        Step::Verify,
    ] {
        let (p, _, outside, code) = swap_at(step);
        assert!(
            matches!(
                &*code,
                "symlink_parent" | "changed" | "not_exact" | "rollback_failed"
            ),
            "{step:?}: {code}"
        );
        let outside = describe(&outside);
        assert_eq!(outside.len(), 3, "{step:?}");
        assert!(
            outside.values().all(|text| text == "file 644 outside"),
            "{step:?}"
        );
        // What was in the swapped directory is still there, wherever it was moved to.
        assert!(p.root.join("d/was").is_dir(), "{step:?}");
    }
}

#[test]
fn s99_somebody_elses_write_during_a_rewind_is_refused_and_survives() {
    let hook: &'static Mutex<Option<Box<dyn FnOnce() + Send>>> = Box::leak(Box::default());
    let options = Options {
        hook: Some(Hook::new(move |at| {
            if at == Step::Staged
                && let Some(act) = hook.lock().unwrap().take()
            {
                act();
            }
            Ok(())
        })),
        ..Options::default()
    };
    let p = place_with(options);
    p.write("a", "1");
    p.write("b", "1");
    p.write("c", "1");
    let taken = p.take().reference;
    p.write("a", "2");
    p.write("b", "2");
    p.write("c", "2");
    let acts: [(&str, &str); 4] = [
        ("c", "changed"),
        ("b", "changed"),
        ("new", "not_exact"),
        ("a", "changed"),
    ];
    for (path, code) in acts {
        p.write("a", "2");
        p.write("b", "2");
        p.write("c", "2");
        let file = p.root.join(path);
        *hook.lock().unwrap() = Some(Box::new(move || fs::write(file, "other").unwrap()));
        assert_eq!(p.refused(&taken), code, "{path}");
        for name in ["a", "b", "c"] {
            let right: &[u8] = if name == path { b"other" } else { b"2" };
            assert_eq!(fs::read(p.root.join(name)).unwrap(), right, "{path} {name}");
        }
        assert_eq!(fs::read(p.root.join(path)).unwrap(), b"other");
        assert_eq!(p.store.pending(&p.root).unwrap(), None);
        assert!(
            !p.tree()
                .keys()
                .any(|path| path.to_string_lossy().starts_with(".harness"))
        );
        if path == "new" {
            p.remove("new");
        }
    }
}

#[test]
fn s99_hard_links_outside_keep_their_content_and_mode() {
    let p = place();
    p.write("f", "one");
    p.write("m", "one");
    p.mode("m", 0o644);
    let taken = p.take().reference;
    let outside = p.dir.path().join("outside");
    p.write("f", "two");
    p.mode("m", 0o600);
    fs::hard_link(p.root.join("f"), &outside).unwrap();
    fs::hard_link(p.root.join("m"), p.dir.path().join("outside-m")).unwrap();
    assert!(p.rewind(&taken).exact);
    assert_eq!(fs::read(p.root.join("f")).unwrap(), b"one");
    assert_eq!(fs::read(outside).unwrap(), b"two");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&p.dir.path().join("outside-m")), 0o600);
    assert_eq!(mode(&p.root.join("m")), 0o644);
}

#[test]
fn s99_set_user_id_and_sticky_bits_are_never_made() {
    let p = place();
    p.write("f", "x");
    p.mode("f", 0o4755);
    let taken = p.take().reference;
    p.remove("f");
    assert!(p.rewind(&taken).exact);
    let mode = p.root.join("f").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn s99_unpacking_is_bounded_by_what_is_written() {
    let p = place();
    p.write("a", "12345");
    p.write("b/c", "12345");
    let taken = p.take().reference;
    p.remove("a");
    p.remove("b");
    for limits in [
        Limits {
            entries: 2,
            ..Limits::default()
        },
        Limits {
            bytes: 9,
            ..Limits::default()
        },
    ] {
        let Place { dir, root, store } = place();
        drop((dir, root, store));
        let copy = tempfile::tempdir().unwrap();
        let store = copy.path().join("store");
        let status = std::process::Command::new("cp")
            .arg("-r")
            .arg(p.dir.path().join("store"))
            .arg(&store)
            .status()
            .unwrap();
        assert!(status.success());
        let options = Options {
            limits,
            ..Options::default()
        };
        let store = harness_workspace::Store::open_with(&store, options).unwrap();
        let refused = store.rewind(&p.root, &taken, "", &free()).map(|_| ());
        assert_eq!(refused.unwrap_err().code(), "workspace_too_large");
        assert!(p.tree().is_empty());
    }
    p.rewind(&taken);
}

#[test]
fn s99_a_ref_that_nobody_stored_is_not_found() {
    let p = place();
    let unknown: Ref = format!("v1:sha256:{}", "ab".repeat(32)).parse().unwrap();
    assert!(!p.store.contains(&unknown));
    assert_eq!(p.refused(&unknown), "ref_not_found");
    let long = "x".repeat(257);
    let refused = p.store.rewind(&p.root, &unknown, &long, &free());
    assert_eq!(refused.map(|_| ()).unwrap_err().code(), "tag");
}

#[test]
fn s99_a_deadline_in_a_rewind_puts_everything_back() {
    let p = place();
    for n in 0..300 {
        p.write(format!("f{n}"), vec![b'a'; 10_000]);
    }
    let taken = p.take().reference;
    for n in 0..300 {
        p.write(format!("f{n}"), vec![b'b'; 9_000]);
    }
    let mutated = p.tree();
    let mut refused = 0;
    for ms in [1, 3, 6, 10, 15, 20, 30, 40] {
        let bound = Bound::within(Duration::from_millis(ms));
        match p.store.rewind(&p.root, &taken, "", &bound) {
            Ok(rewind) => rewind.rollback(&free()).unwrap(),
            Err(error) => {
                assert_eq!(error.code(), "deadline");
                refused += 1;
            }
        }
        assert_eq!(p.tree(), mutated, "{ms}");
        assert_eq!(p.store.pending(&p.root).unwrap(), None);
    }
    assert!(refused > 0);
}

#[test]
fn s99_a_rewind_that_was_dropped_is_on_record_and_ends_either_way() {
    for recovery in [Recovery::Finish, Recovery::RollBack] {
        let p = place();
        p.write("a", "1");
        p.make("d");
        let taken = p.take().reference;
        let before = p.tree();
        p.write("a", "2");
        p.remove("d");
        let after = p.tree();
        drop(p.store.rewind(&p.root, &taken, "seq 7", &free()).unwrap());
        let p = p.reopen();
        let pending = p.store.pending(&p.root).unwrap().unwrap();
        assert_eq!(pending.tag, "seq 7");
        assert_eq!(pending.reference, taken);
        assert_eq!(pending.phase, Phase::Applied);
        // Nothing else may happen to the workspace first.
        let refused = p.store.checkpoint(&p.root, &free()).unwrap_err();
        assert_eq!(refused.code(), "rewind_pending");
        assert_eq!(p.refused(&taken), "rewind_pending");
        // Neither tree is collected meanwhile.
        p.store.collect(p.store.mark(), [], &free()).unwrap();
        assert!(p.store.recover(&p.root, recovery, &free()).unwrap());
        let right = match recovery {
            Recovery::Finish => &before,
            Recovery::RollBack => &after,
        };
        assert_eq!(&p.tree(), right);
        assert!(!p.store.recover(&p.root, recovery, &free()).unwrap());
        p.take();
    }
}
