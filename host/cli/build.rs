//! Builds the provider that is embedded in the binary, so that a fresh clone needs no other step.
//!
//! The component is built by a cargo of its own, for `wasm32-wasip2`, in a target directory below
//! `OUT_DIR` (the outer build holds the lock of its own one), or in the one that
//! `HARNESS_GUESTS_TARGET_DIR` names for all guests. Nothing of the outer build leaks into it: flags, wrappers and profile settings of the host are removed from its environment.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TARGET: &str = "wasm32-wasip2";
const PROVIDER: &str = "planner";
/// Where guests are built, for several builds that share one.
const TARGET_DIR_VARIABLE: &str = "HARNESS_GUESTS_TARGET_DIR";

fn main() {
    match build() {
        Ok(component) => println!(
            "cargo::rustc-env=HARNESS_EMBEDDED_COMPONENT={}",
            component.display()
        ),
        Err(reason) => {
            for line in reason.lines() {
                println!("cargo::error={line}");
            }
        }
    }
}

fn build() -> Result<PathBuf, String> {
    let root = variable("CARGO_MANIFEST_DIR")?.join("../..");
    let root = root
        .canonicalize()
        .map_err(|error| format!("{}: {error}", root.display()))?;
    let provider = root.join("example-providers").join(PROVIDER);
    println!("cargo::rerun-if-changed=build.rs");
    for (directory, parts) in [
        (&provider, ["src", "Cargo.toml", "Cargo.lock"].as_slice()),
        (&root.join("guest-sdk"), &["src", "Cargo.toml", "wit"]),
        (&root, &["wit", "rust-toolchain.toml"]),
    ] {
        for path in parts
            .iter()
            .map(|part| directory.join(part))
            .filter(|path| path.exists())
        {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    ensure_target()?;
    println!("cargo::rerun-if-env-changed={TARGET_DIR_VARIABLE}");
    let target_dir = match env::var_os(TARGET_DIR_VARIABLE) {
        Some(directory) => PathBuf::from(directory),
        None => variable("OUT_DIR")?.join("guest"),
    };
    let mut cargo = clean(Command::new(variable("CARGO")?));
    cargo.args(["build", "--release", "--locked", "--target", TARGET]);
    cargo
        .arg("--manifest-path")
        .arg(provider.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target_dir);
    if let Some(jobs) = env::var_os("NUM_JOBS") {
        cargo.arg("--jobs").arg(jobs);
    }
    run(
        &mut cargo,
        &format!(
            "the embedded provider {} could not be built",
            provider.display()
        ),
    )?;
    let component = target_dir
        .join(TARGET)
        .join("release")
        .join(format!("{PROVIDER}.wasm"));
    if component.is_file() {
        Ok(component)
    } else {
        Err(format!(
            "building {} left no {}",
            provider.display(),
            component.display()
        ))
    }
}

/// Adds the standard library of the guest target when it is missing.
fn ensure_target() -> Result<(), String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut ask = clean(Command::new(rustc));
    ask.args(["--print", "target-libdir", "--target", TARGET]);
    let answer = run(
        &mut ask,
        &format!("rustc does not know the target {TARGET}"),
    )?;
    if Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_dir() {
        return Ok(());
    }
    let mut add = clean(Command::new("rustup"));
    add.args(["target", "add", TARGET]);
    let failed = format!(
        "the target {TARGET} is missing and could not be added with rustup\n\
         install it by hand (`rustup target add {TARGET}`, or your distribution's package of it) and build again"
    );
    run(&mut add, &failed).map(|_| ())
}

/// Removes what the outer build says about itself; registry, proxy and rustup settings stay.
fn clean(mut command: Command) -> Command {
    const KEPT: [&str; 7] = [
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_NET_",
        "CARGO_REGISTRIES_",
        "CARGO_REGISTRY_",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
    ];
    const DROPPED: [&str; 11] = [
        "CARGO",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "CLIPPY",
        "MAKEFLAGS",
        "MFLAGS",
        "OUT_DIR",
        "TARGET",
        "HOST",
        "PROFILE",
    ];
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let dropped =
            DROPPED.iter().any(|prefix| name.starts_with(prefix)) || name.starts_with("__CARGO");
        if dropped && !KEPT.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

fn variable(name: &str) -> Result<PathBuf, String> {
    env::var_os(name)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{name} is not set; build with cargo"))
}

fn run(command: &mut Command, failed: &str) -> Result<Output, String> {
    let output = command
        .output()
        .map_err(|error| format!("{failed}\n{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!(
        "{failed}\n{}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}
