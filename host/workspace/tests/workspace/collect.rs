//! Garbage goes, and nothing else does.

use crate::support::{Place, free, place};
use harness_workspace::{Bound, WorkspaceError};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn size(p: &Place) -> u64 {
    p.packs()
        .iter()
        .map(|pack| pack.metadata().unwrap().len())
        .sum()
}

#[test]
fn s98_collection_removes_what_no_live_ref_needs_and_keeps_the_rest() {
    let p = place();
    p.write("shared", vec![b's'; 10_000]);
    p.write("d/a", "1");
    let first = p.take().reference;
    let tree = p.tree();
    let noise: Vec<u8> = (0..200_000u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    p.write("big", &noise);
    let second = p.take().reference;
    p.remove("big");
    p.write("d/a", "3");
    let third = p.take().reference;
    let all = p.tree();
    let before = size(&p);

    let mark = p.store.mark();
    let done = p.store.collect(mark, [first, third], &free()).unwrap();
    assert!(done.records >= 3, "{done:?}");
    assert_eq!(done.broken_refs, 0);
    assert_eq!(before - size(&p), done.bytes);
    assert!(done.bytes > 500_000);
    assert!(!p.store.contains(&second));
    assert_eq!(p.refused(&second), "ref_not_found");
    // Nothing more to do.
    let mark = p.store.mark();
    let again = p.store.collect(mark, [first, third], &free()).unwrap();
    assert_eq!((again.records, again.bytes), (0, 0));
    // As another process finds it.
    let p = p.reopen();
    p.rewind(&first);
    assert_eq!(p.tree(), tree);
    p.rewind(&third);
    assert_eq!(p.tree(), all);
    // And all of it.
    let mark = p.store.mark();
    p.store.collect(mark, [], &free()).unwrap();
    assert_eq!(p.packs(), Vec::<std::path::PathBuf>::new());
    // The memory of known files does not keep a later checkpoint from storing them.
    let again = p.take().reference;
    assert_eq!(again, third);
    fs::remove_dir_all(&p.root).unwrap();
    fs::create_dir(&p.root).unwrap();
    p.rewind(&third);
    assert_eq!(p.tree(), all);
}

#[test]
fn s98_a_ref_handed_out_after_the_mark_is_kept_though_nobody_listed_it() {
    let p = place();
    p.write("a", "1");
    let old = p.take().reference;
    let mark = p.store.mark();
    // The same tree again: no new content, and yet a new claim on it.
    assert_eq!(p.take().reference, old);
    p.write("a", "2");
    let new = p.take().reference;
    p.store.collect(mark, [], &free()).unwrap();
    assert!(p.store.contains(&old) && p.store.contains(&new));
    let mark = p.store.mark();
    p.store.collect(mark, [new], &free()).unwrap();
    assert!(!p.store.contains(&old) && p.store.contains(&new));
    p.write("a", "3");
    p.rewind(&new);
    assert_eq!(fs::read(p.root.join("a")).unwrap(), b"2");
}

#[test]
fn s98_checkpoints_and_collections_at_the_same_time_lose_nothing() {
    let p = place();
    let other = p.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                let mark = p.store.mark();
                p.store.collect(mark, [], &free()).unwrap();
                rounds += 1;
            }
            rounds
        });
        for round in 0..60u32 {
            for (n, root) in [&p.root, &other].into_iter().enumerate() {
                // Content comes and goes, so that old packs are relied on again.
                for file in 0..4u32 {
                    fs::write(
                        root.join(format!("f{file}")),
                        format!("{}", (round + file + n as u32) % 5),
                    )
                    .unwrap();
                }
                let mark = p.store.mark();
                p.store.checkpoint(root, &free()).unwrap();
                // Its own collection keeps it only because it was handed out since that mark.
                match p
                    .store
                    .collect(mark, [], &Bound::within(Duration::from_secs(20)))
                {
                    Ok(_) | Err(WorkspaceError::Busy { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(collector.join().unwrap() > 0);
    });
    // Every ref that is there is whole.
    let taken = p.take().reference;
    fs::remove_dir_all(&p.root).unwrap();
    fs::create_dir(&p.root).unwrap();
    assert!(p.rewind(&taken).exact);
}

#[test]
fn s98_a_collection_does_not_wait_beyond_its_bound_and_removes_nothing_then() {
    let p = place();
    p.write("a", "1");
    let taken = p.take().reference;
    let flag = std::sync::Arc::new(AtomicBool::new(true));
    let bound = free().cancelled_by(flag);
    let mark = p.store.mark();
    let refused = p.store.collect(mark, [taken], &bound).unwrap_err();
    assert_eq!(refused.code(), "cancelled");
    assert!(p.store.contains(&taken));
}

#[test]
fn s98_many_small_packs_are_put_together() {
    let p = place();
    let mut refs = Vec::new();
    for n in 0..150 {
        p.write("a", format!("{n}"));
        refs.push(p.take().reference);
    }
    assert_eq!(p.packs().len(), 150);
    let mark = p.store.mark();
    p.store.collect(mark, refs.clone(), &free()).unwrap();
    assert_eq!(p.packs().len(), 1);
    let p = p.reopen();
    for (n, reference) in refs.iter().enumerate().step_by(37) {
        p.rewind(reference);
        assert_eq!(
            fs::read(p.root.join("a")).unwrap(),
            format!("{n}").as_bytes()
        );
    }
}
