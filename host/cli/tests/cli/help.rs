//! The help texts are part of the interface.
//!
//! Run with `SNAPSHOTS=overwrite` to write what is printed now; then read the difference.

use std::process::Command;

fn check(name: &str, args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_harness"))
        .args(args)
        .arg("--help")
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/help")
        .join(name);
    snapbox::assert_data_eq!(
        String::from_utf8(output.stdout).unwrap(),
        snapbox::Data::read_from(&path, None)
    );
}

#[test]
fn help_of_every_command() {
    check("harness.txt", &[]);
    check("serve.txt", &["serve"]);
    check("provider.txt", &["provider"]);
    check("provider-inspect.txt", &["provider", "inspect"]);
    check("token.txt", &["token"]);
    check("token-create.txt", &["token", "create"]);
    check("token-list.txt", &["token", "list"]);
    check("token-revoke.txt", &["token", "revoke"]);
    check("config.txt", &["config"]);
    check("config-check.txt", &["config", "check"]);
}
