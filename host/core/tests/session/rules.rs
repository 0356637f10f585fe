//! Rules of the queue and of replies that hold across all states (S48, S50, S51, S79).

use crate::scenes::{
    Scene, awaiting_gate, end, exclusive_starting, faulted, idle, idle_control, prompt_starting,
    stopping, turn_ended, turn_running,
};
use crate::support::{LOOP, Sim, code, completed};
use harness_core::command::Agency;
use harness_core::event::EventBody;
use harness_core::ids::CommandId;
use harness_core::provider::{Compaction, Outcome};
use harness_core::session::{Effect, Input, Record};
use std::collections::BTreeSet;

/// Prompt, exclusive and idle control ask the same question; none of them is let in.
fn admits_nothing(sim: &mut Sim, why: &str) {
    let starts = sim.count("TurnStarted");
    let (id, _) = sim.submit("waits");
    assert_eq!(sim.count("TurnStarted"), starts, "{why}: no prompt starts");
    let queued = sim.session.state.queued_inputs();
    assert!(queued.iter().any(|q| q.command_id == id), "{why}: it waits");
    let refused = ["session_busy", "session_stopping"];
    assert!(
        refused.contains(&code(&sim.try_exclusive())),
        "{why}: no exclusive"
    );
}

#[test]
fn s51_one_predicate_admits_prompts_exclusives_and_idle_controls() {
    type Of = fn() -> Scene;
    let busy: [(&str, Of); 7] = [
        ("a prompt starts", prompt_starting),
        ("an exclusive starts", exclusive_starting),
        ("a turn is open", turn_running),
        ("a gate is open", awaiting_gate),
        ("a turn settles", turn_ended),
        ("an idle control runs", idle_control),
        ("a stop's mark is set", stopping),
    ];
    for (why, scene) in busy {
        let mut scene = scene();
        admits_nothing(&mut scene.sim, why);
        end(&mut scene);
        end(&mut scene);
        assert!(scene.sim.count("TurnStarted") > 0, "{why}: then it starts");
    }
    let mut compacting = idle().sim;
    compacting.harness.as_mut().unwrap().features.compaction = true;
    compacting.compact(LOOP);
    admits_nothing(&mut compacting, "a compaction runs");
    assert_eq!(
        code(&compacting.try_control()),
        "session_busy",
        "nor a control"
    );
    let runner = compacting.runner();
    compacting.compacted(runner, Ok(Compaction::default()));
    assert_eq!(compacting.count("TurnStarted"), 1, "then it starts");
    // No slot: prompts wait for one and exclusives are told; a control needs none.
    let mut taken = idle().sim;
    taken.free = 0;
    assert_eq!(code(&taken.try_exclusive()), "no_free_slot");
    let (_, control) = taken.control();
    taken.invoked(control, completed());
    taken.prompt("waits");
    assert_eq!((taken.count("TurnStarted"), taken.wishes()), (0, true));
    // Faulted and closing: nobody is let in, or waits.
    for mut sim in [faulted().sim, {
        let mut sim = idle().sim;
        sim.feed(Input::Close);
        sim
    }] {
        let refusals = ["session_faulted", "session_stopping", "host_shutting_down"];
        for refused in [code(&sim.try_exclusive()), code(&sim.try_control()), {
            let (_, answer) = sim.submit("no");
            code(&answer)
        }] {
            assert!(refusals.contains(&refused), "{refused}");
        }
    }
}

#[test]
fn s51_a_chained_turn_keeps_its_slot() {
    let mut sim = idle().sim;
    let (_, first) = sim.running();
    assert_eq!(sim.free, 0);
    let next = sim.prompt("chained");
    sim.done(first, Ok(Outcome::default()));
    assert_eq!((sim.count("TurnStarted"), sim.free), (2, 0));
    let given = |e: &Effect| matches!(e, Effect::ReleaseSlot(_) | Effect::WaitForSlot(_));
    assert_eq!(sim.effect(given), 0, "it never went back to the pool");
    assert_eq!(sim.live().owner.as_ref().unwrap().cause, next);
}

#[test]
fn s48_a_turn_is_live_and_a_step_is_history_when_they_are_durable() {
    let mut sim = idle().sim;
    sim.free = 0;
    sim.prompt("waits");
    sim.free = 1;
    let decided = sim.decide(Input::Advance);
    assert!(decided.live.of(LOOP).owner.is_some(), "it would start");
    assert!(
        sim.live().owner.is_none(),
        "and is not live before it is durable"
    );
    sim.disk_full = true;
    sim.feed(Input::Advance);
    assert!(sim.live().owner.is_none());
    let started = |e: &Effect| matches!(e, Effect::StartPrompt { .. });
    assert_eq!(sim.effect(started), 0, "the provider is not called");
    assert_eq!(sim.count("TurnStarted"), 0);

    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    let said = |sim: &mut Sim, text: &str| {
        let messages = vec![sim.message(text)];
        sim.feed(Input::Step {
            invocation: runner,
            messages,
        });
    };
    said(&mut scene.sim, "kept");
    let kept = scene.sim.history();
    scene.sim.disk_full = true;
    said(&mut scene.sim, "lost");
    assert_eq!(scene.sim.history(), kept, "history is what is durable");
    end(&mut scene);
    scene.sim.crash();
    assert_eq!(scene.sim.history(), kept, "live and restored are equal");
}

/// Types that answer a command (S50).
const REPLIES: [&str; 10] = [
    "TurnStarted",
    "InputQueued",
    "TurnRejected",
    "TurnFoldedInto",
    "InputCancelled",
    "InputHeld",
    "InputReleased",
    "CompactWaiterResolved",
    "CompactWaiterRejected",
    "NativeOperationResolved",
];

#[test]
fn s50_every_reply_names_its_command_and_three_name_its_agency() {
    let mut sim = idle().sim;
    let features = &mut sim.harness.as_mut().unwrap().features;
    (features.folding, features.compaction) = (true, true);
    sim.inbox = 2;
    // Every reply there is.
    let (_, runner) = sim.running();
    sim.prompt("folds");
    sim.feed(Input::TakeInput(runner));
    let retracted = sim.prompt("retracted");
    sim.retract(retracted);
    for text in ["waits", "waits too", "too many"] {
        sim.submit(text);
    }
    sim.crash();
    sim.release(&[]);
    let mut rest = Scene {
        sim,
        runner: None,
        beside: None,
        gate: None,
    };
    for _ in 0..4 {
        end(&mut rest);
    }
    rest.sim.compact(LOOP);
    end(&mut rest);
    rest.sim.compact(LOOP);
    rest.sim.crash();
    let mut sim = rest.sim;
    let (_, control) = sim.control();
    sim.invoked(control, completed());

    let commands: BTreeSet<CommandId> = sim
        .journal
        .iter()
        .filter_map(|r| match r {
            Record::Command(command) => Some(command.id()),
            Record::Event(_) => None,
        })
        .collect();
    let shown = sim.effects.iter().filter_map(|e| match e {
        Effect::Publish(event) => Some(event.as_ref()),
        _ => None,
    });
    let mut seen = BTreeSet::new();
    for event in sim.events().chain(shown) {
        let name = event.body.meta().name;
        if !REPLIES.contains(&name) {
            continue;
        }
        seen.insert(name);
        let cause = event.cause.command_id.expect(name);
        assert!(commands.contains(&cause), "{name} names a command");
        let shows = matches!(
            event.body,
            EventBody::TurnStarted { .. }
                | EventBody::TurnFoldedInto { .. }
                | EventBody::InputCancelled { .. }
        );
        let agency = shows.then_some(Agency::User);
        assert_eq!(event.cause.agency, agency, "{name}");
    }
    assert_eq!(seen, BTreeSet::from(REPLIES), "each of them was there");
}

#[test]
fn s79_what_a_restore_does_not_find_it_does_not_make_up() {
    // A tool that began and never completed, and a step that was never committed, are told as
    // they stand: only what is open is closed, nothing is computed again.
    let mut scene = turn_running();
    let runner = scene.runner.unwrap();
    let messages = vec![scene.sim.message("kept")];
    scene.sim.feed(Input::Step {
        invocation: runner,
        messages,
    });
    let kept = scene.sim.history();
    let (mark, sent) = (scene.sim.mark(), scene.sim.effects.len());
    scene.sim.crash();
    let repairs = [
        "RestoreStarted",
        "TurnInterrupted",
        "LoopIdle",
        "SessionIdle",
        "RestoreDone",
    ];
    assert_eq!(scene.sim.names_since(mark), repairs);
    assert_eq!(scene.sim.history(), kept);
    let calls = scene.sim.effects.iter().skip(sent);
    let calls: Vec<_> = calls
        .filter(|e| !matches!(e, Effect::Publish(_) | Effect::NotifyState(_)))
        .collect();
    assert!(calls.is_empty(), "nothing is called: {calls:?}");
}
