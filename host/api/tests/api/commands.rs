//! What reaches the plane, and how its answers look.

use crate::support::*;
use axum::body::Body;
use http::Method;
use serde_json::json;

#[tokio::test]
async fn r1_command_state_keeps_the_providers_vocabulary() {
    let server = server().await;
    let (status, state) = server.get(&at("/harness-commands")).await;
    assert_eq!(status, 200);
    assert_eq!(state["harnessId"], "demo/planner");
    assert_eq!(state["slashCommands"], true);
    assert_eq!(state["push"], true);
    assert!(
        state["revision"]
            .as_str()
            .is_some_and(|revision| revision.len() <= 128)
    );
    assert!(state["asOf"].is_string() && state["modes"].is_array());
    // Optional members are absent, never null.
    assert_eq!(
        state["commands"][0],
        json!({"name": "/goal", "description": "Work toward an objective"})
    );
    assert!(state.get("note").is_none());
    let draft = json!({"project_id": "default", "agent": "demo/planner"});
    assert_eq!(
        server
            .post("/v1/sessions/harness-command-state", draft)
            .await,
        (status, state)
    );
}

#[tokio::test]
async fn r10_command_text_arrives_byte_for_byte() {
    let server = server().await;
    let text = "/goal  ship it \n\t ";
    let (status, result) = server
        .post(
            &at("/harness-commands"),
            json!({"operation": {"kind": "command", "text": text}}),
        )
        .await;
    assert_eq!(status, 200);
    assert_eq!(
        result,
        json!({"status": "completed", "message": "done", "command_id": COMMAND.to_string()})
    );
    assert_eq!(
        server.double.calls(),
        [format!("invoke Command {{ text: {text:?} }}")]
    );
}

#[tokio::test]
async fn s118_s102_a_session_is_shut_down_and_taken_up_again() {
    let server = server().await;
    let (status, body) = server.post(&at("/shutdown"), json!({})).await;
    let expected = json!({"stopped": true, "expired_phases": ["loops"]});
    assert_eq!((status.as_u16(), body), (200, expected));
    let (status, row) = server.post(&at("/restore"), json!({})).await;
    assert_eq!((status.as_u16(), &row["id"]), (200, &json!(SESSION)));
    server
        .refuses(
            post(&at("/shutdown"), json!({"now": true})),
            400,
            "invalid_request",
        )
        .await;
}

#[tokio::test]
async fn s103_s104_s113_s114_answers_have_their_shapes() {
    let server = server().await;
    let (status, body) = server
        .post(
            &at("/input"),
            json!({"blocks": [{"type": "text", "text": "a"}]}),
        )
        .await;
    assert_eq!(
        (status.as_u16(), body),
        (202, json!({"command_id": COMMAND.to_string()}))
    );
    let (status, body) = server.post(&at("/interrupt"), json!({})).await;
    assert_eq!((status.as_u16(), body), (200, json!({"interrupted": true})));
    // A body that may be empty may be left out.
    let bare = request(Method::POST, &at("/interrupt"))
        .body(Body::empty())
        .unwrap();
    assert_eq!(server.ask(bare).await.0, 200);
    let delete = |id: uuid::Uuid| {
        request(Method::DELETE, &at(&format!("/queue/{id}")))
            .body(Body::empty())
            .unwrap()
    };
    let (_, body) = server.ask(delete(COMMAND)).await;
    assert_eq!(
        body,
        json!({"command_id": COMMAND.to_string(), "retracted": true})
    );
    let (_, body) = server.ask(delete(SESSION)).await;
    assert_eq!(body["retracted"], false);
    let (_, body) = server
        .post(&at("/queue/release"), json!({"command_ids": [COMMAND]}))
        .await;
    assert_eq!(body, json!({"released": [COMMAND.to_string()]}));
}

#[tokio::test]
async fn r44_a_gate_answer_is_202_with_its_delivery() {
    let server = server().await;
    let path = at(&format!("/gates/{GATE}"));
    let (status, body) = server
        .post(&path, json!({"action": "deny", "message": "no"}))
        .await;
    assert_eq!(
        (status.as_u16(), body),
        (202, json!({"delivery": "acknowledged"}))
    );
    server
        .post(
            &path,
            json!({"action": "answer", "values": {"answers": [["a", "b"], []]}}),
        )
        .await;
    assert_eq!(
        server.double.calls(),
        [
            r#"answer Deny(Some("no"))"#,
            r#"answer Answer([["a", "b"], []])"#
        ]
    );
}

#[tokio::test]
async fn settings_tell_null_from_absent() {
    let server = server().await;
    let patch = |body: serde_json::Value| {
        request(Method::PATCH, &at(""))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap()
    };
    for body in [
        json!({"title": "New"}),
        json!({"model": null}),
        json!({"model": "m1"}),
    ] {
        assert_eq!(server.ask(patch(body)).await.0, 200);
    }
    assert_eq!(
        server.double.calls(),
        [
            "patch model=None",
            "patch model=Some(None)",
            "patch model=Some(Some(\"m1\"))"
        ]
    );
    server
        .refuses(patch(json!({})), 400, "invalid_request")
        .await;
    server
        .refuses(
            patch(json!({"status": "completed"})),
            400,
            "invalid_request",
        )
        .await;
}

#[tokio::test]
async fn a_deleted_session_is_204_without_a_body() {
    let server = server().await;
    let response = server
        .send(
            request(Method::DELETE, &at(""))
                .body(Body::empty())
                .unwrap(),
        )
        .await;
    assert_eq!(response.status(), 204);
    assert_eq!(server.double.calls(), [format!("delete {SESSION}")]);
}

#[tokio::test]
async fn s97_background_processes_are_listed_and_stopped() {
    let server = server().await;
    let (status, page) = server.get(&at("/processes?limit=1")).await;
    assert_eq!(status, 200);
    let expected = json!({
        "process_handle": "build-1", "loop_id": LOOP, "program": "make", "status": "failed",
        "exit_code": 2, "reason": "exit code 2", "started_at": "2026-01-02T03:04:05Z",
        "ended_at": "2026-01-02T03:04:06Z",
    });
    assert_eq!(page, json!({"items": [expected], "next_cursor": null}));
    let stop = at("/processes/build-1/stop");
    let (status, body) = server.post(&stop, json!({})).await;
    let expected = json!({"process_handle": "build-1"});
    assert_eq!((status.as_u16(), body), (202, expected));
    assert_eq!(server.double.calls(), ["stop process build-1"]);
    server
        .refuses(post(&stop, json!({"now": true})), 400, "invalid_request")
        .await;
}
