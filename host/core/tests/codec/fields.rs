//! Records with one broken field, each refused by its name (S1-S18, S12, I25).

use crate::json::{command_json, event_json, invalid_command, invalid_event, with, without};
use crate::{commands, events};
use harness_core::codec::{CodecError, decode_command, encode_command};
use harness_core::ids::CommandId;
use serde_json::json;

#[test]
fn s12_a_command_id_is_never_zero() {
    let zero = json!(CommandId::ZERO);
    for (name, command) in commands::all() {
        let value = command_json(&name);
        invalid_command(&without(value.clone(), "command_id"), "command_id");
        let mut zeroed = with(value, "/command_id", zero.clone());
        if name.starts_with("ProcessNotification") {
            zeroed = with(zeroed, "/notification/command_id", zero.clone());
        }
        invalid_command(&zeroed, "command_id");
        let mut encoded = command;
        encoded.header.command_id = CommandId::ZERO;
        assert!(matches!(
            encode_command(&encoded),
            Err(CodecError::InvalidField { field, .. }) if field == "command_id"
        ));
    }
}

#[test]
fn i25_each_broken_header_field_has_its_own_error() {
    let good = command_json("Compact");
    let long = "x".repeat(257);
    for (field, bad) in [
        ("command_id", json!("not-a-uuid")),
        ("command_id", json!(7)),
        ("cause", json!("x")),
        ("agency", json!("robot")),
        ("created_at", json!("yesterday")),
        ("caller", json!(long)),
        ("caller", json!(1)),
    ] {
        invalid_command(&with(good.clone(), &format!("/{field}"), bad), field);
    }
    invalid_command(&without(good.clone(), "created_at"), "created_at");
    invalid_command(&with(good, "/cause", json!({"extra": 1})), "extra");
    let good = event_json("TurnDone");
    for (field, bad) in [
        ("id", json!("x")),
        ("session_id", json!(1)),
        ("loop_id", json!("x")),
        ("turn_id", json!("x")),
        ("at", json!("x")),
        ("cause", json!(1)),
        ("run_id", json!("x")),
        ("usage", json!("much")),
    ] {
        invalid_event(&with(good.clone(), &format!("/{field}"), bad), field);
    }
    for field in ["session_id", "at", "run_id"] {
        invalid_event(&without(good.clone(), field), field);
    }
}

#[test]
fn s13_bounds_are_inclusive() {
    let big = |n: usize| json!("x".repeat(n));
    for (name, pointer, good) in [
        ("DenyToolCall", "/message", big(16 * 1024)),
        (
            "ProcessNotification",
            "/notification/process_handle",
            big(128),
        ),
        ("NativeOperation", "/operation/text", big(1024 * 1024)),
        (
            "NativeOperation-action",
            "/operation/argument",
            big(256 * 1024),
        ),
        ("NativeTurn", "/native_turn_id", big(256)),
        ("NativeTurn", "/reason", big(128)),
        ("Compact", "/caller", big(256)),
    ] {
        let value = with(command_json(name), pointer, good);
        let bytes = serde_json::to_vec(&value).unwrap();
        assert!(decode_command(&bytes).is_ok(), "{name} {pointer}");
    }
}

#[test]
fn s1_the_rules_of_machine_input() {
    let machine = with(
        command_json("UserInput-no-fold"),
        "/agency",
        json!("machine"),
    );
    let ok = serde_json::to_vec(&machine).unwrap();
    assert!(decode_command(&ok).is_ok());
    invalid_command(&without(machine, "target_loop_id"), "target_loop_id");
    let mut hand_back = command_json("UserInput-intent");
    let object = hand_back.as_object_mut().unwrap();
    object.remove("no_fold");
    object.remove("delegate_delivery_phase");
    invalid_command(&hand_back, "background_hand_back");
    let anywhere = without(command_json("UserInput"), "target_loop_id");
    let bytes = serde_json::to_vec(&anywhere).unwrap();
    assert!(
        decode_command(&bytes).is_ok(),
        "a person's input may leave the loop open"
    );
}

#[test]
fn s11_unknown_keys_are_refused_at_both_levels() {
    for (name, _) in commands::all() {
        invalid_command(
            &with(command_json(&name), "/surprise", json!(1)),
            "surprise",
        );
    }
    let inner = with(
        command_json("ProcessNotification"),
        "/notification/surprise",
        json!(1),
    );
    invalid_command(&inner, "surprise");
    for (name, event) in events::all() {
        if events::is_stored(&event) {
            invalid_event(&with(event_json(&name), "/surprise", json!(1)), "surprise");
        }
    }
    invalid_event(
        &with(event_json("LoopIdle"), "/cause", json!({"surprise": 1})),
        "surprise",
    );
}

#[test]
fn s61_the_sequence_is_no_field_of_a_record() {
    invalid_event(&with(event_json("LoopIdle"), "/seq", json!(4)), "seq");
}
