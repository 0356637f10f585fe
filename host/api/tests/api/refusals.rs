//! Bad input: every family of rejection is a problem document with its own code and a remedy.

use crate::support::*;
use axum::body::Body;
use http::{Method, Request};
use serde_json::json;
use uuid::Uuid;

fn raw(method: Method, path: &str, body: impl Into<Body>) -> Request<Body> {
    request(method, path)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

#[tokio::test]
async fn g2_bodies_are_strict() {
    let server = server().await;
    let commands = at("/harness-commands");
    let command = json!({"kind": "command", "text": "/goal"});
    for (path, body, named) in [
        (
            commands.clone(),
            json!({"operation": command, "extra": 1}),
            "extra",
        ),
        (
            commands.clone(),
            json!({"operation": {"kind": "command", "text": "/goal", "x": 1}}),
            "x",
        ),
        (
            commands.clone(),
            json!({"operation": {"kind": "shell", "text": "/goal"}}),
            "shell",
        ),
        (
            commands.clone(),
            json!({"operation": {"kind": "command", "text": 3}}),
            "operation",
        ),
        (
            commands.clone(),
            json!({"operation": {"kind": "command", "text": ""}}),
            "text",
        ),
        (
            commands.clone(),
            json!({"operation": command, "harnessId": "nope"}),
            "harnessId",
        ),
        (
            commands.clone(),
            json!({"operation": command, "harness_id": "demo/planner"}),
            "harness_id",
        ),
        (commands, json!([]), "one JSON object"),
        (at("/input"), json!({"blocks": []}), "blocks"),
        (
            at("/input"),
            json!({"blocks": [{"type": "image", "text": "a"}]}),
            "image",
        ),
        (
            at("/input"),
            json!({"blocks": [{"type": "text", "text": "a"}], "no_fold": true, "fold_only": true}),
            "no_fold",
        ),
        (at("/interrupt"), json!({"loop_id": "x"}), "loop_id"),
        (
            at("/queue/release"),
            json!({"command_ids": []}),
            "command_ids",
        ),
        (
            at(&format!("/gates/{GATE}")),
            json!({"action": "approve_once", "message": "x"}),
            "message",
        ),
        (
            "/v1/sessions/harness-command-state".into(),
            json!({"project_id": "default", "agent": "demo/planner", "x": 1}),
            "x",
        ),
        (
            "/v1/sessions/harness-command-state".into(),
            json!({"project_id": "", "agent": "demo/planner"}),
            "project_id",
        ),
        (
            "/v1/tokens".into(),
            json!({"name": "a", "scopes": []}),
            "scopes",
        ),
        (
            "/v1/tokens".into(),
            json!({"name": "a", "scopes": ["root"]}),
            "scopes",
        ),
        (
            "/v1/tokens".into(),
            json!({"name": "a", "scopes": ["read"], "projects": []}),
            "projects",
        ),
        (
            "/v1/providers".into(),
            json!({"component": "/x.wasm", "sha256": "AB"}),
            "sha256",
        ),
        (
            "/v1/providers".into(),
            json!({"component": "/x.wasm", "sha256": "0".repeat(64), "grants": []}),
            "grants",
        ),
        (
            "/v1/workspaces".into(),
            json!({"id": "w", "project_id": "default", "target": {"kind": "local", "root_path": "rel"}}),
            "root_path",
        ),
        (
            "/v1/workspaces".into(),
            json!({"id": "W!", "project_id": "default", "target": {"kind": "local", "root_path": "/w"}}),
            "id",
        ),
    ] {
        let problem = server
            .refuses(post(&path, body), 400, "invalid_request")
            .await;
        assert!(
            problem["detail"].as_str().unwrap().contains(named),
            "{path}: {problem}"
        );
    }
    assert!(
        server.double.calls().is_empty(),
        "nothing reached the plane"
    );
}

#[tokio::test]
async fn g2_wrong_type_is_named_with_its_path() {
    let server = server().await;
    let body = json!({"project_id": "default", "title": 3, "agent": "demo/planner", "prompt": []});
    let problem = server
        .refuses(post("/v1/sessions", body), 400, "invalid_request")
        .await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("`title`") && detail.contains("expected a string"),
        "{detail}"
    );
    let body = json!({"blocks": [{"type": "text", "text": "a"}], "loop_id": 7});
    let problem = server
        .refuses(post(&at("/input"), body), 400, "invalid_request")
        .await;
    assert!(
        problem["detail"].as_str().unwrap().contains("`loop_id`"),
        "{problem}"
    );
}

#[tokio::test]
async fn g2_a_list_does_not_stand_for_an_object() {
    let server = server().await;
    for (path, body) in [
        (
            at("/input"),
            json!([[{"type": "text", "text": "a"}], null, null, null]),
        ),
        (at("/input"), json!({"blocks": [["text", "a"]]})),
        (
            at("/harness-commands"),
            json!({"operation": ["command", "/note a"]}),
        ),
    ] {
        server
            .refuses(post(&path, body), 400, "invalid_request")
            .await;
    }
    assert!(server.double.calls().is_empty());
}

#[tokio::test]
async fn r43_exactly_one_of_prompt_and_operation() {
    let server = server().await;
    let base = json!({"project_id": "default", "title": "t", "agent": "demo/planner"});
    let with = |members: serde_json::Value| {
        let mut body = base.clone();
        body.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        body
    };
    let prompt = json!([{"type": "text", "text": "a"}]);
    let operation = json!({"kind": "command", "text": "/goal"});
    for body in [
        with(json!({})),
        with(json!({"prompt": prompt, "operation": operation})),
        with(json!({"prompt": prompt, "expectedRevision": "r"})),
        with(json!({"prompt": []})),
    ] {
        server
            .refuses(post("/v1/sessions", body), 400, "invalid_request")
            .await;
    }
    assert!(server.double.calls().is_empty());
}

#[tokio::test]
async fn g2_queries_are_strict() {
    let server = server().await;
    for path in [
        "/v1/sessions?limit=0".to_owned(),
        "/v1/sessions?limit=1001".into(),
        "/v1/sessions?limit=many".into(),
        "/v1/sessions?status=asleep".into(),
        "/v1/sessions?page=2".into(),
        "/v1/sessions?limit=1&limit=2".into(),
        "/v1/sessions?project_id=A!".into(),
        "/v1/sessions?cursor=bad".into(),
        "/v1/projects?cursor=bad".into(),
        "/v1/workspaces?cursor=bad".into(),
        "/v1/tokens?cursor=bad".into(),
        "/v1/harnesses?cursor=bad".into(),
        "/v1/capabilities?x=1".into(),
        at("?x=1"),
        at("/harness-commands?revision=1"),
        at("/queue?cursor=bad"),
        at("/loops?cursor=bad"),
        at("/loops?limit=0"),
        at("/loops?loop_id=1"),
        at("/messages?loop_id=x"),
        at("/gates?cursor=bad"),
        at("/journal?limit=1001"),
        at("/journal?limit=0"),
        at("/journal?from_journal_seq=-1"),
        at("/journal?from=1"),
        at("/events?after=x"),
        at("/events?enduring=some"),
        at("/events?ephemeral="),
        at("/events?ephemeral=all,none"),
        "/v1/providers/demo/planner/logs?limit=0".into(),
    ] {
        server.refuses(get(&path), 400, "invalid_request").await;
    }
}

#[tokio::test]
async fn r41_a_query_is_refused() {
    let server = server().await;
    server
        .refuses(
            get(&at("/harness-commands?model=m1")),
            400,
            "invalid_request",
        )
        .await;
}

#[tokio::test]
async fn s110_bodies_that_are_no_json_in_utf8() {
    let server = server().await;
    let path = at("/input");
    let problem = server
        .refuses(
            raw(Method::POST, &path, &b"{\"blocks\":\"\xff\"}"[..]),
            400,
            "invalid_request",
        )
        .await;
    assert!(
        problem["detail"].as_str().unwrap().contains("UTF-8"),
        "{problem}"
    );
    for body in ["{", "{}{}", "null", "{\"blocks\":", "[1]", "\u{feff}{}"] {
        server
            .refuses(raw(Method::POST, &path, body), 400, "invalid_request")
            .await;
    }
    let deep = "[".repeat(100_000);
    server
        .refuses(raw(Method::POST, &path, deep), 400, "invalid_request")
        .await;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
    ] {
        let request = request(Method::POST, &path)
            .header("content-type", kind)
            .body(Body::from("{}"))
            .unwrap();
        server.refuses(request, 415, "unsupported_media_type").await;
    }
    let untyped = request(Method::POST, &path).body(Body::from("{}")).unwrap();
    server.refuses(untyped, 415, "unsupported_media_type").await;
}

#[tokio::test]
async fn s110_a_body_of_3_mb_is_413() {
    let server = server().await;
    let text = "x".repeat(3 * 1024 * 1024);
    let body = json!({"blocks": [{"type": "text", "text": text}]}).to_string();
    server
        .refuses(
            raw(Method::POST, &at("/input"), body.clone()),
            413,
            "payload_too_large",
        )
        .await;
    // Without an announced length it is counted.
    let chunks = futures::stream::iter(
        body.into_bytes()
            .chunks(64 * 1024)
            .map(|c| Ok::<_, std::io::Error>(c.to_vec()))
            .collect::<Vec<_>>(),
    );
    server
        .refuses(
            raw(Method::POST, &at("/input"), Body::from_stream(chunks)),
            413,
            "payload_too_large",
        )
        .await;
}

#[tokio::test]
async fn r7_operation_input_beyond_its_limits_is_413() {
    let server = server().await;
    for operation in [
        json!({"kind": "command", "text": "x".repeat(1024 * 1024 + 1)}),
        json!({"kind": "mode-action", "modeId": "m", "actionId": "a", "argument": "x".repeat(256 * 1024 + 1)}),
    ] {
        server
            .refuses(
                post(&at("/harness-commands"), json!({"operation": operation})),
                413,
                "payload_too_large",
            )
            .await;
    }
    let deny = json!({"action": "deny", "message": "x".repeat(16 * 1024 + 1)});
    server
        .refuses(
            post(&at(&format!("/gates/{GATE}")), deny),
            413,
            "payload_too_large",
        )
        .await;
    assert!(server.double.calls().is_empty());
}

#[tokio::test]
async fn s110_unknown_ids_are_404_with_their_own_code() {
    let server = server().await;
    let nobody = Uuid::from_u128(99);
    let input = json!({"blocks": [{"type": "text", "text": "a"}]});
    for (request, code) in [
        (get(&format!("/v1/sessions/{nobody}")), "session_not_found"),
        (get("/v1/sessions/not-a-uuid"), "session_not_found"),
        (
            get(&format!("/v1/sessions/{nobody}/events")),
            "session_not_found",
        ),
        (
            get(&format!("/v1/sessions/{nobody}/journal")),
            "session_not_found",
        ),
        (
            post(&format!("/v1/sessions/{nobody}/input"), input),
            "session_not_found",
        ),
        (
            post(
                &at("/input"),
                json!({"blocks": [{"type": "text", "text": "a"}], "loop_id": nobody}),
            ),
            "loop_not_found",
        ),
        (
            post(
                &at(&format!("/gates/{nobody}")),
                json!({"action": "decline"}),
            ),
            "gate_not_found",
        ),
        (
            post(&at("/gates/x"), json!({"action": "decline"})),
            "gate_not_found",
        ),
        (get("/v1/harnesses/demo/other"), "harness_not_found"),
        (get("/v1/harnesses/DEMO/other"), "harness_not_found"),
        (get("/v1/providers/demo/other"), "provider_not_found"),
        (get("/v1/providers/demo/other/logs"), "provider_not_found"),
        (
            post("/v1/providers/demo/other/release", json!({})),
            "provider_not_found",
        ),
        (
            request(Method::DELETE, "/v1/providers/demo/other")
                .body(Body::empty())
                .unwrap(),
            "provider_not_found",
        ),
        (
            request(Method::DELETE, &format!("/v1/tokens/{nobody}"))
                .body(Body::empty())
                .unwrap(),
            "token_not_found",
        ),
        (get("/v1/projects/none"), "project_not_found"),
        (get("/v1/projects/No%20Slug"), "project_not_found"),
        (get("/v1/sessions?project_id=none"), "project_not_found"),
        (get("/v1/events?project_id=none"), "project_not_found"),
        (get("/v1/workspaces?project_id=none"), "project_not_found"),
        (get("/v1/workspaces/none"), "workspace_not_found"),
        (
            post(
                "/v1/sessions/harness-command-state",
                json!({"project_id": "none", "agent": "demo/planner"}),
            ),
            "project_not_found",
        ),
        (get("/v1/nothing"), "not_found"),
        (get("/nothing"), "not_found"),
        (
            get(&format!("/v1/sessions/{nobody}/loops")),
            "session_not_found",
        ),
        (
            get(&at(&format!("/messages?loop_id={nobody}"))),
            "loop_not_found",
        ),
        (
            post(&format!("/v1/sessions/{nobody}/shutdown"), json!({})),
            "session_not_found",
        ),
        (
            post(&format!("/v1/sessions/{nobody}/restore"), json!({})),
            "session_not_found",
        ),
        (
            post(&at("/processes/nobody/stop"), json!({})),
            "process_not_found",
        ),
        (post(&at("/pause"), json!({})), "not_found"),
    ] {
        server.refuses(request, 404, code).await;
    }
}

#[tokio::test]
async fn s110_wrong_method_is_405_with_allow() {
    let server = server().await;
    let request = request(Method::PUT, "/v1/sessions")
        .body(Body::empty())
        .unwrap();
    let response = server.send(request).await;
    assert_eq!(response.status(), 405);
    let allow = response.headers()["allow"].to_str().unwrap();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    let put = crate::support::request(Method::PUT, &at("/input"))
        .body(Body::empty())
        .unwrap();
    server.refuses(put, 405, "method_not_allowed").await;
}

#[tokio::test]
async fn s110_foreign_origins_and_hosts_are_refused_before_anything_else() {
    let server = server().await;
    let with = |name: &str, value: &str| {
        let mut request = post(&at("/interrupt"), json!({}));
        request.headers_mut().insert(
            http::HeaderName::try_from(name).unwrap(),
            value.parse().unwrap(),
        );
        request
    };
    server
        .refuses(
            with("origin", "https://evil.example"),
            403,
            "origin_refused",
        )
        .await;
    server
        .refuses(with("origin", "null"), 403, "origin_refused")
        .await;
    server
        .refuses(with("host", "evil.example:7717"), 421, "host_refused")
        .await;
    server
        .refuses(with("host", "127.0.0.1"), 421, "host_refused")
        .await;
    let mut open = get("/healthz");
    open.headers_mut()
        .insert("host", "evil.example".parse().unwrap());
    server.refuses(open, 421, "host_refused").await;
    assert!(server.double.calls().is_empty());
    let (status, _) = server.ask(with("origin", "http://127.0.0.1:7717")).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn s110_cors_only_for_configured_origins() {
    let policy = harness_api::Policy::for_listener("127.0.0.1:7717".parse().unwrap())
        .with_origins(["https://console.example.com".into()]);
    let server = server_with(policy).await;
    let preflight = |origin: &str| {
        request(Method::OPTIONS, &at("/input"))
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .body(Body::empty())
            .unwrap()
    };
    let response = server.send(preflight("https://console.example.com")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(
        response.headers()["access-control-allow-origin"],
        "https://console.example.com"
    );
    assert_eq!(
        server
            .send(preflight("https://evil.example"))
            .await
            .status(),
        403
    );
    let bare = crate::support::server().await;
    assert_eq!(
        bare.send(preflight("https://console.example.com"))
            .await
            .status(),
        403
    );
}

#[tokio::test]
async fn s110_a_panic_is_an_internal_problem_and_the_server_goes_on() {
    let server = server().await;
    *server.double.script.panics.lock().unwrap() = true;
    let operation = json!({"operation": {"kind": "command", "text": "/goal"}});
    let problem = server
        .refuses(
            post(&at("/harness-commands"), operation.clone()),
            500,
            "internal",
        )
        .await;
    assert!(!problem.to_string().contains("scripted"));
    *server.double.script.panics.lock().unwrap() = false;
    assert_eq!(
        server.post(&at("/harness-commands"), operation).await.0,
        200
    );
}

#[tokio::test]
async fn s110_an_operators_failure_does_not_leak_its_cause() {
    let server = server().await;
    let install = |component: &str| {
        post(
            "/v1/providers",
            json!({"component": component, "sha256": "0".repeat(64)}),
        )
    };
    let problem = server.refuses(install("/disk"), 500, "internal").await;
    assert!(!problem.to_string().contains("/secret"));
    server
        .refuses(install("/bin/true"), 400, "component_refused")
        .await;
}

#[tokio::test]
async fn s110_every_answer_names_its_request_and_is_not_cached() {
    let server = server().await;
    for path in ["/v1/capabilities", "/v1/nothing", "/healthz", "/docs/", "/"] {
        let mut request = get(path);
        request
            .headers_mut()
            .insert("x-request-id", "abc.1".parse().unwrap());
        let response = server.send(request).await;
        assert_eq!(response.headers()["x-request-id"], "abc.1", "{path}");
        assert_eq!(
            response.headers()["x-content-type-options"],
            "nosniff",
            "{path}"
        );
        let no_store = response
            .headers()
            .get("cache-control")
            .is_some_and(|value| value == "no-store");
        assert_eq!(no_store, path.starts_with("/v1"), "{path}");
    }
    let response = server.send(get("/v1/capabilities")).await;
    let id: Uuid = response.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(id.get_version_num(), 7);
}

#[tokio::test]
async fn s105_gate_answers_are_matched_to_their_gate() {
    let server = server().await;
    let gate = at(&format!("/gates/{GATE}"));
    server
        .refuses(
            post(&gate, json!({"action": "approve"})),
            400,
            "gate_action_invalid",
        )
        .await;
    server
        .refuses(
            post(&gate, json!({"action": "approve_always_workspace"})),
            400,
            "gate_action_invalid",
        )
        .await;
    assert!(server.double.calls().is_empty());
}

#[tokio::test]
async fn s89_an_answer_cannot_say_who_gave_it() {
    let server = server().await;
    let gate = at(&format!("/gates/{GATE}"));
    for key in ["source", "caller", "agency"] {
        let mut body = json!({"action": "approve_once"});
        body[key] = json!("policy");
        let problem = server
            .refuses(post(&gate, body), 400, "invalid_request")
            .await;
        assert!(problem["detail"].as_str().unwrap().contains(key));
    }
    assert!(server.double.calls().is_empty());
}
