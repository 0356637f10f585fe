//! The Agent Client Protocol v1 as this provider reads it.
//!
//! Reading is lenient, because agents differ and the protocol grows: unknown
//! members are ignored, an item of a list that is not understood is left out, an
//! update of an unknown kind is no error. Writing is plain JSON at the place that
//! sends it.

use harness_guest::limits::shorten;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The one protocol version this provider speaks.
pub(crate) const VERSION: u64 = 1;

/// Error codes with a meaning of their own.
pub(crate) mod codes {
    pub(crate) const AUTH_REQUIRED: i64 = -32000;
    pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
    pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
    pub(crate) const INVALID_PARAMS: i64 = -32602;
}

/// A list without the items that are not understood.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(input: D) -> Result<Vec<T>, D::Error> {
    let items = Option::<Vec<Value>>::deserialize(input)?.unwrap_or_default();
    Ok(items
        .into_iter()
        .filter_map(|item| serde_json::from_value(item).ok())
        .collect())
}

/// A member that counts as absent when it is not understood.
fn optional<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    input: D,
) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(input)?;
    Ok(serde_json::from_value(value).ok())
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Initialized {
    pub(crate) protocol_version: u64,
    #[serde(deserialize_with = "optional")]
    pub(crate) agent_capabilities: Option<Capabilities>,
    #[serde(deserialize_with = "optional")]
    pub(crate) agent_info: Option<AgentInfo>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) auth_methods: Vec<AuthMethod>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Capabilities {
    pub(crate) load_session: bool,
    #[serde(deserialize_with = "optional")]
    pub(crate) session_capabilities: Option<SessionCapabilities>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SessionCapabilities {
    pub(crate) resume: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) struct AgentInfo {
    pub(crate) name: String,
    #[serde(default, deserialize_with = "optional")]
    pub(crate) title: Option<String>,
    #[serde(default)]
    pub(crate) version: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AuthMethod {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
}

/// The answer to session/new, session/load and session/resume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SessionOpened {
    pub(crate) session_id: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(crate) modes: Option<SessionModes>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) config_options: Vec<ConfigOption>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionModes {
    pub(crate) current_mode_id: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) available_modes: Vec<SessionMode>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct SessionMode {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default, deserialize_with = "optional")]
    pub(crate) description: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct ConfigOption {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default, deserialize_with = "optional")]
    pub(crate) description: Option<String>,
    #[serde(default, deserialize_with = "optional")]
    pub(crate) category: Option<String>,
    #[serde(flatten)]
    pub(crate) value: ConfigValue,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ConfigValue {
    #[serde(rename_all = "camelCase")]
    Select {
        current_value: String,
        #[serde(deserialize_with = "choices")]
        options: Vec<Choice>,
    },
    #[serde(rename_all = "camelCase")]
    Boolean { current_value: bool },
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) value: String,
    pub(crate) name: String,
}

/// Choices come flat or in groups.
fn choices<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Choice>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Item {
        Choice(Choice),
        Group {
            #[serde(deserialize_with = "lenient")]
            options: Vec<Choice>,
        },
    }
    let items: Vec<Item> = lenient(input)?;
    Ok(items
        .into_iter()
        .flat_map(|item| match item {
            Item::Choice(choice) => vec![choice],
            Item::Group { options } => options,
        })
        .collect())
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct AvailableCommand {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(
        default,
        deserialize_with = "optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) input: Option<CommandInput>,
}

impl AvailableCommand {
    /// With texts that fit what is kept of them.
    pub(crate) fn bounded(mut self) -> Self {
        const TEXT_BYTES: usize = 1024;
        self.name = shorten(&self.name, 256);
        self.description = shorten(&self.description, TEXT_BYTES);
        if let Some(input) = &mut self.input {
            input.hint = shorten(&input.hint, TEXT_BYTES);
        }
        self
    }
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct CommandInput {
    pub(crate) hint: String,
}

/// The parameters of session/update.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionUpdate {
    pub(crate) session_id: String,
    pub(crate) update: Update,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case")]
#[allow(clippy::enum_variant_names)] // the protocol's names
pub(crate) enum Update {
    AgentMessageChunk {
        content: ContentBlock,
    },
    AgentThoughtChunk {
        content: ContentBlock,
    },
    ToolCall(ToolCall),
    ToolCallUpdate(ToolCall),
    Plan {
        #[serde(deserialize_with = "lenient")]
        entries: Vec<PlanEntry>,
    },
    #[serde(rename_all = "camelCase")]
    AvailableCommandsUpdate {
        #[serde(deserialize_with = "lenient")]
        available_commands: Vec<AvailableCommand>,
    },
    #[serde(rename_all = "camelCase")]
    CurrentModeUpdate {
        current_mode_id: String,
    },
    #[serde(rename_all = "camelCase")]
    ConfigOptionUpdate {
        #[serde(deserialize_with = "lenient")]
        config_options: Vec<ConfigOption>,
    },
    UsageUpdate {
        used: u64,
        size: u64,
    },
    /// The person's own words, titles, and what a later protocol adds.
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentBlock {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        data: String,
        mime_type: String,
        #[serde(default, deserialize_with = "optional")]
        uri: Option<String>,
    },
    #[serde(rename_all = "camelCase")]
    Audio {
        data: String,
        mime_type: String,
    },
    #[serde(rename_all = "camelCase")]
    ResourceLink {
        name: String,
        uri: String,
        #[serde(default, deserialize_with = "optional")]
        mime_type: Option<String>,
    },
    Resource {
        resource: Resource,
    },
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    pub(crate) uri: String,
    #[serde(default, deserialize_with = "optional")]
    pub(crate) mime_type: Option<String>,
    #[serde(default, deserialize_with = "optional")]
    pub(crate) text: Option<String>,
    #[serde(default, deserialize_with = "optional")]
    pub(crate) blob: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) struct PlanEntry {
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) status: String,
}

/// A tool call or an update of one: absent members are unchanged.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ToolCall {
    pub(crate) tool_call_id: String,
    #[serde(deserialize_with = "optional")]
    pub(crate) title: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(crate) kind: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(crate) status: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(crate) content: Option<Vec<Value>>,
    pub(crate) raw_input: Option<Value>,
    pub(crate) raw_output: Option<Value>,
}

impl ToolCall {
    /// Takes over what `newer` says.
    pub(crate) fn update(&mut self, newer: Self) {
        fn take<T>(old: &mut Option<T>, new: Option<T>) {
            if new.is_some() {
                *old = new;
            }
        }
        take(&mut self.title, newer.title);
        take(&mut self.kind, newer.kind);
        take(&mut self.status, newer.status);
        take(&mut self.content, newer.content);
        take(&mut self.raw_input, newer.raw_input);
        take(&mut self.raw_output, newer.raw_output);
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.status.as_deref(), Some("completed" | "failed"))
    }
}

/// One item of a tool call's content.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToolContent {
    Content {
        content: ContentBlock,
    },
    #[serde(rename_all = "camelCase")]
    Diff {
        path: String,
        #[serde(default, deserialize_with = "optional")]
        old_text: Option<String>,
        new_text: String,
    },
    #[serde(rename_all = "camelCase")]
    Terminal {
        terminal_id: String,
    },
    #[serde(other)]
    Other,
}

/// The parameters of session/request_permission.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PermissionRequest {
    pub(crate) session_id: String,
    pub(crate) tool_call: ToolCall,
    #[serde(deserialize_with = "lenient")]
    pub(crate) options: Vec<PermissionOption>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PermissionOption {
    pub(crate) option_id: String,
    #[serde(default)]
    pub(crate) kind: String,
}

/// The answer to session/prompt.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PromptEnded {
    pub(crate) stop_reason: String,
    #[serde(deserialize_with = "optional")]
    pub(crate) usage: Option<PromptUsage>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PromptUsage {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn update(body: Value) -> Update {
        serde_json::from_value::<SessionUpdate>(json!({"sessionId": "s", "update": body}))
            .expect("an update")
            .update
    }

    #[test]
    fn an_update_of_an_unknown_kind_is_no_error() {
        assert!(matches!(
            update(json!({"sessionUpdate": "from_the_future", "x": 1})),
            Update::Other
        ));
    }

    #[test]
    fn items_that_are_not_understood_are_left_out() {
        let Update::AvailableCommandsUpdate { available_commands } = update(json!({
            "sessionUpdate": "available_commands_update",
            "availableCommands": [{"name": "a"}, {"description": "no name"}, 7,
                {"name": "b", "description": "d", "input": "odd"}],
        })) else {
            panic!("wrong kind");
        };
        let names: Vec<_> = available_commands.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn choices_may_come_in_groups() {
        let option: ConfigOption = serde_json::from_value(json!({
            "id": "model", "name": "Model", "type": "select", "currentValue": "b",
            "category": {"odd": true},
            "options": [{"group": "g", "name": "G", "options": [{"value": "a", "name": "A"}]},
                {"value": "b", "name": "B"}],
        }))
        .expect("an option");
        let ConfigValue::Select { options, .. } = option.value else {
            panic!("wrong type");
        };
        assert_eq!(options.len(), 2);
        assert_eq!(option.category, None);
    }

    #[test]
    fn a_tool_update_changes_only_what_it_names() {
        let mut call: ToolCall = serde_json::from_value(
            json!({"toolCallId": "1", "title": "Read", "kind": "read", "rawInput": {"p": 1}}),
        )
        .expect("a call");
        call.update(
            serde_json::from_value(json!({"toolCallId": "1", "status": "completed"}))
                .expect("an update"),
        );
        assert_eq!(call.title.as_deref(), Some("Read"));
        assert!(call.has_ended());
    }
}
