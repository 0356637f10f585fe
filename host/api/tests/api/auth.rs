//! Who may do what: scopes and projects, route by route.

use crate::support::*;
use axum::body::Body;
use harness_journal::TokenScope::{Admin, Invoke, Read};
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

/// Every route under `/v1` (and `/metrics`), the scope it needs and a body it takes.
fn routes() -> Vec<(Method, String, harness_journal::TokenScope, Option<Value>)> {
    let text = json!([{"type": "text", "text": "a"}]);
    let operation = json!({"kind": "command", "text": "/goal"});
    let get = |path: &str, scope| (Method::GET, path.to_owned(), scope, None);
    let post = |path: String, scope, body| (Method::POST, path, scope, Some(body));
    vec![
        get("/metrics", Admin),
        get("/v1/capabilities", Read),
        get("/v1/harnesses", Read),
        get("/v1/harnesses/demo/planner", Read),
        get("/v1/projects", Read),
        get("/v1/projects/default", Read),
        post("/v1/projects".into(), Admin, json!({"id": "fresh"})),
        get("/v1/workspaces", Read),
        post(
            "/v1/workspaces".into(),
            Admin,
            json!({"id": "w1", "project_id": "default", "target": {"kind": "local", "root_path": "/w"}}),
        ),
        get("/v1/workspaces/w1", Read),
        post(
            "/v1/sessions/harness-command-state".into(),
            Read,
            json!({"project_id": "default", "agent": "demo/planner"}),
        ),
        post(
            "/v1/sessions".into(),
            Invoke,
            json!({"project_id": "default", "title": "t", "agent": "demo/planner", "prompt": text}),
        ),
        get("/v1/sessions", Read),
        get(&at(""), Read),
        (Method::PATCH, at(""), Invoke, Some(json!({"title": "t"}))),
        post(at("/shutdown"), Invoke, json!({})),
        post(at("/restore"), Invoke, json!({})),
        post(at("/workspace/checkpoint"), Invoke, json!({})),
        post(
            at("/workspace/restore"),
            Invoke,
            json!({"ref": format!("v1:sha256:{}", "0a".repeat(32))}),
        ),
        get(&at("/messages"), Read),
        get(&at("/harness-commands"), Read),
        post(
            at("/harness-commands"),
            Invoke,
            json!({"operation": operation}),
        ),
        post(at("/input"), Invoke, json!({"blocks": text})),
        get(&at("/queue"), Read),
        (
            Method::DELETE,
            at(&format!("/queue/{COMMAND}")),
            Invoke,
            None,
        ),
        post(at("/queue/release"), Invoke, json!({})),
        post(at("/interrupt"), Invoke, json!({})),
        get(&at("/processes"), Read),
        post(at("/processes/build-1/stop"), Invoke, json!({})),
        get(&at("/loops"), Read),
        post(at("/loops"), Invoke, json!({"agent": "demo/planner"})),
        post(at("/active-loop"), Invoke, json!({"loop_id": LOOP})),
        post(
            at(&format!("/loops/{LOOP}/mode")),
            Invoke,
            json!({"mode": ""}),
        ),
        post(
            at(&format!("/loops/{LOOP}/inference")),
            Invoke,
            json!({"model": "m1"}),
        ),
        post(at("/compact"), Invoke, json!({})),
        get(&at("/gates"), Read),
        post(
            at(&format!("/gates/{GATE}")),
            Invoke,
            json!({"action": "approve_once"}),
        ),
        get(&at("/events"), Read),
        get(&at("/journal"), Read),
        get("/v1/events", Read),
        (Method::DELETE, at(""), Invoke, None),
        get("/v1/providers", Admin),
        post(
            "/v1/providers".into(),
            Admin,
            json!({"component": "/x.wasm", "sha256": "0".repeat(64)}),
        ),
        get("/v1/providers/demo/planner", Admin),
        post(
            "/v1/providers/demo/planner/release".into(),
            Admin,
            json!({}),
        ),
        get("/v1/providers/demo/planner/logs", Admin),
        (
            Method::DELETE,
            "/v1/providers/demo/planner".into(),
            Admin,
            None,
        ),
        get("/v1/tokens", Admin),
        post(
            "/v1/tokens".into(),
            Admin,
            json!({"name": "t", "scopes": ["read"]}),
        ),
        (Method::DELETE, format!("/v1/tokens/{COMMAND}"), Admin, None),
    ]
}

fn build(method: &Method, path: &str, token: Option<&str>, body: &Option<Value>) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:7717");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    match body {
        None => request.body(Body::empty()).unwrap(),
        Some(body) => request
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap(),
    }
}

#[tokio::test]
async fn g4_every_route_needs_a_token_and_exactly_its_scope() {
    let server = server().await;
    let tokens = [
        (Read, server.token(&[Read], &[]).await),
        (Invoke, server.token(&[Invoke], &[]).await),
        (Admin, server.token(&[Admin], &[]).await),
    ];
    for (method, path, scope, body) in routes() {
        server
            .refuses(build(&method, &path, None, &body), 401, "unauthenticated")
            .await;
        server
            .refuses(
                build(&method, &path, Some("nonsense"), &body),
                401,
                "unauthenticated",
            )
            .await;
        for (has, token) in &tokens {
            let request = build(&method, &path, Some(token), &body);
            if *has == scope {
                let status = server.send(request).await.status();
                let missing = path.starts_with("/v1/tokens/");
                assert!(
                    status.is_success() || (missing && status == 404),
                    "{method} {path}: {status}"
                );
            } else {
                let problem = server.refuses(request, 403, "forbidden").await;
                assert!(
                    problem["detail"].as_str().unwrap().contains("scope"),
                    "{problem}"
                );
            }
        }
    }
}

#[tokio::test]
async fn g4_the_table_of_routes_is_the_documented_one() {
    let document = serde_json::to_value(harness_api::document()).unwrap();
    let documented: usize = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(path, _)| path.starts_with("/v1") || *path == "/metrics")
        .map(|(_, item)| {
            ["get", "post", "patch", "delete"]
                .iter()
                .filter(|m| item.get(**m).is_some())
                .count()
        })
        .sum();
    assert_eq!(
        routes().len(),
        documented,
        "a route is missing in the matrix of scopes"
    );
}

#[tokio::test]
async fn g4_malformed_credentials_are_401_with_a_challenge() {
    let server = server().await;
    for value in [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "bearer-token",
        &format!("Bearer {}", "x".repeat(600)),
    ] {
        let request = Request::builder()
            .uri("/v1/capabilities")
            .header("host", "127.0.0.1:7717")
            .header("authorization", value)
            .body(Body::empty())
            .unwrap();
        let response = server.send(request).await;
        assert_eq!(response.status(), 401, "{value}");
        assert!(
            response.headers()["www-authenticate"]
                .to_str()
                .unwrap()
                .starts_with("Bearer")
        );
    }
    let mut twice = get("/v1/capabilities");
    twice
        .headers_mut()
        .append("authorization", format!("Bearer {ADMIN}").parse().unwrap());
    server.refuses(twice, 401, "unauthenticated").await;
}

#[tokio::test]
async fn g4_open_routes_need_no_token() {
    let server = server().await;
    for path in ["/healthz", "/readyz", "/openapi.json", "/docs/", "/"] {
        let request = Request::builder()
            .uri(path)
            .header("host", "localhost:7717")
            .body(Body::empty())
            .unwrap();
        assert_eq!(server.send(request).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn s110_what_lies_outside_a_tokens_projects_does_not_exist_for_it() {
    let server = server().await;
    let token = server.token(&[Read, Invoke, Admin], &["default"]).await;
    let foreign = |rest: &str| format!("/v1/sessions/{FOREIGN}{rest}");
    let text = json!([{"type": "text", "text": "a"}]);
    for (method, path, body, code) in [
        (Method::GET, foreign(""), None, "session_not_found"),
        (Method::GET, foreign("/messages"), None, "session_not_found"),
        (
            Method::GET,
            foreign("/harness-commands"),
            None,
            "session_not_found",
        ),
        (Method::GET, foreign("/events"), None, "session_not_found"),
        (Method::GET, foreign("/journal"), None, "session_not_found"),
        (Method::GET, foreign("/gates"), None, "session_not_found"),
        (Method::GET, foreign("/queue"), None, "session_not_found"),
        (
            Method::POST,
            foreign("/interrupt"),
            Some(json!({})),
            "session_not_found",
        ),
        (
            Method::POST,
            foreign("/shutdown"),
            Some(json!({})),
            "session_not_found",
        ),
        (
            Method::GET,
            foreign("/processes"),
            None,
            "session_not_found",
        ),
        (
            Method::POST,
            foreign("/processes/build-1/stop"),
            Some(json!({})),
            "session_not_found",
        ),
        (
            Method::POST,
            foreign("/restore"),
            Some(json!({})),
            "session_not_found",
        ),
        (
            Method::POST,
            foreign("/input"),
            Some(json!({"blocks": text})),
            "session_not_found",
        ),
        (
            Method::POST,
            foreign(&format!("/gates/{GATE}")),
            Some(json!({"action": "deny"})),
            "session_not_found",
        ),
        (Method::DELETE, foreign(""), None, "session_not_found"),
        (
            Method::PATCH,
            foreign(""),
            Some(json!({"title": "t"})),
            "session_not_found",
        ),
        (
            Method::GET,
            "/v1/projects/other".into(),
            None,
            "project_not_found",
        ),
        (
            Method::GET,
            "/v1/sessions?project_id=other".into(),
            None,
            "project_not_found",
        ),
        (
            Method::GET,
            "/v1/events?project_id=other".into(),
            None,
            "project_not_found",
        ),
        (
            Method::POST,
            "/v1/sessions".into(),
            Some(
                json!({"project_id": "other", "title": "t", "agent": "demo/planner", "prompt": text}),
            ),
            "project_not_found",
        ),
        (
            Method::POST,
            "/v1/sessions/harness-command-state".into(),
            Some(json!({"project_id": "other", "agent": "demo/planner"})),
            "project_not_found",
        ),
        (
            Method::POST,
            "/v1/workspaces".into(),
            Some(
                json!({"id": "w", "project_id": "other", "target": {"kind": "local", "root_path": "/w"}}),
            ),
            "project_not_found",
        ),
    ] {
        server
            .refuses(build(&method, &path, Some(&token), &body), 404, code)
            .await;
    }
    assert!(server.double.calls().is_empty());
    let (_, sessions) = server
        .ask(build(&Method::GET, "/v1/sessions", Some(&token), &None))
        .await;
    assert_eq!(sessions["items"].as_array().unwrap().len(), 1);
    let (_, projects) = server
        .ask(build(&Method::GET, "/v1/projects", Some(&token), &None))
        .await;
    assert_eq!(projects["items"][0]["id"], "default");
    assert_eq!(projects["items"].as_array().unwrap().len(), 1);
    for path in ["/v1/providers", "/v1/tokens", "/metrics"] {
        server
            .refuses(
                build(&Method::GET, path, Some(&token), &None),
                403,
                "forbidden",
            )
            .await;
    }
}

#[tokio::test]
async fn s110_a_token_is_shown_once_works_at_once_and_not_after_it_is_revoked() {
    let server = server().await;
    let (status, made) = server
        .post(
            "/v1/tokens",
            json!({"name": "ci", "scopes": ["read"], "projects": ["default"]}),
        )
        .await;
    assert_eq!(status, 201);
    let secret = made["token"].as_str().unwrap().to_owned();
    let (_, listed) = server.get("/v1/tokens").await;
    assert_eq!(listed["items"][0]["name"], "ci");
    assert!(listed["items"][0].get("token").is_none() && !listed.to_string().contains(&secret));

    let stream = server
        .send(build(&Method::GET, "/v1/events", Some(&secret), &None))
        .await;
    assert_eq!(stream.status(), 200);
    let revoke = format!("/v1/tokens/{}", made["id"].as_str().unwrap());
    let response = server
        .send(
            request(Method::DELETE, &revoke)
                .body(Body::empty())
                .unwrap(),
        )
        .await;
    assert_eq!(response.status(), 204);
    server
        .refuses(
            build(&Method::GET, "/v1/events", Some(&secret), &None),
            401,
            "unauthenticated",
        )
        .await;
    // Its stream ends.
    stream.into_body().collect().await.unwrap();
}

#[tokio::test]
async fn s120_callers_are_told_apart() {
    let server = server().await;
    let token = server.token(&[Invoke], &[]).await;
    let body = Some(json!({"blocks": [{"type": "text", "text": "a"}]}));
    server
        .send(build(&Method::POST, &at("/input"), Some(&token), &body))
        .await;
    server
        .send(build(&Method::POST, &at("/input"), Some(ADMIN), &body))
        .await;
    let callers = server.double.script.callers.lock().unwrap();
    let identities: Vec<_> = callers
        .iter()
        .map(|caller| caller.identity.clone().unwrap())
        .collect();
    assert!(identities[0].starts_with("token:") && identities[0].len() <= 256);
    assert_eq!(identities[1], "bootstrap");
    assert!(!identities[0].contains(&token));
}

#[tokio::test]
async fn s110_a_limited_token_chooses_directories_beneath_the_operators_roots_only() {
    let server = server().await;
    let token = server.token(&[Read, Admin], &["default"]).await;
    let make = |id: &str, target: Value| {
        let body = json!({"id": id, "project_id": "default", "target": target});
        build(&Method::POST, "/v1/workspaces", Some(&token), &Some(body))
    };
    let local = |path: &std::path::Path| json!({"kind": "local", "root_path": path});
    let told = server
        .refuses(make("out", local("/etc".as_ref())), 403, "forbidden")
        .await;
    assert!(told["detail"].as_str().unwrap().contains("workspace.roots"));
    let beneath = std::env::temp_dir().join("harness-api-not-made");
    let (status, _) = server.ask(make("in", local(&beneath))).await;
    assert_eq!(status, 201);
    let remote = json!({"kind": "remote", "host": "h", "path": "/p"});
    assert_eq!(server.ask(make("far", remote)).await.0, 201);
    // One without the limit chooses freely.
    let body = json!({"id": "free", "project_id": "default", "target": local("/srv/x".as_ref())});
    assert_eq!(server.post("/v1/workspaces", body).await.0, 201);
}
