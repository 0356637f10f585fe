//! Checkpoints and rewinds of a workspace as clients ask for them (S119, S120).

use crate::support::*;
use harness_api::plane::KeyState;
use harness_core::refusal::Refused;
use serde_json::{Value, json};

fn routes() -> [(String, Value, String); 2] {
    let to = reference(1).to_string();
    [
        (at("/workspace/checkpoint"), json!({}), "checkpoint".into()),
        (
            at("/workspace/restore"),
            json!({"ref": to}),
            format!("rewind {to}"),
        ),
    ]
}

#[tokio::test]
async fn s119_both_answer_the_ref() {
    let server = server().await;
    for (path, body, call) in routes() {
        let (status, answer) = server.post(&path, body).await;
        assert_eq!(status, 200);
        assert_eq!(answer, json!({"ref": reference(1).as_str()}));
        assert_eq!(server.double.calls().last(), Some(&call));
    }
}

#[tokio::test]
async fn s119_a_malformed_ref_and_strange_keys_are_refused() {
    let server = server().await;
    let path = at("/workspace/restore");
    let digits = "0a".repeat(32);
    for bad in [
        json!({}),
        json!({"ref": ""}),
        json!({"ref": 7}),
        json!({"ref": null}),
        json!({"ref": digits}),
        json!({"ref": format!("v2:sha256:{digits}")}),
        json!({"ref": format!("v1:sha256:{}", digits.to_uppercase())}),
        json!({"ref": format!("v1:sha256:{digits}00")}),
        json!({"ref": "../../etc/passwd"}),
        json!({"ref": format!("v1:sha256:{digits}"), "force": true}),
        json!([]),
    ] {
        let refused = post(&path, bad.clone());
        server.refuses(refused, 400, "invalid_request").await;
    }
    let strange = post(&at("/workspace/checkpoint"), json!({"path": "/"}));
    server.refuses(strange, 400, "invalid_request").await;
    assert!(server.double.calls().is_empty());
}

#[tokio::test]
async fn s119_a_malformed_ref_is_told_what_a_ref_is() {
    let server = server().await;
    let refused = post(&at("/workspace/restore"), json!({"ref": "latest"}));
    let problem = server.refuses(refused, 400, "invalid_request").await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("v1:sha256:"), "{problem}");
}

#[tokio::test]
async fn s119_each_refusal_has_its_status() {
    let server = server().await;
    let reason = || "disk_full".to_owned();
    let cases = [
        (Refused::NotIdle("busy"), 409, "not_idle", true),
        (Refused::SessionFaulted, 409, "session_faulted", false),
        (
            Refused::CheckpointFaulted { reason: reason() },
            409,
            "checkpoint_faulted",
            false,
        ),
        (
            Refused::RefNotFound("r".into()),
            404,
            "ref_not_found",
            false,
        ),
        (
            Refused::SnapshotsUnsupported("remote"),
            400,
            "workspace_unsupported",
            false,
        ),
        (
            Refused::SnapshotFailed(reason()),
            500,
            "snapshot_failed",
            false,
        ),
    ];
    for (path, body, _) in routes() {
        for (refused, status, code, retryable) in cases.clone() {
            *server.double.script.snapshot.lock().unwrap() = Some(refused);
            let asked = post(&path, body.clone());
            let problem = server.refuses(asked, status, code).await;
            assert_eq!(problem["retryable"], retryable, "{code}");
        }
        let elsewhere = path.replace(&SESSION.to_string(), &COMMAND.to_string());
        let unknown = post(&elsewhere, body);
        server.refuses(unknown, 404, "session_not_found").await;
    }
}

#[tokio::test]
async fn s120_a_repeat_does_it_once() {
    let server = server().await;
    for (path, body, call) in routes() {
        let first = server.ask(keyed(&path, "k", body.clone())).await;
        assert_eq!(server.ask(keyed(&path, "k", body)).await, first);
        let calls = server.double.calls();
        assert_eq!(calls.iter().filter(|c| **c == call).count(), 1);
    }
    let other = json!({"ref": reference(2).as_str()});
    let conflict = keyed(&at("/workspace/restore"), "k", other);
    server.refuses(conflict, 409, "idempotency_conflict").await;
}

#[tokio::test]
async fn s120_a_repeat_whose_answer_was_lost_is_answered_from_the_journal() {
    let server = server().await;
    for (path, body, _) in routes() {
        *server.double.script.cut.lock().unwrap() = Some(KeyState::Unanswered {
            session: SESSION.into(),
            result: None,
            reference: Some(reference(3)),
        });
        let (status, answer) = server.ask(keyed(&path, "lost", body)).await;
        assert_eq!(
            (status.as_u16(), &answer["ref"]),
            (200, &json!(reference(3).as_str()))
        );
    }
    assert!(server.double.calls().is_empty(), "nothing is done again");
}
