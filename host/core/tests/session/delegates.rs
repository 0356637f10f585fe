//! Delegates: who may start and address them, and how far (S30, S90-S92, S94, S96).

use crate::support::{LOOP, Sim, code, stopped};
use harness_core::command::CommandBody;
use harness_core::content::Part;
use harness_core::event::{DeliveryState, EventBody};
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::{
    CancelledAt, DelegateStart, DelegateTask, DelegationError, InputOrigin, MAX_SPAWNS, Params,
};
use harness_core::session::{
    Answer, DelegateAct, DelegateAnswer, DelegateCall, Effect, Input, Record,
};
use uuid::Uuid;

/// A session whose harness delegates, with slots for everybody.
pub(crate) fn delegating() -> Sim {
    let mut sim = Sim::new();
    sim.free = 8;
    sim.harness.as_mut().unwrap().features.delegation = true;
    sim
}

pub(crate) fn settled(sim: &Sim) -> Vec<DeliveryState> {
    let states = sim.events().filter_map(|e| match &e.body {
        EventBody::DelegateDeliveryStateChanged { state, .. } => Some(*state),
        _ => None,
    });
    states.collect()
}

#[test]
fn s96_intent_then_acceptance_then_the_turn() {
    let mut sim = delegating();
    sim.running();
    let mark = sim.mark();
    let (child, request) = sim.child(LOOP, false);
    assert_eq!(
        sim.names_since(mark),
        [
            "LoopStarted",
            "UserInput",
            "DelegateRequestAccepted",
            "TurnStarted"
        ]
    );
    let of = &sim.session.state.loops[&child];
    assert_eq!(of.parent, Some(LOOP));
    let told = sim.effects.iter().rev().find_map(|e| match e {
        Effect::StartPrompt { input, loop_id, .. } if *loop_id == child => Some(input.clone()),
        _ => None,
    });
    let told = told.expect("the child is prompted");
    assert_eq!(told.origin, InputOrigin::Delegate(request.to_string()));
    assert_eq!(told.parts, [Part::Text { text: "dig".into() }]);
    sim.answer_turn(child, "gold");
    assert_eq!(settled(&sim), [DeliveryState::Completed]);
    assert_eq!(sim.count("LoopIdle"), 1, "the child is idle");
}

#[test]
fn s96_a_result_is_awaited_or_found_afterwards() {
    let mut sim = delegating();
    let (child, request) = sim.child(LOOP, false);
    let waits = sim.delegate(LOOP, DelegateAct::Await { id: 1, request });
    assert_eq!(waits, Ok(DelegateAnswer::Awaiting));
    sim.answer_turn(child, "gold");
    let result = sim.delegated[&1].clone().unwrap();
    assert_eq!(
        (result.state, &*result.text),
        (DeliveryState::Completed, "gold")
    );
    let again = sim.delegate(LOOP, DelegateAct::Await { id: 2, request });
    assert_eq!(again, Ok(DelegateAnswer::Settled(result.clone())));
    sim.crash();
    let later = sim.delegate(LOOP, DelegateAct::Await { id: 3, request });
    assert_eq!(later, Ok(DelegateAnswer::Settled(result)));
}

#[test]
fn s96_a_wait_that_is_given_up_leaves_the_child_running() {
    let mut sim = delegating();
    let (child, request) = sim.child(LOOP, false);
    let _ = sim.delegate(LOOP, DelegateAct::Await { id: 1, request });
    sim.feed(Input::Unawait(1));
    assert!(sim.session.live.of(child).owner.is_some());
    sim.answer_turn(child, "gold");
    assert!(sim.delegated.is_empty(), "nobody is told");
    assert_eq!(settled(&sim), [DeliveryState::Completed]);
}

#[test]
fn s96_a_failed_append_leaves_no_loop_and_gives_the_quota_back() {
    let mut sim = delegating();
    let before = sim.session.clone();
    sim.disk_full = true;
    assert!(matches!(
        sim.try_child(LOOP, true),
        Err(DelegationError::Failed(_))
    ));
    assert_eq!(sim.session, before, "no phantom loop or request");
    assert_eq!(sim.session.state.spawned(), 0);
    sim.disk_full = false;
    sim.child(LOOP, true);
    assert_eq!(sim.session.state.spawned(), 1);
}

#[test]
fn i31_without_an_id_nothing_is_started() {
    let mut sim = delegating();
    sim.ids.broken = true;
    let mark = sim.mark();
    assert!(matches!(
        sim.try_child(LOOP, false),
        Err(DelegationError::Failed(_))
    ));
    assert_eq!(sim.mark(), mark);
}

#[test]
fn s96_three_loops_deep_and_no_deeper() {
    let mut sim = delegating();
    let mut parent = LOOP;
    for _ in 0..3 {
        parent = sim.child(parent, false).0;
    }
    assert_eq!(sim.session.state.depth(parent), 3);
    let mark = sim.mark();
    assert_eq!(sim.try_child(parent, false), Err(DelegationError::Depth));
    assert_eq!(sim.mark(), mark, "nothing is recorded");
}

#[test]
fn s76_i39_the_quota_is_spent_for_good() {
    let mut sim = delegating();
    sim.free = 100;
    for _ in 0..MAX_SPAWNS {
        let (child, _) = sim.child(LOOP, false);
        sim.answer_turn(child, "done");
    }
    assert_eq!(sim.try_child(LOOP, false), Err(DelegationError::Quota));
    sim.crash();
    assert_eq!(
        sim.try_child(LOOP, false),
        Err(DelegationError::Quota),
        "a restart does not refill it"
    );
    let child = sim.nth_loop(1);
    assert!(sim.send_child(LOOP, child, false, false).is_ok());
}

#[test]
fn s96_only_the_direct_parent_addresses_a_child() {
    let mut sim = delegating();
    let other = sim.create_loop(None);
    let (child, request) = sim.child(LOOP, false);
    let (grandchild, _) = sim.child(child, false);
    let refused = Err(DelegationError::NotParent);
    assert_eq!(sim.send_child(other, child, false, false), refused);
    assert_eq!(sim.send_child(LOOP, grandchild, false, false), refused);
    assert_eq!(
        sim.send_child(child, child, false, false),
        refused,
        "it is not its own parent"
    );
    let unknown = LoopId(Uuid::max());
    assert_eq!(sim.send_child(LOOP, unknown, false, false), refused);
    for act in [
        DelegateAct::Await { id: 1, request },
        DelegateAct::Cancel(request),
        DelegateAct::Stop(child),
    ] {
        let refused = Err(DelegationError::NotParent);
        assert_eq!(sim.delegate(other, act), refused);
    }
    let of = sim.delegate(LOOP, DelegateAct::List);
    let Ok(DelegateAnswer::Children(children)) = of else {
        panic!("{of:?}");
    };
    assert_eq!(children.len(), 1, "the children, not theirs");
    assert_eq!(children[0].open_requests, [request]);
    assert!(children[0].running && !children[0].closed);
}

#[test]
fn s96_people_do_not_address_a_child_either() {
    let mut sim = delegating();
    let (child, _) = sim.child(LOOP, false);
    let (_, answer) = sim.submit_to(child, "hello");
    assert_eq!(code(&answer), "invalid_request");
    let answer = sim.feed(Input::SetActiveLoop(child));
    assert_eq!(code(&answer), "invalid_request");
    assert_eq!(
        sim.interrupt_loop(child),
        Answer::Stopping(CommandId(Uuid::from_u128(sim_command(&sim)))),
        "but they stop it"
    );
}

/// The number of the newest interrupt.
fn sim_command(sim: &Sim) -> u128 {
    let ids = sim.journal.iter().rev().filter_map(|r| match r {
        Record::Command(c) if matches!(c.body, CommandBody::Interrupt {}) => Some(c.id().0),
        _ => None,
    });
    ids.map(|id| id.as_u128()).next().unwrap()
}

#[test]
fn s96_what_was_not_declared_or_is_not_there_is_refused() {
    let mut sim = Sim::new();
    let denied = sim.try_child(LOOP, false);
    assert!(
        matches!(denied, Err(DelegationError::Denied(_))),
        "{denied:?}"
    );
    let mut sim = delegating();
    let start = |mode: &str, parts: Vec<Part>| {
        DelegateAct::Start(DelegateStart {
            harness: crate::support::HARNESS.parse().unwrap(),
            model: None,
            mode: mode.into(),
            task: DelegateTask {
                parts,
                background: false,
                fold: false,
            },
        })
    };
    let text = || vec![Part::Text { text: "x".into() }];
    let mode = sim.delegate(LOOP, start("no such", text()));
    assert!(matches!(mode, Err(DelegationError::Invalid(_))), "{mode:?}");
    let empty = sim.delegate(LOOP, start("", Vec::new()));
    assert!(matches!(empty, Err(DelegationError::Limit(_))), "{empty:?}");
    let large = Part::Text {
        text: "x".repeat(1024 * 1024 + 1),
    };
    let large = sim.delegate(LOOP, start("", vec![large]));
    assert!(matches!(large, Err(DelegationError::Limit(_))), "{large:?}");
    let plan = Part::Plan { text: "p".into() };
    let plan = sim.delegate(LOOP, start("", vec![plan]));
    assert!(matches!(plan, Err(DelegationError::Invalid(_))), "{plan:?}");
    sim.harness = None;
    let act = start("", text());
    // The harness of the parent is gone with it.
    assert!(matches!(
        sim.delegate(LOOP, act),
        Err(DelegationError::Denied(_))
    ));
    assert_eq!(sim.session.state.loops.len(), 1, "nothing was started");
}

#[test]
fn s91_a_marked_loop_starts_and_tells_nothing() {
    let mut sim = delegating();
    sim.running();
    let (child, request) = sim.child(LOOP, false);
    sim.interrupt();
    for of in [LOOP, child] {
        assert!(sim.session.live.is_marked(of));
    }
    let stopping = DelegationError::Stopping;
    assert_eq!(sim.try_child(LOOP, false), Err(stopping.clone()));
    assert_eq!(sim.try_child(child, false), Err(stopping.clone()));
    assert_eq!(sim.send_child(LOOP, child, false, false), Err(stopping));
    let invocation = Some(sim.runner());
    let call = DelegateCall {
        parent: LOOP,
        invocation,
        act: DelegateAct::Await { id: 1, request },
    };
    assert_eq!(
        sim.feed(Input::Delegate(Box::new(call))),
        Answer::Delegate(Err(DelegationError::Stopped)),
        "its invocation was aborted"
    );
}

#[test]
fn s96_the_channel_of_an_invocation_that_is_over_has_no_authority() {
    let mut sim = delegating();
    let (_, runner) = sim.running();
    sim.done(runner, Ok(Default::default()));
    let call = DelegateCall {
        parent: LOOP,
        invocation: Some(runner),
        act: DelegateAct::List,
    };
    assert_eq!(
        sim.feed(Input::Delegate(Box::new(call))),
        Answer::Delegate(Err(DelegationError::Closed))
    );
}

#[test]
fn s94_shutdown_takes_the_authority_back_first() {
    let mut sim = delegating();
    sim.running();
    let (child, request) = sim.child(LOOP, true);
    let _ = sim.delegate(LOOP, DelegateAct::Await { id: 1, request });
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin));
    assert_eq!(sim.delegated[&1], Err(DelegationError::Stopped));
    assert_eq!(sim.try_child(LOOP, false), Err(DelegationError::Stopping));
    assert_eq!(
        sim.send_child(LOOP, child, false, false),
        Err(DelegationError::Stopping)
    );
    for loop_id in [child, LOOP] {
        let runner = sim.runner_of(loop_id);
        match sim.session.live.invocation(runner).unwrap().started {
            true => sim.done(runner, stopped()),
            false => sim.started(
                runner,
                crate::support::refused(harness_core::provider::Refusal::Cancelled),
            ),
        }
    }
    assert!(sim.session.state.stopped);
    let names = sim.names_since(0);
    assert_eq!(names.last(), Some(&"SessionStopped"), "nothing follows");
    assert!(names.contains(&"SubagentResult"), "{names:?}");
    assert_eq!(sim.session.state.queued_inputs(), []);
}

#[test]
fn s92_a_stopped_child_is_idle_and_can_be_told_more() {
    let mut sim = delegating();
    sim.running();
    let (child, _) = sim.child(LOOP, false);
    let (grandchild, _) = sim.child(child, false);
    let queued = sim.send_child(LOOP, child, false, false).unwrap();
    let _ = sim.delegate(LOOP, DelegateAct::Stop(child));
    let is_stopped = |sim: &Sim| sim.effect(|e| matches!(e, Effect::Stopped(_)));
    assert!(!sim.is_aborted(sim.runner()), "its parent goes on");
    assert!(
        sim.session.state.loops.values().all(|l| !l.disarmed),
        "and may announce native turns"
    );
    for loop_id in [grandchild, child] {
        assert_eq!(is_stopped(&sim), 0, "it waits for all below it");
        let runner = sim.runner_of(loop_id);
        assert!(sim.is_aborted(runner));
        sim.started(runner, Ok(Params::new()));
        sim.done(runner, stopped());
    }
    assert_eq!(is_stopped(&sim), 1);
    assert_eq!(sim.ledger.resolution(queued), Some("InputCancelled"));
    let more = sim.send_child(LOOP, child, false, false);
    assert!(more.is_ok(), "{more:?}");
    sim.answer_turn(child, "again");
    let mark = sim.mark();
    let idle = sim.delegate(LOOP, DelegateAct::Stop(child));
    assert_eq!((idle, sim.mark()), (Ok(DelegateAnswer::Awaiting), mark));
}

#[test]
fn s4_a_request_is_cancelled_where_it_is() {
    let mut sim = delegating();
    let (child, first) = sim.child(LOOP, true);
    let second = sim.send_child(LOOP, child, true, false).unwrap();
    let cancel = |sim: &mut Sim, request| match sim.delegate(LOOP, DelegateAct::Cancel(request)) {
        Ok(DelegateAnswer::Cancelled(at)) => at,
        other => panic!("{other:?}"),
    };
    assert_eq!(cancel(&mut sim, second), CancelledAt::Queued);
    assert_eq!(cancel(&mut sim, second), CancelledAt::Noop);
    assert_eq!(cancel(&mut sim, first), CancelledAt::Active);
    let runner = sim.runner_of(child);
    sim.started(runner, Ok(Params::new()));
    sim.done(runner, stopped());
    assert_eq!(cancel(&mut sim, first), CancelledAt::Noop);
    assert_eq!(settled(&sim), [DeliveryState::Cancelled; 2]);
    assert_eq!(
        sim.names_since(0)
            .iter()
            .filter(|n| **n == "SubagentResult")
            .count(),
        0,
        "what was taken back is not handed back"
    );
}

#[test]
fn s96_who_waits_lends_its_slot() {
    let mut sim = delegating();
    sim.free = 1;
    sim.running();
    let (child, request) = sim.child(LOOP, false);
    let (other, _) = sim.child(LOOP, false);
    assert!(
        sim.session.live.of(child).owner.is_none(),
        "the pool is full"
    );
    let _ = sim.delegate(LOOP, DelegateAct::Await { id: 1, request });
    assert!(sim.session.live.of(child).owner.is_some());
    assert!(sim.session.live.of(other).owner.is_none(), "one at a time");
    sim.answer_turn(child, "gold");
    assert!(sim.delegated.contains_key(&1));
    assert_eq!(sim.free, 0, "the slot that was lent is repaid");
}

#[test]
fn s96_the_inbox_of_a_child_is_bounded() {
    let mut sim = delegating();
    sim.inbox = 2;
    let (child, _) = sim.child(LOOP, false);
    for _ in 0..2 {
        sim.send_child(LOOP, child, false, false).unwrap();
    }
    let mark = sim.mark();
    let full = sim.send_child(LOOP, child, false, false);
    assert_eq!(full, Err(DelegationError::QueueFull));
    assert_eq!(sim.mark(), mark, "nothing is recorded");
}
