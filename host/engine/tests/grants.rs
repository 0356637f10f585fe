//! Granted programs and origins, used by a component.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a failed test

mod support;

use harness_core::abort::AbortReason;
use harness_core::provider::{CallError, Refusal};
use harness_engine::{HttpGrant, ProcessCwd, ProcessGrant, ProviderSpec, Secret};
use std::path::Path;
use std::time::Duration;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn program(spec: &mut ProviderSpec, name: &str, script: &str) {
    let grant = ProcessGrant {
        background: false,
        command: vec!["/bin/sh".into(), "-c".into(), script.into()],
        env: [("PATH".to_owned(), Secret::new("/usr/bin:/bin"))].into(),
        cwd: ProcessCwd::Path("/".into()),
    };
    spec.grants.process.insert(name.to_owned(), grant);
}

/// Without pauses for a program to start in.
fn patient() -> ProviderSpec {
    let mut spec = spec(&[]);
    spec.limits.invoke_deadline = Duration::from_secs(30);
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn n18_many_bytes_go_through_a_granted_program_and_back() {
    let bench = Bench::with(patient()).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    let text = "0123456789".repeat(6000);
    let echoed = reply(control(&*instance, &channel, &format!("cat {text}")).await);
    assert_eq!(echoed, format!("{text} Ok(()) Ok(0)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_program_answers_and_its_end_is_told() {
    let bench = Bench::with(patient()).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    assert_eq!(
        reply(control(&*instance, &channel, "cat hello").await),
        "hello Ok(()) Ok(0)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_granted_is_denied() {
    let bench = Bench::with(patient()).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    let refused = error(control(&*instance, &channel, "spawn sh").await);
    assert!(
        matches!(&refused, CallError::Refused(Refusal::Native(text)) if text.contains("Denied")),
        "{refused:?}"
    );
}

fn alive(pid: &str) -> bool {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[tokio::test(flavor = "multi_thread")]
async fn n3_w1_programs_are_gone_when_their_instance_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let mut spec = patient();
    program(
        &mut spec,
        "daemon",
        &format!(
            "(trap '' TERM HUP; setsid sleep 600 & echo $! >> {0}); echo $$ >> {0}; exec sleep 600",
            pids.display()
        ),
    );
    let bench = Bench::with(spec).await;
    for trap in [false, true] {
        std::fs::write(&pids, "").unwrap();
        let (instance, channel) = (bench.open().await, TestChannel::new());
        control(&*instance, &channel, "spawn daemon")
            .await
            .map(drop)
            .unwrap();
        let read = || std::fs::read_to_string(&pids).unwrap();
        until("both run", || read().lines().count() == 2).await;
        if trap {
            let _ = discover(&*instance, "trap").await;
            instance.ended().await;
        } else {
            instance.dispose(AbortReason::Idle).await;
        }
        for pid in read().lines() {
            assert!(!alive(pid), "process {pid} outlived its instance");
        }
    }
}

/// Answers every request with the headers it got.
async fn server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
                while !request.ends_with(b"\r\n\r\n") {
                    match socket.read(&mut buffer).await {
                        Ok(n) if n > 0 => request.extend_from_slice(&buffer[..n]),
                        _ => return,
                    }
                }
                let told = String::from_utf8_lossy(&request)
                    .to_lowercase()
                    .contains("x-key: s3cret");
                let body = format!("authorised {told}");
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = socket.write_all((head + &body).as_bytes()).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_origin_gets_the_hosts_headers_and_no_other_is_reached() {
    let address = server().await;
    let origin = format!("http://{address}");
    let mut spec = patient();
    spec.grants.http.insert(
        origin.clone(),
        HttpGrant {
            headers: [("x-key".to_owned(), Secret::new("s3cret"))].into(),
            allow_private: vec!["127.0.0.1".into()],
        },
    );
    spec.grants.http.insert(
        format!("http://localhost:{}", address.port()),
        HttpGrant::default(),
    );
    let bench = Bench::with(spec).await;
    let (instance, channel) = (bench.open().await, TestChannel::new());
    let fetched = reply(control(&*instance, &channel, &format!("fetch {origin}/a")).await);
    assert_eq!(fetched, "200 authorised true Ok(())");
    // Granted by a name that turns out to be loopback, and not granted at all.
    for url in [
        &*format!("http://localhost:{}/", address.port()),
        "http://127.0.0.1/",
        "https://example.org/",
    ] {
        let refused = reply(control(&*instance, &channel, &format!("fetch {url}")).await);
        assert!(refused.contains("Denied"), "{url}: {refused}");
    }
}
