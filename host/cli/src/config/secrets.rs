//! Secrets by name: looked up in the environment or in a file, never written into the
//! configuration itself.
//!
//! Invariants
//! - Every secret of the file is looked up at start, used or not, so that a missing one is found
//!   then and not in the first request that needs it.
//! - A secret file that others than its owner can read is refused.
//! - No message holds a value.

use super::problem::Problem;
use super::resolve::Context;
use super::written::{Named, Secret, Value};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use toml::Spanned;

/// Largest secret, in bytes.
const MAX_SECRET: u64 = 64 * 1024;

/// Secrets by name; one that could not be looked up is `None`, and was reported.
pub(super) struct Secrets(BTreeMap<String, Option<harness_engine::Secret>>);

impl Secrets {
    /// Looks all of them up.
    pub(super) fn look_up(cx: &mut Context<'_>, written: &Named<Secret>) -> Self {
        let mut found = BTreeMap::new();
        for (name, secret) in written {
            let value = match look_up(cx, name, secret) {
                Ok(value) => Some(harness_engine::Secret::new(value)),
                Err(problem) => {
                    cx.report(problem);
                    None
                }
            };
            found.insert(name.get_ref().clone(), value);
        }
        Self(found)
    }

    /// The text of a variable or header. `None` when its secret is not there; reported.
    pub(super) fn text(
        &self,
        cx: &mut Context<'_>,
        key: &str,
        value: &Value,
    ) -> Option<harness_engine::Secret> {
        let used = match value {
            Value::Plain(text) => return Some(harness_engine::Secret::new(text.as_str())),
            Value::Secret(used) => used,
        };
        let name = used.secret.get_ref();
        match self.0.get(name) {
            Some(found) => found.as_ref().map(|secret| {
                harness_engine::Secret::new(format!("{}{}", used.prefix, secret.expose()))
            }),
            None => {
                let line = cx.line(&used.secret);
                cx.report(Problem::new(
                    line,
                    format!("`{key}` uses the secret `{name}`, which is not defined"),
                    format!("add a table [secrets.{name}] with `env = \"VARIABLE\"` or `file = \"PATH\"`"),
                ));
                None
            }
        }
    }
}

fn look_up(cx: &Context<'_>, name: &Spanned<String>, secret: &Secret) -> Result<String, Problem> {
    let line = cx.line(name);
    let name = name.get_ref();
    match (&secret.env, &secret.file) {
        (Some(variable), None) => {
            let line = cx.line(variable);
            let variable = variable.get_ref();
            match cx.variable(variable) {
                Some(value) if !value.is_empty() => Ok(value),
                _ => Err(Problem::new(
                    line,
                    format!(
                        "the secret `{name}` is missing: the environment variable {variable} is not set or empty"
                    ),
                    format!("set {variable} in the environment of the host"),
                )),
            }
        }
        (None, Some(path)) => read_file(cx.line(path), name, &cx.path(path.get_ref())),
        (None, None) => Err(Problem::new(
            line,
            format!("the secret `{name}` has no source"),
            "give it `env = \"VARIABLE\"` or `file = \"PATH\"`",
        )),
        (Some(_), Some(_)) => Err(Problem::new(
            line,
            format!("the secret `{name}` has two sources"),
            "keep one of `env` and `file`",
        )),
    }
}

fn read_file(line: Option<usize>, name: &str, path: &Path) -> Result<String, Problem> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        Problem::new(
            line,
            format!("the secret `{name}` is missing: the file {shown} cannot be read: {error}"),
            "create the file, readable by the host's user alone, or correct the path",
        )
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Problem::new(
            line,
            format!("the file {shown} of the secret `{name}` is open to others (mode {mode:04o})"),
            format!("chmod 600 {shown}"),
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SECRET + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    let text = String::from_utf8(bytes)
        .ok()
        .filter(|text| text.len() as u64 <= MAX_SECRET);
    let text = text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
    match text {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) => Err(Problem::new(
            line,
            format!("the file {shown} of the secret `{name}` is empty"),
            "write the secret into it",
        )),
        None => Err(Problem::new(
            line,
            format!("the file {shown} of the secret `{name}` is not UTF-8 text of at most 64 KiB"),
            "check that it is the right file",
        )),
    }
}
