//! Lists and what stands in the catalogue.

use crate::support::*;
use http::StatusCode;
use serde_json::json;

#[tokio::test]
async fn s107_a_journal_page_is_the_events_as_they_are() {
    let server = server().await;
    let (status, page) = server.get(&at("/journal?from_journal_seq=5&limit=2")).await;
    assert_eq!(status, 200);
    assert_eq!(
        page,
        json!({"events": [{"seq": 5}, {"seq": 6}], "next_seq": 7, "done": false})
    );
    let (_, page) = server.get(&at("/journal")).await;
    assert_eq!(page["done"], true);
    assert_eq!(page["events"][0]["seq"], 1);
    server
        .refuses(get(&at("/journal?limit=1001")), 400, "invalid_request")
        .await;
}

#[tokio::test]
async fn s114_the_queue_keeps_its_order_across_pages() {
    let server = server().await;
    let (_, first) = server.get(&at("/queue?limit=2")).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let (_, second) = server
        .get(&at(&format!("/queue?limit=2&cursor={cursor}")))
        .await;
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    assert_eq!(first["items"][1]["held"], true);
    assert_eq!(second["items"].as_array().unwrap().len(), 1);
    assert!(second["next_cursor"].is_null());
}

#[tokio::test]
async fn s117_gates_carry_what_is_needed_to_answer_them() {
    let server = server().await;
    let (_, gates) = server.get(&at("/gates")).await;
    let gate = &gates["items"][0];
    assert_eq!(gate["gate_id"], GATE.to_string());
    assert_eq!(gate["kind"], "permission");
    assert_eq!(gate["actions"], json!(["approve_once", "deny"]));
    assert_eq!(gate["payload"]["tool_name"], "shell");
    assert!(gate["opened_at"].is_string() && gate["loop_id"].is_string());
}

#[tokio::test]
async fn projects_and_workspaces_are_made_listed_and_read() {
    let server = server().await;
    let (status, project) = server
        .post(
            "/v1/projects",
            json!({"id": "shop", "default_workspace": {"id": "shop-main", "target": {"kind": "local", "root_path": "/srv/shop"}}}),
        )
        .await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(
        project,
        json!({"id": "shop", "name": "shop", "default_workspace_id": "shop-main"})
    );
    assert_eq!(server.get("/v1/projects/shop").await.1, project);
    let (status, workspace) = server
        .post("/v1/workspaces", json!({"id": "far", "project_id": "shop", "target": {"kind": "remote", "host": "h", "path": "/p"}}))
        .await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(
        workspace["target"],
        json!({"kind": "remote", "host": "h", "path": "/p"})
    );
    server
        .refuses(
            post("/v1/projects", json!({"id": "shop"})),
            409,
            "already_exists",
        )
        .await;
    let again =
        json!({"id": "far", "project_id": "shop", "target": {"kind": "local", "root_path": "/w"}});
    server
        .refuses(post("/v1/workspaces", again), 409, "already_exists")
        .await;
    let (_, listed) = server.get("/v1/workspaces?project_id=shop").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    let (_, page) = server.get("/v1/projects?limit=2").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let cursor = page["next_cursor"].as_str().unwrap();
    let (_, rest) = server
        .get(&format!("/v1/projects?limit=2&cursor={cursor}"))
        .await;
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn s100_capabilities_name_what_is_there() {
    let server = server().await;
    let (_, capabilities) = server.get("/v1/capabilities").await;
    assert_eq!(capabilities["protocol"], 1);
    assert_eq!(
        capabilities["features"],
        json!([
            "journal",
            "sessions",
            "input",
            "queue",
            "gates",
            "events",
            "loops",
            "compaction",
            "workspace",
            "shutdown",
            "operations"
        ])
    );
}

#[tokio::test]
async fn g8_a_harness_says_whether_its_native_version_fits() {
    let server = server().await;
    let (_, harness) = server.get("/v1/harnesses/demo/planner").await;
    assert_eq!(harness["compatibility"], "incompatible");
    assert_eq!(harness["reason"], "too new");
    assert_eq!(harness["native_version"], "9");
    assert_eq!(harness["models"][0]["id"], "m1");
    assert_eq!(server.get("/v1/harnesses").await.1["items"][0], harness);
}

#[tokio::test]
async fn readiness_does_not_tell_strangers_why() {
    let server = server().await;
    assert_eq!(server.get("/readyz").await.0, 200);
    *server.double.script.unready.lock().unwrap() = Some("/data is on fire".into());
    let problem = server.refuses(get("/readyz"), 503, "host_not_ready").await;
    assert!(!problem.to_string().contains("/data"));
    assert_eq!(server.get("/healthz").await.0, 200);
}
