//! Builds the guest of these tests, once a test binary.

use bytes::Bytes;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The puppet: a provider that does what its script says (`tests/puppet`).
pub(crate) fn puppet() -> Bytes {
    static PUPPET: OnceLock<Bytes> = OnceLock::new();
    PUPPET.get_or_init(build).clone()
}

fn build() -> Bytes {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/puppet/Cargo.toml");
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("puppet");
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--locked",
            "--target",
            "wasm32-wasip2",
            "--manifest-path",
        ])
        .arg(&manifest)
        .env("CARGO_TARGET_DIR", &target)
        // What the outer build was given is not meant for the guest.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "the puppet does not build:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::read(target.join("wasm32-wasip2/release/puppet.wasm"))
        .unwrap()
        .into()
}
