//! The open message of a turn, and which of its parts is what.
//!
//! The host extends the last part by a delta of the same kind; everything else is
//! a new part or replaces one by its index. This keeps the indices, and the bounds
//! of a part. A write that the host finds too large is left out and logged: the
//! turn goes on.

use super::{call_part, result_part};
use crate::protocol::ToolCall;
use harness_guest::types::{ChannelError, Error, MessagePart, Role};
use harness_guest::{Channel, MessageWriter, Shared};
use std::collections::HashMap;
use std::rc::Rc;

/// Bytes of one text part, below the host's bound of 256 KiB.
const TEXT_BYTES: usize = 192 * 1024;
/// Bytes of one delta.
const DELTA_BYTES: usize = 64 * 1024;
/// Tool calls of one turn whose progress is followed; later ones are written once.
const TOOLS: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Text,
    Thought,
    Other,
}

/// Where a tool call stands.
struct Tool {
    call: ToolCall,
    message: Rc<MessageWriter>,
    call_index: u32,
    result_index: Option<u32>,
}

struct State {
    message: Option<Rc<MessageWriter>>,
    last: Last,
    last_bytes: usize,
    plan: Option<(Rc<MessageWriter>, u32)>,
    tools: HashMap<String, Tool>,
}

/// Writes one turn.
pub(super) struct Page {
    channel: Channel,
    state: Shared<State>,
}

impl Page {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            channel,
            state: Shared::new(State {
                message: None,
                last: Last::Other,
                last_bytes: 0,
                plan: None,
                tools: HashMap::new(),
            }),
        }
    }

    pub(super) async fn text(&self, text: &str) -> Result<(), Error> {
        self.grow(Last::Text, text, MessagePart::Text).await
    }

    pub(super) async fn thought(&self, text: &str) -> Result<(), Error> {
        self.grow(Last::Thought, text, MessagePart::Reasoning).await
    }

    /// A part of its own.
    pub(super) async fn part(&self, part: MessagePart) -> Result<(), Error> {
        self.add(part, Last::Other, 0).await.map(drop)
    }

    /// The whole plan; there is one a turn.
    pub(super) async fn plan(&self, plan: String) -> Result<(), Error> {
        let part = MessagePart::Plan(plan);
        match self.state.with(|state| state.plan.clone()) {
            Some((message, index)) => tolerate(message.replace(index, part).await).map(drop),
            None => {
                if let Some(place) = self.add(part, Last::Other, 0).await? {
                    self.state.with(|state| state.plan = Some(place));
                }
                Ok(())
            }
        }
    }

    /// A tool call, or news of one.
    pub(super) async fn tool(&self, news: ToolCall) -> Result<(), Error> {
        let id = news.tool_call_id.clone();
        let known = self.state.with(|state| {
            let tool = state.tools.get_mut(&id)?;
            let shown = (call_part(&tool.call), result_part(&tool.call));
            tool.call.update(news.clone());
            Some((
                shown,
                tool.call.clone(),
                Rc::clone(&tool.message),
                tool.call_index,
                tool.result_index,
            ))
        });
        let Some(((old_call, old_result), call, message, call_index, result_index)) = known else {
            return self.new_tool(id, news).await;
        };
        let (new_call, new_result) = (call_part(&call), result_part(&call));
        let mut wrote = false;
        if new_call != old_call {
            tolerate(message.replace(call_index, new_call).await)?;
            wrote = true;
        }
        if new_result != old_result
            && let Some(part) = new_result
        {
            wrote = true;
            match result_index {
                Some(index) => {
                    tolerate(message.replace(index, part).await)?;
                }
                None => self.result(&id, part).await?,
            }
        }
        if !wrote {
            self.channel.touch();
        }
        Ok(())
    }

    async fn new_tool(&self, id: String, call: ToolCall) -> Result<(), Error> {
        let Some((message, call_index)) = self.add(call_part(&call), Last::Other, 0).await? else {
            return Ok(());
        };
        let result = result_part(&call);
        let followed = self.state.with(|state| {
            if state.tools.len() >= TOOLS {
                return false;
            }
            state.tools.insert(
                id.clone(),
                Tool {
                    call,
                    message,
                    call_index,
                    result_index: None,
                },
            );
            true
        });
        match result {
            Some(part) if followed => self.result(&id, part).await,
            Some(part) => self.part(part).await,
            None => Ok(()),
        }
    }

    /// The first result of a tool call goes into the message of the call, so that
    /// both can be replaced together.
    async fn result(&self, id: &str, part: MessagePart) -> Result<(), Error> {
        let Some(message) = self
            .state
            .with(|state| Some(Rc::clone(&state.tools.get(id)?.message)))
        else {
            return Ok(());
        };
        let index = tolerate(message.delta(part).await)?;
        self.state.with(|state| {
            if let Some(tool) = state.tools.get_mut(id) {
                tool.result_index = index;
            }
            if state
                .message
                .as_ref()
                .is_some_and(|open| Rc::ptr_eq(open, &message))
            {
                state.last = Last::Other;
            }
        });
        Ok(())
    }

    /// Extends the last part, or begins one, or a message when the part is full.
    async fn grow(
        &self,
        kind: Last,
        text: &str,
        part: fn(String) -> MessagePart,
    ) -> Result<(), Error> {
        let mut rest = text;
        while !rest.is_empty() {
            let at = (0..=rest.len().min(DELTA_BYTES))
                .rev()
                .find(|at| rest.is_char_boundary(*at) && *at > 0)
                .unwrap_or(rest.len());
            let (piece, after) = rest.split_at(at);
            rest = after;
            self.state.with(|state| {
                if state.last == kind && state.last_bytes + piece.len() > TEXT_BYTES {
                    // Two parts of one kind would become one: a new message.
                    state.message = None;
                }
            });
            self.add(part(piece.to_owned()), kind, piece.len()).await?;
        }
        Ok(())
    }

    /// A delta, and where it went; `None` when it was too large.
    async fn add(
        &self,
        part: MessagePart,
        kind: Last,
        bytes: usize,
    ) -> Result<Option<(Rc<MessageWriter>, u32)>, Error> {
        let message = match self.state.with(|state| state.message.clone()) {
            Some(message) => message,
            None => {
                let message = Rc::new(self.channel.open_message(Role::Assistant).await?);
                self.state.with(|state| {
                    state.message = Some(Rc::clone(&message));
                    state.last = Last::Other;
                    state.last_bytes = 0;
                });
                message
            }
        };
        let Some(index) = tolerate(message.delta(part).await)? else {
            return Ok(None);
        };
        self.state.with(|state| {
            state.last_bytes = if state.last == kind && kind != Last::Other {
                state.last_bytes + bytes
            } else {
                bytes
            };
            state.last = kind;
        });
        Ok(Some((message, index)))
    }

    /// Finishes the open message; all others were closed by being let go.
    pub(super) async fn close(self) {
        let message = self.state.with(|state| {
            state.tools.clear();
            state.plan = None;
            state.message.take()
        });
        if let Some(Ok(message)) = message.map(Rc::try_unwrap)
            && let Err(error) = message.finish().await
        {
            // After a Stop the host has closed it.
            tracing::debug!("the last message was not finished: {error:?}");
        }
    }
}

/// Too large a write is left out; every other error ends the turn.
fn tolerate<T>(written: Result<T, ChannelError>) -> Result<Option<T>, Error> {
    match written {
        Ok(value) => Ok(Some(value)),
        Err(ChannelError::Limit(reason)) => {
            tracing::warn!("left out of the conversation: {reason}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
