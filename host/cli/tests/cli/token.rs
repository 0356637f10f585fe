//! Tokens of a data directory, free and held.

use crate::support::{Serving, err, harness, out, run};

#[test]
fn a_token_is_created_listed_and_revoked_without_a_host() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let nowhere = run(&["token", "list", "--data-dir", data]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        err(&nowhere).contains("is no data directory") && err(&nowhere).contains("harness serve"),
        "{}",
        err(&nowhere)
    );
    assert!(
        !dir.path().join("data").exists(),
        "a mistyped path makes no directory"
    );
    let mut first = Serving::start(dir.path().join("data").as_path(), |command| {
        command.env("HARNESS_TOKEN", "bootstrap-0123456789");
    });
    first.signal("TERM");
    assert!(first.end().0.success());
    let nobody = run(&[
        "token",
        "create",
        "--name",
        "ci",
        "--project",
        "nope",
        "--data-dir",
        data,
    ]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(
        err(&nobody).contains("no project `nope`") && err(&nobody).contains("remedy"),
        "{}",
        err(&nobody)
    );
    let created = run(&[
        "token",
        "create",
        "--name",
        "ci",
        "--scope",
        "read",
        "--project",
        "default",
        "--data-dir",
        data,
    ]);
    assert!(created.status.success(), "{}", err(&created));
    let token = out(&created).trim().to_owned();
    assert!(token.starts_with("hh_") && token.len() > 40, "{token}");
    assert!(
        !err(&created).contains(&token),
        "only standard output has the token"
    );

    let listed = out(&run(&["token", "list", "--data-dir", data]));
    assert!(
        listed.contains("ci") && listed.contains("read") && listed.contains("default"),
        "{listed}"
    );
    assert!(!listed.contains(&token), "{listed}");
    let id = listed
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().next())
        .unwrap()
        .to_owned();
    assert!(
        run(&["token", "revoke", &id, "--data-dir", data])
            .status
            .success()
    );
    assert_eq!(
        out(&run(&["token", "list", "--data-dir", data]))
            .lines()
            .count(),
        1
    );
    let again = run(&["token", "revoke", &id, "--data-dir", data]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        err(&again).contains("no token of that id"),
        "{}",
        err(&again)
    );
}

#[test]
fn a_running_host_is_asked_instead_when_there_is_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let host = Serving::start(dir.path(), |_| {});
    let data = dir.path().to_str().unwrap();
    let admin = host.fact("token");

    let without = run(&["token", "list", "--data-dir", data]);
    assert_eq!(without.status.code(), Some(3));
    let shown = err(&without);
    assert!(
        shown.contains("HARNESS_TOKEN")
            && shown.contains(&format!("{}/v1/tokens", host.fact("url"))),
        "{shown}"
    );

    let with = |token: &str, args: &[&str]| {
        harness(args)
            .args(["--data-dir", data])
            .env("HARNESS_TOKEN", token)
            .output()
            .unwrap()
    };
    let created = with(
        admin,
        &["token", "create", "--name", "reader", "--scope", "read"],
    );
    assert!(created.status.success(), "{}", err(&created));
    let reader = out(&created).trim().to_owned();
    let listed = with(admin, &["token", "list"]);
    assert!(
        out(&listed).contains("reader") && out(&listed).contains("admin"),
        "{}",
        out(&listed)
    );

    let forbidden = with(&reader, &["token", "list"]);
    assert_eq!(forbidden.status.code(), Some(1));
    assert!(
        err(&forbidden).contains("scope admin"),
        "{}",
        err(&forbidden)
    );
    let unknown = with("hh_unknown", &["token", "list"]);
    assert!(
        err(&unknown).contains("not a token of this host"),
        "{}",
        err(&unknown)
    );

    let id = out(&listed)
        .lines()
        .find(|line| line.contains("reader"))
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    assert!(with(admin, &["token", "revoke", &id]).status.success());
    assert!(err(&with(&reader, &["token", "list"])).contains("not a token of this host"));
}

#[test]
fn a_data_directory_that_cannot_be_used_is_told_with_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let beneath = file.join("data");
    for args in [["serve"].as_slice(), &["token", "list"]] {
        let mut command = harness(args);
        let refused = command.arg("--data-dir").arg(&beneath).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{args:?}");
        let shown = err(&refused);
        assert!(
            shown.contains("file/data") && shown.contains("remedy: "),
            "{shown}"
        );
    }
}
