//! What of delegates a restart brings back, and how often (S72, S73, S76, S77, I38, I39).

use crate::delegates::{delegating, settled};
use crate::support::{LOOP, Sim, restore_of};
use harness_core::command::CommandBody;
use harness_core::event::{DeliveryState, EventBody};
use harness_core::ids::LoopId;
use harness_core::provider::{DelegationError, Params};
use harness_core::session::{DelegateAct, DelegateAnswer, Input, Record, RequestStage, Session};
use std::collections::BTreeMap;

/// The life after a crash at that place of a journal.
fn after_crash(journal: &[Record], at: usize) -> Sim {
    let mut sim = delegating();
    sim.replace_journal(&journal[..at]);
    sim.crash();
    sim
}

fn handed_back(sim: &Sim) -> usize {
    let names = sim.names_since(0);
    names.iter().filter(|n| **n == "SubagentResult").count()
}

/// Ends every turn that runs, well.
fn play_out(sim: &mut Sim) {
    for _ in 0..32 {
        let Some(loop_id) = sim.session.live.owners().map(|o| o.loop_id).next() else {
            return;
        };
        sim.answer_turn(loop_id, "after the crash");
    }
    panic!("it never ends");
}

/// A life in which a parent tells a child twice, once in the background, and reads the results.
fn a_life(background: bool) -> Vec<Record> {
    let mut sim = delegating();
    let (child, _) = sim.child(LOOP, background);
    sim.send_child(LOOP, child, background, false).unwrap();
    play_out(&mut sim);
    sim.journal
}

#[test]
fn i38_a_crash_at_any_append_hands_back_once() {
    let journal = a_life(true);
    let handed = |journal: &[Record]| {
        let names = journal.iter().filter(|r| {
            matches!(r, Record::Command(c) if matches!(c.body, CommandBody::SubagentResult { .. }))
        });
        names.count()
    };
    assert_eq!(handed(&journal), 2, "two requests, two results");
    for at in 2..=journal.len() {
        let mut sim = after_crash(&journal, at);
        play_out(&mut sim);
        let accepted = sim.count("DelegateRequestAccepted");
        assert_eq!(handed_back(&sim), accepted, "crash at {at}");
        assert_eq!(sim.session.state.spawned(), sim.count("LoopStarted") - 1);
        // And once more, when all is over.
        let before = sim.mark();
        sim.crash();
        assert_eq!(
            sim.mark(),
            before,
            "crash at {at}: nothing is left to repair"
        );
    }
}

#[test]
fn s73_i38_a_crash_at_any_append_of_a_foreground_request() {
    let journal = a_life(false);
    for at in 2..=journal.len() {
        let sim = after_crash(&journal, at);
        assert_eq!(handed_back(&sim), 0, "crash at {at}");
        assert_eq!(
            sim.session.live.owners().count(),
            0,
            "nothing is sent again"
        );
        let mut ends = BTreeMap::new();
        for l in sim.session.state.loops.values() {
            for (id, request) in l.requests.iter().filter(|(_, r)| !r.is_intent()) {
                let RequestStage::Settled(end) = &request.stage else {
                    panic!("crash at {at}: {request:?}");
                };
                ends.insert(*id, end.state);
            }
        }
        assert_eq!(ends.len(), sim.count("DelegateRequestAccepted"));
        let known = [DeliveryState::Interrupted, DeliveryState::Completed];
        assert!(ends.values().all(|s| known.contains(s)), "{ends:?}");
    }
}

#[test]
fn s73_an_intent_without_acceptance_is_ignored() {
    let journal = a_life(true);
    let accepted = |r: &Record| matches!(r, Record::Event(e) if matches!(e.body, EventBody::DelegateRequestAccepted { .. }));
    let at = journal.iter().position(accepted).unwrap();
    let sim = after_crash(&journal, at);
    assert_eq!(sim.session.state.queued_inputs(), []);
    assert_eq!(settled(&sim), []);
    assert_eq!(
        sim.session.state.spawned(),
        1,
        "the child was started (S76)"
    );
}

#[test]
fn s72_a_background_request_is_delivered_by_the_next_life() {
    let mut sim = delegating();
    sim.free = 0;
    let (child, request) = sim.child(LOOP, true);
    assert_eq!(sim.ledger.resolution(request), None, "it waits for a slot");
    sim.free = 1;
    sim.crash();
    assert_eq!(sim.ledger.resolution(request), Some("TurnStarted"));
    sim.answer_turn(child, "gold");
    assert_eq!(handed_back(&sim), 1);
}

#[test]
fn s72_a_result_that_was_not_taken_is_delivered_by_the_next_life() {
    let mut sim = delegating();
    let (_, runner) = sim.running();
    let (child, _) = sim.child(LOOP, true);
    sim.answer_turn(child, "gold");
    assert!(sim.session.state.loops[&LOOP].has_wake_token());
    let _ = runner;
    sim.crash();
    assert_eq!(sim.count("InputHeld"), 0, "nobody typed it");
    let started = sim.events().last().unwrap();
    assert_eq!(started.body.meta().name, "TurnStarted");
    assert_eq!(started.cause.loop_id, Some(child));
    assert_eq!(handed_back(&sim), 1);
}

#[test]
fn s72_a_host_that_shuts_down_keeps_what_the_next_life_delivers() {
    let mut sim = delegating();
    let (child, _) = sim.child(LOOP, true);
    let late = sim.send_child(LOOP, child, true, false).unwrap();
    let runner = sim.runner_of(child);
    sim.started(runner, Ok(Params::new()));
    sim.feed(Input::Close);
    sim.done(runner, crate::support::stopped());
    assert_eq!(sim.ledger.resolution(late), None);
    assert_eq!(handed_back(&sim), 1, "the one that ran was interrupted");
    sim.crash();
    play_out(&mut sim);
    assert_eq!(sim.ledger.resolution(late), Some("TurnStarted"));
    assert_eq!(handed_back(&sim), 2);
}

#[test]
fn s73_records_that_disagree_on_the_route_fail_the_restore() {
    let journal = a_life(true);
    let replay = |journal: &[Record]| {
        let Record::Event(begin) = &journal[0] else {
            panic!("an event");
        };
        let mut session = Session::begin(begin, 1).unwrap();
        let mut rest = journal.iter().skip(1).zip(2..);
        rest.try_for_each(|(record, seq)| session.replay(record, seq))
    };
    assert_eq!(replay(&journal), Ok(()));
    for change in 0..4 {
        let mut wrong = journal.clone();
        let changed = wrong.iter_mut().any(|record| match record {
            Record::Event(e) => match (&mut e.body, change) {
                (EventBody::DelegateRequestAccepted { parent_loop_id, .. }, 0) => {
                    *parent_loop_id = e.loop_id;
                    true
                }
                (
                    EventBody::DelegateRequestAccepted {
                        background_hand_back,
                        ..
                    },
                    1,
                ) => {
                    *background_hand_back = false;
                    true
                }
                _ => false,
            },
            Record::Command(c) => match (&c.body, change) {
                (CommandBody::UserInput { target_loop_id, .. }, 2) => {
                    c.header.cause.loop_id = Some(*target_loop_id);
                    true
                }
                (CommandBody::SubagentResult { loop_id, .. }, 3) => {
                    c.header.cause.loop_id = Some(*loop_id);
                    true
                }
                _ => false,
            },
        });
        assert!(changed, "change {change} applies");
        assert!(replay(&wrong).is_err(), "change {change} is found");
    }
}

#[test]
fn s77_a_child_without_its_harness_is_closed() {
    let mut sim = delegating();
    sim.running();
    let (child, open) = sim.child(LOOP, true);
    let queued = sim.send_child(LOOP, child, false, false).unwrap();
    sim.session = restore_of(&sim.journal);
    sim.free = 8;
    sim.feed(Input::Restore {
        lost: vec![child],
        now: None,
    });
    let of = &sim.session.state.loops[&child];
    assert!(of.closed && of.inbox.is_empty());
    assert_eq!(sim.count("LoopTombstoned"), 1);
    for request in [open, queued] {
        let result = sim.delegate(LOOP, DelegateAct::Await { id: 1, request });
        let Ok(DelegateAnswer::Settled(result)) = result else {
            panic!("{result:?}");
        };
        assert_ne!(result.state, DeliveryState::Completed);
    }
    assert_eq!(
        sim.send_child(LOOP, child, false, false),
        Err(DelegationError::Exited)
    );
    let views = sim.session.state.loop_views();
    let state = |id: LoopId| views.iter().find(|v| v.loop_id == id).unwrap().state;
    assert_eq!(state(child), harness_core::view::LoopStanding::Closed);
    assert_eq!(state(LOOP), harness_core::view::LoopStanding::Open);
    let names = sim.names_since(0);
    let at = |name| names.iter().position(|n| *n == name).unwrap();
    assert!(
        at("LoopTombstoned") < at("RestoreDone"),
        "S77: the restore goes on"
    );
    sim.crash();
    assert_eq!(sim.count("LoopTombstoned"), 1);
}
