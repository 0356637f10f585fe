//! What a good configuration resolves to.

use super::{Environment, Exposure, Settings, resolve};
use harness_core::workspace::CheckpointPolicy;
use harness_engine::{Limits, ProcessCwd, Secret};
use harness_session::GatePolicies;
use std::path::Path;
use std::time::Duration;

fn good(text: &str) -> Settings {
    let environment = Environment::of(&[("PATH", "/bin:/usr/bin"), ("OPENAI", "sk-1234")]);
    resolve(text, &environment, Path::new("/")).unwrap()
}

#[test]
fn an_empty_file_is_the_defaults() {
    let settings = good("");
    assert_eq!(settings.listen, "127.0.0.1:7717".parse().unwrap());
    assert_eq!(settings.exposure, Exposure::Loopback);
    assert_eq!(
        (settings.slots, settings.sessions.inbox, settings.compiles),
        (32, 64, 2)
    );
    assert!(settings.providers.is_empty());
}

#[test]
fn limits_of_a_provider_stand_over_those_of_all() {
    let settings = good(
        r#"
        [limits]
        memory = "64MiB"
        drain = "2s"
        [[provider]]
        component = "embedded"
        [provider.limits]
        memory = "32MiB"
        [[provider]]
        component = "embedded"
        "#,
    );
    let [first, second] = settings.providers.as_slice() else {
        panic!("two providers")
    };
    assert_eq!(
        (first.limits.memory, second.limits.memory),
        (32 << 20, 64 << 20)
    );
    assert_eq!(first.limits.drain, Duration::from_secs(2));
    assert_eq!(first.limits.cpu_slice, Limits::default().cpu_slice);
}

#[test]
fn s98_checkpoints_are_taken_by_policy() {
    assert_eq!(good("").checkpoint, CheckpointPolicy::Off);
    for (word, policy) in [
        ("off", CheckpointPolicy::Off),
        ("best-effort", CheckpointPolicy::BestEffort),
        ("required", CheckpointPolicy::Required),
    ] {
        let settings = good(&format!("[workspace]\ncheckpoint = \"{word}\"\n"));
        assert_eq!(settings.checkpoint, policy);
    }
}

#[test]
fn s86_each_kind_of_gate_has_its_timeout() {
    assert_eq!(good("").gates, GatePolicies::default());
    let settings = good("[gates.permission]\ntimeout = \"90s\"\n[gates.ask_user]\n");
    assert_eq!(settings.gates.permission, Some(Duration::from_secs(90)));
    assert_eq!(settings.gates.ask_user, None);
    for (timeout, fits) in [
        ("999ms", false),
        ("1s", true),
        ("24h", true),
        ("25h", false),
    ] {
        let text = format!("[gates.ask_user]\ntimeout = \"{timeout}\"\n");
        let resolved = resolve(&text, &Environment::of(&[]), Path::new("/"));
        assert_eq!(resolved.is_ok(), fits, "{timeout}");
    }
}

#[test]
fn every_limit_of_the_engine_can_be_set() {
    for (name, shown) in Limits::default().describe() {
        let value = match shown.rsplit_once(' ') {
            Some((number, "ms")) => format!("\"{number}ms\""),
            Some((number, "bytes" | "bytes/s")) => format!("\"{number}B\""),
            Some((number, _)) => number.split(' ').next().unwrap().to_owned(),
            None => shown.clone(),
        };
        let text = format!("[limits]\n{name} = {value}\n[[provider]]\ncomponent = \"embedded\"\n");
        let settings = good(&text);
        assert_eq!(
            settings.providers.first().map(|p| &p.limits),
            Some(&Limits::default()),
            "{text}"
        );
    }
}

#[test]
fn secrets_reach_grants_with_their_prefix_and_are_not_shown() {
    let settings = good(
        r#"
        [secrets.openai]
        env = "OPENAI"
        [[provider]]
        component = "embedded"
        [provider.config]
        depth = 3
        verbose = true
        [provider.grants.process.codex]
        command = ["sh", "-c"]
        env = { KEY = { secret = "openai" }, HOME = "/x" }
        [provider.grants.http."https://api.openai.com"]
        headers = { Authorization = { secret = "openai", prefix = "Bearer " } }
        "#,
    );
    let provider = settings.providers.first().unwrap();
    let program = provider.grants.process.get("codex").unwrap();
    assert_eq!(program.env.get("KEY").map(Secret::expose), Some("sk-1234"));
    assert_eq!(program.env.get("HOME").map(Secret::expose), Some("/x"));
    assert_eq!(program.cwd, ProcessCwd::Workspace);
    let origin = provider.grants.http.get("https://api.openai.com").unwrap();
    assert_eq!(
        origin.headers.get("authorization").map(Secret::expose),
        Some("Bearer sk-1234")
    );
    assert!(provider.config.contains(&("depth".into(), "3".into())));
    assert!(provider.config.contains(&("verbose".into(), "true".into())));
    assert!(!format!("{settings:?}").contains("sk-1234"));
}

#[test]
fn s97_what_may_run_in_the_background_is_said_program_by_program() {
    assert_eq!(good("").sessions.background_processes, 4);
    let settings = good(
        r#"
        [sessions]
        background_processes = 0
        [limits]
        background_output = "64KiB"
        [[provider]]
        component = "embedded"
        [provider.grants.process.build]
        command = ["sh"]
        background = true
        [provider.grants.process.agent]
        command = ["sh"]
        [[provider]]
        id = "demo/second"
        component = "embedded"
        "#,
    );
    assert_eq!(settings.sessions.background_processes, 0);
    let [first, second] = settings.providers.as_slice() else {
        panic!("two providers")
    };
    assert_eq!(first.limits.background_output, 64 << 10);
    let may = |name: &str| first.grants.process.get(name).map(|p| p.background);
    assert_eq!((may("build"), may("agent")), (Some(true), Some(false)));
    assert_eq!(may("sleep"), None, "the operator granted one already");
    // The embedded demo comes with its own.
    let programs: Vec<_> = second.grants.process.keys().collect();
    assert_eq!(programs, ["sleep"]);
    assert!(second.grants.allows("background") && second.grants.state.is_none());
}

#[test]
fn a_secret_file_of_the_owner_is_read_without_its_line_end() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    std::fs::write(&path, "sk-9\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = r#"
        [secrets.key]
        file = "key"
        [[provider]]
        component = "embedded"
        [provider.grants.http."https://api.example.com"]
        headers = { x-key = { secret = "key" } }
        "#;
    let settings = resolve(text, &Environment::of(&[]), dir.path()).unwrap();
    let origin = settings
        .providers
        .first()
        .unwrap()
        .grants
        .http
        .values()
        .next()
        .unwrap();
    assert_eq!(
        origin.headers.get("x-key").map(Secret::expose),
        Some("sk-9")
    );
}

/// The operator guide, whose tables and examples are held against the code.
fn guide() -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operator-guide.md"),
    )
    .unwrap()
}

#[test]
fn g1_the_examples_of_the_guide_are_good_configurations() {
    let guide = guide();
    let examples: Vec<&str> = guide
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(examples.len() >= 2, "the guide has lost its examples");
    let environment = Environment::of(&[("PATH", "/bin:/usr/bin"), ("OPENAI_API_KEY", "sk-1")]);
    for example in examples {
        if let Err(problems) = resolve(example, &environment, Path::new("/")) {
            panic!("{}", super::ConfigError::new("example", problems));
        }
    }
}

#[test]
fn the_guide_lists_every_limit() {
    let guide = guide();
    for (name, _) in Limits::default().describe() {
        assert!(
            guide.contains(&format!("| `{name}` |")),
            "{name} is missing in docs/operator-guide.md"
        );
    }
}
