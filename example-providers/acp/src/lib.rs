//! `agents/acp`: drives any agent that speaks the Agent Client Protocol v1 over
//! standard input and output.
//!
//! Installed once for each agent, under an id of the operator's choosing. Grants:
//! `process.agent`, the agent's command line, and `state`, for the commands last
//! seen. README.md tells what is mapped to what.

mod agent;
mod commands;
mod content;
mod event;
mod memory;
mod modes;
mod permission;
mod protocol;
mod settings;
mod turn;

use agent::Agent;
use harness_guest::connection::{Connection, Options};
use harness_guest::limits::{NAME_BYTES, TEXT_BYTES, shorten};
use harness_guest::prelude::*;
use settings::Settings;
pub use turn::Turn;

/// The provider; one value an instance.
pub struct Acp {
    agent: Agent,
    problems: Vec<String>,
}

impl Default for Acp {
    fn default() -> Self {
        let (settings, problems) = Settings::read(&harness_guest::config());
        let options = Options {
            line_bytes: settings.line_bytes,
            handshake_ms: settings.handshake_ms,
            ..Options::default()
        };
        #[cfg(target_family = "wasm")]
        let agent = {
            let program = harness_guest::connection::granted::Granted::new("agent");
            let connection = Connection::new(program.clone(), options);
            Agent::new(settings, connection, move |place| program.at(place))
        };
        #[cfg(not(target_family = "wasm"))]
        let agent = {
            let connection = Connection::new(native::Installed, options);
            Agent::new(settings, connection, |_| {})
        };
        Self { agent, problems }
    }
}

/// Natively there is no grant: a test installs what the connection stands on.
#[cfg(not(target_family = "wasm"))]
pub mod native {
    use futures::future::LocalBoxFuture;
    use harness_guest::connection::transport::{Pipes, Transport, TransportError};
    use std::cell::RefCell;
    use std::rc::Rc;

    thread_local!(static TRANSPORT: RefCell<Option<Rc<dyn Transport>>> = const { RefCell::new(None) });

    /// Installs the agent of this thread.
    pub fn install(transport: impl Transport + 'static) {
        TRANSPORT.set(Some(Rc::new(transport)));
    }

    pub(crate) struct Installed;

    impl Transport for Installed {
        fn open(&self) -> LocalBoxFuture<'static, Result<Pipes, TransportError>> {
            match TRANSPORT.with_borrow(Clone::clone) {
                Some(transport) => transport.open(),
                None => Box::pin(async {
                    Err(TransportError::NotFound("no agent is installed".to_owned()))
                }),
            }
        }
    }
}

/// A prepared operation.
pub enum Exclusive {
    /// Native text, sent byte for byte as a prompt.
    Command(String),
    /// A choice in a conversation that has to be opened first.
    Choice(ModeActionOperation),
}

impl Provider for Acp {
    type Control = ModeActionOperation;
    type Exclusive = Exclusive;
    type Turn = Turn;

    fn describe() -> HarnessInfo {
        let (settings, _) = Settings::read(&harness_guest::config());
        HarnessInfo {
            id: "agents/acp".to_owned(),
            label: settings.label,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            models: Vec::new(),
            loop_modes: Vec::new(),
            params: Vec::new(),
            workspace: WorkspaceNeed::Local,
            timeout: TimeoutStrategy::Activity,
            features: Features::COMMANDS | Features::STATE_PUSH | Features::NATIVE_TURNS,
        }
    }

    async fn run(&self, link: Link) -> Result<(), Error> {
        self.agent.run(link).await
    }

    async fn detect(&self, request: Discovery) -> Result<Readiness, Error> {
        let unfit = |reason: String| Readiness {
            native_version: None,
            compatibility: Compatibility::Incompatible(shorten(&reason, TEXT_BYTES)),
            models: Vec::new(),
        };
        if !self.problems.is_empty() {
            return Ok(unfit(format!("settings: {}", self.problems.join("; "))));
        }
        self.agent.at(request.context().workspace);
        if let Err(error) = self.agent.ready().await {
            return match self.agent.incompatible() {
                Some(reason) => Ok(unfit(reason)),
                None => Err(error),
            };
        }
        let version = self.agent.info().map(|info| {
            let name = info.title.unwrap_or(info.name);
            shorten(&format!("{name} {}", info.version), NAME_BYTES)
        });
        Ok(Readiness {
            native_version: version,
            compatibility: Compatibility::Supported,
            models: Vec::new(),
        })
    }

    async fn get_command_state(&self, request: Discovery) -> Result<Option<CommandState>, Error> {
        let (commands, known, modes, mut notes) = match self.agent.live() {
            Some((told, choices)) => {
                let (modes, note) = choices.publish();
                // An agent that has said nothing may still know commands.
                let silent = told.is_none();
                let notes = [
                    silent.then(|| "The agent has not told its commands yet.".to_owned()),
                    note,
                ];
                (told.unwrap_or_default(), !silent, modes, notes.to_vec())
            }
            None => {
                let context = request.context();
                let memory = memory::recall(context.workspace.as_ref()).await?;
                let mine = memory.filter(|memory| memory.is_of(self.agent.info().as_ref()));
                match mine {
                    Some(memory) => {
                        let note = format!(
                            "As last told by {} {}; modes are read once the conversation is open.",
                            shorten(&memory.agent, NAME_BYTES),
                            shorten(&memory.version, NAME_BYTES),
                        );
                        (memory.commands, true, Vec::new(), vec![Some(note)])
                    }
                    None => {
                        let note = "The agent tells its commands and modes once a conversation \
                                    is open; none was opened in this workspace yet.";
                        (Vec::new(), false, Vec::new(), vec![Some(note.to_owned())])
                    }
                }
            }
        };
        let slash_commands = !known || !commands.is_empty();
        let (commands, left_out) = commands::publish(&commands);
        notes.push(left_out);
        let note = notes.into_iter().flatten().collect::<Vec<_>>().join(" ");
        Ok(Some(CommandState {
            commands,
            modes,
            slash_commands,
            note: (!note.is_empty()).then(|| shorten(&note, TEXT_BYTES)),
        }))
    }

    async fn prepare(
        &self,
        _request: Preparation,
        operation: Operation,
    ) -> Result<Prepared<ModeActionOperation, Exclusive>, Error> {
        match operation {
            Operation::Command(text) if commands::is_command(&text) => {
                Ok(Prepared::Exclusive(Exclusive::Command(text)))
            }
            Operation::Command(_) => Err(Error::InvalidOperation(
                "a native command is one word after a slash".to_owned(),
            )),
            Operation::ModeAction(action) => match self.agent.live() {
                Some((_, choices)) => {
                    choices.choose(&action)?;
                    Ok(Prepared::Control(action))
                }
                // What is on offer is known once the conversation is open.
                None => Ok(Prepared::Exclusive(Exclusive::Choice(action))),
            },
        }
    }

    async fn control(
        &self,
        operation: ModeActionOperation,
        channel: Channel,
    ) -> Result<Outcome, Error> {
        self.choose(&operation, &channel).await
    }

    async fn exclusive(
        &self,
        operation: Exclusive,
        channel: Channel,
    ) -> Result<Invocation<Turn>, Error> {
        match operation {
            Exclusive::Command(text) => {
                let blocks = content::command(&text);
                let turn = self.agent.prompt(&channel, blocks).await?;
                Ok(Invocation::started(turn))
            }
            Exclusive::Choice(action) => {
                Ok(Invocation::Completed(self.choose(&action, &channel).await?))
            }
        }
    }

    async fn start_prompt(&self, input: Input, channel: Channel) -> Result<Turn, Error> {
        let blocks = content::literal(&input.parts);
        self.agent.prompt(&channel, blocks).await
    }

    async fn adopt_turn(&self, id: String, _channel: Channel) -> Result<Turn, Error> {
        self.agent.adopt(&id)
    }

    async fn done(&self, turn: Turn, channel: Channel) -> Result<Outcome, Error> {
        turn.run(channel).await
    }
}

impl Acp {
    async fn choose(
        &self,
        operation: &ModeActionOperation,
        channel: &Channel,
    ) -> Result<Outcome, Error> {
        let session = self.agent.session(channel).await?;
        let reply = self.agent.choose(&session, operation).await?;
        Ok(Outcome {
            message: Some(shorten(&reply, TEXT_BYTES)),
            params: Vec::new(),
        })
    }
}

harness_guest::export!(Acp);
