//! Tools that a test needs and a machine may lack: Python, curl, jq, unshare.
//!
//! Where one is missing the test says so in one line and passes; with `HARNESS_TEST_REQUIRE=all`
//! it fails.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether one of these programs is missing; says which.
///
/// # Panics
/// One is missing and everything is required.
#[must_use]
pub fn missing(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let absent: Vec<_> = programs
        .iter()
        .filter(|name| !std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
        .collect();
    if absent.is_empty() {
        return false;
    }
    skip(&format!("{absent:?} missing"));
    true
}

/// Says that a test is skipped, and why.
///
/// # Panics
/// Everything is required.
pub fn skip(why: &str) {
    assert_ne!(
        std::env::var("HARNESS_TEST_REQUIRE").as_deref(),
        Ok("all"),
        "{why}"
    );
    eprintln!("skipped: {why}");
}

/// A Python interpreter, or `None` after saying so.
///
/// # Panics
/// There is none and everything is required.
#[must_use]
pub fn python() -> Option<PathBuf> {
    let name = std::env::var("HARNESS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    // The interpreter itself, not a shim that wants an environment the host does not pass on.
    let output = Command::new(&name)
        .args(["-c", "import sys; print(sys.executable)"])
        .stderr(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8(output.stdout).unwrap().trim().into())
        }
        _ => {
            skip(&format!(
                "{name} is missing (HARNESS_TEST_PYTHON names the interpreter)"
            ));
            None
        }
    }
}

/// A Python interpreter that has the packages of `tests/agents/requirements.txt`: the one at hand
/// when it has them, else a virtual environment made once in the target directory.
///
/// # Panics
/// There is none and everything is required.
#[must_use]
pub fn python_with() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let python = python()?;
            if imports(&python) {
                return Some(python);
            }
            let exe = std::env::current_exe().unwrap();
            let target = exe.ancestors().nth(3).unwrap();
            let made = target.join("agents-venv/bin/python");
            if made.is_file() && imports(&made) {
                return Some(made);
            }
            let requirements = crate::root().join("tests/agents/requirements.txt");
            let installed = quiet(
                Command::new(&python)
                    .args(["-m", "venv"])
                    .arg(target.join("agents-venv")),
            ) && quiet(
                Command::new(&made)
                    .args([
                        "-m",
                        "pip",
                        "install",
                        "--quiet",
                        "--disable-pip-version-check",
                        "-r",
                    ])
                    .arg(requirements),
            );
            if installed && imports(&made) {
                return Some(made);
            }
            skip("the Python package agent-client-protocol is missing and cannot be installed");
            None
        })
        .clone()
}

fn imports(python: &std::path::Path) -> bool {
    quiet(Command::new(python).args(["-c", "import acp"]))
}

fn quiet(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
