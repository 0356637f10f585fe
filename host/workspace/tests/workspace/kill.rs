//! Real processes, really killed.

use crate::support::{Place, child, describe, free, place};
use harness_workspace::fault::Hook;
use harness_workspace::{Options, Recovery, Ref, Store};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Does to a workspace what the environment says, and dies at the step that it says.
#[test]
fn s99_killed_child() {
    let Some(dir) = std::env::var_os("WORKSPACE_KILLED") else {
        return;
    };
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    let dir = PathBuf::from(dir);
    let at: usize = text("WORKSPACE_AT").parse().unwrap_or(usize::MAX);
    let kind = text("WORKSPACE_STEP");
    let count = AtomicUsize::new(0);
    let options = Options {
        hook: Some(Hook::new(move |step| {
            let named = format!("{step:?}") == kind;
            if count.fetch_add(1, Ordering::SeqCst) == at || named {
                let me = rustix::process::getpid();
                rustix::process::kill_process(me, rustix::process::Signal::KILL)?;
                std::thread::sleep(Duration::from_secs(60));
            }
            Ok(())
        })),
        threads: 1,
        ..Options::default()
    };
    let store = Store::open_with(&dir.join("store"), options).unwrap();
    let root = dir.join("workspace");
    let refs: Vec<Ref> = text("WORKSPACE_REFS")
        .split(' ')
        .filter_map(|r| r.parse().ok())
        .collect();
    println!("begun");
    match &*text("WORKSPACE_DO") {
        "checkpoint" => drop(store.checkpoint(&root, &free()).unwrap()),
        "rewind" => {
            let rewind = store.rewind(&root, &refs[0], "tag", &free()).unwrap();
            rewind.finish().unwrap();
        }
        "rollback" => {
            let rewind = store.rewind(&root, &refs[0], "tag", &free()).unwrap();
            rewind.rollback(&free()).unwrap();
        }
        "finish" => drop(store.recover(&root, Recovery::Finish, &free()).unwrap()),
        "roll back" => drop(store.recover(&root, Recovery::RollBack, &free()).unwrap()),
        "collect" => {
            let mark = store.mark();
            store.collect(mark, refs, &free()).unwrap();
        }
        "back and forth" => loop {
            for reference in &refs {
                let rewind = store.rewind(&root, reference, "tag", &free()).unwrap();
                rewind.finish().unwrap();
            }
        },
        other => panic!("{other}"),
    }
}

fn command(dir: &Path, what: &str, refs: &[Ref], at: usize) -> Command {
    let mut command = child("kill::s99_killed_child", &std::env::current_exe().unwrap());
    let refs: Vec<String> = refs.iter().map(ToString::to_string).collect();
    command
        .env("WORKSPACE_KILLED", dir)
        .env("WORKSPACE_DO", what)
        .env("WORKSPACE_REFS", refs.join(" "))
        .env("WORKSPACE_AT", at.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Runs it to its end; true when it was killed.
fn killed(dir: &Path, what: &str, refs: &[Ref], at: usize) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let mut command = command(dir, what, refs, at);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let status = output.status;
    assert!(
        status.success() || status.signal() == Some(9),
        "{what} {at}: {status} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    !status.success()
}

type Tree = BTreeMap<PathBuf, String>;

/// Two trees and their refs; the workspace is the second, the store is closed.
fn two() -> (tempfile::TempDir, PathBuf, (Ref, Tree), (Ref, Tree)) {
    let p = place();
    p.write("a", "1");
    p.write("d/b", "1");
    p.write("gone/x", "1");
    p.make("empty");
    p.write("swap", "1");
    p.write(".gitignore", "*.log\n");
    p.write("d/precious.log", "never stored");
    let first = (p.take().reference, p.tree());
    p.write("a", "2");
    p.write("d/b", "2");
    p.mode("d", 0o500);
    p.remove("gone");
    p.remove("empty");
    p.link("a", "empty");
    p.remove("swap");
    p.write("swap/y", "2");
    let second = (p.take().reference, p.tree());
    let Place { dir, root, store } = p;
    drop(store);
    (dir, root, first, second)
}

fn clean(dir: &Path) -> Store {
    let store = Store::open(&dir.join("store")).unwrap();
    let packs = fs::read_dir(dir.join("store/packs")).unwrap();
    for pack in packs {
        let name = pack.unwrap().file_name();
        assert!(name.to_string_lossy().ends_with(".pack"), "{name:?}");
    }
    store
}

#[test]
fn s99_killed_at_every_step_a_rewind_ends_either_way() {
    for recovery in [Recovery::Finish, Recovery::RollBack] {
        let (dir, root, (first, one), (second, two)) = two();
        let mut pending = 0;
        let mut at = 0;
        while killed(dir.path(), "rewind", &[first], at) {
            let store = clean(dir.path());
            let recovered = store.recover(&root, recovery, &free()).unwrap();
            pending += usize::from(recovered);
            let tree = describe(&root);
            if recovered {
                let right = if recovery == Recovery::Finish {
                    &one
                } else {
                    &two
                };
                assert_eq!(&tree, right, "{at}");
            } else {
                // Not yet on record, or done with.
                assert!(tree == one || tree == two, "{at}");
            }
            assert_eq!(store.pending(&root).unwrap(), None);
            let rewind = store.rewind(&root, &second, "", &free()).unwrap();
            assert!(rewind.finish().unwrap().exact, "{at}");
            assert_eq!(describe(&root), two, "{at}");
            at += 1;
        }
        assert!(pending > 20, "{pending} of {at}");
        assert_eq!(describe(&root), one);
    }
}

#[test]
fn s99_killed_in_its_rollback_or_recovery_it_can_be_recovered_again() {
    for (what, recovery) in [
        ("rollback", Recovery::RollBack),
        ("roll back", Recovery::RollBack),
        ("finish", Recovery::Finish),
        // Changed one's mind after a crash.
        ("finish", Recovery::RollBack),
        ("roll back", Recovery::Finish),
    ] {
        let (dir, root, (first, one), (second, two)) = two();
        let mut at = 0;
        let mut pending = 0;
        loop {
            if what == "rollback" {
                if !killed(dir.path(), what, &[first], at) {
                    break;
                }
            } else {
                // In the middle of moving.
                let mut moving = command(dir.path(), "rewind", &[first], usize::MAX);
                assert!(
                    !moving
                        .env("WORKSPACE_STEP", "Move")
                        .status()
                        .unwrap()
                        .success()
                );
                if !killed(dir.path(), what, &[first], at) {
                    break;
                }
            }
            let store = clean(dir.path());
            let recovered = store.recover(&root, recovery, &free()).unwrap();
            pending += usize::from(recovered);
            let tree = describe(&root);
            if recovered {
                let right = if recovery == Recovery::Finish {
                    &one
                } else {
                    &two
                };
                assert_eq!(&tree, right, "{what} {at}");
            }
            assert!(tree == one || tree == two, "{what} {at}");
            store
                .rewind(&root, &second, "", &free())
                .unwrap()
                .finish()
                .unwrap();
            assert_eq!(describe(&root), two, "{what} {at}");
            at += 1;
        }
        assert!(pending > 10, "{what}: {pending} of {at}");
    }
}

#[test]
fn s98_killed_at_every_step_of_a_checkpoint_or_collection_nothing_is_lost() {
    let (dir, root, (first, _), (second, two)) = two();
    let mut at = 0;
    loop {
        fs::write(root.join("a"), format!("garbage {at}")).unwrap();
        if !killed(dir.path(), "checkpoint", &[], at) {
            break;
        }
        let store = clean(dir.path());
        // A pack that got its name is garbage, and is collected.
        let mark = store.mark();
        store.collect(mark, [first, second], &free()).unwrap();
        let mark = store.mark();
        let again = store.collect(mark, [first, second], &free()).unwrap();
        assert_eq!(again.records, 0);
        at += 1;
    }
    assert!(at > 3);
    // A pack of which a part is garbage.
    let store = clean(dir.path());
    fs::write(root.join("a"), "more garbage").unwrap();
    fs::write(root.join("b"), "kept").unwrap();
    store.checkpoint(&root, &free()).unwrap();
    fs::write(root.join("a"), "2").unwrap();
    let third = (
        store.checkpoint(&root, &free()).unwrap().reference,
        describe(&root),
    );
    drop(store);
    let mut at = 0;
    while killed(dir.path(), "collect", &[second, third.0], at) {
        let store = clean(dir.path());
        for (reference, tree) in [&(second, two.clone()), &third] {
            let rewind = store.rewind(&root, reference, "", &free()).unwrap();
            assert!(rewind.finish().unwrap().exact, "{at}");
            assert_eq!(&describe(&root), tree, "{at}");
        }
        at += 1;
    }
    assert!(at > 4, "{at}");
}

#[test]
fn s99_killed_at_random_moments_the_tree_is_one_of_the_two() {
    let p = place();
    for n in 0..120 {
        p.write(format!("d{}/f{n}", n % 7), format!("one {n}"));
    }
    let first = p.take().reference;
    let one = p.tree();
    for n in 0..120 {
        if n % 3 == 0 {
            p.remove(format!("d{}/f{n}", n % 7));
        } else {
            p.write(format!("d{}/f{n}", n % 7), format!("two {n}"));
        }
        p.write(format!("e{}/g{n}", n % 5), format!("two {n}"));
    }
    let second = p.take().reference;
    let two = p.tree();
    let Place { dir, root, store } = p;
    drop(store);
    let mut random = 88_172_645_463_325_252u64;
    let mut recovered = 0;
    for round in 0..40 {
        let mut child = command(dir.path(), "back and forth", &[first, second], usize::MAX)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It says so once the store is open.
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("begun") {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut output, &mut line).unwrap() > 0);
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_micros(random % 80_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = clean(dir.path());
        let recovery = if random & 1 == 0 {
            Recovery::Finish
        } else {
            Recovery::RollBack
        };
        recovered += usize::from(store.recover(&root, recovery, &free()).unwrap());
        let tree = describe(&root);
        assert!(tree == one || tree == two, "round {round}");
        let right = if tree == one { first } else { second };
        assert_eq!(store.tree_hash(&root, &free()).unwrap(), right);
    }
    assert!(recovered > 5, "{recovered}");
}
