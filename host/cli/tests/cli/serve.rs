//! Starting, being found, and ending: the real binary as an operator runs it.

use crate::support::{Serving, err, harness, run};
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

#[tokio::main(flavor = "current_thread")]
async fn get(url: &str, token: Option<&str>) -> (u16, String) {
    let mut request = reqwest::Client::new().get(url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[test]
fn a_first_start_serves_the_embedded_planner_and_shows_its_token_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut first = Serving::start(&data, |_| {});
    let (url, token) = (first.fact("url").to_owned(), first.fact("token").to_owned());
    assert_eq!(first.fact("event"), "ready");
    assert_eq!(first.ready["providers"][0]["id"], "demo/planner");
    assert_eq!(first.ready["providers"][0]["state"], "ready");
    assert_eq!(
        std::fs::metadata(&data).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!(get(&format!("{url}/healthz"), None).0, 200);
    assert_eq!(get(&format!("{url}/readyz"), None).0, 200);
    assert_eq!(get(&format!("{url}/v1/harnesses"), None).0, 401);
    let (status, harnesses) = get(&format!("{url}/v1/harnesses"), Some(&token));
    assert!(
        status == 200 && harnesses.contains("demo/planner"),
        "{status} {harnesses}"
    );
    let (status, metrics) = get(&format!("{url}/metrics"), Some(&token));
    assert!(
        status == 200 && metrics.contains("harness_provider_loads_total"),
        "{status} {metrics}"
    );
    let (status, workspaces) = get(&format!("{url}/v1/workspaces"), Some(&token));
    assert!(
        status == 200 && workspaces.contains("workspaces/default"),
        "{status} {workspaces}"
    );

    first.signal("TERM");
    let (status, logs) = first.end();
    assert_eq!(status.code(), Some(0), "{logs}");
    assert!(!logs.contains(&token), "the token is in the logs");
    assert!(
        !data.join("host.json").exists(),
        "the address of an ended host is left behind"
    );
    let stored = std::fs::read(data.join("harness.db")).unwrap();
    assert!(
        !stored
            .windows(token.len())
            .any(|part| part == token.as_bytes()),
        "the token is stored in clear"
    );

    let second = Serving::start(&data, |_| {});
    assert_eq!(second.ready.get("token"), None, "a token is shown once");
    assert_eq!(second.ready["providers"][0]["cached"], true);
    let url = second.fact("url");
    assert_eq!(
        get(&format!("{url}/v1/harnesses"), Some(&token)).0,
        200,
        "the token holds over a restart"
    );
}

#[test]
fn a_bootstrap_token_is_admin_and_is_stored_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let token = "bootstrap-0123456789";
    let mut host = Serving::start(dir.path(), |command| {
        command.env("HARNESS_TOKEN", token);
    });
    assert_eq!(host.ready.get("token"), None);
    let url = host.fact("url");
    let (status, tokens) = get(&format!("{url}/v1/tokens"), Some(token));
    assert_eq!(status, 200);
    assert_eq!(
        serde_json::from_str::<Value>(&tokens).unwrap()["items"],
        serde_json::json!([])
    );
    host.signal("INT");
    let (status, logs) = host.end();
    assert_eq!(status.code(), Some(0), "{logs}");
    assert!(!logs.contains(token));
    for entry in std::fs::read_dir(dir.path())
        .unwrap()
        .flatten()
        .filter(|e| e.path().is_file())
    {
        let bytes = std::fs::read(entry.path()).unwrap();
        assert!(
            !bytes
                .windows(token.len())
                .any(|part| part == token.as_bytes()),
            "{:?}",
            entry.path()
        );
    }
}

#[test]
fn a_weak_bootstrap_token_is_refused_without_being_shown() {
    for token in ["short", "with a blank in the middle"] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().to_str().unwrap();
        let refused = harness(&["--data-dir", data])
            .env("HARNESS_TOKEN", token)
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(
            err(&refused).contains("openssl rand") && !err(&refused).contains(token),
            "{}",
            err(&refused)
        );
    }
}

#[test]
fn s66_a_held_data_directory_names_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let host = Serving::start(dir.path(), |_| {});
    let second = run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        dir.path().to_str().unwrap(),
    ]);
    assert_eq!(second.status.code(), Some(3));
    let holder = format!("process {}", host.ready["pid"]);
    assert!(
        err(&second).contains(&holder) && err(&second).contains("another directory"),
        "{}",
        err(&second)
    );
}

#[test]
fn a_data_directory_of_a_newer_build_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Serving::start(dir.path(), |_| {});
    host.signal("TERM");
    host.end();
    // The version is 4 bytes at offset 60 of the file (SQLite file format §1.3.14, `user_version`).
    let path = dir.path().join("harness.db");
    let mut database = std::fs::read(&path).unwrap();
    database[60..64].copy_from_slice(&9999_u32.to_be_bytes());
    std::fs::write(&path, &database).unwrap();
    let refused = run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        dir.path().to_str().unwrap(),
    ]);
    assert_eq!(refused.status.code(), Some(4), "{}", err(&refused));
    assert!(
        err(&refused).contains("9999") && err(&refused).contains("newer build"),
        "{}",
        err(&refused)
    );
}

#[test]
fn a_port_in_use_is_told_with_its_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let refused = run(&[
        "serve",
        "--listen",
        &address,
        "--data-dir",
        dir.path().to_str().unwrap(),
    ]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(
        err(&refused).contains(&address) && err(&refused).contains("--listen"),
        "{}",
        err(&refused)
    );
}

#[test]
fn s110_an_address_for_others_needs_tls_or_a_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let refused = run(&[
        "serve",
        "--listen",
        "0.0.0.0:0",
        "--data-dir",
        data.to_str().unwrap(),
    ]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        err(&refused).contains("--behind-proxy"),
        "{}",
        err(&refused)
    );
    assert!(!data.exists(), "a refused start leaves nothing behind");

    let host = Serving::start(&data, |command| {
        command
            .env("HARNESS_BEHIND_PROXY", "true")
            .env("HARNESS_LISTEN", "0.0.0.0:0");
    });
    assert!(host.fact("url").starts_with("http://127.0.0.1:"));
}

#[test]
fn a_provider_that_cannot_be_loaded_ends_the_start_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text.wasm");
    std::fs::write(&file, "not wasm").unwrap();
    let refused = run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        dir.path().join("data").to_str().unwrap(),
        "--provider",
        file.to_str().unwrap(),
    ]);
    assert_eq!(refused.status.code(), Some(2));
    let shown = err(&refused);
    assert!(
        shown.contains("text.wasm") && shown.contains("not a WebAssembly component"),
        "{shown}"
    );
    assert!(shown.contains("wasm32-wasip2"), "{shown}");
}

#[test]
fn a_grant_for_nothing_is_a_configuration_error() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("harness.toml");
    std::fs::write(
        &config,
        "[[provider]]\ncomponent = \"embedded\"\n[provider.grants.state]\n[provider.grants.delegation]\n[provider.grants.process.sh]\ncommand = [\"/bin/sh\"]\n",
    )
    .unwrap();
    let config = config.to_str().unwrap();
    let data = dir.path().join("data");
    for args in [
        ["config", "check", "--config", config].as_slice(),
        &[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            data.to_str().unwrap(),
            "--config",
            config,
        ],
    ] {
        let refused = run(args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        let shown = err(&refused);
        assert!(
            shown.contains("`process` is granted, but the component does not import"),
            "{shown}"
        );
    }
}
