//! The agent behind the connection: handshake, its one conversation, and where
//! everything it says goes.
//!
//! Invariants:
//! - a conversation is opened by a job of the connection, so that an aborted call
//!   never leaves one that nobody knows of: the next call takes it up;
//! - the answer to a prompt and the updates around it keep their order: the answer
//!   is an event of the same queue;
//! - an answer that comes after its turn is over ends no other turn.
//!
//! Deliberately not here: what events look like in the conversation
//! ([`turn`](crate::turn)).

mod peer;
mod session;

use crate::event::Event;
use crate::memory::Memory;
use crate::modes::{Choices, Choose};
use crate::protocol::{AgentInfo, AvailableCommand, Initialized, PromptEnded, Update};
use crate::settings::Settings;
use crate::turn::Turn;
use crate::{content, memory};
use harness_guest::connection::Connection;
use harness_guest::rpc::{Rpc, RpcError};
use harness_guest::turns::{Announced, TurnRouter, announce, fresh_turn_id};
use harness_guest::types::{
    Error, Message, MessagePart, ModeActionOperation, NativeTurn, Role, TurnStart, Workspace,
};
use harness_guest::{Channel, Link, Shared};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::rc::Rc;

/// Commands of one announcement that are kept; four times what can be listed, for
/// names that share their first word.
const TOLD_COMMANDS: usize = 1024;

/// Handle on the one agent of this instance.
#[derive(Clone)]
pub(crate) struct Agent(Rc<Inner>);

struct Inner {
    settings: Settings,
    connection: Connection,
    rpc: Rpc,
    router: TurnRouter<Event>,
    /// Tells the transport where the next process starts.
    place: Box<dyn Fn(Option<Workspace>)>,
    link: Shared<Option<Link>>,
    state: Shared<State>,
}

#[derive(Default)]
struct State {
    initialized: Option<Initialized>,
    /// Why the agent does not fit.
    incompatible: Option<String>,
    session: Option<session::Live>,
    opening: Option<session::Opening>,
    /// The conversation whose history is being replayed.
    replaying: Option<String>,
    /// `None`: the agent has not told any yet.
    commands: Option<Vec<AvailableCommand>>,
    choices: Choices,
    remembered: Option<Memory>,
    /// Tokens in the context, and its size.
    context: Option<(u64, u64)>,
    /// To be said in the conversation at the next opportunity.
    remark: Option<String>,
    turns: u64,
    live_turn: Option<u64>,
    /// Announced native turns and their conversations.
    announced: HashMap<String, String>,
    unknown_updates: u64,
}

impl Agent {
    pub(crate) fn new(
        settings: Settings,
        connection: Connection,
        place: impl Fn(Option<Workspace>) + 'static,
    ) -> Self {
        let rpc = Rpc::new(connection.clone());
        let agent = Self(Rc::new(Inner {
            settings,
            connection,
            rpc,
            router: TurnRouter::default(),
            place: Box::new(place),
            link: Shared::new(None),
            state: Shared::default(),
        }));
        let weak = Rc::downgrade(&agent.0);
        agent.0.router.on_unclaimed(move |key| {
            if let Some(inner) = weak.upgrade() {
                Agent(inner).unclaimed(key);
            }
        });
        agent
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// The life of the instance.
    pub(crate) async fn run(&self, link: Link) -> Result<(), Error> {
        let _hold = link.hold();
        self.at(link.context().workspace);
        let abort = link.abort();
        self.0.link.replace(Some(link));
        let protocol = self.0.rpc.protocol(peer::AcpPeer(self.clone()));
        let ended = self.0.connection.run(abort.wait(), &protocol).await;
        Ok(ended?)
    }

    /// Where a process that is started from now on works.
    pub(crate) fn at(&self, workspace: Option<Workspace>) {
        (self.0.place)(workspace);
    }

    /// Waits for an agent that shook hands.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        Ok(self.0.connection.ready().await?)
    }

    /// Why an answer will never come.
    async fn gone(&self) -> Error {
        match self.ready().await {
            Err(error) => error,
            Ok(()) => Error::Disconnected("the agent is gone".to_owned()),
        }
    }

    // ---- what is known ------------------------------------------------------

    pub(crate) fn info(&self) -> Option<AgentInfo> {
        self.0
            .state
            .with(|state| state.initialized.as_ref()?.agent_info.clone())
    }

    pub(crate) fn incompatible(&self) -> Option<String> {
        self.0.state.with(|state| state.incompatible.clone())
    }

    /// Commands and choices of the live conversation; `None` without one.
    pub(crate) fn live(&self) -> Option<(Option<Vec<AvailableCommand>>, Choices)> {
        self.0.state.with(|state| {
            state.session.as_ref()?;
            Some((state.commands.clone(), state.choices.clone()))
        })
    }

    pub(crate) fn context_use(&self) -> Option<(u64, u64)> {
        self.0.state.with(|state| state.context)
    }

    // ---- turns ----------------------------------------------------------------

    /// Sends a prompt of these blocks. The turn runs from here on.
    pub(crate) async fn prompt(
        &self,
        channel: &Channel,
        blocks: Vec<Value>,
    ) -> Result<Turn, Error> {
        let session = self.session(channel).await?;
        let Some(events) = self.0.router.claim(&session) else {
            return Err(Error::NotAllowed(
                "the conversation is still busy with an earlier turn".to_owned(),
            ));
        };
        let number = self.0.state.with(|state| {
            state.turns += 1;
            state.live_turn = Some(state.turns);
            state.turns
        });
        let (agent, key) = (self.clone(), session.clone());
        self.0.rpc.send(
            "session/prompt",
            &json!({"sessionId": session, "prompt": blocks}),
            move |answer| agent.prompt_ended(&key, number, answer),
        )?;
        Ok(Turn::prompt(self.clone(), session, events, number))
    }

    fn prompt_ended(&self, session: &str, number: u64, answer: Result<Value, RpcError>) {
        let live = self.0.state.with(|state| {
            let live = state.live_turn == Some(number);
            if live {
                state.live_turn = None;
            }
            live
        });
        if !live {
            tracing::info!("the answer to a prompt came after its turn was over");
            return;
        }
        let ended = answer.and_then(|value| {
            serde_json::from_value::<PromptEnded>(value)
                .map_err(|error| RpcError::Malformed(format!("answer to session/prompt: {error}")))
        });
        self.0.router.route(session, Event::Ended(Box::new(ended)));
    }

    /// The turn of this prompt is over for the host.
    pub(crate) fn forget_turn(&self, number: u64) {
        self.0.state.with(|state| {
            if state.live_turn == Some(number) {
                state.live_turn = None;
            }
        });
    }

    /// Takes over an announced native turn.
    pub(crate) fn adopt(&self, id: &str) -> Result<Turn, Error> {
        let session = self
            .0
            .state
            .with(|state| state.announced.remove(id))
            .ok_or_else(|| {
                Error::InvalidOperation(format!("no native turn {id:?} was announced"))
            })?;
        let events = self.0.router.claim(&session);
        Ok(Turn::native(self.clone(), session, events))
    }

    pub(crate) fn cancel(&self, session: &str) {
        if let Err(error) = self
            .0
            .rpc
            .notify("session/cancel", &json!({"sessionId": session}))
        {
            tracing::warn!("session/cancel cannot be sent: {error}");
        }
    }

    // ---- choices ----------------------------------------------------------------

    /// Makes a choice natively. What the agent answers counts also when nobody
    /// waits for it any more.
    pub(crate) async fn choose(
        &self,
        session: &str,
        operation: &ModeActionOperation,
    ) -> Result<String, Error> {
        let choice = self.0.state.with(|state| state.choices.choose(operation))?;
        let (method, params) = match &choice {
            Choose::Mode { id, .. } => (
                "session/set_mode",
                json!({"sessionId": session, "modeId": id}),
            ),
            Choose::Select { option, value, .. } => (
                "session/set_config_option",
                json!({"sessionId": session, "configId": option, "value": value}),
            ),
            Choose::Switch { option, on, .. } => (
                "session/set_config_option",
                json!({"sessionId": session, "configId": option, "type": "boolean", "value": on}),
            ),
        };
        let (sender, answer) = futures::channel::oneshot::channel();
        let (agent, made) = (self.clone(), choice.clone());
        self.0.rpc.send(method, &params, move |result| {
            if let Ok(value) = &result {
                agent.chosen(&made, value);
            }
            // An aborted caller needs no answer.
            let _ = sender.send(result);
        })?;
        match answer.await {
            Ok(Ok(_)) => Ok(choice.reply()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(self.gone().await),
        }
    }

    fn chosen(&self, choice: &Choose, answer: &Value) {
        match choice {
            Choose::Mode { id, .. } => self.apply(Update::CurrentModeUpdate {
                current_mode_id: id.clone(),
            }),
            Choose::Select { .. } | Choose::Switch { .. } => {
                // The answer holds all options: one choice can change others.
                let update = json!({
                    "sessionUpdate": "config_option_update",
                    "configOptions": answer.get("configOptions").cloned().unwrap_or_default(),
                });
                if answer.get("configOptions").is_some()
                    && let Ok(update) = serde_json::from_value(update)
                {
                    self.apply(update);
                }
            }
        }
    }

    // ---- what the agent says ------------------------------------------------------

    /// One event of a conversation, wherever it belongs.
    fn deliver(&self, session: &str, event: Event) {
        if !self.0.router.knows(session) {
            if self.0.router.route(session, event) == harness_guest::turns::Routed::Unknown {
                let count = self.0.state.with(|state| {
                    state.unknown_updates += 1;
                    state.unknown_updates
                });
                if count.is_power_of_two() {
                    tracing::warn!("{count} updates of unknown conversations were dropped");
                }
            }
            return;
        }
        if let Event::State(update) = event {
            return self.apply(*update);
        }
        let replayed = self
            .0
            .state
            .with(|state| state.replaying.as_deref() == Some(session));
        if !replayed {
            self.0.router.route(session, event);
        }
    }

    /// The state of the conversation changed.
    fn apply(&self, update: Update) {
        let keep = self.0.state.with(|state| match update {
            Update::AvailableCommandsUpdate { available_commands } => {
                let bounded = available_commands.into_iter().take(TOLD_COMMANDS);
                state.commands = Some(bounded.map(AvailableCommand::bounded).collect());
                Some(true)
            }
            Update::CurrentModeUpdate { current_mode_id } => {
                let modes = state.choices.modes.as_mut()?;
                modes.current_mode_id = current_mode_id;
                Some(false)
            }
            Update::ConfigOptionUpdate { config_options } => {
                state.choices.options = config_options;
                Some(false)
            }
            Update::UsageUpdate { used, size } => {
                state.context = Some((used, size));
                None
            }
            _ => None,
        });
        let Some(commands) = keep else { return };
        if commands {
            self.remember();
        }
        harness_guest::state_changed();
    }

    /// Keeps the commands for discovery before a conversation exists.
    fn remember(&self) {
        let Some(link) = self.0.link.get() else {
            return;
        };
        let memory = self.0.state.with(|state| {
            let info = state
                .initialized
                .as_ref()?
                .agent_info
                .clone()
                .unwrap_or_default();
            let memory = Memory::new(&info, state.commands.as_deref()?);
            if state.remembered.as_ref() == Some(&memory) {
                return None;
            }
            state.remembered = Some(memory.clone());
            Some(memory)
        });
        let Some(memory) = memory else { return };
        let kept = self.0.connection.spawn(async move {
            let workspace = link.context().workspace;
            if let Err(error) = memory::keep(workspace.as_ref(), &memory).await {
                tracing::warn!("the commands cannot be remembered: {error:?}");
            }
        });
        if let Err(error) = kept {
            tracing::warn!("the commands are not remembered: {error}");
        }
    }

    // ---- what nobody asked for -------------------------------------------------------

    /// The agent speaks outside any turn.
    fn unclaimed(&self, session: &str) {
        let (agent, session) = (self.clone(), session.to_owned());
        let announcing = self
            .0
            .connection
            .spawn(async move { agent.announce(&session).await });
        if let Err(error) = announcing {
            tracing::warn!("late output of the agent is dropped: {error}");
        }
    }

    async fn announce(&self, session: &str) {
        let Some(link) = self.0.link.get() else {
            return;
        };
        let id = fresh_turn_id();
        self.0
            .state
            .with(|state| state.announced.insert(id.clone(), session.to_owned()));
        let turn = NativeTurn {
            id: id.clone(),
            start: TurnStart::Running,
            reason: "late output".to_owned(),
            cause: None,
        };
        let clock = self.0.connection.clock();
        let router = &self.0.router;
        let announced = announce(&link, &*clock, router, session, turn).await;
        if announced == Announced::Reserved {
            return;
        }
        self.0.state.with(|state| state.announced.remove(&id));
        match announced {
            Announced::Reserved | Announced::Claimed => {}
            Announced::Stopped => {
                // Dropping a permission answers it.
                drop(router.take_unclaimed(session));
                self.cancel(session);
            }
            Announced::Refused(reason) => {
                tracing::debug!("late output becomes a message: {reason:?}");
                let parts = whole(router.take_unclaimed(session));
                if parts.is_empty() {
                    return;
                }
                let message = Message {
                    role: Role::Assistant,
                    parts,
                };
                if let Err(error) = link.append(message).await {
                    tracing::warn!("late output of the agent is lost: {error:?}");
                }
            }
        }
    }
}

/// Late events as the parts of one message; what must be answered is dropped, and
/// thereby cancelled.
fn whole(events: Vec<Event>) -> Vec<MessagePart> {
    let mut parts = Vec::new();
    for event in events {
        match event {
            Event::Text(text) => parts.push(MessagePart::Text(text)),
            Event::Thought(text) => parts.push(MessagePart::Reasoning(text)),
            Event::Plan(text) => parts.push(MessagePart::Plan(text)),
            Event::Part(part) => parts.push(part),
            Event::Tool(call) => {
                parts.push(crate::turn::call_part(&call));
                parts.extend(crate::turn::result_part(&call));
            }
            Event::Permission(_) | Event::Ended(_) | Event::State(_) => {}
        }
    }
    parts
}

/// A refusal of the agent, with what to do about a login.
fn refused(agent: &Agent, error: RpcError) -> Error {
    if error.code() != Some(crate::protocol::codes::AUTH_REQUIRED) {
        return error.into();
    }
    let methods = agent.0.state.with(|state| {
        state.initialized.as_ref().map_or_else(Vec::new, |known| {
            known
                .auth_methods
                .iter()
                .map(|method| format!("{} ({})", method.id, method.name))
                .collect::<Vec<_>>()
        })
    });
    let methods = if methods.is_empty() {
        String::new()
    } else {
        format!("; it offers: {}", methods.join(", "))
    };
    Error::Unavailable(format!(
        "the agent wants a login: log it in on the host's machine, give its credentials in the \
         process grant, or set auth_method{methods}"
    ))
}

/// A notice of the provider's own as an event of the conversation.
fn remark(level: harness_guest::types::NoticeLevel, text: &str) -> Event {
    Event::Part(content::notice(level, text))
}
