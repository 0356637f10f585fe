//! Keys, joined requests and clients that leave (G5, S120, R69).

use crate::support::*;
use harness_core::abort::AbortReason;
use harness_core::refusal::Refused;
use harness_core::view::{OperationResult, OutcomeStatus};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::Notify;

fn goal() -> Value {
    json!({"operation": {"kind": "command", "text": "/goal  ship it"}})
}

#[tokio::test]
async fn g5_a_repeat_gets_the_first_answer_and_does_nothing() {
    let server = server().await;
    let first = server
        .ask(keyed(&at("/harness-commands"), "k1", goal()))
        .await;
    let again = server
        .ask(keyed(&at("/harness-commands"), "k1", goal()))
        .await;
    assert_eq!(first, again);
    assert_eq!(server.double.calls().len(), 1);
    // Another key, another route and no key are other intents.
    server
        .ask(keyed(&at("/harness-commands"), "k2", goal()))
        .await;
    server.ask(keyed(&at("/interrupt"), "k1", json!({}))).await;
    server.post(&at("/harness-commands"), goal()).await;
    assert_eq!(server.double.calls().len(), 4);
}

#[tokio::test]
async fn s101_a_repeated_creation_is_the_same_session() {
    let server = server().await;
    let body = json!({"project_id": "default", "title": "t", "agent": "demo/planner", "operation": {"kind": "command", "text": "/goal"}});
    let (status, first) = server.ask(keyed("/v1/sessions", "k", body.clone())).await;
    assert_eq!(status, 201);
    assert_eq!(first["operation_result"]["status"], "completed");
    assert!(first["command_id"].is_string() && first["status"] == "completed");
    let (_, again) = server.ask(keyed("/v1/sessions", "k", body)).await;
    assert_eq!(first, again);
    assert_eq!(server.double.calls().len(), 1);
    let (_, other) = server.ask(keyed("/v1/sessions", "k2", json!({"project_id": "default", "title": "t", "agent": "demo/planner", "prompt": [{"type": "text", "text": "a"}]}))).await;
    assert_ne!(first["id"], other["id"]);
    let id: uuid::Uuid = first["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(id.get_version_num(), 8);
}

#[tokio::test]
async fn g5_another_body_under_the_same_key_is_409() {
    let server = server().await;
    server
        .ask(keyed(&at("/harness-commands"), "k", goal()))
        .await;
    let other = json!({"operation": {"kind": "command", "text": "/plan"}});
    server
        .refuses(
            keyed(&at("/harness-commands"), "k", other),
            409,
            "idempotency_conflict",
        )
        .await;
    assert_eq!(server.double.calls().len(), 1);
}

#[tokio::test]
async fn g5_a_key_has_1_to_255_bytes_and_comes_once() {
    let server = server().await;
    server
        .refuses(
            keyed(&at("/interrupt"), &"k".repeat(256), json!({})),
            400,
            "invalid_request",
        )
        .await;
    server
        .refuses(
            keyed(&at("/interrupt"), "", json!({})),
            400,
            "invalid_request",
        )
        .await;
    let mut twice = keyed(&at("/interrupt"), "a", json!({}));
    twice
        .headers_mut()
        .append("idempotency-key", "b".parse().unwrap());
    server.refuses(twice, 400, "invalid_request").await;
    assert_eq!(
        server
            .ask(keyed(&at("/interrupt"), &"k".repeat(255), json!({})))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn g5_a_refusal_before_reserve_records_nothing() {
    let server = server().await;
    server
        .double
        .script
        .invoke
        .lock()
        .unwrap()
        .push(Err(Refused::SessionBusy("a turn is running")));
    server
        .refuses(
            keyed(&at("/harness-commands"), "k", goal()),
            409,
            "session_busy",
        )
        .await;
    assert!(server.double.script.recorded.lock().unwrap().is_empty());
    assert_eq!(
        server
            .ask(keyed(&at("/harness-commands"), "k", goal()))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn g5_an_outcome_that_is_a_problem_is_recorded() {
    let server = server().await;
    let result = Box::new(OperationResult {
        status: OutcomeStatus::Uncertain,
        ..completed()
    });
    let violation = Refused::Violation {
        reason: "a control returned started".into(),
        result,
    };
    server
        .double
        .script
        .invoke
        .lock()
        .unwrap()
        .push(Err(violation));
    let mut first = server
        .refuses(
            keyed(&at("/harness-commands"), "k", goal()),
            502,
            "provider_contract_violation",
        )
        .await;
    let mut again = server
        .refuses(
            keyed(&at("/harness-commands"), "k", goal()),
            502,
            "provider_contract_violation",
        )
        .await;
    assert_eq!(first["operation_result"]["status"], "uncertain");
    assert_ne!(
        first["request_id"], again["request_id"],
        "a problem names the request that got it"
    );
    for problem in [&mut first, &mut again] {
        problem.as_object_mut().unwrap().remove("request_id");
    }
    assert_eq!(first, again);
    assert_eq!(server.double.calls().len(), 1);
}

#[tokio::test]
async fn g5_requests_under_way_join() {
    let server = Arc::new(server().await);
    let hold = Arc::new(Notify::new());
    *server.double.script.hold.lock().unwrap() = Some(hold.clone());
    let send = |server: Arc<Server>, body| {
        tokio::spawn(async move { server.ask(keyed(&at("/harness-commands"), "k", body)).await })
    };
    let first = send(server.clone(), goal());
    server.double.script.entered.notified().await;
    let second = send(server.clone(), goal());
    let other = send(
        server.clone(),
        json!({"operation": {"kind": "command", "text": "/plan"}}),
    )
    .await
    .unwrap();
    assert_eq!(other.0, 409);
    assert_eq!(other.1["code"], "idempotency_conflict");
    hold.notify_one();
    assert_eq!(first.await.unwrap(), second.await.unwrap());
    assert_eq!(server.double.script.invoked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn r69_a_client_that_leaves_aborts_its_request_and_nothing_is_dropped() {
    let server = Arc::new(server().await);
    *server.double.script.hold.lock().unwrap() = Some(Arc::new(Notify::new()));
    let client = {
        let server = server.clone();
        tokio::spawn(async move { server.post(&at("/harness-commands"), goal()).await })
    };
    server.double.script.entered.notified().await;
    client.abort();
    // The work itself is told and runs to its end.
    server.double.script.left.notified().await;
    assert_eq!(
        *server.double.script.gone.lock().unwrap(),
        Some(AbortReason::CallerGone)
    );
}

#[tokio::test]
async fn r69_joined_requests_abort_when_the_last_of_them_is_gone() {
    let server = Arc::new(server().await);
    *server.double.script.hold.lock().unwrap() = Some(Arc::new(Notify::new()));
    let send = |server: Arc<Server>| {
        tokio::spawn(async move {
            server
                .ask(keyed(&at("/harness-commands"), "k", goal()))
                .await
        })
    };
    let first = send(server.clone());
    server.double.script.entered.notified().await;
    // Joined before the first leaves: a request polled once is in.
    let mut second = Box::pin(server.send(keyed(&at("/harness-commands"), "k", goal())));
    assert!(futures::poll!(second.as_mut()).is_pending());
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    tokio::task::yield_now().await;
    assert!(
        server.double.script.gone.lock().unwrap().is_none(),
        "one of them still waits"
    );
    drop(second);
    server.double.script.left.notified().await;
    assert_eq!(
        *server.double.script.gone.lock().unwrap(),
        Some(AbortReason::CallerGone)
    );
    assert_eq!(server.double.script.invoked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn r69_a_settled_request_fires_nothing() {
    let server = server().await;
    server.post(&at("/harness-commands"), goal()).await;
    assert!(server.double.script.gone.lock().unwrap().is_none());
}

#[tokio::test]
async fn g5_a_panic_frees_the_key() {
    let server = server().await;
    *server.double.script.panics.lock().unwrap() = true;
    server
        .refuses(
            keyed(&at("/harness-commands"), "k", goal()),
            500,
            "internal",
        )
        .await;
    *server.double.script.panics.lock().unwrap() = false;
    assert_eq!(
        server
            .ask(keyed(&at("/harness-commands"), "k", goal()))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn s120_a_repeat_after_a_crash_gets_what_the_journal_has() {
    use harness_api::plane::KeyState;
    let server = server().await;
    let result = OperationResult {
        status: OutcomeStatus::Uncertain,
        ..completed()
    };
    let cut = |result: Option<OperationResult>| {
        *server.double.script.cut.lock().unwrap() = Some(KeyState::Unanswered {
            session: SESSION.into(),
            result,
            reference: None,
        });
    };
    cut(Some(result.clone()));
    let (status, body) = server
        .ask(keyed(&at("/harness-commands"), "k", goal()))
        .await;
    assert_eq!(
        (status.as_u16(), &body["status"]),
        (200, &json!("uncertain"))
    );
    // It is recorded now and stays the answer.
    assert_eq!(
        server
            .ask(keyed(&at("/harness-commands"), "k", goal()))
            .await
            .1,
        body
    );

    cut(None);
    let problem = server
        .refuses(
            keyed(&at("/harness-commands"), "k2", goal()),
            409,
            "session_busy",
        )
        .await;
    assert_eq!(problem["retryable"], true);

    cut(None);
    let input = json!({"blocks": [{"type": "text", "text": "a"}]});
    let (status, body) = server.ask(keyed(&at("/input"), "k", input)).await;
    assert_eq!(status, 202);
    assert!(body["command_id"].is_string());

    cut(Some(result));
    let create = json!({"project_id": "default", "title": "t", "agent": "demo/planner", "operation": {"kind": "command", "text": "/goal"}});
    let (status, body) = server.ask(keyed("/v1/sessions", "k", create)).await;
    assert_eq!(status, 201);
    assert_eq!(body["id"], SESSION.to_string());
    assert_eq!(body["operation_result"]["status"], "uncertain");

    cut(None);
    let answer = json!({"action": "approve_once"});
    let (_, body) = server
        .ask(keyed(&at(&format!("/gates/{GATE}")), "k", answer))
        .await;
    assert_eq!(body["delivery"], "uncertain");
    assert!(server.double.calls().is_empty(), "nothing was done again");
}
