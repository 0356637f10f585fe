//! The conversation: blocks a person sends, messages and parts a provider writes.
//!
//! Text from a component or a client is data (W8): it is carried, never interpreted.

use crate::ids::{MessageId, TurnId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Largest text, reasoning, plan or result of one message part (W3), in bytes.
pub const MAX_PART_BYTES: usize = 256 * 1024;
/// Largest single write to the sink (W3), in bytes.
pub const MAX_WRITE_BYTES: usize = 1024 * 1024;

/// Parts of one message.
pub const MAX_PARTS: usize = 4096;
/// Largest message, in bytes of its stored form: with a step group of others it stays below the
/// bound of a record (S68).
pub const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// What the names around a part's text take at most.
pub(crate) const PART_FRAME: usize = 96;

/// Bytes of JSON that one byte of text becomes at most.
fn escaped(byte: u8) -> usize {
    match byte {
        0..=0x1f => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    }
}

/// One piece of a person's input (closed union, strict).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Block {
    /// Plain text, taken literally.
    Text {
        /// The text, byte for byte.
        text: String,
    },
    /// A file: a `data:` URI or a path inside the workspace.
    File {
        /// Display name.
        name: String,
        /// MIME type.
        media_type: String,
        /// `data:` URI or workspace-relative path.
        uri: String,
    },
}

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Role {
    /// The person, or a machine input.
    User,
    /// The harness.
    Assistant,
    /// A tool's output.
    Tool,
    /// The harness or host about the conversation.
    System,
}

/// How loud a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum NoticeLevel {
    /// For information.
    Info,
    /// Something to look at.
    Warning,
    /// Something failed.
    Error,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Part {
    /// Prose, usually Markdown.
    Text {
        /// The text.
        text: String,
    },
    /// Visible reasoning.
    Reasoning {
        /// The text.
        text: String,
    },
    /// A block of code.
    Code {
        /// Language name, when known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        language: Option<String>,
        /// The code.
        text: String,
    },
    /// A plan.
    Plan {
        /// The text.
        text: String,
    },
    /// A tool call of the native side.
    ToolCall {
        /// Native id of the call.
        id: String,
        /// Tool name.
        name: String,
        /// Arguments as JSON text, as the native side gave them.
        input_json: String,
    },
    /// What a tool answered.
    ToolResult {
        /// Native id of the call.
        id: String,
        /// The output.
        output: String,
        /// Whether the tool failed.
        is_error: bool,
    },
    /// A file.
    File {
        /// Display name.
        name: String,
        /// MIME type.
        media_type: String,
        /// Where it is.
        uri: String,
    },
    /// A remark of the host or the harness.
    Notice {
        /// How loud.
        level: NoticeLevel,
        /// The text.
        text: String,
    },
}

impl Part {
    /// Bytes of payload text, for the bounds of W3.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text { text } | Self::Reasoning { text } | Self::Plan { text } => text.len(),
            Self::Code { language, text } => language.as_ref().map_or(0, String::len) + text.len(),
            Self::ToolCall {
                id,
                name,
                input_json,
            } => id.len() + name.len() + input_json.len(),
            Self::ToolResult { id, output, .. } => id.len() + output.len(),
            Self::File {
                name,
                media_type,
                uri,
            } => name.len() + media_type.len() + uri.len(),
            Self::Notice { text, .. } => text.len(),
        }
    }

    /// At most what this part takes in a stored record: a control character becomes six bytes of
    /// JSON, and the names around the text have their share.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        let text = |s: &str| s.bytes().map(escaped).sum::<usize>();
        PART_FRAME
            + match self {
                Self::Text { text: t } | Self::Reasoning { text: t } | Self::Plan { text: t } => {
                    text(t)
                }
                Self::Code { language, text: t } => language.as_deref().map_or(0, text) + text(t),
                Self::ToolCall {
                    id,
                    name,
                    input_json,
                } => text(id) + text(name) + text(input_json),
                Self::ToolResult { id, output, .. } => text(id) + text(output),
                Self::File {
                    name,
                    media_type,
                    uri,
                } => text(name) + text(media_type) + text(uri),
                Self::Notice { text: t, .. } => text(t),
            }
    }

    /// Extends this part with `more` when both are text, reasoning, plan or results of the same
    /// tool call; gives `more` back otherwise.
    ///
    /// # Errors
    /// `Err(more)` when the two do not join, or the joined part would exceed [`MAX_PART_BYTES`].
    pub fn extend(&mut self, more: Part) -> Result<(), Part> {
        if self.bytes() + more.bytes() > MAX_PART_BYTES {
            return Err(more);
        }
        match (self, more) {
            (Self::Text { text }, Self::Text { text: more })
            | (Self::Reasoning { text }, Self::Reasoning { text: more })
            | (Self::Plan { text }, Self::Plan { text: more }) => text.push_str(&more),
            (
                Self::ToolResult {
                    id,
                    output,
                    is_error,
                },
                Self::ToolResult {
                    id: more_id,
                    output: more,
                    is_error: failed,
                },
            ) if *id == more_id => {
                output.push_str(&more);
                *is_error |= failed;
            }
            (_, more) => return Err(more),
        }
        Ok(())
    }
}

/// A message as a provider writes it, before the host gives it an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Who it is from.
    pub role: Role,
    /// Its parts.
    pub parts: Vec<Part>,
}

/// A saved message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Message {
    /// Host-minted, stable for good (R74).
    pub id: MessageId,
    /// Who it is from.
    pub role: Role,
    /// The turn it belongs to; absent outside any turn.
    pub turn_id: Option<TurnId>,
    /// When it was opened.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: Timestamp,
    /// Its parts.
    pub parts: Vec<Part>,
}

/// Tokens used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Tokens read by the model.
    pub input_tokens: u64,
    /// Tokens written by the model.
    pub output_tokens: u64,
    /// Tokens of the context window in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_used: Option<u64>,
    /// Size of the context window in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_size: Option<u64>,
}

impl Message {
    /// At most what this message takes in a stored record.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        256 + self.parts.iter().map(Part::stored_bytes).sum::<usize>()
    }
}

/// The parts that a person's blocks become in the conversation.
#[must_use]
pub fn parts_of(blocks: &[Block]) -> Vec<Part> {
    blocks
        .iter()
        .map(|block| match block {
            Block::Text { text } => Part::Text { text: text.clone() },
            Block::File {
                name,
                media_type,
                uri,
            } => Part::File {
                name: name.clone(),
                media_type: media_type.clone(),
                uri: uri.clone(),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> Part {
        Part::Text { text: s.into() }
    }

    #[test]
    fn parts_of_a_kind_join_and_others_do_not() {
        let mut part = text("a");
        assert_eq!(part.extend(text("b")), Ok(()));
        assert_eq!(part, text("ab"));
        let plan = Part::Plan { text: "p".into() };
        assert_eq!(part.extend(plan.clone()), Err(plan));
        let result = |id: &str| Part::ToolResult {
            id: id.into(),
            output: "o".into(),
            is_error: false,
        };
        let mut first = result("1");
        assert_eq!(first.extend(result("1")), Ok(()));
        assert_eq!(first.extend(result("2")), Err(result("2")));
    }

    #[test]
    fn w3_a_part_never_grows_past_its_bound() {
        let mut part = text(&"x".repeat(MAX_PART_BYTES));
        assert_eq!(part.extend(text("y")), Err(text("y")));
    }

    #[test]
    fn blocks_are_strict() {
        assert!(serde_json::from_str::<Block>(r#"{"type":"text","text":"a","x":1}"#).is_err());
        assert!(serde_json::from_str::<Block>(r#"{"type":"image","text":"a"}"#).is_err());
    }
}
