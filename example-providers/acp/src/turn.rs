//! One turn in the conversation: what the agent does, as a person sees it.
//!
//! Text, thoughts, tool calls, results and plans become parts of one assistant
//! message, in the order of their coming. A tool call keeps its place: progress
//! replaces its parts. A new message begins when a text grows beyond a part's
//! bound.

mod page;

use crate::agent::Agent;
use crate::content::{notice, tool_input, tool_name, tool_output};
use crate::event::{Event, Permission};
use crate::permission;
use crate::protocol::{PromptEnded, PromptUsage, ToolCall, codes};
use harness_guest::connection::InUse;
use harness_guest::rpc::RpcError;
use harness_guest::turns::{Flow, Gates, Policy, TurnEvents, TurnHandler, drive};
use harness_guest::types::{
    ApprovalDecision, ChannelError, Error, MessagePart, NoticeLevel, Outcome, ToolCallPart,
    ToolResultPart, Usage,
};
use harness_guest::{Channel, Shared};
use page::Page;
use std::collections::HashMap;

/// Permissions of one turn that may be open at once.
const OPEN_GATES: usize = 32;

/// A started turn, between its start and `done`.
pub struct Turn {
    agent: Agent,
    session: String,
    /// `None`: somebody else has written it down.
    events: Option<TurnEvents<Event>>,
    /// The prompt's number; `None` for a native turn.
    number: Option<u64>,
    _in_use: InUse,
}

impl Turn {
    pub(crate) fn prompt(
        agent: Agent,
        session: String,
        events: TurnEvents<Event>,
        number: u64,
    ) -> Self {
        let in_use = agent.connection().in_use();
        Self {
            agent,
            session,
            events: Some(events),
            number: Some(number),
            _in_use: in_use,
        }
    }

    pub(crate) fn native(agent: Agent, session: String, events: Option<TurnEvents<Event>>) -> Self {
        let in_use = agent.connection().in_use();
        Self {
            agent,
            session,
            events,
            number: None,
            _in_use: in_use,
        }
    }

    /// Sees the turn to its native end.
    pub(crate) async fn run(self, channel: Channel) -> Result<Outcome, Error> {
        let Some(events) = &self.events else {
            return Ok(outcome());
        };
        let settings = self.agent.settings();
        let policy = Policy {
            // Late output has no end of its own: it is over when it is quiet.
            quiet_ms: self.number.is_none().then_some(settings.quiet_ms),
            linger_ms: (self.number.is_some() && settings.linger_ms > 0)
                .then_some(settings.linger_ms),
            grace_ms: settings.cancel_grace_ms,
            folding: false,
        };
        let conversation = Conversation {
            agent: self.agent.clone(),
            session: self.session.clone(),
            page: Page::new(channel.clone()),
            channel: channel.clone(),
            open: Shared::default(),
            gates: Shared::default(),
            usage: Shared::new(None),
        };
        let clock = self.agent.connection().clock();
        let result = drive(&channel, events, &conversation, &policy, &*clock).await;
        conversation.close().await;
        result
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.agent.forget_turn(number);
        }
    }
}

/// The turn while it runs.
struct Conversation {
    agent: Agent,
    session: String,
    channel: Channel,
    page: Page,
    /// Permissions a person is being asked for, by gate.
    open: Shared<HashMap<String, Permission>>,
    gates: Shared<u64>,
    usage: Shared<Option<PromptUsage>>,
}

/// The answer to one gate.
pub(crate) struct Answered {
    gate: String,
    decision: Result<ApprovalDecision, ChannelError>,
}

impl TurnHandler<Event> for Conversation {
    type Answer = Answered;

    async fn event(&self, event: Event, gates: &Gates<Answered>) -> Result<Flow, Error> {
        match event {
            Event::Text(text) => self.page.text(&text).await?,
            Event::Thought(text) => self.page.thought(&text).await?,
            Event::Part(part) => self.page.part(part).await?,
            Event::Plan(plan) => self.page.plan(plan).await?,
            Event::Tool(call) => self.page.tool(*call).await?,
            Event::Permission(permission) => self.ask(*permission, gates),
            Event::Ended(ended) => return self.ended(*ended).await,
            // Applied before it came here.
            Event::State(_) => {}
        }
        Ok(Flow::Continue)
    }

    async fn answered(&self, answer: Answered) -> Result<(), Error> {
        let Some(permission) = self.open.with(|open| open.remove(&answer.gate)) else {
            return Ok(());
        };
        match answer.decision {
            Ok(decision) => {
                let (outcome, remark) = permission::outcome(&permission.request.options, &decision);
                permission.answer(&outcome);
                if let Some(text) = remark {
                    self.page.part(notice(NoticeLevel::Warning, text)).await?;
                }
                Ok(())
            }
            Err(error @ (ChannelError::Stopped | ChannelError::Closed)) => {
                permission.answer(&permission::cancelled());
                Err(error.into())
            }
            Err(error) => {
                permission.answer(&permission::cancelled());
                let text = format!("A permission could not be asked for: {error:?}");
                self.page.part(notice(NoticeLevel::Error, &text)).await?;
                Ok(())
            }
        }
    }

    async fn interrupt(&self) {
        // The protocol wants every open permission answered `cancelled`.
        drop(self.open.replace(HashMap::new()));
        self.agent.cancel(&self.session);
    }

    fn ignored(&self, event: Event) -> Flow {
        match event {
            Event::Ended(_) => Flow::End(Err(Error::Cancelled)),
            // A permission that is dropped is cancelled.
            _ => Flow::Continue,
        }
    }

    fn force(&self) {
        tracing::warn!("the agent does not answer session/cancel: its process is ended");
        self.agent.connection().kill();
    }

    async fn dropped(&self, events: u64) -> Result<(), Error> {
        let text = format!("{events} earlier pieces of late output were dropped.");
        self.page.part(notice(NoticeLevel::Warning, &text)).await
    }
}

impl Conversation {
    fn ask(&self, permission: Permission, gates: &Gates<Answered>) {
        if gates.count() >= OPEN_GATES {
            tracing::warn!("more than {OPEN_GATES} permissions at once: the rest is cancelled");
            return permission.answer(&permission::cancelled());
        }
        let number = self.gates.with(|gates| {
            *gates += 1;
            *gates
        });
        let call = &permission.request.tool_call.tool_call_id;
        let taken = self.open.with(|open| open.contains_key(call));
        let gate = if taken || call.is_empty() || call.len() > 100 {
            format!("permission-{number}")
        } else {
            call.clone()
        };
        let request = permission::approval(&permission.request, gate.clone());
        self.open.with(|open| open.insert(gate.clone(), permission));
        let channel = self.channel.clone();
        gates.open(async move {
            let decision = channel.request_approval(request).await;
            Answered { gate, decision }
        });
    }

    /// The answer to the prompt.
    async fn ended(&self, ended: Result<PromptEnded, RpcError>) -> Result<Flow, Error> {
        let ended = match ended {
            Ok(ended) => ended,
            Err(RpcError::Connection(error)) => return Ok(Flow::End(Err(error.into()))),
            Err(error) if error.code() == Some(codes::AUTH_REQUIRED) => {
                return Ok(Flow::End(Err(Error::Unavailable(format!(
                    "the agent wants a login: {error}"
                )))));
            }
            Err(error) => {
                return Ok(Flow::End(Err(Error::Native(format!(
                    "the agent failed: {error}"
                )))));
            }
        };
        self.usage.replace(ended.usage);
        let remark = match ended.stop_reason.as_str() {
            "cancelled" => return Ok(Flow::End(Err(Error::Cancelled))),
            "end_turn" => None,
            "max_tokens" => Some("The agent reached its limit of tokens.".to_owned()),
            "max_turn_requests" => {
                Some("The agent reached its limit of model requests.".to_owned())
            }
            "refusal" => Some(
                "The agent refused. It will not remember this prompt and its answer.".to_owned(),
            ),
            other => Some(format!("The agent ended the turn: {other:?}.")),
        };
        if let Some(text) = remark {
            self.page.part(notice(NoticeLevel::Warning, &text)).await?;
        }
        Ok(Flow::End(Ok(outcome())))
    }

    async fn close(self) {
        let tokens = self.usage.get();
        let context = self.agent.context_use();
        if tokens.is_some() || context.is_some() {
            let tokens = tokens.unwrap_or_default();
            self.channel.report_usage(Usage {
                input_tokens: tokens.input_tokens,
                output_tokens: tokens.output_tokens,
                context_used: context.map(|(used, _)| used),
                context_size: context.map(|(_, size)| size),
            });
        }
        self.page.close().await;
    }
}

fn outcome() -> Outcome {
    Outcome {
        message: None,
        params: Vec::new(),
    }
}

/// A tool call as a part.
pub(crate) fn call_part(call: &ToolCall) -> MessagePart {
    MessagePart::ToolCall(ToolCallPart {
        id: call.tool_call_id.clone(),
        name: tool_name(call),
        input_json: tool_input(call),
    })
}

/// What a tool has said, as a part.
pub(crate) fn result_part(call: &ToolCall) -> Option<MessagePart> {
    Some(MessagePart::ToolResult(ToolResultPart {
        id: call.tool_call_id.clone(),
        output: tool_output(call)?,
        is_error: call.status.as_deref() == Some("failed"),
    }))
}
