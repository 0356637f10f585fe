//! What a provider says of itself and of its native harness.

use crate::bindings::harness::provider::types as wit;
use harness_core::ids::HarnessId;
use harness_core::provider::{
    Compatibility, Features, HarnessInfo, LoopMode, ModelSpec, ParamChoice, ParamControl,
    ParamSpec, ParamValue, Readiness, TimeoutStrategy, WorkspaceNeed,
};
use std::collections::HashSet;

const MAX_ID: usize = 128;
const MAX_TEXT: usize = 4 * 1024;
const MAX_LIST: usize = 256;

fn id(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_ID {
        return Err(format!(
            "{what} has {} bytes; 1 to {MAX_ID} are expected",
            text.len()
        ));
    }
    Ok(())
}

fn text(what: &str, value: &str) -> Result<(), String> {
    if value.len() > MAX_TEXT {
        return Err(format!(
            "{what} has {} bytes; the limit is {MAX_TEXT}",
            value.len()
        ));
    }
    Ok(())
}

fn count(what: &str, n: usize) -> Result<(), String> {
    if n > MAX_LIST {
        Err(format!("{n} {what}; the limit is {MAX_LIST}"))
    } else {
        Ok(())
    }
}

fn models(list: Vec<wit::ModelSpec>) -> Result<Vec<ModelSpec>, String> {
    count("models", list.len())?;
    let mut ids = HashSet::new();
    list.into_iter()
        .map(|model| {
            id("a model id", &model.id)?;
            id("a model label", &model.label)?;
            count("efforts", model.efforts.len())?;
            model
                .efforts
                .iter()
                .try_for_each(|effort| id("an effort", effort))?;
            if !ids.insert(model.id.clone()) {
                return Err(format!("model `{}` is listed twice", model.id));
            }
            Ok(ModelSpec {
                id: model.id,
                label: model.label,
                efforts: model.efforts,
            })
        })
        .collect()
}

fn param(spec: wit::ParamSpec) -> Result<ParamSpec, String> {
    id("a parameter id", &spec.id)?;
    id("a parameter label", &spec.label)?;
    text(
        "a parameter description",
        spec.description.as_deref().unwrap_or(""),
    )?;
    count("choices", spec.choices.len())?;
    for choice in &spec.choices {
        text("a choice value", &choice.value)?;
        id("a choice label", &choice.label)?;
    }
    let default = match spec.default_value {
        wit::ParamValue::Boolean(value) => ParamValue::Boolean(value),
        wit::ParamValue::Text(value) => {
            text("a parameter default", &value)?;
            if !spec.choices.is_empty() && !spec.choices.iter().any(|choice| choice.value == value)
            {
                return Err(format!(
                    "the default of parameter `{}` is not one of its choices",
                    spec.id
                ));
            }
            ParamValue::Text(value)
        }
    };
    Ok(ParamSpec {
        id: spec.id,
        label: spec.label,
        description: spec.description,
        control: match spec.control {
            wit::ParamControl::Inline => ParamControl::Inline,
            wit::ParamControl::Command => ParamControl::Command,
        },
        default,
        choices: spec
            .choices
            .into_iter()
            .map(|c| ParamChoice {
                value: c.value,
                label: c.label,
            })
            .collect(),
    })
}

/// Static facts, under the id the provider is installed as.
///
/// # Errors
/// A sentence on the first value that breaks a bound (W4).
pub(crate) fn harness_info(
    info: wit::HarnessInfo,
    installed: Option<&HarnessId>,
) -> Result<HarnessInfo, String> {
    let own = info.id.parse::<HarnessId>().map_err(|e| e.to_string())?;
    id("the label", &info.label)?;
    id("the version", &info.version)?;
    count("loop modes", info.loop_modes.len())?;
    count("parameters", info.params.len())?;
    let loop_modes = info
        .loop_modes
        .into_iter()
        .map(|mode| {
            id("a loop mode", &mode.name)?;
            id("a loop mode label", &mode.label)?;
            Ok(LoopMode {
                name: mode.name,
                label: mode.label,
            })
        })
        .collect::<Result<Vec<_>, String>>()?;
    let params = info
        .params
        .into_iter()
        .map(param)
        .collect::<Result<Vec<_>, _>>()?;
    let mut ids = HashSet::new();
    if let Some(twice) = params.iter().find(|p| !ids.insert(p.id.as_str())) {
        return Err(format!("parameter `{}` is listed twice", twice.id));
    }
    let has = |flag| info.features.contains(flag);
    Ok(HarnessInfo {
        id: installed.cloned().unwrap_or(own),
        label: info.label,
        version: info.version,
        models: models(info.models)?,
        loop_modes,
        params,
        workspace: match info.workspace {
            wit::WorkspaceNeed::None => WorkspaceNeed::None,
            wit::WorkspaceNeed::Any => WorkspaceNeed::Any,
            wit::WorkspaceNeed::Local => WorkspaceNeed::Local,
        },
        timeout: match info.timeout {
            wit::TimeoutStrategy::Activity => TimeoutStrategy::Activity,
            wit::TimeoutStrategy::Provider => TimeoutStrategy::Provider,
        },
        features: Features {
            commands: has(wit::Features::COMMANDS),
            state_push: has(wit::Features::STATE_PUSH),
            folding: has(wit::Features::FOLDING),
            compaction: has(wit::Features::COMPACTION),
            external_tools: has(wit::Features::EXTERNAL_TOOLS),
            delegation: has(wit::Features::DELEGATION),
            native_turns: has(wit::Features::NATIVE_TURNS),
        },
    })
}

/// What `detect` found.
///
/// # Errors
/// A sentence on the first value that breaks a bound (W4).
pub(crate) fn readiness(readiness: wit::Readiness) -> Result<Readiness, String> {
    text(
        "the native version",
        readiness.native_version.as_deref().unwrap_or(""),
    )?;
    Ok(Readiness {
        native_version: readiness.native_version,
        compatibility: match readiness.compatibility {
            wit::Compatibility::Supported => Compatibility::Supported,
            wit::Compatibility::Untested => Compatibility::Untested,
            wit::Compatibility::Incompatible(reason) => {
                text("the reason of an incompatibility", &reason)?;
                Compatibility::Incompatible(reason)
            }
        },
        models: models(readiness.models)?,
    })
}
