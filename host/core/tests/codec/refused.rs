//! What is no record at all: size, JSON, version, type, in this order (S13, S16, S68, I25).

use crate::json::{both, command_json, event_json, with, without};
use crate::{commands, events};
use harness_core::codec::{
    CodecError, MAX_ENCODED, decode_command, decode_event, encode_command, encode_event,
};
use harness_core::command::{Command, CommandBody};
use harness_core::event::EventBody;
use serde_json::{Value, json};

#[test]
fn s13_size_comes_before_everything_else() {
    let mut bytes = vec![b'x'; MAX_ENCODED + 1];
    let too_large = CodecError::TooLarge {
        bytes: MAX_ENCODED + 1,
    };
    assert_eq!(decode_command(&bytes), Err(too_large.clone()));
    assert_eq!(decode_event(&bytes), Err(too_large));
    bytes.pop();
    assert!(matches!(
        decode_command(&bytes),
        Err(CodecError::Undecodable(_))
    ));
}

#[test]
fn s13_encoding_has_the_same_bound() {
    let all = commands::all();
    let (_, input) = all.iter().find(|(n, _)| n == "UserInput").unwrap();
    let mut body = input.body.clone();
    if let CommandBody::UserInput { blocks, .. } = &mut body {
        *blocks = vec![harness_core::content::Block::Text {
            text: "x".repeat(MAX_ENCODED),
        }];
    }
    let big = Command {
        header: input.header.clone(),
        body,
    };
    assert!(matches!(
        encode_command(&big),
        Err(CodecError::TooLarge { .. })
    ));
    let mut event = events::all().remove(0).1;
    if let EventBody::SessionStarted { title, .. } = &mut event.body {
        *title = "x".repeat(MAX_ENCODED);
    }
    assert!(matches!(
        encode_event(&event),
        Err(CodecError::TooLarge { .. })
    ));
}

#[test]
fn i25_garbage_and_trailing_data_are_undecodable() {
    let good = serde_json::to_string(&command_json("Interrupt")).unwrap();
    let trailing = format!("{good}{{}}");
    let texts = [
        "",
        "x",
        "[]",
        "null",
        "1",
        "\"x\"",
        "{",
        "{\"v\":1,",
        &trailing,
        &good[..good.len() - 1],
    ];
    for text in texts {
        for error in [
            decode_command(text.as_bytes()).unwrap_err(),
            decode_event(text.as_bytes()).unwrap_err(),
        ] {
            assert!(
                matches!(error, CodecError::Undecodable(_)),
                "{text:?}: {error:?}"
            );
        }
    }
    let spaced = format!(" {good}\n");
    assert!(
        decode_command(spaced.as_bytes()).is_ok(),
        "white space is no data"
    );
}

#[test]
fn s68_invalid_utf8_is_undecodable() {
    let mut bytes = serde_json::to_vec(&command_json("NativeTurn")).unwrap();
    let at = bytes.windows(4).position(|w| w == b"goal").unwrap();
    bytes[at] = 0xff;
    assert!(matches!(
        decode_command(&bytes),
        Err(CodecError::Undecodable(_))
    ));
    let mut bytes = serde_json::to_vec(&event_json("SessionStarted")).unwrap();
    let at = bytes.windows(4).position(|w| w == b"Ship").unwrap();
    bytes[at] = 0xff;
    assert!(matches!(
        decode_event(&bytes),
        Err(CodecError::Undecodable(_))
    ));
}

#[test]
fn s16_only_a_known_integer_version_is_read() {
    for record in [command_json("Interrupt"), event_json("LoopIdle")] {
        let missing = without(record.clone(), "v");
        let mut cases = vec![missing];
        for v in [
            json!(0),
            json!(-1),
            json!(2),
            json!(1.0),
            json!(1.5),
            json!("1"),
            json!(null),
            json!(true),
            json!([1]),
        ] {
            cases.push(with(record.clone(), "/v", v));
        }
        for case in cases {
            for error in both(&case) {
                let CodecError::UnsupportedVersion { found } = &error else {
                    panic!("{case}: {error:?}");
                };
                let expected = case.get("v").map_or("none".to_owned(), Value::to_string);
                assert_eq!(*found, expected);
            }
        }
    }
}

#[test]
fn s13_the_version_is_looked_at_before_the_type_and_that_before_the_payload() {
    let nothing_right = json!({"v": 2, "type": "Nope", "x": 1});
    for error in both(&nothing_right) {
        assert!(matches!(error, CodecError::UnsupportedVersion { .. }));
    }
    for error in both(&json!({"v": 1, "type": "Nope", "command_id": 1})) {
        assert_eq!(
            error,
            CodecError::UnknownType {
                found: "Nope".into()
            }
        );
    }
}

#[test]
fn i25_a_type_outside_the_closed_set_is_unknown() {
    for bad in [
        json!("Nope"),
        json!(""),
        json!(null),
        json!(7),
        json!("userInput"),
        json!("SetLoopMode"),
    ] {
        let found = bad.as_str().unwrap_or("").to_owned();
        for error in both(&json!({"v": 1, "type": bad})) {
            assert_eq!(
                error,
                CodecError::UnknownType {
                    found: found.clone()
                }
            );
        }
    }
    for error in both(&json!({"v": 1})) {
        assert_eq!(
            error,
            CodecError::UnknownType {
                found: String::new()
            }
        );
    }
    let event_as_command = serde_json::to_vec(&event_json("LoopIdle")).unwrap();
    assert!(matches!(
        decode_command(&event_as_command),
        Err(CodecError::UnknownType { .. })
    ));
    let command_as_event = serde_json::to_vec(&command_json("Interrupt")).unwrap();
    assert!(matches!(
        decode_event(&command_as_event),
        Err(CodecError::UnknownType { .. })
    ));
}
