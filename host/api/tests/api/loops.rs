//! Loops and compaction as clients ask for them (S111, S112, S115, S116).

use crate::support::*;
use harness_api::plane::KeyState;
use harness_core::refusal::Refused;
use serde_json::{Value, json};
use uuid::Uuid;

/// A loop that the known session does not have.
const NOBODY: Uuid = Uuid::from_u128(99);

fn of_loop(rest: &str) -> String {
    at(&format!("/loops/{LOOP}/{rest}"))
}

/// Every route that changes something here, with a body it takes.
fn changes() -> [(String, Value); 5] {
    [
        (at("/loops"), json!({"agent": "demo/planner"})),
        (at("/active-loop"), json!({"loop_id": LOOP})),
        (of_loop("mode"), json!({"mode": "review"})),
        (of_loop("inference"), json!({"model": "m2"})),
        (at("/compact"), json!({"loop_id": LOOP})),
    ]
}

#[tokio::test]
async fn s112_loops_are_listed_with_what_their_next_turn_uses_and_could() {
    let server = server().await;
    let (status, page) = server.get(&at("/loops?limit=1")).await;
    assert_eq!(status, 200);
    let expected = json!({
        "loop_id": LOOP, "agent": "demo/planner", "model": "m1", "mode": "review",
        "running": false, "state": "open", "modes": [{"name": "review", "label": "Review"}],
    });
    assert_eq!(page, json!({"items": [expected], "next_cursor": null}));
}

#[tokio::test]
async fn s111_s115_s116_each_route_answers_what_was_asked_for() {
    let server = server().await;
    let answers = [
        (201, json!({"loop_id": COMMAND})),
        (200, json!({"active_loop_id": LOOP})),
        (
            200,
            json!({"mode": "review", "model": null, "effort": null, "effective": "next_turn"}),
        ),
        (
            200,
            json!({"mode": "", "model": "m2", "effort": null, "effective": "next_turn"}),
        ),
        (202, json!({"command_id": COMMAND})),
    ];
    for ((path, body), (status, answer)) in changes().into_iter().zip(answers) {
        let (got, told) = server.post(&path, body).await;
        assert_eq!((got.as_u16(), told), (status, answer), "{path}");
    }
    let whole = json!({"agent": "demo/planner", "model": "m2", "mode": "review"});
    assert_eq!(server.post(&at("/loops"), whole).await.0, 201);
    let both = json!({"model": "m2", "effort": "high"});
    assert_eq!(server.post(&of_loop("inference"), both).await.0, 200);
    // The active loop is compacted when none is named, and a body may be left out.
    let bare = request(http::Method::POST, &at("/compact"))
        .body(axum::body::Body::empty())
        .unwrap();
    assert_eq!(server.send(bare).await.status(), 202);
    assert_eq!(
        server.double.calls(),
        [
            "loop demo/planner None None",
            &format!("activate {LOOP}"),
            "mode review",
            r#"inference Some("m2") None"#,
            "compact",
            r#"loop demo/planner Some("m2") Some("review")"#,
            r#"inference Some("m2") Some("high")"#,
            "compact",
        ]
    );
}

#[tokio::test]
async fn g2_loop_bodies_are_strict() {
    let server = server().await;
    for (path, mut body) in changes() {
        body["colour"] = json!("red");
        let problem = server
            .refuses(post(&path, body), 400, "invalid_request")
            .await;
        assert!(
            problem["detail"].as_str().unwrap().contains("colour"),
            "{problem}"
        );
        server
            .refuses(
                post(&format!("{path}?x=1"), json!({})),
                400,
                "invalid_request",
            )
            .await;
    }
    for (path, body, named) in [
        (at("/loops"), json!({}), "agent"),
        (at("/loops"), json!({"agent": "nope"}), "agent"),
        (
            at("/loops"),
            json!({"agent": "demo/planner", "mode": 1}),
            "mode",
        ),
        (at("/active-loop"), json!({}), "loop_id"),
        (at("/active-loop"), json!({"loop_id": "x"}), "loop_id"),
        (of_loop("mode"), json!({}), "mode"),
        (of_loop("mode"), json!({"mode": null}), "mode"),
        (of_loop("inference"), json!({"effort": []}), "effort"),
        (at("/compact"), json!({"loop_id": ""}), "loop_id"),
    ] {
        let problem = server
            .refuses(post(&path, body), 400, "invalid_request")
            .await;
        assert!(
            problem["detail"].as_str().unwrap().contains(named),
            "{path}: {problem}"
        );
    }
    assert!(server.double.calls().is_empty());
}

#[tokio::test]
async fn s111_s116_unknown_loops_modes_and_empty_changes_have_their_own_code() {
    let server = server().await;
    let nobody = |rest: &str| at(&format!("/loops/{NOBODY}/{rest}"));
    let mode = json!({"mode": ""});
    let model = json!({"model": "m1"});
    let named = json!({"loop_id": NOBODY});
    for (path, body) in [
        (at("/active-loop"), named.clone()),
        (at("/compact"), named.clone()),
        (at("/interrupt"), named),
        (nobody("mode"), mode.clone()),
        (nobody("inference"), model.clone()),
    ] {
        server
            .refuses(post(&path, body), 404, "loop_not_found")
            .await;
    }
    for rest in ["mode", "inference"] {
        let body = if rest == "mode" { &mode } else { &model };
        let path = at(&format!("/loops/first/{rest}"));
        let problem = server
            .refuses(post(&path, body.clone()), 400, "invalid_request")
            .await;
        assert!(
            problem["detail"].as_str().unwrap().contains("loop id"),
            "{problem}"
        );
    }
    let unknown = post(&of_loop("mode"), json!({"mode": "poetry"}));
    server.refuses(unknown, 400, "invalid_mode").await;
    let nothing = post(&of_loop("inference"), json!({}));
    server.refuses(nothing, 400, "no_changes").await;
    assert!(server.double.calls().is_empty());
}

#[tokio::test]
async fn g5_s120_a_repeat_changes_nothing_a_second_time() {
    let server = server().await;
    let others = [
        json!({"agent": "demo/planner", "mode": ""}),
        json!({"loop_id": NOBODY}),
        json!({"mode": ""}),
        json!({"model": "m1"}),
        json!({}),
    ];
    for ((path, body), other) in changes().into_iter().zip(others) {
        let before = server.double.calls().len();
        let first = server.ask(keyed(&path, "k", body.clone())).await;
        assert!(first.0.is_success(), "{path}: {first:?}");
        let again = server.ask(keyed(&path, "k", body)).await;
        assert_eq!(first, again, "{path}");
        server
            .refuses(keyed(&path, "k", other), 409, "idempotency_conflict")
            .await;
        assert_eq!(server.double.calls().len(), before + 1, "{path}");
    }
}

/// The intent is in the journal, the answer went down with the host.
#[tokio::test]
async fn s120_a_repeat_after_a_crash_tells_what_is_known() {
    let server = server().await;
    for (path, body) in changes() {
        *server.double.script.cut.lock().unwrap() = Some(KeyState::Unanswered {
            session: SESSION.into(),
            result: None,
            reference: None,
        });
        let (status, told) = server.ask(keyed(&path, "k", body)).await;
        match status.as_u16() {
            // A keyed loop's id, like a command's, is derived from its key.
            201 => assert!(told["loop_id"].is_string()),
            202 => assert!(told["command_id"].is_string()),
            status => {
                let lost = Refused::StatusChanged("").code();
                assert_eq!((status, told["code"].as_str()), (409, Some(lost)), "{path}");
                let detail = told["detail"].as_str().unwrap();
                assert!(detail.contains("read the session's loops"), "{told}");
            }
        }
    }
    assert!(server.double.calls().is_empty(), "nothing was done again");
}
