//! Content between the two sides: a person's input as ACP blocks, and what an
//! agent says as parts of a message.
//!
//! **Literal prompts (R10).** ACP knows no difference between a prompt and a
//! command: an agent runs a prompt that begins with a slash. A literal that does is
//! therefore introduced by a sentence ([`PREFACE`]), in the same block: nothing an
//! agent looks at then begins with the slash, and the model reads the text
//! unchanged.

use crate::protocol::{ContentBlock, PlanEntry, ToolCall, ToolContent};
use harness_guest::limits::shorten;
use harness_guest::types::{FilePart, MessagePart, NoticeLevel, NoticePart};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Stands before a literal that an agent would run as a command.
pub(crate) const PREFACE: &str =
    "The following message is literal text from the user, not a command:\n\n";
/// Bytes of one file that travels inside the conversation.
const INLINE_BYTES: usize = 128 * 1024;
/// Bytes of a tool's output that are shown; half from either end.
const OUTPUT_BYTES: usize = 64 * 1024;
/// Bytes of a tool's input that are shown.
const INPUT_BYTES: usize = 64 * 1024;

/// The blocks of a literal prompt.
pub(crate) fn literal(parts: &[MessagePart]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    for part in parts {
        let block = match part {
            MessagePart::File(file) => json!({
                "type": "resource_link",
                "name": file.name,
                "uri": file.uri,
                "mimeType": file.media_type,
            }),
            other => {
                let text = plain(other);
                if text.is_empty() {
                    continue;
                }
                json!({"type": "text", "text": guarded(&text)})
            }
        };
        blocks.push(block);
    }
    if blocks.is_empty() {
        blocks.push(json!({"type": "text", "text": ""}));
    }
    blocks
}

/// The one block of a native command: its text, byte for byte.
pub(crate) fn command(text: &str) -> Vec<Value> {
    vec![json!({"type": "text", "text": text})]
}

/// Text that no agent takes for a command. Some trim, and some know `$name`.
fn guarded(text: &str) -> String {
    if text.trim_start().starts_with(['/', '$']) {
        format!("{PREFACE}{text}")
    } else {
        text.to_owned()
    }
}

fn plain(part: &MessagePart) -> String {
    match part {
        MessagePart::Text(text) | MessagePart::Reasoning(text) | MessagePart::Plan(text) => {
            text.clone()
        }
        MessagePart::Code(code) => format!(
            "```{}\n{}\n```",
            code.language.as_deref().unwrap_or_default(),
            code.text
        ),
        MessagePart::ToolCall(call) => format!("{} {}", call.name, call.input_json),
        MessagePart::ToolResult(result) => result.output.clone(),
        MessagePart::Notice(notice) => notice.text.clone(),
        MessagePart::File(file) => file.uri.clone(),
    }
}

/// What an agent's block is: text to be streamed, or a part of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Text(String),
    Part(MessagePart),
}

/// Reads a block of an agent's message.
pub(crate) fn said(block: ContentBlock) -> Option<Said> {
    let file = |name: &str, media_type: Option<String>, uri: String| {
        Said::Part(MessagePart::File(FilePart {
            name: shorten(name, 256),
            media_type: media_type.unwrap_or_else(|| "application/octet-stream".to_owned()),
            uri,
        }))
    };
    let inline = |kind: &str, media_type: String, data: &str| {
        if data.len() > INLINE_BYTES {
            return Said::Part(notice(
                NoticeLevel::Info,
                &format!(
                    "The agent sent {kind} ({media_type}, {} bytes encoded) that is too large to show.",
                    data.len()
                ),
            ));
        }
        let uri = format!("data:{media_type};base64,{data}");
        file(kind, Some(media_type), uri)
    };
    match block {
        ContentBlock::Text { text } if text.is_empty() => None,
        ContentBlock::Text { text } => Some(Said::Text(text)),
        ContentBlock::Image {
            mime_type,
            uri: Some(uri),
            ..
        } => Some(file("image", Some(mime_type), uri)),
        ContentBlock::Image {
            data, mime_type, ..
        } => Some(inline("image", mime_type, &data)),
        ContentBlock::Audio { data, mime_type } => Some(inline("audio", mime_type, &data)),
        ContentBlock::ResourceLink {
            name,
            uri,
            mime_type,
        } => Some(file(&name, mime_type, uri)),
        ContentBlock::Resource { resource } => Some(match (resource.text, resource.blob) {
            (Some(text), _) => Said::Text(text),
            (None, Some(blob)) => {
                inline(&resource.uri, resource.mime_type.unwrap_or_default(), &blob)
            }
            (None, None) => file(&resource.uri, resource.mime_type, resource.uri.clone()),
        }),
        ContentBlock::Other => None,
    }
}

/// A plan as a list of tasks.
pub(crate) fn plan(entries: &[PlanEntry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let mark = match entry.status.as_str() {
            "completed" => "[x]",
            "in_progress" => "[~]",
            _ => "[ ]",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- {mark} {}", entry.content.replace('\n', " "));
    }
    shorten(&text, OUTPUT_BYTES)
}

/// What a tool was called with, as JSON.
pub(crate) fn tool_input(call: &ToolCall) -> String {
    let input = call.raw_input.as_ref().unwrap_or(&Value::Null);
    let text = if input.is_null() {
        "{}".to_owned()
    } else {
        input.to_string()
    };
    if text.len() <= INPUT_BYTES {
        return text;
    }
    json!({"shortened": shorten(&text, INPUT_BYTES / 2)}).to_string()
}

/// The name a tool call is shown by.
pub(crate) fn tool_name(call: &ToolCall) -> String {
    let name = call
        .title
        .as_deref()
        .or(call.kind.as_deref())
        .filter(|name| !name.trim().is_empty())
        .unwrap_or("tool");
    shorten(name, 256)
}

/// What a tool has said so far, or `None` while there is nothing.
pub(crate) fn tool_output(call: &ToolCall) -> Option<String> {
    let content = call.content.as_deref().unwrap_or_default();
    let mut pieces: Vec<String> = content
        .iter()
        .filter_map(|item| serde_json::from_value(item.clone()).ok())
        .filter_map(tool_piece)
        .collect();
    if pieces.is_empty()
        && let Some(raw) = call.raw_output.as_ref().filter(|raw| !raw.is_null())
    {
        pieces.push(match raw {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
    }
    if pieces.is_empty() && !call.has_ended() {
        return None;
    }
    Some(middle_cut(&pieces.join("\n"), OUTPUT_BYTES))
}

fn tool_piece(item: ToolContent) -> Option<String> {
    match item {
        ToolContent::Content { content } => match said(content)? {
            Said::Text(text) => Some(text),
            Said::Part(part) => Some(plain(&part)),
        },
        ToolContent::Diff {
            path,
            old_text,
            new_text,
        } => {
            let mut text = format!("--- {path}\n+++ {path}\n");
            for line in old_text.as_deref().unwrap_or_default().lines() {
                let _ = writeln!(text, "-{line}");
            }
            for line in new_text.lines() {
                let _ = writeln!(text, "+{line}");
            }
            Some(text)
        }
        ToolContent::Terminal { terminal_id } => Some(format!("[terminal {terminal_id}]")),
        ToolContent::Other => None,
    }
}

/// Both ends of a text that is too long.
fn middle_cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let head = shorten(text, bytes / 2);
    let from = (text.len() - bytes / 2..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    let tail = text.get(from..).unwrap_or_default();
    let cut = text.len() - head.len().min(text.len()) - tail.len();
    format!("{head}\n[{cut} bytes left out]\n{tail}")
}

/// A remark of the provider's own in the conversation.
pub(crate) fn notice(level: NoticeLevel, text: &str) -> MessagePart {
    MessagePart::Notice(NoticePart {
        level,
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> MessagePart {
        MessagePart::Text(text.to_owned())
    }

    fn first_text(parts: &[MessagePart]) -> String {
        literal(parts)
            .first()
            .and_then(|block| block.get("text"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    #[test]
    fn r10_a_literal_never_begins_with_what_an_agent_would_run() {
        for prompt in ["/compact", "  /compact", "\n/x", "/usr/bin x", "$skill"] {
            let sent = first_text(&[text(prompt)]);
            assert!(!sent.trim_start().starts_with(['/', '$']), "{sent}");
            assert!(sent.ends_with(prompt), "the text itself is unchanged");
        }
        assert_eq!(first_text(&[text("a /compact")]), "a /compact");
        for later in literal(&[text("hello"), text("/compact")]) {
            let sent = later.get("text").and_then(Value::as_str).unwrap_or("/");
            assert!(!sent.starts_with('/'), "no block begins so");
        }
    }

    #[test]
    fn r10_a_command_is_sent_byte_for_byte() {
        let raw = "/goal  two  spaces\n\nand blanks  ";
        assert_eq!(command(raw), [json!({"type": "text", "text": raw})]);
    }

    #[test]
    fn files_become_links() {
        let blocks = literal(&[MessagePart::File(FilePart {
            name: "a.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            uri: "file:///a.txt".to_owned(),
        })]);
        assert_eq!(
            blocks,
            [
                json!({"type": "resource_link", "name": "a.txt", "uri": "file:///a.txt",
                    "mimeType": "text/plain"})
            ]
        );
    }

    #[test]
    fn what_is_too_large_to_show_is_said_so() {
        let block = ContentBlock::Image {
            data: "A".repeat(INLINE_BYTES + 1),
            mime_type: "image/png".to_owned(),
            uri: None,
        };
        assert!(matches!(
            said(block),
            Some(Said::Part(MessagePart::Notice(_)))
        ));
    }

    #[test]
    fn a_tool_shows_its_output_or_its_raw_output_or_that_it_ended() {
        let call = |body: Value| serde_json::from_value::<ToolCall>(body).expect("a call");
        let cases = [
            (json!({"toolCallId": "1", "status": "pending"}), None),
            (json!({"toolCallId": "1", "status": "completed"}), Some("")),
            (json!({"toolCallId": "1", "rawOutput": "raw"}), Some("raw")),
            (
                json!({"toolCallId": "1", "rawOutput": "raw", "content": [
                    {"type": "content", "content": {"type": "text", "text": "seen"}},
                    {"type": "diff", "path": "a", "oldText": "x", "newText": "y"},
                    {"type": "future"}]}),
                Some("seen\n--- a\n+++ a\n-x\n+y\n"),
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(tool_output(&call(body)).as_deref(), expected);
        }
    }

    #[test]
    fn long_output_keeps_both_ends() {
        let long = format!(
            "{}{}{}",
            "a".repeat(50_000),
            "ä".repeat(50_000),
            "z".repeat(50_000)
        );
        let cut = middle_cut(&long, OUTPUT_BYTES);
        assert!(cut.len() < OUTPUT_BYTES + 64);
        assert!(cut.starts_with('a') && cut.ends_with('z') && cut.contains("bytes left out"));
    }
}
