//! The API's description against what the host answers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_tests::{Client, Exchange, Setup};
use jsonschema::Validator;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The routes of this build. One that is added or removed has to be added or removed here.
const ROUTES: &[(&str, &str)] = &[
    ("get", "/healthz"),
    ("get", "/readyz"),
    ("get", "/metrics"),
    ("get", "/v1/capabilities"),
    ("get", "/v1/harnesses"),
    ("get", "/v1/harnesses/{publisher}/{name}"),
    ("get", "/v1/projects"),
    ("post", "/v1/projects"),
    ("get", "/v1/projects/{project_id}"),
    ("get", "/v1/workspaces"),
    ("post", "/v1/workspaces"),
    ("get", "/v1/workspaces/{workspace_id}"),
    ("post", "/v1/sessions/harness-command-state"),
    ("get", "/v1/sessions"),
    ("post", "/v1/sessions"),
    ("get", "/v1/sessions/{session_id}"),
    ("patch", "/v1/sessions/{session_id}"),
    ("delete", "/v1/sessions/{session_id}"),
    ("post", "/v1/sessions/{session_id}/shutdown"),
    ("post", "/v1/sessions/{session_id}/restore"),
    ("get", "/v1/sessions/{session_id}/messages"),
    ("get", "/v1/sessions/{session_id}/harness-commands"),
    ("post", "/v1/sessions/{session_id}/harness-commands"),
    ("post", "/v1/sessions/{session_id}/input"),
    ("get", "/v1/sessions/{session_id}/queue"),
    ("delete", "/v1/sessions/{session_id}/queue/{command_id}"),
    ("post", "/v1/sessions/{session_id}/queue/release"),
    ("post", "/v1/sessions/{session_id}/interrupt"),
    ("get", "/v1/sessions/{session_id}/loops"),
    ("post", "/v1/sessions/{session_id}/loops"),
    ("post", "/v1/sessions/{session_id}/active-loop"),
    ("post", "/v1/sessions/{session_id}/loops/{loop_id}/mode"),
    (
        "post",
        "/v1/sessions/{session_id}/loops/{loop_id}/inference",
    ),
    ("post", "/v1/sessions/{session_id}/compact"),
    ("post", "/v1/sessions/{session_id}/workspace/checkpoint"),
    ("post", "/v1/sessions/{session_id}/workspace/restore"),
    ("get", "/v1/sessions/{session_id}/processes"),
    (
        "post",
        "/v1/sessions/{session_id}/processes/{process_handle}/stop",
    ),
    ("get", "/v1/sessions/{session_id}/gates"),
    ("post", "/v1/sessions/{session_id}/gates/{gate_id}"),
    ("get", "/v1/sessions/{session_id}/events"),
    ("get", "/v1/sessions/{session_id}/journal"),
    ("get", "/v1/events"),
    ("get", "/v1/providers"),
    ("post", "/v1/providers"),
    ("get", "/v1/providers/{publisher}/{name}"),
    ("delete", "/v1/providers/{publisher}/{name}"),
    ("post", "/v1/providers/{publisher}/{name}/release"),
    ("get", "/v1/providers/{publisher}/{name}/logs"),
    ("get", "/v1/tokens"),
    ("post", "/v1/tokens"),
    ("delete", "/v1/tokens/{token_id}"),
];

/// A path of the description without the names of its parameters.
fn shape(path: &str) -> String {
    let parts = path
        .split('/')
        .map(|part| if part.starts_with('{') { "{}" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Whether a path that was requested is one of a template; fixed words win over parameters.
fn template<'a>(document: &'a Value, path: &str) -> Option<&'a str> {
    let path = path.split('?').next().unwrap();
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |template: &&String| {
        let wanted: Vec<&str> = template.split('/').collect();
        wanted.len() == parts.len()
            && wanted
                .iter()
                .zip(&parts)
                .all(|(want, part)| want.starts_with('{') || want == part)
    };
    let paths = document["paths"].as_object().unwrap();
    let found = paths
        .keys()
        .filter(fits)
        .min_by_key(|template| template.matches('{').count());
    found.map(String::as_str)
}

/// The schema of an answer, if it has a body.
fn schema(document: &Value, exchange: &Exchange) -> Option<Value> {
    let path = template(document, &exchange.path)
        .unwrap_or_else(|| panic!("{} is not documented", exchange.path));
    let method = exchange.method.as_str().to_lowercase();
    let operation = &document["paths"][path][method.as_str()];
    assert!(operation.is_object(), "{method} {path} is not documented");
    let status = exchange.answer.status.to_string();
    let responses = &operation["responses"];
    let mut response = match responses.get(&status) {
        Some(response) => response,
        None => {
            assert!(
                exchange.answer.status >= 400,
                "{method} {path}: {status} is not documented"
            );
            &responses["default"]
        }
    };
    if let Some(reference) = response["$ref"].as_str() {
        response = document.pointer(reference.trim_start_matches('#')).unwrap();
    }
    let content = response["content"].as_object()?;
    let kind = exchange.answer.headers["content-type"].to_str().unwrap();
    let kind = kind.split(';').next().unwrap();
    let body = content
        .get(kind)
        .unwrap_or_else(|| panic!("{method} {path}: {status} as {kind} is not documented"));
    Some(body["schema"].clone())
}

fn validator(document: &Value, schema: Value) -> Validator {
    let mut whole = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document["components"]});
    for (key, value) in schema.as_object().unwrap() {
        whole[key] = value.clone();
    }
    jsonschema::validator_for(&whole).expect("the description's schemas are schemas")
}

/// Every kind of answer a client meets on its way.
async fn journey(client: &Client) {
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/capabilities",
        "/v1/harnesses",
        "/v1/harnesses/demo/planner",
        "/v1/projects",
        "/v1/projects/default",
        "/v1/workspaces",
        "/v1/workspaces/default",
        "/v1/providers",
        "/v1/providers/demo/planner",
        "/v1/providers/demo/planner/logs?limit=10",
        "/v1/tokens",
    ] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    client
        .post("/v1/projects", json!({"id": "p", "name": "P"}))
        .await
        .ok(201);
    let target = json!({"kind": "remote", "host": "example.org", "path": "/srv"});
    client
        .post(
            "/v1/workspaces",
            json!({"id": "w", "project_id": "p", "target": target}),
        )
        .await
        .ok(201);
    client.get("/v1/workspaces/w").await.ok(200);
    let token = client
        .post(
            "/v1/tokens",
            json!({"name": "t", "scopes": ["read"], "projects": ["p"]}),
        )
        .await
        .ok(201);
    client.get("/v1/tokens").await.ok(200);
    let id = token["id"].as_str().unwrap();
    assert_eq!(client.delete(&format!("/v1/tokens/{id}")).await.status, 204);
    client
        .post("/v1/providers/demo/planner/release", json!({}))
        .await;
    client
        .post(
            "/v1/providers",
            json!({"component": "/none.wasm", "sha256": "0".repeat(64)}),
        )
        .await;

    let draft = json!({"project_id": "default", "agent": "demo/planner"});
    client
        .post("/v1/sessions/harness-command-state", draft)
        .await
        .ok(200);
    let goal = client.commanded("demo/planner", "/goal see it all").await;
    goal.state().await;
    goal.interrupt().await;
    goal.until_idle().await;
    goal.state().await;
    let session = client.prompted("demo/planner", "hello").await;
    session.until_idle().await;
    session.command("/note hello").await.ok(200);
    session
        .command("/nonsense")
        .await
        .problem(400, "invalid_argument");
    session.prompt("demo:approval").await;
    let gate = session.gate().await;
    session.prompt("waits").await;
    let queued = session.list("/queue").await;
    let waiting = queued[0]["command_id"].as_str().unwrap();
    client
        .delete(&session.path(&format!("/queue/{waiting}")))
        .await
        .ok(200);
    session
        .answer(&gate, json!({"action": "dance"}))
        .await
        .problem(400, "gate_action_invalid");
    session
        .answer(&gate, json!({"action": "decline"}))
        .await
        .problem(400, "gate_kind_mismatch");
    session
        .answer(&gate, json!({"action": "approve_once"}))
        .await
        .ok(202);
    session.until_idle().await;
    session.prompt("demo:question").await;
    let gate = session.gate().await;
    session
        .command("/work 1")
        .await
        .problem(409, "session_busy");
    session
        .answer(
            &gate,
            json!({"action": "answer", "values": {"answers": [["x"]]}}),
        )
        .await
        .ok(202);
    session.until_idle().await;
    session.prompt("demo:fail").await;
    session.until_status("failed").await;
    session.command("/plan all of it").await.ok(200);
    session.until_idle().await;
    session.state().await;
    session
        .action("plan", "approve", Some("stale"))
        .await
        .problem(409, "stale_state");
    let review = json!({"agent": "demo/planner", "model": "m1", "mode": "review"});
    let review = session.begin_loop(review).await;
    session.activate(&review).await;
    for (what, body) in [
        ("mode", json!({"mode": ""})),
        ("inference", json!({"model": "m2"})),
    ] {
        let path = session.path(&format!("/loops/{review}/{what}"));
        client.post(&path, body).await.ok(200);
        client.post(&path, json!({})).await.problem(
            400,
            if what == "mode" {
                "invalid_request"
            } else {
                "no_changes"
            },
        );
    }
    session.compact().await;
    session.until_idle().await;
    let checkpoint = session.path("/workspace/checkpoint");
    let taken = client.post(&checkpoint, json!({})).await.ok(200);
    let restore = session.path("/workspace/restore");
    client.post(&restore, taken).await.ok(200);
    let unknown = json!({"ref": format!("v1:sha256:{}", "0".repeat(64))});
    let unknown = client.post(&restore, unknown).await;
    unknown.problem(404, "ref_not_found");
    session.list("/loops").await;
    session.list("/processes").await;
    session.messages_of(&review).await;
    session.messages().await;
    session.journal().await;
    client
        .post(&session.path("/queue/release"), json!({}))
        .await
        .ok(200);
    let patch = client
        .request(Method::PATCH, &session.path(""))
        .json(&json!({"title": "new"}));
    client.send(patch).await.unwrap().ok(200);
    client.get("/v1/sessions").await.ok(200);
    client
        .get("/v1/sessions?status=failed&limit=1")
        .await
        .ok(200);
    client
        .get("/v1/sessions/nonsense")
        .await
        .problem(404, "session_not_found");
    for rest in ["/shutdown", "/restore"] {
        client.post(&session.path(rest), json!({})).await.ok(200);
    }
    assert_eq!(client.delete(&session.path("")).await.status, 204);
    client
        .delete("/v1/providers/no/body")
        .await
        .problem(404, "provider_not_found");
    client
        .with_token(None)
        .get("/v1/sessions")
        .await
        .problem(401, "unauthenticated");
}

/// G1: what is answered is what is described.
#[tokio::test(flavor = "multi_thread")]
async fn g1_every_answer_is_as_described() {
    let host = Setup::plain().start();
    let client = host.client();
    let document = client.get("/openapi.json").await.ok(200);
    assert_eq!(
        document["openapi"].as_str().map(|version| &version[..3]),
        Some("3.1")
    );
    let walk = host.client();
    journey(&walk).await;
    let mut checked = BTreeSet::new();
    for exchange in walk.seen() {
        let what = format!(
            "{} {} {}",
            exchange.method, exchange.path, exchange.answer.status
        );
        let Some(schema) = schema(&document, &exchange) else {
            assert_eq!(
                exchange.answer.body,
                Value::Null,
                "{what} has a body that is not described"
            );
            continue;
        };
        let validator = validator(&document, schema);
        let errors: Vec<String> = validator
            .iter_errors(&exchange.answer.body)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(
            errors.is_empty(),
            "{what}: {errors:#?}\n{}",
            exchange.answer.body
        );
        checked.insert((
            exchange.method.to_string(),
            template(&document, &exchange.path).unwrap().to_owned(),
        ));
    }
    assert!(checked.len() >= 30, "{} routes were seen", checked.len());
}

/// G1, G4: every documented route exists, wants a token, and is one of this build's.
#[tokio::test(flavor = "multi_thread")]
async fn g4_every_documented_route_exists_and_wants_a_token() {
    let host = Setup::plain().start();
    let client = host.client();
    let document = client.get("/openapi.json").await.ok(200);
    let mut documented = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "parameters")
        {
            documented.insert((method.clone(), shape(path)));
            let method: Method = method.to_uppercase().parse().unwrap();
            let asked = path
                .replace("{publisher}", "no")
                .replace("{name}", "body")
                .split('/')
                .map(|part| {
                    if part.starts_with('{') {
                        "00000000-0000-7000-8000-000000000000"
                    } else {
                        part
                    }
                })
                .collect::<Vec<_>>()
                .join("/");
            let open = !asked.starts_with("/v1/") && asked != "/metrics";
            let anonymous = client.with_token(None);
            if asked == "/v1/events" && method == Method::GET {
                anonymous.get(&asked).await.problem(401, "unauthenticated");
                continue;
            }
            let answer = anonymous
                .send(anonymous.request(method.clone(), &asked))
                .await
                .unwrap();
            if open {
                assert_eq!(answer.status, 200, "{method} {asked}");
            } else {
                answer.problem(401, "unauthenticated");
            }
            let answer = client
                .send(client.request(method.clone(), &asked))
                .await
                .unwrap();
            let code = answer.body["code"].as_str().unwrap_or_default();
            assert!(
                !["not_found", "method_not_allowed"].contains(&code),
                "{method} {asked}: {}",
                answer.body
            );
        }
    }
    let expected: BTreeSet<(String, String)> = ROUTES
        .iter()
        .map(|(method, path)| ((*method).to_owned(), shape(path)))
        .collect();
    assert_eq!(documented, expected);
    assert_eq!(client.get("/docs/").await.status, 200);
}
