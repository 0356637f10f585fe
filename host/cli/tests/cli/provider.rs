//! Looking at a component, alone and against a configuration.

use crate::support::{err, out, run};
use std::path::{Path, PathBuf};

/// The component that the build script made.
const PLANNER: &str = env!("HARNESS_EMBEDDED_COMPONENT");
/// What it is granted.
const GRANTS: &str = "[provider.grants.process.sleep]\ncommand = [\"sh\"]\nbackground = true\n[provider.grants.delegation]\n[provider.grants.state]\n";

fn config(dir: &Path, more: &str) -> PathBuf {
    let file = dir.join("harness.toml");
    std::fs::write(
        &file,
        format!("[[provider]]\ncomponent = {PLANNER:?}\n{more}"),
    )
    .unwrap();
    file
}

#[test]
fn inspect_shows_what_a_component_is_and_asks_for() {
    let shown = run(&["provider", "inspect", PLANNER]);
    assert!(shown.status.success(), "{}", err(&shown));
    let text = out(&shown);
    for part in [
        "demo/planner",
        "sha256",
        "harness:provider/state",
        "[provider.grants.state]",
        "harness:provider/delegation",
        "[provider.grants.delegation]",
        "harness:provider/background",
        "background = true",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn inspect_compares_with_what_is_granted() {
    let dir = tempfile::tempdir().unwrap();
    let granted = config(dir.path(), &format!("{GRANTS}max_bytes = \"64KiB\"\n"));
    let shown = run(&[
        "provider",
        "inspect",
        PLANNER,
        "--config",
        granted.to_str().unwrap(),
    ]);
    assert!(shown.status.success(), "{}", err(&shown));
    for allowed in ["65536 bytes per scope", "also in the background"] {
        assert!(out(&shown).contains(allowed), "{}", out(&shown));
    }

    let without = config(dir.path(), "");
    let shown = run(&[
        "provider",
        "inspect",
        PLANNER,
        "--config",
        without.to_str().unwrap(),
    ]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(out(&shown).contains("is not granted"), "{}", out(&shown));

    std::fs::write(&without, "").unwrap();
    let shown = run(&[
        "provider",
        "inspect",
        PLANNER,
        "--config",
        without.to_str().unwrap(),
    ]);
    assert_eq!(shown.status.code(), Some(2));
    assert!(err(&shown).contains("names"), "{}", err(&shown));
}

#[test]
fn inspect_tells_what_is_no_component() {
    let dir = tempfile::tempdir().unwrap();
    let module = dir.path().join("module.wasm");
    std::fs::write(&module, b"\0asm\x01\0\0\0").unwrap();
    let shown = run(&["provider", "inspect", module.to_str().unwrap()]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(
        out(&shown).contains("core WebAssembly module"),
        "{}",
        out(&shown)
    );
    let absent = run(&["provider", "inspect", "absent.wasm"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(
        err(&absent).contains("absent.wasm cannot be read"),
        "{}",
        err(&absent)
    );
}

#[test]
fn check_loads_every_component_and_tells_every_problem() {
    let dir = tempfile::tempdir().unwrap();
    let good = config(dir.path(), GRANTS);
    let check = |file: &Path| run(&["config", "check", "--config", file.to_str().unwrap()]);
    assert!(
        out(&check(&good)).contains("1 provider can be loaded"),
        "{}",
        err(&check(&good))
    );

    let pin = "0".repeat(64);
    let bad = config(
        dir.path(),
        &format!(
            "sha256 = \"{pin}\"\n{GRANTS}[[provider]]\ncomponent = \"embedded\"\n[provider.grants.state]\n[provider.grants.delegation]\n"
        ),
    );
    let refused = check(&bad);
    assert_eq!(refused.status.code(), Some(2));
    let shown = err(&refused);
    assert!(
        shown.contains(&pin) && shown.contains("is pinned"),
        "{shown}"
    );
    assert!(
        shown.contains("its id `demo/planner` is also the one of"),
        "{shown}"
    );

    let none = dir.path().join("empty.toml");
    std::fs::write(&none, "").unwrap();
    assert!(out(&check(&none)).contains("the embedded one is served"));
    assert_eq!(check(Path::new("absent.toml")).status.code(), Some(2));
}
