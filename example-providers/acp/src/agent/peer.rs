//! The reader's side: what the agent sends, sorted without waiting.

use super::{Agent, remark};
use crate::content::{Said, plan, said};
use crate::event::{Event, Permission};
use crate::permission::cancelled;
use crate::protocol::{Initialized, PermissionRequest, SessionUpdate, Update, VERSION, codes};
use futures::future::LocalBoxFuture;
use harness_guest::connection::ConnectionError;
use harness_guest::rpc::{Fault, Peer, Request};
use harness_guest::types::NoticeLevel;
use serde_json::{Value, json};

pub(super) struct AcpPeer(pub(super) Agent);

impl Peer for AcpPeer {
    fn open(&self) -> LocalBoxFuture<'static, Result<(), String>> {
        let agent = self.0.clone();
        Box::pin(async move { agent.initialize().await })
    }

    fn notification(&self, method: &str, params: Value) {
        if method != "session/update" {
            tracing::debug!("notification {method:?} is ignored");
            return;
        }
        let update: SessionUpdate = match serde_json::from_value(params) {
            Ok(update) => update,
            Err(error) => {
                tracing::warn!("session/update is not understood: {error}");
                return;
            }
        };
        if let Some(event) = event(update.update) {
            self.0.deliver(&update.session_id, event);
        }
    }

    fn request(&self, request: Request) {
        if request.method != "session/request_permission" {
            // Files and terminals are not offered: the agent has its own.
            return request.unknown();
        }
        let asked: PermissionRequest = match serde_json::from_value(request.params) {
            Ok(asked) => asked,
            Err(error) => {
                return request
                    .responder
                    .refuse(codes::INVALID_PARAMS, &error.to_string());
            }
        };
        let session = asked.session_id.clone();
        let permission = Permission::new(asked, request.responder);
        if self.0.replays(&session) {
            return permission.answer(&cancelled());
        }
        self.0
            .deliver(&session, Event::Permission(Box::new(permission)));
    }

    fn fault(&self, fault: &Fault) {
        tracing::warn!("agent: {fault}");
        if let (Fault::Oversize { call: None, .. }, Some(session)) = (fault, self.0.live_session())
        {
            let text = format!("A message of the agent was lost: {fault}.");
            self.0
                .deliver(&session, remark(NoticeLevel::Warning, &text));
        }
    }

    fn closed(&self, reason: &ConnectionError) {
        self.0.0.router.lose(&reason.to_string());
        self.0.0.state.with(|state| {
            state.session = None;
            state.opening = None;
            state.replaying = None;
        });
    }

    fn pressure(&self) -> Option<LocalBoxFuture<'static, ()>> {
        self.0.0.router.pressure()
    }
}

/// What an update is for a turn; `None` for what is of no interest.
fn event(update: Update) -> Option<Event> {
    Some(match update {
        Update::AgentMessageChunk { content } => match said(content)? {
            Said::Text(text) => Event::Text(text),
            Said::Part(part) => Event::Part(part),
        },
        Update::AgentThoughtChunk { content } => match said(content)? {
            Said::Text(text) => Event::Thought(text),
            Said::Part(part) => Event::Part(part),
        },
        Update::ToolCall(call) | Update::ToolCallUpdate(call) => Event::Tool(Box::new(call)),
        Update::Plan { entries } => Event::Plan(plan(&entries)),
        Update::Other => return None,
        state @ (Update::AvailableCommandsUpdate { .. }
        | Update::CurrentModeUpdate { .. }
        | Update::ConfigOptionUpdate { .. }
        | Update::UsageUpdate { .. }) => Event::State(Box::new(state)),
    })
}

impl Agent {
    /// The handshake of a new process.
    async fn initialize(&self) -> Result<(), String> {
        self.0.router.reset();
        self.0.state.with(|state| state.incompatible = None);
        let params = json!({
            "protocolVersion": VERSION,
            "clientInfo": {
                "name": "harness-host",
                "title": "Harness Host",
                "version": env!("CARGO_PKG_VERSION"),
            },
            "clientCapabilities": {
                "fs": {"readTextFile": false, "writeTextFile": false},
                "terminal": false,
                "session": {"configOptions": {"boolean": {}}},
            },
        });
        let answer = self
            .0
            .rpc
            .call("initialize", &params)
            .await
            .map_err(|error| format!("the agent refused to initialize: {error}"))?;
        let known: Initialized = serde_json::from_value(answer)
            .map_err(|error| self.unfit(format!("the answer to initialize is not ACP: {error}")))?;
        if known.protocol_version != VERSION {
            return Err(self.unfit(format!(
                "the agent speaks version {} of the Agent Client Protocol, this provider version {VERSION}",
                known.protocol_version
            )));
        }
        self.0.state.with(|state| state.initialized = Some(known));
        if let Some(method) = &self.0.settings.auth_method {
            self.0
                .rpc
                .call("authenticate", &json!({"methodId": method}))
                .await
                .map_err(|error| {
                    format!("the agent refused to authenticate by {method:?}: {error}")
                })?;
        }
        Ok(())
    }

    fn unfit(&self, reason: String) -> String {
        self.0
            .state
            .with(|state| state.incompatible = Some(reason.clone()));
        reason
    }

    fn live_session(&self) -> Option<String> {
        self.0
            .state
            .with(|state| Some(state.session.as_ref()?.id.clone()))
    }

    fn replays(&self, session: &str) -> bool {
        self.0
            .state
            .with(|state| state.replaying.as_deref() == Some(session))
    }
}
