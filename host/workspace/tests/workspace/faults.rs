//! A full disk, or any other failure, at every step there is.

use crate::support::{Place, free, place_with};
use harness_workspace::fault::{Hook, Step};
use harness_workspace::{Options, Phase, Recovery, Ref};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

/// Fails one step, the one of this number, or this one and all that follow.
#[derive(Clone, Default)]
struct Plan {
    /// Everything fails from this kind of step on.
    kind: Arc<Mutex<Option<Step>>>,
    at: Arc<AtomicUsize>,
    count: Arc<AtomicUsize>,
    until: Arc<AtomicUsize>,
}

impl Plan {
    fn hook(&self, code: i32) -> Hook {
        let plan = self.clone();
        Hook::new(move |step: Step| {
            let kind = *plan.kind.lock().unwrap();
            if kind == Some(step) {
                plan.set(0, usize::MAX);
            }
            let number = plan.count.fetch_add(1, Ordering::SeqCst);
            let from = plan.at.load(Ordering::SeqCst);
            if number >= from && number < plan.until.load(Ordering::SeqCst) {
                return Err(std::io::Error::from_raw_os_error(code));
            }
            Ok(())
        })
    }

    fn set(&self, at: usize, length: usize) {
        self.count.store(0, Ordering::SeqCst);
        self.at.store(at, Ordering::SeqCst);
        self.until
            .store(at.saturating_add(length), Ordering::SeqCst);
    }

    /// Whether the step to fail was reached.
    fn met(&self) -> bool {
        self.count.load(Ordering::SeqCst) > self.at.load(Ordering::SeqCst)
    }
}

fn faulty(code: i32) -> (Place, Plan) {
    let plan = Plan::default();
    let options = Options {
        hook: Some(plan.hook(code)),
        threads: 1,
        ..Options::default()
    };
    (place_with(options), plan)
}

fn fill(p: &Place) -> Ref {
    p.write("a", "1");
    p.write("d/b", "1");
    p.write("gone/x", "1");
    p.make("empty");
    p.link("a", "l");
    p.mode("d", 0o500);
    p.take().reference
}

fn mutate(p: &Place) {
    p.mode("d", 0o755);
    p.write("a", "2");
    p.write("d/b", "2");
    p.remove("gone");
    p.remove("empty");
    p.write("empty", "now a file");
    p.write("new/y", "2");
    p.remove("l");
    p.make("l");
}

#[test]
fn s98_a_failure_at_any_step_of_a_checkpoint_leaves_no_ref_and_no_pack() {
    let (p, plan) = faulty(ENOSPC);
    for at in 0.. {
        p.write("a", format!("{at}"));
        let reference = p.hash();
        let packs = p.packs();
        plan.set(at, 1);
        let taken = p.store.checkpoint(&p.root, &free());
        let met = plan.met();
        plan.set(usize::MAX, 0);
        match taken {
            Ok(taken) => {
                assert!(!met && at > 3);
                assert_eq!(taken.reference, reference);
                return;
            }
            Err(error) => {
                assert_eq!(error.code(), "disk_full");
                assert!(!p.store.contains(&reference));
                assert_eq!(p.packs(), packs);
            }
        }
        // There is room again.
        p.take();
    }
}

#[test]
fn s99_a_failure_at_any_step_of_a_rewind_puts_the_tree_back() {
    for code in [ENOSPC, EIO] {
        let (p, plan) = faulty(code);
        let taken = fill(&p);
        let before = p.tree();
        mutate(&p);
        let mutated = p.tree();
        for at in 0.. {
            plan.set(at, 1);
            let rewound = p.store.rewind(&p.root, &taken, "", &free());
            let met = plan.met();
            plan.set(usize::MAX, 0);
            match rewound {
                Ok(rewind) => {
                    assert!(!met && at > 20, "{at}");
                    rewind.finish().unwrap();
                    assert_eq!(p.tree(), before);
                    break;
                }
                Err(error) => {
                    assert_eq!(
                        error.code(),
                        if code == ENOSPC { "disk_full" } else { "io" }
                    );
                    assert_eq!(p.tree(), mutated, "{at}");
                    assert_eq!(p.store.pending(&p.root).unwrap(), None, "{at}");
                }
            }
        }
    }
}

#[test]
fn s99_when_putting_back_fails_too_the_rewind_is_on_record_and_ends_either_way() {
    let (p, plan) = faulty(EIO);
    let taken = fill(&p);
    let before = p.tree();
    mutate(&p);
    let mutated = p.tree();
    let mut failed = 0;
    for at in 0..60 {
        let recovery = if at % 2 == 0 {
            Recovery::Finish
        } else {
            Recovery::RollBack
        };
        // Everything fails from here on.
        plan.set(at, usize::MAX);
        let rewound = p.store.rewind(&p.root, &taken, "tag", &free());
        plan.set(usize::MAX, 0);
        match rewound {
            Ok(rewind) => rewind.rollback(&free()).unwrap(),
            Err(error) if error.code() == "rollback_failed" => {
                failed += 1;
                // The very first record may have been refused: then there is nothing to recover.
                let pending = p.store.pending(&p.root).unwrap();
                let recovered = p.store.recover(&p.root, recovery, &free()).unwrap();
                assert_eq!(recovered, pending.is_some());
                let forward = recovered && recovery == Recovery::Finish;
                assert_eq!(
                    p.tree(),
                    if forward {
                        before.clone()
                    } else {
                        mutated.clone()
                    },
                    "{at}"
                );
                if forward {
                    mutate(&p);
                }
            }
            Err(error) => assert_eq!(error.code(), "io", "{at}"),
        }
        assert_eq!(p.tree(), mutated, "{at}");
        assert_eq!(p.store.pending(&p.root).unwrap(), None);
    }
    assert!(failed > 10);
}

#[test]
fn s99_a_failing_recovery_can_be_tried_again() {
    for recovery in [Recovery::Finish, Recovery::RollBack] {
        let (p, plan) = faulty(EIO);
        let taken = fill(&p);
        let before = p.tree();
        mutate(&p);
        let mutated = p.tree();
        let mut met = 0;
        for at in 0.. {
            // Interrupted in the middle of moving.
            *plan.kind.lock().unwrap() = Some(Step::Move);
            let refused = p.store.rewind(&p.root, &taken, "", &free()).map(|_| ());
            *plan.kind.lock().unwrap() = None;
            plan.set(usize::MAX, 0);
            assert_eq!(refused.unwrap_err().code(), "rollback_failed");
            let phase = p.store.pending(&p.root).unwrap().unwrap().phase;
            assert_eq!(phase, Phase::Moving);
            plan.set(at, 1);
            let recovered = p.store.recover(&p.root, recovery, &free());
            let reached = plan.met();
            plan.set(usize::MAX, 0);
            if recovered.is_err() {
                met += 1;
                assert!(p.store.recover(&p.root, recovery, &free()).unwrap());
            }
            let forward = recovery == Recovery::Finish;
            assert_eq!(
                p.tree(),
                if forward {
                    before.clone()
                } else {
                    mutated.clone()
                }
            );
            if forward {
                mutate(&p);
            }
            if !reached {
                break;
            }
        }
        assert!(met > 10);
    }
}

#[test]
fn s98_a_failure_at_any_step_of_a_collection_loses_nothing() {
    let (p, plan) = faulty(ENOSPC);
    for at in 0.. {
        p.write("a", format!("old {at}"));
        p.write("b", "kept");
        let old = p.take().reference;
        p.write("a", format!("new {at}"));
        let new = p.take().reference;
        let mark = p.store.mark();
        plan.set(at, 1);
        let collected = p.store.collect(mark, [new], &free());
        let met = plan.met();
        plan.set(usize::MAX, 0);
        p.write("b", "changed");
        p.rewind(&new);
        assert_eq!(std::fs::read(p.root.join("b")).unwrap(), b"kept");
        if collected.is_ok() {
            assert!(!met && at > 3);
            assert!(!p.store.contains(&old));
            return;
        }
    }
}
