//! The outermost layer: what is the same for every request.
//!
//! It names the request, opens its one span, checks `Host` and `Origin`, contains a panic, and
//! writes problem documents and the headers that every answer carries. One function instead of a
//! stack of layers: each layer costs every request an allocation.

use crate::code::Code;
use crate::problem::Problem;
use crate::state::ApiState;
use crate::trace::trace_id;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use http::HeaderMap;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use std::panic::AssertUnwindSafe;
use std::time::Instant;
use tracing::Instrument;
use tracing::field::Empty;
use uuid::Uuid;

/// Names a request, in both directions.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Pages may load from this server and nowhere else. The API reference styles elements inline.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// The caller's own id when it is fit for a log line, else a fresh one.
fn request_id(headers: &HeaderMap) -> (String, HeaderValue) {
    let sane = |value: &&HeaderValue| {
        (1..=128).contains(&value.len())
            && value
                .as_bytes()
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let given = headers.get(REQUEST_ID).filter(sane).cloned();
    let value = given
        .or_else(|| {
            HeaderValue::from_str(
                Uuid::now_v7()
                    .hyphenated()
                    .encode_lower(&mut Uuid::encode_buffer()),
            )
            .ok()
        })
        .unwrap_or(HeaderValue::from_static("unnamed"));
    (value.to_str().unwrap_or("unnamed").to_owned(), value)
}

/// Wraps every route and fallback.
pub(crate) async fn edge(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let (id, id_value) = request_id(request.headers());
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map_or("", MatchedPath::as_str);
    let method = request.method().clone();
    let is_v1 = request.uri().path().starts_with("/v1/");
    let span = tracing::info_span!(
        "request",
        request_id = id,
        method = method.as_str(),
        path,
        status = Empty,
        trace_id = Empty,
        otel.kind = "server",
    );
    if let Some(trace) = trace_id(request.headers()) {
        span.record("trace_id", trace);
        if let Some(join) = state.join_trace() {
            join(&span, request.headers());
        }
    }

    let answer = async {
        match state.policy().check(request.uri(), request.headers()) {
            Err(problem) => problem.into_response(),
            Ok(()) => AssertUnwindSafe(next.run(request))
                .catch_unwind()
                .await
                .unwrap_or_else(|_| {
                    tracing::error!("a request handler panicked");
                    Problem::internal().into_response()
                }),
        }
    };
    let mut response = answer.instrument(span.clone()).await;

    let refused = response.status().is_client_error() || response.status().is_server_error();
    let problem = response.extensions_mut().remove::<Problem>();
    if let Some(problem) =
        problem.or_else(|| refused.then(|| Problem::of_status(response.status())))
    {
        let body = problem.render(&id);
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        *response.body_mut() = Body::from(body);
        if problem.code() == Code::Internal {
            tracing::error!(parent: &span, "answered with an internal error");
        }
    }
    finish_headers(response.headers_mut(), id_value, is_v1);
    let status = response.status().as_u16();
    span.record("status", status);
    metrics::histogram!(
        "harness_http_request_seconds",
        "method" => known_method(&method),
        "path" => path.to_owned(),
        "status" => class(status),
    )
    .record(begun.elapsed().as_secs_f64());
    response
}

fn finish_headers(headers: &mut HeaderMap, id: HeaderValue, is_v1: bool) {
    headers.insert(REQUEST_ID, id);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_v1 {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"text/html"))
    {
        headers.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(PAGE_POLICY),
        );
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
}

/// A bounded set of label values, whatever strangers send.
fn known_method(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

fn class(status: u16) -> &'static str {
    match status {
        0..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s110_only_a_sane_request_id_is_taken_over() {
        for (given, taken) in [
            ("abc-1_2.3", true),
            ("a b", false),
            ("", false),
            ("<x>", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(given).unwrap());
            let (id, _) = request_id(&headers);
            assert_eq!(id == given, taken, "{given:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_str(&"a".repeat(129)).unwrap());
        let (id, _) = request_id(&headers);
        assert_eq!(Uuid::parse_str(&id).unwrap().get_version_num(), 7);
    }
}
