//! Writes to a conversation: shown at once, committed in step groups (S56).

use super::{Actor, SinkOp, SinkReply};
use harness_core::command::Cause;
use harness_core::content::Part;
use harness_core::event::{DeltaOp, Event, EventBody};
use harness_core::ids::{EventId, MessageId, TurnId};
use harness_core::operation::Execution;
use harness_core::provider::{ChannelError, WriterId};
use harness_core::session::{Input, InvocationId, Kind};
use jiff::Timestamp;
use tokio::sync::oneshot;

impl Actor {
    pub(super) async fn write(
        &mut self,
        invocation: InvocationId,
        op: SinkOp,
        reply: oneshot::Sender<Result<SinkReply, ChannelError>>,
    ) {
        let commits = matches!(op, SinkOp::Append(_) | SinkOp::Finish(_));
        let result = self.try_write(invocation, op);
        if commits && result.is_ok() {
            self.commit_step(invocation).await;
        }
        // A write that could not be made durable is not acknowledged.
        let result = match result {
            Ok(_) if commits && self.session.live.faulted.is_some() => {
                Err(ChannelError::Failed("the session is faulted".into()))
            }
            other => other,
        };
        let _ = reply.send(result);
    }

    fn try_write(
        &mut self,
        invocation: InvocationId,
        op: SinkOp,
    ) -> Result<SinkReply, ChannelError> {
        let entry = self
            .session
            .live
            .invocation(invocation)
            .ok_or(ChannelError::Closed)?;
        if entry.aborted.is_some() {
            return Err(ChannelError::Stopped);
        }
        if self.session.live.faulted.is_some() {
            return Err(ChannelError::Failed("the session is faulted".into()));
        }
        let run = self.runs.get_mut(&invocation).ok_or(ChannelError::Closed)?;
        let now = self.deps.surroundings.now();
        let id = MessageId(self.deps.surroundings.id());
        let (reply, deltas) = match op {
            SinkOp::Append(message) => (SinkReply::Done, run.sink.append(message, id, now)?),
            SinkOp::Open(role) => {
                let (writer, shown) = run.sink.open(role, id, now)?;
                (SinkReply::Writer(writer), vec![shown])
            }
            SinkOp::Delta(writer, part) => {
                let (index, shown) = run.sink.delta(writer, part)?;
                (SinkReply::Index(index), vec![shown])
            }
            SinkOp::Replace(writer, index, part) => (
                SinkReply::Done,
                vec![run.sink.replace(writer, index, part)?],
            ),
            SinkOp::Finish(writer) => (
                SinkReply::Done,
                vec![run.sink.finish(writer).ok_or(ChannelError::Closed)?],
            ),
        };
        self.show_deltas(invocation, deltas, now);
        Ok(reply)
    }

    /// A writer's handle dropped: its message is complete as it stands.
    pub(super) async fn finish_writer(&mut self, invocation: InvocationId, writer: WriterId) {
        let Some(run) = self.runs.get_mut(&invocation) else {
            return;
        };
        if let Some(shown) = run.sink.finish(writer) {
            let now = self.deps.surroundings.now();
            self.show_deltas(invocation, vec![shown], now);
            self.commit_step(invocation).await;
        }
    }

    /// A turn's complete messages become a step group at once. A control's wait for its outcome and
    /// go with it, which saves an append: a control has one outcome and it is near.
    async fn commit_step(&mut self, invocation: InvocationId) {
        let entry = self.session.live.invocation(invocation);
        if entry.is_none_or(|i| i.kind == Kind::Operation(Execution::Control)) {
            return;
        }
        let Some(run) = self.runs.get_mut(&invocation) else {
            return;
        };
        let messages = run.sink.step();
        if !messages.is_empty() {
            self.feed(
                Input::Step {
                    invocation,
                    messages,
                },
                None,
            )
            .await;
        }
    }

    fn show_deltas(&mut self, invocation: InvocationId, deltas: Vec<EventBody>, at: Timestamp) {
        if self.fanout.is_empty() {
            return;
        }
        let (loop_id, turn_id) = self
            .session
            .live
            .owner_of(invocation)
            .map_or((self.session.state.active_loop, TurnId::ZERO), |o| {
                (o.loop_id, o.turn.unwrap_or_default())
            });
        for body in deltas {
            let tool = tool_event(&body);
            for body in std::iter::once(body).chain(tool) {
                let event = Event {
                    id: EventId::ZERO,
                    session_id: self.id,
                    loop_id,
                    turn_id,
                    at,
                    cause: Cause::default(),
                    body,
                };
                self.publish_ephemeral(&event);
            }
        }
    }
}

/// A tool call or result in the stream is also told as such.
fn tool_event(delta: &EventBody) -> Option<EventBody> {
    let EventBody::TokenDelta {
        op: DeltaOp::Append,
        part: Some(part),
        ..
    } = delta
    else {
        return None;
    };
    match part {
        Part::ToolCall { id, name, .. } => Some(EventBody::ToolStarted {
            tool_use_id: id.clone(),
            tool_name: name.clone(),
        }),
        Part::ToolResult { id, is_error, .. } => Some(EventBody::ToolCompleted {
            tool_use_id: id.clone(),
            is_error: *is_error,
        }),
        _ => None,
    }
}
