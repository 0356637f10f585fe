//! Messages outside turns, activities, and Stop over native work (N11-N14, S94).

use crate::scenes::{faulted, idle, turn_running};
use crate::support::{LOOP, Sim, completed, stopped};
use harness_core::content::{NewMessage, Part, Role};
use harness_core::operation::Execution;
use harness_core::provider::{ChannelError, Outcome, Params, TurnStart};
use harness_core::session::{Answer, Effect, Input};
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

#[test]
fn n11_a_message_outside_any_turn_is_a_group_of_its_own() {
    let append = |sim: &mut Sim, text: String| {
        let message = NewMessage {
            role: Role::Assistant,
            parts: vec![Part::Text { text }],
        };
        sim.feed(Input::LinkAppend {
            loop_id: LOOP,
            message,
        })
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
        sim.crash();
        assert_eq!(
            channel(&sim.announce(4, "n-4", Running)),
            "stopped",
            "neither a setting nor a restart is a reserve"
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
    assert!(
        matches!(sim.interrupt(), Answer::Stopping(_)),
        "R67: a pending announcement is something"
    );
    assert_eq!(sim.announced(1), Some(&Err(ChannelError::Stopped)));
    assert_eq!(sim.effect(|e| matches!(e, Effect::Stopped(_))), 1);
}

#[test]
fn n13_a_stop_without_a_turn_ends_activities() {
    let mut sim = idle().sim;
    sim.feed(Input::ActivityBegan {
        loop_id: LOOP,
        id: 1,
        label: "goal".into(),
    });
    assert_eq!(sim.session.view().activities, ["goal"]);
    assert!(matches!(sim.interrupt(), Answer::Stopping(_)));
    assert_eq!(sim.effect(|e| matches!(e, Effect::AbortActivities(_))), 1);
    sim.feed(Input::ActivityBegan {
        loop_id: LOOP,
        id: 2,
        label: "late".into(),
    });
    assert_eq!(
        sim.effect(|e| matches!(e, Effect::AbortActivities(_))),
        2,
        "a late one too"
    );
    sim.feed(Input::ActivityEnded {
        loop_id: LOOP,
        id: 1,
    });
    assert_eq!(sim.effect(|e| matches!(e, Effect::Stopped(_))), 0);
    sim.feed(Input::ActivitiesSettled(LOOP));
    assert_eq!(sim.effect(|e| matches!(e, Effect::Stopped(_))), 1);
    assert_eq!(sim.status(), Status::Completed, "no run was changed");
    assert_eq!(sim.interrupt(), Answer::Bool(false));
}

#[test]
fn n13_a_stop_waits_for_activities_without_holding_the_slot() {
    let mut scene = turn_running();
    scene.sim.feed(Input::ActivityBegan {
        loop_id: LOOP,
        id: 1,
        label: "goal".into(),
    });
    scene.sim.interrupt();
    scene.sim.done(scene.runner.unwrap(), stopped());
    assert_eq!(scene.sim.free, 1);
    assert_eq!(scene.sim.effect(|e| matches!(e, Effect::Stopped(_))), 0);
    let prompt = scene.sim.prompt("queued");
    assert_eq!(scene.sim.ledger.resolution(prompt), None);
    assert_eq!(
        crate::support::code(&scene.sim.try_control()),
        "session_stopping"
    );
    scene.sim.feed(Input::ActivityEnded {
        loop_id: LOOP,
        id: 1,
    });
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
