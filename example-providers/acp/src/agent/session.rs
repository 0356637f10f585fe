//! The one native conversation of the instance: begun or taken up again on first
//! need, never by discovery.

use super::{Agent, refused};
use crate::content;
use crate::protocol::{SessionOpened, codes};
use crate::settings::LostSession;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::Shared as SharedFuture;
use harness_guest::Channel;
use harness_guest::limits::shorten;
use harness_guest::rpc::RpcError;
use harness_guest::types::{Error, Message, NoticeLevel, OperationContext, Role, Workspace};
use serde_json::{Value, json};

/// An open conversation.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) id: String,
    /// The host knows of it.
    bound: bool,
}

/// A conversation that is being opened, for all who wait for it.
pub(super) type Opening = SharedFuture<oneshot::Receiver<Result<Live, Error>>>;

impl Agent {
    /// The conversation's id, opened and bound when it is not yet.
    pub(crate) async fn session(&self, channel: &Channel) -> Result<String, Error> {
        let context = channel.context();
        self.at(context.workspace.clone());
        self.ready().await?;
        let live = match self.0.state.with(|state| state.session.clone()) {
            Some(live) => live,
            None => match self.opening(&context)?.await {
                Ok(opened) => opened?,
                Err(_) => return Err(self.gone().await),
            },
        };
        if !live.bound && context.native_session_id.as_deref() != Some(&live.id) {
            channel.bind_native_session(live.id.clone()).await?;
        }
        let remark = self.0.state.with(|state| {
            if let Some(session) = &mut state.session {
                session.bound = true;
            }
            state.remark.take()
        });
        if let Some(text) = remark {
            channel
                .append(Message {
                    role: Role::System,
                    parts: vec![content::notice(NoticeLevel::Warning, &text)],
                })
                .await?;
        }
        Ok(live.id)
    }

    /// Joins the opening under way, or begins one as a job: an aborted caller does
    /// not abort it.
    fn opening(&self, context: &OperationContext) -> Result<Opening, Error> {
        if let Some(opening) = self.0.state.with(|state| state.opening.clone()) {
            return Ok(opening);
        }
        let (sender, opened) = oneshot::channel();
        let opening = opened.shared();
        self.0
            .state
            .with(|state| state.opening = Some(opening.clone()));
        let (agent, context) = (self.clone(), context.clone());
        let job = self.0.connection.spawn(async move {
            let result = agent.open(&context).await;
            agent.0.state.with(|state| {
                state.opening = None;
                if let Ok(live) = &result {
                    state.session = Some(live.clone());
                }
            });
            harness_guest::state_changed();
            // Nobody may wait any more; the next caller finds it open.
            let _ = sender.send(result);
        });
        if let Err(error) = job {
            self.0.state.with(|state| state.opening = None);
            return Err(error.into());
        }
        Ok(opening)
    }

    async fn open(&self, context: &OperationContext) -> Result<Live, Error> {
        let cwd = match &context.workspace {
            Some(Workspace::Local(local)) => local.root_path.clone(),
            Some(Workspace::Remote(_)) | None => {
                return Err(Error::Unsupported(
                    "an ACP agent works in a local workspace".to_owned(),
                ));
            }
        };
        if let Some(former) = &context.native_session_id {
            match self.take_up(former, &cwd).await? {
                Ok(opened) => {
                    self.opened(opened);
                    return Ok(Live {
                        id: former.clone(),
                        bound: true,
                    });
                }
                Err(reason) if self.0.settings.on_lost_session == LostSession::Fail => {
                    return Err(Error::Native(reason));
                }
                Err(reason) => self.0.state.with(|state| {
                    state.remark = Some(format!(
                        "{reason} The agent goes on without its memory of this conversation."
                    ));
                }),
            }
        }
        // The agent may speak of the conversation before it tells its id.
        let expecting = self.0.router.expect();
        let answer = self
            .0
            .rpc
            .call("session/new", &json!({"cwd": cwd, "mcpServers": []}))
            .await
            .map_err(|error| refused(self, error))?;
        let opened = parse(answer, "session/new")?;
        let Some(id) = opened.session_id.clone().filter(|id| !id.is_empty()) else {
            return Err(Error::Native(
                "the answer to session/new has no sessionId".to_owned(),
            ));
        };
        self.opened(opened);
        let early = self.0.router.learn(&id);
        drop(expecting);
        for event in early {
            self.deliver(&id, event);
        }
        Ok(Live { id, bound: false })
    }

    /// Resumes or loads a conversation; the inner error says why the agent does not
    /// have it any more.
    async fn take_up(&self, id: &str, cwd: &str) -> Result<Result<SessionOpened, String>, Error> {
        let (resumes, loads) = self.0.state.with(|state| {
            let capabilities = state
                .initialized
                .as_ref()
                .and_then(|known| known.agent_capabilities.as_ref());
            let resumes = capabilities
                .and_then(|known| known.session_capabilities.as_ref())
                .and_then(|known| known.resume.as_ref())
                .is_some_and(|value| !value.is_null() && *value != Value::Bool(false));
            (
                resumes,
                capabilities.is_some_and(|known| known.load_session),
            )
        });
        // Resuming replays nothing; loading replays the whole conversation, which
        // the host has already.
        let method = match (resumes, loads) {
            (true, _) => "session/resume",
            (false, true) => "session/load",
            (false, false) => {
                return Ok(Err(
                    "The agent cannot take up earlier conversations.".to_owned()
                ));
            }
        };
        for event in self.0.router.learn(id) {
            self.deliver(id, event);
        }
        self.0
            .state
            .with(|state| state.replaying = Some(id.to_owned()));
        let (sender, answer) = oneshot::channel();
        let agent = self.clone();
        let sent = self.0.rpc.send(
            method,
            &json!({"sessionId": id, "cwd": cwd, "mcpServers": []}),
            move |result| {
                // At the answer, not when it is noticed: what follows is new.
                agent.0.state.with(|state| state.replaying = None);
                let _ = sender.send(result);
            },
        );
        if let Err(error) = sent {
            self.0.state.with(|state| state.replaying = None);
            return Err(error.into());
        }
        let answer = answer
            .await
            .unwrap_or_else(|_| Err(RpcError::Malformed("no answer".to_owned())));
        match answer {
            Ok(value) => Ok(Ok(parse(value, method)?)),
            Err(error) => match error.code() {
                Some(
                    codes::RESOURCE_NOT_FOUND | codes::INVALID_PARAMS | codes::METHOD_NOT_FOUND,
                ) => Ok(Err(format!(
                    "The agent no longer has this conversation: {}.",
                    shorten(&error.to_string(), 512)
                ))),
                _ => Err(refused(self, error)),
            },
        }
    }

    /// The answer tells the choices of the conversation.
    fn opened(&self, opened: SessionOpened) {
        self.0.state.with(|state| {
            state.choices.modes = opened.modes;
            state.choices.options = opened.config_options;
        });
    }
}

/// An answer of null is an answer without members.
fn parse(answer: Value, method: &str) -> Result<SessionOpened, Error> {
    if answer.is_null() {
        return Ok(SessionOpened::default());
    }
    serde_json::from_value(answer)
        .map_err(|error| Error::Native(format!("the answer to {method} is not ACP: {error}")))
}
