//! Delegates over real HTTP: the demo lets itself and a real agent work for it; a fork bomb ends at
//! its bounds; `kill -9` in the middle (S76, S90, S96, I38, I39).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_test_guests as guests;
use harness_tests::{Conversation, Record, Setup, python_with, read_database, root};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const PLANNER: &str = "demo/planner";
const AGENT: &str = "test/sdk-agent";

/// The demo, which may start delegates on those harnesses, without pauses between its words.
fn planner(delegation: &str) -> String {
    format!(
        "[[provider]]\ncomponent = \"embedded\"\n[provider.config]\ndelta_ms = 0\n\
         [provider.grants.state]\n[provider.grants.delegation]\n{delegation}\n"
    )
}

async fn last_said(session: &Conversation) -> String {
    session.said().await.pop().unwrap_or_default()
}

/// Loops that another started, each with its parent.
async fn delegates(session: &Conversation) -> Vec<Value> {
    let loops = session.list("/loops").await;
    let of = loops
        .into_iter()
        .filter(|l| l["parent_loop_id"].is_string());
    of.collect()
}

async fn events(session: &Conversation, kind: &str) -> Vec<Value> {
    let all = session.journal().await;
    all.into_iter().filter(|e| e["type"] == kind).collect()
}

/// Waits until a delegate says something.
async fn working(session: &Conversation) {
    let mut frames = session.events(Some(0)).await;
    let accepted = frames
        .until(|frame| frame.event == "DelegateRequestAccepted")
        .await;
    let child = accepted.data["loop_id"].clone();
    frames
        .until(|frame| frame.event == "TokenDelta" && frame.data["loop_id"] == child)
        .await;
}

/// Commands of that type in the journal, which clients are not shown.
fn commands(setup: &Setup, kind: &str) -> usize {
    let records = read_database(setup.data_dir());
    let of = |r: &&Record| r.command && r.body["type"] == kind;
    records.values().flatten().filter(of).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_the_demo_lets_itself_work() {
    let host = Setup::plain().start();
    let client = host.client();
    let session = client.prompted(PLANNER, "demo:delegate two and two").await;
    session.until_idle().await;
    let said = last_said(&session).await;
    assert!(said.starts_with("The delegate answered:"), "{said}");
    assert!(said.contains("Your prompt has 3 words"), "{said}");
    let children = delegates(&session).await;
    assert_eq!(children.len(), 1);
    assert_eq!(
        children[0]["parent_loop_id"],
        session.row().await["active_loop_id"]
    );
    assert_eq!(children[0]["state"], "open");
    let child = children[0]["loop_id"].as_str().unwrap();
    assert_eq!(
        session.said_in(child).await.len(),
        1,
        "a history of its own"
    );
    let settled = events(&session, "DelegateDeliveryStateChanged").await;
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0]["state"], "completed");

    // Clients watch it and leave the talking to its parent.
    let refused = session.input("hello", json!({"loop_id": child})).await;
    refused.problem(400, "invalid_request");
    let path = session.path("/active-loop");
    let refused = session.client.post(&path, json!({"loop_id": child})).await;
    refused.problem(400, "invalid_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_a_background_answer_comes_by_itself() {
    let host = Setup::configured(&planner("")).start();
    let session = host
        .client()
        .prompted(PLANNER, "demo:delegate-bg demo:slow 1")
        .await;
    let row = session.until_idle().await;
    assert_eq!(row["status"], "completed");
    let said = session.said().await;
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("comes by itself"), "{said:?}");
    assert!(said[1].starts_with("A delegate came back:"), "{said:?}");
    let child = delegates(&session).await[0]["loop_id"].clone();
    let turns = events(&session, "TurnStarted").await;
    let woken = turns.iter().filter(|t| t["cause"]["loop_id"] == child);
    assert_eq!(woken.count(), 1);
    assert_eq!(events(&session, "SessionIdle").await.len(), 1, "S67");
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_delegates_of_delegates_end_at_their_depth() {
    let host = Setup::configured(&planner("")).start();
    let nested = "demo:delegate ".repeat(4) + "x";
    let session = host.client().prompted(PLANNER, &nested).await;
    let row = session.until_idle().await;
    assert_eq!(row["status"], "completed", "a refusal is no failure");
    let said = last_said(&session).await;
    assert!(said.contains("delegates nest three deep at most"), "{said}");
    assert_eq!(delegates(&session).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_a_harness_that_the_grant_does_not_name_is_denied() {
    let host = Setup::configured(&planner("")).start();
    let client = host.client();
    let session = client
        .prompted(PLANNER, "demo:delegate-to some/other hello")
        .await;
    session.until_idle().await;
    let said = last_said(&session).await;
    assert!(
        said.contains("denied") && said.contains("some/other"),
        "{said}"
    );
    assert_eq!(delegates(&session).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_a_real_agent_works_for_the_demo() {
    let Some(python) = python_with() else { return };
    let script = root().join("tests/agents/sdk_agent.py");
    let mut setup = Setup::plain();
    let (log, sessions) = (setup.path("agent.log"), setup.path("sessions"));
    let config = planner(&format!("harnesses = [\"{PLANNER}\", \"{AGENT}\"]"))
        + &format!(
            "[[provider]]\nid = \"{AGENT}\"\ncomponent = {:?}\n[provider.config]\nquiet_ms = 400\n\
             [provider.grants.state]\n[provider.grants.process.agent]\ncommand = [{python:?}, \"-u\", {script:?}]\n\
             env = {{ ACP_AGENT_LOG = {log:?}, ACP_AGENT_SESSIONS = {sessions:?} }}\n",
            guests::PROVIDER_ACP,
        );
    let file = setup.path("harness.toml");
    std::fs::write(&file, config).unwrap();
    setup.args = vec!["--config".to_owned(), file.display().to_string()];
    let host = setup.start();
    let prompt = format!("demo:delegate-to {AGENT} hello there");
    let session = host.client().prompted(PLANNER, &prompt).await;
    session.until_idle().await;
    let said = last_said(&session).await;
    assert!(said.contains("You said: hello there"), "{said}");
    let children = delegates(&session).await;
    assert_eq!(children[0]["agent"], AGENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn s96_people_answer_the_gates_of_a_delegate() {
    let host = Setup::configured(&planner("")).start();
    let session = host
        .client()
        .prompted(PLANNER, "demo:delegate demo:approval")
        .await;
    let gate = session.gate().await;
    let child = delegates(&session).await[0]["loop_id"].clone();
    assert_eq!(gate["loop_id"], child);
    session
        .answer(&gate, json!({"action": "approve_once"}))
        .await
        .ok(202);
    session.until_idle().await;
    let said = last_said(&session).await;
    assert!(said.contains("The tool was approved once"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s90_stop_ends_the_delegate_with_its_parent() {
    let host = Setup::configured(&planner("")).start();
    let client = host.client();
    for prompt in [
        "demo:delegate demo:slow 600",
        "demo:delegate-bg demo:slow 600",
    ] {
        let session = client.prompted(PLANNER, prompt).await;
        working(&session).await;
        assert!(session.interrupt().await, "{prompt}");
        session.until_idle().await;
        let running = delegates(&session).await;
        assert!(running.iter().all(|l| l["running"] == false), "{prompt}");
        let before = session.journal().await.len();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(
            session.journal().await.len(),
            before,
            "{prompt}: nobody is woken"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i38_kill_in_a_delegation_hands_back_once() {
    let mut setup = Setup::configured(&planner(""));
    let mut sessions: Vec<String> = Vec::new();
    // Each run kills the host while a delegate works; the next one hands back what was lost.
    for run in 0..3 {
        let host = setup.start();
        let client = host.client();
        for id in &sessions {
            let session = client.session(id);
            session.until_idle().await;
            let handed = session.said().await;
            let interrupted = handed.iter().filter(|s| s.contains("was interrupted"));
            assert_eq!(interrupted.count(), 1, "run {run}: {handed:?}");
            let accepted = events(&session, "DelegateRequestAccepted").await.len();
            let settled = events(&session, "DelegateDeliveryStateChanged").await.len();
            assert_eq!((accepted, settled), (1, 1));
        }
        let session = client
            .prompted(PLANNER, "demo:delegate-bg demo:slow 600")
            .await;
        working(&session).await;
        sessions.push(session.id.clone());
        setup = host.kill();
        assert_eq!(commands(&setup, "SubagentResult"), run, "one each");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s76_i39_a_fork_bomb_ends_at_its_bounds_for_good() {
    let config = planner("")
        + &format!(
            "[[provider]]\ncomponent = {:?}\n[provider.grants.delegation]\n",
            guests::DELEGATE_BOMB
        );
    let host = Setup::configured(&config).start();
    let client = host.client();
    let session = client.prompted("guest/delegate-bomb", "go").await;
    // Nobody else is disturbed.
    let other = client.prompted(PLANNER, "hello").await;
    let row = other.until_idle().await;
    assert_eq!(row["status"], "completed");
    session.until_idle().await;
    let loops = delegates(&session).await;
    assert_eq!(loops.len(), 64, "the quota (S76)");
    let parents: BTreeMap<&str, &str> = loops
        .iter()
        .map(|l| {
            let id = |name: &str| l[name].as_str().unwrap();
            (id("loop_id"), id("parent_loop_id"))
        })
        .collect();
    for of in parents.keys() {
        let above = std::iter::successors(Some(*of), |id| parents.get(id).copied());
        assert!(above.count() <= 4, "three below the first");
    }
    let said = session.said().await;
    assert!(said.iter().any(|s| s.contains("Quota")), "{said:?}");
    let host = host.kill().start();
    let client = host.client();
    let session = client.session(&session.id);
    session.until_idle().await;
    let prompt = session.prompt("again").await;
    session.turn_end(&prompt).await;
    session.until_idle().await;
    let said = last_said(&session).await;
    assert!(said.starts_with("0 ") && said.contains("Quota"), "{said}");
    assert_eq!(delegates(&session).await.len(), 64);
}
