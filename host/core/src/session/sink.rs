//! The write side of one invocation's conversation (R74, S56): messages that are being streamed.
//!
//! Pure and small: it turns writes into deltas for who listens now and collects messages that are
//! complete, which the session commits as a step group. Text here is not durable yet; what an
//! abnormal end leaves open is cut to its safe prefix (S49).

use crate::content::{
    MAX_MESSAGE_BYTES, MAX_PART_BYTES, MAX_PARTS, MAX_WRITE_BYTES, Message, NewMessage,
    NoticeLevel, PART_FRAME, Part, Role,
};
use crate::event::{DeltaOp, EventBody};
use crate::ids::{MessageId, TurnId};
use crate::provider::{ChannelError, WriterId};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Messages that may be open at once in one invocation.
pub(super) const MAX_OPEN: usize = 16;
/// Bytes one invocation may write (engine limit "turn output").
pub(super) const MAX_OUTPUT: usize = 64 * 1024 * 1024;

/// A refused write.
pub type SinkError = ChannelError;

/// A message that is being streamed.
#[derive(Debug)]
struct Open {
    message: Message,
    /// Bytes of its stored form so far.
    stored: usize,
}

impl Open {
    /// Makes sure that the message can be stored with `more` in it.
    fn grow(&mut self, more: usize) -> Result<(), SinkError> {
        if self.stored + more > MAX_MESSAGE_BYTES {
            return Err(ChannelError::Limit(format!(
                "a message takes {MAX_MESSAGE_BYTES} bytes of the journal at most; finish it and open another"
            )));
        }
        self.stored += more;
        Ok(())
    }
}

/// Open messages of one invocation.
#[derive(Debug)]
pub struct Sink {
    turn_id: Option<TurnId>,
    open: BTreeMap<WriterId, Open>,
    complete: Vec<Message>,
    next: WriterId,
    written: usize,
    limit: usize,
}

impl Sink {
    /// A sink for that turn, or outside any.
    #[must_use]
    pub fn new(turn_id: Option<TurnId>) -> Self {
        Self {
            turn_id,
            open: BTreeMap::new(),
            complete: Vec::new(),
            next: 1,
            written: 0,
            limit: MAX_OUTPUT,
        }
    }

    fn charge(&mut self, part: &Part) -> Result<(), SinkError> {
        let bytes = part.bytes();
        if bytes > MAX_PART_BYTES {
            return Err(ChannelError::Limit(format!(
                "a message part has {bytes} bytes; the limit is {MAX_PART_BYTES}"
            )));
        }
        if self.written + bytes > self.limit {
            return Err(ChannelError::Limit(format!(
                "this run has written its {} bytes",
                self.limit
            )));
        }
        self.written += bytes;
        Ok(())
    }

    fn message(&self, id: MessageId, role: Role, now: Timestamp) -> Message {
        Message {
            id,
            role,
            turn_id: self.turn_id,
            created_at: now,
            parts: Vec::new(),
        }
    }

    /// Takes a whole message.
    ///
    /// # Errors
    /// `limit`; nothing is taken then.
    pub fn append(
        &mut self,
        new: NewMessage,
        id: MessageId,
        now: Timestamp,
    ) -> Result<Vec<EventBody>, SinkError> {
        let bytes: usize = new.parts.iter().map(Part::bytes).sum();
        if bytes > MAX_WRITE_BYTES {
            return Err(ChannelError::Limit(format!(
                "one write has {bytes} bytes; the limit is {MAX_WRITE_BYTES}"
            )));
        }
        if new.parts.len() > MAX_PARTS {
            return Err(ChannelError::Limit(format!(
                "a message has more than {MAX_PARTS} parts"
            )));
        }
        new.parts.iter().try_for_each(|part| self.charge(part))?;
        let mut message = self.message(id, new.role, now);
        let mut deltas = vec![delta(id, Some(new.role), 0, DeltaOp::Open, None)];
        for (index, part) in (0u32..).zip(&new.parts) {
            deltas.push(delta(id, None, index, DeltaOp::Append, Some(part.clone())));
        }
        deltas.push(delta(id, None, 0, DeltaOp::Finish, None));
        message.parts = new.parts;
        self.complete.push(message);
        Ok(deltas)
    }

    /// Opens a message.
    ///
    /// # Errors
    /// `limit` when too many are open.
    pub fn open(
        &mut self,
        role: Role,
        id: MessageId,
        now: Timestamp,
    ) -> Result<(WriterId, EventBody), SinkError> {
        if self.open.len() >= MAX_OPEN {
            return Err(ChannelError::Limit(format!(
                "{MAX_OPEN} messages are open; finish one first"
            )));
        }
        let writer = self.next;
        self.next += 1;
        let message = self.message(id, role, now);
        let stored = message.stored_bytes();
        self.open.insert(writer, Open { message, stored });
        Ok((writer, delta(id, Some(role), 0, DeltaOp::Open, None)))
    }

    /// Adds a part or extends the last one; tells which part it went to.
    ///
    /// # Errors
    /// `limit`, or `closed` for a message that is not open.
    pub fn delta(&mut self, writer: WriterId, part: Part) -> Result<(u32, EventBody), SinkError> {
        if !self.open.contains_key(&writer) {
            return Err(ChannelError::Closed);
        }
        self.charge(&part)?;
        let open = self.open.get_mut(&writer).ok_or(ChannelError::Closed)?;
        open.grow(part.stored_bytes())?;
        let message = &mut open.message;
        let shown = part.clone();
        let left = match message.parts.last_mut() {
            Some(last) => last.extend(part).err(),
            None => Some(part),
        };
        if left.is_none() {
            // It joined a part whose frame is counted already.
            open.stored -= PART_FRAME.min(open.stored);
        }
        if let Some(part) = left {
            if message.parts.len() >= MAX_PARTS {
                return Err(ChannelError::Limit(format!(
                    "a message has {MAX_PARTS} parts at most"
                )));
            }
            message.parts.push(part);
        }
        let index = u32::try_from(message.parts.len().saturating_sub(1)).unwrap_or(u32::MAX);
        Ok((
            index,
            delta(message.id, None, index, DeltaOp::Append, Some(shown)),
        ))
    }

    /// Replaces an earlier part.
    ///
    /// # Errors
    /// `limit`, or `closed` for a message or part that is not there.
    pub fn replace(
        &mut self,
        writer: WriterId,
        index: u32,
        part: Part,
    ) -> Result<EventBody, SinkError> {
        let there = self
            .open
            .get(&writer)
            .is_some_and(|o| (index as usize) < o.message.parts.len());
        if !there {
            return Err(ChannelError::Closed);
        }
        self.charge(&part)?;
        let open = self.open.get_mut(&writer).ok_or(ChannelError::Closed)?;
        open.grow(part.stored_bytes())?;
        let message = &mut open.message;
        if let Some(slot) = message.parts.get_mut(index as usize) {
            open.stored -= slot.stored_bytes().min(open.stored);
            slot.clone_from(&part);
        }
        Ok(delta(message.id, None, index, DeltaOp::Replace, Some(part)))
    }

    /// Completes an open message; `None` when it is closed already.
    pub fn finish(&mut self, writer: WriterId) -> Option<EventBody> {
        let Open { message, .. } = self.open.remove(&writer)?;
        let shown = delta(message.id, None, 0, DeltaOp::Finish, None);
        if !message.parts.is_empty() {
            self.complete.push(message);
        }
        Some(shown)
    }

    /// Complete messages, once none is open: a step group. Empty otherwise.
    pub fn step(&mut self) -> Vec<Message> {
        if self.open.is_empty() {
            std::mem::take(&mut self.complete)
        } else {
            Vec::new()
        }
    }

    /// Everything that is left at the end of the invocation. `cut`: it ended abnormally, so an
    /// open message keeps its safe prefix with a notice (S49).
    pub fn close(&mut self, cut: bool) -> Vec<Message> {
        for (_, Open { mut message, .. }) in std::mem::take(&mut self.open) {
            if cut {
                message.parts = safe_prefix(message.parts);
                if !message.parts.is_empty() {
                    message.parts.push(Part::Notice {
                        level: NoticeLevel::Warning,
                        text: "This message was cut off.".into(),
                    });
                }
            }
            if !message.parts.is_empty() {
                self.complete.push(message);
            }
        }
        std::mem::take(&mut self.complete)
    }
}

/// What is left of a message that was cut: no tool call without its result.
fn safe_prefix(parts: Vec<Part>) -> Vec<Part> {
    let answered: Vec<String> = parts
        .iter()
        .filter_map(|p| match p {
            Part::ToolResult { id, .. } => Some(id.clone()),
            _ => None,
        })
        .collect();
    parts
        .into_iter()
        .filter(|p| !matches!(p, Part::ToolCall { id, .. } if !answered.contains(id)))
        .collect()
}

fn delta(
    message_id: MessageId,
    role: Option<Role>,
    index: u32,
    op: DeltaOp,
    part: Option<Part>,
) -> EventBody {
    EventBody::TokenDelta {
        message_id,
        role,
        index,
        op,
        part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(n: u128) -> MessageId {
        MessageId(Uuid::from_u128(n))
    }

    fn text(s: &str) -> Part {
        Part::Text { text: s.into() }
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn r74_deltas_extend_the_last_part_and_tell_its_index() {
        let mut sink = Sink::new(None);
        let (writer, _) = sink.open(Role::Assistant, id(1), NOW).unwrap();
        assert_eq!(sink.delta(writer, text("a")).unwrap().0, 0);
        assert_eq!(sink.delta(writer, text("b")).unwrap().0, 0);
        assert_eq!(
            sink.delta(writer, Part::Plan { text: "p".into() })
                .unwrap()
                .0,
            1
        );
        sink.replace(writer, 0, text("c")).unwrap();
        assert!(sink.step().is_empty(), "an open message is not complete");
        sink.finish(writer).unwrap();
        let step = sink.step();
        assert_eq!(step[0].parts, [text("c"), Part::Plan { text: "p".into() }]);
        assert_eq!(step[0].id, id(1));
        assert!(sink.finish(writer).is_none());
        assert_eq!(sink.delta(writer, text("x")), Err(ChannelError::Closed));
    }

    #[test]
    fn w3_oversize_writes_are_refused_whole() {
        let mut sink = Sink::new(None);
        let big = text(&"x".repeat(MAX_PART_BYTES + 1));
        let message = NewMessage {
            role: Role::Assistant,
            parts: vec![big.clone()],
        };
        assert!(matches!(
            sink.append(message, id(1), NOW),
            Err(ChannelError::Limit(_))
        ));
        let parts = (0..5).map(|_| text(&"x".repeat(MAX_PART_BYTES))).collect();
        let message = NewMessage {
            role: Role::Assistant,
            parts,
        };
        assert!(matches!(
            sink.append(message, id(1), NOW),
            Err(ChannelError::Limit(_))
        ));
        let (writer, _) = sink.open(Role::Assistant, id(1), NOW).unwrap();
        assert!(matches!(
            sink.delta(writer, big),
            Err(ChannelError::Limit(_))
        ));
        assert_eq!(sink.delta(writer, text("goes on")).unwrap().0, 0);
    }

    #[test]
    fn r74_many_small_deltas_cost_no_more_than_their_text() {
        let mut sink = Sink::new(None);
        let (writer, _) = sink.open(Role::Assistant, id(1), NOW).unwrap();
        for n in 0..100_000 {
            assert!(sink.delta(writer, text("x y")).is_ok(), "delta {n}");
        }
        let left = sink.close(false);
        assert_eq!(
            left[0].parts.iter().map(Part::bytes).sum::<usize>(),
            300_000
        );
    }

    #[test]
    fn s49_a_cut_message_keeps_its_safe_prefix() {
        let mut sink = Sink::new(None);
        let (writer, _) = sink.open(Role::Assistant, id(1), NOW).unwrap();
        sink.delta(writer, text("half")).unwrap();
        let call = |id: &str| Part::ToolCall {
            id: id.into(),
            name: "t".into(),
            input_json: "{}".into(),
        };
        sink.delta(writer, call("1")).unwrap();
        let left = sink.close(true);
        assert_eq!(left[0].parts[0], text("half"));
        assert!(matches!(left[0].parts[1], Part::Notice { .. }));
        assert_eq!(left[0].parts.len(), 2);
    }
}
