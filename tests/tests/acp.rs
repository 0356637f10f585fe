//! `agents/acp` in the real host, against a real agent and against one that breaks the protocol.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_test_guests as guests;
use harness_tests::{Client, Conversation, Setup, python, python_with, root};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const AGENT: &str = "test/sdk-agent";

/// A host with the agent of the official SDK, and the agent's log of native calls.
fn sdk() -> Option<(Setup, PathBuf)> {
    let python = python_with()?;
    let mut setup = Setup::plain();
    let (log, sessions) = (setup.path("agent.log"), setup.path("sessions"));
    let script = root().join("tests/agents/sdk_agent.py");
    let config = format!(
        "[[provider]]\nid = \"{AGENT}\"\ncomponent = {:?}\n[provider.config]\nlabel = \"SDK agent\"\nquiet_ms = 400\n\
         [provider.grants.state]\n[provider.grants.process.agent]\ncommand = [{:?}, \"-u\", {:?}]\n\
         env = {{ ACP_AGENT_LOG = {:?}, ACP_AGENT_SESSIONS = {:?} }}\n",
        guests::PROVIDER_ACP,
        python,
        script,
        log,
        sessions
    );
    let file = setup.path("harness.toml");
    std::fs::write(&file, config).unwrap();
    setup.args = vec!["--config".to_owned(), file.display().to_string()];
    Some((setup, log))
}

/// How often the agent was called so, by its own log.
fn calls(log: &Path, what: &str) -> usize {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().filter(|line| line.starts_with(what)).count()
}

async fn completed(session: &Conversation, text: &str) {
    let id = session.prompt(text).await;
    let end = session.turn_end(&id).await;
    assert_eq!(end["type"], "TurnDone", "{text}: {end}");
}

async fn last_said(session: &Conversation) -> String {
    session.said().await.pop().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_agent_end_to_end() {
    let Some((setup, log)) = sdk() else { return };
    let host = setup.start();
    let client = host.client();

    // Discovery has no native contact beyond the one detection after the load (N4, R14).
    let draft = json!({"project_id": "default", "agent": AGENT});
    for _ in 0..20 {
        let state = client
            .post("/v1/sessions/harness-command-state", draft.clone())
            .await
            .ok(200);
        assert!(state["note"].is_string(), "{state}");
    }
    assert_eq!(calls(&log, "session/"), 0);

    // A prompt streams its answer.
    let session = client.prompted(AGENT, "hello there").await;
    let mut events = session.events(Some(0)).await;
    let (mut deltas, mut text) = (0, String::new());
    loop {
        let frame = events
            .until(|frame| frame.event != "command_state_changed")
            .await;
        if frame.event == "TokenDelta" {
            deltas += usize::from(frame.data["part"].is_object());
            text.push_str(frame.data["part"]["text"].as_str().unwrap_or_default());
        }
        if frame.event == "TurnDone" {
            break;
        }
    }
    assert_eq!(session.said().await, ["You said: hello there"]);
    assert!(
        deltas >= 1 && "You said: hello there".starts_with(&text[..8]),
        "{deltas} deltas: {text}"
    );
    assert!(session.row().await["agent_session_id"].is_string());

    // Commands and modes, read live (R41).
    session
        .until("its commands are listed", |_| {
            calls(&log, "session/new") == 1
        })
        .await;
    let state = until_state(&session, |state| {
        state["commands"]
            .as_array()
            .is_some_and(|list| list.len() == 3)
    })
    .await;
    let names: Vec<&str> = state["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["/echo", "/mcp", "/$review"]);
    assert_eq!(state["commands"][1]["argumentHelp"], "list | add <name>");
    assert!(
        state["note"]
            .as_str()
            .is_some_and(|note| note.contains("bad/name")),
        "{state}"
    );
    assert_eq!(session.mode("mode").await.unwrap()["state"], "Ask");
    let result = session.action("mode", "set:code", None).await.ok(200);
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(session.mode("mode").await.unwrap()["state"], "Code");
    assert_eq!(calls(&log, "session/set_mode code"), 1);
    session
        .action("mode", "set:nope", None)
        .await
        .problem(400, "invalid_argument");

    // A command arrives byte for byte; a literal that looks like one is not run (R10).
    let result = session
        .command("/echo two  spaces\nand more ")
        .await
        .ok(200);
    assert_eq!(result["status"], "started");
    session
        .turn_end(result["command_id"].as_str().unwrap())
        .await;
    assert_eq!(last_said(&session).await, "two  spaces\nand more ");
    completed(&session, "/echo literal").await;
    let literal = last_said(&session).await;
    assert!(
        literal.starts_with("You said: ") && literal.ends_with("/echo literal"),
        "{literal}"
    );

    // A permission is answered once.
    let asked = session.prompt("permission make clean").await;
    let gate = session.gate().await;
    assert_eq!(session.status().await, "awaiting_input");
    assert_eq!(gate["kind"], "permission");
    assert!(
        gate["payload"]["tool_input"]
            .as_str()
            .unwrap()
            .contains("make clean"),
        "{gate}"
    );
    let delivered = session
        .answer(&gate, json!({"action": "approve_once"}))
        .await
        .ok(202);
    assert_eq!(delivered["delivery"], "acknowledged");
    session
        .answer(&gate, json!({"action": "approve_once"}))
        .await
        .problem(404, "gate_not_found");
    assert_eq!(session.turn_end(&asked).await["type"], "TurnDone");
    assert_eq!(last_said(&session).await, "permission: yes");
    let asked = session.prompt("permission rm").await;
    let gate = session.gate().await;
    session
        .answer(&gate, json!({"action": "deny", "message": "no"}))
        .await
        .ok(202);
    session.turn_end(&asked).await;
    assert_eq!(last_said(&session).await, "permission: no");

    // A control beside a turn; an exclusive is refused; Stop cancels natively.
    let slow = session.prompt("slow 60").await;
    session.until_status("in_progress").await;
    let mut events = session.events(None).await;
    events.until(|frame| frame.event == "TokenDelta").await;
    session.action("config:verbose", "on", None).await.ok(200);
    session
        .command("/echo no")
        .await
        .problem(409, "session_busy");
    let begun = Instant::now();
    assert!(session.interrupt().await);
    let end = session.turn_end(&slow).await;
    assert_eq!(
        (&end["type"], &end["reason"]),
        (&json!("TurnInterrupted"), &json!("user"))
    );
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(calls(&log, "session/cancel"), 1);
    assert_eq!(session.status().await, "cancelled");

    // What comes after the answer reaches the conversation.
    completed(&session, "late 1").await;
    let mut events = session.events(None).await;
    events
        .until(|frame| frame.event == "StepDone" && frame.data.to_string().contains("late news"))
        .await;
    assert_eq!(last_said(&session).await, "late news");
    session.until_idle().await;

    // The agent is killed: disconnected in time, the next prompt works.
    completed(&session, "pid").await;
    let said = last_said(&session).await;
    let pid = said
        .strip_prefix("pid ")
        .unwrap_or_else(|| panic!("{said}"));
    let slow = session.prompt("slow 60").await;
    let mut events = session.events(None).await;
    events.until(|frame| frame.event == "TokenDelta").await;
    let begun = Instant::now();
    let killed = std::process::Command::new("kill")
        .args(["-9", pid])
        .status()
        .unwrap();
    assert!(killed.success());
    session.until_status("disconnected").await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    let end = session.turn_end(&slow).await;
    assert_eq!(
        (&end["type"], &end["error"]["code"]),
        (&json!("TurnFailed"), &json!("disconnected")),
        "{end}"
    );
    completed(&session, "still there?").await;
    assert_eq!(last_said(&session).await, "You said: still there?");
    let loads = calls(&log, "session/load");
    assert_eq!((calls(&log, "session/new"), loads), (1, 1));

    // After a restart of the host the conversation is loaded, and not shown again.
    let before = session.messages().await;
    let native = session.row().await["agent_session_id"].clone();
    let prompts = calls(&log, "prompt ");
    let host = host.kill().start();
    let client = host.client();
    let session = session.at(&client);
    assert_eq!(session.messages().await, before);
    let draft = client
        .post("/v1/sessions/harness-command-state", draft)
        .await
        .ok(200);
    assert_eq!(
        draft["commands"].as_array().unwrap().len(),
        3,
        "the last known catalogue: {draft}"
    );
    assert_eq!(
        calls(&log, "session/load"),
        loads,
        "a restart starts nothing natively"
    );
    completed(&session, "remember").await;
    let said = last_said(&session).await;
    assert!(said.ends_with("first: hello there"), "{said}");
    assert_eq!(session.row().await["agent_session_id"], native);
    assert_eq!(
        calls(&log, "prompt "),
        prompts + 1,
        "nothing was sent again"
    );
    assert_eq!(
        (calls(&log, "session/new"), calls(&log, "session/load")),
        (1, loads + 1)
    );
    assert_eq!(session.messages().await.len(), before.len() + 2);
}

/// Two installations of one component in one session: each loop has a process, a conversation and
/// late output of its own, whichever of them is active or runs.
#[tokio::test(flavor = "multi_thread")]
async fn two_loops_on_two_installations_do_not_mix() {
    let Some((setup, logs)) = two_installations() else {
        return;
    };
    let host = setup.start();
    let client = host.client();
    let session = client.prompted("test/one", "hello one").await;
    session.until_idle().await;
    let one = session.row().await["active_loop_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let two = session.begin_loop(json!({"agent": "test/two"})).await;
    let ends = async |loop_id: &str, text: &str| {
        let id = session.prompt_loop(loop_id, text).await;
        let end = session.turn_end(&id).await;
        assert_eq!(
            (&end["type"], &end["loop_id"]),
            (&json!("TurnDone"), &json!(loop_id))
        );
    };
    ends(&two, "hello two").await;

    // Late output of the loop that is not active, with the other one idle and then at work.
    ends(&two, "late 1").await;
    let late = async |loop_id: &str, times: usize| {
        for _ in 0..200 {
            let said = session.said_in(loop_id).await;
            if said.iter().filter(|text| *text == "late news").count() == times {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{:?}", session.said_in(loop_id).await);
    };
    late(&two, 1).await;
    let slow = session.prompt_loop(&one, "slow 60").await;
    ends(&two, "late 1").await;
    late(&two, 2).await;

    // A stop of one loop is none of the other's: neither its turns nor its late output.
    let stop = client
        .post(&session.path("/interrupt"), json!({"loop_id": one}))
        .await
        .ok(200);
    assert_eq!(stop["interrupted"], true);
    assert_eq!(session.turn_end(&slow).await["type"], "TurnInterrupted");
    ends(&two, "late 1").await;
    late(&two, 3).await;
    session.until_idle().await;
    assert!(
        !session
            .said_in(&one)
            .await
            .contains(&"late news".to_owned())
    );

    // Each remembers what it was told, and nothing of the other.
    for (loop_id, first, other) in [
        (&one, "hello one", "hello two"),
        (&two, "hello two", "hello one"),
    ] {
        ends(loop_id, "remember").await;
        let said = session.said_in(loop_id).await;
        assert!(
            said.last().unwrap().ends_with(&format!("first: {first}")),
            "{said:?}"
        );
        assert!(!said.iter().any(|text| text.contains(other)), "{said:?}");
    }
    for log in &logs {
        assert_eq!(calls(log, "session/new"), 1, "{}", log.display());
    }
    let cancels = logs.iter().map(|log| calls(log, "session/cancel"));
    assert_eq!(cancels.collect::<Vec<_>>(), [1, 0]);

    // The same after a restart: each takes up its own conversation.
    let host = host.kill().start();
    let client = host.client();
    let session = session.at(&client);
    for (loop_id, first) in [(&one, "hello one"), (&two, "hello two")] {
        let id = session.prompt_loop(loop_id, "remember").await;
        assert_eq!(session.turn_end(&id).await["type"], "TurnDone");
        let said = session.said_in(loop_id).await;
        assert!(
            said.last().unwrap().ends_with(&format!("first: {first}")),
            "{said:?}"
        );
    }
    for log in &logs {
        assert_eq!(
            (calls(log, "session/new"), calls(log, "session/load")),
            (1, 1)
        );
    }
}

/// A host with the agent installed twice, and each installation's log of native calls.
fn two_installations() -> Option<(Setup, [PathBuf; 2])> {
    let python = python_with()?;
    let mut setup = Setup::plain();
    let script = root().join("tests/agents/sdk_agent.py");
    let mut config = String::new();
    let logs = ["one", "two"].map(|name| {
        let (log, sessions) = (
            setup.path(&format!("{name}.log")),
            setup.path(&format!("{name}-sessions")),
        );
        let _ = write!(
            config,
            "[[provider]]\nid = \"test/{name}\"\ncomponent = {:?}\n[provider.config]\nquiet_ms = 400\n\
             [provider.grants.state]\n[provider.grants.process.agent]\ncommand = [{python:?}, \"-u\", {script:?}]\n\
             env = {{ ACP_AGENT_LOG = {log:?}, ACP_AGENT_SESSIONS = {sessions:?} }}\n",
            guests::PROVIDER_ACP,
        );
        log
    });
    let file = setup.path("harness.toml");
    std::fs::write(&file, config).unwrap();
    setup.args = vec!["--config".to_owned(), file.display().to_string()];
    Some((setup, logs))
}

async fn until_state(session: &Conversation, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut events = session.events(None).await;
    let end = Instant::now() + harness_tests::PATIENCE;
    loop {
        let state = session.state().await;
        if wanted(&state) {
            return state;
        }
        assert!(Instant::now() < end, "{state}");
        let _ = tokio::time::timeout(Duration::from_millis(500), events.next()).await;
    }
}

/// A host with one provider for every trick of the hostile agent.
fn hostile(tricks: &[(&str, &str)]) -> Option<Setup> {
    let python = python()?;
    let script = root().join("tests/agents/hostile_agent.py");
    let mut config = String::new();
    for (trick, argument) in tricks {
        write!(
            config,
            "[[provider]]\nid = \"hostile/{trick}\"\ncomponent = {:?}\n[provider.config]\nquiet_ms = 300\nhandshake_ms = 5000\n\
             [provider.grants.state]\n[provider.grants.process.agent]\ncommand = [{python:?}, {script:?}, {trick:?}, {argument:?}]\n",
            guests::PROVIDER_ACP
        )
        .unwrap();
    }
    Some(Setup::configured(&config))
}

async fn go(client: &Client, trick: &str) -> (Conversation, Value) {
    let session = client.prompted(&format!("hostile/{trick}"), "go").await;
    let row = session.until_idle().await;
    (session, row)
}

/// Tricks that a prompt survives: what is said in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_agent_is_survived() {
    let tricks = [
        ("none", ""),
        ("early-update", ""),
        ("slow-session", "1"),
        ("long-line", ""),
        ("no-newline", ""),
        ("noise", ""),
        ("double-answer", ""),
        ("wrong-id", ""),
        ("flood", "20000"),
        ("flood-unknown", ""),
        ("bad-utf8", ""),
        ("unknown-request", ""),
        ("late", "1"),
    ];
    let Some(setup) = hostile(&tricks) else {
        return;
    };
    let host = setup.start();
    let client = host.client();
    let flood: String = (0..20_000).map(|number| format!("{number} ")).collect();
    for (trick, said) in [
        ("none", "hello"),
        ("early-update", "hello"),
        ("slow-session", "hello"),
        ("long-line", "after the long line"),
        ("no-newline", "last words"),
        ("noise", "after the noise"),
        ("double-answer", "once"),
        ("wrong-id", "after answers to nothing"),
        ("flood", &flood),
        ("flood-unknown", "after the flood"),
        ("bad-utf8", "a\u{fffd}\u{fffd}b"),
        ("unknown-request", "answered -32601"),
    ] {
        let (session, row) = go(&client, trick).await;
        assert_eq!(row["status"], "completed", "{trick}: {row}");
        let all: Vec<String> = session.said().await;
        assert!(
            all.concat().contains(said),
            "{trick}: {:.200}",
            format!("{all:?}")
        );
        // The next prompt works as the first did.
        let again = session.prompt("again").await;
        assert_eq!(
            session.turn_end(&again).await["type"],
            "TurnDone",
            "{trick}"
        );
    }
    let (session, _) = go(&client, "early-update").await;
    let state = session.state().await;
    assert_eq!(state["commands"][0]["name"], "/early", "{state}");
    // What comes late reaches the conversation.
    let session = client.prompted("hostile/late", "go").await;
    let mut events = session.events(Some(0)).await;
    events
        .until(|frame| frame.event == "StepDone" && frame.data.to_string().contains("late news"))
        .await;
}

/// Tricks that cost the turn: in time, with a reason, and the session goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_agent_costs_its_own_turn_only() {
    let tricks = [
        ("exit", ""),
        ("cancel-deaf", ""),
        ("hang", ""),
        ("two-permissions", ""),
        ("flood-requests", ""),
        ("refuse-session", ""),
        ("wrong-version", ""),
        ("silent", ""),
    ];
    let Some(setup) = hostile(&tricks) else {
        return;
    };
    let host = setup.start();
    let client = host.client();

    let (session, row) = go(&client, "exit").await;
    let told = row["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(row["status"], "disconnected", "{row}");
    assert!(
        told.contains('7') && told.contains("leaving mid turn"),
        "{row}"
    );
    assert_eq!(session.said().await, ["about to leave"]);

    // Stop ends every turn within the drain bound, also when the agent is deaf.
    for trick in ["hang", "cancel-deaf"] {
        let session = client.prompted(&format!("hostile/{trick}"), "go").await;
        session
            .until("the native conversation", |row| {
                row["agent_session_id"].is_string()
            })
            .await;
        let begun = Instant::now();
        assert!(session.interrupt().await);
        let row = session.until_idle().await;
        assert_eq!(row["status"], "cancelled", "{trick}: {row}");
        assert!(
            begun.elapsed() < Duration::from_millis(5_250),
            "{trick}: {:?}",
            begun.elapsed()
        );
    }
    for (trick, open) in [("two-permissions", 2), ("flood-requests", 32)] {
        let session = client.prompted(&format!("hostile/{trick}"), "go").await;
        session
            .until("its gates", |row| row["open_gates"] == open)
            .await;
        assert!(session.interrupt().await);
        let row = session.until_idle().await;
        assert_eq!(
            (&row["status"], &row["open_gates"]),
            (&json!("cancelled"), &json!(0)),
            "{trick}: {row}"
        );
        let closed = session.journal().await;
        let abandoned = closed
            .iter()
            .filter(|e| e["type"] == "GateResolved" && e["reason"] == "abandoned");
        assert_eq!(abandoned.count(), open, "{trick}");
    }
    let (_, row) = go(&client, "refuse-session").await;
    assert_eq!(row["status"], "failed", "{row}");
    assert!(
        row["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("login")),
        "{row}"
    );

    // Another protocol version is incompatible: nothing starts (G8).
    let harness = client
        .get("/v1/harnesses/hostile/wrong-version")
        .await
        .ok(200);
    assert_eq!(harness["state"], "incompatible", "{harness}");
    assert!(
        harness["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("99")),
        "{harness}"
    );
    let body = json!({"project_id": "default", "title": "t", "agent": "hostile/wrong-version",
        "prompt": [{"type": "text", "text": "go"}]});
    client
        .post("/v1/sessions", body)
        .await
        .problem(409, "provider_not_ready");
    let (_, row) = go(&client, "silent").await;
    assert_eq!(row["status"], "failed", "{row}");
    assert!(
        row["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("5000 ms")),
        "{row}"
    );
}

/// No descendant outlives the host, `kill -9` and a session of its own included.
#[tokio::test(flavor = "multi_thread")]
async fn no_descendant_of_an_agent_outlives_the_host() {
    let Some(setup) = hostile(&[("grandchild", "")]) else {
        return;
    };
    let host = setup.start();
    let client = host.client();
    let mut pids = Vec::new();
    for _ in 0..2 {
        let (session, row) = go(&client, "grandchild").await;
        assert_eq!(row["status"], "completed", "{row}");
        let said = session.said().await.concat();
        let words: Vec<&str> = said.split_whitespace().collect();
        pids.push((session, words[1].to_owned(), words[3].to_owned()));
    }
    let lives = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    };
    let gone = |pid: String| async move {
        let end = Instant::now() + Duration::from_secs(10);
        while lives(&pid) {
            assert!(Instant::now() < end, "process {pid} lives on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (first, grandchild, agent) = pids.remove(0);
    assert!(lives(&grandchild) && lives(&agent));
    // Deleting a session ends what it started (N3).
    client.delete(&first.path("")).await.ok(204);
    gone(agent).await;
    gone(grandchild).await;
    let (_, grandchild, agent) = pids.remove(0);
    assert!(
        lives(&grandchild) && lives(&agent),
        "another session's processes are left alone"
    );
    drop(host.kill());
    gone(agent).await;
    gone(grandchild).await;
}
