//! The rules of each command type (S1 to S18): every broken field by its name (I25).

use crate::json::{command_json, invalid_command, with, without};
use crate::{commands, samples};
use harness_core::codec::{CodecError, decode_command};
use harness_core::command::CommandBody;
use harness_core::ids::CommandId;
use serde_json::{Value, json};

/// Each of these values makes the named record invalid at that field.
#[track_caller]
fn refused(name: &str, broken: &[(&str, Value, &str)]) {
    for (pointer, bad, field) in broken {
        invalid_command(&with(command_json(name), pointer, bad.clone()), field);
    }
}

#[track_caller]
fn accepted(value: &Value) {
    let bytes = serde_json::to_vec(value).unwrap();
    if let Err(error) = decode_command(&bytes) {
        panic!("{value}: {error}");
    }
}

fn zero() -> Value {
    json!(CommandId::ZERO)
}

fn big(n: usize) -> Value {
    json!("x".repeat(n))
}

#[test]
fn s1_i25_an_input() {
    refused(
        "UserInput",
        &[
            ("/blocks", json!([{"type": "image"}]), "blocks"),
            ("/blocks", json!("text"), "blocks"),
            ("/background_hand_back", json!(true), "agency"),
            ("/delegate_delivery_phase", json!("intent"), "agency"),
        ],
    );
    refused(
        "UserInput-no-fold",
        &[
            ("/fold_only", json!(true), "fold_only"),
            ("/no_fold", json!("yes"), "no_fold"),
        ],
    );
    let phase = "delegate_delivery_phase";
    refused(
        "UserInput-intent",
        &[
            ("/delegate_delivery_phase", json!("later"), phase),
            ("/target_loop_id", zero(), "target_loop_id"),
        ],
    );
}

#[test]
fn i25_what_delegates_are_told() {
    refused("SubagentResult", &[("/loop_id", zero(), "loop_id")]);
    refused("CancelDelegateRequest", &cancelled());
}

fn cancelled() -> [(&'static str, Value, &'static str); 3] {
    [
        ("/session_id", zero(), "session_id"),
        ("/loop_id", zero(), "loop_id"),
        ("/target_command_id", zero(), "target_command_id"),
    ]
}

#[test]
fn s3_i25_taking_an_input_back_names_session_loop_and_input() {
    refused("CancelQueuedInput", &cancelled());
    for field in ["session_id", "loop_id", "target_command_id"] {
        let missing = without(command_json("CancelQueuedInput"), field);
        invalid_command(&missing, field);
    }
}

/// The route of a gate's answer, which its three commands share.
fn route(name: &str) {
    refused(
        name,
        &[
            ("/loop_id", zero(), "loop_id"),
            ("/tool_execution_id", zero(), "tool_execution_id"),
        ],
    );
    invalid_command(&without(command_json(name), "loop_id"), "loop_id");
    let unrouted = without(command_json(name), "tool_execution_id");
    invalid_command(&unrouted, "tool_execution_id");
}

#[test]
fn s5_i25_an_approval_is_one_of_two_actions() {
    route("ApproveToolCall");
    for action in ["deny", "", "approve", "APPROVE_ONCE"] {
        refused("ApproveToolCall", &[("/action", json!(action), "action")]);
    }
    invalid_command(
        &without(command_json("ApproveToolCall"), "action"),
        "action",
    );
    for action in ["approve_once", "approve_always_workspace"] {
        accepted(&with(
            command_json("ApproveToolCall"),
            "/action",
            json!(action),
        ));
    }
}

#[test]
fn s6_i25_a_denial_may_say_why_in_16_kib() {
    route("DenyToolCall");
    refused(
        "DenyToolCall",
        &[("/message", big(16 * 1024 + 1), "message")],
    );
    accepted(&with(
        command_json("DenyToolCall"),
        "/message",
        big(16 * 1024),
    ));
    accepted(&without(command_json("DenyToolCall"), "message"));
}

#[test]
fn s7_i25_a_question_is_answered_or_declined() {
    route("ProvideUserInput");
    refused(
        "ProvideUserInput",
        &[
            ("/decline", json!(true), "answer"),
            ("/answer", json!([7]), "answer"),
        ],
    );
    refused(
        "ProvideUserInput-decline",
        &[("/decline", json!(false), "answer")],
    );
    invalid_command(
        &without(command_json("ProvideUserInput"), "answer"),
        "answer",
    );
    let secret = json!([{"redacted": true}]);
    accepted(&with(command_json("ProvideUserInput"), "/answer", secret));
}

#[test]
fn s8_i25_a_compaction_names_its_loop_and_may_be_anybodys() {
    refused(
        "Compact",
        &[
            ("/session_id", zero(), "session_id"),
            ("/loop_id", zero(), "loop_id"),
        ],
    );
    for agency in ["user", "machine"] {
        accepted(&with(command_json("Compact"), "/agency", json!(agency)));
    }
}

/// A command that is its header: any payload field is one too many.
fn header_only(name: &str) {
    let bare = command_json(name);
    accepted(&bare);
    for field in ["session_id", "loop_id", "reason", "reply"] {
        invalid_command(&with(bare.clone(), &format!("/{field}"), zero()), field);
    }
}

#[test]
fn s9_i25_an_interrupt_is_its_header() {
    header_only("Interrupt");
}

#[test]
fn s10_i25_a_shutdown_is_its_header() {
    header_only("Shutdown");
}

#[test]
fn s11_i25_a_process_notification() {
    let of = |field: &str| format!("/notification/{field}");
    let broken = [
        ("command_id", json!(samples::id::<CommandId>(77))),
        ("session_id", zero()),
        ("loop_id", zero()),
        ("process_handle", json!("")),
        ("process_handle", big(129)),
    ];
    for (field, bad) in broken {
        let named = format!("notification.{field}");
        refused("ProcessNotification", &[(&of(field), bad, &named)]);
    }
    refused(
        "ProcessNotification",
        &[(&of("state"), json!("gone"), "notification")],
    );
}

#[test]
fn s14_what_is_on_the_live_lane_has_no_wire_form() {
    let live = [
        "SetLoopMode",
        "ChangeLoopInference",
        "ReplaceLoopExternalTools",
    ];
    for name in live {
        assert!(!CommandBody::TYPES.contains(&name));
        let value = with(command_json("Interrupt"), "/type", json!(name));
        let decoded = decode_command(&serde_json::to_vec(&value).unwrap());
        assert!(
            matches!(decoded, Err(CodecError::UnknownType { .. })),
            "{name}: {decoded:?}"
        );
    }
    // Everything that can be encoded is of the closed set.
    for (name, command) in commands::all() {
        assert!(
            CommandBody::TYPES.contains(&command.body.type_name()),
            "{name}"
        );
        assert_eq!(command_json(&name)["type"], command.body.type_name());
    }
}

#[test]
fn s17_i25_a_native_operation() {
    refused(
        "NativeOperation",
        &[
            ("/session_id", zero(), "session_id"),
            ("/loop_id", zero(), "loop_id"),
            ("/harness_id", json!(""), "harness_id"),
            ("/operation/text", json!(""), "operation"),
            ("/operation/text", big(1024 * 1024 + 1), "operation"),
            ("/operation/kind", json!("prompt"), "operation"),
            ("/operation/extra", json!(1), "extra"),
            ("/execution", json!("sometimes"), "execution"),
        ],
    );
    let argument = "/operation/argument";
    refused(
        "NativeOperation-action",
        &[(argument, big(256 * 1024 + 1), "operation")],
    );
    // Its text is the harness's own: every byte of it comes back.
    let text = json!("/goal  two  spaces\t\u{0}\u{1F333} ");
    let written = with(
        command_json("NativeOperation"),
        "/operation/text",
        text.clone(),
    );
    let read = decode_command(&serde_json::to_vec(&written).unwrap()).unwrap();
    let CommandBody::NativeOperation { operation, .. } = read.body else {
        panic!("another type");
    };
    assert_eq!(json!(operation)["text"], text);
}

#[test]
fn s17a_i25_a_native_turn_is_the_machines() {
    refused(
        "NativeTurn",
        &[
            ("/session_id", zero(), "session_id"),
            ("/loop_id", zero(), "loop_id"),
            ("/native_turn_id", json!(""), "native_turn_id"),
            ("/native_turn_id", big(257), "native_turn_id"),
            ("/reason", json!(""), "reason"),
            ("/reason", big(129), "reason"),
            ("/start", json!("soon"), "start"),
            ("/agency", json!("user"), "agency"),
        ],
    );
    for start in ["running", "wanted"] {
        accepted(&with(command_json("NativeTurn"), "/start", json!(start)));
    }
}

#[test]
fn s18_i25_a_release_names_no_zero_and_none_is_all() {
    let some = json!(samples::id::<CommandId>(6));
    let targets = "/target_command_ids";
    refused(
        "ReleaseHeldInput",
        &[
            ("/session_id", zero(), "session_id"),
            ("/loop_id", zero(), "loop_id"),
            (targets, json!([some, zero()]), "target_command_ids"),
        ],
    );
    accepted(&with(command_json("ReleaseHeldInput"), targets, json!([])));
}
