//! Strict parsing of bodies, queries and paths: what is not understood is refused by name (G2).

use crate::code::Code;
use crate::idempotency::{self, RawKey};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// A body that has not arrived within this is not waited for.
const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// So much of a body that is too large is read and thrown away, so that a client which writes
/// before it reads gets the answer instead of a reset connection.
const DISCARD: usize = 8 * 1024 * 1024;

/// A strict JSON body.
pub(crate) struct Strict<T>(pub(crate) T);

/// A strict JSON body of a request that changes something, with its idempotency key.
pub(crate) struct Intent<T> {
    pub(crate) body: T,
    pub(crate) key: Option<RawKey>,
}

impl<T: DeserializeOwned> FromRequest<ApiState> for Strict<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let bytes = read(request, state.max_body()).await?;
        parse(&bytes).map(Self)
    }
}

impl<T: DeserializeOwned> FromRequest<ApiState> for Intent<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let header = idempotency::header(request.headers())?;
        let route = request.uri().path().to_owned();
        let bytes = read(request, state.max_body()).await?;
        let key = header.map(|key| RawKey {
            key,
            route,
            // No body stands for an empty object.
            body_sha256: Sha256::digest(if bytes.is_empty() {
                b"{}"
            } else {
                bytes.as_ref()
            })
            .into(),
        });
        Ok(Self {
            body: parse(&bytes)?,
            key,
        })
    }
}

/// Reads a body of JSON. Nothing at all stands for an empty object.
async fn read(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let (parts, body) = request.into_parts();
    let reading = collect(&parts.headers, body, limit);
    let bytes = tokio::time::timeout(BODY_DEADLINE, reading)
        .await
        .map_err(|_| {
            Problem::new(
                Code::RequestTimeout,
                format!(
                    "the body did not arrive within {} s; send it again",
                    BODY_DEADLINE.as_secs()
                ),
            )
        })??;
    if !bytes.is_empty() && !is_json(&parts.headers) {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "the body has to be JSON; send it with `Content-Type: application/json`",
        ));
    }
    Ok(bytes)
}

async fn collect(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Problem> {
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok());
    let mut stream = body.into_data_stream();
    let mut whole = BytesMut::with_capacity(announced.unwrap_or(0).min(limit).min(64 * 1024));
    let mut size = 0usize;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| {
            Problem::invalid("the body ended before it was complete; send it again")
        })?;
        size = size.saturating_add(chunk.len());
        if size <= limit {
            whole.extend_from_slice(&chunk);
        } else if size > limit.saturating_add(DISCARD) {
            break;
        }
    }
    if size > limit {
        return Err(Problem::too_large(format!(
            "the body is larger than {limit} bytes; send less, or put large content into a file of the workspace and name its path"
        )));
    }
    Ok(whole.freeze())
}

/// `application/json` or `application/*+json`, in UTF-8.
fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let Ok(value) = value.to_str() else {
        return false;
    };
    let mut parts = value.split(';');
    let kind = parts.next().unwrap_or("").trim().to_ascii_lowercase();
    let json =
        kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    let utf8 = parts.all(|parameter| {
        parameter.split_once('=').is_none_or(|(name, value)| {
            !name.trim().eq_ignore_ascii_case("charset")
                || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        })
    });
    json && utf8
}

/// Parses a body; the problem names the place and what was expected there.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = match std::str::from_utf8(bytes) {
        Ok("") => "{}",
        Ok(text) => text,
        Err(error) => {
            return Err(Problem::invalid(format!(
                "the body is not valid UTF-8 at byte {}; send JSON in UTF-8",
                error.valid_up_to()
            )));
        }
    };
    objects_only(text)?;
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let place = error.path().to_string();
        let inner = error.into_inner();
        let hint = if inner.is_data() {
            ""
        } else {
            "; the body has to be one JSON object"
        };
        match place.as_str() {
            "." | "?" => Problem::invalid(format!("{inner}{hint}")),
            place => Problem::invalid(format!("`{place}`: {inner}{hint}")),
        }
    })?;
    json.end().map_err(|error| {
        Problem::invalid(format!("{error}; the body has to be one JSON object"))
    })?;
    Ok(value)
}

/// Members whose value is one object, or a list of them.
const OBJECTS: [&str; 6] = [
    "operation",
    "target",
    "default_workspace",
    "params",
    "blocks",
    "prompt",
];

/// Refuses a list where an object is expected: the parser would take its items for the members in
/// order. Text that is no JSON is left to the parser, which says more about it.
fn objects_only(text: &str) -> Result<(), Problem> {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else {
        return Ok(());
    };
    let Some(members) = value.as_object() else {
        return Err(Problem::invalid("the body has to be one JSON object"));
    };
    for name in OBJECTS {
        let Some(member) = members.get(name) else {
            continue;
        };
        let list = matches!(name, "blocks" | "prompt");
        let wrong = match member {
            serde_json::Value::Array(items) if list => {
                items.iter().any(serde_json::Value::is_array)
            }
            other => other.is_array(),
        };
        if wrong {
            return Err(Problem::invalid(format!(
                "`{name}`: a list stands where an object is expected; name the members"
            )));
        }
    }
    Ok(())
}

/// A strict query.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<ApiState> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, Problem> {
        Query::<T>::try_from_uri(&parts.uri)
            .map(|query| Self(query.0))
            .map_err(|rejection| Problem::invalid(format!("query: {}", words(&rejection))))
    }
}

/// The cause behind a rejection's fixed sentence.
fn words(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// A route without query parameters.
pub(crate) struct NoQuery;

impl FromRequestParts<ApiState> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, Problem> {
        match parts.uri.query() {
            None | Some("") => Ok(Self),
            Some(_) => Err(Problem::invalid(
                "this route takes no query parameters; leave them out",
            )),
        }
    }
}

/// Parameters of the path as text; a route's own parse turns them into ids.
pub(crate) struct InPath<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<ApiState> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        Path::<T>::from_request_parts(parts, state)
            .await
            .map(|path| Self(path.0))
            .map_err(|_| no_path())
    }
}

/// The problem of a path that leads nowhere.
pub(crate) fn no_path() -> Problem {
    Problem::new(
        Code::NotFound,
        "there is no such path; GET /openapi.json lists them, and /docs shows them",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code)]
        inner: Inner,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code)]
        n: u32,
    }

    #[test]
    fn g2_a_problem_names_the_place() {
        for (body, expected) in [
            (&br#"{"inner":{"n":"x"}}"#[..], "`inner.n`: invalid type"),
            (br#"{"inner":{"n":1,"m":2}}"#, "unknown field `m`"),
            (br#"{"inner":{"n":1}} x"#, "trailing characters"),
            (br#"{"inner":{"n":1}"#, "EOF"),
            (b"", "missing field `inner`"),
            (b"{\"inner\":\xff}", "not valid UTF-8 at byte 9"),
            (
                br#"{"inner":{"n":1},"inner":{"n":1}}"#,
                "duplicate field `inner`",
            ),
        ] {
            let problem = parse::<Outer>(body).unwrap_err();
            let text = String::from_utf8(problem.render("").to_vec()).unwrap();
            let document: crate::ProblemDocument = serde_json::from_str(&text).unwrap();
            assert!(
                document.detail.contains(expected),
                "{} / {expected}",
                document.detail
            );
        }
    }

    #[test]
    fn g2_only_json_in_utf8_is_json() {
        for (value, json) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/merge-patch+json", true),
            ("application/json; charset=latin1", false),
            ("text/json", false),
            ("text/plain", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(is_json(&headers), json, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
