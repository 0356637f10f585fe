//! `kill -9` at random points of sessions with three loops on two harnesses (S52, S70, S71, S77,
//! S87, S95, R80): a queue, an open gate, turns in several loops, changes of mode and model,
//! compactions. The next host is asked what it knows, and every answer is compared with the
//! journal and with what clients were told.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_tests::{Client, Conversation, Fold, Record, Setup, read_database};
use rand::RngExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Hosts that are killed.
const RUNS: usize = 25;
/// Sessions that are busy in each: with 25 runs, 200 points.
const SESSIONS: usize = 8;

const PLANNER: &str = "demo/planner";
/// The same component under another id.
const OTHER: &str = "demo/other";

/// What a client was told of one session.
#[derive(Default)]
struct Told {
    /// Acknowledged prompts, with the loop each was for, in the order of their answers.
    prompts: Vec<(String, String)>,
    /// Acknowledged compactions.
    compactions: Vec<String>,
    /// Operations that were answered: command id and outcome.
    outcomes: Vec<(String, String)>,
    /// Mode of the second loop: acknowledged last, and asked for after that.
    mode: (String, Option<String>),
    /// The gate that nobody answers.
    gate: String,
}

struct Busy {
    id: String,
    loops: [String; 3],
    told: Arc<Mutex<Told>>,
}

fn config() -> String {
    let provider = |id: &str| {
        format!(
            "[[provider]]\nid = \"{id}\"\ncomponent = \"embedded\"\n[provider.config]\n\
             delta_ms = 5\ngoal_gap_ms = 20\ngoal_step_ms = 40\n[provider.grants.state]\n[provider.grants.delegation]\n"
        )
    };
    format!(
        "[slots]\ntotal = 20\n{}{}",
        provider(PLANNER),
        provider(OTHER)
    )
}

fn roll(sides: u32) -> u32 {
    rand::rng().random_range(0..sides)
}

/// Load has a pace; nothing waits for it.
async fn pause(least: u64, most: u64) {
    let ms = rand::rng().random_range(least..most);
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// A session with three loops, the third of which waits for a person, with a prompt behind it.
async fn begin(client: &Client) -> (Conversation, Busy) {
    let session = client.prompted(PLANNER, "hello").await;
    let row = session.until_idle().await;
    let first = row["active_loop_id"].as_str().unwrap().to_owned();
    let second = session
        .begin_loop(json!({"agent": PLANNER, "model": "m2"}))
        .await;
    let third = session
        .begin_loop(json!({"agent": OTHER, "mode": "review"}))
        .await;
    let mut told = Told::default();
    let asking = session.prompt_loop(&third, "demo:approval").await;
    told.gate = session.gate().await["gate_id"].as_str().unwrap().to_owned();
    let behind = session.prompt_loop(&third, "waits").await;
    told.prompts = vec![(asking, third.clone()), (behind, third.clone())];
    let busy = Busy {
        id: session.id.clone(),
        loops: [first, second, third],
        told: Arc::new(Mutex::new(told)),
    };
    (session, busy)
}

/// One session's clients; they end when the host is gone.
async fn load(session: Conversation, loops: [String; 3], told: Arc<Mutex<Told>>) {
    tokio::join!(
        prompts(session.clone(), loops.clone(), told.clone()),
        operations(session.clone(), told.clone()),
        changes(session, loops, told),
    );
}

async fn prompts(session: Conversation, loops: [String; 3], told: Arc<Mutex<Told>>) {
    loop {
        let loop_id = &loops[roll(3) as usize];
        let text = ["plain", "demo:slow 1", "demo:steps 2", "demo:burst 20"][roll(4) as usize];
        let body = json!({
            "blocks": [{"type": "text", "text": text}],
            "loop_id": loop_id,
            "no_fold": roll(4) == 0,
        });
        let Ok(answer) = session.client.try_post(&session.path("/input"), body).await else {
            return;
        };
        match answer.status {
            202 => {
                let id = answer.body["command_id"].as_str().unwrap().to_owned();
                told.lock().unwrap().prompts.push((id, loop_id.clone()));
            }
            409 | 503 => {}
            _ => panic!("{}", answer.body),
        }
        pause(0, 150).await;
    }
}

async fn operations(session: Conversation, told: Arc<Mutex<Told>>) {
    loop {
        let text = ["/note here", "/plan", "/work 1"][roll(3) as usize];
        let body = json!({"operation": {"kind": "command", "text": text}});
        let path = session.path("/harness-commands");
        let Ok(answer) = session.client.try_post(&path, body).await else {
            return;
        };
        match answer.status {
            200 => {
                let word = |name: &str| answer.body[name].as_str().unwrap().to_owned();
                let outcome = (word("command_id"), word("status"));
                told.lock().unwrap().outcomes.push(outcome);
            }
            400 | 409 | 503 => {}
            _ => panic!("{text}: {}", answer.body),
        }
        pause(0, 150).await;
    }
}

async fn changes(session: Conversation, loops: [String; 3], told: Arc<Mutex<Told>>) {
    let post = async |rest: &str, body: Value| {
        let sent = session.client.try_post(&session.path(rest), body).await;
        sent.ok().inspect(|a| {
            let expected = [200, 202, 400, 409, 503];
            assert!(expected.contains(&a.status), "{rest}: {}", a.body);
        })
    };
    loop {
        let active = json!({"loop_id": loops[roll(2) as usize]});
        let Some(_) = post("/active-loop", active).await else {
            return;
        };
        let mode = ["", "review"][roll(2) as usize].to_owned();
        told.lock().unwrap().mode.1 = Some(mode.clone());
        let path = format!("/loops/{}/mode", loops[1]);
        let Some(set) = post(&path, json!({"mode": mode})).await else {
            return;
        };
        if set.status == 200 {
            told.lock().unwrap().mode = (mode, None);
        }
        if roll(3) == 0 {
            let Some(asked) = post("/compact", json!({"loop_id": loops[0]})).await else {
                return;
            };
            let mut told = told.lock().unwrap();
            let id = asked.body["command_id"]
                .as_str()
                .filter(|_| asked.status == 202);
            told.compactions.extend(id.map(str::to_owned));
        }
        pause(20, 200).await;
    }
}

/// What a kill interrupted; each has to occur for the test to mean something.
#[derive(Debug, Default)]
struct Found {
    held: usize,
    folded: usize,
    lost_turns: usize,
    lost_gates: usize,
    several: usize,
    compacted: usize,
}

/// What the next host knows of a session, against its journal and what clients were told.
async fn check_restored(busy: &Busy, client: &Client, left: &[Record], found: &mut Found) {
    let session = client.session(&busy.id);
    let journal = session.journal().await;
    let row = session.row().await;
    let fold = Fold::of(&journal);
    let then = left.iter().filter(|r| r.event);
    for (now, then) in journal.iter().zip(then) {
        assert_eq!(
            (&now["seq"], &now["type"]),
            (&json!(then.seq), &then.body["type"])
        );
    }

    // Nothing is open, in any loop.
    let status = row["status"].as_str().unwrap();
    let settled = ["completed", "failed", "cancelled", "disconnected"];
    assert!(settled.contains(&status), "{row}");
    assert!(
        fold.gates.is_empty() && fold.open_turns.is_empty(),
        "{fold:?}"
    );
    assert_eq!(session.list("/gates").await, Vec::<Value>::new());

    // Loops, their settings and their conversations are what the events add up to.
    assert_eq!(row["active_loop_id"], fold.active_loop);
    let loops = session.list("/loops").await;
    let ids: Vec<_> = loops
        .iter()
        .map(|l| l["loop_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, busy.loops, "in order of creation");
    for of in &loops {
        let id = of["loop_id"].as_str().unwrap();
        let folded = &fold.loops[id];
        assert_eq!(
            (&of["agent"], &of["mode"]),
            (&json!(folded.harness), &json!(folded.mode))
        );
        assert_eq!(of["running"], false);
        assert_eq!(
            session.messages_of(id).await,
            folded.messages,
            "of loop {id}"
        );
    }
    assert_eq!(loops[1]["model"], "m2", "what a loop was made with");

    // Held inputs are held, each loop's in order.
    let queue = session.list("/queue").await;
    assert!(queue.iter().all(|input| input["held"] == true), "{queue:?}");
    let ids = |loop_id: &str| -> Vec<&str> {
        let of = queue.iter().filter(|input| input["loop_id"] == loop_id);
        of.map(|input| input["command_id"].as_str().unwrap())
            .collect()
    };
    assert_eq!(queue.len(), fold.held.len());
    let told = busy.told.lock().unwrap();
    for loop_id in &busy.loops {
        let held = ids(loop_id);
        let known = told
            .prompts
            .iter()
            .filter(|(id, of)| of == loop_id && held.contains(&&**id));
        let known: Vec<_> = known.map(|(id, _)| id.as_str()).collect();
        let acknowledged: Vec<_> = held
            .iter()
            .filter(|id| known.contains(id))
            .copied()
            .collect();
        assert_eq!(
            acknowledged, known,
            "in the order of their acknowledgements"
        );
    }
    assert!(
        ids(&busy.loops[2]).contains(&&*told.prompts[1].0),
        "behind the gate it waits"
    );

    // Every acknowledged prompt began once, was folded once, is held, or was taken back.
    for (id, _) in &told.prompts {
        let times = |list: &[String]| list.iter().filter(|known| *known == id).count();
        let turns = fold.turns.get(id).copied().unwrap_or(0);
        let waits = queue
            .iter()
            .filter(|input| input["command_id"] == **id)
            .count();
        let sum = turns + times(&fold.folded) + times(&fold.cancelled) + waits;
        assert_eq!(sum, 1, "{id}: {turns} turns, {waits} held");
    }
    for (id, outcome) in &told.outcomes {
        assert_eq!(fold.outcomes.get(id), Some(&vec![outcome.clone()]));
    }
    assert!(
        fold.outcomes.values().all(|all| all.len() == 1),
        "{:?}",
        fold.outcomes
    );
    for id in &told.compactions {
        assert_eq!(fold.compactions.get(id), Some(&1), "one reply a compaction");
    }
    // What was acknowledged last holds, or what was asked for after that.
    let mode = loops[1]["mode"].as_str().unwrap();
    let (acknowledged, asked) = &told.mode;
    assert!(
        mode == acknowledged || asked.as_deref() == Some(mode),
        "{mode}: {:?}",
        told.mode
    );
    // The gate that nobody answered closed with its host.
    let closed = |e: &&Value| e["type"] == "GateResolved" && e["gate_id"] == told.gate;
    let closed: Vec<_> = journal.iter().filter(closed).collect();
    assert_eq!(closed.len(), 1);
    assert_eq!(closed[0]["reason"], "restore_unavailable");

    let lost = |e: &&Value| e["type"] == "TurnInterrupted" && e["reason"] == "host_lost";
    let lost = journal.iter().filter(lost).count();
    found.held += queue.len();
    found.folded += fold.folded.len();
    found.lost_turns += lost;
    found.several += usize::from(lost > 1);
    found.lost_gates += 1;
    found.compacted += journal
        .iter()
        .filter(|e| e["type"] == "CompactionCommitted")
        .count();
}

/// Acceptance: 200 random points.
#[tokio::test(flavor = "multi_thread")]
async fn s77_s87_two_hundred_kills_of_sessions_with_three_loops() {
    let begun = Instant::now();
    let mut setup = Setup::configured(&config());
    let mut last: Vec<Busy> = Vec::new();
    let mut left: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    let (mut prompts, mut found) = (0, Found::default());
    for run in 0..=RUNS {
        let host = setup.start();
        let client = host.client();
        for busy in &last {
            check_restored(busy, &client, &left[&busy.id], &mut found).await;
        }
        if run == RUNS {
            finish(&client, &last).await;
            break;
        }
        let begun = futures::future::join_all((0..SESSIONS).map(|_| begin(&client))).await;
        let mut tasks = Vec::new();
        last.clear();
        for (session, busy) in begun {
            tasks.push(tokio::spawn(load(
                session,
                busy.loops.clone(),
                busy.told.clone(),
            )));
            last.push(busy);
            pause(0, 30).await;
        }
        pause(50, 1500).await;
        setup = host.kill();
        for task in tasks {
            task.await.expect("the load was answered as it should");
        }
        left = read_database(setup.data_dir());
        prompts += last
            .iter()
            .map(|b| b.told.lock().unwrap().prompts.len())
            .sum::<usize>();
    }
    let points = RUNS * SESSIONS;
    println!(
        "{points} points, {prompts} prompts in {:?}; {found:?}",
        begun.elapsed()
    );
    let Found {
        held,
        folded,
        lost_turns,
        lost_gates,
        several,
        compacted,
    } = found;
    for count in [held, folded, lost_turns, lost_gates, several, compacted] {
        assert!(count > 0, "some kind of loss never occurred: {found:?}");
    }
}

/// S52: released inputs of every loop run, each once.
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
            let rests = |row: &Value| {
                let works = ["in_progress", "queued"];
                row["open_gates"] != 0 || !works.iter().any(|s| row["status"] == *s)
            };
            let row = session.until("idle or asking", rests).await;
            if row["open_gates"] == 0 {
                break;
            }
            for gate in session.list("/gates").await {
                session.answer(&gate, json!({"action": "deny"})).await;
            }
        }
        let fold = Fold::of(&session.journal().await);
        for input in held {
            let id = input["command_id"].as_str().unwrap();
            let folded = fold.folded.iter().filter(|known| *known == id).count();
            let begun = fold.turns.get(id).copied().unwrap_or(0);
            assert_eq!(begun + folded, 1, "a released input begins once");
        }
    }
}
