//! The binary under test: beside the test executables, built when missing or older than its
//! sources. (`cargo test --workspace` builds it anyway; `cargo test -p harness-tests` does not.)

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Path of `harness`.
///
/// # Panics
/// It cannot be built.
#[must_use]
pub fn harness() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        // <target>/<profile>/deps/<test>
        let profile = exe.parent().unwrap().parent().unwrap();
        let path = profile.join("harness");
        if stale(&path) {
            build(profile);
        }
        assert!(path.is_file(), "{} is not there", path.display());
        path
    })
}

fn stale(path: &Path) -> bool {
    if std::env::var_os("HARNESS_TEST_BINARY_AS_IS").is_some() {
        return false;
    }
    let Ok(built) = path.metadata().and_then(|meta| meta.modified()) else {
        return true;
    };
    let root = crate::root();
    [
        "host",
        "wit",
        "guest-sdk/src",
        "example-providers/planner/src",
    ]
    .iter()
    .any(|part| newest(&root.join(part)) > built)
}

/// When something below a directory changed last, tests aside.
fn newest(path: &Path) -> SystemTime {
    let Ok(entries) = std::fs::read_dir(path) else {
        return SystemTime::UNIX_EPOCH;
    };
    entries
        .flatten()
        .filter(|entry| entry.file_name() != "tests" && entry.file_name() != "target")
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => newest(&entry.path()),
            _ => entry
                .metadata()
                .and_then(|meta| meta.modified())
                .unwrap_or(SystemTime::UNIX_EPOCH),
        })
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn build(profile: &Path) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(crate::root())
        .args(["build", "-p", "harness"]);
    if profile.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    cargo.env("CARGO_TARGET_DIR", profile.parent().unwrap());
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the host does not build");
}
