//! Turns that the native side begins by itself (N6-N10).

use crate::scenes::{
    exclusive_starting, faulted, idle, idle_control, prompt_starting, turn_ended, turn_running,
};
use crate::support::{LOOP, Sim, completed, stopped};
use harness_core::command::{Agency, CommandBody};
use harness_core::content::{NewMessage, Role};
use harness_core::event::{EventBody, NativeOrigin};
use harness_core::ids::CommandId;
use harness_core::provider::{CallError, ChannelError, NativeTurn, Outcome, Params, TurnStart};
use harness_core::session::{Answer, Effect, Input, Record};
use harness_core::view::Status;

use TurnStart::{Running, Wanted};

fn channel(answer: &Answer) -> &'static str {
    match answer {
        Answer::Channel(ChannelError::Closed) => "closed",
        Answer::Channel(ChannelError::Failed(_)) => "failed",
        Answer::Channel(ChannelError::Stopped) => "stopped",
        Answer::Channel(ChannelError::Denied(_)) => "denied",
        Answer::Channel(ChannelError::Limit(_)) => "limit",
        Answer::Channel(ChannelError::Busy) => "busy",
        Answer::Accepted => "waits",
        other => panic!("{other:?}"),
    }
}

/// What an announcement meets, with every condition that comes later in N6 fulfilled as well.
#[test]
fn n6_the_order_of_the_decision() {
    let off = |sim: &mut Sim| sim.native_turns = false;
    // Closing, faulted, stopped and forbidden: closed.
    let mut sim = faulted().sim;
    off(&mut sim);
    sim.feed(Input::Close);
    assert_eq!(channel(&sim.announce(1, "n", Running)), "closed");
    // Faulted, stopped and forbidden: failed.
    let mut scene = turn_running();
    scene.sim.interrupt();
    scene.sim.done(scene.runner.unwrap(), stopped());
    let mut sim = scene.sim;
    off(&mut sim);
    sim.disk_full = true;
    sim.feed(Input::LinkAppend {
        loop_id: LOOP,
        message: NewMessage {
            role: Role::Assistant,
            parts: vec![],
        },
    });
    assert_eq!(channel(&sim.announce(1, "n", Running)), "failed");
    // Stopped and forbidden: stopped.
    let mut sim = turn_running().sim;
    off(&mut sim);
    sim.interrupt();
    assert_eq!(channel(&sim.announce(1, "n", Running)), "stopped");
    // Forbidden, by the operator or for want of the feature, while a turn is live: denied.
    let mut sim = turn_running().sim;
    off(&mut sim);
    assert_eq!(channel(&sim.announce(1, "n", Running)), "denied");
    let mut sim = turn_running().sim;
    sim.harness.as_mut().unwrap().features.native_turns = false;
    assert_eq!(channel(&sim.announce(1, "n", Running)), "denied");
    // Running beside a live turn: busy.
    let mut sim = turn_running().sim;
    sim.announce(1, "n", Running);
    assert_eq!(sim.announced(1), Some(&Err(ChannelError::Busy)));
    // Wanted beside a live turn, or anything while a turn settles or an idle control runs: waits.
    for (mut sim, start) in [
        (turn_running().sim, Wanted),
        (turn_ended().sim, Running),
        (turn_ended().sim, Wanted),
        (idle_control().sim, Running),
        (idle_control().sim, Wanted),
    ] {
        assert_eq!(channel(&sim.announce(1, "n", start)), "waits");
        assert_eq!(sim.announced(1), None);
    }
    // Else: reserved.
    for start in [Running, Wanted] {
        let mut sim = idle().sim;
        sim.announce(1, "n", start);
        assert_eq!(sim.announced(1), Some(&Ok(())));
        assert_eq!(sim.effect(|e| matches!(e, Effect::Adopt { .. })), 1);
    }
}

#[test]
fn n6_bounds_of_an_announcement() {
    let mut sim = idle().sim;
    let announce = |sim: &mut Sim, id: usize, reason: usize| {
        let turn = NativeTurn {
            id: "x".repeat(id),
            start: Running,
            reason: "x".repeat(reason),
            cause: None,
        };
        channel(&sim.feed(Input::Announce {
            loop_id: LOOP,
            id: 1,
            turn,
        }))
    };
    for (id, reason) in [(0, 1), (257, 1), (1, 0), (1, 129)] {
        assert_eq!(announce(&mut sim, id, reason), "limit");
    }
    assert_eq!(announce(&mut sim, 256, 128), "waits");
}

#[test]
fn n7_busy_only_after_the_live_export_was_entered() {
    for scene in [prompt_starting(), exclusive_starting()] {
        let mut sim = scene.sim;
        sim.announce(1, "n", Running);
        assert_eq!(sim.announced(1), None, "not before");
        sim.feed(Input::Entered(scene.runner.unwrap()));
        assert_eq!(sim.announced(1), Some(&Err(ChannelError::Busy)));
    }
}

#[test]
fn n7_if_the_invocation_falls_through_the_announcement_is_reserved() {
    let mut scene = prompt_starting();
    scene.sim.announce(1, "n", Running);
    let gone = CallError::Unavailable {
        reason: "backing off".into(),
        loading: false,
    };
    scene.sim.feed(Input::Started {
        invocation: scene.runner.unwrap(),
        result: Err(gone),
        messages: vec![],
    });
    assert_eq!(scene.sim.announced(1), Some(&Ok(())));
    assert_eq!(scene.sim.status(), Status::InProgress);
}

#[test]
fn n8_a_running_turn_overdraws_the_pool_and_repays_first() {
    let mut sim = idle().sim;
    sim.free = 0;
    let runner = sim.native(1, "n");
    assert_eq!(sim.free, -1);
    let prompt = sim.prompt("waits");
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(sim.free, 0, "repaid before the next grant");
    assert_eq!(
        (sim.ledger.resolution(prompt), sim.status()),
        (None, Status::Queued)
    );
    sim.slot_comes_free();
    assert_eq!(sim.ledger.resolution(prompt), Some("TurnStarted"));
}

#[test]
fn n8_running_precedes_prompts_and_wanted_follows_them() {
    let mut scene = idle_control();
    let prompt = scene.sim.prompt("human");
    scene.sim.announce(1, "wanted", Wanted);
    scene.sim.announce(2, "running", Running);
    scene.sim.invoked(scene.runner.unwrap(), completed());
    let sim = &mut scene.sim;
    assert_eq!(sim.announced(2), Some(&Ok(())), "running first");
    assert_eq!(
        (sim.announced(1), sim.ledger.resolution(prompt)),
        (None, None)
    );
    let runner = sim.runner();
    sim.started(runner, Ok(Params::new()));
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(
        sim.ledger.resolution(prompt),
        Some("TurnStarted"),
        "then the person"
    );
    assert_eq!(sim.announced(1), None);
    let runner = sim.runner();
    sim.started(runner, Ok(Params::new()));
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(sim.announced(1), Some(&Ok(())), "then the wish");
}

#[test]
fn n8_a_wanted_turn_waits_for_a_slot() {
    let mut sim = idle().sim;
    sim.free = 0;
    sim.announce(1, "n", Wanted);
    assert_eq!((sim.announced(1), sim.wishes()), (None, true));
    sim.slot_comes_free();
    assert_eq!(sim.announced(1), Some(&Ok(())));
    assert_eq!(sim.free, 0);
}

#[test]
fn n8_an_exclusive_that_takes_the_slot_ends_the_wish_for_one() {
    let mut sim = idle().sim;
    sim.free = 0;
    sim.announce(1, "n", Wanted);
    sim.free = 1;
    let (_, exclusive) = sim.exclusive();
    assert_eq!((sim.free, sim.wishes()), (0, false));
    sim.invoked(exclusive, completed());
    assert_eq!(
        sim.announced(1),
        Some(&Ok(())),
        "it goes on with the same slot"
    );
}

#[test]
fn n8_a_withdrawn_wish_gives_the_slot_up() {
    let mut sim = idle().sim;
    sim.free = 0;
    sim.announce(1, "n", Wanted);
    sim.feed(Input::Unannounce(1));
    assert!(!sim.wishes());
    sim.slot_comes_free();
    assert_eq!(sim.free, 1);
}

#[test]
fn n9_an_adopted_turn_is_like_any_other() {
    let mut sim = idle().sim;
    sim.announce(1, "n", Running);
    let runner = sim.runner();
    assert_eq!(sim.status(), Status::InProgress);
    let (_, control) = sim.control();
    sim.invoked(control, completed());
    assert_eq!(crate::support::code(&sim.try_exclusive()), "session_busy");
    let prompt = sim.prompt("queues");
    sim.started(runner, Ok(Params::new()));
    assert_eq!(sim.called_done(runner), 1, "done once");
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(sim.ledger.resolution(prompt), Some("TurnStarted"));
    assert_eq!(sim.count("TurnDone"), 1);
}

#[test]
fn n10_the_journal_of_a_native_turn() {
    let mut sim = idle().sim;
    let (goal, control) = sim.control();
    sim.invoked(control, completed());
    let announce = |sim: &mut Sim, id, native: &str, cause: String| {
        let turn = NativeTurn {
            id: native.into(),
            start: Running,
            reason: "goal".into(),
            cause: Some(cause),
        };
        sim.feed(Input::Announce {
            loop_id: LOOP,
            id,
            turn,
        });
    };
    let mark = sim.mark();
    announce(&mut sim, 1, "n-1", goal.to_string());
    assert_eq!(
        sim.names_since(mark),
        ["NativeTurn", "SessionActive", "TurnStarted"]
    );
    let Record::Command(command) = &sim.journal[mark] else {
        panic!()
    };
    assert_eq!(command.header.agency, Agency::Machine);
    let CommandBody::NativeTurn {
        cause_command_id, ..
    } = &command.body
    else {
        panic!()
    };
    assert_eq!(*cause_command_id, Some(goal));
    let started = sim
        .events()
        .rev()
        .find(|e| e.body.meta().name == "TurnStarted")
        .unwrap();
    assert_eq!(started.cause.command_id, Some(command.id()));
    let adopted = sim
        .effects
        .iter()
        .any(|e| matches!(e, Effect::Adopt { command_id, .. } if *command_id == command.id()));
    assert!(adopted, "the provider gets that id");
    let origin = NativeOrigin {
        native_turn_id: "n-1".into(),
        reason: "goal".into(),
        start: Running,
        cause_command_id: Some(goal),
    };
    assert!(
        matches!(&started.body, EventBody::TurnStarted { native: Some(n), message: None, .. } if *n == origin)
    );
    let runner = sim.runner();
    sim.started(runner, stopped());
    // A cause that is no command of this session is dropped.
    for (id, stranger) in [
        (2, CommandId(uuid::Uuid::from_u128(404)).to_string()),
        (3, "nonsense".into()),
    ] {
        announce(&mut sim, id, &format!("n-{id}"), stranger);
        let EventBody::TurnStarted {
            native: Some(native),
            ..
        } = sim.last("TurnStarted")
        else {
            panic!()
        };
        assert_eq!(native.cause_command_id, None);
        let runner = sim.runner();
        sim.started(runner, Err(CallError::Trap("x".into())));
    }
}

#[test]
fn n10_a_native_id_is_taken_once_but_what_the_host_lost_comes_again() {
    let mut sim = idle().sim;
    let runner = sim.native(1, "n");
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(channel(&sim.announce(2, "n", Running)), "closed");
    sim.native(3, "lost");
    sim.crash();
    assert_eq!(sim.status(), Status::Disconnected);
    assert_eq!(
        sim.effect(|e| matches!(e, Effect::Adopt { .. })),
        2,
        "a restart adopts nothing"
    );
    assert_eq!(
        channel(&sim.announce(4, "n", Running)),
        "closed",
        "known for good"
    );
    let runner = sim.native(5, "lost");
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(sim.status(), Status::Completed);
}

#[test]
fn n10_the_same_turn_announced_twice_is_reserved_once() {
    let mut scene = idle_control();
    scene.sim.announce(1, "n", Running);
    assert_eq!(
        channel(&scene.sim.announce(2, "n", Running)),
        "waits",
        "N11: more wait"
    );
    scene.sim.invoked(scene.runner.unwrap(), completed());
    assert_eq!(scene.sim.announced(1), Some(&Ok(())));
    let runner = scene.sim.runner();
    scene.sim.feed(Input::Started {
        invocation: runner,
        result: stopped(),
        messages: vec![],
    });
    assert_eq!(scene.sim.announced(2), Some(&Err(ChannelError::Closed)));
    assert_eq!(scene.sim.count("TurnStarted"), 1);
}

#[test]
fn n8_without_ids_an_announcement_fails_and_costs_no_slot() {
    for start in [Running, Wanted] {
        let mut sim = idle().sim;
        sim.ids.broken = true;
        sim.announce(1, "n", start);
        assert!(matches!(
            sim.announced(1),
            Some(Err(ChannelError::Failed(_)))
        ));
        assert_eq!(sim.free, 1);
    }
}
