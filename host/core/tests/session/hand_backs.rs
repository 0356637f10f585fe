//! Results that come back by themselves, and messages that fold (S1, S2, S41, S44, S65, S67, S96).

use crate::delegates::{delegating, settled};
use crate::support::{LOOP, Sim, stopped};
use harness_core::command::{Agency, CommandBody, DeliveryPhase};
use harness_core::content::Part;
use harness_core::event::{DeliveryState, EventBody};
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::{
    CallError, DelegationError, InputOrigin, MAX_HAND_BACKS, Params, PromptInput,
};
use harness_core::session::{Answer, DelegateAct, Effect, Input, Record};

fn hand_backs(sim: &Sim) -> Vec<CommandId> {
    let handed = sim.journal.iter().filter_map(|r| match r {
        Record::Command(c) if matches!(c.body, CommandBody::SubagentResult { .. }) => Some(c.id()),
        _ => None,
    });
    handed.collect()
}

/// What the provider of a loop was prompted with last.
fn prompted(sim: &Sim, of: LoopId) -> Option<PromptInput> {
    sim.effects.iter().rev().find_map(|e| match e {
        Effect::StartPrompt { loop_id, input, .. } if *loop_id == of => Some(input.clone()),
        _ => None,
    })
}

#[test]
fn s67_s96_a_background_result_wakes_an_idle_parent() {
    let mut sim = delegating();
    let (child, request) = sim.child(LOOP, true);
    let mark = sim.mark();
    sim.answer_turn(child, "gold");
    assert_eq!(
        sim.names_since(mark),
        [
            "StepDone",
            "TurnDone",
            "LoopIdle",
            "DelegateDeliveryStateChanged",
            "SubagentResult",
            "TurnStarted"
        ],
        "without an idle edge of the session between (S67)"
    );
    let input = prompted(&sim, LOOP).unwrap();
    assert_eq!(input.origin, InputOrigin::Delegate(request.to_string()));
    assert_eq!(
        input.parts,
        [Part::Text {
            text: "gold".into()
        }]
    );
    let started = sim.events().last().unwrap();
    assert_eq!(started.cause.command_id, Some(input.command_id));
    assert_eq!(
        started.cause.loop_id,
        Some(child),
        "releases the token (S41)"
    );
    assert_eq!(started.cause.agency, Some(Agency::Machine));
    sim.answer_turn(LOOP, "thanks");
    assert_eq!(sim.count("SessionIdle"), 1);
    assert_eq!(hand_backs(&sim).len(), 1);
}

#[test]
fn s96_a_background_result_is_offered_to_a_running_turn() {
    let mut sim = delegating();
    sim.harness.as_mut().unwrap().features.folding = true;
    let (_, runner) = sim.running();
    let (child, request) = sim.child(LOOP, true);
    sim.answer_turn(child, "gold");
    let Answer::Inputs(inputs) = sim.feed(Input::TakeInput(runner)) else {
        panic!("inputs are taken");
    };
    assert_eq!(inputs.len(), 1);
    assert_eq!(inputs[0].origin, InputOrigin::Delegate(request.to_string()));
    let folded = sim.events().last().unwrap();
    assert_eq!(folded.body.meta().name, "TurnFoldedInto");
    assert_eq!(folded.cause.loop_id, Some(child));
    sim.done(runner, Ok(Default::default()));
    assert!(!sim.session.state.active, "and starts no turn of its own");
}

#[test]
fn s2_s41_i31_a_result_is_never_rejected() {
    // A full inbox.
    let mut sim = delegating();
    sim.inbox = 1;
    sim.running();
    sim.submit("queued");
    let (child, _) = sim.child(LOOP, true);
    sim.answer_turn(child, "gold");
    assert_eq!(sim.count("TurnRejected"), 0);
    assert_eq!(sim.session.state.loops[&LOOP].inbox.len(), 2);
    // A session that shuts down.
    let mut sim = delegating();
    let (_, runner) = sim.running();
    let (child, _) = sim.child(LOOP, true);
    let invocation = sim.runner_of(child);
    sim.started(invocation, Ok(Params::new()));
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin));
    sim.done(invocation, stopped());
    assert_eq!(hand_backs(&sim).len(), 1, "it is queued all the same");
    let waits = sim.session.state.loops[&LOOP].has_wake_token();
    assert!(waits);
    sim.done(runner, stopped());
    let cancelled = sim.events().find(|e| {
        matches!(e.body, EventBody::InputCancelled { .. }) && e.cause.loop_id == Some(child)
    });
    assert!(cancelled.is_some(), "and its token is released");
    // No id for its turn.
    let mut sim = delegating();
    let (child, _) = sim.child(LOOP, true);
    let invocation = sim.runner_of(child);
    sim.started(invocation, Ok(Params::new()));
    sim.ids.broken = true;
    sim.done(invocation, Ok(Default::default()));
    let hand_back = hand_backs(&sim)[0];
    assert_eq!(sim.ledger.resolution(hand_back), Some("InputCancelled"));
    assert!(!sim.session.state.active);
}

#[test]
fn s41_a_failing_append_of_a_result_faults_the_session() {
    let mut sim = delegating();
    let (child, _) = sim.child(LOOP, true);
    let invocation = sim.runner_of(child);
    sim.started(invocation, Ok(Params::new()));
    sim.disk_full = true;
    sim.done(invocation, Ok(Default::default()));
    assert!(sim.session.live.faulted.is_some());
    sim.crash();
    assert_eq!(hand_backs(&sim).len(), 1, "the next life hands it back");
    assert_eq!(settled(&sim), [DeliveryState::Interrupted]);
}

#[test]
fn s90_who_is_stopped_with_its_delegate_is_not_woken_by_it() {
    let mut sim = delegating();
    let (child, _) = sim.child(LOOP, true);
    let runner = sim.runner_of(child);
    sim.started(runner, Ok(Params::new()));
    sim.interrupt();
    sim.done(runner, stopped());
    let hand_back = hand_backs(&sim)[0];
    assert_eq!(sim.ledger.resolution(hand_back), Some("InputCancelled"));
    assert_eq!(sim.session.live.owners().count(), 0, "Stop stops");
    assert!(!sim.session.state.active);
}

#[test]
fn s90_a_delegate_that_waits_for_a_slot_is_stopped_as_well() {
    let mut sim = delegating();
    sim.free = 0;
    let (child, request) = sim.child(LOOP, true);
    assert!(sim.session.live.of(child).waits_for_slot);
    let stop = sim.interrupt();
    assert!(matches!(stop, Answer::Stopping(_)), "{stop:?}");
    assert_eq!(sim.ledger.resolution(request), Some("InputCancelled"));
    sim.slot_comes_free();
    assert_eq!(sim.session.live.owners().count(), 0, "nothing starts");
    assert_eq!(settled(&sim), [DeliveryState::Interrupted]);
}

#[test]
fn s90_a_person_who_stops_the_child_alone_lets_the_parent_know() {
    let mut sim = delegating();
    let (child, _) = sim.child(LOOP, true);
    let runner = sim.runner_of(child);
    sim.started(runner, Ok(Params::new()));
    sim.interrupt_loop(child);
    sim.done(runner, stopped());
    let told = prompted(&sim, LOOP).expect("the parent is woken");
    assert_eq!(
        told.parts,
        [Part::Text {
            text: "The delegate was interrupted.".into()
        }]
    );
}

#[test]
fn s96_a_failed_delegate_says_why() {
    let mut sim = delegating();
    let (child, request) = sim.child(LOOP, true);
    let _ = sim.delegate(LOOP, DelegateAct::Await { id: 1, request });
    let runner = sim.runner_of(child);
    let queued = sim.send_child(LOOP, child, false, false).unwrap();
    sim.started(runner, Err(CallError::Trap("unreachable".into())));
    let result = sim.delegated[&1].clone().unwrap();
    assert_eq!(result.state, DeliveryState::Failed);
    assert_eq!(result.error.unwrap().0, "provider_trap");
    let told = prompted(&sim, LOOP).unwrap();
    let Part::Text { text } = &told.parts[0] else {
        panic!("{told:?}");
    };
    assert!(text.contains("provider_trap"), "{text}");
    assert_eq!(sim.ledger.resolution(queued), Some("InputCancelled"), "S44");
    assert_eq!(settled(&sim), [DeliveryState::Failed; 2]);
}

#[test]
fn s1_s65_a_message_that_does_not_fold_falls_back_to_a_turn() {
    let mut sim = delegating();
    sim.harness.as_mut().unwrap().features.folding = true;
    let (child, _) = sim.child(LOOP, false);
    let runner = sim.runner_of(child);
    sim.started(runner, Ok(Params::new()));
    let taken = sim.send_child(LOOP, child, false, true).unwrap();
    assert!(matches!(
        sim.feed(Input::TakeInput(runner)),
        Answer::Inputs(inputs) if inputs.len() == 1
    ));
    assert_eq!(sim.ledger.resolution(taken), Some("TurnFoldedInto"));
    let late = sim.send_child(LOOP, child, true, true).unwrap();
    let mark = sim.mark();
    sim.done(runner, Ok(Default::default()));
    let names = sim.names_since(mark);
    assert_eq!(
        names[..3],
        ["TurnDone", "UserInput", "DelegateDeliveryStateChanged"]
    );
    let phases = sim.journal.iter().filter_map(|r| match r {
        Record::Command(c) if c.id() == late => match &c.body {
            CommandBody::UserInput {
                delegate_delivery_phase,
                no_fold,
                background_hand_back: true,
                ..
            } => Some((*delegate_delivery_phase, *no_fold, r.key())),
            _ => None,
        },
        _ => None,
    });
    let phases: Vec<_> = phases.collect();
    assert_eq!(
        phases,
        [
            (Some(DeliveryPhase::Intent), false, late.to_string()),
            (
                Some(DeliveryPhase::FallbackQueued),
                true,
                format!("{late}/fallback_queued")
            )
        ],
        "the same command, an id of its own in the journal"
    );
    let resolution = sim.ledger.resolution(late);
    assert_eq!(resolution, Some("TurnStarted"), "it has a turn of its own");
    sim.answer_turn(child, "second");
    assert_eq!(hand_backs(&sim).len(), 1);
}

#[test]
fn s1_a_busy_child_that_cannot_fold_queues_at_once() {
    let mut sim = delegating();
    let (child, _) = sim.child(LOOP, false);
    let late = sim.send_child(LOOP, child, false, true).unwrap();
    assert_eq!(settled(&sim), [DeliveryState::FallbackQueued]);
    sim.answer_turn(child, "first");
    assert_eq!(sim.ledger.resolution(late), Some("TurnStarted"));
}

#[test]
fn s41_results_on_their_way_are_bounded() {
    let mut sim = delegating();
    let (child, _) = sim.child(LOOP, true);
    for _ in 1..MAX_HAND_BACKS {
        sim.send_child(LOOP, child, true, false).unwrap();
    }
    let mark = sim.mark();
    let full = sim.send_child(LOOP, child, true, false);
    assert!(matches!(full, Err(DelegationError::Limit(_))), "{full:?}");
    assert_eq!(sim.mark(), mark);
    assert!(sim.send_child(LOOP, child, false, false).is_ok());
}
