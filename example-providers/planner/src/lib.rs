//! `demo/planner`: a harness without a model.
//!
//! It shows every path of the provider contract with plain, deterministic answers,
//! and says so in each of them. The README documents every prompt, command and
//! action. Reading order: [`native`] is the state and its rules, [`operation`]
//! what a command or action means, [`turn`] what a turn does, [`goal`] the
//! autonomous steps; this file only connects them to the contract.

pub mod background;
pub mod delegate;
pub mod goal;
pub mod native;
pub mod operation;
pub mod prompt;
pub mod settings;
pub mod store;
pub mod turn;
pub mod view;

use harness_guest::background::Process;
use harness_guest::prelude::*;
use operation::{Control, Exclusive};
use store::Store;
use turn::Turn;

/// The provider.
#[derive(Default)]
pub struct Planner {
    store: Store,
    driver: goal::Driver,
}

impl Provider for Planner {
    type Control = Control;
    type Exclusive = Exclusive;
    type Turn = Turn;

    fn describe() -> HarnessInfo {
        view::info()
    }

    async fn run(&self, link: Link) -> Result<(), Error> {
        if link.context().session_id.is_none() {
            // A draft serves discovery only, of a session that has no state yet.
            self.store.load_nothing();
            return Ok(());
        }
        self.store.load().await;
        self.driver.run(link, &self.store).await
    }

    async fn get_command_state(&self, _: Discovery) -> Result<Option<CommandState>, Error> {
        Ok(Some(view::command_state(&self.store.native().await?)))
    }

    async fn prepare(
        &self,
        _: Preparation,
        operation: Operation,
    ) -> Result<Prepared<Control, Exclusive>, Error> {
        let native = self.store.native().await?;
        if let Operation::Command(text) = &operation {
            harness_guest::refuse_disabled(&view::command_state(&native), text)?;
        }
        let prepared = operation::parse(operation)?;
        match &prepared {
            Prepared::Control(control) => control.check(&native)?,
            Prepared::Exclusive(exclusive) => exclusive.check(&native)?,
        }
        Ok(prepared)
    }

    async fn control(&self, control: Control, channel: Channel) -> Result<Outcome, Error> {
        control.perform(&self.store, &self.driver, &channel).await
    }

    async fn exclusive(
        &self,
        exclusive: Exclusive,
        channel: Channel,
    ) -> Result<Invocation<Turn>, Error> {
        turn::bind(&channel).await?;
        exclusive.perform(&self.store, &self.driver, &channel).await
    }

    async fn start_prompt(&self, input: Input, channel: Channel) -> Result<Turn, Error> {
        turn::bind(&channel).await?;
        if let Some(process) = Process::ended_in(&input) {
            return Ok(Turn::Ended(process));
        }
        let text = harness_guest::input_text(&input.parts);
        if delegate::is_result(&input, &channel).await? {
            return Ok(Turn::HandBack(text));
        }
        Ok(Turn::Prompt(prompt::parse(&text)))
    }

    async fn adopt_turn(&self, id: String, channel: Channel) -> Result<Turn, Error> {
        turn::bind(&channel).await?;
        self.driver.adopt(&id).map(Turn::Step)
    }

    async fn done(&self, turn: Turn, channel: Channel) -> Result<Outcome, Error> {
        turn.run(&self.store, &channel).await
    }

    async fn compact(&self, channel: Channel) -> Result<Compaction, Error> {
        turn::compact(&self.store, &channel).await
    }
}

harness_guest::export!(Planner);
