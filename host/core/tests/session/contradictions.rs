//! Journals that contradict themselves are refused before any repair (S75).

use crate::scenes::{idle, idle_control, turn_running};
use crate::support::{Sim, completed, restore_of};
use harness_core::command::Cause;
use harness_core::event::{Event, EventBody, InterruptReason};
use harness_core::ids::{CommandId, EventId, LoopId, RunId, TurnId};
use harness_core::provider::{Outcome, ProgramEnd};
use harness_core::session::{Record, Session};
use harness_core::view::OutcomeStatus;
use uuid::Uuid;

fn id<T: From<Uuid>>(n: u128) -> T {
    Uuid::from_u128(n).into()
}

fn event(sim: &Sim, turn_id: TurnId, cause: Cause, body: EventBody) -> Event {
    Event {
        id: id::<EventId>(0xbad),
        session_id: sim.session.state.id,
        loop_id: sim.session.state.active_loop,
        turn_id,
        at: sim.now,
        cause,
        body,
    }
}

#[track_caller]
fn refuse(sim: &Sim, event: Event, why: &str) {
    let mut session = restore_of(&sim.journal);
    let seq = sim.journal.len() as u64 + 1;
    let error = session.replay(&Record::Event(event), seq).unwrap_err();
    assert_eq!(error.seq, seq);
    assert!(error.what.contains(why), "{error}");
}

fn turn(sim: &Sim) -> TurnId {
    sim.live().owner.as_ref().and_then(|o| o.turn).unwrap()
}

fn terminals() -> Vec<EventBody> {
    let run_id = id::<RunId>(4);
    vec![
        EventBody::TurnDone {
            run_id,
            usage: None,
        },
        EventBody::TurnInterrupted {
            run_id,
            reason: InterruptReason::HostLost,
            usage: None,
        },
        EventBody::TurnFailed {
            run_id,
            error: harness_core::event::Failure {
                code: "x".into(),
                message: String::new(),
            },
            usage: None,
        },
    ]
}

#[test]
fn s75_a_terminal_needs_its_start() {
    for body in terminals() {
        let idle = idle().sim;
        refuse(
            &idle,
            event(&idle, id(9), Cause::default(), body.clone()),
            "is not open",
        );
        let running = turn_running().sim;
        refuse(
            &running,
            event(&running, id(9), Cause::default(), body.clone()),
            "is not open",
        );
        let mut scene = turn_running();
        let ended = turn(&scene.sim);
        scene
            .sim
            .done(scene.runner.unwrap(), Ok(Outcome::default()));
        refuse(
            &scene.sim,
            event(&scene.sim, ended, Cause::default(), body),
            "is not open",
        );
    }
}

#[test]
fn s75_a_turn_starts_outside_any_other() {
    let sim = turn_running().sim;
    let body = EventBody::TurnStarted {
        run_id: id(4),
        message: None,
        native: None,
    };
    refuse(
        &sim,
        event(&sim, id(9), Cause::default(), body),
        "inside another",
    );
}

#[test]
fn s75_an_operation_has_one_outcome() {
    let mut sim = idle().sim;
    let (command, control) = sim.control();
    sim.invoked(control, completed());
    let second = EventBody::NativeOperationResolved {
        outcome: OutcomeStatus::Completed,
        reason: None,
        message: None,
        run_id: None,
        row: None,
        effective: None,
        native_session_id: None,
    };
    for cause in [command, id::<CommandId>(404)] {
        let event = event(&sim, TurnId::ZERO, Cause::by(cause), second.clone());
        refuse(&sim, event, "has no open intent");
    }
}

#[test]
fn s75_a_step_group_belongs_to_its_turn_or_control() {
    let group = EventBody::StepDone {
        messages: vec![],
        usage: None,
    };
    let why = "a step group outside";
    let sim = turn_running().sim;
    refuse(
        &sim,
        event(&sim, id(9), Cause::default(), group.clone()),
        why,
    );
    let prompt = sim.live().owner.as_ref().unwrap().cause;
    refuse(
        &sim,
        event(&sim, TurnId::ZERO, Cause::by(prompt), group.clone()),
        why,
    );
    let mut scene = idle_control();
    let control = scene.sim.live().owner.as_ref().unwrap().cause;
    let of_control = event(&scene.sim, TurnId::ZERO, Cause::by(control), group.clone());
    let mut session = restore_of(&scene.sim.journal);
    session
        .replay(&Record::Event(of_control.clone()), 99)
        .unwrap();
    scene.sim.invoked(scene.runner.unwrap(), completed());
    refuse(&scene.sim, of_control, why);
    let bare = event(&scene.sim, TurnId::ZERO, Cause::default(), group);
    restore_of(&scene.sim.journal)
        .replay(&Record::Event(bare), 99)
        .unwrap();
}

#[test]
fn s75_a_fold_needs_its_turn() {
    let mut sim = turn_running().sim;
    let message = sim.message("x");
    let body = EventBody::TurnFoldedInto { message };
    refuse(&sim, event(&sim, id(9), Cause::default(), body), "not open");
}

#[test]
fn s75_only_what_waits_is_held_or_released() {
    let sim = idle().sim;
    for body in [EventBody::InputHeld {}, EventBody::InputReleased {}] {
        refuse(
            &sim,
            event(&sim, TurnId::ZERO, Cause::by(id(404)), body),
            "does not wait",
        );
    }
}

#[test]
fn s75_a_loop_and_a_session_begin_once() {
    let sim = idle().sim;
    let Record::Event(begin) = &sim.journal[0] else {
        panic!()
    };
    let second = Event {
        id: id(0xbad),
        ..begin.clone()
    };
    refuse(&sim, second, "a second SessionStarted");
    let elsewhere = Event {
        loop_id: id::<LoopId>(404),
        ..event(&sim, TurnId::ZERO, Cause::default(), EventBody::LoopIdle {})
    };
    refuse(&sim, elsewhere, "does not exist");
    let Record::Event(not_a_begin) = &sim.journal[1] else {
        panic!()
    };
    assert!(
        Session::begin(not_a_begin, 1).is_err(),
        "a journal begins with SessionStarted"
    );
    let ephemeral = event(
        &sim,
        TurnId::ZERO,
        Cause::default(),
        EventBody::InputQueued {},
    );
    refuse(&sim, ephemeral, "an ephemeral event");
}

#[test]
fn s75_a_process_ends_once_after_its_start() {
    let ended = |handle: &str| EventBody::ProcessLost {
        process_handle: handle.into(),
        reason: "lost".into(),
    };
    let mut sim = idle().sim;
    let handle = sim.process("make");
    let unknown = event(&sim, TurnId::ZERO, Cause::default(), ended("404"));
    refuse(&sim, unknown, "does not run");
    let twice = EventBody::ProcessStarted {
        process_handle: handle.clone(),
        program: "make".into(),
    };
    let twice = event(&sim, TurnId::ZERO, Cause::default(), twice);
    refuse(&sim, twice, "starts twice");
    sim.process_ended(&handle, ProgramEnd::Stopped);
    let again = event(&sim, TurnId::ZERO, Cause::default(), ended(&handle));
    refuse(&sim, again, "does not run");
}
