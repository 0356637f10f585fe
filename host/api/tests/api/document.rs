//! The OpenAPI document and the router say the same (G1).

use crate::support::*;
use axum::body::Body;
use http::Method;
use http_body_util::BodyExt;
use serde_json::Value;

/// Routes of the wire contract: method and path.
const CONTRACT: &[&str] = &[
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /v1/capabilities",
    "GET /v1/harnesses",
    "GET /v1/harnesses/{publisher}/{name}",
    "GET /v1/projects",
    "POST /v1/projects",
    "GET /v1/projects/{project_id}",
    "GET /v1/workspaces",
    "POST /v1/workspaces",
    "GET /v1/workspaces/{workspace_id}",
    "POST /v1/sessions/harness-command-state",
    "POST /v1/sessions",
    "GET /v1/sessions",
    "GET /v1/sessions/{session_id}",
    "PATCH /v1/sessions/{session_id}",
    "DELETE /v1/sessions/{session_id}",
    "POST /v1/sessions/{session_id}/shutdown",
    "POST /v1/sessions/{session_id}/restore",
    "GET /v1/sessions/{session_id}/messages",
    "GET /v1/sessions/{session_id}/harness-commands",
    "POST /v1/sessions/{session_id}/harness-commands",
    "POST /v1/sessions/{session_id}/input",
    "GET /v1/sessions/{session_id}/queue",
    "DELETE /v1/sessions/{session_id}/queue/{command_id}",
    "POST /v1/sessions/{session_id}/queue/release",
    "POST /v1/sessions/{session_id}/interrupt",
    "GET /v1/sessions/{session_id}/loops",
    "POST /v1/sessions/{session_id}/loops",
    "POST /v1/sessions/{session_id}/active-loop",
    "POST /v1/sessions/{session_id}/loops/{loop_id}/mode",
    "POST /v1/sessions/{session_id}/loops/{loop_id}/inference",
    "POST /v1/sessions/{session_id}/compact",
    "POST /v1/sessions/{session_id}/workspace/checkpoint",
    "POST /v1/sessions/{session_id}/workspace/restore",
    "GET /v1/sessions/{session_id}/processes",
    "POST /v1/sessions/{session_id}/processes/{process_handle}/stop",
    "GET /v1/sessions/{session_id}/gates",
    "POST /v1/sessions/{session_id}/gates/{gate_id}",
    "GET /v1/sessions/{session_id}/events",
    "GET /v1/sessions/{session_id}/journal",
    "GET /v1/events",
    "GET /v1/providers",
    "POST /v1/providers",
    "GET /v1/providers/{publisher}/{name}",
    "DELETE /v1/providers/{publisher}/{name}",
    "POST /v1/providers/{publisher}/{name}/release",
    "GET /v1/providers/{publisher}/{name}/logs",
    "GET /v1/tokens",
    "POST /v1/tokens",
    "DELETE /v1/tokens/{token_id}",
];

fn document() -> Value {
    serde_json::to_value(harness_api::document()).unwrap()
}

/// Every documented operation.
fn operations(document: &Value) -> Vec<(Method, String, Value)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ] {
            if let Some(operation) = item.get(method.as_str().to_lowercase()) {
                found.push((method, path.clone(), operation.clone()));
            }
        }
    }
    found
}

fn concrete(path: &str) -> String {
    path.replace("{session_id}", &SESSION.to_string())
        .replace("{command_id}", &COMMAND.to_string())
        .replace("{loop_id}", &LOOP.to_string())
        .replace("{gate_id}", &GATE.to_string())
        .replace("{process_handle}", "build-1")
        .replace("{token_id}", &COMMAND.to_string())
        .replace("{project_id}", "default")
        .replace("{workspace_id}", "none")
        .replace("{publisher}", "demo")
        .replace("{name}", "planner")
}

#[test]
fn g1_the_document_has_the_routes_of_the_contract_and_no_other() {
    let mut documented: Vec<String> = operations(&document())
        .iter()
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    let mut contract: Vec<String> = CONTRACT.iter().map(|&route| route.to_owned()).collect();
    documented.sort();
    contract.sort();
    assert_eq!(documented, contract);
}

#[tokio::test]
async fn g1_every_documented_route_is_routed_and_takes_no_other_method() {
    let server = server().await;
    let operations = operations(&document());
    for (_, path, _) in &operations {
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ] {
            let documented = operations.iter().any(|(m, p, _)| p == path && *m == method);
            let request = request(method.clone(), &concrete(path))
                .body(Body::empty())
                .unwrap();
            let response = server.send(request).await;
            let status = response.status().as_u16();
            assert_eq!(status != 405, documented, "{method} {path}: {status}");
            if documented && status == 404 {
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                let problem: Value = serde_json::from_slice(&bytes).unwrap();
                assert_ne!(problem["code"], "not_found", "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn g1_every_documented_example_is_accepted() {
    let server = server().await;
    let mut seen = 0;
    for (method, path, operation) in operations(&document()) {
        let Some(body) = operation.get("requestBody") else {
            continue;
        };
        let media = &body["content"]["application/json"];
        let mut examples: Vec<Value> = media.get("example").cloned().into_iter().collect();
        if let Some(named) = media.get("examples").and_then(Value::as_object) {
            examples.extend(named.values().map(|example| example["value"].clone()));
        }
        assert!(
            !examples.is_empty(),
            "{method} {path} has a body and no example"
        );
        for example in examples {
            let request = request(method.clone(), &concrete(&path))
                .header("content-type", "application/json")
                .body(Body::from(example.to_string()))
                .unwrap();
            let (status, answer) = server.ask(request).await;
            assert!(
                status.is_success(),
                "{method} {path} {example}: {status} {answer}"
            );
            seen += 1;
        }
    }
    assert!(seen >= 15, "only {seen} examples");
}

#[test]
fn g1_every_reference_leads_somewhere() {
    let document = document();
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(
            document.pointer(pointer).is_some(),
            "{pointer} leads nowhere"
        );
    }
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
}

#[test]
fn s110_every_operation_documents_problems_and_security() {
    let document = document();
    for (method, path, operation) in operations(&document) {
        assert_eq!(
            operation["responses"]["default"]["$ref"], "#/components/responses/Problem",
            "{method} {path}"
        );
        let open = matches!(path.as_str(), "/healthz" | "/readyz");
        assert_eq!(operation["security"].is_array(), !open, "{method} {path}");
        assert!(
            operation["summary"].is_string(),
            "{method} {path} says nothing of itself"
        );
    }
    let codes = document["components"]["schemas"]["Code"].to_string();
    for code in harness_api::Code::ALL {
        assert!(
            codes.contains(&format!("\"{}\"", code.as_str())),
            "{} is not in the schema",
            code.as_str()
        );
    }
    assert_eq!(
        document["components"]["securitySchemes"]["token"]["scheme"],
        "bearer"
    );
}

#[tokio::test]
async fn g1_the_document_is_served_and_its_page_needs_no_other_server() {
    let server = server().await;
    let (status, served) = server.get("/openapi.json").await;
    assert_eq!(status, 200);
    assert_eq!(served, document());
    let response = server.send(get("/docs")).await;
    assert_eq!(response.headers()["location"], "/docs/");
    for path in ["/", "/docs/"] {
        let response = server.send(get(path)).await;
        assert_eq!(response.status(), 200, "{path}");
        let policy = response.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("script-src 'self';"),
            "{policy}"
        );
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let page = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(
            !page.contains("src=\"http") && !page.contains("href=\"http"),
            "{page}"
        );
        // The policy forbids inline scripts, so there must be none.
        assert!(
            page.split("<script").skip(1).all(|tag| tag
                .split('>')
                .next()
                .unwrap()
                .contains("src=")),
            "{page}"
        );
    }
    for asset in [
        "swagger-ui.css",
        "swagger-ui-bundle.js",
        "swagger-initializer.js",
    ] {
        assert_eq!(
            server.send(get(&format!("/docs/{asset}"))).await.status(),
            200,
            "{asset}"
        );
    }
    server.refuses(get("/docs/none.js"), 404, "not_found").await;
}

#[test]
fn g1_streams_document_the_events_that_clients_see() {
    let document = document();
    let events = document["components"]["schemas"]["EventBody"].to_string();
    for name in [
        "TurnStarted",
        "TokenDelta",
        "GateOpened",
        "NativeOperationResolved",
        "command_state_changed",
    ] {
        assert!(events.contains(&format!("\"{name}\"")), "{name}");
    }
    assert!(!events.contains("GatePrepared"), "a private record");
    let stream = &document["paths"]["/v1/sessions/{session_id}/events"]["get"]["responses"]["200"];
    assert!(
        stream["content"]["text/event-stream"]["schema"]
            .to_string()
            .contains("FrameData")
    );
}
