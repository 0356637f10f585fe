//! Golden records as JSON values, to be broken in one place.

use crate::{commands, events};
use harness_core::codec::{CodecError, decode_command, decode_event, encode_command, encode_event};
use serde_json::Value;

pub(crate) fn command_json(name: &str) -> Value {
    let all = commands::all();
    let (_, command) = all.iter().find(|(n, _)| n == name).unwrap();
    serde_json::from_slice(&encode_command(command).unwrap().bytes).unwrap()
}

pub(crate) fn event_json(name: &str) -> Value {
    let all = events::all();
    let (_, event) = all.iter().find(|(n, _)| n == name).unwrap();
    serde_json::from_slice(&encode_event(event).unwrap().bytes).unwrap()
}

/// Both decoders over one value, as they share everything up to the type.
pub(crate) fn both(value: &Value) -> [CodecError; 2] {
    let bytes = serde_json::to_vec(value).unwrap();
    [
        decode_command(&bytes).unwrap_err(),
        decode_event(&bytes).unwrap_err(),
    ]
}

/// Puts a value at a JSON pointer; the last step may be new.
pub(crate) fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap()[key] = new;
    value
}

pub(crate) fn without(mut value: Value, key: &str) -> Value {
    value.as_object_mut().unwrap().remove(key).unwrap();
    value
}

#[track_caller]
pub(crate) fn invalid_command(value: &Value, field: &str) {
    let bytes = serde_json::to_vec(value).unwrap();
    let named = value["type"].as_str().unwrap();
    match decode_command(&bytes) {
        Err(CodecError::InvalidField {
            record,
            field: found,
            ..
        }) => {
            assert_eq!((record, found.as_str()), (named, field), "{value}");
        }
        other => panic!("{value}\nshould be an invalid `{field}`, was {other:?}"),
    }
}

#[track_caller]
pub(crate) fn invalid_event(value: &Value, field: &str) {
    let bytes = serde_json::to_vec(value).unwrap();
    match decode_event(&bytes) {
        Err(CodecError::InvalidField { field: found, .. }) => assert_eq!(found, field, "{value}"),
        other => panic!("{value}\nshould be an invalid `{field}`, was {other:?}"),
    }
}
