//! S98: what a snapshot is, and what it costs when nothing changed.

use crate::support::{Place, child, free, place, place_with, raw};
use harness_workspace::{Bound, Limits, Options, Store};
use std::fs::{self, hard_link};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

type Edit<'a> = &'a dyn Fn(&Place);

#[test]
fn s98_every_difference_of_a_tree_has_another_ref_and_the_same_tree_the_same() {
    let p = place();
    p.write("a/file", "one");
    p.link("file", "a/link");
    p.make("empty");
    let first = p.take().reference;
    assert_eq!(p.hash(), first);
    assert!(first.to_string().starts_with("v1:sha256:"));
    let changes: [(&str, Edit<'_>, Edit<'_>); 9] = [
        ("content", &|p| p.write("a/file", "two"), &|p| {
            p.write("a/file", "one")
        }),
        ("executable", &|p| p.mode("a/file", 0o755), &|p| {
            p.mode("a/file", 0o644)
        }),
        ("group may write", &|p| p.mode("a/file", 0o664), &|p| {
            p.mode("a/file", 0o644)
        }),
        ("directory mode", &|p| p.mode("empty", 0o700), &|p| {
            p.mode("empty", 0o755)
        }),
        ("empty directory", &|p| p.make("more"), &|p| {
            p.remove("more")
        }),
        ("empty file", &|p| p.write("more", ""), &|p| {
            p.remove("more")
        }),
        ("no directory", &|p| p.remove("empty"), &|p| p.make("empty")),
        (
            "link text",
            &|p| {
                p.remove("a/link");
                p.link("./file", "a/link");
            },
            &|p| {
                p.remove("a/link");
                p.link("file", "a/link");
            },
        ),
        (
            "name",
            &|p| fs::rename(p.root.join("a/file"), p.root.join("a/file2")).unwrap(),
            &|p| fs::rename(p.root.join("a/file2"), p.root.join("a/file")).unwrap(),
        ),
    ];
    p.mode("a/file", 0o644);
    p.mode("empty", 0o755);
    let first = p.take().reference;
    let mut seen = vec![first];
    for (what, change, back) in changes {
        change(&p);
        let changed = p.take().reference;
        assert!(!seen.contains(&changed), "{what}");
        assert_eq!(p.hash(), changed, "{what}");
        seen.push(changed);
        back(&p);
        assert_eq!(p.hash(), first, "{what}");
    }
    // Another place with the same tree: the same ref.
    let q = place();
    q.write("a/file", "one");
    q.link("file", "a/link");
    q.make("empty");
    q.mode("a/file", 0o644);
    q.mode("empty", 0o755);
    q.mode(
        "a",
        p.root.join("a").metadata().unwrap().permissions().mode(),
    );
    assert_eq!(q.hash(), first);
}

#[test]
fn s98_an_unchanged_tree_is_not_read_and_nothing_is_stored_again() {
    let p = place();
    for n in 0..50 {
        p.write(format!("d{}/f{n}", n % 5), format!("content {n}"));
    }
    // Until the clock's tick is over, a file may change without a trace; so it is read again.
    std::thread::sleep(Duration::from_millis(50));
    let first = p.take();
    assert_eq!((first.entries, first.bytes > 0), (55, true));
    let packs = p.packs();
    // Reading is impossible now, for other users than root at least, and must not be tried.
    let second = p.take();
    assert_eq!(second.reference, first.reference);
    assert_eq!((second.new_records, second.new_bytes), (0, 0));
    assert_eq!(p.packs(), packs);
    // One more file costs its content, its directory and the list of directories.
    p.write("d0/more", "more");
    assert_eq!(p.take().new_records, 3);
    // The same content elsewhere is not stored twice.
    p.write("d1/copy", "more");
    assert_eq!(p.take().new_records, 2);
}

#[test]
fn s98_a_change_that_keeps_size_and_modification_time_is_seen() {
    let p = place();
    p.write("f", "aaaa");
    let time = p.root.join("f").metadata().unwrap().modified().unwrap();
    let mut refs = vec![p.take().reference];
    for content in ["bbbb", "cccc", "dddd", "eeee", "ffff", "gggg"] {
        p.write("f", content);
        let file = fs::File::options()
            .write(true)
            .open(p.root.join("f"))
            .unwrap();
        file.set_modified(time).unwrap();
        let taken = p.take().reference;
        assert!(!refs.contains(&taken), "{content}");
        refs.push(taken);
    }
}

#[test]
fn s98_git_excluded_things_sockets_and_pipes_are_neither_stored_nor_counted() {
    let p = place();
    p.write("src/main", "x");
    p.write(".gitignore", "*.log\n/target/\n");
    let bare = p.take();
    p.write(".git/config", "x");
    p.write("src/.git", "gitdir: elsewhere");
    p.write("target/debug/out", "x");
    p.write("src/a.log", "secret");
    // A directory of nothing but such things is such a thing.
    p.write("logs/deep/b.log", "x");
    rustix::fs::mkfifoat(rustix::fs::CWD, p.root.join("pipe"), 0o600.into()).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(p.root.join("socket")).unwrap();
    let full = p.take();
    assert_eq!((full.reference, full.new_records), (bare.reference, 0));
    assert_eq!(p.hash(), bare.reference);
    // An empty directory is one, until it is filled with such things only.
    p.make("out");
    assert_ne!(p.hash(), bare.reference);
    p.write("out/c.log", "x");
    assert_eq!(p.hash(), bare.reference);
}

#[test]
fn s98_odd_names_large_files_and_hard_links_come_back() {
    let p = place();
    p.write(raw(b"\xff\xfe\n"), "not utf-8");
    p.write("spaces and \"quotes\"", "");
    p.write("-rf", "x");
    let large: Vec<u8> = (0..5_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    p.write("large", &large[..(3 << 20) + 17]);
    p.write("exact", &large[..1 << 20]);
    p.write("a", "shared");
    hard_link(p.root.join("a"), p.root.join("b")).unwrap();
    p.link(raw(b"\xff"), raw(b"link\xff"));
    let tree = p.tree();
    let taken = p.take();
    fs::remove_dir_all(&p.root).unwrap();
    fs::create_dir(&p.root).unwrap();
    assert!(p.rewind(&taken.reference).exact);
    assert_eq!(p.tree(), tree);
}

#[test]
fn s98_limits_a_deadline_and_a_cancel_leave_no_ref_and_nothing_that_stays() {
    let small = |limits| Options {
        limits,
        ..Options::default()
    };
    let p = place_with(small(Limits {
        entries: 3,
        ..Limits::default()
    }));
    p.write("a/b", "x");
    p.write("c", "x");
    p.take();
    p.write("d", "x");
    let refused = p.store.checkpoint(&p.root, &free()).unwrap_err();
    assert_eq!(refused.code(), "workspace_too_large");

    let p = place_with(small(Limits {
        bytes: 10,
        ..Limits::default()
    }));
    p.write("a", "12345");
    p.write("b", "12345");
    p.take();
    p.write("c", "1");
    let refused = p.store.checkpoint(&p.root, &free()).unwrap_err();
    assert_eq!(refused.code(), "workspace_too_large");

    // A file of a tebibyte that is not there is not read to see that.
    let p = place();
    let sparse = fs::File::create(p.root.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let refused = p.store.checkpoint(&p.root, &free()).unwrap_err();
    assert_eq!(refused.code(), "workspace_too_large");

    let p = place();
    p.write("a", "x");
    let over = Bound::within(Duration::ZERO);
    let refused = p.store.checkpoint(&p.root, &over).unwrap_err();
    assert_eq!(refused.code(), "deadline");
    let flag = Arc::new(AtomicBool::new(true));
    let cancelled = free().cancelled_by(flag);
    let refused = p.store.checkpoint(&p.root, &cancelled).unwrap_err();
    assert_eq!(refused.code(), "cancelled");
    assert_eq!(p.packs(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn s98_a_deadline_ends_a_long_checkpoint_in_its_middle() {
    let p = place();
    let block = vec![7u8; 1 << 20];
    for n in 0..64u8 {
        let mut block = block.clone();
        block[0] = n;
        p.write(format!("f{n}"), block);
    }
    let start = Instant::now();
    let bound = Bound::within(Duration::from_millis(15));
    let refused = p.store.checkpoint(&p.root, &bound).unwrap_err();
    assert_eq!(refused.code(), "deadline");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(p.packs(), Vec::<std::path::PathBuf>::new());
    p.take();
}

#[test]
fn s98_a_file_that_never_rests_is_refused_or_read_whole() {
    let p = place();
    p.write("calm", "x");
    p.write("busy", vec![b'a'; 4 << 20]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = b'a';
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                byte = if byte == b'z' { b'a' } else { byte + 1 };
                fs::write(p.root.join("busy"), vec![byte; 4 << 20]).unwrap();
            }
        });
        let mut refs = Vec::new();
        for _ in 0..20 {
            match p.store.checkpoint(&p.root, &free()) {
                Ok(taken) => refs.push(taken.reference),
                Err(error) => assert_eq!(error.code(), "changed"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        refs
    })
    .into_iter()
    .for_each(|reference| {
        p.rewind(&reference);
        let content = fs::read(p.root.join("busy")).unwrap();
        // In between the file is truncated and grows; what was read was its content at a time.
        assert!(content.iter().all(|byte| *byte == content[0]));
    });
}

#[test]
fn s98_a_root_that_is_missing_or_no_directory_is_refused() {
    let p = place();
    p.write("file", "x");
    for path in ["missing", "file"] {
        let refused = p.store.checkpoint(&p.root.join(path), &free()).unwrap_err();
        assert_eq!(refused.code(), "root");
    }
}

#[test]
fn s98_two_at_once_on_one_workspace_are_refused_not_mixed() {
    let p = place();
    p.write("a", "1");
    let taken = p.take().reference;
    p.write("a", "2");
    let rewind = p.store.rewind(&p.root, &taken, "", &free()).unwrap();
    let refused = p.store.checkpoint(&p.root, &free()).unwrap_err();
    assert_eq!(refused.code(), "busy");
    assert_eq!(p.refused(&taken), "busy");
    rewind.finish().unwrap();
    p.take();
}

#[test]
fn s98_the_store_is_the_owners_alone_and_one_process_at_a_time() {
    let p = place();
    p.write("a", "1");
    let taken = p.take().reference;
    for path in p.packs() {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let directory = p.dir.path().join("store");
    let mode = directory.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let refused = Store::open(&directory).map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), "store_locked");
    let p = p.reopen();
    assert!(p.store.contains(&taken));
    assert_eq!(p.take().new_records, 0);
}

/// Run as another user, who may not read everything.
#[test]
fn s98_unreadable_child() {
    let Some(dir) = std::env::var_os("WORKSPACE_UNREADABLE") else {
        return;
    };
    assert!(!rustix::process::geteuid().is_root());
    let dir = std::path::PathBuf::from(dir);
    let root = dir.join("workspace");
    fs::create_dir_all(root.join("d")).unwrap();
    fs::write(root.join("d/f"), "x").unwrap();
    fs::write(root.join("d/g"), "x").unwrap();
    let store = Store::open(&dir.join("store")).unwrap();
    let set = |path: &str, mode| {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    for path in ["d/f", "d"] {
        set(path, 0);
        let refused = store.checkpoint(&root, &free()).unwrap_err();
        assert_eq!(refused.code(), "denied", "{path}");
        assert!(refused.to_string().contains(path));
        set(path, 0o700);
    }
    // Read-only directories and files are changed and are read-only again.
    set("d/f", 0o444);
    set("d", 0o555);
    set("", 0o555);
    let before = crate::support::describe(&root);
    let taken = store.checkpoint(&root, &free()).unwrap().reference;
    set("", 0o755);
    set("d", 0o755);
    fs::remove_file(root.join("d/f")).unwrap();
    fs::write(root.join("d/more"), "x").unwrap();
    set("d", 0o555);
    set("", 0o555);
    let rewind = store.rewind(&root, &taken, "", &free()).unwrap();
    assert!(rewind.finish().unwrap().exact);
    assert_eq!(crate::support::describe(&root), before);
    assert_eq!(root.metadata().unwrap().permissions().mode() & 0o777, 0o555);
    set("", 0o755);
    set("d", 0o755);
    println!("checked as another user");
}

#[test]
fn s98_what_may_not_be_read_is_named_and_what_is_read_only_is_rewound() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    let program = dir.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = child("checkpoint::s98_unreadable_child", &program);
    command.env("WORKSPACE_UNREADABLE", &home);
    if rustix::process::geteuid().is_root() {
        // Root may read everything: somebody else has to try.
        for path in [dir.path(), &home] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("checked as another user"), "{text}");
}

#[test]
fn s98_a_store_inside_the_workspace_is_no_part_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let data = root.join("share/data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("host.key"), "secret").unwrap();
    fs::write(root.join("a"), "1").unwrap();
    let options = Options {
        own: vec![data.clone()],
        ..Options::default()
    };
    let store = Store::open_with(&data.join("snapshots"), options).unwrap();
    let taken = store.checkpoint(root, &free()).unwrap();
    assert_eq!(taken.entries, 1);
    assert_eq!(store.tree_hash(root, &free()).unwrap(), taken.reference);
    fs::write(root.join("a"), "2").unwrap();
    let rewind = store.rewind(root, &taken.reference, "", &free()).unwrap();
    assert!(rewind.finish().unwrap().exact);
    assert_eq!(fs::read(data.join("host.key")).unwrap(), b"secret");
    for own in [data.clone(), data.join("snapshots")] {
        let refused = store.checkpoint(&own, &free()).unwrap_err();
        assert_eq!(refused.code(), "root");
    }
    // A workspace below the data directory is one like any other.
    let inner = data.join("workspaces/default");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("a"), "2").unwrap();
    assert_eq!(store.checkpoint(&inner, &free()).unwrap().entries, 1);
}
