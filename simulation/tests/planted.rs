//! Defects put in on purpose: the simulation finds each of them within 1,000 seeds.
#![cfg(feature = "planted-faults")]
#![allow(clippy::panic, reason = "a panic is a failed test")]

use harness_session::Planted;
use harness_simulation::{Options, run};

/// The violation that the defect is found by.
fn found(planted: Planted) -> String {
    for seed in 0..1_000 {
        let options = Options {
            planted: Some(planted),
            ..Options::default()
        };
        if let Some(violation) = run(seed, options).violation {
            println!("{planted:?} is found by seed {seed}: {violation}");
            return violation;
        }
    }
    panic!("{planted:?} is not found");
}

#[test]
fn s61_an_event_shown_before_it_is_durable_is_found() {
    let violation = found(Planted::ShowBeforeAppend);
    assert!(violation.contains("before it was durable"), "{violation}");
}

#[test]
fn s54_an_operation_that_is_sent_again_is_found() {
    let violation = found(Planted::SendAgain);
    assert!(violation.contains("was sent 2 times"), "{violation}");
}

#[test]
fn s96_a_result_that_is_handed_back_twice_is_found() {
    let violation = found(Planted::HandBackTwice);
    assert!(violation.contains("hands back"), "{violation}");
}

#[test]
fn s52_a_held_input_that_is_lost_is_found() {
    let violation = found(Planted::LoseHeld);
    assert!(!violation.is_empty());
}
