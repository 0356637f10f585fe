//! Several loops in one session (S20, S21, S25-S27, S35, S90-S92).

use crate::support::{HARNESS, LOOP, Sim, code, harness, stopped};
use harness_core::command::CommandBody;
use harness_core::event::{EventBody, Runtime};
use harness_core::ids::LoopId;
use harness_core::operation::Execution;
use harness_core::provider::{ModelSpec, Params, TurnStart};
use harness_core::session::{Answer, Effect, Input, MAX_LOOPS, Record};
use harness_core::view::Status;
use uuid::Uuid;

fn model(id: &str, efforts: &[&str]) -> ModelSpec {
    ModelSpec {
        id: id.into(),
        label: id.into(),
        efforts: efforts.iter().map(|&e| e.into()).collect(),
    }
}

/// A session with three loops, the first with a running turn.
fn three() -> (Sim, LoopId, LoopId) {
    let mut sim = Sim::new();
    sim.free = 3;
    sim.running();
    let second = sim.create_loop(None);
    let third = sim.create_loop(None);
    (sim, second, third)
}

fn runner(sim: &Sim, loop_id: LoopId) -> u64 {
    sim.session.live.of(loop_id).owner.as_ref().unwrap().runner
}

#[test]
fn s30_loops_run_beside_each_other_each_with_a_slot() {
    let (mut sim, second, third) = three();
    sim.submit_to(second, "two");
    sim.submit_to(third, "three");
    assert_eq!(sim.free, 0, "each turn takes a slot");
    assert_eq!(sim.session.live.owners().count(), 3);
    let (_, answer) = sim.submit_to(second, "more");
    assert_eq!(answer, Answer::Accepted);
    let mark = sim.mark();
    let first = runner(&sim, LOOP);
    sim.done(first, Ok(Default::default()));
    assert_eq!(
        sim.names_since(mark),
        ["TurnDone", "LoopIdle"],
        "the session works on (S67)"
    );
    let id = runner(&sim, second);
    sim.started(id, Ok(Params::new()));
    sim.done(id, Ok(Default::default()));
    assert!(
        sim.session.live.of(second).owner.is_some(),
        "its queue goes on (S43)"
    );
    for loop_id in [second, third] {
        let id = runner(&sim, loop_id);
        sim.started(id, Ok(Params::new()));
        sim.done(id, Ok(Default::default()));
    }
    assert!(!sim.session.state.active);
    assert_eq!(sim.count("SessionIdle"), 1, "the edge comes once (S67)");
    assert_eq!(sim.free, 3);
}

#[test]
fn s30_histories_are_apart() {
    let (mut sim, second, _) = three();
    sim.submit_to(second, "for two");
    assert_eq!(sim.session.history.of(LOOP).len(), 1);
    assert_eq!(sim.session.history.of(second).len(), 1);
    sim.crash();
    assert_eq!(sim.session.history.of(second).len(), 1);
}

#[test]
fn s35_the_active_loop_changes_with_its_event() {
    let (mut sim, second, _) = three();
    let mark = sim.mark();
    assert_eq!(sim.feed(Input::SetActiveLoop(second)), Answer::Accepted);
    assert_eq!(sim.names_since(mark), ["ActiveLoopChanged"]);
    assert_eq!(sim.session.state.active_loop, second);
    assert_eq!(sim.feed(Input::SetActiveLoop(second)), Answer::Accepted);
    assert_eq!(sim.mark(), mark + 1, "the current id is a no-op");
    let unknown = sim.feed(Input::SetActiveLoop(LoopId(Uuid::max())));
    assert_eq!(code(&unknown), "loop_not_found");
    sim.feed(Input::Close);
    let closing = sim.feed(Input::SetActiveLoop(LOOP));
    assert_eq!(code(&closing), "host_shutting_down");
    sim.disk_full = true;
    let mut sim = three().0;
    let other = sim.nth_loop(1);
    sim.disk_full = true;
    sim.feed(Input::SetActiveLoop(other));
    assert_eq!(
        sim.session.state.active_loop, LOOP,
        "readers see it only when it is durable"
    );
}

#[test]
fn s35_an_operation_prepared_on_another_loop_is_refused() {
    let (mut sim, second, _) = three();
    let prepared = sim.prepared(Execution::Control);
    sim.feed(Input::SetActiveLoop(second));
    assert_eq!(code(&sim.reserve(prepared)), "status_changed");
    sim.exclusive();
    assert!(
        sim.session.live.of(second).owner.is_some(),
        "a busy sibling does not keep it from starting"
    );
}

#[test]
fn s32_a_prompt_goes_to_the_active_loop_or_the_named_one() {
    let (mut sim, second, third) = three();
    sim.feed(Input::SetActiveLoop(second));
    sim.prompt("active");
    sim.submit_to(third, "named");
    for loop_id in [second, third] {
        assert!(sim.session.live.of(loop_id).owner.is_some());
    }
    let (_, answer) = sim.submit_to(LoopId(Uuid::max()), "lost");
    assert_eq!(code(&answer), "loop_not_found");
}

#[test]
fn s30_a_session_has_a_bounded_number_of_loops() {
    let mut sim = Sim::new();
    for _ in 1..MAX_LOOPS {
        sim.create_loop(None);
    }
    assert_eq!(sim.session.state.loops.len(), MAX_LOOPS);
    let loop_id = LoopId(Uuid::max());
    let harness_id = HARNESS.parse().unwrap();
    let create = |mode: &str| Input::CreateLoop {
        loop_id,
        harness_id,
        model: None,
        mode: mode.into(),
    };
    assert_eq!(code(&sim.feed(create(""))), "invalid_request");
}

#[test]
fn s20_a_mode_is_checked_and_takes_effect_next_turn() {
    let (mut sim, second, _) = three();
    let set = |mode: &str| Input::SetLoopMode {
        loop_id: second,
        mode: mode.into(),
    };
    assert_eq!(code(&sim.feed(set("nothing"))), "invalid_mode");
    let answer = sim.feed(set("review"));
    assert_eq!(
        answer,
        Answer::LoopRuntime {
            mode: "review".into(),
            runtime: Runtime::default()
        }
    );
    let view = &sim.session.state.loop_views()[1];
    assert_eq!(
        view.mode, "review",
        "S36: what is shown is what was committed"
    );
    assert!(matches!(
        sim.last("LoopModeChanged"),
        EventBody::LoopModeChanged { previous, mode, .. } if previous.is_empty() && mode == "review"
    ));
    sim.feed(set(""));
    assert_eq!(sim.session.state.loop_views()[1].mode, "");
}

#[test]
fn s21_s27_model_and_effort_change_together_or_not_at_all() {
    let mut sim = Sim::new();
    sim.harness.as_mut().unwrap().models =
        vec![model("large", &["low", "high"]), model("small", &[])];
    let change = |model: Option<&str>, effort: Option<&str>| Input::ChangeInference {
        loop_id: LOOP,
        native: Vec::new(),
        model: model.map(str::to_owned),
        effort: effort.map(str::to_owned),
    };
    assert_eq!(code(&sim.feed(change(None, None))), "no_changes");
    assert_eq!(code(&sim.feed(change(Some("huge"), None))), "invalid_model");
    let mark = sim.mark();
    let refused = sim.feed(change(Some("small"), Some("high")));
    assert_eq!(code(&refused), "invalid_effort");
    assert_eq!(sim.mark(), mark, "S25: a refusal applies nothing");
    let answer = sim.feed(change(Some("large"), Some("high")));
    let both = Runtime {
        model: Some("large".into()),
        effort: Some("high".into()),
    };
    assert_eq!(
        answer,
        Answer::LoopRuntime {
            mode: String::new(),
            runtime: both.clone()
        }
    );
    assert_eq!(
        *sim.last("LoopInferenceChanged"),
        EventBody::LoopInferenceChanged { runtime: both }
    );
    sim.disk_full = true;
    sim.feed(change(None, Some("low")));
    let view = &sim.session.state.loop_views()[0];
    assert_eq!(
        view.effort.as_deref(),
        Some("high"),
        "I34: the old values stay"
    );
}

#[test]
fn s71_a_mode_change_clears_an_earlier_inference() {
    let mut sim = Sim::new();
    sim.harness.as_mut().unwrap().models = vec![model("large", &[]), model("small", &[])];
    let loop_id = sim.create_loop(Some("large"));
    sim.feed(Input::ChangeInference {
        loop_id,
        native: Vec::new(),
        model: Some("small".into()),
        effort: None,
    });
    sim.crash();
    assert_eq!(
        sim.session.state.loop_views()[1].model.as_deref(),
        Some("small")
    );
    sim.feed(Input::SetLoopMode {
        loop_id,
        mode: "review".into(),
    });
    sim.crash();
    let view = &sim.session.state.loop_views()[1];
    assert_eq!(
        (view.mode.as_str(), view.model.as_deref()),
        ("review", Some("large")),
        "what it was made with"
    );
}

#[test]
fn s71_a_model_of_the_session_forgets_what_was_set_for_its_loop() {
    let mut sim = Sim::new();
    sim.harness.as_mut().unwrap().models = vec![model("large", &["high"]), model("small", &[])];
    sim.feed(Input::ChangeInference {
        loop_id: LOOP,
        native: Vec::new(),
        model: Some("large".into()),
        effort: Some("high".into()),
    });
    let origin = sim.origin();
    sim.feed(Input::Settings {
        origin,
        title: None,
        model: Some(Some("small".into())),
        params: None,
        agent: None,
    });
    let view = &sim.session.state.loop_views()[0];
    assert_eq!(
        (view.model.as_deref(), &view.effort),
        (Some("small"), &None)
    );
}

#[test]
fn s27_a_closing_or_faulted_session_changes_nothing() {
    let set = |mode: &str| Input::SetLoopMode {
        loop_id: LOOP,
        mode: mode.into(),
    };
    let mut sim = Sim::new();
    sim.feed(Input::Close);
    assert_eq!(code(&sim.feed(set("review"))), "loop_shutting_down");
    let mut sim = Sim::new();
    sim.feed(Input::Fault("disk".into()));
    assert_eq!(code(&sim.feed(set("review"))), "session_faulted");
}

#[test]
fn s90_a_stop_marks_every_loop_before_it_aborts_any() {
    let (mut sim, second, third) = three();
    sim.submit_to(second, "two");
    sim.submit_to(third, "three");
    let before = sim.effects.len();
    sim.interrupt();
    let aborts = |e: &&Effect| matches!(e, Effect::Abort { .. });
    assert_eq!(sim.effects[before..].iter().filter(aborts).count(), 3);
    for loop_id in [LOOP, second, third] {
        assert!(sim.session.live.is_marked(loop_id));
    }
    let queued = sim.submit_to(second, "later").0;
    for loop_id in [LOOP, second] {
        let id = runner(&sim, loop_id);
        if loop_id == LOOP {
            sim.done(id, stopped());
        } else {
            sim.started(id, stopped());
        }
    }
    assert!(
        sim.session.live.of(second).owner.is_none(),
        "S91: it waits for the barrier"
    );
    let mark = sim.mark();
    let last = runner(&sim, third);
    sim.started(last, stopped());
    let names = sim.names_since(mark);
    let idle = names.iter().position(|n| *n == "SessionIdle").unwrap();
    let next = names.iter().position(|n| *n == "TurnStarted").unwrap();
    assert!(idle < next, "I32: it starts when SessionIdle is durable");
    let owner = sim.session.live.of(second).owner.as_ref().unwrap();
    assert_eq!(owner.cause, queued);
    assert_eq!(sim.effect(|e| matches!(e, Effect::Stopped(_))), 1);
}

#[test]
fn s90_s92_a_stop_of_one_loop_leaves_its_siblings_alone() {
    let (mut sim, second, third) = three();
    sim.submit_to(second, "two");
    assert_eq!(
        sim.interrupt_loop(third),
        Answer::Bool(false),
        "I33: nothing to stop emits nothing"
    );
    let mark = sim.mark();
    assert!(matches!(sim.interrupt_loop(second), Answer::Stopping(_)));
    assert!(!sim.session.live.is_marked(LOOP));
    let id = runner(&sim, second);
    sim.started(id, stopped());
    assert_eq!(
        sim.names_since(mark),
        ["Interrupt", "TurnInterrupted", "LoopIdle"],
        "the session works on"
    );
    assert!(!sim.session.live.is_marked(second));
    let unknown = sim.interrupt_loop(LoopId(Uuid::max()));
    assert_eq!(code(&unknown), "loop_not_found");
}

#[test]
fn s91_i33_overlapping_stops_count_their_marks() {
    let (mut sim, second, _) = three();
    sim.submit_to(second, "two");
    let Answer::Stopping(one) = sim.interrupt_loop(second) else {
        panic!("not stopping")
    };
    let Answer::Stopping(all) = sim.interrupt() else {
        panic!("not stopping")
    };
    assert_ne!(one, all);
    assert_eq!(
        sim.interrupt_loop(second),
        Answer::Stopping(one),
        "who stops what is being stopped joins"
    );
    let id = runner(&sim, second);
    sim.started(id, stopped());
    assert!(
        sim.session.live.is_marked(second),
        "the mark stays until the last stop that set it has ended"
    );
    let first = runner(&sim, LOOP);
    sim.done(first, stopped());
    assert!(sim.session.live.stops.is_empty());
}

#[test]
fn s91_the_barrier_fails_open() {
    let (mut sim, second, _) = three();
    sim.submit_to(second, "two");
    let Answer::Stopping(stop) = sim.interrupt() else {
        panic!("not stopping")
    };
    let id = runner(&sim, second);
    sim.started(id, stopped());
    sim.submit_to(second, "waits");
    assert!(sim.session.live.of(second).owner.is_none());
    assert_eq!(sim.feed(Input::BarrierExpired(stop)), Answer::Bool(true));
    assert!(
        sim.session.live.of(second).owner.is_some(),
        "what waits goes on beside the wedged loop"
    );
    assert_eq!(sim.feed(Input::BarrierExpired(stop)), Answer::Bool(false));
}

#[test]
fn n6_an_announcement_belongs_to_the_loop_that_made_it() {
    let (mut sim, second, _) = three();
    let turn = harness_core::provider::NativeTurn {
        id: "native".into(),
        start: TurnStart::Running,
        reason: "goal".into(),
        cause: None,
    };
    sim.feed(Input::Announce {
        loop_id: second,
        id: 9,
        turn,
    });
    assert_eq!(
        sim.announced(9),
        Some(&Ok(())),
        "the busy sibling is no matter"
    );
    assert!(sim.session.live.of(second).owner.is_some());
    assert!(sim.journal.iter().any(|r| matches!(
        r,
        Record::Command(c) if matches!(&c.body, CommandBody::NativeTurn { loop_id, .. } if *loop_id == second)
    )));
}

#[test]
fn s55_settings_of_another_harness_are_not_the_sessions() {
    let mut sim = Sim::new();
    sim.free = 2;
    let loop_id = LoopId(Uuid::from_u128(77));
    sim.feed(Input::CreateLoop {
        loop_id,
        harness_id: "demo/other".parse().unwrap(),
        model: None,
        mode: String::new(),
    });
    sim.feed(Input::SetActiveLoop(loop_id));
    let mut reserve = sim.prepared(Execution::Control);
    reserve.harness_id = "demo/other".parse().unwrap();
    let id = reserve.origin.command_id;
    let Answer::Reserved(invocation) = sim.reserve(reserve) else {
        panic!("not reserved")
    };
    sim.invoked(
        invocation,
        Ok(harness_core::session::Invoked::Completed(
            crate::support::with_patch("plan"),
        )),
    );
    assert_eq!(sim.problem(id).code(), "harness_changed");
    assert_eq!(sim.mode(), None, "nothing was written");
    assert_eq!(sim.status(), Status::Completed);
    assert!(harness(HARNESS).features.commands);
}

fn announce_in(sim: &mut Sim, loop_id: LoopId, id: u64) -> Answer {
    let turn = harness_core::provider::NativeTurn {
        id: format!("n-{id}"),
        start: TurnStart::Running,
        reason: "goal".into(),
        cause: None,
    };
    sim.feed(Input::Announce { loop_id, id, turn })
}

const STOPPED: Answer = Answer::Channel(harness_core::provider::ChannelError::Stopped);

#[test]
fn n12_s90_a_stop_of_one_loop_disarms_it_and_no_sibling() {
    let (mut sim, second, third) = three();
    sim.free = 3;
    sim.interrupt_loop(LOOP);
    let first = runner(&sim, LOOP);
    sim.done(first, stopped());
    let Some(Record::Command(stop)) =
        sim.journal.iter().rev().find(
            |r| matches!(r, Record::Command(c) if matches!(c.body, CommandBody::Interrupt {})),
        )
    else {
        panic!("the stop is recorded");
    };
    assert_eq!(stop.header.cause.loop_id, Some(LOOP), "with its scope");
    for crashed in [false, true] {
        if crashed {
            sim.crash();
        }
        let id = if crashed { 20 } else { 10 };
        assert_eq!(announce_in(&mut sim, LOOP, id), STOPPED);
        assert_eq!(announce_in(&mut sim, second, id + 1), Answer::Accepted);
        assert_eq!(sim.announced(id + 1), Some(&Ok(())), "crashed: {crashed}");
    }
    // What a person begins in a sibling does not undo the stop of this one.
    sim.submit_to(third, "go on");
    assert_eq!(announce_in(&mut sim, LOOP, 30), STOPPED);
    sim.submit_to(LOOP, "go on");
    assert!(!sim.session.state.loops[&LOOP].disarmed);
}

#[test]
fn n12_a_stop_of_the_session_disarms_every_loop() {
    let (mut sim, second, _) = three();
    sim.free = 3;
    sim.interrupt();
    let first = runner(&sim, LOOP);
    sim.done(first, stopped());
    let later = sim.create_loop(None);
    sim.crash();
    assert_eq!(announce_in(&mut sim, LOOP, 1), STOPPED);
    assert_eq!(announce_in(&mut sim, second, 2), STOPPED, "idle ones too");
    assert_eq!(
        announce_in(&mut sim, later, 3),
        Answer::Accepted,
        "one that a person began afterwards was never stopped"
    );
}

/// A journal from before a stop named its loop: it was meant for the session.
#[test]
fn n12_a_stop_without_scope_is_the_sessions() {
    let (mut sim, second, _) = three();
    sim.interrupt_loop(LOOP);
    let first = runner(&sim, LOOP);
    sim.done(first, stopped());
    for record in &mut sim.journal {
        if let Record::Command(command) = record
            && matches!(command.body, CommandBody::Interrupt {})
        {
            command.header.cause = Default::default();
        }
    }
    let restored = crate::support::restore_of(&sim.journal);
    assert!(restored.state.loops.values().all(|l| l.disarmed));
    assert!(restored.state.loops.contains_key(&second));
}

#[test]
fn n12_s90_a_stop_disarms_the_subtree() {
    let (mut sim, sibling, _) = three();
    let child = LoopId(Uuid::from_u128(0xc0ffee));
    let mut record = sim
        .journal
        .iter()
        .rev()
        .find_map(|r| match r {
            Record::Event(e) if matches!(e.body, EventBody::LoopStarted { .. }) => Some(e.clone()),
            _ => None,
        })
        .unwrap();
    record.id = harness_core::ids::EventId(Uuid::from_u128(0xbeef));
    record.loop_id = child;
    if let EventBody::LoopStarted { parent_loop_id, .. } = &mut record.body {
        *parent_loop_id = Some(LOOP);
    }
    sim.journal.push(Record::Event(record));
    let mut session = crate::support::restore_of(&sim.journal);
    let stop = |loop_id, id| {
        Record::Command(harness_core::command::Command {
            header: harness_core::command::CommandHeader {
                command_id: harness_core::ids::CommandId(Uuid::from_u128(id)),
                cause: harness_core::command::Cause {
                    loop_id: Some(loop_id),
                    ..Default::default()
                },
                agency: harness_core::command::Agency::User,
                created_at: sim.now,
                caller: None,
            },
            body: CommandBody::Interrupt {},
        })
    };
    let disarmed = |s: &harness_core::session::Session| {
        let loops = s.state.loops.values();
        loops
            .filter(|l| l.disarmed)
            .map(|l| l.id)
            .collect::<Vec<_>>()
    };
    session.replay(&stop(child, 1), 900).unwrap();
    assert_eq!(disarmed(&session), [child], "not what started it");
    session.replay(&stop(LOOP, 2), 901).unwrap();
    assert_eq!(disarmed(&session), [LOOP, child]);
    assert!(!disarmed(&session).contains(&sibling));
}
