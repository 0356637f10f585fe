//! `Idempotency-Key`: which intent a repeated request is (G5, S120).
//!
//! Ids are derived from who asks, where and under which key, so the journal itself is the record.
//! Not here: joining requests under way ([`crate::flight`]) and storing answers (the plane).

use crate::problem::Problem;
use harness_core::ids::{CommandId, SessionId};
use harness_session::Keyed;
use http::HeaderMap;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Longest key, in bytes.
const MAX_KEY: usize = 255;

/// A key as it came in, before the caller is known.
#[derive(Debug, Clone)]
pub(crate) struct RawKey {
    pub(crate) key: Vec<u8>,
    /// Path of the request: it names the session and the gate, if any.
    pub(crate) route: String,
    pub(crate) body_sha256: [u8; 32],
}

/// The key of a request, if it carries one.
pub(crate) fn header(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::invalid(
            "`Idempotency-Key` is given twice; send it once",
        ));
    }
    match value.len() {
        1..=MAX_KEY => Ok(Some(value.as_bytes().to_vec())),
        n => Err(Problem::invalid(format!(
            "`Idempotency-Key` has {n} bytes; 1 to {MAX_KEY} are taken, e.g. a UUID"
        ))),
    }
}

impl RawKey {
    /// The ids of this intent for that caller.
    pub(crate) fn derive(&self, identity: &str) -> Keyed {
        let id = |what: &str| {
            let mut digest = Sha256::new();
            for part in [
                b"harness-host/idempotency/1",
                what.as_bytes(),
                identity.as_bytes(),
                self.route.as_bytes(),
                &self.key,
            ] {
                // Lengths keep neighbouring parts apart.
                digest.update((part.len() as u64).to_be_bytes());
                digest.update(part);
            }
            let mut bytes = [0u8; 16];
            bytes
                .iter_mut()
                .zip(digest.finalize())
                .for_each(|(to, from)| *to = from);
            Uuid::new_v8(bytes)
        };
        Keyed {
            command_id: CommandId::from(id("command")),
            session_id: SessionId::from(id("session")),
            body_sha256: self.body_sha256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyed(identity: &str, route: &str, key: &str) -> Keyed {
        RawKey {
            key: key.into(),
            route: route.into(),
            body_sha256: [0; 32],
        }
        .derive(identity)
    }

    #[test]
    fn s120_ids_depend_on_caller_route_and_key() {
        let one = keyed("a", "/v1/sessions", "k");
        assert_eq!(one, keyed("a", "/v1/sessions", "k"));
        assert_eq!(one.command_id.0.get_version_num(), 8);
        assert_eq!(one.session_id.0.get_version_num(), 8);
        assert_ne!(one.command_id.0, one.session_id.0);
        for other in [
            keyed("b", "/v1/sessions", "k"),
            keyed("a", "/v1/session", "sk"),
            keyed("a", "/v1/sessions", "l"),
        ] {
            assert_ne!(one.command_id, other.command_id);
            assert_ne!(one.session_id, other.session_id);
        }
    }

    #[test]
    fn g5_a_key_has_1_to_255_bytes() {
        for (len, ok) in [(0, false), (1, true), (255, true), (256, false)] {
            let mut headers = HeaderMap::new();
            headers.insert("idempotency-key", "k".repeat(len).parse().unwrap());
            assert_eq!(header(&headers).is_ok(), ok, "{len}");
        }
    }
}
