//! Messages, parts, inputs and usage, with the bounds of W3.

use crate::bindings::harness::provider::types as wit;
use harness_core::content::{
    MAX_PART_BYTES, MAX_WRITE_BYTES, Message, NewMessage, NoticeLevel, Part, Role, Usage,
};
use harness_core::provider::{ChannelError, InputOrigin, PromptInput};

/// Largest number of parts of one message.
const MAX_PARTS: usize = 1024;

/// A part a provider writes.
///
/// # Errors
/// `Limit` beyond 256 KiB (W3): the run goes on.
pub(crate) fn part(part: wit::MessagePart) -> Result<Part, ChannelError> {
    let part = match part {
        wit::MessagePart::Text(text) => Part::Text { text },
        wit::MessagePart::Reasoning(text) => Part::Reasoning { text },
        wit::MessagePart::Code(code) => Part::Code {
            language: code.language,
            text: code.text,
        },
        wit::MessagePart::Plan(text) => Part::Plan { text },
        wit::MessagePart::ToolCall(call) => Part::ToolCall {
            id: call.id,
            name: call.name,
            input_json: call.input_json,
        },
        wit::MessagePart::ToolResult(result) => Part::ToolResult {
            id: result.id,
            output: result.output,
            is_error: result.is_error,
        },
        wit::MessagePart::File(file) => Part::File {
            name: file.name,
            media_type: file.media_type,
            uri: file.uri,
        },
        wit::MessagePart::Notice(notice) => Part::Notice {
            level: match notice.level {
                wit::NoticeLevel::Info => NoticeLevel::Info,
                wit::NoticeLevel::Warning => NoticeLevel::Warning,
                wit::NoticeLevel::Error => NoticeLevel::Error,
            },
            text: notice.text,
        },
    };
    let bytes = part.bytes();
    if bytes > MAX_PART_BYTES {
        return Err(ChannelError::Limit(format!(
            "a message part has {bytes} bytes; the limit is {MAX_PART_BYTES}"
        )));
    }
    Ok(part)
}

/// A whole message a provider writes, and its payload in bytes.
///
/// # Errors
/// `Limit` beyond 1 MiB, 1,024 parts, or 256 KiB in one part (W3).
pub(crate) fn new_message(message: wit::Message) -> Result<(NewMessage, usize), ChannelError> {
    if message.parts.len() > MAX_PARTS {
        return Err(ChannelError::Limit(format!(
            "a message has {} parts; the limit is {MAX_PARTS}",
            message.parts.len()
        )));
    }
    let parts = message
        .parts
        .into_iter()
        .map(part)
        .collect::<Result<Vec<_>, _>>()?;
    let bytes = parts.iter().map(Part::bytes).sum();
    if bytes > MAX_WRITE_BYTES {
        return Err(ChannelError::Limit(format!(
            "a message has {bytes} bytes; the limit is {MAX_WRITE_BYTES}"
        )));
    }
    Ok((
        NewMessage {
            role: role(message.role),
            parts,
        },
        bytes,
    ))
}

/// Who a message is from.
pub(crate) fn role(role: wit::Role) -> Role {
    match role {
        wit::Role::User => Role::User,
        wit::Role::Assistant => Role::Assistant,
        wit::Role::Tool => Role::Tool,
        wit::Role::System => Role::System,
    }
}

fn role_out(role: Role) -> wit::Role {
    match role {
        Role::User => wit::Role::User,
        Role::Assistant => wit::Role::Assistant,
        Role::Tool => wit::Role::Tool,
        Role::System => wit::Role::System,
    }
}

fn part_out(part: Part) -> wit::MessagePart {
    match part {
        Part::Text { text } => wit::MessagePart::Text(text),
        Part::Reasoning { text } => wit::MessagePart::Reasoning(text),
        Part::Code { language, text } => wit::MessagePart::Code(wit::CodePart { language, text }),
        Part::Plan { text } => wit::MessagePart::Plan(text),
        Part::ToolCall {
            id,
            name,
            input_json,
        } => wit::MessagePart::ToolCall(wit::ToolCallPart {
            id,
            name,
            input_json,
        }),
        Part::ToolResult {
            id,
            output,
            is_error,
        } => wit::MessagePart::ToolResult(wit::ToolResultPart {
            id,
            output,
            is_error,
        }),
        Part::File {
            name,
            media_type,
            uri,
        } => wit::MessagePart::File(wit::FilePart {
            name,
            media_type,
            uri,
        }),
        Part::Notice { level, text } => wit::MessagePart::Notice(wit::NoticePart {
            level: match level {
                NoticeLevel::Info => wit::NoticeLevel::Info,
                NoticeLevel::Warning => wit::NoticeLevel::Warning,
                NoticeLevel::Error => wit::NoticeLevel::Error,
            },
            text,
        }),
    }
}

/// A saved message for the guest.
pub(crate) fn history_entry(message: Message) -> wit::HistoryEntry {
    wit::HistoryEntry {
        id: message.id.to_string(),
        message: wit::Message {
            role: role_out(message.role),
            parts: message.parts.into_iter().map(part_out).collect(),
        },
    }
}

/// An input for the guest, byte for byte (R10).
pub(crate) fn input(input: PromptInput) -> wit::Input {
    wit::Input {
        command_id: input.command_id.to_string(),
        origin: match input.origin {
            InputOrigin::User => wit::InputOrigin::User,
            InputOrigin::Delegate(id) => wit::InputOrigin::Delegate(id),
            InputOrigin::Process(id) => wit::InputOrigin::Process(id),
        },
        parts: input.parts.into_iter().map(part_out).collect(),
    }
}

/// Tokens used.
pub(crate) fn usage(usage: wit::Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        context_used: usage.context_used,
        context_size: usage.context_size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parts: Vec<wit::MessagePart>) -> wit::Message {
        wit::Message {
            role: wit::Role::Assistant,
            parts,
        }
    }

    #[test]
    fn w3_oversize_parts_and_writes_are_refused_whole() {
        let text = |n: usize| wit::MessagePart::Text("x".repeat(n));
        assert!(part(text(MAX_PART_BYTES)).is_ok());
        assert!(matches!(
            part(text(MAX_PART_BYTES + 1)),
            Err(ChannelError::Limit(_))
        ));
        assert!(new_message(message((0..4).map(|_| text(MAX_PART_BYTES)).collect())).is_ok());
        let five = message((0..5).map(|_| text(MAX_PART_BYTES)).collect());
        assert!(matches!(new_message(five), Err(ChannelError::Limit(_))));
        let many = message((0..=MAX_PARTS).map(|_| text(0)).collect());
        assert!(matches!(new_message(many), Err(ChannelError::Limit(_))));
    }

    #[test]
    fn parts_survive_both_ways() {
        let parts = vec![
            Part::Text {
                text: " a\n".into(),
            },
            Part::Reasoning { text: "r".into() },
            Part::Code {
                language: None,
                text: "c".into(),
            },
            Part::Plan { text: "p".into() },
            Part::ToolCall {
                id: "1".into(),
                name: "n".into(),
                input_json: "{}".into(),
            },
            Part::ToolResult {
                id: "1".into(),
                output: "o".into(),
                is_error: true,
            },
            Part::File {
                name: "n".into(),
                media_type: "m".into(),
                uri: "u".into(),
            },
            Part::Notice {
                level: NoticeLevel::Warning,
                text: "w".into(),
            },
        ];
        let back: Vec<_> = parts
            .iter()
            .cloned()
            .map(|p| part(part_out(p)).unwrap())
            .collect();
        assert_eq!(back, parts);
    }
}
