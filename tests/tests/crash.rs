//! `kill -9` at random points under load (S32, S52, S54, S70, S72, R80).
//!
//! One data directory lives through many hosts. In each, several sessions are busy when the host
//! is killed, each at a point of its own: prompts, controls, exclusives and gates are under way.
//! Before the next host starts, the database is read; then the next host is asked what it knows.
//! Everything is compared with what clients were told.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_tests::{Answer, Client, Conversation, Fold, Record, Setup, read_database};
use rand::RngExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Hosts that are killed.
const RUNS: usize = 25;
/// Sessions that are busy in each: with 25 runs, 200 points.
const SESSIONS: usize = 8;

/// What a client was told of one session.
#[derive(Default)]
struct Told {
    /// Acknowledged prompts: command id and text, in the order of their answers.
    prompts: Vec<(String, String)>,
    /// Operations that were answered: text and body.
    operations: Vec<(String, Value)>,
    /// Operations that were sent; the answer may have been lost.
    sent: Vec<String>,
    /// Gates whose answer was accepted.
    gates: Vec<String>,
    /// Enduring events, in order.
    events: Vec<Value>,
    /// Sequence of the snapshot before them.
    from: u64,
}

struct Busy {
    id: String,
    told: Arc<Mutex<Told>>,
}

fn config() -> &'static str {
    "[slots]\ntotal = 6\n[[provider]]\ncomponent = \"embedded\"\n[provider.config]\ndelta_ms = 5\n\
     goal_gap_ms = 20\ngoal_step_ms = 40\n[provider.grants.state]\n[provider.grants.delegation]\n"
}

fn unique(word: &str) -> String {
    format!("{word}-{}", uuid::Uuid::new_v4().simple())
}

/// One session's clients; they end when the host is gone.
async fn load(session: Conversation, told: Arc<Mutex<Told>>) {
    tokio::join!(
        follow(session.clone(), told.clone()),
        prompts(session.clone(), told.clone()),
        operations(session.clone(), told.clone()),
        gates(session, told),
    );
}

async fn follow(session: Conversation, told: Arc<Mutex<Told>>) {
    let mut last = None;
    loop {
        let path = session.path("/events");
        let Ok(mut frames) = session.client.stream(&path, last).await else {
            return;
        };
        while let Some(frame) = frames.next().await {
            let mut told = told.lock().unwrap();
            match frame.event.as_str() {
                "snapshot" => told.from = frame.id.unwrap(),
                _ if frame.id.is_some() => told.events.push(frame.data),
                _ => {}
            }
        }
        if !frames.lagged() {
            return;
        }
        last = Some(frames.last());
    }
}

async fn prompts(session: Conversation, told: Arc<Mutex<Told>>) {
    loop {
        let text = match rand::rng().random_range(0..6) {
            0 => "demo:approval".to_owned(),
            1 => "demo:question".to_owned(),
            2 => "demo:slow 1".to_owned(),
            _ => unique("prompt"),
        };
        let body = json!({"blocks": [{"type": "text", "text": text}]});
        let Ok(answer) = session.client.try_post(&session.path("/input"), body).await else {
            return;
        };
        match answer.status {
            202 => {
                let id = answer.body["command_id"].as_str().unwrap().to_owned();
                told.lock().unwrap().prompts.push((id, text));
            }
            // The inbox is full.
            409 | 503 => {}
            _ => panic!("{}", answer.body),
        }
        pause(0, 120).await;
    }
}

async fn operations(session: Conversation, told: Arc<Mutex<Told>>) {
    loop {
        let text = match rand::rng().random_range(0..8) {
            0 => "/work 1".to_owned(),
            1 => "/plan".to_owned(),
            2 => "/goal pause".to_owned(),
            3 => format!("/goal {}", unique("goal")),
            _ => format!("/note {}", unique("note")),
        };
        told.lock().unwrap().sent.push(text.clone());
        let body = json!({"operation": {"kind": "command", "text": text}});
        let Ok(answer) = session
            .client
            .try_post(&session.path("/harness-commands"), body)
            .await
        else {
            return;
        };
        record(&told, text, answer);
        pause(0, 60).await;
    }
}

fn record(told: &Mutex<Told>, text: String, answer: Answer) {
    match answer.status {
        200 => told.lock().unwrap().operations.push((text, answer.body)),
        400 | 409 | 503 => {}
        _ => panic!("{text}: {}", answer.body),
    }
}

async fn gates(session: Conversation, told: Arc<Mutex<Told>>) {
    loop {
        let request = session
            .client
            .request(reqwest::Method::GET, &session.path("/gates"));
        let Ok(open) = session.client.send(request).await else {
            return;
        };
        for gate in open.body["items"].as_array().into_iter().flatten() {
            let body = match gate["kind"].as_str() {
                Some("permission") => json!({"action": "approve_once"}),
                _ => json!({"action": "answer", "values": {"answers": [["a colour"]]}}),
            };
            let id = gate["gate_id"].as_str().unwrap();
            let path = session.path(&format!("/gates/{id}"));
            let Ok(answer) = session.client.try_post(&path, body).await else {
                return;
            };
            match answer.status {
                202 => told.lock().unwrap().gates.push(id.to_owned()),
                404 | 409 => {}
                _ => panic!("{}", answer.body),
            }
        }
        pause(20, 80).await;
    }
}

/// Load has a pace; nothing waits for it.
async fn pause(least: u64, most: u64) {
    let ms = rand::rng().random_range(least..most);
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn events(records: &[Record]) -> Vec<Value> {
    records
        .iter()
        .filter(|record| record.event)
        .map(|record| {
            let mut event = record.body.clone();
            event["seq"] = json!(record.seq);
            event
        })
        .collect()
}

/// The database of a killed host against what clients were told.
fn check_left_behind(busy: &Busy, records: &[Record]) {
    let told = busy.told.lock().unwrap();
    let mut by_id: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records.iter().filter(|record| record.command) {
        *by_id
            .entry(record.body["command_id"].as_str().unwrap())
            .or_default() += 1;
    }
    let place = |id: &str| {
        let found = records
            .iter()
            .find(|record| record.command && record.body["command_id"] == id);
        found
            .unwrap_or_else(|| panic!("{id} was acknowledged and is not there"))
            .seq
    };
    // Every acknowledged command exactly once, in the order of the acknowledgements.
    let mut last = 0;
    for (id, text) in &told.prompts {
        assert_eq!(by_id.get(id.as_str()), Some(&1), "{text}");
        let seq = place(id);
        assert!(
            seq > last,
            "{text} is before a prompt that was acknowledged earlier"
        );
        last = seq;
    }
    let mut last = 0;
    for (text, result) in &told.operations {
        let id = result["command_id"].as_str().unwrap();
        assert_eq!(by_id.get(id), Some(&1), "{text}");
        let seq = place(id);
        assert!(
            seq > last,
            "{text} is before an operation that was answered earlier"
        );
        last = seq;
    }
    // What was seen is what is there, without a gap up to the last event seen.
    let stored = events(records);
    let Some(seen_to) = told.events.last().map(|event| event["seq"].as_u64()) else {
        return;
    };
    let expected: Vec<Value> = stored
        .into_iter()
        .filter(|event| event["seq"].as_u64() > Some(told.from) && event["seq"].as_u64() <= seen_to)
        .collect();
    assert_eq!(told.events.len(), expected.len(), "events seen and stored");
    for (seen, stored) in told.events.iter().zip(&expected) {
        assert_eq!(
            (&seen["seq"], &seen["type"], &seen["id"]),
            (&stored["seq"], &stored["type"], &stored["id"])
        );
    }
}

/// What the next host knows of a session, against its journal and what clients were told.
async fn check_restored(busy: &Busy, client: &Client, left: &[Record]) -> Found {
    let session = client.session(&busy.id);
    let journal = session.journal().await;
    let row = session.row().await;
    let fold = Fold::of(&journal);

    // The old host's events are a prefix; the restore added to them.
    let before = events(left);
    assert!(
        journal.len() >= before.len(),
        "{} of {} events",
        journal.len(),
        before.len()
    );
    for (now, then) in journal.iter().zip(&before) {
        assert_eq!((&now["seq"], &now["type"]), (&then["seq"], &then["type"]));
    }

    // Nothing is open any more, and the conversation is what the events add up to.
    let status = row["status"].as_str().unwrap();
    assert!(
        ["completed", "failed", "cancelled", "disconnected"].contains(&status),
        "{row}"
    );
    assert_eq!(
        (&row["open_gates"], &row["queued"]),
        (&json!(0), &json!(0)),
        "{row}"
    );
    assert!(
        fold.gates.is_empty() && fold.open_turns.is_empty(),
        "{fold:?}"
    );
    assert_eq!(session.list("/gates").await, Vec::<Value>::new());
    assert_eq!(session.messages().await, fold.messages());

    // Held inputs are held, in order; the snapshot says the same.
    let queue = session.list("/queue").await;
    let held: Vec<&str> = queue
        .iter()
        .map(|input| input["command_id"].as_str().unwrap())
        .collect();
    assert!(queue.iter().all(|input| input["held"] == true), "{queue:?}");
    assert_eq!(held, fold.held);
    assert_eq!(row["held"], json!(held.len()));
    let snapshot = session.events(None).await.next().await.unwrap();
    let queued = snapshot.data["queued_inputs"].as_array().unwrap();
    assert_eq!(*queued, queue);
    assert_eq!(snapshot.data["gates"], json!([]));
    assert_eq!(snapshot.data["session"]["status"], row["status"]);
    assert_eq!(snapshot.data["session"]["last_seq"], row["last_seq"]);

    let told = busy.told.lock().unwrap();
    // Every acknowledged prompt began once, is held, or was taken back with a reason.
    let mut places = Vec::new();
    for (id, text) in &told.prompts {
        let turns = fold.turns.get(id).copied().unwrap_or(0);
        let waits = usize::from(held.contains(&id.as_str()));
        let gone = fold
            .cancelled
            .iter()
            .filter(|cancelled| *cancelled == id)
            .count();
        assert_eq!(
            (turns + waits + gone),
            1,
            "{text}: {turns} turns, held {waits}, cancelled {gone}"
        );
        places.extend(held.iter().position(|held| held == id));
    }
    assert!(places.is_sorted(), "held inputs keep their order");
    // Every operation that was answered has that one outcome; every other one has one at most.
    for (text, result) in &told.operations {
        let outcomes = fold.outcomes.get(result["command_id"].as_str().unwrap());
        let outcome = result["status"].as_str().unwrap();
        assert_eq!(outcomes, Some(&vec![outcome.to_owned()]), "{text}");
    }
    for (id, outcomes) in &fold.outcomes {
        assert_eq!(outcomes.len(), 1, "{id} has {outcomes:?}");
    }
    let intents = left
        .iter()
        .filter(|record| record.command && record.body["type"] == "NativeOperation");
    for intent in intents {
        let id = intent.body["command_id"].as_str().unwrap();
        assert!(
            fold.outcomes.contains_key(id),
            "{id} has no outcome after the restore"
        );
    }
    // A note reached the native side once if it was answered, at most once if not.
    let answered = |text: &str| {
        told.operations
            .iter()
            .any(|(sent, result)| sent == text && result["status"] == "completed")
    };
    for text in told.sent.iter().filter(|text| text.starts_with("/note ")) {
        let note = text.strip_prefix("/note ").unwrap();
        let echoes = fold
            .messages()
            .iter()
            .filter(|message| message["role"] == "assistant" && message.to_string().contains(note));
        let echoes = echoes.count();
        assert!(
            echoes == 1 || (echoes == 0 && !answered(text)),
            "{text} was said {echoes} times"
        );
    }
    for id in &told.gates {
        let resolved = journal
            .iter()
            .filter(|event| event["type"] == "GateResolved" && event["gate_id"] == id.as_str());
        assert_eq!(resolved.count(), 1, "{id} was answered");
    }
    let ends = |kind: &str, reason: &str| {
        let of_kind = journal.iter().filter(|event| event["type"] == kind);
        of_kind.filter(|event| event["reason"] == reason).count()
    };
    Found {
        held: held.len(),
        uncertain: fold
            .outcomes
            .values()
            .filter(|all| all[0] == "uncertain")
            .count(),
        lost_turns: ends("TurnInterrupted", "host_lost"),
        lost_gates: ends("GateResolved", "restore_unavailable"),
        answered_gates: told.gates.len(),
    }
}

/// What a kill interrupted; each has to occur for the test to mean something.
#[derive(Debug, Default)]
struct Found {
    held: usize,
    uncertain: usize,
    lost_turns: usize,
    lost_gates: usize,
    answered_gates: usize,
}

impl Found {
    fn add(&mut self, more: &Self) {
        self.held += more.held;
        self.uncertain += more.uncertain;
        self.lost_turns += more.lost_turns;
        self.lost_gates += more.lost_gates;
        self.answered_gates += more.answered_gates;
    }
}

/// Acceptance: 200 random points.
#[tokio::test(flavor = "multi_thread")]
async fn r80_i35_two_hundred_kills_under_load_lose_and_repeat_nothing() {
    let begun = Instant::now();
    let mut setup = Setup::configured(config());
    let mut last: Vec<Busy> = Vec::new();
    let mut left: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    let (mut prompts, mut operations, mut events_seen) = (0, 0, 0);
    let mut found = Found::default();
    for run in 0..=RUNS {
        let host = setup.start();
        let client = host.client();
        for busy in &last {
            found.add(&check_restored(busy, &client, &left[&busy.id]).await);
        }
        if run == RUNS {
            finish(&client, &last).await;
            break;
        }
        let mut busy = Vec::new();
        let mut tasks = Vec::new();
        for _ in 0..SESSIONS {
            let session = client.prompted("demo/planner", "hello").await;
            let told = Arc::new(Mutex::new(Told::default()));
            busy.push(Busy {
                id: session.id.clone(),
                told: told.clone(),
            });
            tasks.push(tokio::spawn(load(session, told)));
            pause(0, 30).await;
        }
        pause(50, 1500).await;
        setup = host.kill();
        for task in tasks {
            task.await.expect("the load was answered as it should");
        }
        left = read_database(setup.data_dir());
        for busy in &busy {
            check_left_behind(busy, &left[&busy.id]);
            let told = busy.told.lock().unwrap();
            prompts += told.prompts.len();
            operations += told.operations.len();
            events_seen += told.events.len();
        }
        last = busy;
    }
    println!(
        "{} points, {prompts} prompts, {operations} operations, {events_seen} events in {:?}; {found:?}",
        RUNS * SESSIONS,
        begun.elapsed()
    );
    let Found {
        held,
        uncertain,
        lost_turns,
        lost_gates,
        answered_gates,
    } = found;
    for count in [held, uncertain, lost_turns, lost_gates, answered_gates] {
        assert!(count > 0, "some kind of loss never occurred");
    }
    assert!(
        prompts > RUNS * SESSIONS && operations > RUNS * SESSIONS,
        "there was load"
    );
}

/// S52: released inputs run, each once.
async fn finish(client: &Client, last: &[Busy]) {
    for busy in last {
        let session = client.session(&busy.id);
        let held = session.list("/queue").await;
        let released = client
            .post(&session.path("/queue/release"), json!({}))
            .await
            .ok(200);
        assert_eq!(released["released"].as_array().unwrap().len(), held.len());
        loop {
            let row = session
                .until("idle or asking", |row| {
                    row["open_gates"] != 0
                        || (row["status"] != "in_progress"
                            && row["queued"] == 0
                            && row["status"] != "queued")
                })
                .await;
            if row["open_gates"] == 0 {
                break;
            }
            for gate in session.list("/gates").await {
                let action = if gate["kind"] == "permission" {
                    "deny"
                } else {
                    "decline"
                };
                session.answer(&gate, json!({"action": action})).await;
            }
        }
        let fold = Fold::of(&session.journal().await);
        for input in held {
            let id = input["command_id"].as_str().unwrap();
            assert_eq!(fold.turns.get(id), Some(&1), "a released input begins once");
        }
    }
}
