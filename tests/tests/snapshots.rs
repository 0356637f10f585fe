//! Checkpoints and rewinds of a workspace over real HTTP: exact trees, symlinks, sessions that share
//! a workspace, policies, and `kill -9` in the middle (S67, S98, S99, S119, S120, §6.1 step 3).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_tests::{Answer, Conversation, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

const PLANNER: &str = "demo/planner";

/// A host whose default workspace is a directory of the test.
fn setup(checkpoint: &str) -> (Setup, PathBuf) {
    let mut setup = Setup::plain();
    let root = setup.path("work");
    fs::create_dir(&root).unwrap();
    let file = setup.path("harness.toml");
    let config = format!(
        "[workspace]\nroot = {root:?}\ncheckpoint = \"{checkpoint}\"\n[[provider]]\n\
         component = \"embedded\"\n[provider.config]\ndelta_ms = 0\n[provider.grants.state]\n[provider.grants.delegation]\n"
    );
    fs::write(&file, config).unwrap();
    setup.args = vec!["--config".to_owned(), file.display().to_string()];
    (setup, root)
}

/// Every path with its kind, mode and content; what a snapshot leaves out is left out here, too.
fn tree(root: &Path) -> BTreeMap<String, String> {
    fn walk(root: &Path, at: &Path, all: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name == ".git" || name == "build" {
                continue;
            }
            let meta = path.symlink_metadata().unwrap();
            let mode = meta.permissions().mode() & 0o777;
            let what = if meta.is_symlink() {
                format!("link to {}", fs::read_link(&path).unwrap().display())
            } else if meta.is_dir() {
                walk(root, &path, all);
                format!("directory {mode:o}")
            } else {
                format!("file {mode:o} {}", fs::read(&path).unwrap().escape_ascii())
            };
            all.insert(name, what);
        }
    }
    let mut all = BTreeMap::new();
    walk(root, root, &mut all);
    all
}

async fn checkpoint(session: &Conversation) -> Answer {
    let path = session.path("/workspace/checkpoint");
    session.client.post(&path, json!({})).await
}

async fn taken(session: &Conversation) -> String {
    let body = checkpoint(session).await.ok(200);
    body["ref"].as_str().unwrap().to_owned()
}

async fn rewind(session: &Conversation, to: &str) -> Answer {
    let path = session.path("/workspace/restore");
    session.client.post(&path, json!({"ref": to})).await
}

async fn events(session: &Conversation, kind: &str) -> Vec<Value> {
    let journal = session.journal().await;
    journal.into_iter().filter(|e| e["type"] == kind).collect()
}

#[tokio::test]
async fn s98_s99_s119_a_checkpoint_gives_the_exact_tree_back() {
    let (setup, root) = setup("off");
    fs::create_dir_all(root.join("src/deep/er")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("src/main.txt"), "one").unwrap();
    fs::write(root.join("src/deep/er/leaf"), [0, 159, 146, 150]).unwrap();
    fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("src/main.txt", root.join("link")).unwrap();
    fs::write(root.join(".gitignore"), "build/\n").unwrap();
    for excluded in [".git", "build"] {
        fs::create_dir(root.join(excluded)).unwrap();
        fs::write(root.join(excluded).join("kept"), "before").unwrap();
    }
    let host = setup.start();
    let session = host.client().prompted(PLANNER, "hello").await;
    session.until_idle().await;
    let before = tree(&root);
    let reference = taken(&session).await;
    assert!(reference.starts_with("v1:sha256:") && reference.len() == 74);

    fs::write(root.join("src/main.txt"), "two").unwrap();
    fs::remove_dir_all(root.join("src/deep")).unwrap();
    fs::remove_dir(root.join("empty")).unwrap();
    fs::write(root.join("empty"), "a file now").unwrap();
    fs::create_dir_all(root.join("new/dir")).unwrap();
    fs::write(root.join("new/dir/file"), "new").unwrap();
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    for excluded in [".git", "build"] {
        fs::write(root.join(excluded).join("kept"), "after").unwrap();
    }
    assert_ne!(tree(&root), before);
    let answer = rewind(&session, &reference).await.ok(200);
    assert_eq!(answer, json!({"ref": reference}));
    assert_eq!(tree(&root), before, "exactly, directories included");
    for excluded in [".git", "build"] {
        let kept = fs::read_to_string(root.join(excluded).join("kept")).unwrap();
        assert_eq!(kept, "after", "{excluded} is not touched");
    }
    assert_eq!(
        taken(&session).await,
        reference,
        "the same tree, the same ref"
    );

    let restored = events(&session, "WorkspaceRestored").await;
    assert_eq!(restored.len(), 1);
    assert_eq!(
        (&restored[0]["ref"], &restored[0]["exact"]),
        (&json!(reference), &json!(true))
    );
    let checkpoints = events(&session, "WorkspaceCheckpointed").await;
    assert_eq!(checkpoints.len(), 2);
    assert!(checkpoints.iter().all(|e| e["ref"] == reference.as_str()));
    // Work goes on, and the snapshot outlives the host.
    let prompt = session.prompt("more").await;
    assert_eq!(session.turn_end(&prompt).await["type"], "TurnDone");
    fs::write(root.join("src/main.txt"), "three").unwrap();
    let host = host.kill().start();
    let session = host.client().session(&session.id);
    rewind(&session, &reference).await.ok(200);
    assert_eq!(tree(&root), before);
}

#[tokio::test]
async fn s119_problems_and_capabilities() {
    let (setup, _) = setup("off");
    let host = setup.start();
    let client = host.client();
    let capabilities = client.get("/v1/capabilities").await.ok(200);
    let features = capabilities["features"].as_array().unwrap();
    assert!(features.contains(&json!("workspace")));
    let session = client.prompted(PLANNER, "demo:slow 300").await;
    session.until_status("in_progress").await;
    let unknown = format!("v1:sha256:{}", "00".repeat(32));
    for busy in [checkpoint(&session).await, rewind(&session, &unknown).await] {
        busy.problem(409, "not_idle");
        assert_eq!(busy.body["retryable"], true);
    }
    session.interrupt().await;
    rewind(&session, &unknown)
        .await
        .problem(404, "ref_not_found");
    rewind(&session, "latest")
        .await
        .problem(400, "invalid_request");
    let reader = json!({"name": "reader", "scopes": ["read"]});
    let reader = client.post("/v1/tokens", reader).await.ok(201);
    let reader = session.at(&client.with_token(reader["token"].as_str()));
    checkpoint(&reader).await.problem(403, "forbidden");
    let remote = json!({"id": "far", "project_id": "default",
        "target": {"kind": "remote", "host": "far", "path": "/work"}});
    client.post("/v1/workspaces", remote).await.ok(201);
    let created = json!({"project_id": "default", "title": "far", "agent": PLANNER,
        "workspace_id": "far", "prompt": [{"type": "text", "text": "hello"}]});
    let created = client.post("/v1/sessions", created).await;
    if created.status == 201 {
        let far = client.session(created.body["id"].as_str().unwrap());
        far.until_idle().await;
        let detail = checkpoint(&far).await.problem(400, "workspace_unsupported");
        assert!(detail.contains("remote"), "{detail}");
    } else {
        created.problem(400, "workspace_unsupported");
    }
}

#[tokio::test]
async fn s99_symlinks_lead_nowhere() {
    let (setup, root) = setup("off");
    let outside = setup.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "of somebody else").unwrap();
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/file"), "of the workspace").unwrap();
    symlink(&outside, root.join("door")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    let host = setup.start();
    let session = host.client().prompted(PLANNER, "hello").await;
    session.until_idle().await;
    let before = tree(&root);
    let reference = taken(&session).await;
    // The directory becomes a way out, and the way out a directory.
    fs::remove_dir_all(root.join("dir")).unwrap();
    symlink(&outside, root.join("dir")).unwrap();
    fs::remove_file(root.join("door")).unwrap();
    fs::create_dir(root.join("door")).unwrap();
    fs::write(root.join("door/file"), "new").unwrap();
    let around = tree(&root);
    let turned = taken(&session).await;
    rewind(&session, &reference).await.ok(200);
    assert_eq!(tree(&root), before);
    rewind(&session, &turned).await.ok(200);
    assert_eq!(tree(&root), around);
    let untouched = fs::read_to_string(outside.join("file")).unwrap();
    assert_eq!(untouched, "of somebody else");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[tokio::test]
async fn s99_two_sessions_on_one_workspace() {
    let (setup, root) = setup("off");
    fs::write(root.join("shared"), "before").unwrap();
    let host = setup.start();
    let client = host.client();
    let one = client.prompted(PLANNER, "hello").await;
    one.until_idle().await;
    let other = client.prompted(PLANNER, "demo:slow 300").await;
    other.until_status("in_progress").await;
    let detail = checkpoint(&one).await.problem(409, "not_idle");
    assert!(detail.contains("another session"), "{detail}");
    other.interrupt().await;
    let reference = taken(&one).await;
    fs::write(root.join("shared"), "after").unwrap();
    // A ref is the workspace's, whichever of its sessions took it.
    rewind(&other, &reference).await.ok(200);
    assert_eq!(fs::read_to_string(root.join("shared")).unwrap(), "before");
    // Another workspace cannot open it.
    let elsewhere = host.setup().path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let workspace = json!({"id": "elsewhere", "project_id": "default",
        "target": {"kind": "local", "root_path": elsewhere}});
    client.post("/v1/workspaces", workspace).await.ok(201);
    let created = json!({"project_id": "default", "title": "else", "agent": PLANNER,
        "workspace_id": "elsewhere", "prompt": [{"type": "text", "text": "hello"}]});
    let created = client.post("/v1/sessions", created).await.ok(201);
    let thief = client.session(created["id"].as_str().unwrap());
    thief.until_idle().await;
    rewind(&thief, &reference)
        .await
        .problem(404, "ref_not_found");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[tokio::test]
async fn s120_a_repeated_rewind_is_done_once_and_known_after_a_restart() {
    let (setup, root) = setup("off");
    fs::write(root.join("file"), "one").unwrap();
    let host = setup.start();
    let session = host.client().prompted(PLANNER, "hello").await;
    session.until_idle().await;
    let reference = taken(&session).await;
    fs::write(root.join("file"), "two").unwrap();
    let ask = async |session: &Conversation, to: &str| {
        let path = session.path("/workspace/restore");
        let request = session.client.request(reqwest::Method::POST, &path);
        let request = request
            .header("idempotency-key", "once")
            .json(&json!({"ref": to}));
        session.client.send(request).await.unwrap()
    };
    let first = ask(&session, &reference).await.ok(200);
    fs::write(root.join("file"), "three").unwrap();
    assert_eq!(ask(&session, &reference).await.ok(200), first);
    let host = host.kill().start();
    let session = host.client().session(&session.id);
    assert_eq!(ask(&session, &reference).await.ok(200), first);
    let kept = fs::read_to_string(root.join("file")).unwrap();
    assert_eq!(kept, "three", "nothing was rewound again");
    assert_eq!(events(&session, "WorkspaceRestored").await.len(), 1);
    let other = format!("v1:sha256:{}", "00".repeat(32));
    ask(&session, &other)
        .await
        .problem(409, "idempotency_conflict");
}

#[tokio::test]
async fn s98_required_checkpoints_latch_and_heal() {
    let (setup, root) = setup("required");
    // Rules of that size cannot be used, so no snapshot can be taken.
    fs::write(root.join(".gitignore"), "# long\n".repeat(60_000)).unwrap();
    let host = setup.start();
    let session = host.client().prompted(PLANNER, "hello").await;
    let row = session
        .until("a checkpoint fault", |row| {
            !row["checkpoint_fault"].is_null()
        })
        .await;
    assert_eq!(row["checkpoint_fault"]["code"], "rules");
    let message = row["checkpoint_fault"]["message"].as_str().unwrap();
    assert!(message.contains(".gitignore"), "{message}");
    session
        .command("/plan")
        .await
        .problem(409, "checkpoint_faulted");
    let waits = session.prompt("waits").await;
    session.until_status("queued").await;
    assert_eq!(checkpoint(&session).await.status, 500);
    fs::write(root.join(".gitignore"), "").unwrap();
    taken(&session).await;
    assert_eq!(session.turn_end(&waits).await["type"], "TurnDone");
    session
        .until("a healed row", |row| row.get("checkpoint_fault").is_none())
        .await;
    // Stop answers when the checkpoint of the idle edge is recorded.
    let slow = session.prompt("demo:slow 300").await;
    session.until_status("in_progress").await;
    let before = events(&session, "WorkspaceCheckpointed").await.len();
    assert!(session.interrupt().await);
    let after = events(&session, "WorkspaceCheckpointed").await;
    assert_eq!(after.len(), before + 1);
    assert_eq!(session.turn_end(&slow).await["type"], "TurnInterrupted");
}

#[tokio::test]
async fn s98_best_effort_takes_one_after_each_turn() {
    let (setup, root) = setup("best-effort");
    let host = setup.start();
    let session = host.client().prompted(PLANNER, "hello").await;
    let mut stream = session.events(Some(0)).await;
    let first = stream.until(|f| f.event == "WorkspaceCheckpointed").await;
    fs::write(root.join("file"), "new").unwrap();
    let prompt = session.prompt("more").await;
    session.turn_end(&prompt).await;
    let second = stream.until(|f| f.event == "WorkspaceCheckpointed").await;
    assert_ne!(first.data["ref"], second.data["ref"]);
    session.until_idle().await;
    let to = first.data["ref"].as_str().unwrap();
    loop {
        // The checkpoint may still have the workspace.
        let answer = rewind(&session, to).await;
        if answer.status == 200 {
            break;
        }
        answer.problem(409, "not_idle");
    }
    assert!(!root.join("file").exists());
}

const FILES: usize = 1200;

/// Two trees that differ in every file and in their directories.
fn write(root: &Path, word: &str) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    for at in 0..FILES {
        let directory = root.join(format!("{word}-{}", at % 13)).join("both");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{at}")), format!("{word} {at}")).unwrap();
        let shared = root.join("shared");
        fs::create_dir_all(&shared).unwrap();
        fs::write(shared.join(format!("{at}")), format!("{word} {at}")).unwrap();
    }
    symlink(word, root.join("link")).unwrap();
}

#[tokio::test]
async fn s99_kill_9_during_a_rewind_leaves_one_of_the_two_trees() {
    let (mut setup, root) = setup("off");
    write(&root, "old");
    let host = setup.start();
    let mut session = host.client().prompted(PLANNER, "hello").await;
    session.until_idle().await;
    let old = tree(&root);
    let reference = taken(&session).await;
    write(&root, "new");
    let new = tree(&root);
    let begun = Instant::now();
    rewind(&session, &reference).await.ok(200);
    let whole = begun.elapsed();
    assert_eq!(tree(&root), old);
    setup = host.kill();

    let (mut finished, mut rolled_back, mut cut) = (0, 0, 0);
    let mut restored = 1;
    // Ever later, until it was too late to cut it off: how long one takes depends on the disk.
    let mut point = 0;
    while point < 10 || point < 20 && finished == 0 {
        point += 1;
        write(&root, "new");
        let host = setup.start();
        session = host.client().session(&session.id);
        let asking = tokio::spawn({
            let session = session.clone();
            let path = session.path("/workspace/restore");
            let body = json!({"ref": reference});
            async move { session.client.try_post(&path, body).await }
        });
        let share = match point {
            1..=10 => f64::from(point - 1) / 8.0,
            _ => 1.6f64.powi(point - 9),
        };
        tokio::time::sleep(whole.mul_f64(share)).await;
        setup = host.kill();
        let told = asking
            .await
            .unwrap()
            .is_ok_and(|answer| answer.status == 200);
        let left = tree(&root);
        cut += usize::from(left != old && left != new);

        let host = setup.start();
        session = host.client().session(&session.id);
        let now = tree(&root);
        let recorded = events(&session, "WorkspaceRestored").await.len() - restored;
        restored += recorded;
        match recorded {
            0 => {
                assert!(
                    now == new,
                    "not recorded, so it is what was there ({point})"
                );
                assert!(!told, "who was told would lose it");
                rolled_back += 1;
            }
            1 => {
                assert!(now == old, "recorded, so it is the snapshot ({point})");
                finished += 1;
            }
            more => panic!("{more} events of one rewind"),
        }
        // The session goes on, in a workspace without remains.
        let prompt = session.prompt("more").await;
        assert_eq!(session.turn_end(&prompt).await["type"], "TurnDone");
        session.until_idle().await;
        rewind(&session, &reference).await.ok(200);
        restored += 1;
        assert!(tree(&root) == old);
        setup = host.kill();
    }
    println!(
        "{whole:?} a rewind: {cut} cut in the middle, {rolled_back} rolled back, {finished} finished"
    );
    assert!(rolled_back > 0 && finished > 0, "both ways were gone");
}
