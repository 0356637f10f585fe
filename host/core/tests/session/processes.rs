//! Background processes: started, ended, told, lost (S11, S72, S94, S97, §6.1 step 4).

use crate::delegates::delegating;
use crate::scenes::{faulted, idle, turn_running};
use crate::support::{HARNESS, LOOP, Sim, code, restore_of, stopped};
use harness_core::command::{Agency, ProcessNotice, ProcessState};
use harness_core::event::{CancelReason, EventBody};
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::{InputOrigin, IoError, Outcome, Params, ProgramEnd};
use harness_core::session::{Answer, Effect, Input, MAX_NOTICES, Notified};
use harness_core::view::{ProcessStatus, Status};
use uuid::Uuid;

const OK: ProgramEnd = ProgramEnd::Exited(0);

/// Inputs of origin `process` that started a turn, as the provider got them.
fn told(sim: &Sim) -> Vec<(String, CommandId)> {
    let of_process = |effect: &Effect| match effect {
        Effect::StartPrompt { input, .. } => match &input.origin {
            InputOrigin::Process(handle) => Some((handle.clone(), input.command_id)),
            _ => None,
        },
        _ => None,
    };
    sim.effects.iter().filter_map(of_process).collect()
}

fn finish_turn(sim: &mut Sim) {
    let runner = sim.runner();
    sim.started(runner, Ok(Params::new()));
    sim.done(runner, Ok(Outcome::default()));
}

fn notice(sim: &Sim, n: u128, reason: &str) -> ProcessNotice {
    ProcessNotice {
        command_id: CommandId(Uuid::from_u128(0xa000 + n)),
        session_id: sim.session.state.id,
        loop_id: LOOP,
        process_handle: format!("p{n}"),
        state: ProcessState::Exited,
        reason: reason.into(),
    }
}

fn notify(sim: &mut Sim, notice: &ProcessNotice) -> Answer {
    sim.feed(Input::NotifyProcess(notice.clone()))
}

/// A turn that does not fold runs, and this many notifications wait behind it.
fn behind_a_turn(waiting: usize) -> Sim {
    let mut sim = turn_running().sim;
    for n in 0..waiting {
        let said = notice(&sim, n as u128, "done");
        let answer = notify(&mut sim, &said);
        assert_eq!(answer, Answer::Notified(Notified::Dispatched));
    }
    sim
}

#[test]
fn s97_the_start_is_durable_before_the_program_runs() {
    let mut sim = turn_running().sim;
    let mark = sim.mark();
    let handle = sim.process("make");
    assert_eq!(sim.names_since(mark), ["ProcessStarted"]);
    let started = sim.events().next_back().unwrap();
    let turn = sim.live().owner.as_ref().unwrap().turn;
    assert_eq!(Some(started.turn_id), turn, "it names the turn that asked");
    let view = sim.session.state.process_views();
    assert_eq!(view[0].process_handle, handle);
    assert_eq!(view[0].status, ProcessStatus::Running);
    assert_eq!(sim.session.view().activities, ["process make"]);
    sim.disk_full = true;
    let refused = sim.try_process(LOOP, "make");
    assert_eq!(code(&refused), "store_unavailable");
    assert_eq!(sim.session.live.faulted, None, "who asked can be told");
    assert_eq!(sim.session.state.running_processes().count(), 1);
}

#[test]
fn s11_s97_the_end_starts_a_turn_when_the_loop_is_idle() {
    for (end, state, status, words) in [
        (
            OK,
            ProcessState::Exited,
            ProcessStatus::Exited,
            "exit code 0",
        ),
        (
            ProgramEnd::Exited(3),
            ProcessState::Failed,
            ProcessStatus::Failed,
            "exit code 3",
        ),
        (
            ProgramEnd::Exited(137),
            ProcessState::Failed,
            ProcessStatus::Failed,
            "signal 9",
        ),
        (
            ProgramEnd::Stopped,
            ProcessState::Stopped,
            ProcessStatus::Stopped,
            "it was stopped",
        ),
        (
            ProgramEnd::Lost,
            ProcessState::Lost,
            ProcessStatus::Lost,
            "supervised it",
        ),
    ] {
        let mut sim = idle().sim;
        let handle = sim.process("make");
        let mark = sim.mark();
        let answer = sim.process_ended(&handle, end.clone());
        assert_eq!(answer, Answer::Notified(Notified::Dispatched));
        let first = match state {
            ProcessState::Lost => "ProcessLost",
            _ => "ProcessFinished",
        };
        assert_eq!(
            sim.names_since(mark),
            [first, "ProcessNotification", "SessionActive", "TurnStarted"]
        );
        let id = sim.notice_of(&handle);
        assert_eq!(told(&sim), [(handle.clone(), id)]);
        let turn = sim.events().next_back().unwrap();
        assert_eq!(turn.cause.command_id, Some(id));
        assert_eq!(turn.cause.agency, Some(Agency::Machine));
        let said = sim.history().pop().unwrap();
        assert!(said.contains(&handle) && said.contains("`make`"), "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(sim.session.state.process_views()[0].status, status);
        assert!(sim.session.view().activities.is_empty());
        assert!(sim.session.state.queued_inputs().is_empty(), "no inbox");
        // It cannot end twice.
        let mark = sim.mark();
        assert_eq!(sim.process_ended(&handle, end), Answer::None);
        assert_eq!(sim.mark(), mark);
        finish_turn(&mut sim);
        assert_eq!(told(&sim).len(), 1);
    }
}

#[test]
fn s97_the_end_is_offered_for_folding_while_a_turn_runs() {
    let mut sim = turn_running().sim;
    sim.harness.as_mut().unwrap().features.folding = true;
    let handle = sim.process("make");
    sim.submit_as("never folds", true, false);
    sim.process_ended(&handle, OK);
    let id = sim.notice_of(&handle);
    assert_eq!(told(&sim), []);
    let runner = sim.runner();
    let Answer::Inputs(inputs) = sim.feed(Input::TakeInput(runner)) else {
        panic!("no inputs");
    };
    let [input] = inputs.as_slice() else {
        panic!("{inputs:?}");
    };
    assert_eq!(input.origin, InputOrigin::Process(handle));
    assert_eq!(sim.ledger.notice(id), Some(Some("TurnFoldedInto")));
    let again = sim.feed(Input::TakeInput(runner));
    assert_eq!(again, Answer::Inputs(Vec::new()), "once");
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(told(&sim), [], "the turn knows it already");
}

#[test]
fn s97_without_folding_the_end_starts_the_next_turn_behind_people() {
    let mut sim = turn_running().sim;
    let handle = sim.process("make");
    sim.process_ended(&handle, OK);
    let person = sim.prompt("me first");
    let runner = sim.runner();
    let taken = sim.feed(Input::TakeInput(runner));
    assert_eq!(taken, Answer::Inputs(Vec::new()));
    let mark = sim.mark();
    sim.done(runner, Ok(Outcome::default()));
    let started = sim.events().next_back().unwrap();
    assert_eq!(started.cause.command_id, Some(person));
    finish_turn(&mut sim);
    assert_eq!(told(&sim).len(), 1);
    let names = sim.names_since(mark);
    assert!(
        !names.contains(&"LoopIdle"),
        "the turns are chained: {names:?}"
    );
    finish_turn(&mut sim);
    assert_eq!(sim.names_since(sim.mark() - 2), ["LoopIdle", "SessionIdle"]);
}

#[test]
fn s97_a_retry_is_a_duplicate_and_another_content_a_collision() {
    let mut sim = behind_a_turn(1);
    let said = notice(&sim, 0, "done");
    let mark = sim.mark();
    let again = notify(&mut sim, &said);
    assert_eq!(again, Answer::Notified(Notified::Duplicate));
    let other = notice(&sim, 0, "done otherwise");
    let collision = notify(&mut sim, &other);
    assert_eq!(collision, Answer::Notified(Notified::Collision));
    assert_eq!(sim.mark(), mark, "neither is recorded");
    let runner = sim.runner();
    sim.done(runner, Ok(Outcome::default()));
    finish_turn(&mut sim);
    // Nor after it was delivered, nor in the next life of the host.
    for _ in 0..2 {
        let again = notify(&mut sim, &said);
        assert_eq!(again, Answer::Notified(Notified::Duplicate));
        let collision = notify(&mut sim, &other);
        assert_eq!(collision, Answer::Notified(Notified::Collision));
        sim.crash();
    }
    assert_eq!(told(&sim).len(), 1, "it is delivered once");
}

#[test]
fn s97_a_wrong_session_is_refused() {
    let mut sim = idle().sim;
    let mut said = notice(&sim, 0, "done");
    said.session_id = harness_core::ids::SessionId(Uuid::from_u128(404));
    let mark = sim.mark();
    let answer = notify(&mut sim, &said);
    assert_eq!(answer, Answer::Notified(Notified::WrongSession));
    assert_eq!(sim.mark(), mark);
}

#[test]
fn s11_a_notification_that_breaks_its_rules_is_refused() {
    let sim = idle().sim;
    let good = notice(&sim, 0, "done");
    let long = ProcessNotice {
        process_handle: "h".repeat(129),
        ..good.clone()
    };
    let nameless = ProcessNotice {
        process_handle: String::new(),
        ..good.clone()
    };
    let zero = ProcessNotice {
        command_id: CommandId::ZERO,
        ..good
    };
    for bad in [long, nameless, zero] {
        let mut sim = idle().sim;
        let mark = sim.mark();
        assert_eq!(code(&notify(&mut sim, &bad)), "invalid_request", "{bad:?}");
        assert_eq!(sim.mark(), mark);
    }
}

#[test]
fn s97_a_full_set_stops_the_dispatch_until_it_is_said_again() {
    let mut sim = behind_a_turn(MAX_NOTICES);
    let beyond = notice(&sim, 64, "done");
    let answer = notify(&mut sim, &beyond);
    assert_eq!(answer, Answer::Notified(Notified::Stopped));
    assert_eq!(
        sim.ledger.notice(beyond.command_id),
        Some(None),
        "it is recorded before it is looked whether there is room"
    );
    assert_eq!(sim.session.notice_to_retry(), None, "there is no room");
    let answer = notify(&mut sim, &beyond);
    assert_eq!(answer, Answer::Notified(Notified::Stopped), "still none");
    let refused = sim.try_process(LOOP, "make");
    assert!(matches!(refused, Answer::Process(Err(IoError::Limit(_)))));
    // One is delivered: the source says the other again, with the same id.
    let runner = sim.runner();
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(told(&sim).len(), 1);
    let answer = notify(&mut sim, &beyond);
    assert_eq!(
        answer,
        Answer::Notified(Notified::Duplicate),
        "it waits now"
    );
    for _ in 0..=MAX_NOTICES {
        finish_turn(&mut sim);
    }
    let ids: std::collections::BTreeSet<_> = told(&sim).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids.len(), MAX_NOTICES + 1, "each is delivered once");
    assert_eq!(told(&sim).len(), MAX_NOTICES + 1);
}

#[test]
fn s97_a_loop_that_is_gone_stops_the_dispatch() {
    let mut sim = idle().sim;
    let mut said = notice(&sim, 0, "done");
    said.loop_id = LoopId(Uuid::from_u128(404));
    let answer = notify(&mut sim, &said);
    assert_eq!(answer, Answer::Notified(Notified::Stopped));
}

#[test]
fn s97_each_refusal_of_a_start_has_its_own_error() {
    let refusal = |answer: Answer| match answer {
        Answer::Process(Err(error)) => error.code(),
        other => panic!("{other:?}"),
    };
    let mut sim = idle().sim;
    sim.processes = 2;
    let first = sim.process("make");
    sim.process("make");
    assert_eq!(refusal(sim.try_process(LOOP, "make")), "limit");
    sim.process_ended(&first, OK);
    sim.process("make");
    let other = sim.create_loop(None);
    assert_eq!(
        refusal(sim.try_process(other, "make")),
        "limit",
        "it counts over all loops"
    );
    let stranger = Input::StartProcess {
        loop_id: LOOP,
        harness: "demo/other".parse().unwrap(),
        program: "make".into(),
    };
    assert_eq!(refusal(sim.feed(stranger)), "closed");
    let gone = LoopId(Uuid::from_u128(404));
    assert_eq!(refusal(sim.try_process(gone, "make")), "closed");
    let mut sim = turn_running().sim;
    sim.interrupt();
    assert_eq!(refusal(sim.try_process(LOOP, "make")), "denied");
    assert_eq!(refusal(faulted().sim.try_process(LOOP, "make")), "failed");
    let mut sim = idle().sim;
    sim.ids.broken = true;
    assert_eq!(refusal(sim.try_process(LOOP, "make")), "failed");
    let mut sim = idle().sim;
    sim.feed(Input::Close);
    assert_eq!(refusal(sim.try_process(LOOP, "make")), "closed");
}

#[test]
fn s97_a_program_that_could_not_be_started_is_no_news() {
    let mut sim = idle().sim;
    let handle = sim.process("make");
    let mark = sim.mark();
    let end = ProgramEnd::NotStarted(IoError::NotFound("no make".into()));
    sim.process_ended(&handle, end);
    assert_eq!(sim.names_since(mark), ["ProcessFinished"]);
    assert!(matches!(
        sim.last("ProcessFinished"),
        EventBody::ProcessFinished {
            state: ProcessState::Failed,
            reason,
            exit_code: None,
            ..
        } if reason.contains("no make")
    ));
    sim.crash();
    assert_eq!(told(&sim), []);
}

#[test]
fn s97_a_stop_neither_ends_a_process_nor_loses_its_end() {
    let mut sim = turn_running().sim;
    let (first, second) = (sim.process("make"), sim.process("test"));
    sim.process_ended(&first, OK);
    let runner = sim.runner();
    sim.interrupt();
    sim.process_ended(&second, OK);
    assert_eq!(told(&sim), [], "nothing starts behind the barrier");
    let mark = sim.mark();
    sim.done(runner, stopped());
    let names = sim.names_since(mark);
    let at = |name| names.iter().position(|n| *n == name);
    assert!(
        at("SessionIdle") < at("TurnStarted"),
        "I32: only after the durable idle edge: {names:?}"
    );
    finish_turn(&mut sim);
    finish_turn(&mut sim);
    let handles: Vec<_> = told(&sim).into_iter().map(|(handle, _)| handle).collect();
    assert_eq!(handles, [first, second]);
}

#[test]
fn s97_a_failed_turn_keeps_what_was_not_told() {
    let mut sim = behind_a_turn(2);
    let runner = sim.runner();
    let failed = harness_core::provider::CallError::Trap("x".into());
    sim.done(runner, Err(failed));
    assert_eq!(told(&sim).len(), 1);
    finish_turn(&mut sim);
    assert_eq!(told(&sim).len(), 2);
}

#[test]
fn s97_a_notification_waits_for_a_slot() {
    let mut sim = idle().sim;
    let handle = sim.process("make");
    sim.free = 0;
    sim.process_ended(&handle, OK);
    assert_eq!((told(&sim).len(), sim.status()), (0, Status::Queued));
    assert!(sim.wishes());
    sim.slot_comes_free();
    assert_eq!(told(&sim).len(), 1);
}

#[test]
fn s97_another_harness_does_not_inherit_processes() {
    let mut sim = idle().sim;
    let handle = sim.process("make");
    let refused = sim.set(None, None, Some("demo/other"));
    assert_eq!(code(&refused), "session_busy");
    sim.process_ended(&handle, OK);
    finish_turn(&mut sim);
    let accepted = sim.set(None, None, Some("demo/other"));
    assert_eq!(accepted, Answer::Accepted);
    assert_ne!(sim.session.state.agent, HARNESS.parse().unwrap());
}

// ---- restore ----------------------------------------------------------------------------------

#[test]
fn s72_a_lost_process_is_written_down_and_told_once() {
    for running in [false, true] {
        let mut sim = if running {
            turn_running().sim
        } else {
            idle().sim
        };
        let handle = sim.process("make");
        let mark = sim.mark();
        assert!(
            sim.session.state.needs_recovery(),
            "the host restores it at start"
        );
        sim.crash();
        let names = sim.names_since(mark);
        let at = |name| names.iter().position(|n| *n == name).expect(name);
        assert!(at("RestoreStarted") < at("ProcessLost"));
        assert!(at("ProcessLost") < at("ProcessNotification"));
        assert!(at("ProcessNotification") < at("RestoreDone"));
        assert!(
            at("RestoreDone") < at("TurnStarted"),
            "nothing goes out before it"
        );
        if running {
            assert!(at("TurnInterrupted") < at("ProcessLost"), "§6.1 step 4");
        }
        assert_eq!(told(&sim), [(handle.clone(), sim.notice_of(&handle))]);
        assert_eq!(
            sim.session.state.process_views()[0].status,
            ProcessStatus::Lost
        );
        finish_turn(&mut sim);
        let mark = sim.mark();
        sim.crash();
        assert_eq!(told(&sim).len(), 1);
        assert_eq!(sim.mark(), mark, "there is nothing left to repair");
    }
}

#[test]
fn s72_an_end_that_was_not_delivered_is_brought_back() {
    let mut sim = idle().sim;
    let handle = sim.process("make");
    sim.free = 0;
    sim.process_ended(&handle, OK);
    let mark = sim.mark();
    assert!(sim.session.state.needs_recovery());
    sim.crash();
    assert_eq!(sim.mark(), mark, "it is durable already");
    sim.crash();
    sim.slot_comes_free();
    let id = sim.notice_of(&handle);
    assert_eq!(told(&sim), [(handle, id)]);
}

#[test]
fn s72_a_notification_whose_turn_was_cut_is_not_brought_back() {
    let mut sim = idle().sim;
    let handle = sim.process("make");
    sim.process_ended(&handle, OK);
    assert_eq!(told(&sim).len(), 1);
    sim.crash();
    sim.crash();
    assert_eq!(told(&sim).len(), 1, "its turn is durable (S74)");
    assert_eq!(sim.status(), Status::Disconnected);
}

#[test]
fn s72_what_the_set_does_not_hold_waits_behind_it() {
    let mut sim = behind_a_turn(MAX_NOTICES);
    let beyond = notice(&sim, 64, "done");
    notify(&mut sim, &beyond);
    // Somebody else gets the slot of the turn that the crash cuts.
    sim.free -= 1;
    sim.crash();
    assert_eq!(
        notify(&mut sim, &beyond),
        Answer::Notified(Notified::Stopped)
    );
}

#[test]
fn s77_s97_a_loop_that_was_closed_is_told_nothing() {
    let mut sim = delegating();
    sim.running();
    let (child, _) = sim.child(LOOP, true);
    let Answer::Process(Ok(running)) = sim.try_process(child, "make") else {
        panic!("not started");
    };
    let of_child = |sim: &Sim, n| ProcessNotice {
        loop_id: child,
        ..notice(sim, n, "done")
    };
    let waiting = of_child(&sim, 1);
    assert_eq!(
        notify(&mut sim, &waiting),
        Answer::Notified(Notified::Dispatched)
    );
    sim.session = restore_of(&sim.journal);
    sim.free = 8;
    sim.feed(Input::Restore {
        lost: vec![child],
        now: None,
    });
    assert!(sim.session.state.loops[&child].closed);
    let view = sim.session.state.process_views().remove(0);
    assert_eq!(
        (view.process_handle, view.status),
        (running, ProcessStatus::Lost)
    );
    assert_eq!(
        sim.ledger.notice(waiting.command_id),
        Some(Some("InputCancelled"))
    );
    // What still comes is recorded and stays undelivered.
    let late = of_child(&sim, 2);
    for _ in 0..2 {
        let answer = notify(&mut sim, &late);
        assert_eq!(answer, Answer::Notified(Notified::Stopped));
    }
    assert_eq!(sim.session.notice_to_retry(), None);
    sim.crash();
    assert_eq!(notify(&mut sim, &late), Answer::Notified(Notified::Stopped));
    assert_eq!(told(&sim), []);
}

// ---- shutdown ---------------------------------------------------------------------------------

fn ends(sim: &Sim) -> usize {
    sim.effect(|e| *e == Effect::EndProcesses)
}

#[test]
fn s94_processes_are_ended_before_the_session_stops() {
    let mut sim = turn_running().sim;
    let (first, second) = (sim.process("make"), sim.process("test"));
    sim.process_ended(&first, OK);
    let runner = sim.runner();
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin));
    assert_eq!(ends(&sim), 0, "loops first");
    sim.done(runner, stopped());
    assert_eq!(ends(&sim), 1);
    assert_eq!(sim.count("SessionStopped"), 0, "they may still publish");
    let refused = sim.try_process(LOOP, "late");
    assert_eq!(refused, Answer::Process(Err(IoError::Closed)));
    sim.process_ended(&second, ProgramEnd::Stopped);
    assert_eq!(sim.names_since(sim.mark() - 1), ["SessionStopped"]);
    assert!(sim.session.state.running_processes().next().is_none());
    let told_first = sim.notice_of(&first);
    assert_eq!(sim.ledger.notice(told_first), Some(Some("InputCancelled")));
    let cancelled = sim
        .events()
        .find(|e| e.cause.command_id == Some(told_first));
    assert_eq!(
        cancelled.unwrap().body,
        EventBody::InputCancelled {
            reason: CancelReason::ShuttingDown
        }
    );
    sim.crash();
    sim.feed(Input::Reopen(None));
    assert_eq!(told(&sim), [], "what was shut down says nothing afterwards");
    assert_eq!(sim.status(), Status::Cancelled, "of its last turn");
}

#[test]
fn s94_a_process_that_cannot_be_ended_costs_its_phase() {
    let mut sim = idle().sim;
    let handle = sim.process("make");
    assert_eq!(sim.feed(Input::ProcessesExpired), Answer::Bool(false));
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin));
    assert_eq!(ends(&sim), 1);
    assert_eq!(sim.feed(Input::ProcessesExpired), Answer::Bool(true));
    assert_eq!(
        sim.names_since(sim.mark() - 2),
        ["ProcessLost", "SessionStopped"]
    );
    let mark = sim.mark();
    sim.process_ended(&handle, ProgramEnd::Stopped);
    assert_eq!(sim.mark(), mark, "I40: no event after SessionStopped");
}

#[test]
fn s97_a_host_that_closes_takes_its_processes_along() {
    let mut sim = idle().sim;
    let (first, second) = (sim.process("make"), sim.process("test"));
    sim.feed(Input::Close);
    assert_eq!(ends(&sim), 1);
    let mark = sim.mark();
    sim.process_ended(&first, ProgramEnd::Stopped);
    assert_eq!(sim.mark(), mark, "the next start tells that it was lost");
    sim.process_ended(&second, OK);
    assert_eq!(
        sim.names_since(mark),
        ["ProcessFinished", "ProcessNotification"],
        "what ended by itself did"
    );
    assert_eq!(told(&sim), []);
    sim.crash();
    finish_turn(&mut sim);
    let handles: Vec<_> = told(&sim).into_iter().map(|(handle, _)| handle).collect();
    assert_eq!(handles, [second, first]);
}
