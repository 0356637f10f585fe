//! Bad input: each gets an answer of its own code that says what to do, and changes nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_test_guests as guests;
use harness_tests::{Client, Host, Setup, harness, missing, skip};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const UNKNOWN: &str = "00000000-0000-7000-8000-000000000000";

async fn raw(client: &Client, path: &str, body: Vec<u8>) -> harness_tests::Answer {
    let request = client
        .request(Method::POST, path)
        .header(CONTENT_TYPE, "application/json")
        .body(body);
    client.send(request).await.unwrap()
}

fn create(extra: &Value) -> Value {
    let mut body = json!({"project_id": "default", "title": "t", "agent": "demo/planner",
        "prompt": [{"type": "text", "text": "hello"}]});
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// G2, R20: what is malformed is refused by name, and nothing is made.
#[tokio::test(flavor = "multi_thread")]
async fn g2_malformed_bodies_are_refused_by_name() {
    let host = Setup::plain().start();
    let client = host.client();
    let session = client.prompted("demo/planner", "hello").await;
    session.until_idle().await;
    let before = session.row().await;
    let (commands, input) = (session.path("/harness-commands"), session.path("/input"));
    let cases = [
        (
            "/v1/sessions".to_owned(),
            create(&json!({"colour": "red"})),
            "colour",
        ),
        (
            "/v1/sessions".to_owned(),
            create(&json!({"operation": {"kind": "command", "text": "/plan"}})),
            "exactly one",
        ),
        (
            "/v1/sessions".to_owned(),
            create(&json!({"title": 7})),
            "title",
        ),
        (
            "/v1/sessions".to_owned(),
            create(&json!({"prompt": []})),
            "prompt",
        ),
        (
            "/v1/sessions".to_owned(),
            create(&json!({"prompt": "hello"})),
            "prompt",
        ),
        (
            "/v1/sessions".to_owned(),
            create(&json!({"expectedRevision": "r"})),
            "expectedRevision",
        ),
        (
            commands.clone(),
            json!({"operation": {"kind": "dance"}}),
            "kind",
        ),
        (
            commands.clone(),
            json!({"operation": {"kind": "command", "text": "/plan", "argument": "x"}}),
            "argument",
        ),
        (
            commands.clone(),
            json!({"operation": {"kind": "command", "text": ""}}),
            "text",
        ),
        (
            commands.clone(),
            json!({"operation": {"kind": "command", "text": "/plan"}, "expected_revision": "r"}),
            "expected_revision",
        ),
        (commands, json!({}), "operation"),
        (
            input.clone(),
            json!({"blocks": [{"type": "image", "text": "x"}]}),
            "blocks",
        ),
        (
            input.clone(),
            json!({"blocks": [{"type": "file", "name": "n", "media_type": "text/plain", "uri": "../../etc/passwd"}]}),
            "uri",
        ),
        (
            input,
            json!({"blocks": [{"type": "text", "text": "x"}], "no_fold": true, "fold_only": true}),
            "fold_only",
        ),
        (session.path("/interrupt"), json!({"all": true}), "all"),
        (
            session.path("/queue/release"),
            json!({"command_ids": []}),
            "command_ids",
        ),
        (
            "/v1/tokens".to_owned(),
            json!({"name": "n", "scopes": ["root"]}),
            "scopes",
        ),
        (
            "/v1/projects".to_owned(),
            json!({"id": "No Good", "name": "n"}),
            "id",
        ),
    ];
    for (path, body, named) in cases {
        let detail = client
            .post(&path, body.clone())
            .await
            .problem(400, "invalid_request");
        assert!(detail.contains(named), "{path} {body}: {detail}");
    }
    for query in [
        "?colour=red",
        "?limit=0",
        "?limit=1001",
        "?limit=many",
        "?cursor=%00",
    ] {
        let path = session.path(&format!("/messages{query}"));
        client.get(&path).await.problem(400, "invalid_request");
    }
    client
        .get(&session.path("/harness-commands?fresh=true"))
        .await
        .problem(400, "invalid_request");
    client
        .get(&session.path("/events?after=-1"))
        .await
        .problem(400, "invalid_request");

    let text = client.request(Method::POST, "/v1/sessions").body("hello");
    client
        .send(text)
        .await
        .unwrap()
        .problem(415, "unsupported_media_type");
    for body in [
        b"{\"project_id\": \"\xff\xfe\"}".to_vec(),
        b"{".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"{} {}".to_vec(),
    ] {
        raw(&client, "/v1/sessions", body)
            .await
            .problem(400, "invalid_request");
    }
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    raw(&client, "/v1/sessions", deep)
        .await
        .problem(400, "invalid_request");

    let large = create(&json!({"prompt": [{"type": "text", "text": "x".repeat(3 << 20)}]}));
    let detail = client
        .post("/v1/sessions", large)
        .await
        .problem(413, "payload_too_large");
    assert!(
        detail.contains("2 MiB") || detail.contains("2097152"),
        "{detail}"
    );
    let long =
        json!({"operation": {"kind": "command", "text": format!("/note {}", "x".repeat(1 << 20))}});
    client
        .post(&session.path("/harness-commands"), long)
        .await
        .problem(413, "payload_too_large");
    let long = json!({"operation": {"kind": "mode-action", "modeId": "goal", "actionId": "edit",
        "argument": "x".repeat((256 << 10) + 1)}});
    client
        .post(&session.path("/harness-commands"), long)
        .await
        .problem(413, "payload_too_large");

    assert_eq!(session.row().await, before, "nothing was changed");
    assert_eq!(
        client.get("/v1/sessions").await.ok(200)["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

/// What is unknown is 404 with a code of its own; a known path with a wrong method is 405.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_ids_have_codes_of_their_own() {
    let host = Setup::plain().start();
    let client = host.client();
    let session = client.prompted("demo/planner", "hello").await;
    session.until_idle().await;
    for (path, code) in [
        ("/v1/nothing".to_owned(), "not_found"),
        ("/nothing".to_owned(), "not_found"),
        (format!("/v1/sessions/{UNKNOWN}"), "session_not_found"),
        ("/v1/sessions/not-an-id".to_owned(), "session_not_found"),
        (
            format!("/v1/sessions/{UNKNOWN}/events"),
            "session_not_found",
        ),
        (
            format!("/v1/sessions/{UNKNOWN}/journal"),
            "session_not_found",
        ),
        (
            format!("/v1/sessions/{UNKNOWN}/harness-commands"),
            "session_not_found",
        ),
        ("/v1/projects/nowhere".to_owned(), "project_not_found"),
        ("/v1/workspaces/nowhere".to_owned(), "workspace_not_found"),
        ("/v1/harnesses/no/body".to_owned(), "harness_not_found"),
        ("/v1/providers/no/body".to_owned(), "provider_not_found"),
        (
            "/v1/sessions?project_id=nowhere".to_owned(),
            "project_not_found",
        ),
    ] {
        client.get(&path).await.problem(404, code);
    }
    client
        .delete(&format!("/v1/tokens/{UNKNOWN}"))
        .await
        .problem(404, "token_not_found");
    client
        .delete("/v1/projects")
        .await
        .problem(405, "method_not_allowed");
    let gate = session.path(&format!("/gates/{UNKNOWN}"));
    client
        .post(&gate, json!({"action": "approve_once"}))
        .await
        .problem(404, "gate_not_found");
    let body = create(&json!({"agent": "no/body"}));
    client
        .post("/v1/sessions", body)
        .await
        .problem(404, "harness_not_found");
    let body = create(&json!({"workspace_id": "nowhere"}));
    client
        .post("/v1/sessions", body)
        .await
        .problem(404, "workspace_not_found");
    let body = create(&json!({"project_id": "nowhere"}));
    client
        .post("/v1/sessions", body)
        .await
        .problem(404, "project_not_found");
    let body = create(&json!({"params": {"colour": true}}));
    client
        .post("/v1/sessions", body)
        .await
        .problem(400, "invalid_params");
    let body = create(&json!({"model": "m9"}));
    client
        .post("/v1/sessions", body)
        .await
        .problem(400, "invalid_params");
    session
        .command("/dance")
        .await
        .problem(400, "invalid_argument");
    session
        .action("nothing", "clear", None)
        .await
        .problem(400, "invalid_argument");
    let detail = session
        .action("goal", "clear", None)
        .await
        .problem(409, "command_disabled");
    assert_eq!(detail, "there is no goal");
    let loop_id = json!({"loop_id": UNKNOWN});
    client
        .post(&session.path("/interrupt"), loop_id)
        .await
        .problem(404, "loop_not_found");
}

/// Tokens reach what their scopes and projects say, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn scopes_origins_and_hosts_are_checked() {
    let host = Setup::plain().start();
    let admin = host.client();
    let session = admin.prompted("demo/planner", "hello").await;
    session.until_idle().await;
    let token = |name: &str, scopes: Value, projects: Value| {
        let admin = admin.clone();
        let body = json!({"name": name, "scopes": scopes, "projects": projects});
        async move {
            let made = admin.post("/v1/tokens", body).await.ok(201);
            admin.with_token(made["token"].as_str())
        }
    };
    admin
        .post("/v1/projects", json!({"id": "other", "name": "Other"}))
        .await
        .ok(201);
    let reader = token("reader", json!(["read"]), Value::Null).await;
    let worker = token("worker", json!(["invoke"]), Value::Null).await;
    let elsewhere = token(
        "elsewhere",
        json!(["read", "invoke", "admin"]),
        json!(["other"]),
    )
    .await;

    let input = session.path("/input");
    let prompt = json!({"blocks": [{"type": "text", "text": "x"}]});
    let detail = reader
        .post(&input, prompt.clone())
        .await
        .problem(403, "forbidden");
    assert!(detail.contains("invoke"), "{detail}");
    reader.get("/v1/tokens").await.problem(403, "forbidden");
    reader.get("/metrics").await.problem(403, "forbidden");
    let detail = worker
        .get(&session.path(""))
        .await
        .problem(403, "forbidden");
    assert!(detail.contains("read"), "{detail}");
    elsewhere
        .get(&session.path(""))
        .await
        .problem(404, "session_not_found");
    elsewhere
        .post(&input, prompt.clone())
        .await
        .problem(404, "session_not_found");
    elsewhere
        .get("/v1/providers")
        .await
        .problem(403, "forbidden");
    for client in [
        admin.with_token(None),
        admin.with_token(Some("hh_nonsense")),
    ] {
        client
            .get("/v1/sessions")
            .await
            .problem(401, "unauthenticated");
    }

    for origin in [
        "https://evil.example",
        "null",
        "http://127.0.0.1.evil.example",
    ] {
        let request = admin
            .request(Method::POST, &input)
            .header("origin", origin)
            .json(&prompt);
        admin
            .send(request)
            .await
            .unwrap()
            .problem(403, "origin_refused");
    }
    for name in ["evil.example", "127.0.0.1.evil.example"] {
        let request = admin
            .request(Method::GET, "/v1/sessions")
            .header("host", name);
        admin
            .send(request)
            .await
            .unwrap()
            .problem(421, "host_refused");
    }
    assert_eq!(session.messages().await.len(), 2, "no refused prompt ran");
}

fn run(setup: &Setup) -> Output {
    let mut command = setup.command();
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let watch = std::thread::spawn(move || child.wait_with_output().unwrap());
    let end = std::time::Instant::now() + harness_tests::PATIENCE;
    while !watch.is_finished() {
        assert!(
            std::time::Instant::now() < end,
            "process {pid} goes on, it was to refuse"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    watch.join().unwrap()
}

/// Asserts that a start is refused with this status and these words.
fn refused(setup: &Setup, status: i32, words: &[&str]) {
    let output = run(setup);
    let shown = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{shown}");
    for word in words {
        assert!(shown.contains(word), "{word} is missing: {shown}");
    }
    assert!(!shown.contains("panicked"), "{shown}");
}

fn provider(file: &str, more: &str) -> Setup {
    Setup::configured(&format!("[[provider]]\ncomponent = {file:?}\n{more}"))
}

/// Files that are no provider: each is told what it is and what helps.
#[test]
fn provider_files_that_are_none_are_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.wasm");
    std::fs::write(&text, "not wasm").unwrap();
    let empty = folder.path().join("empty.wasm");
    std::fs::write(&empty, "").unwrap();
    for (file, more, words) in [
        (
            text.to_str().unwrap(),
            "",
            ["not a WebAssembly component", "text.wasm"].as_slice(),
        ),
        (
            empty.to_str().unwrap(),
            "",
            &["not a WebAssembly component"],
        ),
        (
            guests::CORE_MODULE,
            "",
            &["core WebAssembly module", "wasm32-wasip2"],
        ),
        (guests::TRUNCATED, "", &["truncated"]),
        (guests::WRONG_CONTRACT_VERSION, "", &["9.9.9"]),
        (guests::UNGRANTED_IMPORT, "", &["process", "grant"]),
        (
            guests::PROVIDER_HELLO,
            "[provider.grants.state]\n",
            &["`state` is granted", "does not import"],
        ),
        (
            guests::PROVIDER_HELLO,
            "sha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\n",
            &["SHA-256", "pinned"],
        ),
        ("/does/not/exist.wasm", "", &["/does/not/exist.wasm"]),
    ] {
        let setup = provider(file, more);
        refused(&setup, 2, words);
        let config = setup.path("harness.toml");
        let check = cli(&["config", "check", "--config", config.to_str().unwrap()]);
        let shown = String::from_utf8(check.stderr).unwrap();
        assert_eq!(check.status.code(), Some(2), "{file}: {shown}");
        for word in words {
            assert!(
                shown.contains(word),
                "config check, {word} is missing: {shown}"
            );
        }
    }
}

fn cli(args: &[&str]) -> Output {
    Command::new(harness())
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .output()
        .unwrap()
}

/// A configuration that is wrong is refused with its line and its remedy.
#[test]
fn configurations_are_refused_with_line_and_remedy() {
    for (config, words) in [
        (
            "[server]\nlisten_on = \"127.0.0.1:0\"\n",
            ["listen_on", "listen", "harness.toml:2"].as_slice(),
        ),
        ("[slots]\ntotal = \"many\"\n", &["total", "harness.toml:2"]),
        (
            "[slots]\ntotal = 0\n",
            &["total", "1 to 10000", "harness.toml:2"],
        ),
        ("[limits]\nmemory = \"12\"\n", &["memory", "harness.toml:2"]),
        (
            "[[provider]]\ncomponent = \"embedded\"\n[provider.grants.state]\n[provider.grants.teleport]\n",
            &["teleport", "harness.toml:4"],
        ),
        ("not toml at all", &["harness.toml:1"]),
    ] {
        refused(&Setup::configured(config), 2, words);
    }
}

/// A place that cannot be used is refused with a status of its own, and is left as it was.
#[test]
fn s66_places_that_cannot_be_used_are_refused() {
    let host = Setup::plain().start();
    let kept = host.setup().clone();
    let data = kept.data_dir().to_path_buf();
    refused(
        &Setup::plain().data(&data),
        3,
        &["in use by process", &host.pid().to_string()],
    );
    let taken = host.url().strip_prefix("http://").unwrap().to_owned();
    let mut setup = Setup::plain();
    setup.args = vec!["--listen".to_owned(), taken.clone()];
    let mut command = Command::new(harness());
    command
        .args(["serve", "--listen", &taken, "--data-dir"])
        .arg(setup.data_dir())
        .env_clear();
    let output = command.output().unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{shown}");
    assert!(
        shown.contains(&taken) && shown.contains("--listen"),
        "{shown}"
    );

    let (status, logs) = host.end();
    assert_eq!(status.code(), Some(0), "{logs}");
    let database = rusqlite::Connection::open(data.join("harness.db")).unwrap();
    database.pragma_update(None, "user_version", 9999).unwrap();
    drop(database);
    refused(&Setup::plain().data(&data), 4, &["9999", "newer build"]);
}

/// Over the operator's routes a bad component is a problem, and nothing is installed.
#[tokio::test(flavor = "multi_thread")]
async fn components_that_cannot_be_installed_are_problems() {
    let host = Setup::plain().start();
    let client = host.client();
    let sha = |file: &str| -> String {
        let output = Command::new("sha256sum").arg(file).output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..64].to_owned()
    };
    for file in [
        guests::CORE_MODULE,
        guests::TRUNCATED,
        guests::UNGRANTED_IMPORT,
        guests::WRONG_CONTRACT_VERSION,
    ] {
        let body = json!({"component": file, "sha256": sha(file)});
        client
            .post("/v1/providers", body)
            .await
            .problem(400, "component_refused");
    }
    let body = json!({"component": guests::PROVIDER_HELLO, "sha256": "0".repeat(64)});
    client
        .post("/v1/providers", body)
        .await
        .problem(400, "component_refused");
    // Refused means that nothing changed.
    let listed = client.get("/v1/providers").await.ok(200);
    let items = listed["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{listed}");
    assert_eq!(items[0]["state"], "ready", "{listed}");
    let body = json!({"component": guests::PROVIDER_HELLO, "sha256": sha(guests::PROVIDER_HELLO)});
    client.post("/v1/providers", body).await.ok(201);
}

/// A full disk: what was acknowledged is kept, what cannot be kept is not acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn s62_a_full_disk_loses_nothing_that_was_acknowledged() {
    if missing(&["unshare", "mount"]) {
        return;
    }
    let setup = Setup::plain();
    let disk = setup.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let Some(host) = on_small_disk(&setup, &disk) else {
        return;
    };
    let client = host.client();
    let session = client.prompted("demo/planner", "hello").await;
    session.until_idle().await;
    // The test sees the disk of the other mount namespace through the host's root.
    let filler = format!("/proc/{}/root{}/filler", host.pid(), disk.display());
    let mut acknowledged = Vec::new();
    let mut refused = None;
    let chunk = "x".repeat(60 * 1024);
    for number in 0..600 {
        if number == 3 {
            // All of the disk but a little.
            let _ = std::fs::write(&filler, vec![0; 64 << 20]);
        }
        let text = format!("{number} {chunk}");
        let answer = session.command(&format!("/note {text}")).await;
        match answer.status {
            200 => acknowledged.push((answer.body, text)),
            _ => {
                refused = Some(answer);
                break;
            }
        }
    }
    let refused = refused.expect("a full disk is noticed");
    let code = refused.body["code"].as_str().unwrap().to_owned();
    assert!(
        ["store_unavailable", "session_faulted"].contains(&code.as_str()),
        "{}",
        refused.body
    );
    let ready = client.get("/readyz").await.status;
    assert!([200, 503].contains(&ready), "{ready}");
    std::fs::remove_file(&filler).unwrap();

    // With room again another session works at once.
    let other = client.prompted("demo/planner", "room again").await;
    other.until_status("completed").await;
    let before = session.messages().await;
    for (result, text) in &acknowledged {
        let completed = result["status"] == "completed";
        let kept = before
            .iter()
            .filter(|message| message.to_string().contains(text.as_str()))
            .count();
        assert!(
            kept == 1 || (!completed && kept == 0),
            "{kept} times: {}",
            result["command_id"]
        );
    }
    let journal = session.journal().await;
    for (result, _) in &acknowledged {
        let outcomes = journal.iter().filter(|event| {
            event["type"] == "NativeOperationResolved"
                && event["cause"]["command_id"] == result["command_id"]
        });
        assert_eq!(outcomes.count(), 1);
    }
}

/// A host whose data directory is a file system of 24 MiB in a mount namespace of its own.
fn on_small_disk(setup: &Setup, disk: &Path) -> Option<Host> {
    let probe = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "mount",
            "-t",
            "tmpfs",
            "tmpfs",
        ])
        .arg(disk)
        .output()
        .unwrap();
    if !probe.status.success() {
        let why = String::from_utf8_lossy(&probe.stderr);
        skip(&format!("no mount namespace here: {}", why.trim()));
        return None;
    }
    let data = disk.join("data");
    let setup = setup.clone().data(&data);
    let serve = setup.command();
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg(format!(
            "mount -t tmpfs -o size=24m,mode=700 tmpfs '{}' && exec \"$@\"",
            disk.display()
        ))
        .arg("sh")
        .arg(serve.get_program())
        .args(serve.get_args())
        .env_clear();
    for (name, value) in serve.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    Some(Host::spawn(setup, command))
}
