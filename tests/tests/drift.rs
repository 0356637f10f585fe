//! A session whose harness is another one after a restart (requirements-runtime §6.1, I39), with the
//! real binary: what clients see, and how an operator accepts it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_test_guests as guests;
use harness_tests::Setup;

const ID: &str = "test/worker";

fn config(component: &str, sessions: &str) -> String {
    let grants = if component == guests::PROVIDER_PLANNER {
        "[provider.grants.state]\n[provider.grants.delegation]\n[provider.grants.process.sleep]\n\
         command = [\"sleep\", \"1\"]\nbackground = true\n"
    } else {
        ""
    };
    format!("{sessions}\n[[provider]]\nid = \"{ID}\"\ncomponent = {component:?}\n{grants}")
}

#[tokio::test(flavor = "multi_thread")]
async fn i39_another_harness_under_the_same_id_is_accepted_by_the_operator_or_not_at_all() {
    let setup = Setup::configured(&config(guests::PROVIDER_HELLO, ""));
    let file = setup.path("harness.toml");
    let write = |component: &str, sessions: &str| {
        std::fs::write(&file, config(component, sessions)).unwrap();
    };
    let host = setup.start();
    let session = host.client().prompted(ID, "hello").await;
    session.until_idle().await;
    let said = session.said().await;
    let journal = session.journal().await;
    let started = &journal[0]["configuration"];
    assert!(started["workspace_root"].is_string(), "{started}");
    let declares = started["harnesses"][ID]["declares"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_ne!(declares, ID, "what the component says of itself");
    assert_eq!(started["harnesses"][ID]["contract"], "0.1.0");

    // The same id, another harness.
    let setup = host.kill();
    write(guests::PROVIDER_PLANNER, "");
    let host = setup.start();
    let client = host.client();
    let session = session.at(&client);
    let detail = client
        .get(&session.path("/messages"))
        .await
        .problem(500, "restore_failed");
    for words in [ID, "demo/planner", declares.as_str(), "drift = \"accept\""] {
        assert!(detail.contains(words), "{words}: {detail}");
    }
    // It can be looked at: the row says why, the journal is what it was.
    let row = session.row().await;
    assert_eq!(row["error"]["code"], "restore_failed", "{row}");
    let now = session.journal().await;
    assert_eq!(now[..journal.len()], journal[..]);
    let rest: Vec<_> = now[journal.len()..].iter().map(|e| &e["type"]).collect();
    assert_eq!(rest, ["RestoreErrored"]);
    // Others are not concerned.
    let other = client.prompted(ID, "hello").await;
    other.until_idle().await;

    // Accepted once, adopted for good.
    let mut setup = host.kill();
    for sessions in ["[sessions]\ndrift = \"accept\"", ""] {
        write(guests::PROVIDER_PLANNER, sessions);
        let host = setup.start();
        let session = session.at(&host.client());
        assert_eq!(session.said().await, said);
        assert!(session.row().await["error"].is_null());
        let adopted = session.journal().await;
        let adopted = adopted
            .iter()
            .filter(|e| e["type"] == "ConfigurationAdopted");
        assert_eq!(adopted.count(), 1);
        setup = host.kill();
    }
}

/// The catalogue says another directory than the one the conversation was led in, as after a backup
/// of one machine is put back on another.
#[tokio::test(flavor = "multi_thread")]
async fn i39_another_workspace_root_is_a_drift_too() {
    let setup = Setup::plain();
    let elsewhere = setup.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let host = setup.start();
    let session = host.client().prompted("demo/planner", "hello").await;
    session.until_idle().await;

    let setup = host.kill();
    let store = rusqlite::Connection::open(setup.data_dir().join("harness.db")).unwrap();
    let target = serde_json::json!({"kind": "local", "root_path": elsewhere});
    let changed = store
        .execute(
            "UPDATE workspace SET target = ?1 WHERE id = 'default'",
            [target.to_string()],
        )
        .unwrap();
    assert_eq!(changed, 1);
    drop(store);
    let host = setup.start();
    let client = host.client();
    let session = session.at(&client);
    let detail = client
        .get(&session.path("/messages"))
        .await
        .problem(500, "restore_failed");
    assert!(detail.contains("/elsewhere"), "{detail}");
    assert!(detail.contains("workspaces/default"), "{detail}");
    // It is in nobody's way: it can be deleted, and others are made there.
    client.delete(&session.path("")).await.ok(204);
    client
        .prompted("demo/planner", "hello")
        .await
        .until_idle()
        .await;
}
