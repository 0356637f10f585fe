//! Frames: a stored event's bytes with the journal sequence spliced in (S61).

use crate::events::{all, is_stored};
use harness_core::codec::{CodecError, encode_event, event_frame};
use serde_json::Value;

#[test]
fn s61_a_frame_is_the_stored_event_with_its_sequence() {
    for (name, event) in all().into_iter().filter(|(_, e)| is_stored(e)) {
        let stored = encode_event(&event).unwrap().bytes;
        for seq in [1, 42, u64::MAX] {
            let frame = event_frame(&stored, seq).unwrap();
            assert!(
                frame.starts_with(&format!("{{\"v\":1,\"seq\":{seq},")),
                "{name}: {frame}"
            );
            let mut object: serde_json::Map<String, Value> = serde_json::from_str(&frame).unwrap();
            assert_eq!(object.remove("seq"), Some(seq.into()), "{name}");
            let bare: Value = serde_json::from_slice(&stored).unwrap();
            assert_eq!(Value::Object(object), bare, "{name}: nothing else changed");
        }
        let text = String::from_utf8(stored).unwrap();
        assert!(
            !text.contains("\"seq\""),
            "{name}: the sequence is no part of the bytes"
        );
    }
}

#[test]
fn s61_foreign_bytes_become_no_frame() {
    for bytes in [&b"{}"[..], b"{\"v\":2,\"type\":\"LoopIdle\"}", b""] {
        assert!(matches!(
            event_frame(bytes, 1),
            Err(CodecError::UnsupportedVersion { .. })
        ));
    }
    assert!(matches!(
        event_frame(&[0xff, 0xfe], 1),
        Err(CodecError::Undecodable(_))
    ));
}
