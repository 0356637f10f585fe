//! `tracing` events and panics reach the host's log.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed test

use harness_guest::prelude::*;
use harness_guest::testing::Host;

#[derive(Default)]
struct Logging;

impl Provider for Logging {
    type Control = ();
    type Exclusive = ();
    type Turn = ();

    fn describe() -> HarnessInfo {
        HarnessInfo::new("test/logging", "Logging", "0")
    }

    async fn start_prompt(&self, _: Input, _: Channel) -> Result<(), Error> {
        tracing::warn!(count = 3, name = "x", "something odd");
        tracing::info!("{}", "l".repeat(100_000));
        Ok(())
    }

    async fn done(&self, (): (), _: Channel) -> Result<Outcome, Error> {
        Ok(Outcome::default())
    }
}

#[test]
fn events_become_bounded_log_lines() {
    harness_guest::telemetry::install();
    let host = Host::<Logging>::start();
    host.prompt("x").unwrap();
    let logs = host.logs();
    assert_eq!(
        logs.first(),
        Some(&(
            LogLevel::Warn,
            "something odd count=3 name=\"x\"".to_owned()
        ))
    );
    assert!(logs.get(1).unwrap().1.len() <= 4_096);

    assert!(std::panic::catch_unwind(|| panic!("a panic's message")).is_err());
    let (level, line) = host.logs().pop().unwrap();
    assert_eq!(level, LogLevel::Error);
    assert!(line.contains("a panic's message"), "{line}");
}
