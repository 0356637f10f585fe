//! Native turns, messages outside turns, activities, and Stop over them (N6-N13).

use crate::scenes::{
    exclusive_starting, faulted, idle, idle_control, prompt_starting, turn_ended, turn_running,
};
use crate::support::{Sim, completed, stopped};
use harness_core::command::{Agency, CommandBody};
use harness_core::content::{NewMessage, Part, Role};
use harness_core::event::{EventBody, NativeOrigin};
use harness_core::ids::CommandId;
use harness_core::operation::Execution;
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
    let mut sim = faulted().sim;
    off(&mut sim);
    sim.session.live.disarmed = true;
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
        channel(&sim.feed(Input::Announce { id: 1, turn }))
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
    assert_eq!((sim.announced(1), sim.wants_slot), (None, true));
    sim.slot_comes_free();
    assert_eq!(sim.announced(1), Some(&Ok(())));
    assert_eq!(sim.free, 0);
}

#[test]
fn n8_a_withdrawn_wish_gives_the_slot_up() {
    let mut sim = idle().sim;
    sim.free = 0;
    sim.announce(1, "n", Wanted);
    sim.feed(Input::Unannounce(1));
    assert!(!sim.wants_slot);
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
        sim.feed(Input::Announce { id, turn });
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

#[test]
fn n11_a_message_outside_any_turn_is_a_group_of_its_own() {
    let append = |sim: &mut Sim, text: String| {
        let message = NewMessage {
            role: Role::Assistant,
            parts: vec![Part::Text { text }],
        };
        sim.feed(Input::LinkAppend(message))
    };
    for mut sim in [idle().sim, turn_running().sim] {
        let before = sim.history().len();
        assert_eq!(channel(&append(&mut sim, "late".into())), "waits");
        let step = sim.events().next_back().unwrap();
        assert_eq!(step.body.meta().name, "StepDone");
        assert!(
            step.turn_id.is_zero() && step.cause.is_empty(),
            "never in another turn's group"
        );
        assert_eq!(sim.history().len(), before + 1);
        assert_eq!(
            channel(&append(&mut sim, "x".repeat(256 * 1024 + 1))),
            "limit"
        );
        sim.feed(Input::Close);
        assert_eq!(channel(&append(&mut sim, "x".into())), "closed");
    }
    assert_eq!(channel(&append(&mut faulted().sim, "x".into())), "failed");
}

#[test]
fn n12_a_stop_disarms_until_a_person_reserves_again() {
    type Again = fn(&mut Sim);
    let again: [(&str, Again); 3] = [
        ("prompt", |sim| {
            sim.prompt("x");
            let runner = sim.runner();
            sim.started(runner, Ok(Params::new()));
            sim.done(runner, Ok(Outcome::default()));
        }),
        ("control", |sim| {
            let (_, id) = sim.operation(Execution::Control);
            sim.invoked(id, completed());
        }),
        ("exclusive", |sim| {
            let (_, id) = sim.operation(Execution::Exclusive);
            sim.invoked(id, completed());
        }),
    ];
    for (name, reserve) in again {
        let mut sim = idle().sim;
        let runner = sim.native(1, "n-1");
        sim.interrupt();
        assert_eq!(
            channel(&sim.announce(2, "n-2", Running)),
            "stopped",
            "from the claim"
        );
        sim.done(runner, stopped());
        assert_eq!(
            channel(&sim.announce(3, "n-3", Wanted)),
            "stopped",
            "and after it"
        );
        sim.set(Some("title"), None, None);
        assert_eq!(
            channel(&sim.announce(4, "n-4", Running)),
            "stopped",
            "a setting is no reserve"
        );
        reserve(&mut sim);
        assert_eq!(
            channel(&sim.announce(5, "n-5", Running)),
            "waits",
            "{name} arms it again"
        );
        assert_eq!(sim.announced(5), Some(&Ok(())));
    }
}

#[test]
fn n12_a_stop_answers_what_is_pending() {
    let mut scene = turn_running();
    scene.sim.announce(1, "n", Wanted);
    scene.sim.interrupt();
    assert_eq!(scene.sim.announced(1), Some(&Err(ChannelError::Stopped)));
    let mut sim = idle().sim;
    sim.free = 0;
    sim.announce(1, "n", Wanted);
    assert_eq!(
        sim.interrupt(),
        Answer::Stopping,
        "R67: a pending announcement is something"
    );
    assert_eq!(sim.announced(1), Some(&Err(ChannelError::Stopped)));
    assert_eq!(sim.effect(|e| *e == Effect::Stopped), 1);
}

#[test]
fn n13_a_stop_without_a_turn_ends_activities() {
    let mut sim = idle().sim;
    sim.feed(Input::ActivityBegan {
        id: 1,
        label: "goal".into(),
    });
    assert_eq!(sim.session.view().activities, ["goal"]);
    assert_eq!(sim.interrupt(), Answer::Stopping);
    assert_eq!(sim.effect(|e| *e == Effect::AbortActivities), 1);
    sim.feed(Input::ActivityBegan {
        id: 2,
        label: "late".into(),
    });
    assert_eq!(
        sim.effect(|e| *e == Effect::AbortActivities),
        2,
        "a late one too"
    );
    sim.feed(Input::ActivityEnded(1));
    assert_eq!(sim.effect(|e| *e == Effect::Stopped), 0);
    sim.feed(Input::ActivitiesSettled);
    assert_eq!(sim.effect(|e| *e == Effect::Stopped), 1);
    assert_eq!(sim.status(), Status::Completed, "no run was changed");
    assert_eq!(sim.interrupt(), Answer::Bool(false));
}

#[test]
fn n13_a_stop_waits_for_activities_without_holding_the_slot() {
    let mut scene = turn_running();
    scene.sim.feed(Input::ActivityBegan {
        id: 1,
        label: "goal".into(),
    });
    scene.sim.interrupt();
    scene.sim.done(scene.runner.unwrap(), stopped());
    assert_eq!(scene.sim.free, 1);
    assert_eq!(scene.sim.effect(|e| *e == Effect::Stopped), 0);
    let prompt = scene.sim.prompt("queued");
    assert_eq!(scene.sim.ledger.resolution(prompt), None);
    assert_eq!(
        crate::support::code(&scene.sim.try_control()),
        "session_stopping"
    );
    scene.sim.feed(Input::ActivityEnded(1));
    assert_eq!(scene.sim.ledger.resolution(prompt), Some("TurnStarted"));
}

#[test]
fn n14_the_channel_answers_stopped_while_done_winds_up() {
    let mut sim = idle().sim;
    let runner = sim.native(1, "n");
    sim.interrupt();
    let ask = Input::Ask {
        invocation: runner,
        ask: crate::support::form(),
        stored_rules: false,
    };
    assert_eq!(channel(&sim.feed(ask)), "stopped");
    let message = sim.message("the last words");
    sim.feed(Input::Step {
        invocation: runner,
        messages: vec![message],
    });
    assert_eq!(
        sim.history(),
        ["the last words"],
        "what it still writes is kept"
    );
    sim.done(runner, stopped());
    assert_eq!(sim.status(), Status::Cancelled);
}

#[test]
fn s94_closing_stops_what_runs_and_admits_nothing() {
    let mut scene = turn_running();
    scene.sim.announce(1, "n", Wanted);
    let queued = scene.sim.prompt("waits");
    scene.sim.feed(Input::Close);
    assert!(scene.sim.is_aborted(scene.runner.unwrap()));
    assert!(scene.sim.announced(1).is_some(), "nobody waits for ever");
    scene.sim.done(scene.runner.unwrap(), stopped());
    assert_eq!(
        crate::support::code(&scene.sim.submit("x").1),
        "host_shutting_down"
    );
    assert_eq!(scene.sim.ledger.resolution(queued), None);
    scene.sim.crash();
    assert_eq!(scene.sim.session.view().held, 1, "the next start holds it");
    let mut sim = idle().sim;
    sim.free = 0;
    sim.announce(1, "n", Wanted);
    sim.feed(Input::Close);
    assert!(sim.announced(1).is_some());
}
