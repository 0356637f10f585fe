//! The scriptable provider of the host's tests; `README.md` beside this crate
//! documents every word of it.
//!
//! Written with the SDK, so that the SDK itself is tested against the real host.
#![allow(clippy::panic)] // steps that are meant to trap

#[path = "probe/script.rs"]
mod script;
#[path = "probe/steps.rs"]
mod steps;
#[path = "probe/view.rs"]
mod view;

use harness_guest::prelude::*;
use script::{Phase, Script};
use std::collections::BTreeMap;

/// The provider.
#[derive(Default)]
struct Probe {
    memory: Shared<Memory>,
}

/// What the instance remembers; gone with it.
#[derive(Default)]
struct Memory {
    link: Option<Link>,
    counters: BTreeMap<&'static str, u64>,
    /// Value of the mode `switch`.
    switch: u64,
    activities: Vec<(String, Activity)>,
    /// Scripts of announced native turns.
    native: BTreeMap<String, Script>,
}

impl Probe {
    fn count(&self, what: &'static str) {
        self.memory
            .with(|memory| *memory.counters.entry(what).or_default() += 1);
    }
}

/// A started turn.
struct Turn {
    script: Script,
}

impl Provider for Probe {
    type Control = Script;
    type Exclusive = Script;
    type Turn = Turn;

    fn describe() -> HarnessInfo {
        view::info()
    }

    async fn run(&self, link: Link) -> Result<(), Error> {
        self.count("run");
        let abort = link.abort();
        self.memory.with(|memory| memory.link = Some(link));
        abort.wait().await;
        Ok(())
    }

    async fn detect(&self, _: Discovery) -> Result<Readiness, Error> {
        self.count("detect");
        Ok(Readiness {
            native_version: Some("1.2.3".to_owned()),
            compatibility: Compatibility::Supported,
            models: Vec::new(),
        })
    }

    async fn get_command_state(&self, request: Discovery) -> Result<Option<CommandState>, Error> {
        self.count("discover");
        let note = view::discovery_json(&request.context());
        Ok(Some(self.memory.with(|memory| view::state(memory, note))))
    }

    async fn prepare(
        &self,
        request: Preparation,
        operation: Operation,
    ) -> Result<Prepared<Script, Script>, Error> {
        self.count("prepare");
        if let Operation::Command(text) = &operation {
            let state = self
                .memory
                .with(|memory| view::state(memory, String::new()));
            harness_guest::refuse_disabled(&state, text)?;
        }
        let script = Script::of(operation, self.memory.with(|memory| memory.switch))?;
        steps::prepare(script.steps(Phase::Prepare), &request).await?;
        Ok(match script.is_exclusive() {
            true => Prepared::Exclusive(script),
            false => Prepared::Control(script),
        })
    }

    fn discard(&self, _: Prepared<Script, Script>) {
        self.count("discard");
    }

    async fn control(&self, script: Script, channel: Channel) -> Result<Outcome, Error> {
        self.count("invoke");
        steps::run(self, script.steps(Phase::Control), &channel).await
    }

    async fn exclusive(&self, script: Script, channel: Channel) -> Result<Invocation<Turn>, Error> {
        self.count("invoke");
        let outcome = steps::run(self, script.steps(Phase::Exclusive), &channel).await?;
        Ok(match script.starts_turn() {
            true => Invocation::Started {
                turn: Turn { script },
                params: outcome.params,
            },
            false => Invocation::Completed(outcome),
        })
    }

    async fn start_prompt(&self, input: Input, channel: Channel) -> Result<Turn, Error> {
        self.count("start");
        let script = Script::of_prompt(&harness_guest::input_text(&input.parts))?;
        steps::run(self, script.steps(Phase::Start), &channel).await?;
        Ok(Turn { script })
    }

    async fn adopt_turn(&self, id: String, _: Channel) -> Result<Turn, Error> {
        self.count("adopt");
        let script = self.memory.with(|memory| memory.native.remove(&id));
        let script = script.ok_or_else(|| Error::InvalidOperation(format!("no turn {id}")))?;
        Ok(Turn { script })
    }

    async fn done(&self, turn: Turn, channel: Channel) -> Result<Outcome, Error> {
        self.count("done");
        steps::run(self, turn.script.steps(Phase::Turn), &channel).await
    }

    async fn compact(&self, channel: Channel) -> Result<Compaction, Error> {
        self.count("compact");
        let saved = channel.history(1_000).await?.len();
        Ok(Compaction {
            summary: Some(format!("{saved} messages")),
            usage: None,
        })
    }
}

harness_guest::export!(Probe);
