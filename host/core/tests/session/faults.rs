//! A journal that refuses: what can be told is refused, everything else faults the session (S19,
//! S61, S62, I35).

use crate::scenes::{exclusive_starting, faulted, idle, idle_control, stopping, turn_running};
use crate::support::{LOOP, Sim, code, completed, form, stopped};
use harness_core::gate::GateReply;
use harness_core::ids::GateId;
use harness_core::operation::{Execution, Operation};
use harness_core::provider::{ChannelError, NativeTurn, Outcome, Params, TurnStart};
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Effect, GateValue, Input, InvocationId, Invoked};
use harness_core::view::Status;
use uuid::Uuid;

fn is_faulted(sim: &Sim) -> bool {
    sim.session.live.faulted.is_some()
}

#[test]
fn s62_what_a_provider_did_and_cannot_be_written_faults_the_session() {
    type Act = fn(&mut Sim, InvocationId);
    let acts: [(&str, Act); 5] = [
        ("step", |sim, runner| {
            let messages = vec![sim.message("x")];
            sim.feed(Input::Step {
                invocation: runner,
                messages,
            });
        }),
        ("bind", |sim, runner| {
            sim.feed(Input::Bind {
                invocation: runner,
                native_session_id: "n".into(),
            });
        }),
        ("ask", |sim, runner| {
            sim.feed(Input::Ask {
                invocation: runner,
                ask: form(),
                stored_rules: false,
            });
        }),
        ("done", |sim, runner| {
            sim.done(runner, Ok(Outcome::default()))
        }),
        ("stop", |sim, _| {
            sim.interrupt();
        }),
    ];
    for (name, act) in acts {
        let mut scene = turn_running();
        let runner = scene.runner.unwrap();
        let mark = scene.sim.mark();
        scene.sim.disk_full = true;
        act(&mut scene.sim, runner);
        assert!(is_faulted(&scene.sim), "{name}");
        assert_eq!(scene.sim.mark(), mark, "{name}: nobody sees the event");
        assert!(scene.sim.is_aborted(runner), "{name}: what runs is ended");
        scene.sim.done(runner, stopped());
        assert!(
            scene.sim.live().owner.is_none(),
            "{name}: the owner is freed"
        );
        assert_eq!(
            (scene.sim.free, scene.sim.status()),
            (1, Status::Failed),
            "{name}"
        );
    }
}

#[test]
fn s62_a_faulted_session_admits_nothing() {
    let mut sim = faulted().sim;
    let mark = sim.mark();
    let (origin, again, other, first) = (sim.origin(), sim.origin(), sim.origin(), sim.origin());
    let requests = [
        Input::Reserve(Box::new(sim.prepared(Execution::Control))),
        Input::Reserve(Box::new(sim.prepared(Execution::Exclusive))),
        Input::Retract {
            origin: origin.clone(),
            target: origin.command_id,
        },
        Input::Release {
            origin: again,
            loop_id: None,
            targets: vec![],
        },
        Input::Settings {
            origin: other,
            title: Some("x".into()),
            model: None,
            params: None,
            agent: None,
        },
        Input::RejectFirst {
            origin: first,
            operation: Operation::Command { text: "/x".into() },
            execution: None,
            code: "no_free_slot".into(),
            message: String::new(),
        },
    ];
    for request in requests {
        let name = format!("{request:?}");
        assert_eq!(code(&sim.feed(request)), "session_faulted", "{name}");
    }
    let turn = NativeTurn {
        id: "n".into(),
        start: TurnStart::Running,
        reason: "goal".into(),
        cause: None,
    };
    let announced = sim.feed(Input::Announce {
        loop_id: LOOP,
        id: 1,
        turn,
    });
    assert!(matches!(
        announced,
        Answer::Channel(ChannelError::Failed(_))
    ));
    assert_eq!(sim.mark(), mark);
}

#[test]
fn s62_everyone_who_waits_is_told() {
    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    let gate = scene.sim.ask(runner, form());
    scene.sim.announce(7, "later", TurnStart::Wanted);
    scene.sim.feed(Input::ActivityBegan {
        loop_id: LOOP,
        id: 3,
        label: "watch".into(),
    });
    scene.sim.disk_full = true;
    let message = scene.sim.message("x");
    scene.sim.feed(Input::Step {
        invocation: runner,
        messages: vec![message],
    });
    assert!(matches!(
        scene.sim.gates[&gate],
        GateValue::Rejected(ChannelError::Failed(_))
    ));
    assert!(matches!(
        scene.sim.announced(7),
        Some(Err(ChannelError::Failed(_)))
    ));
    assert_eq!(
        scene
            .sim
            .effect(|e| matches!(e, Effect::AbortActivities(_))),
        1
    );
    let mut scene = stopping();
    scene.sim.disk_full = true;
    scene.sim.done(scene.runner.unwrap(), stopped());
    assert!(is_faulted(&scene.sim));
    assert_eq!(
        scene.sim.effect(|e| matches!(e, Effect::Stopped(_))),
        1,
        "who waits for the stop"
    );
}

#[test]
fn s62_an_operation_under_a_fault_has_no_outcome_to_show() {
    for scene in [idle_control(), exclusive_starting()] {
        let mut sim = scene.sim;
        let runner = scene.runner.unwrap();
        let command = sim.live().owner.as_ref().unwrap().cause;
        sim.disk_full = true;
        sim.invoked(runner, completed());
        assert!(is_faulted(&sim));
        assert!(
            !sim.results.contains_key(&command),
            "not acknowledged as an outcome"
        );
        sim.invoked(runner, completed());
        assert_eq!(*sim.problem(command), Refused::SessionFaulted);
        assert!(sim.live().owner.is_none());
        sim.crash();
        assert_eq!(
            sim.status(),
            Status::Disconnected,
            "the restart says: uncertain"
        );
    }
}

#[test]
fn s62_a_session_that_comes_back_under_a_fault_is_ended() {
    let mut scene = exclusive_starting();
    let runner = scene.runner.unwrap();
    scene.sim.disk_full = true;
    scene.sim.interrupt();
    assert!(is_faulted(&scene.sim));
    scene
        .sim
        .invoked(runner, Ok(Invoked::Started(Params::new())));
    assert_eq!(scene.sim.called_done(runner), 1);
    scene.sim.done(runner, stopped());
    assert!(scene.sim.live().owner.is_none());
}

#[test]
fn s19_what_can_be_refused_faults_nothing() {
    let mut scene = turn_running();
    let gate = scene.sim.ask(scene.runner.unwrap(), form());
    let queued = scene.sim.prompt("waits");
    scene.sim.disk_full = true;
    let sim = &mut scene.sim;
    let reserve = sim.prepared(Execution::Control);
    assert_eq!(code(&sim.reserve(reserve)), "store_unavailable");
    assert_eq!(code(&sim.submit("x").1), "store_unavailable");
    assert_eq!(code(&sim.retract(queued)), "store_unavailable");
    assert_eq!(
        code(&sim.answer(gate, GateReply::Decline)),
        "store_unavailable"
    );
    assert_eq!(code(&sim.set(Some("t"), None, None)), "store_unavailable");
    assert!(!is_faulted(sim));
    sim.disk_full = false;
    assert_eq!(
        sim.answer(gate, GateReply::Decline),
        Answer::Accepted,
        "and goes on afterwards"
    );
    let unknown = GateId(Uuid::from_u128(404));
    assert_eq!(
        code(&sim.answer(unknown, GateReply::Decline)),
        "gate_not_found"
    );
}

#[test]
fn s62_a_prompt_that_cannot_start_faults_and_gives_its_slot_back() {
    let mut sim = idle().sim;
    sim.free = 0;
    sim.prompt("waits");
    sim.disk_full = true;
    sim.slot_comes_free();
    assert!(is_faulted(&sim));
    assert_eq!((sim.free, sim.wishes()), (1, false));
    sim.crash();
    assert_eq!(sim.session.view().held, 1, "it is not lost");
}
