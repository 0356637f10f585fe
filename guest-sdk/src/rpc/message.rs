//! One JSON-RPC message: what a line can be, and what is taken from a line that
//! was too long to be kept.

use crate::connection::ConnectionError;
use crate::limits::shorten;
use crate::types;
use serde_json::Value;

/// Error codes of JSON-RPC 2.0 and of our own answers.
pub mod codes {
    /// There is no such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters do not fit the method.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Anything else went wrong.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// Our refusal of a request beyond the bound.
    pub const BUSY: i64 = -32050;
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq)]
pub enum RpcError {
    /// The peer answered with an error.
    Remote {
        /// Its code.
        code: i64,
        /// Its message, at most 2 KiB.
        message: String,
        /// Its data; null when it has none.
        data: Value,
    },
    /// It could not be sent, or the process went away before it was answered.
    Connection(ConnectionError),
    /// The answer was beyond the bound of a line.
    Oversize {
        /// Bytes of the answer.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The answer, or the request, does not have the shape it should.
    Malformed(String),
}

impl RpcError {
    pub(super) fn lost() -> Self {
        Self::Connection(ConnectionError::Disconnected(
            "the native connection ended".to_owned(),
        ))
    }

    /// The code of the peer's error.
    #[must_use]
    pub fn code(&self) -> Option<i64> {
        match self {
            Self::Remote { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Remote {
                code,
                message,
                data,
            } => {
                write!(out, "{message} ({code})")?;
                if data.is_null() {
                    return Ok(());
                }
                write!(out, ": {}", shorten(&data.to_string(), 512))
            }
            Self::Connection(error) => error.fmt(out),
            Self::Oversize { bytes, limit } => {
                write!(out, "an answer of {bytes} bytes; the limit is {limit}")
            }
            Self::Malformed(text) => write!(out, "not understood: {text}"),
        }
    }
}

impl std::error::Error for RpcError {}

impl From<RpcError> for types::Error {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Connection(error) => error.into(),
            other => Self::Native(other.to_string()),
        }
    }
}

/// The id of an answer. Ours are numbers; anything else answers nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Id(Value);

impl Id {
    pub(super) fn number(&self) -> Option<u64> {
        self.0.as_u64()
    }
}

impl From<u64> for Id {
    fn from(id: u64) -> Self {
        Self(Value::from(id))
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&shorten(&self.0.to_string(), 64))
    }
}

/// A message of the peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Incoming {
    Notification {
        method: String,
        params: Value,
    },
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Answer {
        id: Id,
        result: Result<Value, RpcError>,
    },
}

/// Reads one line. The flag tells that bytes had to be replaced.
///
/// # Errors
///
/// The beginning of a line that is no message.
pub(super) fn parse(line: &[u8]) -> Result<(Incoming, bool), String> {
    let noise = || {
        shorten(
            &String::from_utf8_lossy(line.get(..256).unwrap_or(line)),
            200,
        )
    };
    let (value, replaced) = match serde_json::from_slice(line) {
        Ok(value) => (value, false),
        // A single bad byte in a text should not cost the whole message.
        Err(_) if std::str::from_utf8(line).is_err() => {
            match serde_json::from_str(&String::from_utf8_lossy(line)) {
                Ok(value) => (value, true),
                Err(_) => return Err(noise()),
            }
        }
        Err(_) => return Err(noise()),
    };
    let Value::Object(mut members) = value else {
        return Err(noise());
    };
    let id = members.remove("id");
    if let Some(method) = members.remove("method") {
        let Value::String(method) = method else {
            return Err(noise());
        };
        let params = members.remove("params").unwrap_or_default();
        let message = match id {
            None => Incoming::Notification { method, params },
            Some(id) => Incoming::Request { id, method, params },
        };
        return Ok((message, replaced));
    }
    let result = match (members.remove("result"), members.remove("error")) {
        (_, Some(Value::Object(error))) => Err(RpcError::Remote {
            code: error
                .get("code")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            message: shorten(
                error
                    .get("message")
                    .and_then(Value::as_str)
                    .unwrap_or("no message"),
                2048,
            ),
            data: error.get("data").cloned().unwrap_or_default(),
        }),
        (Some(result), _) => Ok(result),
        _ => return Err(noise()),
    };
    let Some(id) = id else { return Err(noise()) };
    Ok((Incoming::Answer { id: Id(id), result }, replaced))
}

/// The id of the answer that a too long line seems to have been: a number at one
/// of its ends, and no method in sight.
pub(super) fn answered_id(head: &[u8], tail: &[u8]) -> Option<u64> {
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    if head.contains("\"method\"") || tail.contains("\"method\"") {
        return None;
    }
    let number = |text: &str| {
        let (_, rest) = text.split_once("\"id\"")?;
        let rest = rest.trim_start().strip_prefix(':')?.trim_start();
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        rest.get(..digits)?.parse().ok()
    };
    // Only a first or last member counts, not an id inside the result.
    let first = head
        .split_once("\"result\"")
        .map_or(head.as_ref(), |(before, _)| before);
    number(first).or_else(|| {
        let at = tail.rfind("\"id\"")?;
        let last = tail.get(at..)?;
        last.trim_end().ends_with('}').then(|| number(last))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(line: &str, expected: Incoming) {
        assert_eq!(parse(line.as_bytes()), Ok((expected, false)), "{line}");
    }

    #[test]
    fn reads_each_kind_of_message() {
        check(
            r#"{"jsonrpc":"2.0","method":"m"}"#,
            Incoming::Notification {
                method: "m".into(),
                params: Value::Null,
            },
        );
        check(
            r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}"#,
            Incoming::Request {
                id: json!("a"),
                method: "m".into(),
                params: json!({"x":1}),
            },
        );
        check(
            r#"{"id":7,"result":null}"#,
            Incoming::Answer {
                id: Id::from(7),
                result: Ok(Value::Null),
            },
        );
        check(
            r#"{"id":7,"error":{"code":-1,"message":"no","data":[1]}}"#,
            Incoming::Answer {
                id: Id::from(7),
                result: Err(RpcError::Remote {
                    code: -1,
                    message: "no".into(),
                    data: json!([1]),
                }),
            },
        );
    }

    #[test]
    fn noise_is_no_message() {
        for line in [
            "hello",
            "{not json}",
            "[1,2]",
            "42",
            "{}",
            r#"{"id":1}"#,
            r#"{"method":5}"#,
            r#"{"result":1}"#,
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_bad_byte_does_not_cost_the_message() {
        let (message, replaced) =
            parse(b"{\"method\":\"m\",\"params\":\"a\xff\"}").expect("still a message");
        assert!(replaced);
        assert_eq!(
            message,
            Incoming::Notification {
                method: "m".into(),
                params: json!("a\u{fffd}"),
            }
        );
    }

    #[test]
    fn tells_which_call_a_lost_line_answered() {
        let cases: [(&str, &str, Option<u64>); 6] = [
            (
                r#"{"jsonrpc":"2.0","id":12,"result":{"x":"aaaa"#,
                "aaaa\"}}",
                Some(12),
            ),
            (r#"{"result":{"x":"aaaa"#, r#"aaaa"},"id":9}"#, Some(9)),
            (
                r#"{"jsonrpc":"2.0","method":"m","params":{"id":3,"#,
                "}}",
                None,
            ),
            (r#"{"params":{"id":3,"x":"#, r#"},"method":"m"}"#, None),
            (
                r#"{"jsonrpc":"2.0","result":{"id":3,"x":"#,
                "aaaa\"}}",
                None,
            ),
            ("xxxxxxxx", "xxxx", None),
        ];
        for (head, tail, expected) in cases {
            assert_eq!(
                answered_id(head.as_bytes(), tail.as_bytes()),
                expected,
                "{head}"
            );
        }
    }
}
