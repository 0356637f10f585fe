//! From the written form to [`Settings`]: the second stage of a configuration.

use super::grants;
use super::limits::{self, count, time};
use super::problem::Problem;
use super::secrets::Secrets;
use super::settings::{Exposure, Settings, Tls};
use super::written::{self, Written};
use harness_core::ids::HarnessId;
use harness_core::workspace::CheckpointPolicy;
use harness_engine::{ComponentSource, Limits, ProviderSpec};
use harness_session::{GatePolicies, Verdict};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Word that stands for the component inside the binary.
pub(crate) const EMBEDDED: &str = "embedded";

const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// Answers the value of a variable.
type Lookup = dyn Fn(&str) -> Option<String>;

/// How environment variables are looked up; tests have variables of their own.
pub(crate) struct Environment(Box<Lookup>);

impl Environment {
    /// The variables of this process.
    pub(crate) fn of_process() -> Self {
        Self(Box::new(|name| std::env::var(name).ok()))
    }

    /// Exactly those variables.
    #[cfg(test)]
    pub(crate) fn of(variables: &[(&'static str, &'static str)]) -> Self {
        let variables: BTreeMap<_, _> = variables.iter().copied().collect();
        Self(Box::new(move |name| {
            variables.get(name).map(|value| (*value).to_owned())
        }))
    }
}

/// What resolving needs besides the written values, and where problems gather.
pub(super) struct Context<'a> {
    text: &'a str,
    environment: &'a Environment,
    base: &'a Path,
    problems: Vec<Problem>,
}

impl Context<'_> {
    /// Keeps a problem; resolving goes on, so that the next one is found too.
    pub(super) fn report(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Line of a value, from 1.
    pub(super) fn line<T>(&self, value: &Spanned<T>) -> Option<usize> {
        Some(line_of(self.text, value.span().start))
    }

    /// An environment variable of the host.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.environment.0)(name)
    }

    /// A path as written: relative ones are relative to the directory of the file.
    pub(super) fn path(&self, written: &str) -> PathBuf {
        let path = self.base.join(written);
        std::path::absolute(&path).unwrap_or(path)
    }

    /// A file that has to exist.
    fn existing_file(&mut self, key: &str, written: &Spanned<String>) -> PathBuf {
        let path = self.path(written.get_ref());
        if !path.is_file() {
            let line = self.line(written);
            let message = format!(
                "`{key}` names a file that does not exist: {}",
                path.display()
            );
            self.report(Problem::new(
                line,
                message,
                "correct the path; relative ones start at the configuration file",
            ));
        }
        path
    }
}

/// Reads a configuration text and resolves it. `base`: directory that relative paths start at.
///
/// # Errors
/// Every problem that was found.
pub(crate) fn resolve(
    text: &str,
    environment: &Environment,
    base: &Path,
) -> Result<Settings, Vec<Problem>> {
    let written: Written =
        toml::from_str(text).map_err(|error| vec![shape_problem(text, &error)])?;
    let mut cx = Context {
        text,
        environment,
        base,
        problems: Vec::new(),
    };
    let settings = settings(&mut cx, &written);
    if cx.problems.is_empty() {
        Ok(settings)
    } else {
        Err(cx.problems)
    }
}

fn settings(cx: &mut Context<'_>, written: &Written) -> Settings {
    let mut s = Settings::default();
    let server = &written.server;
    if let Some(listen) = &server.listen {
        match listen.get_ref().parse() {
            Ok(address) => s.listen = address,
            Err(_) => {
                let message = format!(
                    "`listen` is not an address with a port: {:?}",
                    listen.get_ref()
                );
                cx.report(Problem::new(
                    cx.line(listen),
                    message,
                    "write it like \"127.0.0.1:7717\" or \"[::1]:7717\"",
                ));
            }
        }
    }
    s.exposure = exposure(cx, server);
    s.allowed_hosts = server
        .allowed_hosts
        .iter()
        .filter_map(|host| allowed_host(cx, host))
        .collect();
    s.allowed_origins = server
        .allowed_origins
        .iter()
        .filter_map(|origin| allowed_origin(cx, origin))
        .collect();
    count(
        cx,
        "slots.total",
        &written.slots.total,
        1..=10_000,
        &mut s.slots,
    );
    sessions(cx, written, &mut s);
    let gates = &written.gates;
    s.gates = GatePolicies {
        permission: gate_timeout(cx, "gates.permission.timeout", &gates.permission),
        ask_user: gate_timeout(cx, "gates.ask_user.timeout", &gates.ask_user),
    };
    s.workspace_root = written
        .workspace
        .root
        .as_ref()
        .map(|root| workspace_root(cx, "root", root));
    s.workspace_roots = written
        .workspace
        .roots
        .iter()
        .map(|root| workspace_root(cx, "roots", root))
        .collect();
    time(
        cx,
        "workspace.wait",
        &written.workspace.wait,
        0..=10 * 60 * SECOND,
        &mut s.workspace_wait,
    );
    if let Some(word) = &written.workspace.checkpoint {
        s.checkpoint = checkpoint(cx, word);
    }
    count(
        cx,
        "engine.compiles",
        &written.engine.compiles,
        1..=64,
        &mut s.compiles,
    );
    count(
        cx,
        "engine.instances",
        &written.engine.instances,
        1..=100_000,
        &mut s.instances,
    );
    let secrets = Secrets::look_up(cx, &written.secrets);
    let base = limits::resolve(cx, &Limits::default(), &written.limits);
    (s.drain, s.activity) = (base.drain, base.activity);
    let mut seen = BTreeMap::new();
    s.providers = written
        .provider
        .iter()
        .map(|p| provider(cx, &secrets, &base, &mut seen, p))
        .collect();
    s
}

fn sessions(cx: &mut Context<'_>, written: &Written, s: &mut Settings) {
    let (w, into) = (&written.sessions, &mut s.sessions);
    time(
        cx,
        "sessions.instance_idle",
        &w.instance_idle,
        SECOND..=DAY,
        &mut into.instance_idle,
    );
    time(
        cx,
        "sessions.park_after",
        &w.park_after,
        SECOND..=DAY,
        &mut into.park_after,
    );
    time(
        cx,
        "sessions.draft_idle",
        &w.draft_idle,
        SECOND..=DAY,
        &mut into.draft_idle,
    );
    count(cx, "sessions.inbox", &w.inbox, 1..=64, &mut into.inbox);
    count(
        cx,
        "sessions.background_processes",
        &w.background_processes,
        0..=64,
        &mut into.background_processes,
    );
    into.native_turns = w.native_turns.unwrap_or(into.native_turns);
    count(
        cx,
        "sessions.native_turns_per_minute",
        &w.native_turns_per_minute,
        1..=6000,
        &mut into.native_turns_per_minute,
    );
    count(
        cx,
        "sessions.link_messages_per_second",
        &w.link_messages_per_second,
        1..=1000,
        &mut into.link_messages_per_second,
    );
    if let Some(written) = &w.drift {
        into.drift = drift(cx, written);
    }
    time(
        cx,
        "sessions.shutdown",
        &w.shutdown,
        SECOND..=600 * SECOND,
        &mut into.shutdown,
    );
}

/// What becomes of sessions whose configuration drifted.
fn drift(cx: &mut Context<'_>, written: &Spanned<String>) -> Verdict {
    match written.get_ref().as_str() {
        "accept" => Verdict::Accept,
        "reject" => Verdict::Reject,
        other => {
            cx.report(Problem::new(
                cx.line(written),
                format!("`sessions.drift` is neither \"accept\" nor \"reject\": {other:?}"),
                "leave it out to reject sessions whose workspace or harness is another one now; write \"accept\" to take them up all the same",
            ));
            Verdict::Reject
        }
    }
}

/// The policy of one kind of gate (S86).
fn gate_timeout(
    cx: &mut Context<'_>,
    key: &str,
    written: &written::GatePolicy,
) -> Option<Duration> {
    let mut timeout = Duration::ZERO;
    time(cx, key, &written.timeout, SECOND..=DAY, &mut timeout);
    written.timeout.as_ref().map(|_| timeout)
}

fn exposure(cx: &mut Context<'_>, server: &written::Server) -> Exposure {
    match (&server.tls, server.behind_proxy) {
        (None, false) => Exposure::Loopback,
        (None, true) => Exposure::BehindProxy,
        (Some(tls), proxied) => {
            if proxied {
                let line = cx.line(&tls.cert);
                cx.report(Problem::new(
                    line,
                    "[server.tls] and `behind_proxy` exclude each other",
                    "keep [server.tls] when the host ends TLS, `behind_proxy` when a proxy does",
                ));
            }
            let cert = cx.existing_file("server.tls.cert", &tls.cert);
            Exposure::Tls(Tls {
                cert,
                key: cx.existing_file("server.tls.key", &tls.key),
            })
        }
    }
}

fn allowed_host(cx: &mut Context<'_>, written: &Spanned<String>) -> Option<String> {
    let host = written.get_ref().to_ascii_lowercase();
    let good = !host.is_empty()
        && !host.contains(['/', '@', '*', ' '])
        && host.parse::<http::uri::Authority>().is_ok();
    if good {
        return Some(host);
    }
    let message = format!(
        "`allowed_hosts` has an entry that is no host name: {:?}",
        written.get_ref()
    );
    cx.report(Problem::new(cx.line(written), message, "write the name as clients use it, with its port if it is not the usual one: \"harness.example.com\""));
    None
}

fn allowed_origin(cx: &mut Context<'_>, written: &Spanned<String>) -> Option<String> {
    if grants::is_origin(written.get_ref()) {
        return Some(written.get_ref().clone());
    }
    let message = format!(
        "`allowed_origins` has an entry that is no origin: {:?}",
        written.get_ref()
    );
    cx.report(Problem::new(
        cx.line(written),
        message,
        "write scheme, host and port, in lower case and nothing else: \"https://app.example.com\"",
    ));
    None
}

fn workspace_root(cx: &mut Context<'_>, key: &str, written: &Spanned<String>) -> PathBuf {
    let path = cx.path(written.get_ref());
    if !path.is_dir() {
        let line = cx.line(written);
        let message = format!("`workspace.{key}` is no directory: {}", path.display());
        cx.report(Problem::new(line, message, "create it, or leave it out"));
    }
    path
}

fn checkpoint(cx: &mut Context<'_>, written: &Spanned<String>) -> CheckpointPolicy {
    let word = written.get_ref();
    CheckpointPolicy::from_word(word).unwrap_or_else(|| {
        let line = cx.line(written);
        cx.report(Problem::new(
            line,
            format!("`workspace.checkpoint` is no policy: {word:?}"),
            "write \"off\", \"best-effort\" or \"required\"",
        ));
        CheckpointPolicy::default()
    })
}

fn provider(
    cx: &mut Context<'_>,
    secrets: &Secrets,
    base: &Limits,
    seen: &mut BTreeMap<HarnessId, Option<usize>>,
    written: &written::Provider,
) -> ProviderSpec {
    let component = written.component.get_ref();
    let source = if component == EMBEDDED {
        crate::embedded::component()
    } else {
        ComponentSource::File(cx.existing_file("component", &written.component))
    };
    let mut spec = ProviderSpec::new(source);
    spec.id = written.id.as_ref().and_then(|id| harness_id(cx, seen, id));
    spec.sha256 = written
        .sha256
        .as_ref()
        .and_then(|digest| sha256(cx, digest));
    spec.config = written
        .config
        .iter()
        .map(|(key, value)| (key.clone(), value.0.clone()))
        .collect();
    spec.grants = grants::resolve(cx, secrets, &written.grants);
    if component == EMBEDDED {
        crate::embedded::complete(&mut spec.grants);
    }
    spec.limits = limits::resolve(cx, base, &written.limits);
    spec
}

fn harness_id(
    cx: &mut Context<'_>,
    seen: &mut BTreeMap<HarnessId, Option<usize>>,
    written: &Spanned<String>,
) -> Option<HarnessId> {
    let line = cx.line(written);
    let id = match written.get_ref().parse::<HarnessId>() {
        Ok(id) => id,
        Err(error) => {
            cx.report(Problem::new(
                line,
                format!("`id`: {error}"),
                "write it like \"openai/codex\"",
            ));
            return None;
        }
    };
    if let Some(Some(first)) = seen.insert(id.clone(), line) {
        cx.report(Problem::new(
            line,
            format!("two providers have the id `{id}`; the other one is in line {first}"),
            "give each its own `id`",
        ));
    }
    Some(id)
}

fn sha256(cx: &mut Context<'_>, written: &Spanned<String>) -> Option<String> {
    let digest = written.get_ref().to_ascii_lowercase();
    if digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Some(digest);
    }
    let line = cx.line(written);
    cx.report(Problem::new(
        line,
        "`sha256` is no digest",
        "write the 64 hexadecimal digits that `sha256sum FILE.wasm` prints",
    ));
    None
}

/// A file that is no TOML, or not of the right shape.
fn shape_problem(text: &str, error: &toml::de::Error) -> Problem {
    let line = error.span().map(|span| line_of(text, span.start));
    let message = error.message().trim();
    let mut names = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field") {
        let unknown = names.next().unwrap_or_default();
        let known: Vec<&str> = names.collect();
        return Problem::new(
            line,
            format!("unknown key `{unknown}`"),
            nearest_words(unknown, &known),
        );
    }
    if message.starts_with("missing field") {
        let missing = names.next().unwrap_or_default();
        return Problem::new(
            line,
            format!("the key `{missing}` is missing here"),
            format!("add `{missing} = …`"),
        );
    }
    if let Some(rest) = message.strip_prefix("invalid type: ") {
        let words = rest
            .replace("expected i64", "expected a whole number")
            .replace("expected f64", "expected a number");
        let key = line
            .and_then(|line| key_on(text, line))
            .map_or_else(String::new, |key| format!("`{key}`: "));
        return Problem::new(
            line,
            format!("{key}wrong type: {words}"),
            "write the value in that form",
        );
    }
    Problem::new(
        line,
        message.replace('\n', ", "),
        "correct the line; the file is TOML",
    )
}

/// What stands before the equals sign of a line.
fn key_on(text: &str, line: usize) -> Option<&str> {
    let (key, _) = text.lines().nth(line.checked_sub(1)?)?.split_once('=')?;
    Some(key.trim())
}

fn nearest_words(unknown: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .map(|known| (strsim::osa_distance(unknown, known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 3)
        .min();
    match near {
        Some((_, near)) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "remove it".to_owned(),
        None => format!("remove it; keys here are {}", known.join(", ")),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text
        .bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
}
