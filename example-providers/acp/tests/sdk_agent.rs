//! The provider against a real agent on the official Python SDK.
//!
//! `pip install -r ../../tests/agents/requirements.txt`, and name the interpreter
//! in `HARNESS_TEST_PYTHON` when it is not `python3`.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod child;

use child::Agent;
use harness_guest::testing::Reply;
use harness_guest::types::{
    ApprovalDecision, CommandState, Error, Execution, MessagePart, ModeActionOperation, Operation,
};
use std::time::Duration;

/// The agent, or an early return where it cannot run.
macro_rules! agent {
    () => {
        match Agent::sdk() {
            Some(agent) => agent,
            None => return,
        }
    };
}

fn state(host: &harness_guest::testing::Host<acp_provider::Acp>) -> CommandState {
    host.discover().expect("a state").expect("commands")
}

/// Lets the agent's announcement of its commands arrive.
fn with_commands(host: &harness_guest::testing::Host<acp_provider::Acp>) -> CommandState {
    for _ in 0..400 {
        let state = state(host);
        if !state.commands.is_empty() {
            return state;
        }
        host.advance(Duration::from_millis(25));
    }
    panic!("the agent told no commands: {:?}", state(host).note);
}

fn action(mode: &str, action: &str) -> Operation {
    Operation::ModeAction(ModeActionOperation {
        mode_id: mode.into(),
        action_id: action.into(),
        argument: None,
    })
}

#[test]
fn a_prompt_streams_its_answer_and_binds_the_conversation() {
    let agent = agent!();
    let host = agent.host(&[]);
    let turn = host.prompt("hello there").expect("a turn");
    assert!(host.native_session_id().is_some(), "bound at its start");
    host.finish(turn).expect("completed");
    assert_eq!(host.transcript(), ["You said: hello there"]);
    let next = host.prompt("again").expect("a turn");
    host.finish(next).expect("completed");
    assert_eq!(
        (agent.count("initialize"), agent.count("session/new")),
        (1, 1)
    );
}

#[test]
fn r77_permissions_are_answered_with_the_option_of_the_decision() {
    let agent = agent!();
    let host = agent.host(&[]);
    let cases = [
        (ApprovalDecision::ApproveOnce, "permission: yes"),
        (ApprovalDecision::ApproveAlways, "permission: yes-always"),
        (ApprovalDecision::Deny(None), "permission: no"),
    ];
    for (decision, expected) in cases {
        let turn = host.prompt("permission rm -r build").expect("a turn");
        let gate = loop {
            if let Some(gate) = host.gates().into_iter().next() {
                break gate;
            }
            assert!(host.ended(&turn).is_none(), "ended without asking");
            host.advance(Duration::from_millis(10));
        };
        host.decide(&gate.id, decision);
        host.finish(turn).expect("completed");
        assert_eq!(host.transcript().last().map(String::as_str), Some(expected));
        assert!(host.gates().is_empty());
    }
    let approved = host.messages().first().cloned().expect("a message");
    assert!(
        matches!(&approved.parts[..],
        [MessagePart::ToolCall(call), MessagePart::ToolResult(result), MessagePart::Text(_)]
        if call.name == "Run rm -r build" && result.output == "outcome yes" && !result.is_error),
        "{approved:?}"
    );
}

#[test]
fn thoughts_plans_and_tools_become_parts_in_order() {
    let agent = agent!();
    let host = agent.host(&[]);
    let turn = host.prompt("tools").expect("a turn");
    host.finish(turn).expect("completed");
    let messages = host.messages();
    assert_eq!(messages.len(), 1);
    let [
        MessagePart::Reasoning(thought),
        MessagePart::Plan(plan),
        MessagePart::ToolCall(call),
        MessagePart::ToolResult(result),
        MessagePart::Text(text),
    ] = &messages[0].parts[..]
    else {
        panic!("unexpected parts: {:?}", messages[0].parts);
    };
    assert_eq!(thought, "let me see");
    assert_eq!(plan, "- [x] look\n- [x] tell\n");
    assert_eq!(call.input_json, r#"{"path":"notes.txt"}"#);
    assert_eq!(result.output, "three notes");
    assert_eq!(text, "There are three notes.");
}

#[test]
fn n14_stop_cancels_natively_and_awaits_the_end() {
    let agent = agent!();
    let host = agent.host(&[]);
    let turn = host.prompt("slow 60").expect("a turn");
    host.advance(Duration::from_millis(500));
    assert!(host.stop());
    assert_eq!(host.finish(turn), Err(Error::Cancelled));
    assert_eq!(agent.count("session/cancel"), 1);
    assert_eq!(host.ran(), None, "the agent is still there");
    let next = host.prompt("hello").expect("a turn");
    host.finish(next).expect("completed");
}

#[test]
fn after_a_restart_the_conversation_is_loaded_and_not_replayed() {
    let agent = agent!();
    let host = agent.host(&[]);
    let turn = host.prompt("first words").expect("a turn");
    host.finish(turn).expect("completed");
    let id = host.native_session_id();
    let host = agent.restart(host);
    let turn = host.prompt("remember").expect("a turn");
    host.finish(turn).expect("completed");
    assert_eq!(
        host.transcript(),
        [
            "You said: first words",
            "1 turns before this one, first: first words"
        ]
    );
    assert_eq!(host.native_session_id(), id);
    assert_eq!(
        (agent.count("session/new"), agent.count("session/load")),
        (1, 1)
    );
}

#[test]
fn a_conversation_the_agent_lost_goes_on_with_a_notice() {
    let agent = agent!();
    let host = agent.host(&[]);
    let turn = host.prompt("first words").expect("a turn");
    host.finish(turn).expect("completed");
    let former = host.native_session_id().expect("an id");
    let host = agent.crash(host);
    agent.forget(&former);
    let turn = host.prompt("remember").expect("a turn");
    host.finish(turn).expect("completed");
    assert!(host.messages().iter().any(|message| matches!(
        &message.parts[..],
        [MessagePart::Notice(notice)] if notice.text.contains("without its memory")
    )));
    assert_ne!(host.native_session_id(), Some(former));
}

#[test]
fn on_lost_session_fail_refuses_instead() {
    let agent = agent!();
    let host = agent.host(&[("on_lost_session", "fail")]);
    let turn = host.prompt("first words").expect("a turn");
    host.finish(turn).expect("completed");
    let former = host.native_session_id().expect("an id");
    let host = agent.crash(host);
    agent.forget(&former);
    assert!(matches!(
        host.prompt("remember").err(),
        Some(Error::Native(_))
    ));
    assert_eq!(agent.count("session/new"), 1);
}

#[test]
fn n4_discovery_starts_nothing_natively_and_remembers() {
    let agent = agent!();
    let host = agent.host(&[]);
    for _ in 0..20 {
        let state = state(&host);
        assert!(state.commands.is_empty() && state.note.is_some());
    }
    assert_eq!(agent.calls(), Vec::<String>::new(), "no native contact");
    let turn = host.prompt("hello").expect("a turn");
    host.finish(turn).expect("completed");
    with_commands(&host);
    let host = agent.restart(host);
    for _ in 0..20 {
        let state = state(&host);
        let names: Vec<_> = state.commands.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["/echo", "/mcp", "/$review"]);
        assert!(state.modes.is_empty(), "modes are native read-back");
        assert!(
            state
                .note
                .is_some_and(|note| note.contains("sdk-agent 1.0.0"))
        );
    }
    assert_eq!((agent.count("initialize"), agent.count("session/")), (1, 1));
}

#[test]
fn r14_a_draft_has_no_native_contact() {
    let agent = agent!();
    acp_provider::native::install(agent.clone());
    let host = harness_guest::testing::Host::<acp_provider::Acp>::draft();
    let host = agent.settle_in(host);
    for _ in 0..20 {
        assert!(state(&host).note.is_some());
    }
    assert_eq!(agent.calls(), Vec::<String>::new());
}

#[test]
fn commands_are_listed_as_they_can_be_spelled() {
    let agent = agent!();
    let host = agent.host(&[]);
    let turn = host.prompt("hello").expect("a turn");
    host.finish(turn).expect("completed");
    let state = with_commands(&host);
    let listed: Vec<_> = state
        .commands
        .iter()
        .map(|c| (c.name.as_str(), c.argument_help.as_deref()))
        .collect();
    assert_eq!(
        listed,
        [
            ("/echo", Some("text")),
            ("/mcp", Some("list | add <name>")),
            ("/$review", None)
        ]
    );
    assert!(state.note.is_some_and(|note| note.contains("bad/name")));
    assert!(state.slash_commands);
    assert!(host.state_changes() > 0);
}

#[test]
fn r10_a_command_is_delivered_byte_for_byte_and_a_literal_is_not_run() {
    let agent = agent!();
    let host = agent.host(&[]);
    let Reply::Started(turn) = host
        .command("/echo two  spaces\nand more ")
        .expect("accepted")
    else {
        panic!("a command starts a turn");
    };
    host.finish(turn).expect("completed");
    assert_eq!(host.transcript(), ["two  spaces\nand more "]);
    let turn = host.prompt("/echo literal").expect("a turn");
    host.finish(turn).expect("completed");
    let answer = host.transcript().pop().unwrap_or_default();
    assert!(
        answer.starts_with("You said: ") && answer.ends_with("/echo literal"),
        "{answer}"
    );
    let unlisted = host.command("/unlisted x").expect("accepted");
    host.finish(unlisted.started()).expect("completed");
    assert_eq!(
        host.transcript().last().map(String::as_str),
        Some("command /unlisted x")
    );
    for text in ["no slash", "/usr/bin x"] {
        assert!(
            matches!(host.command(text).err(), Some(Error::InvalidOperation(_))),
            "{text}"
        );
    }
}

#[test]
fn choices_are_modes_and_their_actions_are_read_back() {
    let agent = agent!();
    let host = agent.host(&[]);
    // Before a conversation exists a choice opens it: exclusive.
    assert_eq!(
        host.classify(action("mode", "set:code")),
        Ok(Execution::Exclusive)
    );
    let reply = host.perform(action("mode", "set:code")).expect("done");
    assert_eq!(reply.completed().message.as_deref(), Some("Mode: Code"));
    assert!(host.native_session_id().is_some(), "r48");
    let modes = |host| {
        state(host)
            .modes
            .into_iter()
            .map(|mode| (mode.id, mode.state))
            .collect::<Vec<_>>()
    };
    let expected = |mode: &str, model: &str, verbose: &str| {
        [
            ("mode", mode),
            ("config:model", model),
            ("config:verbose", verbose),
        ]
        .map(|(id, state)| (id.to_owned(), state.to_owned()))
        .to_vec()
    };
    assert_eq!(modes(&host), expected("Code", "Small", "off"));
    // With a conversation it is a control, beside a turn too.
    assert_eq!(
        host.classify(action("mode", "set:ask")),
        Ok(Execution::Control)
    );
    let turn = host.prompt("slow 1").expect("a turn");
    host.perform(action("config:model", "set:large"))
        .expect("done");
    host.perform(action("config:verbose", "on")).expect("done");
    assert_eq!(modes(&host), expected("Code", "Large", "on"));
    host.finish(turn).expect("completed");
    // The agent changes its own mode.
    let before = host.state_changes();
    let turn = host.prompt("switch ask").expect("a turn");
    host.finish(turn).expect("completed");
    assert_eq!(modes(&host), expected("Ask", "Large", "on"));
    assert!(host.state_changes() > before);
    assert!(matches!(
        host.perform(action("mode", "set:nope")).err(),
        Some(Error::InvalidOperation(_))
    ));
}

#[test]
fn an_agent_that_dies_disconnects_with_its_last_words() {
    let agent = agent!();
    let host = agent.host(&[]);
    let turn = host.prompt("die").expect("a turn");
    let Err(Error::Disconnected(reason)) = host.finish(turn) else {
        panic!("not disconnected");
    };
    assert!(
        reason.contains("signal 9") && reason.contains("leaving on request"),
        "{reason}"
    );
    assert_eq!(host.ran(), Some(Err(Error::Disconnected(reason))));
    // The host starts the next instance: the conversation goes on.
    let host = agent.crash(host);
    let turn = host.prompt("hello").expect("a turn");
    host.finish(turn).expect("completed");
    assert_eq!(agent.count("session/load"), 1);
}

#[test]
fn late_output_becomes_a_native_turn_that_ends_by_quiet() {
    let agent = agent!();
    let host = agent.host(&[("quiet_ms", "300")]);
    let turn = host.prompt("late 1").expect("a turn");
    host.finish(turn).expect("completed");
    assert_eq!(host.transcript(), ["more will follow"]);
    for _ in 0..200 {
        if !host.native_turns().is_empty() {
            break;
        }
        host.advance(Duration::from_millis(25));
    }
    host.advance(Duration::from_millis(1_000));
    assert_eq!(host.transcript(), ["more will follow", "late news"]);
    assert_eq!(host.native_turns().len(), 1);
    assert!(!host.turn_live(), "ended by quiet");
}

#[test]
fn late_output_after_late_output_is_a_turn_of_its_own() {
    let agent = agent!();
    let host = agent.host(&[("quiet_ms", "300")]);
    for round in 1..=2 {
        let turn = host.prompt("late 1").expect("a turn");
        host.finish(turn).expect("completed");
        for _ in 0..200 {
            if host.native_turns().len() == round {
                break;
            }
            host.advance(Duration::from_millis(25));
        }
        host.advance(Duration::from_millis(1_000));
        assert_eq!(host.native_turns().len(), round);
        assert!(!host.turn_live(), "ended by quiet");
    }
    let said = ["more will follow", "late news"].repeat(2);
    assert_eq!(host.transcript(), said);
    assert_eq!(agent.count("session/new"), 1, "in the one conversation");
}

#[test]
fn n12_late_output_after_a_stop_is_dropped() {
    let agent = agent!();
    let host = agent.host(&[]);
    let turn = host.prompt("late 1").expect("a turn");
    host.finish(turn).expect("completed");
    host.stop();
    host.advance(Duration::from_millis(2_500));
    assert_eq!(host.transcript(), ["more will follow"]);
    assert_eq!(agent.count("session/cancel"), 1, "interrupted natively");
}

#[test]
fn a_refusal_is_said_so() {
    let agent = agent!();
    let host = agent.host(&[]);
    let turn = host.prompt("refuse").expect("a turn");
    host.finish(turn).expect("completed");
    assert!(
        host.messages()
            .iter()
            .flat_map(|m| &m.parts)
            .any(|part| matches!(part,
        MessagePart::Notice(notice) if notice.text.contains("refused")))
    );
}

#[test]
fn g8_detect_tells_the_agent_and_its_version() {
    let agent = agent!();
    let host = agent.host(&[]);
    let found = host.detect().expect("ready");
    assert_eq!(
        found.native_version.as_deref(),
        Some("SDK test agent 1.0.0")
    );
    assert_eq!(agent.calls(), ["initialize"]);
}
