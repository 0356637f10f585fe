//! Running the shell examples of a page exactly as they are printed.

use crate::{Host, TOKEN, root};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

const NEXT: &str = "=== next ===";

/// The fenced blocks of a language in a page of the repository, as printed. With a heading, those
/// of its section only.
///
/// # Panics
/// There is no such page or section.
#[must_use]
pub fn blocks(page: &str, heading: Option<&str>, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let section = match heading {
        None => text.as_str(),
        Some(heading) => {
            let rest = text.split(&format!("\n{heading}\n")).nth(1).unwrap();
            rest.split("\n## ").next().unwrap()
        }
    };
    section
        .split(&format!("```{language}\n"))
        .skip(1)
        .map(|block| block.split("\n```").next().unwrap().to_owned())
        .collect()
}

/// Runs blocks one after the other in one shell against a host; the output of each, and at last
/// the value of `SESSION`.
///
/// # Panics
/// They do not end, or write to standard error.
pub async fn run_blocks(host: &Host, blocks: &[String], variables: &[(&str, &str)]) -> Vec<String> {
    let mut script = String::from("set -uo pipefail\n");
    for block in blocks {
        script.push_str(block);
        script.push_str(&format!("\necho '{NEXT}'\n"));
    }
    script.push_str("echo \"$SESSION\"\n");
    let mut bash = Command::new("bash");
    bash.arg("-c")
        .arg(&script)
        .env("HOST", host.url())
        .env("TOKEN", TOKEN)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(240), bash.output())
        .await
        .expect("the examples end")
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.is_empty(), "the examples complain: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(&format!("{NEXT}\n"))
        .map(str::to_owned)
        .collect()
}

/// The JSON values of an output, in order.
///
/// # Panics
/// It holds something else.
#[must_use]
pub fn values(output: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(output)
        .into_iter::<Value>()
        .map(|value| value.unwrap_or_else(|error| panic!("{error} in {output}")))
        .collect()
}
