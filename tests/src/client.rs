//! One client of the API. Every answer that is not a success is checked to be a problem document.

use crate::{Conversation, Frames, PATIENCE};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body; null when empty, a string when it is not JSON.
    pub body: Value,
}

impl Answer {
    /// The body of a success.
    ///
    /// # Panics
    /// Another status.
    pub fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    /// Asserts that it is this problem, and returns its detail.
    ///
    /// # Panics
    /// It is not.
    pub fn problem(&self, status: u16, code: &str) -> String {
        assert_eq!(
            (self.status, self.body["code"].as_str()),
            (status, Some(code)),
            "{}",
            self.body
        );
        self.body["detail"].as_str().unwrap().to_owned()
    }
}

/// An exchange, kept for checks against the API's description.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Method.
    pub method: Method,
    /// Path with query.
    pub path: String,
    /// The answer.
    pub answer: Answer,
}

/// A client with one token.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    seen: Arc<Mutex<Vec<Exchange>>>,
}

impl Client {
    /// Of the host at `base`.
    ///
    /// # Panics
    /// No client can be made.
    #[must_use]
    pub fn new(base: &str, token: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            http,
            base: base.to_owned(),
            token: Some(token.to_owned()),
            seen: Arc::default(),
        }
    }

    /// The same with another token, or none.
    #[must_use]
    pub fn with_token(&self, token: Option<&str>) -> Self {
        Self {
            token: token.map(str::to_owned),
            ..self.clone()
        }
    }

    /// Base URL.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Every exchange so far, of this client and its clones.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn seen(&self) -> Vec<Exchange> {
        self.seen.lock().unwrap().clone()
    }

    /// A request that can be changed before it is sent.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request and reads its answer. Problem documents are checked.
    ///
    /// # Errors
    /// The connection failed, e.g. because the host was killed.
    ///
    /// # Panics
    /// A problem document lacks a member, or leaks what it must not.
    pub async fn send(&self, request: RequestBuilder) -> reqwest::Result<Answer> {
        let request = request.timeout(PATIENCE).build()?;
        let (method, url) = (request.method().clone(), request.url().clone());
        let response = self.http.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await?;
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
        };
        let answer = Answer {
            status,
            headers,
            body,
        };
        assert!(
            answer.headers.contains_key("x-request-id"),
            "{method} {url} has no request id"
        );
        if !(200..400).contains(&status) {
            check_problem(&method, url.path(), &answer);
        }
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        self.seen.lock().unwrap().push(Exchange {
            method,
            path,
            answer: answer.clone(),
        });
        Ok(answer)
    }

    /// `GET`.
    ///
    /// # Panics
    /// The connection failed.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await.unwrap()
    }

    /// `POST` with a JSON body.
    ///
    /// # Panics
    /// The connection failed.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.try_post(path, body).await.unwrap()
    }

    /// `POST` with a JSON body.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn try_post(&self, path: &str, body: Value) -> reqwest::Result<Answer> {
        self.send(self.request(Method::POST, path).json(&body))
            .await
    }

    /// `DELETE`.
    ///
    /// # Panics
    /// The connection failed.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await.unwrap()
    }

    /// A session of `agent` whose first act is a prompt.
    ///
    /// # Panics
    /// It is not made.
    pub async fn prompted(&self, agent: &str, text: &str) -> Conversation {
        self.made(agent, "prompt", json!([{"type": "text", "text": text}]))
            .await
    }

    /// A session of `agent` whose first act is a native command.
    ///
    /// # Panics
    /// It is not made.
    pub async fn commanded(&self, agent: &str, text: &str) -> Conversation {
        self.made(agent, "operation", json!({"kind": "command", "text": text}))
            .await
    }

    async fn made(&self, agent: &str, key: &str, first: Value) -> Conversation {
        let body =
            json!({"project_id": "default", "title": "end to end", "agent": agent, key: first});
        let row = self.post("/v1/sessions", body).await.ok(201);
        self.session(row["id"].as_str().unwrap())
    }

    /// An existing session.
    #[must_use]
    pub fn session(&self, id: &str) -> Conversation {
        Conversation::new(self.clone(), id)
    }

    /// An event stream.
    ///
    /// # Errors
    /// The connection failed.
    ///
    /// # Panics
    /// It is refused.
    pub async fn stream(&self, path: &str, last: Option<u64>) -> reqwest::Result<Frames> {
        let mut request = self.request(Method::GET, path);
        if let Some(last) = last {
            request = request.header("last-event-id", HeaderValue::from(last));
        }
        let response = request.send().await?;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Ok(Frames::new(response))
    }
}

/// Requirements-operations §3: what every problem document has, and what none shows.
fn check_problem(method: &Method, path: &str, answer: &Answer) {
    let what = format!("{method} {path}: {}", answer.body);
    assert_eq!(
        answer.headers["content-type"], "application/problem+json",
        "{what}"
    );
    let body = &answer.body;
    let code = body["code"].as_str().expect(&what);
    assert_eq!(
        body["type"],
        format!("urn:harness-host:problem:{code}"),
        "{what}"
    );
    assert_eq!(body["status"], answer.status, "{what}");
    assert!(body["retryable"].is_boolean(), "{what}");
    assert!(
        body["title"]
            .as_str()
            .is_some_and(|title| !title.is_empty()),
        "{what}"
    );
    let detail = body["detail"].as_str().expect(&what);
    assert!(!detail.is_empty() && detail.len() <= 4096, "{what}");
    assert_eq!(
        body["request_id"],
        answer.headers["x-request-id"].to_str().unwrap(),
        "{what}"
    );
    for leaked in [
        "wasm backtrace",
        "panicked at",
        "/src/",
        "SqliteFailure",
        ".rs:",
    ] {
        assert!(!detail.contains(leaked), "{leaked} leaks: {what}");
    }
}
