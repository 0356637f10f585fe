//! Short ways to write values of the contract that are nearly always the same.

use crate::types::{Features, HarnessInfo, MessagePart, Outcome, Param, ParamValue};
use crate::types::{TimeoutStrategy, WorkspaceNeed};

impl Default for Outcome {
    /// No reply and no params.
    fn default() -> Self {
        Self {
            message: None,
            params: Vec::new(),
        }
    }
}

impl Outcome {
    /// A native reply for the caller.
    pub fn reply(message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            params: Vec::new(),
        }
    }

    /// The same outcome, setting one more session parameter.
    #[must_use]
    pub fn with(mut self, param: Param) -> Self {
        self.params.push(param);
        self
    }
}

impl Param {
    /// A boolean parameter's value.
    pub fn boolean(id: impl Into<String>, value: bool) -> Self {
        Self {
            id: id.into(),
            value: ParamValue::Boolean(value),
        }
    }

    /// A text parameter's value.
    pub fn text(id: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            value: ParamValue::Text(value.into()),
        }
    }
}

impl HarnessInfo {
    /// A harness without models, params, loop modes, workspace or features; set
    /// what it has.
    pub fn new(
        id: impl Into<String>,
        label: impl Into<String>,
        version: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            label: label.into(),
            version: version.into(),
            models: Vec::new(),
            loop_modes: Vec::new(),
            params: Vec::new(),
            workspace: WorkspaceNeed::None,
            timeout: TimeoutStrategy::Activity,
            features: Features::empty(),
        }
    }
}

/// The text parts of an input, joined by newlines: all that a native side which
/// takes plain text can be given.
#[must_use]
pub fn input_text(parts: &[MessagePart]) -> String {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            MessagePart::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n")
}
