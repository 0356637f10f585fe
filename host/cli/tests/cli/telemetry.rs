//! Traces leave the process, the last ones at its end.

use crate::support::{Serving, err, harness};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

/// A collector that takes one request after the other and hands on path and body.
fn collector() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, received) = mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let send = send.clone();
            std::thread::spawn(move || while answer(&connection, &send).is_some() {});
        }
    });
    (url, received)
}

fn answer(mut connection: &TcpStream, send: &mpsc::Sender<(String, Vec<u8>)>) -> Option<()> {
    let mut reader = BufReader::new(connection);
    let mut request = String::new();
    reader
        .read_line(&mut request)
        .ok()
        .filter(|read| *read > 0)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = request.split(' ').nth(1)?.to_owned();
    connection
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
        )
        .ok()?;
    send.send((path, body)).ok()
}

#[tokio::main(flavor = "current_thread")]
async fn request(url: &str, trace: &str) {
    let header = format!("00-{trace}-b7ad6b7169203331-01");
    let response = reqwest::Client::new()
        .get(url)
        .header("traceparent", header)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status().as_u16(), 401);
}

#[test]
fn spans_of_a_request_continue_its_trace_and_are_flushed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (url, received) = collector();
    let mut host = Serving::start(dir.path(), |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    });
    let trace = "0af7651916cd43dd8448eb211c80319c";
    request(&format!("{}/v1/sessions", host.fact("url")), trace);
    host.signal("TERM");
    let (status, logs) = host.end();
    assert_eq!(status.code(), Some(0), "{logs}");
    let exported: Vec<_> = received.try_iter().collect();
    assert!(
        exported.iter().all(|(path, _)| path == "/v1/traces"),
        "{exported:?}"
    );
    let has = |part: &[u8]| {
        exported
            .iter()
            .any(|(_, body)| body.windows(part.len()).any(|window| window == part))
    };
    assert!(
        has(b"service.name") && has(b"harness"),
        "the resource is missing\n{logs}"
    );
    let id: Vec<u8> = (0..16)
        .map(|i| u8::from_str_radix(&trace[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    assert!(has(&id), "no span belongs to the caller's trace\n{logs}");
}

#[test]
fn a_log_filter_that_is_none_is_told_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let refused = harness(&["serve", "--data-dir", data, "--listen", "127.0.0.1:0"])
        .env("HARNESS_LOG", "harness=loud=more")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
    assert!(err(&refused).contains("HARNESS_LOG"), "{}", err(&refused));
}
