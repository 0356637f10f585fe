//! Strict parsing of bodies, queries and paths: what is not understood is refused by name (G2).

use crate::code::Code;
use crate::idempotency::{self, RawKey};
use crate::json::parse;
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
