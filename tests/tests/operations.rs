//! Native operations over real HTTP: what a provider sees, what a client is told, what is kept.
//!
//! The scriptable guest `guest/probe` tells what it was given and counts its calls.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_test_guests as guests;
use harness_tests::{Client, Conversation, Host, Record, Setup, read_database, root};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PROBE: &str = "guest/probe";

fn start(more: &str) -> Host {
    let config = format!(
        "[limits]\nfailures = 1000\nbackoff = \"10ms\"\nbackoff_max = \"10ms\"\ndrain = \"1s\"\n\
         [[provider]]\ncomponent = {:?}\n[[provider]]\ncomponent = \"embedded\"\n[provider.grants.state]\n[provider.grants.delegation]\n{more}",
        guests::PROBE
    );
    Setup::configured(&config).start()
}

/// Calls of the probe's instance, by name; this read is counted too.
async fn counters(session: &Conversation) -> BTreeMap<String, u64> {
    let mode = session.mode("counters").await.unwrap();
    counted(mode["tagText"].as_str().unwrap_or_default())
}

fn counted(text: &str) -> BTreeMap<String, u64> {
    let pairs = text
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
        .collect()
}

fn count(counters: &BTreeMap<String, u64>, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

fn draft(agent: &str) -> Value {
    json!({"project_id": "default", "agent": agent})
}

async fn create(client: &Client, first: Value) -> Value {
    let mut body = json!({"project_id": "default", "title": "t", "agent": PROBE});
    for (key, value) in first.as_object().unwrap() {
        body[key] = value.clone();
    }
    client.post("/v1/sessions", body).await.ok(201)
}

fn command(text: &str) -> Value {
    json!({"operation": {"kind": "command", "text": text}})
}

async fn types(session: &Conversation) -> Vec<String> {
    let journal = session.journal().await;
    journal
        .iter()
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect()
}

/// Draft discovery: no trace, and exactly what a session would be made with.
#[tokio::test(flavor = "multi_thread")]
async fn i1_r14_r15_draft_discovery_leaves_no_trace() {
    let host = start("");
    let client = host.client();
    let mut body = draft(PROBE);
    body["model"] = json!("m2");
    body["params"] = json!({"tone": "bright"});
    let state = client
        .post("/v1/sessions/harness-command-state", body)
        .await
        .ok(200);
    let given: Value = serde_json::from_str(state["note"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&given["session"], &given["native"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        (&given["project"], &given["model"]),
        (&json!("default"), &json!("m2"))
    );
    assert_eq!(
        given["params"],
        json!({"flag": false, "tone": "bright", "free": ""})
    );
    let workspace = client.get("/v1/workspaces/default").await.ok(200);
    assert_eq!(
        given["workspace"]["local"]["root"],
        workspace["target"]["root_path"]
    );
    assert_eq!(client.get("/v1/sessions").await.ok(200)["items"], json!([]));
    let modes = state["modes"].as_array().unwrap();
    let counters = counted(
        modes.iter().find(|m| m["id"] == "counters").unwrap()["tagText"]
            .as_str()
            .unwrap(),
    );
    for native in ["start", "invoke", "adopt", "done", "prepare"] {
        assert_eq!(count(&counters, native), 0, "{native}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_a_refused_draft_does_not_reach_the_provider() {
    let host = start("");
    let client = host.client();
    let path = "/v1/sessions/harness-command-state";
    let state = client.post(path, draft(PROBE)).await.ok(200);
    let discovered = |state: &Value| {
        let modes = state["modes"].as_array().unwrap();
        let mode = modes.iter().find(|m| m["id"] == "counters").unwrap();
        count(&counted(mode["tagText"].as_str().unwrap()), "discover")
    };
    let before = discovered(&state);
    let mut unknown = draft(PROBE);
    unknown["workspace_id"] = json!("nowhere");
    client
        .post(path, unknown)
        .await
        .problem(404, "workspace_not_found");
    let mut extra = draft(PROBE);
    extra["colour"] = json!("red");
    client
        .post(path, extra)
        .await
        .problem(400, "invalid_request");
    let state = client.post(path, draft(PROBE)).await.ok(200);
    assert_eq!(discovered(&state), before + 1);
}

/// The first operation makes the row in the same request; nothing is synthesised.
#[tokio::test(flavor = "multi_thread")]
async fn r47_i3_a_first_operation_makes_one_row_and_one_call() {
    let host = start("");
    let client = host.client();
    for (text, status, native) in [
        ("/context", "completed", Value::Null),
        ("/exclusive start 0", "started", json!("native-1")),
    ] {
        let row = create(&client, command(text)).await;
        assert_eq!(row["operation_result"]["status"], status, "{row}");
        let session = client.session(row["id"].as_str().unwrap());
        let settled = session.until_idle().await;
        assert_eq!(
            (&settled["status"], &settled["agent_session_id"]),
            (&json!("completed"), &native)
        );
        let calls = counters(&session).await;
        assert_eq!(
            (
                count(&calls, "prepare"),
                count(&calls, "invoke"),
                count(&calls, "start")
            ),
            (1, 1, 0)
        );
        assert!(
            session
                .messages()
                .await
                .iter()
                .all(|message| message["role"] == "assistant")
        );
        if text == "/context" {
            let said: Value = serde_json::from_str(&session.said().await[0]).unwrap();
            assert_eq!(
                said["session"], row["id"],
                "the provider sees the new row's id"
            );
            assert!(!types(&session).await.contains(&"TurnStarted".to_owned()));
        }
    }
    assert_eq!(
        client.get("/v1/sessions").await.ok(200)["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_rejected_first_operation_leaves_a_row_that_works() {
    let host = start("");
    let client = host.client();
    for (text, code, reason) in [
        (
            "/reject not-allowed because I say so",
            "command_disabled",
            "because I say so",
        ),
        ("/disabled", "command_disabled", "disabled for the test"),
        ("/fail stale moved on", "stale_state", "moved on"),
        ("/reject unavailable later", "provider_unavailable", "later"),
    ] {
        let row = create(&client, command(text)).await;
        let result = &row["operation_result"];
        assert_eq!(
            (&row["status"], &result["status"], &result["code"]),
            (&json!("failed"), &json!("rejected"), &json!(code)),
            "{row}"
        );
        assert!(
            result["message"].as_str().unwrap().contains(reason),
            "{row}"
        );
        let session = client.session(row["id"].as_str().unwrap());
        assert_eq!(
            session.command("/control again").await.ok(200)["status"],
            "completed"
        );
        assert_eq!(session.status().await, "completed");
    }
    assert_eq!(
        client.get("/v1/sessions").await.ok(200)["items"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

/// A first operation is bound to its own harness: until it is reserved there is no row whose
/// harness could be swapped, and its intent names the harness it was prepared by.
#[tokio::test(flavor = "multi_thread")]
async fn r53_a_first_operation_is_bound_to_its_own_harness() {
    let host = start("");
    let client = host.client();
    let creating = {
        let client = client.clone();
        let first = command("/script prepare sleep 1500 | control reply done");
        tokio::spawn(async move { create(&client, first).await })
    };
    while !creating.is_finished() {
        let listed = client.get("/v1/sessions").await.ok(200);
        for row in listed["items"].as_array().unwrap() {
            assert!(
                row["run_id"].is_string(),
                "a row that never ran can be swapped: {row}"
            );
        }
    }
    let row = creating.await.unwrap();
    assert_eq!(row["operation_result"]["status"], "completed", "{row}");
    let session = client.session(row["id"].as_str().unwrap());
    let swap = client
        .request(Method::PATCH, &session.path(""))
        .json(&json!({"agent": "demo/planner"}));
    client.send(swap).await.unwrap().ok(200);
    let quoted = json!({"operation": {"kind": "command", "text": "/plan"}, "harnessId": PROBE});
    client
        .post(&session.path("/harness-commands"), quoted)
        .await
        .problem(409, "stale_harness");
    let setup = host.kill();
    let journals = read_database(setup.data_dir());
    let mut intents = journals[&session.id]
        .iter()
        .filter(|record| record.body["type"] == "NativeOperation");
    assert_eq!(intents.next().unwrap().body["harness_id"], PROBE);
    assert!(intents.next().is_none());
}

/// Modes, actions and their fields arrive as the provider gave them.
#[tokio::test(flavor = "multi_thread")]
async fn r3_r4_modes_and_actions_arrive_whole() {
    let host = start("");
    let client = host.client();
    let goal = client.commanded("demo/planner", "/goal ship it").await;
    goal.interrupt().await;
    goal.until_idle().await;
    let mode = goal.mode("goal").await.unwrap();
    for member in [
        "id",
        "label",
        "description",
        "state",
        "tagText",
        "closeActionId",
    ] {
        assert!(
            mode[member].as_str().is_some_and(|text| !text.is_empty()),
            "{member}: {mode}"
        );
    }
    assert_eq!(
        mode["indicator"]["tone"], "warning",
        "a paused goal: {mode}"
    );
    let actions = mode["actions"].as_array().unwrap();
    let edit = actions
        .iter()
        .find(|action| action["id"] == "edit")
        .unwrap();
    assert_eq!(edit["argument"]["value"], "ship it", "prefilled: {edit}");
    let clear = actions
        .iter()
        .find(|action| action["id"] == "clear")
        .unwrap();
    assert!(clear.get("argument").is_none(), "absent, not null: {clear}");
    assert_eq!(mode["closeActionId"], clear["id"]);
    let probe = client.commanded(PROBE, "/control x").await;
    let switch = probe.mode("switch").await.unwrap();
    assert!(
        switch.get("tagText").is_none() && switch["confirmation"]["id"] == "switch-0",
        "{switch}"
    );
    assert_eq!(
        probe.mode("counters").await.unwrap()["actions"],
        json!([]),
        "may be empty"
    );
    let argument = switch["actions"][1]["argument"].clone();
    assert_eq!(argument, json!({"label": "Value", "value": "0"}));
    assert_eq!(
        probe.action("switch", "set", Some("41")).await.ok(200)["status"],
        "completed"
    );
    assert_eq!(probe.mode("switch").await.unwrap()["state"], "41");
}

/// One spelling, two harnesses; a mode belongs to its own.
#[tokio::test(flavor = "multi_thread")]
async fn r11_r24_i15_a_command_means_what_its_own_harness_says() {
    let more = format!(
        "[[provider]]\ncomponent = {:?}\n[[provider]]\ncomponent = {:?}\n",
        guests::OVERSIZE_MESSAGE,
        guests::TRAP_COMPACT
    );
    let host = start(&more);
    let client = host.client();
    let one = client.commanded("guest/oversize-message", "/go 5").await;
    let other = client.commanded("guest/trap-compact", "/go 5").await;
    let (replied, echoed) = (
        one.command("/go 5").await.ok(200),
        other.command("/go 5").await.ok(200),
    );
    assert_eq!(replied["message"].as_str().unwrap().len(), 5);
    assert_eq!(echoed["message"], "/go 5");

    let probe = client.commanded(PROBE, "/control x").await;
    probe
        .action("goal", "clear", None)
        .await
        .problem(400, "invalid_argument");
    let before = (
        counters(&probe).await,
        probe.journal().await,
        probe.row().await["updated_at"].clone(),
    );
    let path = probe.path("/harness-commands");
    let quoted = |extra: Value| {
        let mut body = command("/control y");
        for (key, value) in extra.as_object().unwrap() {
            body[key] = value.clone();
        }
        client.post(&path, body)
    };
    quoted(json!({"harnessId": "demo/planner"}))
        .await
        .problem(409, "stale_harness");
    quoted(json!({"expectedRevision": "not it"}))
        .await
        .problem(409, "stale_state");
    let after = counters(&probe).await;
    assert_eq!(
        count(&after, "prepare"),
        count(&before.0, "prepare"),
        "prepare was not called"
    );
    assert_eq!(probe.journal().await, before.1, "nothing was appended");
    let revision = probe.state().await["revision"].clone();
    let result = quoted(json!({"harnessId": PROBE, "expectedRevision": revision}))
        .await
        .ok(200);
    assert_eq!(result["status"], "completed");
    probe.action("switch", "next", None).await.ok(200);
    quoted(json!({"expectedRevision": revision}))
        .await
        .problem(409, "stale_state");
}

fn stored(records: &[Record]) -> String {
    records
        .iter()
        .map(|record| record.body.to_string())
        .collect()
}

/// The host keeps no native mode: not in the row, not in the journal.
#[tokio::test(flavor = "multi_thread")]
async fn r12_native_modes_are_stored_nowhere() {
    let host = start("");
    let client = host.client();
    let probe = client
        .commanded(
            PROBE,
            "/script control switch-set 77231; params tone=bright",
        )
        .await;
    assert_eq!(probe.mode("switch").await.unwrap()["state"], "77231");
    let row = probe.row().await;
    assert_eq!(row["params"]["tone"], "bright");
    assert!(!row.to_string().contains("77231"), "{row}");
    let setup = host.kill();
    let records = read_database(setup.data_dir());
    let events: Vec<Record> = records[&probe.id]
        .iter()
        .filter(|record| !record.command)
        .cloned()
        .collect();
    let text = stored(&events);
    for word in ["77231", "tagText", "indicator", "confirmation", "\"modes\""] {
        assert!(!text.contains(word), "{word} is in the journal");
    }
    // A new instance begins at its own state: nothing was restored behind its back.
    let host = setup.start();
    let probe = probe.at(&host.client());
    assert_eq!(probe.mode("switch").await.unwrap()["state"], "0");
    assert_eq!(
        probe.row().await["params"]["tone"],
        "bright",
        "a parameter is the host's"
    );
}

/// What an operation is given.
#[tokio::test(flavor = "multi_thread")]
async fn r22_an_operation_is_given_its_whole_context() {
    let host = start("");
    let client = host.client();
    let mut first = command("/exclusive complete 0");
    first["model"] = json!("m2");
    first["params"] = json!({"tone": "bright", "flag": true});
    let row = create(&client, first).await;
    let session = client.session(row["id"].as_str().unwrap());
    session.until_idle().await;
    let result = session.command("/context").await.ok(200);
    let given: Value = serde_json::from_str(result["message"].as_str().unwrap()).unwrap();
    assert_eq!(given["session"], row["id"]);
    assert_eq!(given["loop"], row["active_loop_id"]);
    assert_eq!(
        (&given["project"], &given["native"]),
        (&json!("default"), &json!("native-1"))
    );
    assert_eq!(given["model"], "m2");
    assert_eq!(
        given["params"],
        json!({"flag": true, "tone": "bright", "free": ""})
    );
    let workspace = client.get("/v1/workspaces/default").await.ok(200);
    assert_eq!(
        given["workspace"]["local"],
        json!({"id": "default", "root": workspace["target"]["root_path"]})
    );
}

/// A question is answered into the live ask: no new run.
#[tokio::test(flavor = "multi_thread")]
async fn r45_an_answer_reaches_the_live_ask() {
    let host = start("");
    let client = host.client();
    let session = client
        .prompted(PROBE, "probe:turn ask-many q1; say after")
        .await;
    let gate = session.gate().await;
    let run = session.row().await["run_id"].clone();
    let queued = session.prompt("waits its turn").await;
    for wrong in [
        json!([["yes"]]),
        json!([["yes", "no"], [], []]),
        json!([["maybe"], [], []]),
    ] {
        let answer = json!({"action": "answer", "values": {"answers": wrong}});
        session
            .answer(&gate, answer)
            .await
            .problem(400, "invalid_request");
    }
    assert_eq!(session.list("/gates").await.len(), 1, "the gate stays open");
    let answer =
        json!({"action": "answer", "values": {"answers": [["yes"], ["yes", "no"], ["typed"]]}});
    let delivered = session.answer(&gate, answer.clone()).await.ok(202);
    assert_eq!(delivered["delivery"], "acknowledged");
    session
        .answer(&gate, answer)
        .await
        .problem(404, "gate_not_found");
    session.turn_end(&queued).await;
    let journal = session.journal().await;
    let ended: Vec<&Value> = journal
        .iter()
        .filter(|event| event["type"] == "TurnDone")
        .collect();
    assert_eq!(ended.len(), 2, "the asking turn and the queued prompt");
    assert_eq!(
        ended[0]["run_id"], run,
        "the run is the same before and after"
    );
    let said = session.said().await.join("\n");
    assert!(
        said.contains(r#"[["yes"], ["yes", "no"], ["typed"]]"#),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i12_stop_abandons_what_a_control_asks() {
    let host = start("");
    let client = host.client();
    let session = client.prompted(PROBE, "hello").await;
    session.until_idle().await;
    let asking = session.clone();
    let control = tokio::spawn(async move { asking.command("/ask").await });
    let gate = session.gate().await;
    assert!(session.interrupt().await);
    let result = control.await.unwrap().ok(200);
    assert_eq!(result["status"], "cancelled", "{result}");
    let row = session.until_idle().await;
    assert_eq!(
        (&row["status"], &row["open_gates"]),
        (&json!("cancelled"), &json!(0))
    );
    let journal = session.journal().await;
    let resolved: Vec<&Value> = journal
        .iter()
        .filter(|event| event["type"] == "GateResolved")
        .collect();
    assert_eq!(resolved.len(), 1);
    assert_eq!(resolved[0]["reason"], "abandoned");
    session
        .answer(&gate, json!({"action": "decline"}))
        .await
        .problem(404, "gate_not_found");
    assert_eq!(
        session.command("/exclusive complete 0").await.ok(200)["status"],
        "completed",
        "owner and slot are free"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i13_stop_during_exclusive_startup_stops_the_late_session() {
    let host = start("");
    let client = host.client();
    let session = client.prompted(PROBE, "hello").await;
    session.until_idle().await;
    let starting = session.clone();
    let exclusive = tokio::spawn(async move { starting.command("/late-native-id 600").await });
    session.until_status("in_progress").await;
    assert!(session.interrupt().await);
    let result = exclusive.await.unwrap().ok(200);
    assert_eq!(result["status"], "cancelled", "{result}");
    let row = session.until_idle().await;
    assert_eq!(
        (&row["status"], &row["agent_session_id"]),
        (&json!("cancelled"), &json!("native-late")),
        "{row}"
    );
    assert_eq!(
        session.command("/exclusive complete 0").await.ok(200)["status"],
        "completed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i16_a_started_operation_gets_the_real_answers() {
    let host = start("");
    let client = host.client();
    let row = create(
        &client,
        command("/script exclusive bind native-7 | turn approve tool; ask q; say the end"),
    )
    .await;
    assert_eq!(row["operation_result"]["status"], "started");
    let session = client.session(row["id"].as_str().unwrap());
    let gate = session.gate().await;
    let asking = session.row().await;
    assert_eq!(asking["status"], "awaiting_input");
    session
        .answer(&gate, json!({"action": "approve_once"}))
        .await
        .ok(202);
    let question = loop {
        let next = session.gate().await;
        if next["gate_id"] != gate["gate_id"] {
            break next;
        }
    };
    assert_eq!(question["kind"], "ask_user");
    assert_eq!(session.row().await["run_id"], asking["run_id"]);
    let answer = json!({"action": "answer", "values": {"answers": [["blue"]]}});
    session.answer(&question, answer).await.ok(202);
    let settled = session.until_idle().await;
    assert_eq!(
        (&settled["status"], &settled["run_id"]),
        (&json!("completed"), &asking["run_id"])
    );
    let said = session.said().await;
    assert!(said.iter().any(|said| said.contains("blue")), "{said:?}");
    assert_eq!(said.last().map(String::as_str), Some("the end"));
    let calls = counters(&session).await;
    assert_eq!(
        (
            count(&calls, "invoke"),
            count(&calls, "done"),
            count(&calls, "start")
        ),
        (1, 1, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_a_turn_that_fails_leaves_a_session_that_works() {
    let host = start("");
    let client = host.client();
    for (prompt, status) in [
        ("probe:turn fail native it broke", "failed"),
        ("probe:turn trap", "failed"),
        ("probe:start fail invalid no", "failed"),
        ("probe:turn fail disconnected gone", "disconnected"),
    ] {
        let session = client.prompted(PROBE, prompt).await;
        let row = session.until_idle().await;
        assert_eq!(row["status"], status, "{prompt}: {row}");
        assert!(
            types(&session).await.contains(&"TurnFailed".to_owned()),
            "{prompt}"
        );
        let next = session.prompt("next").await;
        assert_eq!(
            session.turn_end(&next).await["type"],
            "TurnDone",
            "{prompt}"
        );
        assert_eq!(session.said().await, ["next"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_r10_text_reaches_the_provider_byte_for_byte() {
    let host = start("");
    let client = host.client();
    let session = client.commanded(PROBE, "/control x").await;
    for text in [
        "/raw  two  spaces",
        "/raw\tand\n\nlines \n",
        "/raw émoji 🦀 \u{200b}\u{0301} ",
        "/raw \u{1b}[31m\u{0}",
    ] {
        let result = session.command(text).await.ok(200);
        assert_eq!(result["message"], text, "unlisted, and byte for byte");
    }
    let prompt = "/script control reply never";
    let id = session.prompt(prompt).await;
    session.turn_end(&id).await;
    assert_eq!(
        session.said().await.last().map(String::as_str),
        Some(prompt),
        "a literal is never run"
    );
}

/// W8: what a component says is data.
#[tokio::test(flavor = "multi_thread")]
async fn w8_text_of_a_component_is_data() {
    let host = start("");
    let client = host.client();
    let session = client.commanded(PROBE, "/control x").await;
    for text in [
        "<script>alert(1)</script>",
        "\u{1b}[2J\r\nset-cookie: a=b",
        "data: x\nevent: snapshot",
        "../../etc/passwd",
    ] {
        let answer = session.command(&format!("/control {text}")).await;
        assert_eq!(answer.headers["content-type"], "application/json");
        assert!(!answer.headers.contains_key("set-cookie"));
        assert_eq!(answer.ok(200)["message"], *text);
        assert_eq!(session.said().await.last().map(String::as_str), Some(text));
    }
    // The reader of this stream fails on a frame that a text broke.
    let tip = session.row().await["last_seq"].as_u64().unwrap();
    let mut events = session.events(Some(0)).await;
    events.until(|frame| frame.id == Some(tip)).await;
    let refused = session
        .command("/reject not-allowed \r\nx-evil: <b>yes</b>")
        .await;
    assert!(!refused.headers.contains_key("x-evil"));
    assert!(
        refused
            .problem(409, "command_disabled")
            .contains("<b>yes</b>"),
        "verbatim"
    );
}

/// W7: one instance a loop, shared with nobody, drafts included.
#[tokio::test(flavor = "multi_thread")]
async fn w7_sessions_and_drafts_have_instances_of_their_own() {
    let host = start("");
    let client = host.client();
    let one = client
        .commanded(PROBE, "/script control switch-set 1")
        .await;
    let other = client
        .commanded(PROBE, "/script control switch-set 2")
        .await;
    let state = client
        .post("/v1/sessions/harness-command-state", draft(PROBE))
        .await
        .ok(200);
    assert_eq!(state["modes"][0]["state"], "0", "the draft's own");
    assert_eq!(one.mode("switch").await.unwrap()["state"], "1");
    assert_eq!(other.mode("switch").await.unwrap()["state"], "2");
    for session in [&one, &other] {
        let calls = counters(session).await;
        assert_eq!(
            (count(&calls, "run"), count(&calls, "invoke")),
            (1, 1),
            "{calls:?}"
        );
    }
}

/// What was refused left nothing behind, also over a restart.
#[tokio::test(flavor = "multi_thread")]
async fn i28_a_refused_prompt_is_nowhere() {
    let host = start("");
    let client = host.client();
    let session = client.prompted(PROBE, "hello").await;
    session.until_idle().await;
    let before = session.journal().await;
    let elsewhere = json!({"loop_id": "00000000-0000-7000-8000-000000000000", "blocks": [{"type": "text", "text": "lost"}]});
    client
        .post(&session.path("/input"), elsewhere)
        .await
        .problem(404, "loop_not_found");
    let folding = json!({"fold_only": true, "blocks": [{"type": "text", "text": "lost"}]});
    client
        .post(&session.path("/input"), folding)
        .await
        .problem(409, "folding_unavailable");
    assert_eq!(session.journal().await, before);
    let setup = host.kill();
    assert!(!stored(&read_database(setup.data_dir())[&session.id]).contains("lost"));
    let host = setup.start();
    let session = session.at(&host.client());
    assert_eq!(
        (
            session.row().await["held"].clone(),
            session.list("/queue").await.len()
        ),
        (json!(0), 0)
    );
}

/// A trap in prepare and in invoke; a session beside it streams on.
#[tokio::test(flavor = "multi_thread")]
async fn i41_traps_are_told_apart_and_disturb_nobody() {
    let host = start("");
    let client = host.client();
    let beside = client
        .prompted(PROBE, "probe:turn stream 500 10 tick")
        .await;
    beside.until_status("in_progress").await;
    let session = client.prompted(PROBE, "hello").await;
    session.until_idle().await;
    let before = session.journal().await;
    session
        .command("/script prepare trap | control reply never")
        .await
        .problem(502, "provider_trap");
    assert_eq!(session.journal().await, before, "nothing was recorded");
    let asking = session.clone();
    let trapping = tokio::spawn(async move { asking.command("/script control ask q; trap").await });
    let gate = session.gate().await;
    session
        .answer(&gate, json!({"action": "decline"}))
        .await
        .ok(202);
    let result = trapping.await.unwrap().ok(200);
    assert_eq!(
        (&result["status"], &result["code"]),
        (&json!("uncertain"), &json!("provider_trap")),
        "{result}"
    );
    let row = session.until_idle().await;
    assert_eq!(
        (&row["status"], &row["open_gates"]),
        (&json!("failed"), &json!(0))
    );
    let row = beside.until_idle().await;
    assert_eq!(row["status"], "completed", "{row}");
}

/// An endless loop in prepare is cut at its slice; another session works meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn i42_a_spinning_prepare_delays_nobody_else() {
    let host = start("");
    let client = host.client();
    let spinning = client.commanded(PROBE, "/control x").await;
    let other = client.prompted(PROBE, "probe:turn ask q; say done").await;
    let gate = other.gate().await;
    let spin = tokio::spawn(async move {
        let begun = Instant::now();
        let answer = spinning
            .command("/script prepare spin | control reply never")
            .await;
        (answer, begun.elapsed(), spinning)
    });
    let work = async {
        let queued = other.prompt("probe:turn sleep 60000").await;
        other
            .answer(&gate, json!({"action": "decline"}))
            .await
            .ok(202);
        other
            .until("the queued turn", |row| {
                row["status"] == "in_progress" && row["queued"] == 0
            })
            .await;
        assert!(other.interrupt().await);
        assert_eq!(other.turn_end(&queued).await["type"], "TurnInterrupted");
    };
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .expect("without delay");
    let (answer, took, spinning) = spin.await.unwrap();
    answer.problem(504, "provider_timeout");
    assert!(
        took < Duration::from_secs(5),
        "cut at its slice, long before its deadline: {took:?}"
    );
    let again = spinning.command("/control again").await.ok(200);
    assert_eq!(again["status"], "completed");
}

/// An abort that is ignored: the instance is gone in time, and queued prompts go on.
#[tokio::test(flavor = "multi_thread")]
async fn i43_after_an_ignored_abort_queued_prompts_start() {
    let host = start("");
    let client = host.client();
    let session = client.prompted(PROBE, "probe:turn deaf 600000").await;
    session.until_status("in_progress").await;
    let queued = session.prompt("afterwards").await;
    let begun = Instant::now();
    assert!(session.interrupt().await);
    let mut events = session.events(Some(0)).await;
    let end = events.until(|frame| frame.event == "TurnInterrupted").await;
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(end.data["reason"], "user");
    assert_eq!(session.turn_end(&queued).await["type"], "TurnDone");
    assert_eq!(
        session.said().await.last().map(String::as_str),
        Some("afterwards")
    );
}

/// A client that comes back finds all it needs to go on.
#[tokio::test(flavor = "multi_thread")]
async fn g6_a_reconnecting_client_can_answer() {
    let host = start("");
    let session = host
        .client()
        .prompted(PROBE, "probe:turn approve tool rule:one; say done")
        .await;
    session.gate().await;
    // Another client, with nothing but the session's id.
    let session = session.at(&host.client());
    let row = session.row().await;
    assert_eq!(row["status"], "awaiting_input");
    assert!(row["run_id"].is_string());
    let gates = session.list("/gates").await;
    assert_eq!(gates.len(), 1);
    let gate = &gates[0];
    assert_eq!(gate["payload"]["tool_name"], "tool");
    assert_eq!(gate["payload"]["rules"], json!(["rule:one"]));
    assert_eq!(
        gate["actions"],
        json!(["approve_once", "approve_always_workspace", "deny"])
    );
    session
        .answer(gate, json!({"action": "approve_always_workspace"}))
        .await
        .ok(202);
    session.until_status("completed").await;
    // The rule answers from now on, in another session of the workspace too.
    let next = session
        .client
        .prompted(PROBE, "probe:turn approve tool rule:one")
        .await;
    let row = next.until_idle().await;
    assert_eq!(row["status"], "completed");
    assert_eq!(next.said().await, ["always"]);
}

/// G3: the host knows no harness by name, and a provider works under any.
#[tokio::test(flavor = "multi_thread")]
async fn g3_nothing_depends_on_a_harness_by_name() {
    let config = "[[provider]]\nid = \"acme/other-name\"\ncomponent = \"embedded\"\n[provider.grants.state]\n[provider.grants.delegation]\n";
    let host = Setup::configured(config).start();
    let session = host
        .client()
        .commanded("acme/other-name", "/plan write it")
        .await;
    session.until_idle().await;
    let revision = session.mode("plan").await.unwrap()["confirmation"]["id"].clone();
    let result = session
        .action("plan", "approve", revision.as_str())
        .await
        .ok(200);
    assert_eq!(
        (&result["status"], &result["params_effective"]),
        (&json!("started"), &json!("next_turn"))
    );
    session.until_status("completed").await;
    assert_eq!(session.row().await["params"]["planning"], false);

    for layer in ["core", "session", "journal", "engine", "api"] {
        scan(&root().join("host").join(layer).join("src"));
    }
}

/// Asserts that no code, tests and documentation aside, names a harness's command or mode.
fn scan(directory: &std::path::Path) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            scan(&path);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        if path.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap();
        for line in code.lines().map(str::trim_start) {
            if line.starts_with("//")
                || line.contains("example = ")
                || line.contains("json!(")
                || line.starts_with('"')
            {
                continue;
            }
            for name in [
                "\"/goal",
                "\"/plan",
                "\"planning\"",
                "\"demo/planner\"",
                "agents/acp",
                "openai/codex",
            ] {
                assert!(!line.contains(name), "{}: {line}", path.display());
            }
        }
    }
}
