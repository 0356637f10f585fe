//! Shutting a session down and taking it up again (S94, S102, and the column `shutdown` and the row
//! `closing or stopped` of the race matrix).

use crate::scenes::{Scene, awaiting_gate, end, exclusive_starting, idle, idle_control};
use crate::scenes::{prompt_starting, stopping, turn_running};
use crate::support::{LOOP, Sim, code, stopped};
use harness_core::event::{CancelReason, EventBody, InterruptReason};
use harness_core::gate::{CloseReason, GateReply};
use harness_core::ids::CommandId;
use harness_core::provider::{ChannelError, Compaction, Params, TurnStart};
use harness_core::session::{Answer, Effect, Input};
use harness_core::view::Status;

fn shut_down(sim: &mut Sim) -> Answer {
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin))
}

fn ended(sim: &Sim) -> usize {
    sim.effect(|e| *e == Effect::ShutDown)
}

/// Nothing follows `SessionStopped`.
fn is_over(sim: &Sim) {
    assert_eq!(sim.status(), Status::Stopped);
    assert_eq!(sim.names_since(sim.mark() - 1), ["SessionStopped"]);
    assert_eq!(ended(sim), 1, "every caller gets the one result");
    assert!(!sim.session.state.active);
}

#[test]
fn s94_an_idle_session_stops_at_once() {
    let mut sim = Sim::new();
    let mark = sim.mark();
    assert_eq!(shut_down(&mut sim), Answer::ShuttingDown);
    assert_eq!(sim.names_since(mark), ["Shutdown", "SessionStopped"]);
    is_over(&sim);
    let mark = sim.mark();
    assert_eq!(
        shut_down(&mut sim),
        Answer::Bool(true),
        "S118: it is stopped"
    );
    assert_eq!(sim.mark(), mark);
    sim.crash();
    assert_eq!(sim.status(), Status::Stopped);
    assert_eq!(sim.mark(), mark, "S78: waking it writes nothing");
}

#[test]
fn matrix_shutdown_stops_what_runs_and_tears_down() {
    let scenes: [fn() -> Scene; 6] = [
        prompt_starting,
        exclusive_starting,
        turn_running,
        awaiting_gate,
        idle_control,
        stopping,
    ];
    for scene in scenes {
        let mut scene = scene();
        let gates = scene.sim.session.state.gates().len();
        let queued = scene.sim.prompt("waits");
        assert_eq!(shut_down(&mut scene.sim), Answer::ShuttingDown);
        assert_eq!(shut_down(&mut scene.sim), Answer::ShuttingDown);
        assert_eq!(ended(&scene.sim), 0, "it waits for what it aborted");
        if gates > 0 {
            assert!(matches!(
                scene.sim.last("GateResolved"),
                EventBody::GateResolved {
                    reason: CloseReason::OwnerClosed,
                    ..
                }
            ));
        }
        end(&mut scene);
        is_over(&scene.sim);
        let cancelled = scene
            .sim
            .events()
            .find(|e| e.cause.command_id == Some(queued) && e.body.meta().name == "InputCancelled");
        assert!(matches!(
            cancelled.unwrap().body,
            EventBody::InputCancelled {
                reason: CancelReason::ShuttingDown
            }
        ));
    }
}

#[test]
fn s94_i40_a_wedged_loop_costs_its_phase_alone() {
    for scene in [turn_running, exclusive_starting, idle_control] {
        let mut scene = scene();
        let invocation = scene.sim.runner();
        shut_down(&mut scene.sim);
        assert_eq!(scene.sim.feed(Input::ShutdownExpired), Answer::Bool(true));
        is_over(&scene.sim);
        let mark = scene.sim.mark();
        scene.sim.feed(Input::Done {
            invocation,
            result: stopped(),
            messages: Vec::new(),
        });
        assert_eq!(scene.sim.mark(), mark, "I40: no event after SessionStopped");
        assert_eq!(scene.sim.feed(Input::ShutdownExpired), Answer::Bool(false));
    }
}

#[test]
fn s94_an_announcement_that_is_held_back_holds_no_shutdown_back() {
    let mut sim = idle().sim;
    sim.feed(Input::Paced {
        loop_id: LOOP,
        announcements: 1,
    });
    shut_down(&mut sim);
    is_over(&sim);
    let announced = sim.announce(1, "late", TurnStart::Running);
    assert_eq!(announced, Answer::Channel(ChannelError::Closed));
}

#[test]
fn s44_held_inputs_end_with_the_session() {
    let mut sim = idle().sim;
    sim.free = 0;
    let input = sim.prompt("held");
    sim.crash();
    assert_eq!(sim.count("InputHeld"), 1);
    shut_down(&mut sim);
    assert_eq!(sim.ledger.resolution(input), Some("InputCancelled"));
    is_over(&sim);
}

#[test]
fn s95_who_waits_for_a_compaction_is_told() {
    let mut scene = turn_running();
    scene.sim.harness.as_mut().unwrap().features.compaction = true;
    scene.sim.compact(LOOP);
    shut_down(&mut scene.sim);
    end(&mut scene);
    assert_eq!(scene.sim.count("CompactWaiterRejected"), 1);
    is_over(&scene.sim);
    let mut sim = idle().sim;
    sim.harness.as_mut().unwrap().features.compaction = true;
    sim.compact(LOOP);
    let invocation = sim.runner();
    shut_down(&mut sim);
    sim.compacted(invocation, Ok(Compaction::default()));
    assert_eq!(
        sim.count("CompactWaiterResolved"),
        1,
        "what was done before the abort took effect is done"
    );
    is_over(&sim);
}

#[test]
fn matrix_closing_or_stopped_admits_nothing() {
    for finished in [false, true] {
        let mut scene = turn_running();
        shut_down(&mut scene.sim);
        let expected = if finished {
            end(&mut scene);
            "session_stopped"
        } else {
            "session_stopping"
        };
        let sim = &mut scene.sim;
        sim.harness.as_mut().unwrap().features.compaction = true;
        assert_eq!(code(&sim.try_control()), expected);
        assert_eq!(code(&sim.try_exclusive()), expected);
        assert_eq!(code(&sim.submit("no").1), expected);
        assert_eq!(code(&sim.compact(LOOP).1), expected);
        assert_eq!(code(&sim.retract(CommandId::ZERO)), expected);
        assert_eq!(code(&sim.release(&[])), expected);
        assert_eq!(code(&sim.set(Some("title"), None, None)), expected);
        let mode = sim.feed(Input::SetLoopMode {
            loop_id: LOOP,
            mode: "review".into(),
        });
        assert_eq!(code(&mode), "loop_shutting_down");
        let gate = sim.answer(harness_core::ids::GateId::ZERO, GateReply::Decline);
        assert_eq!(code(&gate), "gate_not_found");
        assert_eq!(
            sim.interrupt(),
            Answer::Bool(false),
            "it joins the teardown"
        );
        let announced = sim.announce(9, "native", TurnStart::Running);
        assert_eq!(announced, Answer::Channel(ChannelError::Closed));
    }
}

#[test]
fn s102_a_stopped_session_is_taken_up_again() {
    let mut scene = turn_running();
    shut_down(&mut scene.sim);
    assert_eq!(
        code(&scene.sim.feed(Input::Reopen(None))),
        "session_stopping"
    );
    end(&mut scene);
    let sim = &mut scene.sim;
    let mark = sim.mark();
    assert_eq!(sim.feed(Input::Reopen(None)), Answer::Accepted);
    assert_eq!(sim.names_since(mark), ["RestoreStarted", "RestoreDone"]);
    assert_ne!(sim.status(), Status::Stopped);
    sim.feed(Input::Reopen(None));
    assert_eq!(sim.mark(), mark + 2, "a live session is left as it is");
    sim.crash();
    sim.running();
    assert_eq!(sim.status(), Status::InProgress);
    let _ = Params::new();
}

#[test]
fn s69a_the_turn_says_why_it_ended() {
    let mut scene = turn_running();
    shut_down(&mut scene.sim);
    let runner = scene.runner.unwrap();
    scene.sim.done(runner, stopped());
    assert!(matches!(
        scene.sim.last("TurnInterrupted"),
        EventBody::TurnInterrupted {
            reason: InterruptReason::Shutdown,
            ..
        }
    ));
}

#[test]
fn matrix_faulted_shutdown_tears_down_and_carries_the_fault() {
    let mut sim = turn_running().sim;
    sim.feed(Input::Fault("disk".into()));
    assert_eq!(code(&shut_down(&mut sim)), "session_faulted");
    assert_eq!(ended(&sim), 1);
}
