//! Background processes, end to end: beyond a turn, an instance and a host (S11, S72, S94, S97).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_test_guests as guests;
use harness_tests::{Client, Conversation, Host, Setup, read_database};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

const PLANNER: &str = "demo/planner";
const PATIENCE: Duration = Duration::from_secs(30);

/// The embedded demo, which comes with a program that sleeps.
fn setup(more: &str) -> Setup {
    Setup::configured(&format!(
        "{more}[[provider]]\ncomponent = \"embedded\"\n[provider.config]\ndelta_ms = 0\n\
         [provider.grants.state]\n[provider.grants.delegation]\n"
    ))
}

/// Processes of this machine whose command line has that argument.
fn running(argument: &str) -> usize {
    let Ok(entries) = fs::read_dir("/proc") else {
        return 0;
    };
    let lines = entries.flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read(entry.path().join("cmdline")).ok()
    });
    let has = |line: &Vec<u8>| {
        line.split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
    };
    lines.filter(has).count()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A session whose turn has started that program and is over.
async fn sleeping(client: &Client, seconds: &str) -> Conversation {
    let session = client
        .prompted(PLANNER, &format!("demo:background {seconds}"))
        .await;
    session.until_idle().await;
    until("the program", || running(seconds) > 0).await;
    session
}

async fn processes(session: &Conversation) -> Vec<Value> {
    session.list("/processes").await
}

/// Turns that a machine began, by the journal.
async fn machine_turns(session: &Conversation) -> Vec<Value> {
    let journal = session.journal().await;
    let of_machine =
        |event: &Value| event["type"] == "TurnStarted" && event["cause"]["agency"] == "machine";
    journal.into_iter().filter(of_machine).collect()
}

/// Waits until the harness has said something with these words.
async fn says(session: &Conversation, words: &str) {
    let end = Instant::now() + PATIENCE;
    while !session.said().await.iter().any(|text| text.contains(words)) {
        assert!(
            Instant::now() < end,
            "nobody says {words:?}: {:?}",
            session.said().await
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    session.until_idle().await;
}

fn count(texts: &[String], words: &str) -> usize {
    texts.iter().filter(|text| text.contains(words)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn s97_a_process_outlives_turn_and_instance_and_its_end_starts_a_turn() {
    let host = setup("[sessions]\ninstance_idle = \"1s\"\npark_after = \"1s\"\n").start();
    let client = host.client();
    let session = sleeping(&client, "5").await;
    let row = session.row().await;
    assert_eq!(row["activities"], json!(["process sleep"]));
    assert_eq!(row["status"], "completed", "it is no turn");
    let listed = processes(&session).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["status"], "running");
    assert_eq!(listed[0]["program"], "sleep");
    assert_eq!(listed[0]["loop_id"], row["active_loop_id"]);
    // Its instance goes, it does not.
    let instances = async || {
        let report = client.get("/v1/providers/demo/planner").await.ok(200);
        report["instances"].as_u64().unwrap()
    };
    let end = Instant::now() + Duration::from_secs(4);
    while instances().await > 0 {
        assert!(Instant::now() < end, "the idle instance stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(running("5") > 0);
    assert_eq!(processes(&session).await[0]["status"], "running");
    says(
        &session,
        "has exited (exit code 0). It wrote: “sleeping 5 s\nslept 5 s”",
    )
    .await;
    let turns = machine_turns(&session).await;
    assert_eq!(turns.len(), 1);
    let ended = processes(&session).await.remove(0);
    assert_eq!(
        (&ended["status"], &ended["exit_code"]),
        (&json!("exited"), &json!(0))
    );
    assert_eq!(session.row().await["activities"], json!([]));
    let types: Vec<Value> = session
        .journal()
        .await
        .iter()
        .map(|e| e["type"].clone())
        .collect();
    let at = |name: &str| types.iter().position(|t| t == name).expect(name);
    assert!(at("ProcessStarted") < at("ProcessFinished"));
    assert!(at("ProcessFinished") < types.iter().rposition(|t| t == "TurnStarted").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s97_the_end_folds_into_a_turn_that_runs() {
    let host = setup("").start();
    let session = sleeping(&host.client(), "2").await;
    let prompt = session.prompt("demo:steps 5").await;
    assert_eq!(session.turn_end(&prompt).await["type"], "TurnDone");
    let said = session.said().await;
    assert_eq!(
        count(&said, "Taken up: “The background process"),
        1,
        "{said:?}"
    );
    assert!(machine_turns(&session).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn s72_s97_kill_9_leaves_no_process_and_the_next_host_tells_once() {
    let host = setup("").start();
    let session = sleeping(&host.client(), "3571").await;
    let mut setup = host.kill();
    until("the end of the program", || running("3571") == 0).await;
    // Nobody asks for the session: the host takes it up by itself.
    for life in 0..2 {
        let host = setup.start();
        let session = session.at(&host.client());
        says(&session, "was lost with its host").await;
        assert_eq!(processes(&session).await[0]["status"], "lost");
        assert_eq!(count(&session.said().await, "was lost"), 1, "life {life}");
        assert_eq!(machine_turns(&session).await.len(), 1, "life {life}");
        let journal = session.journal().await;
        let lost = journal
            .iter()
            .filter(|e| e["type"] == "ProcessLost")
            .count();
        assert_eq!(lost, 1, "life {life}");
        setup = host.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s97_sigterm_takes_a_process_along_and_the_next_host_tells() {
    let host = setup("").start();
    let session = sleeping(&host.client(), "3527").await;
    let setup = host.setup().clone();
    let (status, logs) = host.end();
    assert!(status.success(), "{logs}");
    until("the end of the program", || running("3527") == 0).await;
    let host = setup.start();
    says(&session.at(&host.client()), "was lost with its host").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s72_kill_9_between_the_end_and_its_delivery_delivers_exactly_once() {
    let host = setup("[slots]\ntotal = 1\n").start();
    let client = host.client();
    let session = sleeping(&client, "3").await;
    // Somebody else has the one slot when it ends.
    let other = client.prompted(PLANNER, "demo:slow 600").await;
    other.until_status("in_progress").await;
    let mut events = session.events(Some(0)).await;
    events.until(|frame| frame.event == "ProcessFinished").await;
    session.until_status("queued").await;
    let id = session.row().await["id"].as_str().unwrap().to_owned();
    let mut setup = host.kill();
    let journal = read_database(setup.data_dir()).remove(&id).unwrap();
    let said = journal
        .iter()
        .find(|record| record.body["type"] == "ProcessNotification")
        .expect("the notification is durable");
    let notification = said.body["command_id"].clone();
    let caused = |event: &Value| event["cause"]["command_id"] == notification;
    assert!(
        !journal.iter().any(|record| caused(&record.body)),
        "nothing has answered it"
    );
    for life in 0..2 {
        let host = setup.start();
        let session = session.at(&host.client());
        says(&session, "has exited").await;
        let turns = machine_turns(&session).await;
        assert_eq!(turns.len(), 1, "life {life}");
        assert!(caused(&turns[0]));
        assert_eq!(count(&session.said().await, "has exited"), 1, "life {life}");
        setup = host.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s94_s97_a_client_a_shutdown_and_a_delete_end_processes() {
    let host = setup("").start();
    let client = host.client();
    let stopped = sleeping(&client, "3529").await;
    let handle = processes(&stopped).await[0]["process_handle"].clone();
    let path = |handle: &str| stopped.path(&format!("/processes/{handle}/stop"));
    let unknown = client.post(&path("nobody"), json!({})).await;
    unknown.problem(404, "process_not_found");
    let stop = path(handle.as_str().unwrap());
    client.post(&stop, json!({})).await.ok(202);
    says(&stopped, "was stopped").await;
    assert_eq!(running("3529"), 0);
    client.post(&stop, json!({})).await.ok(202);

    let shut = sleeping(&client, "3533").await;
    let answer = client
        .post(&shut.path("/shutdown"), json!({}))
        .await
        .ok(200);
    assert_eq!(answer["expired_phases"], json!([]));
    assert_eq!(running("3533"), 0);
    let types: Vec<Value> = shut
        .journal()
        .await
        .iter()
        .map(|e| e["type"].clone())
        .collect();
    assert_eq!(
        types[types.len() - 2..],
        ["ProcessFinished", "SessionStopped"]
    );

    let deleted = sleeping(&client, "3539").await;
    client.delete(&deleted.path("")).await.ok(204);
    until("the end of the program", || running("3539") == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s97_a_session_has_its_limit_and_the_demo_says_so() {
    let host = setup("[sessions]\nbackground_processes = 1\n").start();
    let session = sleeping(&host.client(), "3541").await;
    let prompt = session.prompt("demo:background 3541").await;
    assert_eq!(session.turn_end(&prompt).await["type"], "TurnDone");
    let said = session.said().await;
    assert_eq!(
        count(&said, "Nothing was started: 1 background processes run"),
        1,
        "{said:?}"
    );
    let other = host.client().prompted(PLANNER, "demo:background 1").await;
    says(&other, "has exited").await;
}

/// A guest that starts what it can, in every turn that an end starts too; its programs write
/// without end.
#[tokio::test(flavor = "multi_thread")]
async fn s97_w9_a_flood_of_processes_and_output_is_bounded() {
    const MARK: &str = "flood-of-the-e2e-test";
    let component = guests::BACKGROUND_FLOOD;
    let config = format!(
        "[limits]\nbackground_output = \"256KiB\"\n[[provider]]\ncomponent = {component:?}\n\
         [provider.grants.process.flood]\ncommand = [\"yes\", \"{MARK}\"]\ncwd = \"/\"\nbackground = true\n"
    );
    let host: Host = Setup::configured(&config).start();
    let client = host.client();
    let session = client.commanded("guest/background-flood", "/go").await;
    let reply = async |text: &str| {
        let answer = session.command(text).await.ok(200);
        answer["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(running(MARK), 4);
    let text = reply("/go").await;
    assert!(text.starts_with("0 ") && text.contains("Limit"), "{text}");
    for (misuse, error) in [
        ("ungranted", "Denied"),
        ("stdin", "Limit"),
        ("handle", "NotFound"),
    ] {
        let text = reply(&format!("/go {misuse}")).await;
        assert!(text.contains(error), "{text}");
    }
    let before = host.resident();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let text = reply("/go read").await;
    let numbers: Vec<u64> = text
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(numbers[0] <= 512 << 10 && numbers[1] > 4 << 20, "{text}");
    let grown = host.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "the host grew by {grown} bytes");
    // The end of each starts a turn, in which the guest starts another.
    assert_eq!(reply("/go stop").await, "stopped 4");
    until("others in their places", || running(MARK) == 4).await;
    client
        .post(&session.path("/shutdown"), json!({}))
        .await
        .ok(200);
    until("the end of all", || running(MARK) == 0).await;
}
