//! The README's walk-through, run exactly as it is printed.
//!
//! The last block comes after the host was killed and started again, as its text says.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_tests::{Conversation, Setup, blocks, missing, run_blocks, values};
use serde_json::{Value, json};
use std::time::Duration;

fn words(output: &str) -> Vec<&str> {
    output.lines().collect()
}

fn is_id(word: &str) {
    assert!(uuid::Uuid::parse_str(word).is_ok(), "{word} is an id");
}

async fn is_paused(session: &Conversation) {
    let mode = session.mode("goal").await.expect("a goal");
    assert!(
        mode["state"].as_str().unwrap().starts_with("paused"),
        "{mode}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_works_as_printed() {
    if missing(&["bash", "curl", "jq", "grep"]) {
        return;
    }
    let blocks = blocks("README.md", Some("## Walk through it"), "sh");
    assert_eq!(blocks.len(), 9, "the walk-through's blocks: {blocks:#?}");
    let (last, walk) = blocks.split_last().unwrap();
    let host = Setup::plain().start();
    let outputs = run_blocks(&host, walk, &[]).await;
    let [
        _,
        discover,
        create,
        follow,
        stop,
        beside,
        gates,
        plan,
        session,
    ] = &outputs[..]
    else {
        panic!("{outputs:#?}");
    };
    let session = session.trim();
    is_id(session);

    let names = &values(discover)[0];
    for name in ["/goal", "/plan", "/note", "/work"] {
        assert!(names.as_array().unwrap().contains(&json!(name)), "{names}");
    }
    let modes = values(create);
    assert_eq!(
        (modes.len(), &modes[0]["id"]),
        (1, &json!("goal")),
        "{create}"
    );
    assert!(
        modes[0]["state"].as_str().unwrap().starts_with("active"),
        "{create}"
    );
    assert!(modes[0]["tagText"].is_string(), "{create}");
    assert_eq!(follow.lines().next(), Some("event: snapshot"));
    assert!(
        follow.contains("event: TurnStarted") && follow.contains("event: TokenDelta"),
        "steps that nobody requested: {follow}"
    );

    let [interrupted, status, goal] = words(stop)[..] else {
        panic!("{stop}");
    };
    assert_eq!(interrupted, "true");
    assert!(goal.starts_with("paused"), "{goal}");
    assert!(["cancelled", "completed"].contains(&status), "{status}");

    let (id, rest) = beside.split_once('\n').unwrap();
    is_id(id);
    assert_eq!(
        values(rest),
        [
            json!({"status": "completed", "message": " byte for byte"}),
            json!({"status": 409, "code": "session_busy"}),
            json!(true)
        ]
    );

    let [approval, once, twice, question, answered] = words(gates)[..] else {
        panic!("{gates}");
    };
    is_id(approval);
    is_id(question);
    assert_eq!(
        (once, twice, answered),
        ("acknowledged", "gate_not_found", "acknowledged")
    );

    let mut lines = plan.lines();
    assert_eq!(
        lines.next(),
        Some("completed"),
        "the goal is cleared: {plan}"
    );
    assert_eq!(lines.next(), Some("started"), "the plan's turn: {plan}");
    let rest: Vec<&str> = lines.collect();
    assert_eq!(
        values(&rest.join("\n")),
        [
            json!({"status": 409, "code": "stale_state"}),
            json!({"status": "started", "params_effective": "next_turn"})
        ]
    );

    // A second session, whose goal is stopped, goes through the crash beside the first.
    let client = host.client();
    let paused = client
        .commanded("demo/planner", "/goal outlive the crash")
        .await;
    assert!(paused.interrupt().await);
    let walked = client.session(session);
    walked.until_idle().await;
    paused.until_idle().await;
    let before = (
        walked.messages().await,
        walked.journal().await,
        walked.row().await,
    );
    assert!(
        walked
            .said()
            .await
            .iter()
            .any(|said| said.contains("a colour of my own")),
        "the answer is quoted"
    );

    let host = host.kill().start();
    let client = host.client();
    let walked = client.session(session);
    let after = (
        walked.messages().await,
        walked.journal().await,
        walked.row().await,
    );
    assert_eq!(after.0, before.0, "every message");
    assert_eq!(after.1[..before.1.len()], before.1[..], "every event");
    for member in [
        "title",
        "params",
        "agent",
        "model",
        "workspace_id",
        "agent_session_id",
    ] {
        assert_eq!(after.2[member], before.2[member], "{member}");
    }
    let again = [blocks[0].clone(), last.clone()];
    let outputs = run_blocks(&host, &again, &[("SESSION", session)]).await;
    let counted = values(&outputs[1]);
    assert_eq!(counted[0], json!(before.0.len()));
    assert_eq!(counted[1]["TurnFailed"], Value::Null);
    assert!(
        counted[1]["NativeOperationResolved"].as_u64() >= Some(4),
        "{counted:?}"
    );

    let paused = paused.at(&client);
    let turns = |events: &[Value]| events.iter().filter(|e| e["type"] == "TurnStarted").count();
    let ran = turns(&paused.journal().await);
    is_paused(&paused).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        turns(&paused.journal().await),
        ran,
        "a paused goal stays paused"
    );
    let resumed = paused.command("/goal resume").await.ok(200);
    assert_eq!(resumed["status"], "completed");
}

/// N12: from a Stop until the next human-caused reserve nothing starts.
#[tokio::test(flavor = "multi_thread")]
async fn n12_stop_disarms_a_goal_for_good() {
    let host = Setup::plain().start();
    let goal = host
        .client()
        .commanded("demo/planner", "/goal never mind")
        .await;
    let mut events = goal.events(Some(0)).await;
    let step = events
        .until(|frame| frame.event == "TurnStarted" && frame.data["native"].is_object())
        .await;
    assert!(step.data["native"]["reason"].is_string());
    assert!(goal.interrupt().await);
    let stopped = goal.until_idle().await["last_seq"].as_u64().unwrap();
    let quiet = tokio::time::timeout(Duration::from_secs(3), async {
        loop {
            let frame = events.next().await.expect("the stream goes on");
            if frame.event == "TurnStarted" && frame.id > Some(stopped) {
                return frame;
            }
        }
    });
    assert_eq!(quiet.await.ok(), None, "no turn for 3 s");
    is_paused(&goal).await;
    assert!(!goal.interrupt().await, "nothing is left to stop");
}
