//! Bytes of commands and events: encode, decode, fingerprint (S12-S16, S65, S68).
//!
//! A record is one flat JSON object that begins with `{"v":1,`. Decoding goes size, JSON,
//! version, type, payload, validation; the first failure is returned, never a partial value and
//! never a guess. The journal sequence is no part of the bytes (S61): [`event_frame`] splices it
//! in for a reader without parsing anything.

use crate::command::{Command, CommandBody, CommandHeader, InvalidField};
use crate::event::{Class, Event, EventBody};
use crate::ids::{EventId, LoopId, Seq, SessionId, TurnId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The version this build writes and reads. A number is never reused (S16).
pub const VERSION: u64 = 1;
/// Largest encoded command or event, in bytes (§0).
pub const MAX_ENCODED: usize = 16 * 1024 * 1024;

/// Why bytes are no record, or a value no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Larger than [`MAX_ENCODED`].
    #[error("the record has {bytes} bytes; the limit is {MAX_ENCODED}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not one JSON object.
    #[error("undecodable: {0}")]
    Undecodable(String),
    /// Missing, malformed, older or newer.
    #[error("version {found} is not supported; this build knows {VERSION}")]
    UnsupportedVersion {
        /// What was there.
        found: String,
    },
    /// Missing, empty or outside the closed set.
    #[error("unknown record type `{found}`")]
    UnknownType {
        /// What was there.
        found: String,
    },
    /// A field is missing, unknown, of the wrong type or breaks a rule.
    #[error("`{field}` of {record}: {rule}")]
    InvalidField {
        /// The record's type.
        record: &'static str,
        /// The field, as far as it is known.
        field: String,
        /// The rule in words.
        rule: String,
    },
    /// An ephemeral event cannot be stored (S68).
    #[error("{0} is ephemeral and has no stored form")]
    Ephemeral(&'static str),
}

impl From<InvalidField> for CodecError {
    fn from(e: InvalidField) -> Self {
        Self::InvalidField {
            record: e.command,
            field: e.field.into(),
            rule: e.rule.into(),
        }
    }
}

/// Encoded bytes with the fingerprint that tells a retry from a collision (S65).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The record.
    pub bytes: Vec<u8>,
    /// SHA-256 over the record without its times.
    pub fingerprint: [u8; 32],
}

#[derive(Serialize)]
struct CommandWire<'a> {
    v: u64,
    #[serde(flatten)]
    header: &'a CommandHeader,
    #[serde(flatten)]
    body: &'a CommandBody,
}

#[derive(Serialize, Deserialize)]
struct EventHeader {
    #[serde(default, skip_serializing_if = "EventId::is_zero")]
    id: EventId,
    session_id: SessionId,
    #[serde(default, skip_serializing_if = "LoopId::is_zero")]
    loop_id: LoopId,
    #[serde(default, skip_serializing_if = "TurnId::is_zero")]
    turn_id: TurnId,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "crate::command::Cause::is_empty")]
    cause: crate::command::Cause,
}

#[derive(Serialize)]
struct EventWire<'a> {
    v: u64,
    #[serde(flatten)]
    header: EventHeader,
    #[serde(flatten)]
    body: &'a EventBody,
}

/// A record read in one pass. What is no record here is looked at again, step by step, for the one
/// error that S13 wants.
#[derive(Deserialize)]
struct Whole<H, B> {
    v: u64,
    #[serde(flatten)]
    header: H,
    #[serde(flatten)]
    body: B,
}

impl<H: for<'de> Deserialize<'de>, B: for<'de> Deserialize<'de>> Whole<H, B> {
    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_ENCODED {
            return None;
        }
        let whole: Self = serde_json::from_slice(bytes).ok()?;
        (whole.v == VERSION).then_some(whole)
    }
}

fn bytes_of<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    let bytes = serde_json::to_vec(value).map_err(|e| CodecError::Undecodable(e.to_string()))?;
    if bytes.len() > MAX_ENCODED {
        Err(CodecError::TooLarge { bytes: bytes.len() })
    } else {
        Ok(bytes)
    }
}

/// Encodes a command after validating it.
///
/// # Errors
/// A broken rule, or too large.
pub fn encode_command(command: &Command) -> Result<Encoded, CodecError> {
    command.validate()?;
    let bytes = bytes_of(&CommandWire {
        v: VERSION,
        header: &command.header,
        body: &command.body,
    })?;
    let timeless = CommandHeader {
        created_at: Timestamp::UNIX_EPOCH,
        ..command.header.clone()
    };
    let print = bytes_of(&CommandWire {
        v: VERSION,
        header: &timeless,
        body: &command.body,
    })?;
    Ok(Encoded {
        bytes,
        fingerprint: Sha256::digest(print).into(),
    })
}

fn event_header(event: &Event, at: Timestamp) -> EventHeader {
    EventHeader {
        id: event.id,
        session_id: event.session_id,
        loop_id: event.loop_id,
        turn_id: event.turn_id,
        at,
        cause: event.cause,
    }
}

/// Encodes an enduring event.
///
/// # Errors
/// Ephemeral, or too large.
pub fn encode_event(event: &Event) -> Result<Encoded, CodecError> {
    let meta = event.body.meta();
    if meta.class == Class::Ephemeral {
        return Err(CodecError::Ephemeral(meta.name));
    }
    let wire = |at| {
        bytes_of(&EventWire {
            v: VERSION,
            header: event_header(event, at),
            body: &event.body,
        })
    };
    Ok(Encoded {
        bytes: wire(event.at)?,
        fingerprint: Sha256::digest(wire(Timestamp::UNIX_EPOCH)?).into(),
    })
}

/// The `data` of an ephemeral event's frame.
///
/// # Errors
/// Too large.
pub fn encode_ephemeral(event: &Event) -> Result<String, CodecError> {
    let bytes = bytes_of(&EventWire {
        v: VERSION,
        header: event_header(event, event.at),
        body: &event.body,
    })?;
    String::from_utf8(bytes).map_err(|e| CodecError::Undecodable(e.to_string()))
}

/// The `data` of a stored event's frame: its bytes with the journal sequence spliced in.
///
/// # Errors
/// Bytes that this codec did not write.
pub fn event_frame(stored: &[u8], seq: Seq) -> Result<String, CodecError> {
    let text = std::str::from_utf8(stored).map_err(|e| CodecError::Undecodable(e.to_string()))?;
    let rest = text
        .strip_prefix("{\"v\":1,")
        .ok_or_else(|| CodecError::UnsupportedVersion {
            found: text.chars().take(16).collect(),
        })?;
    let mut frame = String::with_capacity(text.len() + 28);
    frame.push_str("{\"v\":1,\"seq\":");
    frame.push_str(&seq.to_string());
    frame.push(',');
    frame.push_str(rest);
    Ok(frame)
}

/// Size, JSON, version, type: what commands and events have in common.
fn open(
    bytes: &[u8],
    types: &[&'static str],
) -> Result<(&'static str, Map<String, Value>), CodecError> {
    if bytes.len() > MAX_ENCODED {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    let value: Value =
        serde_json::from_slice(bytes).map_err(|e| CodecError::Undecodable(e.to_string()))?;
    let Value::Object(mut map) = value else {
        return Err(CodecError::Undecodable(
            "a record is one JSON object".into(),
        ));
    };
    match map.remove("v") {
        Some(Value::Number(n)) if n.as_u64() == Some(VERSION) => {}
        found => {
            return Err(CodecError::UnsupportedVersion {
                found: found.map_or_else(
                    || "none".into(),
                    |v| v.to_string().chars().take(40).collect(),
                ),
            });
        }
    }
    let found = match map.get("type") {
        Some(Value::String(name)) => name.as_str(),
        _ => "",
    };
    match types.iter().find(|name| **name == found) {
        Some(name) => Ok((name, map)),
        None => Err(CodecError::UnknownType {
            found: found.chars().take(80).collect(),
        }),
    }
}

/// Takes the header's fields out of the map, so that what is left is the payload.
fn take<T: for<'de> Deserialize<'de>>(
    record: &'static str,
    map: &mut Map<String, Value>,
    fields: &[&str],
) -> Result<T, CodecError> {
    let header: Map<String, Value> = fields
        .iter()
        .filter_map(|f| map.remove(*f).map(|v| ((*f).to_owned(), v)))
        .collect();
    typed(record, header)
}

/// Fields that are tried out to find the one an error is about.
const MAX_PROBED: usize = 64;

/// Reads a typed value, or tells which field keeps it from being one.
fn typed<T: for<'de> Deserialize<'de>>(
    record: &'static str,
    map: Map<String, Value>,
) -> Result<T, CodecError> {
    let value = Value::Object(map);
    T::deserialize(&value).map_err(|e| invalid::<T>(record, &value, &e.to_string()))
}

fn invalid<T: for<'de> Deserialize<'de>>(
    record: &'static str,
    value: &Value,
    error: &str,
) -> CodecError {
    CodecError::InvalidField {
        record,
        field: culprit::<T>(value, error).unwrap_or_else(|| "payload".into()),
        rule: error.chars().take(400).collect(),
    }
}

/// The field an error is about. A tagged union reads its fields from a buffer, so the error knows
/// no path: serde names missing and unknown fields itself, any other is the one without which the
/// error is another.
fn culprit<T: for<'de> Deserialize<'de>>(value: &Value, error: &str) -> Option<String> {
    for kind in ["missing field `", "unknown field `"] {
        if let Some(rest) = error.strip_prefix(kind) {
            return rest.split('`').next().map(str::to_owned);
        }
    }
    let map = value.as_object()?;
    let mut fields = map.keys().filter(|k| *k != "type").take(MAX_PROBED);
    let found = fields.find(|field| {
        let mut without = map.clone();
        without.remove(*field);
        match T::deserialize(&Value::Object(without)) {
            Ok(_) => true,
            Err(other) => other.to_string() != error,
        }
    });
    found.cloned()
}

/// Decodes a command.
///
/// # Errors
/// The first failure of S13's order.
pub fn decode_command(bytes: &[u8]) -> Result<Command, CodecError> {
    let command = match Whole::read(bytes) {
        Some(Whole { header, body, .. }) => Command { header, body },
        None => command_by_steps(bytes)?,
    };
    command.validate()?;
    Ok(command)
}

fn command_by_steps(bytes: &[u8]) -> Result<Command, CodecError> {
    let (record, mut map) = open(bytes, &CommandBody::TYPES)?;
    let header = take(
        record,
        &mut map,
        &["command_id", "cause", "agency", "created_at", "caller"],
    )?;
    let body = typed(record, map)?;
    Ok(Command { header, body })
}

/// Decodes a stored event.
///
/// # Errors
/// The first failure of S13's order, or an ephemeral type.
pub fn decode_event(bytes: &[u8]) -> Result<Event, CodecError> {
    let (header, body) = match Whole::<EventHeader, EventBody>::read(bytes) {
        Some(Whole { header, body, .. }) => (header, body),
        None => event_by_steps(bytes)?,
    };
    if body.meta().class == Class::Ephemeral {
        return Err(CodecError::Ephemeral(body.meta().name));
    }
    Ok(Event {
        id: header.id,
        session_id: header.session_id,
        loop_id: header.loop_id,
        turn_id: header.turn_id,
        at: header.at,
        cause: header.cause,
        body,
    })
}

fn event_by_steps(bytes: &[u8]) -> Result<(EventHeader, EventBody), CodecError> {
    let (record, mut map) = open(bytes, &EventBody::TYPES)?;
    let header = take(
        record,
        &mut map,
        &["id", "session_id", "loop_id", "turn_id", "at", "cause"],
    )?;
    Ok((header, typed(record, map)?))
}
