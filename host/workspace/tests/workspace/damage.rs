//! Damage is met as an error, never as a wrong tree.

use crate::support::{Place, free, place};
use harness_workspace::Ref;
use std::fs;
use std::path::PathBuf;

fn stored() -> (Place, Ref, PathBuf) {
    let p = place();
    p.write("a", vec![b'a'; 3_000]);
    p.write(
        "b",
        (0..3_000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect::<Vec<_>>(),
    );
    p.write("d/c", "short");
    p.link("a", "l");
    let taken = p.take().reference;
    let packs = p.packs();
    assert_eq!(packs.len(), 1);
    (p, taken, packs[0].clone())
}

#[test]
fn s99_any_flipped_byte_of_a_pack_gives_an_error_or_the_right_tree() {
    let (p, taken, pack) = stored();
    let right = p.tree();
    let bytes = fs::read(&pack).unwrap();
    let mut refused = 0;
    for at in (0..bytes.len())
        .step_by(7)
        .chain(bytes.len() - 60..bytes.len())
    {
        // A store of its own, opened as after a restart.
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        fs::create_dir_all(store.join("packs")).unwrap();
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        fs::write(store.join("packs").join(pack.file_name().unwrap()), damaged).unwrap();
        let store = harness_workspace::Store::open(&store).unwrap();
        let root = dir.path().join("workspace");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("mine"), "mine").unwrap();
        let before = crate::support::describe(&root);
        match store.rewind(&root, &taken, "", &free()) {
            Ok(rewind) => {
                // A byte that no reading needs.
                rewind.finish().unwrap();
                assert_eq!(crate::support::describe(&root), right, "{at}");
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.code(), "corrupt", "{at}: {error}");
                assert_eq!(crate::support::describe(&root), before, "{at}");
            }
        }
    }
    assert!(refused > bytes.len() / 10);
}

#[test]
fn s99_any_truncated_pack_gives_an_error_and_a_new_checkpoint_heals() {
    let (p, taken, pack) = stored();
    let right = p.tree();
    let bytes = fs::read(&pack).unwrap();
    let mut p = p;
    for length in (0..bytes.len()).step_by(97) {
        fs::write(&pack, &bytes[..length]).unwrap();
        p = p.reopen();
        p.write("b", "changed");
        assert_eq!(p.refused(&taken), "corrupt", "{length}");
        assert_eq!(fs::read(p.root.join("b")).unwrap(), b"changed");
        fs::write(&pack, &bytes).unwrap();
        p = p.reopen();
        p.rewind(&taken);
        assert_eq!(p.tree(), right);
        for other in p.packs() {
            if other != pack {
                fs::remove_file(other).unwrap();
            }
        }
    }
    fs::write(&pack, &bytes[..bytes.len() / 2]).unwrap();
    let p = p.reopen();
    // Nothing of the damaged pack is relied on.
    let healed = p.take();
    assert_eq!(healed.reference, taken);
    assert!(healed.new_records > 0);
    p.remove("a");
    p.rewind(&taken);
    assert_eq!(p.tree(), right);
}

#[test]
fn s99_content_damaged_while_the_store_is_open_is_found_and_stored_again() {
    let (p, taken, pack) = stored();
    let right = p.tree();
    let mut bytes = fs::read(&pack).unwrap();
    // Every stored byte, so that whatever is read first is damaged.
    let end = bytes.len() - 500;
    bytes[60..end].iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(&pack, bytes).unwrap();
    p.write("a", "changed");
    p.write("b", "changed");
    let mutated = p.tree();
    for _ in 0..10 {
        if p.store.contains(&taken) {
            assert_eq!(p.refused(&taken), "corrupt");
            assert_eq!(p.tree(), mutated);
        }
    }
    // A collection does not stumble over it and keeps what is sound.
    let now = p.take().reference;
    let mark = p.store.mark();
    p.store.collect(mark, [taken, now], &free()).unwrap();
    assert_ne!(p.tree(), right);
}

#[test]
fn s99_a_damaged_record_of_a_rewind_is_an_error_and_stops_the_collection() {
    let (p, taken, _) = stored();
    p.write("a", "2");
    drop(p.store.rewind(&p.root, &taken, "", &free()).unwrap());
    let rewinds = p.dir.path().join("store/rewinds");
    let record = fs::read_dir(rewinds)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let good = fs::read(&record).unwrap();
    for bad in [&b""[..], b"{}", &good[..good.len() - 1], b"{\"v\":2}"] {
        fs::write(&record, bad).unwrap();
        assert_eq!(p.store.pending(&p.root).unwrap_err().code(), "corrupt");
        assert_eq!(p.refused(&taken), "corrupt");
        let mark = p.store.mark();
        let refused = p.store.collect(mark, [], &free()).unwrap_err();
        assert_eq!(refused.code(), "corrupt");
    }
    let text = String::from_utf8(good).unwrap();
    let escaped = text.replace(".harness-rewind-", ".harness-rewind-/../../");
    fs::write(&record, escaped).unwrap();
    assert_eq!(p.store.pending(&p.root).unwrap_err().code(), "corrupt");
}

#[test]
fn s99_a_store_of_another_format_is_refused() {
    let p = place();
    fs::write(p.dir.path().join("store/format"), "2").unwrap();
    let Place { dir, store, .. } = p;
    drop(store);
    let open = |dir: &std::path::Path| {
        harness_workspace::Store::open(&dir.join("store"))
            .map(|_| ())
            .unwrap_err()
            .code()
    };
    assert_eq!(open(dir.path()), "store_newer_version");
    fs::write(dir.path().join("store/format"), "?").unwrap();
    assert_eq!(open(dir.path()), "corrupt");
}

#[test]
fn s99_what_a_crash_left_unfinished_is_removed_and_stops_nothing() {
    let (p, taken, _) = stored();
    let store = p.dir.path().join("store");
    let left = ["rewinds/tmp-ab.json", "packs/tmp-0-0", "tmp-format"];
    for name in left {
        fs::write(store.join(name), "{").unwrap();
    }
    let mark = p.store.mark();
    p.store.collect(mark, [taken], &free()).unwrap();
    let p = p.reopen();
    for name in left {
        assert!(!store.join(name).exists(), "{name}");
    }
    p.rewind(&taken);
}
