//! The provider against an agent that breaks the protocol in one way each.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod child;

use acp_provider::Acp;
use child::Agent;
use harness_guest::testing::Host;
use harness_guest::types::{Compatibility, Error, MessagePart, Outcome};
use std::time::Duration;

/// The agent with its trick, or an early return where it cannot run.
macro_rules! agent {
    ($trick:expr) => {
        agent!($trick, None)
    };
    ($trick:expr, $argument:expr) => {
        match Agent::hostile($trick, $argument) {
            Some(agent) => agent,
            None => return,
        }
    };
}

fn run(host: &Host<Acp>) -> Result<Outcome, Error> {
    let turn = host.prompt("go")?;
    host.finish(turn)
}

fn notices(host: &Host<Acp>) -> Vec<String> {
    let messages = host.messages();
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match part {
            MessagePart::Notice(notice) => Some(notice.text.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn an_update_before_the_answer_to_session_new_counts() {
    let host = agent!("early-update").host(&[]);
    run(&host).expect("completed");
    let state = host.discover().expect("a state").expect("commands");
    let names: Vec<_> = state.commands.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["/early"]);
}

#[test]
fn a_line_of_ten_megabytes_is_skipped_and_said() {
    let host = agent!("long-line").host(&[]);
    run(&host).expect("completed");
    assert_eq!(host.transcript(), ["after the long line"]);
    assert!(
        notices(&host)
            .iter()
            .any(|text| text.contains("limit is 8388608"))
    );
}

#[test]
fn a_last_line_without_newline_is_an_answer() {
    let host = agent!("no-newline").host(&[]);
    run(&host).expect("completed");
    assert_eq!(host.transcript(), ["last words"]);
}

#[test]
fn noise_on_standard_output_is_skipped() {
    let host = agent!("noise").host(&[]);
    run(&host).expect("completed");
    assert_eq!(host.transcript(), ["after the noise"]);
}

#[test]
fn the_first_of_two_answers_counts() {
    let agent = agent!("double-answer");
    let host = agent.host(&[]);
    run(&host).expect("completed");
    run(&host).expect("completed");
    assert_eq!(host.transcript(), ["once", "once"]);
    assert!(host.native_turns().is_empty());
}

#[test]
fn answers_to_nothing_are_ignored() {
    let host = agent!("wrong-id").host(&[]);
    run(&host).expect("completed");
    assert_eq!(host.transcript(), ["after answers to nothing"]);
}

#[test]
fn w5_an_agent_deaf_to_cancel_is_ended_within_the_drain_bound() {
    let host = agent!("cancel-deaf").host(&[]);
    let turn = host.prompt("go").expect("a turn");
    host.advance(Duration::from_millis(200));
    host.stop();
    host.advance(Duration::from_millis(4_500));
    assert_eq!(host.ended(&turn), Some(Err(Error::Cancelled)));
    assert!(matches!(host.ran(), Some(Err(Error::Disconnected(_)))));
}

#[test]
fn a_turn_that_is_cancelled_ends_when_the_agent_says_so() {
    let host = agent!("hang").host(&[]);
    let turn = host.prompt("go").expect("a turn");
    host.advance(Duration::from_millis(200));
    host.stop();
    assert_eq!(host.finish(turn), Err(Error::Cancelled));
    assert_eq!(host.ran(), None, "the process lives on");
}

#[test]
fn an_exit_mid_turn_disconnects_with_code_and_last_words() {
    let host = agent!("exit").host(&[]);
    let Err(Error::Disconnected(reason)) = run(&host) else {
        panic!("not disconnected");
    };
    assert!(
        reason.contains("code 7") && reason.contains("leaving mid turn"),
        "{reason}"
    );
    assert_eq!(host.transcript(), ["about to leave"]);
}

#[test]
fn a_flood_is_written_whole_and_in_order() {
    let host = agent!("flood", Some("20000")).host(&[]);
    run(&host).expect("completed");
    let expected: String = (0..20_000).map(|number| format!("{number} ")).collect();
    assert!(host.transcript().concat() == expected, "something was lost");
}

#[test]
fn updates_of_unknown_conversations_are_dropped() {
    let host = agent!("flood-unknown").host(&[]);
    run(&host).expect("completed");
    assert_eq!(host.transcript(), ["after the flood"]);
}

#[test]
fn a_flood_of_permissions_is_bounded() {
    let host = agent!("flood-requests").host(&[]);
    let turn = host.prompt("go").expect("a turn");
    host.advance(Duration::from_secs(2));
    assert!(host.gates().len() <= 32, "{}", host.gates().len());
    host.stop();
    assert!(host.gates().is_empty());
    assert_eq!(host.finish(turn), Err(Error::Cancelled));
}

#[test]
fn stop_answers_every_open_permission_cancelled() {
    let agent = agent!("two-permissions");
    let host = agent.host(&[]);
    let turn = host.prompt("go").expect("a turn");
    while host.gates().len() < 2 {
        assert!(host.ended(&turn).is_none());
        host.advance(Duration::from_millis(10));
    }
    host.stop();
    // This agent answers the prompt only when it got both answers.
    assert_eq!(host.finish(turn), Err(Error::Cancelled));
    assert_eq!(host.ran(), None, "nobody had to be killed");
}

#[test]
fn bytes_that_are_not_utf8_are_replaced() {
    let host = agent!("bad-utf8").host(&[]);
    run(&host).expect("completed");
    assert_eq!(host.transcript(), ["a\u{fffd}\u{fffd}b"]);
}

#[test]
fn unknown_requests_are_answered_method_not_found() {
    let host = agent!("unknown-request").host(&[]);
    run(&host).expect("completed");
    assert_eq!(host.transcript(), ["answered -32601"]);
}

#[test]
fn g8_another_protocol_version_is_incompatible() {
    let host = agent!("wrong-version").host(&[]);
    let found = host.detect().expect("an answer");
    assert!(
        matches!(found.compatibility, Compatibility::Incompatible(reason) if reason.contains("99"))
    );
    assert!(matches!(run(&host), Err(Error::Unavailable(_))));
}

#[test]
fn a_silent_agent_is_unavailable_and_tried_again() {
    let agent = agent!("silent");
    let host = agent.host(&[("handshake_ms", "1000")]);
    for starts in 1..=2 {
        assert!(
            matches!(run(&host), Err(Error::Unavailable(reason)) if reason.contains("1000 ms"))
        );
        assert_eq!(
            agent.starts.load(std::sync::atomic::Ordering::Relaxed),
            starts
        );
    }
    assert_eq!(host.ran(), None, "the instance is not lost");
}

#[test]
fn an_agent_that_wants_a_login_says_what_to_do() {
    let host = agent!("refuse-session").host(&[]);
    assert!(matches!(run(&host), Err(Error::Unavailable(reason)) if reason.contains("login")));
}

#[test]
fn bad_settings_make_the_agent_incompatible() {
    let host = agent!("none").host(&[("quiet_ms", "soon")]);
    let found = host.detect().expect("an answer");
    assert!(
        matches!(found.compatibility, Compatibility::Incompatible(reason) if reason.contains("quiet_ms"))
    );
}
