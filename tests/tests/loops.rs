//! Several loops in one session, folding, compaction, stored rules and secrets, over real HTTP.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_tests::{Answer, Client, Conversation, Host, Record, Setup, read_database};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;

const PLANNER: &str = "demo/planner";
/// The same component under another id.
const OTHER: &str = "demo/other";

fn setup() -> Setup {
    let provider = |id: &str| {
        format!(
            "[[provider]]\nid = \"{id}\"\ncomponent = \"embedded\"\n[provider.config]\n\
             delta_ms = 0\n[provider.grants.state]\n[provider.grants.delegation]\n"
        )
    };
    Setup::configured(&(provider(PLANNER) + &provider(OTHER)))
}

/// A session with three loops on two harnesses, each with a word in its history: the first is
/// plain, the second has a model, the third a mode.
async fn three(client: &Client) -> (Conversation, [String; 3]) {
    let session = client.prompted(PLANNER, "one").await;
    let row = session.until_idle().await;
    let first = row["active_loop_id"].as_str().unwrap().to_owned();
    let second = json!({"agent": PLANNER, "model": "m2"});
    let second = session.begin_loop(second).await;
    let third = json!({"agent": OTHER, "mode": "review"});
    let third = session.begin_loop(third).await;
    for (loop_id, text) in [(&second, "two"), (&third, "three")] {
        let prompt = session.prompt_loop(loop_id, text).await;
        assert_eq!(session.turn_end(&prompt).await["type"], "TurnDone");
    }
    (session, [first, second, third])
}

/// Waits until exactly these loops have a turn that runs.
async fn running(session: &Conversation, wanted: [bool; 3]) {
    let mut events = session.events(None).await;
    loop {
        let loops = session.list("/loops").await;
        let running: Vec<_> = loops.iter().map(|l| l["running"] == true).collect();
        if running == wanted {
            return;
        }
        events.until(|_| true).await;
    }
}

/// Changes what the next turn of a loop uses.
async fn change(session: &Conversation, loop_id: &str, what: &str, body: Value) -> Answer {
    let path = session.path(&format!("/loops/{loop_id}/{what}"));
    session.client.post(&path, body).await
}

/// The journal's event of this type that a command caused.
async fn caused(session: &Conversation, kind: &str, command_id: &str) -> Value {
    let mut events = session.events(Some(0)).await;
    let frame = events
        .until(|frame| frame.event == kind && frame.data["cause"]["command_id"] == command_id)
        .await;
    frame.data
}

async fn completed(session: &Conversation, text: &str) {
    let id = session.prompt(text).await;
    let end = session.turn_end(&id).await;
    assert_eq!(end["type"], "TurnDone", "{text}: {end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s35_s112_three_loops_on_two_harnesses() {
    let host = setup().start();
    let (session, [first, second, third]) = three(&host.client()).await;
    let loops = session.list("/loops").await;
    let outline: Vec<_> = loops
        .iter()
        .map(|l| (l["loop_id"].as_str().unwrap(), l["agent"].as_str().unwrap()))
        .collect();
    assert_eq!(
        outline,
        [(&*first, PLANNER), (&*second, PLANNER), (&*third, OTHER)],
        "in order of creation"
    );
    let modes: Vec<_> = loops[2]["modes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["name"])
        .collect();
    assert_eq!(modes, ["", "review"], "the base mode is one of them");
    for (loop_id, word, note) in [
        (&first, "“one”", "without a model."),
        (&second, "“two”", "(the session chose m2)"),
        (&third, "“three”", "(in loop mode review)"),
    ] {
        let said = session.said_in(loop_id).await;
        assert_eq!(said.len(), 1, "a conversation of its own: {said:?}");
        assert!(said[0].contains(word) && said[0].contains(note), "{said:?}");
    }

    // The active loop takes commands, discovery and what names no loop.
    assert_eq!(session.state().await["harnessId"], PLANNER);
    session.activate(&third).await;
    assert_eq!(session.row().await["active_loop_id"], *third);
    assert_eq!(session.state().await["harnessId"], OTHER);
    let noted = session.command("/note there").await.ok(200);
    assert_eq!(noted["message"], "there");
    completed(&session, "four").await;
    assert_eq!(session.messages_of(&first).await.len(), 2);
    let said = session.said_in(&third).await;
    assert_eq!(said.len(), 3, "{said:?}");
    assert_eq!(said[1], "there");
    assert!(said[2].contains("“four”"), "{said:?}");
    assert_eq!(session.messages().await, session.messages_of(&third).await);

    // A stream that asks for one loop sees that one, and the session.
    let path = session.path(&format!(
        "/events?after=0&enduring={second}&ephemeral={second}"
    ));
    let mut events = session.client.stream(&path, None).await.unwrap();
    let mut seen = Vec::new();
    events
        .until(|frame| {
            if frame.event.starts_with("Turn") || frame.event.starts_with("Loop") {
                assert_eq!(frame.data["loop_id"], *second, "{frame:?}");
            }
            seen.push(frame.event.clone());
            frame.event == "ActiveLoopChanged"
        })
        .await;
    for kind in ["SessionStarted", "LoopStarted", "TurnStarted", "TurnDone"] {
        let count = seen.iter().filter(|seen| *seen == kind).count();
        assert_eq!(count, 1, "{kind} in {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s90_s104_a_stop_of_one_loop_leaves_the_others_running() {
    let host = setup().start();
    let (session, [first, second, third]) = three(&host.client()).await;
    let mut slow = Vec::new();
    for loop_id in [&first, &second, &third] {
        slow.push(session.prompt_loop(loop_id, "demo:slow 300").await);
    }
    running(&session, [true, true, true]).await;
    let stop = json!({"loop_id": second});
    let path = session.path("/interrupt");
    let stopped = session.client.post(&path, stop.clone()).await.ok(200);
    assert_eq!(stopped["interrupted"], true);
    let end = session.turn_end(&slow[1]).await;
    assert_eq!(
        (&end["type"], &end["loop_id"]),
        (&json!("TurnInterrupted"), &json!(second))
    );
    running(&session, [true, false, true]).await;
    let again = session.client.post(&path, stop).await.ok(200);
    assert_eq!(again["interrupted"], false, "nothing runs there");
    // It works on while its siblings do.
    let next = session.prompt_loop(&second, "five").await;
    assert_eq!(session.turn_end(&next).await["type"], "TurnDone");
    running(&session, [true, false, true]).await;
    assert!(session.interrupt().await, "what names no loop stops all");
    for prompt in [&slow[0], &slow[2]] {
        let end = session.turn_end(prompt).await;
        assert_eq!(end["type"], "TurnInterrupted");
    }
    running(&session, [false, false, false]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s20_s21_s116_mode_and_inference_hold_from_the_next_turn_on() {
    let host = setup().start();
    let session = host.client().prompted(PLANNER, "demo:slow 300").await;
    let row = session.until_status("in_progress").await;
    let active = row["active_loop_id"].as_str().unwrap();
    let mode = json!({"mode": "review"});
    let set = change(&session, active, "mode", mode).await.ok(200);
    let expected =
        json!({"mode": "review", "model": null, "effort": null, "effective": "next_turn"});
    assert_eq!(set, expected);
    let model = json!({"model": "m2"});
    let set = change(&session, active, "inference", model).await.ok(200);
    assert_eq!(
        (&set["mode"], &set["model"]),
        (&json!("review"), &json!("m2"))
    );
    for (what, body, code) in [
        ("mode", json!({"mode": "poetry"}), "invalid_mode"),
        (
            "mode",
            json!({"mode": "m".repeat(1_000_000)}),
            "invalid_mode",
        ),
        ("inference", json!({"model": "m9"}), "invalid_model"),
        ("inference", json!({"effort": "heroic"}), "invalid_effort"),
        ("inference", json!({}), "no_changes"),
    ] {
        change(&session, active, what, body)
            .await
            .problem(400, code);
    }
    assert!(session.interrupt().await);
    completed(&session, "next").await;
    let said = session.said().await.pop().unwrap();
    assert!(
        said.contains("(the session chose m2)") && said.contains("(in loop mode review)"),
        "{said}"
    );
    // A change of the mode forgets the model that was set for it (S71).
    let base = json!({"mode": ""});
    let set = change(&session, active, "mode", base).await.ok(200);
    assert_eq!((&set["mode"], &set["model"]), (&json!(""), &Value::Null));
    completed(&session, "last").await;
    let said = session.said().await.pop().unwrap();
    assert!(!said.contains("chose") && !said.contains("in loop mode"));
}

#[tokio::test(flavor = "multi_thread")]
async fn s35_s70_s71_loops_survive_a_kill() {
    let host = setup().start();
    let (session, [first, second, third]) = three(&host.client()).await;
    let keyed = |session: &Conversation| {
        let request = session
            .client
            .request(Method::POST, &session.path("/loops"))
            .header("idempotency-key", "a fourth")
            .json(&json!({"agent": OTHER}));
        let client = session.client.clone();
        async move { client.send(request).await.unwrap().ok(201) }
    };
    let fourth = keyed(&session).await;
    session.activate(&third).await;
    let effort = json!({"model": "m1"});
    change(&session, &first, "inference", effort).await.ok(200);
    let cut = session.prompt_loop(&second, "demo:slow 300").await;
    let waits = session.prompt_loop(&second, "waits").await;
    session
        .until("one runs and one waits", |row| {
            row["queued"] == 1 && row["status"] == "in_progress"
        })
        .await;
    let loops = session.list("/loops").await;
    assert_eq!(loops[1]["running"], true, "{loops:?}");
    let mut histories = Vec::new();
    for loop_id in [&first, &third] {
        histories.push(session.messages_of(loop_id).await);
    }

    let host = host.kill().start();
    let session = session.at(&host.client());
    assert_eq!(session.turn_end(&cut).await["type"], "TurnInterrupted");
    let mut expected = loops;
    expected[1]["running"] = json!(false);
    assert_eq!(session.list("/loops").await, expected);
    assert_eq!(session.row().await["active_loop_id"], *third);
    for (loop_id, history) in [&first, &third].into_iter().zip(histories) {
        assert_eq!(session.messages_of(loop_id).await, history);
    }
    let queue = session.list("/queue").await;
    assert_eq!(queue.len(), 1);
    assert_eq!(
        (
            &queue[0]["command_id"],
            &queue[0]["loop_id"],
            &queue[0]["held"]
        ),
        (&json!(waits), &json!(second), &json!(true)),
        "S52"
    );
    assert_eq!(keyed(&session).await, fourth, "S120: the same loop");
    assert_eq!(session.list("/loops").await.len(), 4);
    let release = json!({"loop_id": second});
    let path = session.path("/queue/release");
    session.client.post(&path, release).await.ok(200);
    assert_eq!(session.turn_end(&waits).await["type"], "TurnDone");
    let said = session.said_in(&second).await.pop().unwrap();
    assert!(said.contains("(the session chose m2)"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn w7_n19_two_loops_of_one_harness_keep_their_state_apart() {
    let host = setup().start();
    let (session, [first, second, _]) = three(&host.client()).await;
    session.activate(&second).await;
    session.command("/plan").await.ok(200);
    assert!(session.mode("plan").await.is_some());
    session.activate(&first).await;
    assert_eq!(session.mode("plan").await, None);
    let host = host.kill().start();
    let session = session.at(&host.client());
    assert_eq!(session.mode("plan").await, None);
    session.activate(&second).await;
    assert!(session.mode("plan").await.is_some(), "it is read back");
}

/// Types of events, with the commands that caused them.
fn outline(journal: &[Value]) -> Vec<(&str, &str)> {
    let mut outline = Vec::new();
    for event in journal {
        let cause = event["cause"]["command_id"].as_str();
        outline.push((event["type"].as_str().unwrap(), cause.unwrap_or_default()));
    }
    outline
}

#[tokio::test(flavor = "multi_thread")]
async fn s42_i29_r120_what_is_said_meanwhile_folds_at_the_boundary() {
    let host = setup().start();
    let session = host.client().prompted(PLANNER, "hello").await;
    session.until_idle().await;
    let alone = session
        .input("nobody listens", json!({"fold_only": true}))
        .await;
    alone.problem(409, "folding_unavailable");
    let steps = session.prompt("demo:steps 3").await;
    session.until_status("in_progress").await;
    let folds = session.prompt("the first thing").await;
    let only = json!({"fold_only": true});
    let only = session.say("the second thing", only).await;
    let apart = session.say("by itself", json!({"no_fold": true})).await;
    let behind = session.prompt("behind it").await;
    assert_eq!(session.turn_end(&behind).await["type"], "TurnDone");

    let journal = session.journal().await;
    let outline = outline(&journal);
    let places = |kind: &str, command: &str| -> Vec<usize> {
        let of = outline.iter().enumerate();
        of.filter(|(_, event)| **event == (kind, command))
            .map(|(at, _)| at)
            .collect()
    };
    let begun = places("TurnStarted", &steps)[0];
    let ended = places("TurnDone", &steps)[0];
    let (one, two) = (
        places("TurnFoldedInto", &folds)[0],
        places("TurnFoldedInto", &only)[0],
    );
    assert!(begun < one && one + 1 == two && two < ended, "{outline:?}");
    let before = &journal[one - 1];
    assert_eq!(before["type"], "StepDone", "after the tool results");
    assert!(before.to_string().contains("nothing was really done"));
    let after = &journal[two + 1];
    assert_eq!(after["type"], "StepDone");
    assert!(after.to_string().contains("Taken up: “the first thing”"));
    for folded in [&folds, &only] {
        assert!(places("TurnStarted", folded).is_empty());
        assert!(places("TurnFoldedInto", folded).len() == 1);
    }
    // What does not fold stops the folding and starts its own turn, and so does what follows.
    for own in [&apart, &behind] {
        assert!(places("TurnFoldedInto", own).is_empty());
        assert!(places("TurnStarted", own)[0] > ended);
    }
    // What folded is in the conversation where it was taken up, also after a crash (S74).
    let texts = |messages: &[Value]| -> Vec<String> {
        let of = messages.iter().map(|m| m["parts"][0]["text"].clone());
        of.filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    };
    let messages = session.messages().await;
    let said = texts(&messages);
    let at = said
        .iter()
        .position(|text| text == "the first thing")
        .unwrap();
    assert_eq!(said[at + 1], "the second thing");
    assert_eq!(said[at + 2], "Taken up: “the first thing”.");
    let host = host.kill().start();
    let session = session.at(&host.client());
    assert_eq!(session.messages().await, messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn r120_what_only_folds_and_finds_no_boundary_is_cancelled() {
    let host = setup().start();
    let session = host.client().prompted(PLANNER, "demo:slow 300").await;
    session.until_status("in_progress").await;
    let only = session.say("too late", json!({"fold_only": true})).await;
    assert!(session.interrupt().await);
    let end = session.turn_end(&only).await;
    assert_eq!(
        (&end["type"], &end["reason"]),
        (&json!("InputCancelled"), &json!("turn_ended"))
    );
    assert!(
        !json!(session.messages().await)
            .to_string()
            .contains("too late")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s95_s115_a_compaction_replaces_the_conversation_by_its_summary() {
    let host = setup().start();
    let session = host.client().prompted(PLANNER, "first").await;
    session.until_idle().await;
    completed(&session, "second").await;
    assert_eq!(session.messages().await.len(), 4);
    let asked = session.compact().await;
    caused(&session, "CompactWaiterResolved", &asked).await;
    let committed = caused(&session, "CompactionCommitted", &asked).await;
    let summary = committed["summary"].as_str().unwrap();
    assert!(summary.contains("2 turns came before"), "{summary}");
    let messages = session.messages().await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].to_string().contains(summary));
    let journal = session.journal().await;
    assert_eq!(
        journal.iter().filter(|e| e["type"] == "TurnDone").count(),
        2,
        "the journal forgets nothing"
    );

    // During a turn it waits, and what is said meanwhile waits for it.
    let running = session.prompt("demo:slow 2").await;
    session.until_status("in_progress").await;
    let asked = session.compact().await;
    let queued = session.say("afterwards", json!({"no_fold": true})).await;
    assert_eq!(session.turn_end(&queued).await["type"], "TurnDone");
    let journal = session.journal().await;
    let outline = outline(&journal);
    let place = |kind: &str, command: &str| {
        let found = outline.iter().position(|event| *event == (kind, command));
        found.unwrap_or_else(|| panic!("no {kind} in {outline:?}"))
    };
    assert!(place("TurnDone", &running) < place("CompactionCommitted", &asked));
    assert!(place("CompactionCommitted", &asked) < place("TurnStarted", &queued));
    let messages = session.messages().await;
    assert_eq!(messages.len(), 3, "summary, prompt, answer: {messages:?}");
    assert!(messages[0].to_string().contains("1 turns came before"));

    let host = host.kill().start();
    let session = session.at(&host.client());
    assert_eq!(session.messages().await, messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn s83_what_was_approved_for_good_is_not_asked_again() {
    let host = setup().start();
    let session = host.client().prompted(PLANNER, "demo:remember").await;
    let gate = session.gate().await;
    assert_eq!(gate["payload"]["rules"], json!(["shell:echo remember"]));
    let always = json!({"action": "approve_always_workspace"});
    session.answer(&gate, always).await.ok(202);
    session.until_idle().await;
    let not_asked = async |session: &Conversation| {
        completed(session, "demo:remember").await;
        let said = session.said().await.pop().unwrap();
        assert_eq!(said, "The tool was approved for good; nothing was run.");
    };
    not_asked(&session).await;
    let opened = async |session: &Conversation| {
        let journal = session.journal().await;
        journal.iter().filter(|e| e["type"] == "GateOpened").count()
    };
    assert_eq!(opened(&session).await, 1);

    let host = host.kill().start();
    let session = session.at(&host.client());
    not_asked(&session).await;
    assert_eq!(opened(&session).await, 1);
    // The rule is this harness's: the same component under another id asks.
    let other = host.client().prompted(OTHER, "demo:remember").await;
    other.gate().await;
    // Another tool of the same harness is asked for.
    session.prompt("demo:approval").await;
    session.gate().await;
}

/// Files below a directory whose bytes hold the text.
fn holding(directory: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    let mut read = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                read += bytes.len();
                if memchr::memmem::find(&bytes, text.as_bytes()).is_some() {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    assert!(read > 0, "{} is empty", directory.display());
    found
}

/// Asserts that a canary is in no API answer and no event of a session.
async fn reads_clean(session: &Conversation, canary: &str) {
    for rest in [
        "",
        "/gates",
        "/queue",
        "/loops",
        "/messages",
        "/harness-commands",
    ] {
        session.client.get(&session.path(rest)).await.ok(200);
    }
    session.journal().await;
    for exchange in session.client.seen() {
        let answer = &exchange.answer;
        let text = format!("{} {:?} {}", exchange.path, answer.headers, answer.body);
        assert!(!text.contains(canary), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s81_i37_a_secret_answer_is_found_nowhere() {
    let canary = format!("canary-{}", uuid::Uuid::new_v4().simple());
    let mut setup = setup();
    setup.env.push(("HARNESS_LOG".into(), "debug".into()));
    let host = setup.start();
    let session = host.client().prompted(PLANNER, "demo:secret").await;
    let mut live = session.events(Some(0)).await;
    let gate = session.gate().await;
    assert_eq!(gate["payload"]["questions"][0]["secret"], true, "{gate}");
    // Answers that are refused do not repeat it either.
    for (wrong, code) in [
        (json!([[canary], [canary]]), "invalid_request"),
        (json!([[canary, canary]]), "invalid_request"),
        (json!([canary]), "invalid_request"),
        (json!(canary), "invalid_request"),
        (json!({"secret": canary}), "invalid_request"),
    ] {
        let answer = json!({"action": "answer", "values": {"answers": wrong}});
        session.answer(&gate, answer).await.problem(400, code);
    }
    let answer = json!({"action": "answer", "values": {"answers": [[canary]]}});
    let request = session
        .client
        .request(
            Method::POST,
            &session.path(&format!("/gates/{}", gate["gate_id"].as_str().unwrap())),
        )
        .header("idempotency-key", "a secret")
        .json(&answer);
    session.client.send(request).await.unwrap().ok(202);
    session
        .answer(&gate, answer)
        .await
        .problem(404, "gate_not_found");
    session.until_idle().await;
    let said = session.said().await.pop().unwrap();
    assert_eq!(said, format!("Your secret has {} bytes.", canary.len()));

    live.until(|frame| {
        let text = frame.data.to_string();
        assert!(!text.contains(&canary), "{text}");
        frame.event == "TurnDone"
    })
    .await;
    reads_clean(&session, &canary).await;
    assert_eq!(holding(host.setup().data_dir(), &canary), [""; 0], "live");
    let setup = host.setup().clone();
    clean_end(host, &canary);
    let records = &read_database(setup.data_dir())[&session.id];
    let kept = |record: &Record| record.body.to_string().contains(r#""redacted":true"#);
    let commands = records.iter().filter(|record| record.command);
    assert_eq!(
        commands.filter(|record| kept(record)).count(),
        1,
        "its place is kept"
    );

    // What a restart reads is no more than that.
    let host = setup.start();
    reads_clean(&session.at(&host.client()), &canary).await;
    clean_end(host, &canary);
}

/// Ends a host; the canary is in no log line and in no file that it leaves.
fn clean_end(host: Host, canary: &str) {
    let setup = host.setup().clone();
    let (status, logs) = host.end();
    assert!(status.success(), "{status}");
    assert!(
        logs.contains("\"DEBUG\""),
        "at the level of debugging: {logs}"
    );
    let leaks: Vec<&str> = logs.lines().filter(|line| line.contains(canary)).collect();
    assert_eq!(leaks, [""; 0]);
    assert_eq!(holding(setup.data_dir(), canary), [""; 0]);
}
