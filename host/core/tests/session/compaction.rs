//! Compaction of a loop's conversation (S34, S47, S95, and the column `compact` of the race matrix).

use crate::scenes::{Scene, exclusive_starting, idle, prompt_starting, turn_running};
use crate::support::{LOOP, Sim, code, refused, stopped};
use harness_core::event::{CompactionReason, EventBody};
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::{CallError, Compaction, Outcome, Params, Refusal};
use harness_core::session::{Answer, Effect, Input, MAX_COMPACT_WAITERS, MAX_SUMMARY};
use uuid::Uuid;

fn compacting(mut scene: Scene) -> Scene {
    scene.sim.harness.as_mut().unwrap().features.compaction = true;
    scene
}

/// A session whose conversation is being compacted, with who asked first.
fn under_way() -> (Sim, CommandId) {
    let mut sim = compacting(idle()).sim;
    let (id, answer) = sim.compact(LOOP);
    assert_eq!(answer, Answer::Accepted);
    (sim, id)
}

fn summary(text: &str) -> Result<Compaction, CallError> {
    Ok(Compaction {
        summary: Some(text.into()),
        usage: None,
    })
}

fn reason(sim: &Sim) -> CompactionReason {
    match sim.last("CompactionRejected") {
        EventBody::CompactionRejected { reason, .. } => *reason,
        _ => unreachable!(),
    }
}

#[test]
fn s34_what_the_provider_cannot_do_is_refused_before_anything_is_written() {
    let mut sim = Sim::new();
    let mark = sim.mark();
    assert_eq!(code(&sim.compact(LOOP).1), "compaction_unsupported");
    let unknown = sim.compact(LoopId(Uuid::max())).1;
    assert_eq!(code(&unknown), "loop_not_found");
    assert_eq!(sim.mark(), mark);
}

#[test]
fn s95_a_summary_replaces_the_history_before_it() {
    let mut sim = compacting(idle()).sim;
    let (_, runner) = sim.running();
    sim.done(runner, Ok(Outcome::default()));
    let mark = sim.mark();
    let (id, _) = sim.compact(LOOP);
    let invocation = sim.runner();
    sim.compacted(invocation, summary("so far"));
    assert_eq!(
        sim.names_since(mark),
        [
            "Compact",
            "SessionActive",
            "CompactionCommitted",
            "CompactWaiterResolved",
            "SessionIdle"
        ]
    );
    assert_eq!(sim.history(), ["so far"]);
    let resolved = sim.events().find(|e| e.cause.command_id == Some(id));
    assert!(resolved.is_some(), "S50: the reply names who asked");
    sim.crash();
    assert_eq!(sim.history(), ["so far"], "S70");
    assert_eq!(
        sim.effect(|e| matches!(e, Effect::TakeSlot(_))),
        1,
        "it takes no slot"
    );
}

#[test]
fn s95_without_a_summary_the_history_stays() {
    let mut sim = compacting(idle()).sim;
    let (_, runner) = sim.running();
    sim.done(runner, Ok(Outcome::default()));
    sim.compact(LOOP);
    let invocation = sim.runner();
    sim.compacted(invocation, Ok(Compaction::default()));
    assert_eq!(sim.history(), ["work"]);
}

#[test]
fn s95_why_a_compaction_comes_to_nothing() {
    let cases: [(Result<Compaction, CallError>, CompactionReason); 6] = [
        (summary("  "), CompactionReason::InvalidSummary),
        (
            summary(&"x".repeat(MAX_SUMMARY + 1)),
            CompactionReason::SummaryTooLarge,
        ),
        (refused(Refusal::Cancelled), CompactionReason::Cancelled),
        (
            refused(Refusal::Native("no".into())),
            CompactionReason::ExecutionFailed,
        ),
        (
            Err(CallError::Trap("unreachable".into())),
            CompactionReason::ExecutionFailed,
        ),
        (
            Err(CallError::Unavailable {
                reason: "gone".into(),
                loading: false,
            }),
            CompactionReason::Unavailable,
        ),
    ];
    for (result, expected) in cases {
        let (mut sim, _) = under_way();
        let invocation = sim.runner();
        sim.compacted(invocation, result);
        assert_eq!(reason(&sim), expected);
        assert_eq!(
            *sim.last("CompactWaiterRejected"),
            EventBody::CompactWaiterRejected { reason: expected }
        );
        assert!(!sim.session.state.active);
    }
}

#[test]
fn s95_everybody_who_joined_is_told_and_the_65th_is_refused() {
    let (mut sim, _) = under_way();
    for _ in 1..MAX_COMPACT_WAITERS {
        sim.compact(LOOP);
    }
    assert_eq!(sim.count("CompactWaiterRejected"), 0);
    let (late, answer) = sim.compact(LOOP);
    assert_eq!(answer, Answer::Accepted, "the intent is durable (S115)");
    assert_eq!(
        *sim.last("CompactWaiterRejected"),
        EventBody::CompactWaiterRejected {
            reason: CompactionReason::LaneFull
        }
    );
    let told = sim.events().last().unwrap();
    assert_eq!(told.cause.command_id, Some(late));
    let invocation = sim.runner();
    sim.compacted(invocation, summary("so far"));
    assert_eq!(sim.count("CompactionCommitted"), 1);
    assert_eq!(sim.count("CompactWaiterResolved"), MAX_COMPACT_WAITERS);
}

#[test]
fn s47_while_it_compacts_the_loop_starts_nothing() {
    let (mut sim, _) = under_way();
    sim.free = 2;
    assert_eq!(code(&sim.try_control()), "session_busy");
    assert_eq!(code(&sim.try_exclusive()), "session_busy");
    let prompt = sim.prompt("waits");
    let sibling = sim.create_loop(None);
    sim.submit_to(sibling, "goes on");
    assert!(
        sim.session.live.of(sibling).owner.is_some(),
        "siblings are unaffected"
    );
    let invocation = sim.runner();
    sim.compacted(invocation, summary("so far"));
    let owner = sim.live().owner.as_ref().unwrap();
    assert_eq!(owner.cause, prompt, "it starts after the terminal");
    assert_eq!(sim.history(), ["so far", "waits"]);
}

#[test]
fn matrix_compact_waits_for_the_terminal_of_what_runs() {
    for scene in [prompt_starting(), exclusive_starting(), turn_running()] {
        let mut scene = compacting(scene);
        let command = scene.sim.live().owner.as_ref().unwrap().cause;
        scene.sim.compact(LOOP);
        assert_eq!(scene.sim.live().owner.as_ref().unwrap().cause, command);
        crate::scenes::end(&mut scene);
        let sim = &mut scene.sim;
        assert!(sim.live().owner.as_ref().unwrap().compacts());
        let invocation = sim.runner();
        sim.compacted(invocation, summary("so far"));
        assert_eq!(sim.count("CompactWaiterResolved"), 1);
    }
}

#[test]
fn matrix_compacting_stop_is_true_and_rejects() {
    let (mut sim, _) = under_way();
    assert!(matches!(sim.interrupt(), Answer::Stopping(_)));
    let invocation = sim.runner();
    assert!(sim.is_aborted(invocation));
    sim.compacted(invocation, stopped());
    assert_eq!(reason(&sim), CompactionReason::Interrupted);
    assert_eq!(sim.effect(|e| matches!(e, Effect::Stopped(_))), 1);
    let (mut sim, _) = under_way();
    sim.feed(Input::Close);
    let invocation = sim.runner();
    sim.compacted(invocation, stopped());
    assert_eq!(reason(&sim), CompactionReason::ShuttingDown);
}

#[test]
fn s72_a_lost_compaction_is_not_repeated_and_its_waiters_are_told() {
    let (mut sim, _) = under_way();
    sim.compact(LOOP);
    let calls = |sim: &Sim| sim.effect(|e| matches!(e, Effect::Compact { .. }));
    let before = calls(&sim);
    sim.crash();
    assert_eq!(calls(&sim), before);
    assert_eq!(sim.count("CompactWaiterRejected"), 2);
    assert!(!sim.session.state.needs_repair());
    let mark = sim.mark();
    sim.crash();
    assert_eq!(sim.mark(), mark, "told once");
}

#[test]
fn s40_a_compaction_without_an_id_is_rejected() {
    let mut scene = compacting(turn_running());
    scene.sim.compact(LOOP);
    scene.sim.ids.broken = true;
    let runner = scene.runner.unwrap();
    scene.sim.done(runner, Ok(Outcome::default()));
    assert_eq!(reason(&scene.sim), CompactionReason::Internal);
    assert!(scene.sim.live().owner.is_none());
    let _ = Params::new();
}
