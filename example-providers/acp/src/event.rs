//! What the reader hands to a turn.

use crate::permission;
use crate::protocol::{PermissionRequest, PromptEnded, ToolCall, Update};
use harness_guest::rpc::{Responder, RpcError};
use harness_guest::turns::NativeEvent;
use harness_guest::types::MessagePart;

/// Bytes up to which neighbouring pieces of text become one.
const MERGE_BYTES: usize = 32 * 1024;

/// One event of an ACP session.
#[derive(Debug)]
pub(crate) enum Event {
    Text(String),
    Thought(String),
    Part(MessagePart),
    Tool(Box<ToolCall>),
    /// The whole plan as it is now.
    Plan(String),
    Permission(Box<Permission>),
    /// The answer to session/prompt.
    Ended(Box<Result<PromptEnded, RpcError>>),
    /// State of the session that came before the session was known.
    State(Box<Update>),
}

impl NativeEvent for Event {
    fn merge(&mut self, next: Self) -> Result<(), Self> {
        match (self, next) {
            (Self::Text(text), Self::Text(more)) | (Self::Thought(text), Self::Thought(more))
                if text.len() + more.len() <= MERGE_BYTES =>
            {
                text.push_str(&more);
                Ok(())
            }
            (Self::Plan(plan), Self::Plan(newer)) => {
                *plan = newer;
                Ok(())
            }
            (Self::Tool(call), Self::Tool(newer)) if call.tool_call_id == newer.tool_call_id => {
                call.update(*newer);
                Ok(())
            }
            (_, next) => Err(next),
        }
    }

    fn weight(&self) -> usize {
        const BASE: usize = 64;
        BASE + match self {
            Self::Text(text) | Self::Thought(text) | Self::Plan(text) => text.len(),
            Self::Part(MessagePart::File(file)) => file.uri.len(),
            Self::Tool(call) => weight(call),
            Self::Permission(permission) => weight(&permission.request.tool_call),
            Self::Part(_) | Self::Ended(_) | Self::State(_) => 512,
        }
    }
}

/// A rough size: texts are what makes a tool call large.
fn weight(call: &ToolCall) -> usize {
    fn of(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::String(text) => text.len(),
            serde_json::Value::Array(items) => items.iter().map(of).sum::<usize>() + 16,
            serde_json::Value::Object(members) => {
                members.iter().map(|(k, v)| k.len() + of(v)).sum::<usize>() + 16
            }
            _ => 16,
        }
    }
    let content: usize = call.content.iter().flatten().map(of).sum();
    content + call.raw_input.as_ref().map_or(0, of) + call.raw_output.as_ref().map_or(0, of)
}

/// A permission the agent waits for. Wherever it is dropped undecided, the agent is
/// told that it was cancelled.
#[derive(Debug)]
pub(crate) struct Permission {
    pub(crate) request: PermissionRequest,
    responder: Option<Responder>,
}

impl Permission {
    pub(crate) fn new(request: PermissionRequest, responder: Responder) -> Self {
        Self {
            request,
            responder: Some(responder),
        }
    }

    pub(crate) fn answer(mut self, outcome: &serde_json::Value) {
        if let Some(responder) = self.responder.take() {
            responder.answer(outcome);
        }
    }
}

impl Drop for Permission {
    fn drop(&mut self) {
        if let Some(responder) = self.responder.take() {
            responder.answer(&permission::cancelled());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_deltas_costs_few_events() {
        let mut last = Event::Text(String::new());
        let mut kept = 0;
        for _ in 0..100_000 {
            if let Err(next) = last.merge(Event::Text("word ".to_owned())) {
                last = next;
                kept += 1;
            }
        }
        assert!(kept <= 500_000 / (MERGE_BYTES - 8), "{kept}");
    }

    #[test]
    fn different_kinds_keep_their_order() {
        let mut text = Event::Text("a".to_owned());
        assert!(text.merge(Event::Thought("b".to_owned())).is_err());
        assert!(text.merge(Event::Plan("b".to_owned())).is_err());
    }
}
