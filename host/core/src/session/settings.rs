//! Session settings against the schema a harness declares (R13, R30, R79).

use crate::provider::{HarnessInfo, ModelSpec, ParamSpec, ParamValue, Params};

/// Largest text of a parameter, in bytes.
const MAX_PARAM: usize = 64 * 1024;

fn fits(spec: &ParamSpec, value: &ParamValue) -> Result<(), String> {
    match (&spec.default, value) {
        (ParamValue::Boolean(_), ParamValue::Boolean(_)) => Ok(()),
        (ParamValue::Text(_), ParamValue::Text(text)) if text.len() > MAX_PARAM => Err(format!(
            "param `{}` has {} bytes; the limit is {MAX_PARAM}",
            spec.id,
            text.len()
        )),
        (ParamValue::Text(_), ParamValue::Text(text)) => {
            if spec.choices.is_empty() || spec.choices.iter().any(|c| c.value == *text) {
                Ok(())
            } else {
                let choices: Vec<_> = spec.choices.iter().map(|c| c.value.as_str()).collect();
                Err(format!(
                    "param `{}` takes one of: {}",
                    spec.id,
                    choices.join(", ")
                ))
            }
        }
        (ParamValue::Boolean(_), ParamValue::Text(_)) => {
            Err(format!("param `{}` takes true or false", spec.id))
        }
        (ParamValue::Text(_), ParamValue::Boolean(_)) => {
            Err(format!("param `{}` takes a text", spec.id))
        }
    }
}

/// The stored parameters with a patch merged over them, one level deep (R30).
///
/// # Errors
/// The first unknown key or invalid value, in words; nothing is merged then.
pub fn merge_params(info: &HarnessInfo, stored: &Params, patch: &Params) -> Result<Params, String> {
    let mut merged = stored.clone();
    for (key, value) in patch {
        let Some(spec) = info.params.iter().find(|p| p.id == *key) else {
            let known: Vec<_> = info.params.iter().map(|p| p.id.as_str()).collect();
            return Err(format!(
                "unknown param `{key}`; the harness declares: {}",
                known.join(", ")
            ));
        };
        fits(spec, value)?;
        merged.insert(key.clone(), value.clone());
    }
    Ok(merged)
}

/// The harness's defaults with the given parameters over them.
///
/// # Errors
/// As [`merge_params`].
pub fn effective_params(info: &HarnessInfo, given: &Params) -> Result<Params, String> {
    let defaults = info
        .params
        .iter()
        .map(|p| (p.id.clone(), p.default.clone()))
        .collect();
    merge_params(info, &defaults, given)
}

/// Whether a model takes an effort.
///
/// # Errors
/// The efforts it takes, in words.
pub fn check_effort(
    info: &HarnessInfo,
    native: &[ModelSpec],
    model: Option<&str>,
    effort: &str,
) -> Result<(), String> {
    let models = if native.is_empty() {
        &info.models
    } else {
        native
    };
    let chosen = models.iter().find(|m| Some(m.id.as_str()) == model);
    // Without a model that is known, an effort that some model takes may fit.
    let efforts: Vec<&str> = match chosen {
        Some(model) => model.efforts.iter().map(String::as_str).collect(),
        None => {
            let all = models.iter().flat_map(|m| &m.efforts);
            all.map(String::as_str).collect()
        }
    };
    if efforts.contains(&effort) {
        return Ok(());
    }
    Err(format!(
        "the effort `{effort}` is not one of: {}",
        efforts.join(", ")
    ))
}

/// Whether a model may be selected. `native`: what detection found, if anything.
///
/// # Errors
/// The models there are, in words.
pub fn check_model(info: &HarnessInfo, native: &[ModelSpec], model: &str) -> Result<(), String> {
    let models = if native.is_empty() {
        &info.models
    } else {
        native
    };
    // A harness that names no models takes what it is given.
    if models.is_empty() || models.iter().any(|m| m.id == model) {
        return Ok(());
    }
    let known: Vec<_> = models.iter().map(|m| m.id.as_str()).collect();
    Err(format!(
        "unknown model `{model}`; the harness offers: {}",
        known.join(", ")
    ))
}
