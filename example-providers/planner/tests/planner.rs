//! The demo against the in-memory host: every prompt, command and action.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // a failed test

use harness_guest::background::ProcessStatus;
use harness_guest::delegation::{DelegationError, ResultState};
use harness_guest::prelude::*;
use harness_guest::testing::{GateKind, Host, ProgramRun};
use planner::Planner;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn host() -> Host<Planner> {
    Host::start()
}

fn state(host: &Host<Planner>) -> CommandState {
    host.discover().unwrap().unwrap()
}

fn command(host: &Host<Planner>, name: &str) -> Command {
    let commands = state(host).commands;
    commands
        .into_iter()
        .find(|command| command.name == name)
        .unwrap()
}

fn mode(host: &Host<Planner>, id: &str) -> Option<Mode> {
    state(host).modes.into_iter().find(|mode| mode.id == id)
}

fn actions(host: &Host<Planner>, id: &str) -> Vec<String> {
    let mode = mode(host, id).unwrap();
    mode.actions.into_iter().map(|action| action.id).collect()
}

fn completed(host: &Host<Planner>, text: &str) -> Outcome {
    host.command(text).unwrap().completed()
}

fn run(host: &Host<Planner>, text: &str) -> Result<Outcome, Error> {
    let turn = host.prompt(text).unwrap();
    host.finish(turn)
}

fn last(host: &Host<Planner>) -> String {
    host.transcript().pop().unwrap()
}

/// A session with a plan that waits, and its revision.
fn with_plan() -> (Host<Planner>, String) {
    let host = host();
    let turn = host.command("/plan tidy the attic").unwrap().started();
    host.finish(turn).unwrap();
    let revision = mode(&host, "plan").unwrap().confirmation.unwrap().id;
    (host, revision)
}

// ---- discovery ---------------------------------------------------------------

#[test]
fn r14_r15_a_draft_shows_the_commands_and_begins_nothing() {
    let host = Host::<Planner>::draft();
    for _ in 0..20 {
        let state = state(&host);
        assert_eq!(state.commands.len(), 5);
        assert!(state.modes.is_empty());
        assert!(state.slash_commands);
    }
    assert!(host.native_turns().is_empty());
    assert!(host.messages().is_empty());
    assert_eq!(host.native_session_id(), None);
}

#[test]
fn r16_goal_and_plan_exclude_each_other() {
    let host = host();
    assert_eq!(command(&host, "/plan").disabled_reason, None);
    completed(&host, "/goal learn to juggle");
    assert!(command(&host, "/plan").disabled_reason.is_some());
    assert_eq!(command(&host, "/goal").disabled_reason, None);
    completed(&host, "/goal pause");
    assert_eq!(command(&host, "/plan").disabled_reason, None);
    completed(&host, "/plan");
    assert!(command(&host, "/goal").disabled_reason.is_some());
    host.action("plan", "close", None).unwrap();
    assert_eq!(command(&host, "/goal").disabled_reason, None);
}

#[test]
fn r16_the_goal_mode_offers_what_its_state_allows() {
    let host = host();
    assert_eq!(mode(&host, "goal"), None);
    completed(&host, "/goal learn to juggle");
    assert_eq!(actions(&host, "goal"), ["pause", "edit", "clear"]);
    let active = mode(&host, "goal").unwrap();
    assert_eq!(active.indicator.unwrap().tone, Tone::Success);
    assert_eq!(active.close_action_id.as_deref(), Some("clear"));
    let edit = active.actions.into_iter().nth(1).unwrap().argument.unwrap();
    assert_eq!(edit.value.as_deref(), Some("learn to juggle"));

    completed(&host, "/goal pause");
    assert_eq!(actions(&host, "goal"), ["resume", "edit", "clear"]);
    host.action("goal", "edit", Some("learn to whistle"))
        .unwrap();
    assert_eq!(mode(&host, "goal").unwrap().description, "learn to whistle");
    host.action("goal", "clear", None).unwrap();
    assert_eq!(mode(&host, "goal"), None);
}

#[test]
fn r23_a_disabled_command_is_refused_with_its_own_reason() {
    let host = host();
    completed(&host, "/goal learn to juggle");
    let reason = command(&host, "/plan").disabled_reason.unwrap();
    for text in ["/plan", "/plan x", "/plan\tx"] {
        let refused = host.classify(Operation::Command(text.to_owned()));
        assert_eq!(refused, Err(Error::NotAllowed(reason.clone())), "{text:?}");
    }
    completed(&host, "/goal clear");
    completed(&host, "/plan");
    let reason = command(&host, "/goal").disabled_reason.unwrap();
    let refused = host.command("/goal pause").unwrap_err();
    assert_eq!(refused, Error::NotAllowed(reason));
}

#[test]
fn r21_r60_each_operation_is_classified_as_documented() {
    let (host, revision) = with_plan();
    let of = |text: &str| host.classify(Operation::Command(text.to_owned()));
    let action = |mode: &str, action: &str, argument: Option<&str>| {
        host.classify(Operation::ModeAction(ModeActionOperation {
            mode_id: mode.to_owned(),
            action_id: action.to_owned(),
            argument: argument.map(str::to_owned),
        }))
    };
    for (text, execution) in [
        ("/plan", Execution::Control),
        ("/plan x", Execution::Exclusive),
        ("/compact", Execution::Control),
        ("/note x", Execution::Control),
        ("/work 3", Execution::Exclusive),
    ] {
        assert_eq!(of(text), Ok(execution), "{text}");
    }
    assert_eq!(action("plan", "close", None), Ok(Execution::Control));
    assert_eq!(
        action("plan", "approve", Some(&revision)),
        Ok(Execution::Exclusive)
    );
    host.action("plan", "close", None).unwrap();
    assert_eq!(of("/goal x"), Ok(Execution::Exclusive));
    completed(&host, "/goal x");
    assert_eq!(of("/goal pause"), Ok(Execution::Control));
    assert_eq!(of("/goal clear"), Ok(Execution::Control));
    assert_eq!(action("goal", "edit", Some("y")), Ok(Execution::Control));
    completed(&host, "/goal pause");
    assert_eq!(of("/goal resume"), Ok(Execution::Exclusive));
    assert_eq!(action("goal", "resume", None), Ok(Execution::Exclusive));
}

#[test]
fn what_is_not_valid_or_not_allowed_is_refused_and_changes_nothing() {
    let host = host();
    let before = state(&host);
    for text in [
        "/goal",
        "/goal  ",
        "/note",
        "/work",
        "/work 0",
        "/work 3601",
        "/work x",
        "/compact x",
        "/nothing",
        "goal x",
        "",
    ] {
        let refused = host.command(text);
        assert!(
            matches!(refused, Err(Error::InvalidOperation(_))),
            "{text:?}"
        );
    }
    for text in ["/goal pause", "/goal resume", "/goal clear"] {
        assert!(
            matches!(host.command(text), Err(Error::NotAllowed(_))),
            "{text}"
        );
    }
    for (mode, action, argument) in [
        ("goal", "fly", None),
        ("moon", "pause", None),
        ("goal", "edit", None),
        ("goal", "edit", Some("  ")),
        ("goal", "pause", Some("x")),
        ("plan", "approve", None),
    ] {
        let refused = host.action(mode, action, argument);
        assert!(
            matches!(refused, Err(Error::InvalidOperation(_))),
            "{mode}/{action}"
        );
    }
    assert!(matches!(
        host.action("plan", "close", None),
        Err(Error::NotAllowed(_))
    ));
    assert_eq!(state(&host), before);
    assert_eq!(host.state_changes(), 0);
    assert!(host.messages().is_empty());
}

// ---- controls ----------------------------------------------------------------

#[test]
fn r10_a_note_keeps_its_bytes_in_result_and_conversation() {
    let host = host();
    let text = "  a\n\tb  — “c” \n";
    let outcome = completed(&host, &format!("/note {text}"));
    assert_eq!(outcome.message.as_deref(), Some(text));
    assert_eq!(host.transcript(), [text]);
}

#[test]
fn r62_a_note_runs_beside_a_turn() {
    let host = host();
    let turn = host.command("/work 5").unwrap().started();
    host.advance(2 * SECOND);
    completed(&host, "/note hello");
    assert_eq!(host.ended(&turn), None);
    host.finish(turn).unwrap();
    assert_eq!(host.transcript().len(), 2);
}

#[test]
fn r48_a_control_binds_no_native_conversation_and_an_exclusive_does() {
    let host = host();
    completed(&host, "/note x");
    assert_eq!(host.native_session_id(), None);
    completed(&host, "/goal x");
    assert_eq!(host.native_session_id().as_deref(), Some("planner-loop"));
}

#[test]
fn compacting_forgets_the_turns_so_far() {
    let host = host();
    run(&host, "one").unwrap();
    run(&host, "two").unwrap();
    let reply = completed(&host, "/compact").message.unwrap();
    assert!(reply.contains("2 turns"), "{reply}");
    let reply = completed(&host, "/compact").message.unwrap();
    assert!(reply.contains("0 turns"), "{reply}");
}

#[test]
fn a_failing_store_changes_nothing() {
    let host = host();
    host.fail_state(Some(ChannelError::Failed("full".to_owned())));
    assert!(matches!(host.command("/plan"), Err(Error::Channel(_))));
    assert_eq!(mode(&host, "plan"), None);
    host.fail_state(None);
    completed(&host, "/plan");
    assert!(mode(&host, "plan").is_some());
}

// ---- turns -------------------------------------------------------------------

#[test]
fn a_prompt_streams_an_answer_that_says_it_is_a_demo() {
    let host = host();
    host.set_model(Some("m2"));
    run(&host, "what is up?").unwrap();
    let answer = last(&host);
    assert!(answer.contains("demo without a model"), "{answer}");
    assert!(
        answer.contains("m2") && answer.contains("what is up?"),
        "{answer}"
    );
}

#[test]
fn r10_a_prompt_that_looks_like_a_command_is_literal() {
    let host = host();
    run(&host, "/goal take over").unwrap();
    assert_eq!(mode(&host, "goal"), None);
    assert!(last(&host).contains("/goal take over"));
}

#[test]
fn work_is_one_delta_a_second() {
    let host = host();
    let turn = host.command("/work 3").unwrap().started();
    host.advance(2 * SECOND);
    assert_eq!(last(&host).lines().count(), 2);
    assert_eq!(host.ended(&turn), None);
    host.advance(SECOND);
    assert!(matches!(host.ended(&turn), Some(Ok(_))));
    assert_eq!(last(&host).lines().count(), 3);
}

#[test]
fn slow_and_burst_count_their_deltas() {
    let host = host();
    run(&host, "demo:slow 2").unwrap();
    assert_eq!(last(&host).lines().count(), 2);
    run(&host, "demo:burst 500").unwrap();
    assert_eq!(last(&host).split_whitespace().count(), 500);
}

#[test]
fn r75_an_approval_waits_for_a_person() {
    for (decision, word) in [
        (ApprovalDecision::ApproveOnce, "approved once"),
        (ApprovalDecision::ApproveAlways, "approved for good"),
        (
            ApprovalDecision::Deny(Some("too risky".to_owned())),
            "too risky",
        ),
    ] {
        let host = host();
        let turn = host.prompt("demo:approval").unwrap();
        host.advance(60 * SECOND);
        let gates = host.gates();
        let [gate] = gates.as_slice() else {
            panic!("one gate, not {gates:?}");
        };
        let GateKind::Approval(request) = &gate.kind else {
            panic!("an approval");
        };
        assert_eq!(request.rules, ["shell:echo demo"]);
        host.decide(&gate.id, decision);
        host.finish(turn).unwrap();
        assert!(last(&host).contains(word));
    }
}

#[test]
fn r76_the_answer_to_a_question_is_quoted() {
    let host = host();
    let turn = host.prompt("demo:question").unwrap();
    let gate = host.gates().pop().unwrap();
    let GateKind::Form(form) = &gate.kind else {
        panic!("a form");
    };
    assert!(form.questions[0].custom && form.questions[0].choices.len() == 3);
    let answer = vec![vec!["a colour out of space".to_owned()]];
    host.reply(&gate.id, FormAnswer::Submitted(answer));
    host.finish(turn).unwrap();
    assert!(last(&host).contains("a colour out of space"));
}

#[test]
fn fail_and_unknown_demo_prompts_say_so() {
    let host = host();
    assert!(matches!(run(&host, "demo:fail"), Err(Error::Native(_))));
    run(&host, "demo:what").unwrap();
    assert!(last(&host).contains("demo:approval"));
}

#[test]
fn demo_trap_panics() {
    let trapped = std::panic::catch_unwind(|| {
        let host = host();
        run(&host, "demo:trap")
    });
    assert!(trapped.is_err());
}

#[test]
fn r67_stop_ends_a_turn_as_cancelled() {
    let host = host();
    let turn = host.command("/work 100").unwrap().started();
    host.advance(2 * SECOND);
    assert!(host.stop());
    assert_eq!(host.ended(&turn), Some(Err(Error::Cancelled)));
}

#[test]
fn r67_stop_rejects_a_pending_question() {
    let host = host();
    let turn = host.prompt("demo:question").unwrap();
    assert_eq!(host.gates().len(), 1);
    host.stop();
    assert!(host.gates().is_empty());
    assert!(matches!(
        host.ended(&turn),
        Some(Err(Error::Cancelled | Error::Channel(ChannelError::Stopped)))
    ));
}

// ---- plan --------------------------------------------------------------------

#[test]
fn r5_r30_a_plan_is_proposed_with_a_revision_and_the_param_follows() {
    let host = host();
    let turn = host.command("/plan tidy the attic").unwrap().started();
    assert_eq!(host.params(), [Param::boolean("planning", true)]);
    assert_eq!(mode(&host, "plan").unwrap().confirmation, None);
    host.finish(turn).unwrap();
    let mode = mode(&host, "plan").unwrap();
    assert!(mode.description.contains("tidy the attic"));
    assert_eq!(mode.close_action_id.as_deref(), Some("close"));
    let confirmation = mode.confirmation.unwrap();
    assert_eq!(confirmation.action_id, "approve");
    assert!(mode.actions.iter().any(|action| action.id == "approve"));
    assert!(matches!(host.messages()[0].parts[0], MessagePart::Plan(_)));
}

#[test]
fn r111_the_approval_starts_a_turn_and_leaves_plan_mode() {
    let (host, revision) = with_plan();
    let reply = host.action("plan", "approve", Some(&revision)).unwrap();
    assert_eq!(host.params(), [Param::boolean("planning", false)]);
    assert_eq!(mode(&host, "plan"), None);
    host.finish(reply.started()).unwrap();
    assert!(last(&host).contains("tidy the attic"));
}

#[test]
fn r111_a_stale_revision_is_refused_in_prepare() {
    let (host, revision) = with_plan();
    let turn = host.command("/plan tidy the attic").unwrap().started();
    host.finish(turn).unwrap();
    let stale = host.action("plan", "approve", Some(&revision));
    assert!(matches!(stale, Err(Error::StaleRevision(_))), "{stale:?}");
    let current = mode(&host, "plan").unwrap().confirmation.unwrap().id;
    let turn = host
        .action("plan", "approve", Some(&current))
        .unwrap()
        .started();
    let twice = host.action("plan", "approve", Some(&current));
    assert!(matches!(twice, Err(Error::StaleRevision(_))), "{twice:?}");
    host.finish(turn).unwrap();
}

#[test]
fn a_plan_stopped_or_left_midway_is_not_proposed() {
    let host = host();
    let turn = host.command("/plan x").unwrap().started();
    host.stop();
    assert_eq!(host.ended(&turn), Some(Err(Error::Cancelled)));
    assert_eq!(mode(&host, "plan").unwrap().confirmation, None);

    let turn = host.command("/plan x").unwrap().started();
    host.action("plan", "close", None).unwrap();
    host.finish(turn).unwrap();
    assert_eq!(mode(&host, "plan"), None);
}

// ---- goal --------------------------------------------------------------------

#[test]
fn a_goal_makes_its_steps_as_native_turns_until_it_is_done() {
    let host = Host::<Planner>::with_config(&[("goal_steps", "3")]);
    let outcome = completed(&host, "/goal learn to juggle");
    assert!(outcome.message.is_some());
    assert_eq!(host.activities(), ["goal"]);
    host.advance(20 * SECOND);
    let turns = host.native_turns();
    let ids: Vec<_> = turns.iter().map(|record| record.turn.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "goal-1-run-1-step-1",
            "goal-1-run-1-step-2",
            "goal-1-run-1-step-3"
        ]
    );
    assert!(turns.iter().all(|record| record.answer.is_ok()));
    assert!(
        turns
            .iter()
            .all(|record| record.turn.cause.as_deref() == Some("command-1"))
    );
    assert_eq!(host.transcript().len(), 3);
    assert!(host.activities().is_empty());
    assert!(mode(&host, "goal").unwrap().state.starts_with("done"));
    assert_eq!(actions(&host, "goal"), ["clear"]);
}

#[test]
fn n12_stop_during_a_step_disarms_the_goal() {
    let host = host();
    completed(&host, "/goal learn to juggle");
    host.advance(Duration::from_millis(1_500));
    assert!(host.turn_live());
    assert!(host.stop());
    let announced = host.native_turns().len();
    host.advance(60 * SECOND);
    assert_eq!(host.native_turns().len(), announced);
    assert!(!host.turn_live());
    assert!(host.activities().is_empty());
    assert!(mode(&host, "goal").unwrap().state.starts_with("paused"));
}

#[test]
fn n13_stop_between_two_steps_disarms_the_goal() {
    let host = host();
    completed(&host, "/goal learn to juggle");
    host.advance(Duration::from_millis(500));
    assert!(!host.turn_live());
    assert!(host.stop());
    assert!(host.activities().is_empty());
    host.advance(60 * SECOND);
    assert!(host.native_turns().is_empty());
    assert!(mode(&host, "goal").unwrap().state.starts_with("paused"));
    assert!(!host.stop());
}

#[test]
fn pausing_ends_the_running_step_and_resuming_makes_it_again() {
    let host = host();
    completed(&host, "/goal learn to juggle");
    host.advance(Duration::from_millis(1_500));
    completed(&host, "/goal pause");
    host.advance(SECOND);
    assert!(!host.turn_live());
    assert!(host.activities().is_empty());
    let announced = host.native_turns().len();
    host.advance(60 * SECOND);
    assert_eq!(host.native_turns().len(), announced);

    host.action("goal", "resume", None).unwrap();
    assert_eq!(host.activities(), ["goal"]);
    host.advance(Duration::from_millis(2_500));
    let turns = host.native_turns();
    assert_eq!(turns.last().unwrap().turn.id, "goal-1-run-2-step-1");
}

#[test]
fn n6_a_step_waits_for_the_turn_of_a_person() {
    let host = host();
    completed(&host, "/goal learn to juggle");
    let turn = host.prompt("demo:slow 10").unwrap();
    host.advance(5 * SECOND);
    assert!(host.native_turns().is_empty());
    host.finish(turn).unwrap();
    host.advance(Duration::from_millis(500));
    assert_eq!(host.native_turns().len(), 1);
    assert!(host.turn_live());
}

#[test]
fn a_goal_in_place_of_an_active_one_starts_over() {
    let host = host();
    completed(&host, "/goal one");
    host.advance(Duration::from_millis(2_500));
    completed(&host, "/goal two");
    assert_eq!(host.activities(), ["goal"]);
    host.advance(3 * SECOND);
    assert_eq!(host.native_turns()[1].turn.id, "goal-2-run-1-step-1");
    assert!(host.stop());
    host.advance(60 * SECOND);
    assert!(mode(&host, "goal").unwrap().state.starts_with("paused"));
}

// ---- restarts ----------------------------------------------------------------

#[test]
fn a_paused_goal_is_still_paused_after_a_restart() {
    let host = host();
    completed(&host, "/goal learn to juggle");
    host.advance(Duration::from_millis(2_500));
    completed(&host, "/goal pause");
    let before = mode(&host, "goal");
    let host = host.restart();
    assert_eq!(mode(&host, "goal"), before);
    let host = host.crash();
    assert_eq!(mode(&host, "goal"), before);
    host.advance(60 * SECOND);
    assert_eq!(host.native_turns().len(), 1);
}

#[test]
fn n4_nothing_starts_by_itself_after_a_crash_with_an_active_goal() {
    let host = host();
    completed(&host, "/goal learn to juggle");
    host.advance(Duration::from_millis(1_500));
    let announced = host.native_turns().len();
    let host = host.crash();
    for _ in 0..20 {
        state(&host);
    }
    host.advance(60 * SECOND);
    assert_eq!(host.native_turns().len(), announced);
    assert!(mode(&host, "goal").unwrap().state.starts_with("paused"));
    assert!(host.activities().is_empty());
    completed(&host, "/goal resume");
    host.advance(Duration::from_millis(1_500));
    assert_eq!(
        host.native_turns().last().unwrap().turn.id,
        "goal-1-run-2-step-1"
    );
}

#[test]
fn a_plan_that_waits_survives_a_crash_with_its_revision() {
    let (host, revision) = with_plan();
    let host = host.crash();
    let turn = host
        .action("plan", "approve", Some(&revision))
        .unwrap()
        .started();
    host.finish(turn).unwrap();
}

#[test]
fn a_session_whose_state_cannot_be_read_is_unavailable() {
    let host = host();
    completed(&host, "/plan");
    host.fail_state(Some(ChannelError::Failed("disk".to_owned())));
    let host = host.crash();
    assert!(matches!(host.discover(), Err(Error::Unavailable(_))));
    assert!(matches!(host.command("/plan"), Err(Error::Unavailable(_))));
}

// ---- steps, secrets, compaction ------------------------------------------------

#[test]
fn s42_input_folds_at_the_boundary_between_two_steps() {
    let host = host();
    let turn = host.prompt("demo:steps 3").unwrap();
    host.offer_input("and the cellar");
    host.finish(turn).unwrap();
    let said = host.transcript();
    let taken = said
        .iter()
        .position(|t| t.contains("Taken up: “and the cellar”"));
    assert!(taken.is_some(), "{said:?}");
    assert_eq!(last(&host), "All 3 steps are made.");
}

#[test]
fn s81_a_secret_is_asked_for_and_not_repeated() {
    let host = host();
    let turn = host.prompt("demo:secret").unwrap();
    let gate = host.gates().pop().unwrap();
    let GateKind::Form(form) = &gate.kind else {
        panic!("a form");
    };
    assert!(form.questions[0].secret);
    let answer = vec![vec!["hunter2".to_owned()]];
    host.reply(&gate.id, FormAnswer::Submitted(answer));
    host.finish(turn).unwrap();
    assert_eq!(last(&host), "Your secret has 7 bytes.");
    assert!(!format!("{:?}", host.messages()).contains("hunter2"));
}

#[test]
fn s95_a_compaction_tells_how_many_turns_it_replaced() {
    let host = host();
    run(&host, "hello").unwrap();
    let compaction = host.compact().unwrap();
    assert_eq!(
        compaction.summary.as_deref(),
        Some("Summary of the demo: 1 turns came before this.")
    );
    let again = host.compact().unwrap();
    assert!(again.summary.unwrap().contains("0 turns"));
}

// ---- delegates ----------------------------------------------------------------

#[test]
fn s96_a_delegate_is_waited_for_and_quoted() {
    let host = host();
    let turn = host
        .prompt("demo:delegate-to demo/other look  around")
        .unwrap();
    let requests = host.delegate_requests();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(request.harness_id.as_deref(), Some("demo/other"));
    assert_eq!(
        request.task.parts,
        [MessagePart::Text("look  around".to_owned())]
    );
    assert!(!request.task.background);
    assert!(host.turn_live(), "it waits");
    let id = &request.request_id;
    let none = host.settle_delegate(id, ResultState::Completed, "nothing");
    assert!(none.unwrap().is_none(), "nothing is handed back");
    host.finish(turn).unwrap();
    assert_eq!(last(&host), "The delegate answered: “nothing”.");
}

#[test]
fn s96_a_background_answer_is_quoted_and_never_obeyed() {
    let host = host();
    run(&host, "demo:delegate-bg look around").unwrap();
    assert!(last(&host).contains("comes by itself"));
    let request = host.delegate_requests().remove(0);
    let back = host.settle_delegate(&request.request_id, ResultState::Completed, "demo:fail");
    host.finish(back.unwrap().unwrap()).unwrap();
    assert_eq!(last(&host), "A delegate came back: “demo:fail”.");
    // While a turn runs it is offered to it.
    run(&host, "demo:delegate-bg look again").unwrap();
    let turn = host.prompt("demo:steps 2").unwrap();
    let request = host.delegate_requests().remove(1);
    let back = host.settle_delegate(&request.request_id, ResultState::Failed, "no luck");
    assert!(back.unwrap().is_none());
    host.finish(turn).unwrap();
    let taken = host.transcript();
    assert!(
        taken.contains(&"Taken up: “no luck”.".to_owned()),
        "{taken:?}"
    );
}

#[test]
fn s96_a_refused_delegate_is_told_in_words() {
    let host = host();
    host.fail_delegation(Some(DelegationError::Quota));
    run(&host, "demo:delegate x").unwrap();
    assert_eq!(
        last(&host),
        "No delegate: the session has started all its delegates."
    );
}

#[test]
fn s90_a_stopped_demo_waits_no_longer() {
    let host = host();
    let turn = host.prompt("demo:delegate x").unwrap();
    assert!(host.stop());
    let ended = host.finish(turn);
    // Whichever notices first; the host takes both for the stop that it is.
    assert!(
        matches!(
            ended,
            Err(Error::Cancelled | Error::Channel(ChannelError::Stopped))
        ),
        "{ended:?}"
    );
}

// ---- background programs --------------------------------------------------------

/// A host whose operator granted the program that sleeps.
fn with_sleep() -> Host<Planner> {
    let host = host();
    host.grant_program(planner::background::PROGRAM, |stdin| {
        let seconds = std::str::from_utf8(stdin).unwrap().trim().parse().unwrap();
        ProgramRun {
            after: SECOND * seconds,
            output: format!("slept {seconds} s\n"),
            exit_code: 0,
        }
    });
    host
}

#[test]
fn s97_the_end_of_a_background_program_is_a_turn_of_its_own() {
    let host = with_sleep();
    run(&host, "demo:background 30").unwrap();
    assert!(last(&host).contains("runs in the background for 30 s"));
    assert!(!host.turn_live());
    host.advance(SECOND * 29);
    assert_eq!(host.processes()[0].status, ProcessStatus::Running);
    host.advance(SECOND * 2);
    let said = last(&host);
    assert!(said.contains("has exited (exit code 0)"), "{said}");
    assert!(said.contains("slept 30 s"), "{said}");
    let said = host.transcript().len();
    host.advance(SECOND * 60);
    assert_eq!(host.transcript().len(), said, "it is told once");
}

#[test]
fn s97_the_end_folds_into_a_turn_that_runs() {
    let host = with_sleep();
    run(&host, "demo:background 2").unwrap();
    let turn = host.prompt("demo:steps 5").unwrap();
    host.finish(turn).unwrap();
    let said = host.transcript();
    let taken = said
        .iter()
        .filter(|text| text.contains("Taken up: “The background"));
    assert_eq!(taken.count(), 1, "{said:?}");
    assert_eq!(last(&host), "All 5 steps are made.");
}

#[test]
fn s72_a_program_that_was_lost_with_its_host_is_told() {
    let host = with_sleep();
    run(&host, "demo:background 30").unwrap();
    let host = host.crash();
    host.advance(SECOND);
    let said = last(&host);
    assert!(said.contains("was lost with its host"), "{said}");
    assert!(said.contains("What it wrote is gone."), "{said}");
}

#[test]
fn a_program_that_is_not_granted_is_said_clearly() {
    let host = host();
    run(&host, "demo:background 3").unwrap();
    let said = last(&host);
    assert!(
        said.contains("not granted") && said.contains("README"),
        "{said}"
    );
    assert!(host.processes().is_empty());
}
