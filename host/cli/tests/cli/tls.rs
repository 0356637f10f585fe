//! The host ends TLS itself.

use crate::support::{Serving, err, run};
use std::path::{Path, PathBuf};

fn write(dir: &Path, cert: &str, key: &str) -> PathBuf {
    std::fs::write(dir.join("cert.pem"), cert).unwrap();
    std::fs::write(dir.join("key.pem"), key).unwrap();
    let config = dir.join("harness.toml");
    std::fs::write(
        &config,
        "[server]\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n",
    )
    .unwrap();
    config
}

#[tokio::main(flavor = "current_thread")]
async fn get(url: &str, trusted: &str) -> reqwest::Result<u16> {
    let root = reqwest::Certificate::from_pem(trusted.as_bytes()).unwrap();
    let client = reqwest::Client::builder()
        .tls_certs_only([root])
        .build()
        .unwrap();
    Ok(client.get(url).send().await?.status().as_u16())
}

#[test]
fn s110_a_certificate_makes_it_https() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let config = write(
        dir.path(),
        &made.cert.pem(),
        &made.signing_key.serialize_pem(),
    );
    let host = Serving::start(&dir.path().join("data"), |command| {
        command
            .env("HARNESS_CONFIG", config)
            .env("HARNESS_LISTEN", "0.0.0.0:0");
    });
    let url = host.fact("url").replace("127.0.0.1", "localhost");
    assert!(url.starts_with("https://"), "{url}");
    assert_eq!(
        get(&format!("{url}/healthz"), &made.cert.pem()).unwrap(),
        200
    );
    assert!(
        get(
            &format!("{}/healthz", url.replace("https", "http")),
            &made.cert.pem()
        )
        .is_err()
    );
}

#[test]
fn a_certificate_that_cannot_be_used_is_told_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = write(dir.path(), "no certificate", "no key");
    let data = dir.path().join("data");
    let refused = run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--config",
        config.to_str().unwrap(),
        "--data-dir",
        data.to_str().unwrap(),
    ]);
    assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
    assert!(
        err(&refused).contains("cert.pem") && err(&refused).contains("PEM"),
        "{}",
        err(&refused)
    );
}
