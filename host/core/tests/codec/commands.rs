//! Every durable command: golden bytes, round trip, coverage (S12-S19, I25, I26).

use crate::golden;
use crate::samples::{at, blocks, by_machine, by_user, command, gate, id, session, the_loop};
use harness_core::codec::{decode_command, encode_command};
use harness_core::command::{
    Answer, Answers, AppendClass, ApproveAction, Command, CommandBody, CommandHeader,
    DeliveryPhase, ProcessNotice, ProcessState,
};
use harness_core::gate::{FieldValue, Shown};
use harness_core::operation::{Execution, Operation};
use harness_core::provider::TurnStart;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

fn input(no_fold: bool, fold_only: bool) -> CommandBody {
    CommandBody::UserInput {
        blocks: blocks(),
        no_fold,
        fold_only,
        target_loop_id: the_loop(),
        background_hand_back: false,
        delegate_delivery_phase: None,
    }
}

fn delegated(phase: DeliveryPhase) -> CommandBody {
    CommandBody::UserInput {
        blocks: Vec::new(),
        no_fold: true,
        fold_only: false,
        target_loop_id: the_loop(),
        background_hand_back: true,
        delegate_delivery_phase: Some(phase),
    }
}

fn operation(operation: Operation, execution: Option<Execution>) -> CommandBody {
    CommandBody::NativeOperation {
        session_id: session(),
        loop_id: the_loop(),
        harness_id: "demo/planner".parse().unwrap(),
        operation,
        execution,
        expected_revision: execution.map(|_| "rev-1".into()),
    }
}

fn native_turn(start: TurnStart) -> CommandBody {
    CommandBody::NativeTurn {
        session_id: session(),
        loop_id: the_loop(),
        native_turn_id: "goal-7".into(),
        reason: "goal".into(),
        start,
        cause_command_id: (start == TurnStart::Running).then(|| id(11)),
    }
}

fn notice(state: ProcessState) -> CommandBody {
    CommandBody::ProcessNotification {
        notification: ProcessNotice {
            command_id: command(),
            session_id: session(),
            loop_id: the_loop(),
            process_handle: "build".into(),
            state,
            reason: "exit 1".into(),
        },
    }
}

fn approval(action: ApproveAction) -> CommandBody {
    CommandBody::ApproveToolCall {
        session_id: session(),
        loop_id: the_loop(),
        gate_id: gate(),
        tool_execution_id: id(10),
        action,
    }
}

fn reply(answer: Option<Answers>) -> CommandBody {
    CommandBody::ProvideUserInput {
        session_id: session(),
        loop_id: the_loop(),
        gate_id: gate(),
        tool_execution_id: id(10),
        decline: answer.is_none(),
        answer,
    }
}

fn filled() -> BTreeMap<String, Shown> {
    let value = |name: &str, value| (name.to_owned(), Shown::Value(value));
    [
        value("public", FieldValue::Boolean(true)),
        value("port", FieldValue::Integer(8080)),
        value("host", FieldValue::Text("localhost".into())),
        value("tags", FieldValue::Choices(vec!["a".into(), "b".into()])),
        ("key".to_owned(), Shown::REDACTED),
    ]
    .into()
}

/// Every command type, in every shape that has bytes of its own.
pub(crate) fn all() -> Vec<(String, Command)> {
    let (session_id, loop_id) = (session(), the_loop());
    let target_command_id = id(11);
    let text = |text: &str| Operation::Command { text: text.into() };
    let action = |argument: Option<&str>| Operation::ModeAction {
        mode_id: "plan".into(),
        action_id: "approve".into(),
        argument: argument.map(str::to_owned),
    };
    let bodies: Vec<(&str, CommandHeader, CommandBody)> = vec![
        ("UserInput", by_user(), input(false, false)),
        ("UserInput-no-fold", by_user(), input(true, false)),
        ("UserInput-fold-only", by_user(), input(false, true)),
        (
            "UserInput-intent",
            by_machine(),
            delegated(DeliveryPhase::Intent),
        ),
        (
            "UserInput-fallback",
            by_machine(),
            delegated(DeliveryPhase::FallbackQueued),
        ),
        (
            "SubagentResult",
            by_machine(),
            CommandBody::SubagentResult {
                session_id,
                loop_id,
                blocks: blocks(),
            },
        ),
        (
            "CancelQueuedInput",
            by_user(),
            CommandBody::CancelQueuedInput {
                session_id,
                loop_id,
                target_command_id,
            },
        ),
        (
            "CancelDelegateRequest",
            by_machine(),
            CommandBody::CancelDelegateRequest {
                session_id,
                loop_id,
                target_command_id,
            },
        ),
        (
            "ApproveToolCall",
            by_user(),
            approval(ApproveAction::ApproveOnce),
        ),
        (
            "ApproveToolCall-always",
            by_user(),
            approval(ApproveAction::ApproveAlwaysWorkspace),
        ),
        (
            "DenyToolCall",
            by_user(),
            CommandBody::DenyToolCall {
                session_id,
                loop_id,
                gate_id: gate(),
                tool_execution_id: id(10),
                message: Some("not here".into()),
            },
        ),
        (
            "ProvideUserInput",
            by_user(),
            reply(Some(Answers::Questions(vec![
                Answer::Values(vec!["left".into(), "mine".into()]),
                Answer::Values(Vec::new()),
                Answer::Redacted { redacted: true },
            ]))),
        ),
        (
            "ProvideUserInput-form",
            by_user(),
            reply(Some(Answers::Fields(filled()))),
        ),
        (
            "ProvideUserInput-opened",
            by_user(),
            reply(Some(Answers::Questions(Vec::new()))),
        ),
        ("ProvideUserInput-decline", by_user(), reply(None)),
        (
            "Compact",
            by_user(),
            CommandBody::Compact {
                session_id,
                loop_id,
            },
        ),
        ("Interrupt", by_user(), CommandBody::Interrupt {}),
        (
            "Interrupt-loop",
            CommandHeader {
                cause: harness_core::command::Cause {
                    loop_id: Some(loop_id),
                    ..Default::default()
                },
                ..by_user()
            },
            CommandBody::Interrupt {},
        ),
        ("Shutdown", by_user(), CommandBody::Shutdown {}),
        (
            "ProcessNotification",
            by_machine(),
            notice(ProcessState::Exited),
        ),
        (
            "ProcessNotification-failed",
            by_machine(),
            notice(ProcessState::Failed),
        ),
        (
            "ProcessNotification-stopped",
            by_machine(),
            notice(ProcessState::Stopped),
        ),
        (
            "ProcessNotification-lost",
            by_machine(),
            notice(ProcessState::Lost),
        ),
        (
            "NativeOperation",
            by_user(),
            operation(text("/goal  ship\nit "), Some(Execution::Exclusive)),
        ),
        (
            "NativeOperation-action",
            by_user(),
            operation(action(Some("rev-1")), Some(Execution::Control)),
        ),
        (
            "NativeOperation-unclassified",
            by_user(),
            operation(action(None), None),
        ),
        ("NativeTurn", by_machine(), native_turn(TurnStart::Running)),
        (
            "NativeTurn-wanted",
            by_machine(),
            native_turn(TurnStart::Wanted),
        ),
        (
            "ReleaseHeldInput",
            by_user(),
            CommandBody::ReleaseHeldInput {
                session_id,
                loop_id,
                target_command_ids: vec![target_command_id],
            },
        ),
        (
            "ReleaseHeldInput-all",
            by_user(),
            CommandBody::ReleaseHeldInput {
                session_id,
                loop_id,
                target_command_ids: Vec::new(),
            },
        ),
    ];
    bodies
        .into_iter()
        .map(|(name, header, body)| (name.to_owned(), Command { header, body }))
        .collect()
}

#[test]
fn i25_every_command_has_its_golden_bytes() {
    for (name, command) in all() {
        let encoded = encode_command(&command).unwrap();
        let golden = golden::bytes("commands", &name, &encoded.bytes);
        assert_eq!(
            String::from_utf8(encoded.bytes).unwrap(),
            String::from_utf8(golden.clone()).unwrap(),
            "{name}"
        );
        assert_eq!(decode_command(&golden).unwrap(), command, "{name}");
    }
}

#[test]
fn s15_every_command_type_has_a_fixture() {
    let names: Vec<String> = all().into_iter().map(|(name, _)| name).collect();
    golden::cover("commands", &CommandBody::TYPES, &names);
    for (name, command) in all() {
        let of = command.body.type_name();
        assert!(
            name == of || name.starts_with(&format!("{of}-")),
            "{name} is a {of}"
        );
    }
}

#[test]
fn s15_the_list_of_command_types_is_complete_and_unique() {
    let listed: BTreeSet<_> = CommandBody::TYPES.into_iter().collect();
    assert_eq!(listed.len(), CommandBody::TYPES.len());
    let sampled: BTreeSet<_> = all().iter().map(|(_, c)| c.body.type_name()).collect();
    assert_eq!(listed, sampled);
}

#[test]
fn s19_the_append_class_belongs_to_the_type() {
    let required = [
        "UserInput",
        "SubagentResult",
        "Compact",
        "ProcessNotification",
        "NativeOperation",
        "NativeTurn",
    ];
    for (name, command) in all() {
        let expected = if required.contains(&command.body.type_name()) {
            AppendClass::Required
        } else {
            AppendClass::Audit
        };
        assert_eq!(command.body.append_class(), expected, "{name}");
    }
}

#[test]
fn i26_no_reply_channel_is_in_any_encoding() {
    for (name, command) in all() {
        let text = String::from_utf8(encode_command(&command).unwrap().bytes).unwrap();
        for word in ["reply", "ack", "sender", "channel"] {
            assert!(
                !text.contains(&format!("\"{word}\"")),
                "{name} holds `{word}`"
            );
        }
    }
}

#[test]
fn s65_a_commands_fingerprint_leaves_out_its_time_alone() {
    for (name, command) in all() {
        let print = |c: &Command| encode_command(c).unwrap().fingerprint;
        let mut later = command.clone();
        later.header.created_at = at() + SignedDuration::from_secs(5);
        assert_eq!(
            print(&command),
            print(&later),
            "{name}: a retry is no collision"
        );
        let mut other = command.clone();
        other.header.caller = Some("token:bob".into());
        assert_ne!(
            print(&command),
            print(&other),
            "{name}: other content is one"
        );
    }
    assert_ne!(at(), Timestamp::UNIX_EPOCH);
}
