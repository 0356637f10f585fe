//! What the probe shows: commands, modes, its own counters.

use crate::Memory;
use crate::script::revision;
use harness_guest::prelude::*;
use serde_json::{Map, Value, json};

/// Static facts.
pub fn info() -> HarnessInfo {
    let param = |id: &str, control, default_value, choices: &[&str]| ParamSpec {
        id: id.to_owned(),
        label: id.to_owned(),
        description: None,
        control,
        default_value,
        choices: choices
            .iter()
            .map(|value| ParamChoice {
                value: (*value).to_owned(),
                label: (*value).to_owned(),
            })
            .collect(),
    };
    HarnessInfo {
        models: ["m1", "m2"]
            .map(|id| ModelSpec {
                id: id.to_owned(),
                label: id.to_owned(),
                efforts: Vec::new(),
            })
            .to_vec(),
        params: vec![
            param(
                "flag",
                ParamControl::Command,
                ParamValue::Boolean(false),
                &[],
            ),
            param(
                "tone",
                ParamControl::Inline,
                ParamValue::Text("plain".to_owned()),
                &["plain", "bright"],
            ),
            param(
                "free",
                ParamControl::Inline,
                ParamValue::Text(String::new()),
                &[],
            ),
        ],
        workspace: WorkspaceNeed::Any,
        features: Features::COMMANDS
            | Features::STATE_PUSH
            | Features::NATIVE_TURNS
            | Features::COMPACTION,
        ..HarnessInfo::new("guest/probe", "Probe", "1.0.0")
    }
}

/// Commands and modes; `note` goes through.
pub fn state(memory: &Memory, note: String) -> CommandState {
    let command = |name: &str, reason: Option<&str>| Command {
        name: name.to_owned(),
        description: "a command of the probe".to_owned(),
        argument_help: None,
        composer: None,
        disabled_reason: reason.map(str::to_owned),
    };
    let action = |id: &str, argument: Option<ActionArgument>| ModeAction {
        id: id.to_owned(),
        label: id.to_owned(),
        icon: None,
        argument,
    };
    let counters: Vec<String> = memory
        .counters
        .iter()
        .map(|(name, count)| format!("{name}={count}"))
        .collect();
    let value = memory.switch;
    CommandState {
        commands: vec![
            Command {
                argument_help: Some("phase step; step | phase step".to_owned()),
                composer: Some(ComposerTag {
                    label: "Script".to_owned(),
                    mode_id: Some("switch".to_owned()),
                    reserved_arguments: vec!["stop".to_owned()],
                }),
                ..command("/script", None)
            },
            command("/control", None),
            command("/disabled", Some("disabled for the test")),
        ],
        modes: vec![
            Mode {
                id: "switch".to_owned(),
                label: "Switch".to_owned(),
                description: format!("value {value}"),
                state: value.to_string(),
                tag_text: None,
                indicator: Some(Indicator {
                    label: "Set".to_owned(),
                    tone: Tone::Info,
                }),
                actions: vec![
                    action("next", None),
                    action(
                        "set",
                        Some(ActionArgument {
                            label: "Value".to_owned(),
                            value: Some(value.to_string()),
                        }),
                    ),
                    action("confirm", None),
                ],
                close_action_id: Some("next".to_owned()),
                confirmation: Some(Confirmation {
                    id: revision(value).into(),
                    title: "Confirm the switch?".to_owned(),
                    action_id: "confirm".to_owned(),
                    cancel_label: None,
                    model: None,
                }),
            },
            Mode {
                id: "counters".to_owned(),
                label: "Counters".to_owned(),
                description: "calls of this instance".to_owned(),
                state: "counting".to_owned(),
                tag_text: Some(counters.join(" ")),
                indicator: None,
                actions: Vec::new(),
                close_action_id: None,
                confirmation: None,
            },
        ],
        slash_commands: true,
        note: Some(note),
    }
}

fn params_json(params: &[Param]) -> Value {
    let values = params.iter().map(|param| {
        let value = match &param.value {
            ParamValue::Boolean(value) => json!(value),
            ParamValue::Text(value) => json!(value),
        };
        (param.id.clone(), value)
    });
    Value::Object(values.collect::<Map<_, _>>())
}

fn workspace_json(workspace: Option<&Workspace>) -> Value {
    match workspace {
        None => Value::Null,
        Some(Workspace::Local(local)) => {
            json!({"local": {"id": local.id, "root": local.root_path}})
        }
        Some(Workspace::Remote(remote)) => {
            json!({"remote": {"id": remote.id, "host": remote.host, "path": remote.path}})
        }
    }
}

/// A discovery's context.
pub fn discovery_json(context: &DiscoveryContext) -> String {
    json!({
        "project": context.project_id,
        "session": context.session_id,
        "native": context.native_session_id,
        "workspace": workspace_json(context.workspace.as_ref()),
        "model": context.model,
        "effort": context.effort,
        "mode": context.loop_mode,
        "params": params_json(&context.params),
    })
    .to_string()
}

/// An operation's context.
pub fn operation_json(context: &OperationContext) -> String {
    json!({
        "project": context.project_id,
        "session": context.session_id,
        "loop": context.loop_id,
        "native": context.native_session_id,
        "workspace": workspace_json(context.workspace.as_ref()),
        "model": context.model,
        "effort": context.effort,
        "mode": context.loop_mode,
        "params": params_json(&context.params),
    })
    .to_string()
}
