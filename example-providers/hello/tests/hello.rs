//! What the README of the SDK promises about the smallest provider.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // a failed test

use harness_guest::testing::Host;
use hello::Hello;

#[test]
fn hello_is_a_provider_in_under_40_lines() {
    let lines = include_str!("../src/lib.rs").lines().count();
    assert!(lines < 40, "{lines} lines");
}

#[test]
fn hello_greets() {
    let host = Host::<Hello>::start();
    let turn = host.prompt("anyone there?").unwrap();
    host.finish(turn).unwrap();
    assert_eq!(host.transcript(), ["Hello! You said: anyone there?"]);
}

#[test]
fn r8_r9_without_native_commands_there_is_no_state_and_no_operation() {
    let host = Host::<Hello>::start();
    assert_eq!(host.discover(), Ok(None));
    assert!(host.command("/hello").is_err());
}

/// The guide prints this provider; its first block of Rust is this source, comments
/// left out.
#[test]
fn the_guide_prints_what_is_built() {
    let guide = include_str!("../../../docs/provider-guide.md");
    let block = guide.split("```rust\n").nth(1).unwrap();
    let printed: Vec<&str> = block
        .split("```")
        .next()
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty())
        .collect();
    let built: Vec<&str> = include_str!("../src/lib.rs")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .collect();
    assert_eq!(printed, built);
}
