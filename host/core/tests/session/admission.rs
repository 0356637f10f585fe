//! Whether and when an operation is reserved (R60, R61, R63, R65, S53).

use crate::scenes::{idle, prompt_starting, queued};
use crate::support::{LOOP, code, completed};
use harness_core::operation::Execution;
use harness_core::provider::CallError;
use harness_core::session::{Answer, Effect, Input};
use harness_core::view::Status;

#[test]
fn r60_the_order_of_an_exclusives_checks() {
    // Busy and no slot and another run in between: busy comes first.
    let mut sim = idle().sim;
    let stale = sim.prepared(Execution::Exclusive);
    let (_, first) = sim.exclusive();
    assert_eq!(code(&sim.reserve(stale.clone())), "session_busy");
    sim.invoked(first, completed());
    sim.free = 0;
    assert_eq!(
        code(&sim.reserve(stale.clone())),
        "no_free_slot",
        "then the slot"
    );
    sim.free = 1;
    assert_eq!(
        code(&sim.reserve(stale)),
        "status_changed",
        "then the status it observed"
    );
    assert_eq!(sim.free, 1, "with the slot given back");
}

#[test]
fn r60_prompts_in_the_queue_keep_exclusives_out() {
    let mut sim = queued().sim;
    assert_eq!(code(&sim.try_exclusive()), "session_busy");
    sim.crash();
    assert_eq!(sim.status(), Status::Completed);
    assert_eq!(
        code(&sim.try_exclusive()),
        "session_busy",
        "held ones count too"
    );
}

#[test]
fn r60_the_last_slot_goes_to_one_of_two_sessions() {
    let (mut first, mut second) = (idle().sim, idle().sim);
    first.exclusive();
    second.free = first.free;
    let before = second.session.clone();
    assert_eq!(code(&second.try_exclusive()), "no_free_slot");
    assert_eq!(second.session, before, "its status is unchanged");
}

#[test]
fn r61_s53_an_intent_that_is_not_durable_reserves_nothing() {
    for execution in [Execution::Control, Execution::Exclusive] {
        let mut sim = idle().sim;
        sim.disk_full = true;
        let before = sim.session.clone();
        let reserve = sim.prepared(execution);
        assert_eq!(code(&sim.reserve(reserve)), "store_unavailable");
        assert_eq!(
            (sim.session.clone(), sim.free, sim.invokes()),
            (before, 1, 0)
        );
    }
}

#[test]
fn r63_i9_idle_controls_see_history_and_add_to_it() {
    let mut sim = idle().sim;
    for (seen, reply) in [(0, "one"), (1, "two")] {
        let (_, control) = sim.control();
        assert_eq!(sim.history().len(), seen);
        sim.invoked_with(control, completed(), &[reply]);
    }
    assert_eq!(sim.history(), ["one", "two"]);
    assert_eq!(sim.count("TurnStarted"), 0);
    let groups: Vec<_> = sim
        .events()
        .filter(|e| e.body.meta().name == "StepDone")
        .collect();
    assert!(
        groups
            .iter()
            .all(|e| e.turn_id.is_zero() && e.cause.command_id.is_some()),
        "S56"
    );
}

#[test]
fn r65_a_control_waits_for_a_starting_prompt_in_vain() {
    let mut scene = prompt_starting();
    let mut reserve = scene.sim.prepared(Execution::Control);
    assert_eq!(scene.sim.reserve(reserve.clone()), Answer::WaitForHandle);
    reserve.waited = true;
    assert_eq!(
        code(&scene.sim.reserve(reserve.clone())),
        "session_busy",
        "the bound passed"
    );
    let trap = CallError::Trap("x".into());
    scene.sim.started(scene.runner.unwrap(), Err(trap));
    assert_eq!(
        scene.sim.effect(|e| *e == Effect::RetryWaiting),
        2,
        "waiters are told of the failure"
    );
    assert_eq!(
        code(&scene.sim.reserve(reserve)),
        "session_busy",
        "startup failed"
    );
    assert_eq!(scene.sim.invokes(), 0);
}

#[test]
fn s53_step_6_a_state_that_moved_on_is_read_again() {
    let mut sim = idle().sim;
    let mut reserve = sim.prepared(Execution::Control);
    reserve.state_epoch = Some(sim.live().state_epoch);
    sim.feed(Input::StateChanged(LOOP));
    assert_eq!(sim.reserve(reserve.clone()), Answer::Reread);
    assert_eq!(sim.invokes(), 0);
    reserve.state_epoch = Some(sim.live().state_epoch);
    assert!(matches!(sim.reserve(reserve), Answer::Reserved(_)));
}
