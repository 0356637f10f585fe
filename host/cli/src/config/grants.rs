//! Grants as written, into grants with their secrets looked up and their names checked.
//!
//! Deliberately not here: whether the component imports what is granted; that takes the component
//! and is the engine's pre-flight.

use super::limits::size;
use super::problem::Problem;
use super::resolve::Context;
use super::secrets::Secrets;
use super::written;
use harness_core::ids::HarnessId;
use harness_engine::{DelegationGrant, Grants, HttpGrant, ProcessCwd, ProcessGrant, StateGrant};
use http::{HeaderName, HeaderValue, Uri};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use toml::Spanned;

/// Largest state of one scope that can be granted, in bytes.
const MAX_STATE: u64 = 1 << 30;

/// Resolves the grants of one provider.
pub(super) fn resolve(
    cx: &mut Context<'_>,
    secrets: &Secrets,
    written: &written::Grants,
) -> Grants {
    let state = written.state.as_ref().map(|state| {
        let mut grant = StateGrant::default();
        size(
            cx,
            "max_bytes",
            &state.max_bytes,
            1024..=MAX_STATE,
            &mut grant.max_bytes,
        );
        grant
    });
    let delegation = written
        .delegation
        .as_ref()
        .map(|written| delegation(cx, written));
    let mut grants = Grants {
        state,
        delegation,
        process: BTreeMap::new(),
        http: BTreeMap::new(),
    };
    for (name, written) in &written.process {
        let grant = process(cx, secrets, name, written);
        grants.process.insert(name.get_ref().clone(), grant);
    }
    for (origin, written) in &written.http {
        let grant = http(cx, secrets, origin, written);
        grants.http.insert(origin.get_ref().clone(), grant);
    }
    grants
}

fn delegation(cx: &mut Context<'_>, written: &written::DelegationGrant) -> DelegationGrant {
    let harnesses = written.harnesses.as_ref().map(|named| {
        let mut ids = Vec::new();
        for id in named {
            match id.get_ref().parse::<HarnessId>() {
                Ok(parsed) => ids.push(parsed),
                Err(error) => {
                    let line = cx.line(id);
                    cx.report(Problem::new(
                        line,
                        format!("`harnesses`: {error}"),
                        "write it like \"openai/codex\"",
                    ));
                }
            }
        }
        ids
    });
    DelegationGrant { harnesses }
}

fn process(
    cx: &mut Context<'_>,
    secrets: &Secrets,
    name: &Spanned<String>,
    written: &written::ProcessGrant,
) -> ProcessGrant {
    let mut env = BTreeMap::new();
    for (variable, value) in &written.env {
        let key = variable.get_ref();
        if key.is_empty() || key.contains(['=', '\0']) {
            let line = cx.line(variable);
            cx.report(Problem::new(
                line,
                format!("{key:?} is no name of an environment variable"),
                "rename it",
            ));
        } else if let Some(text) = secrets.text(cx, key, value) {
            env.insert(key.clone(), text);
        }
    }
    let command: Vec<String> = written
        .command
        .get_ref()
        .iter()
        .map(|part| part.get_ref().clone())
        .collect();
    let path = match env.get("PATH") {
        Some(path) => Some(path.expose().to_owned()),
        None => cx.variable("PATH"),
    };
    if let Err((message, remedy)) = check_program(name.get_ref(), &command, path.as_deref()) {
        let line = cx.line(&written.command);
        cx.report(Problem::new(line, message, remedy));
    }
    ProcessGrant {
        command,
        env,
        cwd: written
            .cwd
            .as_ref()
            .map_or(ProcessCwd::Workspace, |cwd| directory(cx, cwd)),
        background: written.background,
    }
}

/// The engine looks a program up the same way when it starts it; here it is found out early.
fn check_program(
    name: &str,
    command: &[String],
    path: Option<&str>,
) -> Result<(), (String, &'static str)> {
    let Some(program) = command.first().filter(|program| !program.is_empty()) else {
        return Err((
            format!("the program `{name}` has no command"),
            "write `command = [\"PROGRAM\", \"ARGUMENT\", …]`",
        ));
    };
    let found = if program.starts_with('/') {
        Path::new(program).is_file()
    } else if program.contains('/') {
        return Err((
            format!("the command of the program `{name}` is a relative path: {program:?}"),
            "write an absolute path, or a name that is looked up in PATH",
        ));
    } else {
        let directories = path.unwrap_or_default();
        std::env::split_paths(directories)
            .any(|dir| dir.is_absolute() && dir.join(program).is_file())
    };
    if found {
        return Ok(());
    }
    Err((
        format!("the program `{name}` does not exist: {program:?} is not found"),
        "install it, write its absolute path, or set PATH in the grant's `env`",
    ))
}

fn directory(cx: &mut Context<'_>, cwd: &Spanned<String>) -> ProcessCwd {
    if cwd.get_ref() == "workspace" {
        return ProcessCwd::Workspace;
    }
    let path = cx.path(cwd.get_ref());
    if !path.is_dir() {
        let line = cx.line(cwd);
        cx.report(Problem::new(
            line,
            format!("`cwd` is no directory: {}", path.display()),
            "create it, or write \"workspace\" for the session's workspace",
        ));
    }
    ProcessCwd::Path(path)
}

fn http(
    cx: &mut Context<'_>,
    secrets: &Secrets,
    origin: &Spanned<String>,
    written: &written::HttpGrant,
) -> HttpGrant {
    if !is_origin(origin.get_ref()) {
        let line = cx.line(origin);
        cx.report(Problem::new(
            line,
            format!("{:?} is not an origin", origin.get_ref()),
            "write scheme, host and port if it is not the usual one, in lower case and nothing else: \"https://api.example.com\"",
        ));
    }
    let mut grant = HttpGrant::default();
    for (name, value) in &written.headers {
        let key = name.get_ref();
        let Some(text) = secrets.text(cx, key, value) else {
            continue;
        };
        if HeaderName::from_bytes(key.as_bytes()).is_err()
            || HeaderValue::from_str(text.expose()).is_err()
        {
            let line = cx.line(name);
            cx.report(Problem::new(
                line,
                format!("the header {key:?} has a name or a value that HTTP does not allow"),
                "check its name, and that its value or secret is one line of visible characters",
            ));
            continue;
        }
        grant.headers.insert(key.to_ascii_lowercase(), text);
    }
    for network in &written.allow_private {
        if is_network(network.get_ref()) {
            grant.allow_private.push(network.get_ref().clone());
        } else {
            let line = cx.line(network);
            cx.report(Problem::new(
                line,
                format!(
                    "{:?} is neither an address nor a network",
                    network.get_ref()
                ),
                "write an address like \"10.0.0.5\" or a network like \"10.0.0.0/8\"",
            ));
        }
    }
    grant
}

/// Whether it is `scheme://host[:port]` and nothing more.
pub(super) fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else {
        return false;
    };
    let plain = matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none();
    let authority = uri
        .authority()
        .is_some_and(|authority| !authority.as_str().contains('@'));
    let bare = !text.ends_with('/') && !text.contains('#') && uri.path() == "/";
    plain && authority && bare && !text.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_network(text: &str) -> bool {
    let (address, prefix) = text
        .split_once('/')
        .map_or((text, None), |(a, p)| (a, Some(p)));
    let Ok(address) = address.parse::<IpAddr>() else {
        return false;
    };
    let longest = if address.is_ipv4() { 32 } else { 128 };
    prefix.is_none_or(|prefix| prefix.parse::<u8>().is_ok_and(|bits| bits <= longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_and_networks_are_told_from_other_texts() {
        for good in [
            "https://api.example.com",
            "http://localhost:8080",
            "https://[::1]:9",
        ] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "",
            "api.example.com",
            "https://a/",
            "https://a/v1",
            "https://a?x=1",
            "https://u@a",
            "ftp://a",
            "HTTPS://a",
            "https://A.example",
            "https://a#b",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
        for good in ["10.0.0.5", "10.0.0.0/8", "::1", "fd00::/8"] {
            assert!(is_network(good), "{good}");
        }
        for bad in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "localhost",
            "::/129",
        ] {
            assert!(!is_network(bad), "{bad}");
        }
    }
}
