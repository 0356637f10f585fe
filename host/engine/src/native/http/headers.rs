//! Which headers a guest may send, which the host adds, and which a guest gets to see.

use crate::native::IoError;
use crate::secret::Secret;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeMap;

/// Most headers of a request.
const MAX_HEADERS: usize = 64;
/// Most bytes of names and values of a request.
const MAX_HEADER_BYTES: usize = 32 * 1024;
/// Most bytes of names and values of a response.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Headers of one connection (RFC 9110 §7.6.1 and older practice).
const CONNECTION: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a guest must leave a header to the host, and why.
fn refusal(name: &HeaderName) -> Option<&'static str> {
    if CONNECTION.contains(&name.as_str()) || *name == header::EXPECT {
        return Some("it belongs to the connection, which is the host's");
    }
    if *name == header::HOST || *name == header::CONTENT_LENGTH {
        return Some("the host sets it");
    }
    if *name == header::AUTHORIZATION || *name == header::COOKIE {
        return Some("credentials come from the grant");
    }
    None
}

/// What the grant injects, marked as sensitive.
pub(super) fn injected(granted: &BTreeMap<String, Secret>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in granted {
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("{name:?} is no header name"))?;
        if CONNECTION.contains(&parsed.as_str())
            || parsed == header::HOST
            || parsed == header::CONTENT_LENGTH
        {
            return Err(format!(
                "header {name:?} belongs to the connection and cannot be added"
            ));
        }
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
            format!("the value of header {name:?} has characters that no header may have")
        })?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// What the guest sends. A header that the grant injects is left out: the grant's replaces it.
pub(super) fn from_guest(
    sent: &[(String, String)],
    injected: &HeaderMap,
) -> Result<HeaderMap, IoError> {
    let bytes: usize = sent
        .iter()
        .map(|(name, value)| name.len().saturating_add(value.len()))
        .sum();
    if sent.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return Err(IoError::Limit(format!(
            "a request has at most {MAX_HEADERS} headers and {MAX_HEADER_BYTES} bytes of them"
        )));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in sent {
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| IoError::Denied(format!("{:?} is no header name", short(name))))?;
        if injected.contains_key(&parsed) {
            continue;
        }
        if let Some(why) = refusal(&parsed) {
            return Err(IoError::Denied(format!(
                "header {parsed:?} cannot be sent: {why}"
            )));
        }
        let value = HeaderValue::from_str(value).map_err(|_| {
            IoError::Denied(format!(
                "the value of header {parsed:?} has characters that no header may have"
            ))
        })?;
        headers.append(parsed, value);
    }
    Ok(headers)
}

/// What the guest sees of a response.
pub(super) fn for_guest(received: &HeaderMap) -> Result<Vec<(String, String)>, IoError> {
    let seen = received
        .iter()
        .filter(|(name, _)| !CONNECTION.contains(&name.as_str()));
    let seen: Vec<_> = seen
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    let bytes: usize = seen
        .iter()
        .map(|(name, value)| name.len().saturating_add(value.len()))
        .sum();
    if bytes > MAX_RESPONSE_BYTES {
        return Err(IoError::Limit(format!(
            "the response has more than {MAX_RESPONSE_BYTES} bytes of headers"
        )));
    }
    Ok(seen)
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str) -> Result<HeaderMap, IoError> {
        let granted = BTreeMap::from([("X-Api-Key".to_owned(), Secret::new("sk-1"))]);
        from_guest(
            &[(name.to_owned(), value.to_owned())],
            &injected(&granted).unwrap(),
        )
    }

    #[test]
    fn a_guest_sends_neither_connection_headers_nor_credentials() {
        for name in "Connection keep-alive Proxy-Authorization proxy-connection TE trailer Transfer-Encoding upgrade \
            expect Host content-length Authorization cookie"
            .split_whitespace()
        {
            assert!(matches!(check(name, "x"), Err(IoError::Denied(_))), "{name}");
        }
        for (name, value) in [
            ("a b", "x"),
            ("", "x"),
            (":path", "/"),
            ("x", "a\r\nHost: b"),
            ("x", "\0"),
        ] {
            assert!(
                matches!(check(name, value), Err(IoError::Denied(_))),
                "{name:?} {value:?}"
            );
        }
        assert_eq!(check("Accept", "a").unwrap().len(), 1);
        assert!(
            check("x-api-KEY", "mine").unwrap().is_empty(),
            "the grant's replaces it"
        );
    }

    #[test]
    fn headers_are_bounded() {
        let many = vec![("x".to_owned(), "y".to_owned()); MAX_HEADERS + 1];
        assert!(matches!(
            from_guest(&many, &HeaderMap::new()),
            Err(IoError::Limit(_))
        ));
        assert!(matches!(
            check("x", &"y".repeat(MAX_HEADER_BYTES)),
            Err(IoError::Limit(_))
        ));
    }

    #[test]
    fn injected_values_are_never_shown() {
        let granted = BTreeMap::from([("authorization".to_owned(), Secret::new("Bearer sk-1"))]);
        assert!(!format!("{:?}", injected(&granted).unwrap()).contains("sk-1"));
        let bad = BTreeMap::from([("authorization".to_owned(), Secret::new("sk-1\n"))]);
        assert!(!injected(&bad).unwrap_err().contains("sk-1"));
        let framing = BTreeMap::from([("Host".to_owned(), Secret::new("a"))]);
        assert!(injected(&framing).is_err());
    }
}
