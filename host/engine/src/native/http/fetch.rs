//! One exchange: the request, its redirects hop by hop, up to the head of the response.

use super::headers;
use super::origin::{Origin, Origins, key};
use super::resolver::ResolveError;
use super::{HttpLimits, HttpRequest};
use crate::native::IoError;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode};
use reqwest::{Response, Url};

/// Most hops after the first.
const MAX_REDIRECTS: usize = 10;
/// Longest URL.
const MAX_URL_BYTES: usize = 8 * 1024;

/// One request as it goes out.
struct Hop {
    method: Method,
    url: Url,
    /// The guest's; injected ones are never among them.
    headers: HeaderMap,
    body: Bytes,
    /// Whether the grant's headers are added: until a redirect leaves the origin the guest named.
    inject: bool,
}

/// Sends a request and follows its redirects.
pub(super) async fn exchange(
    origins: &Origins,
    request: HttpRequest,
    limits: &HttpLimits,
) -> Result<Response, IoError> {
    let mut hop = Hop::first(origins, request, limits)?;
    for _ in 0..=MAX_REDIRECTS {
        let response = hop.send(origins).await?;
        let Some(location) = redirect(&response)? else {
            return Ok(response);
        };
        hop = hop.follow(response.status(), &location)?;
    }
    Err(IoError::Limit(format!(
        "more than {MAX_REDIRECTS} redirects"
    )))
}

impl Hop {
    fn first(
        origins: &Origins,
        request: HttpRequest,
        limits: &HttpLimits,
    ) -> Result<Self, IoError> {
        if request.body.len() > limits.request_bytes {
            return Err(IoError::Limit(format!(
                "a request body has at most {} bytes",
                limits.request_bytes
            )));
        }
        if request.url.len() > MAX_URL_BYTES {
            return Err(IoError::Limit(format!(
                "a URL has at most {MAX_URL_BYTES} bytes"
            )));
        }
        let method = Method::from_bytes(request.method.as_bytes())
            .ok()
            .filter(|method| *method != Method::CONNECT && *method != Method::TRACE)
            .ok_or_else(|| IoError::Denied("the method cannot be sent".to_owned()))?;
        let mut url = Url::parse(&request.url)
            .map_err(|error| IoError::Denied(format!("the URL is invalid: {error}")))?;
        url.set_fragment(None);
        let origin = granted(origins, &url)?;
        let headers = headers::from_guest(&request.headers, &origin.headers)?;
        Ok(Self {
            method,
            url,
            headers,
            body: request.body,
            inject: true,
        })
    }

    async fn send(&self, origins: &Origins) -> Result<Response, IoError> {
        let origin = granted(origins, &self.url)?;
        let mut headers = self.headers.clone();
        if self.inject {
            headers.extend(origin.headers.clone());
        }
        let request = origin
            .client
            .request(self.method.clone(), self.url.clone())
            .headers(headers);
        let request = if self.body.is_empty() {
            request
        } else {
            request.body(self.body.clone())
        };
        request.send().await.map_err(failure)
    }

    /// The next hop (RFC 9110 §15.4, Fetch §4.4).
    fn follow(mut self, status: StatusCode, location: &str) -> Result<Self, IoError> {
        if location.len() > MAX_URL_BYTES {
            return Err(IoError::Limit(format!(
                "a redirect to a URL of more than {MAX_URL_BYTES} bytes"
            )));
        }
        let mut next = self
            .url
            .join(location)
            .map_err(|error| IoError::Failed(format!("redirect to an invalid URL: {error}")))?;
        next.set_fragment(None);
        let to_get = match status {
            StatusCode::SEE_OTHER => self.method != Method::HEAD,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::POST,
            _ => false,
        };
        if to_get {
            self.method = Method::GET;
            self.body = Bytes::new();
            for name in [
                CONTENT_TYPE,
                CONTENT_ENCODING,
                CONTENT_LANGUAGE,
                CONTENT_LOCATION,
            ] {
                self.headers.remove(name);
            }
        }
        self.inject &= key(&self.url) == key(&next);
        self.url = next;
        Ok(self)
    }
}

/// The grant of a URL, if a request may go there.
fn granted<'a>(origins: &'a Origins, url: &Url) -> Result<&'a Origin, IoError> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(IoError::Denied("a URL cannot carry credentials".to_owned()));
    }
    let origin = origins
        .get(url)
        .ok_or_else(|| IoError::Denied(format!("origin {} is not granted", key(url))))?;
    origin.check_literal(url).map_err(|why| {
        IoError::Denied(format!(
            "{} is {why}, which its grant does not name",
            key(url)
        ))
    })?;
    Ok(origin)
}

/// Where a response sends on.
fn redirect(response: &Response) -> Result<Option<String>, IoError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response
        .headers()
        .get(LOCATION)
        .map(|location| location.to_str().map(str::to_owned));
    location
        .transpose()
        .map_err(|_| IoError::Failed("redirect to an invalid URL".to_owned()))
}

/// The client's failure in the contract's words. No URL: its query may hold what logs must not.
pub(super) fn failure(error: reqwest::Error) -> IoError {
    let error = error.without_url();
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    let mut innermost = error.to_string();
    while let Some(cause) = source {
        match cause.downcast_ref::<ResolveError>() {
            Some(refused @ ResolveError::Refused { .. }) => {
                return IoError::Denied(refused.to_string());
            }
            Some(unknown @ ResolveError::Unknown { .. }) => {
                return IoError::NotFound(unknown.to_string());
            }
            None => innermost = cause.to_string(),
        }
        source = cause.source();
    }
    IoError::Failed(format!("{error}: {innermost}"))
}
