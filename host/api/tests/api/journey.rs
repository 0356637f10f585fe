//! Over a real socket: what `oneshot` cannot show.

use crate::support::*;
use futures::StreamExt;
use harness_core::abort::AbortReason;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};

/// A server on a socket; the sender stops it.
async fn listening() -> (
    Server,
    std::net::SocketAddr,
    oneshot::Sender<()>,
    tokio::task::JoinHandle<std::io::Result<()>>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = server_with(harness_api::Policy::for_listener(address)).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let app = harness_api::router(server.state.clone());
    let running = tokio::spawn(async move {
        axum::serve(listener, app)
            .with_graceful_shutdown(async move {
                let _ = stopped.await;
            })
            .await
    });
    (server, address, stop, running)
}

fn head(address: std::net::SocketAddr, line: &str, more: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {ADMIN}\r\n{more}\r\n")
}

/// Reads until the text holds what is looked for.
async fn until(stream: &mut TcpStream, needle: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0u8; 4096];
    let reading = async {
        while !text.contains(needle) {
            let n = stream.read(&mut buffer).await.unwrap();
            assert!(n > 0, "the connection closed after: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .unwrap();
    text
}

#[tokio::test]
async fn r69_closing_the_connection_aborts_the_operation() {
    let (server, address, _stop, _running) = listening().await;
    *server.double.script.hold.lock().unwrap() = Some(Arc::new(Notify::new()));
    let mut client = TcpStream::connect(address).await.unwrap();
    let body = r#"{"operation":{"kind":"command","text":"/goal"}}"#;
    let more = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    let path = at("/harness-commands");
    client
        .write_all(head(address, &format!("POST {path}"), &more).as_bytes())
        .await
        .unwrap();
    client.write_all(body.as_bytes()).await.unwrap();
    server.double.script.entered.notified().await;
    drop(client);
    tokio::time::timeout(
        Duration::from_secs(20),
        server.double.script.left.notified(),
    )
    .await
    .unwrap();
    assert_eq!(
        *server.double.script.gone.lock().unwrap(),
        Some(AbortReason::CallerGone)
    );
}

#[tokio::test]
async fn s110_a_client_that_writes_3_mb_before_it_reads_gets_its_413() {
    let (_server, address, _stop, _running) = listening().await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let size = 3 * 1024 * 1024;
    let path = at("/input");
    let more = format!("content-type: application/json\r\ncontent-length: {size}\r\n");
    client
        .write_all(head(address, &format!("POST {path}"), &more).as_bytes())
        .await
        .unwrap();
    client.write_all(&vec![b' '; size]).await.unwrap();
    let text = until(&mut client, "payload_too_large").await;
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");
}

#[tokio::test]
async fn closing_ends_streams_and_lets_requests_finish() {
    let (server, address, stop, running) = listening().await;
    *server.double.script.stream.lock().unwrap() = Some(
        futures::stream::iter([snapshot()])
            .chain(futures::stream::pending())
            .boxed(),
    );
    let mut events = TcpStream::connect(address).await.unwrap();
    events
        .write_all(head(address, &format!("GET {}", at("/events")), "").as_bytes())
        .await
        .unwrap();
    until(&mut events, "event: snapshot").await;

    let hold = Arc::new(Notify::new());
    *server.double.script.hold.lock().unwrap() = Some(hold.clone());
    let mut client = TcpStream::connect(address).await.unwrap();
    let body = r#"{"operation":{"kind":"command","text":"/goal"}}"#;
    let more = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    client
        .write_all(head(address, &format!("POST {}", at("/harness-commands")), &more).as_bytes())
        .await
        .unwrap();
    client.write_all(body.as_bytes()).await.unwrap();
    server.double.script.entered.notified().await;

    stop.send(()).unwrap();
    server.state.close();
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), events.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    hold.notify_one();
    let text = until(&mut client, "completed").await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    tokio::time::timeout(Duration::from_secs(5), running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn metrics_are_for_administrators() {
    let server = server().await;
    let response = server.send(get("/metrics")).await;
    assert_eq!(response.status(), 200);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&*bytes, b"harness_up 1\n");
}
