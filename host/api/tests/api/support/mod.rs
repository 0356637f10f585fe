//! One server without a socket, and the one way requests are sent.

mod double;
mod peers;

pub(crate) use double::*;

use axum::Router;
use axum::body::Body;
use harness_api::plane::{Item, Plane};
use harness_api::{ApiParts, ApiState, Policy, hash_token, router};
use harness_core::ids::TokenId;
use harness_core::view::Snapshot;
use harness_journal::{Catalog, NewToken, Project, SqliteOptions, SqliteStore, Token, TokenScope};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use peers::Operator;
use serde_json::Value;
use std::sync::Arc;
use tower::ServiceExt;
use uuid::Uuid;

pub(crate) const ADMIN: &str = "bootstrap-token";
pub(crate) const SESSION: Uuid = Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0001);
/// A session of project `other`.
pub(crate) const FOREIGN: Uuid = Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0002);
/// The loop that documented examples name.
pub(crate) const LOOP: Uuid = Uuid::from_u128(0x0195_6c3e_6f02_7b8e_8a34_5d90_c2e7_f4ab);
pub(crate) const COMMAND: Uuid = Uuid::from_u128(4);
pub(crate) const GATE: Uuid = Uuid::from_u128(5);

/// One server without a socket.
pub(crate) struct Server {
    pub(crate) app: Router,
    pub(crate) state: ApiState,
    pub(crate) double: Arc<Double>,
    pub(crate) store: Arc<SqliteStore>,
    _directory: tempfile::TempDir,
}

pub(crate) async fn server() -> Server {
    server_with(Policy::for_listener("127.0.0.1:7717".parse().unwrap())).await
}

pub(crate) async fn server_with(policy: Policy) -> Server {
    let directory = tempfile::tempdir().unwrap();
    let store =
        Arc::new(SqliteStore::open(&SqliteOptions::new(directory.path().join("data"))).unwrap());
    for id in ["default", "other"] {
        let project = Project {
            id: id.parse().unwrap(),
            name: id.into(),
            default_workspace_id: None,
        };
        store.create_project(project, None).await.unwrap();
    }
    let double = Arc::new(Double {
        script: Script::default(),
        store: store.clone(),
    });
    let state = state(double.clone(), policy);
    Server {
        app: router(state.clone()),
        state,
        double,
        store,
        _directory: directory,
    }
}

fn state(plane: Arc<dyn Plane>, policy: Policy) -> ApiState {
    ApiState::new(ApiParts {
        plane,
        providers: Arc::new(Operator),
        policy,
        bootstrap: Some(hash_token(ADMIN)),
        workspace_roots: vec![std::env::temp_dir()],
        metrics: Some(Arc::new(|| "harness_up 1\n".into())),
        join_trace: None,
        max_body: None,
        ping: None,
    })
}

impl Server {
    /// Serves that plane instead of the double.
    pub(crate) fn serve(&mut self, plane: Arc<dyn Plane>) {
        self.state = state(
            plane,
            Policy::for_listener("127.0.0.1:7717".parse().unwrap()),
        );
        self.app = router(self.state.clone());
    }

    /// Stores a token with these scopes, limited to these projects when there are any.
    pub(crate) async fn token(&self, scopes: &[TokenScope], projects: &[&str]) -> String {
        let secret = harness_api::new_token();
        let token = Token {
            id: TokenId::from(Uuid::now_v7()),
            name: "test".into(),
            scopes: scopes.to_vec(),
            projects: projects.iter().map(|p| p.parse().unwrap()).collect(),
            created_at_ms: 0,
        };
        self.store
            .create_token(NewToken {
                token,
                hash: hash_token(&secret),
            })
            .await
            .unwrap();
        secret
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.app.clone().oneshot(request).await.unwrap()
    }

    /// Sends it and reads the whole answer as JSON.
    pub(crate) async fn ask(&self, request: Request<Body>) -> (StatusCode, Value) {
        let response = self.send(request).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).unwrap()
        };
        (status, value)
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.ask(get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.ask(post(path, body)).await
    }

    /// Sends it and expects this problem.
    pub(crate) async fn refuses(&self, request: Request<Body>, status: u16, code: &str) -> Value {
        let what = format!("{} {}", request.method(), request.uri());
        let response = self.send(request).await;
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json",
            "{what}"
        );
        let id = response.headers()["x-request-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let got = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            (got, problem["code"].as_str().unwrap()),
            (status, code),
            "{what}: {problem}"
        );
        assert_eq!(problem["type"], format!("urn:harness-host:problem:{code}"));
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"], id);
        assert!(problem["retryable"].is_boolean() && problem["title"].is_string());
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| !detail.is_empty()),
            "{what}"
        );
        problem
    }
}

pub(crate) fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:7717")
        .header("authorization", format!("Bearer {ADMIN}"))
}

/// The same, with another token.
pub(crate) fn with_token(method: Method, path: &str, token: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:7717")
        .header("authorization", format!("Bearer {token}"))
}

pub(crate) fn get(path: &str) -> Request<Body> {
    request(Method::GET, path).body(Body::empty()).unwrap()
}

pub(crate) fn post(path: &str, body: Value) -> Request<Body> {
    request(Method::POST, path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

/// The same under an idempotency key.
pub(crate) fn keyed(path: &str, key: &str, body: Value) -> Request<Body> {
    let mut request = post(path, body);
    request
        .headers_mut()
        .insert("idempotency-key", key.parse().unwrap());
    request
}

/// `/v1/sessions/<the known one><rest>`.
pub(crate) fn at(rest: &str) -> String {
    format!("/v1/sessions/{SESSION}{rest}")
}

/// A snapshot of the known session.
pub(crate) fn snapshot() -> Item {
    Item::Snapshot {
        seq: 17,
        snapshot: Box::new(Snapshot {
            session: session(SESSION, "default"),
            loops: vec![],
            gates: vec![gate()],
            queued_inputs: vec![],
            uncertain_operations: vec![],
        }),
    }
}
