//! Many subscribers of one session, one of which reads nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use futures::future::join_all;
use harness_tests::{Client, Frame, Setup, TOKEN};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Subscribers that read.
const READERS: usize = 999;
/// Controls that make the load; each is several enduring events.
const NOTES: usize = 40;
/// Bytes of each.
const NOTE: usize = 4 * 1024;

/// Connects and asks for the events, with a receive window of a few KiB, and reads nothing.
async fn stuck(client: &Client, path: &str) -> TcpStream {
    let address = client.base().strip_prefix("http://").unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Names and ids of the events in the raw text of a chunked response.
fn raw_events(text: &str) -> (Vec<u64>, bool) {
    // Chunk sizes stand on lines of their own and may split an event: they are taken out first.
    let mut body = String::new();
    let mut rest = text.split_once("\r\n\r\n").unwrap().1;
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else {
            break;
        };
        let Some(chunk) = tail.get(..size.min(tail.len())) else {
            break;
        };
        body.push_str(chunk);
        rest = tail.get(size + 2..).unwrap_or_default();
    }
    let ids = body
        .lines()
        .filter_map(|line| line.strip_prefix("id: ")?.parse().ok())
        .collect();
    (ids, body.contains("event: lagged\n"))
}

fn ids(events: &[Value]) -> Vec<u64> {
    events
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect()
}

/// Acceptance: 1,000 subscribers, one of them not reading; nobody else loses an event.
#[tokio::test(flavor = "multi_thread")]
async fn i36_a_subscriber_that_does_not_read_costs_nobody_else_an_event() {
    let host =
        Setup::configured("[[provider]]\ncomponent = \"embedded\"\n[provider.grants.state]\n[provider.grants.delegation]\n")
            .start();
    let client = host.client();
    let session = client.prompted("demo/planner", "hello").await;
    session.until_idle().await;
    let begin = session.row().await["last_seq"].as_u64().unwrap();
    let path = session.path(&format!("/events?after={begin}&ephemeral=none"));

    let mut stuck = stuck(&client, &path).await;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(client.stream(&path, None).await.unwrap());
    }
    let text = "x".repeat(NOTE);
    let load = async {
        for _ in 0..NOTES {
            let result = session.command(&format!("/note {text}")).await.ok(200);
            assert_eq!(result["status"], "completed");
        }
        let end = session.command("/note the end").await.ok(200);
        end["command_id"].as_str().unwrap().to_owned()
    };
    // Readers stop at the outcome of the last control.
    let read = join_all(readers.into_iter().map(|mut frames| {
        tokio::spawn(async move {
            let mut seen: Vec<Frame> = Vec::new();
            loop {
                let frame = frames.next().await.expect("nobody is cut off");
                assert_ne!(frame.event, "lagged");
                let last = frame.data["message"] == "the end";
                // What is of the session itself passes every filter, ephemeral or not.
                if frame.id.is_some() {
                    seen.push(frame);
                }
                if last {
                    return seen;
                }
            }
        })
    }));
    let (last, seen) = tokio::join!(load, tokio::time::timeout(Duration::from_secs(300), read));
    let seen = seen.expect("everybody sees the end in time");

    let journal = session.journal().await;
    let end = journal
        .iter()
        .position(|event| {
            event["type"] == "NativeOperationResolved"
                && event["cause"]["command_id"] == last.as_str()
        })
        .unwrap();
    let expected: Vec<&Value> = journal[..=end]
        .iter()
        .filter(|event| event["seq"].as_u64() > Some(begin))
        .collect();
    assert!(expected.len() > NOTES, "{} events", expected.len());
    for frames in seen {
        let frames = frames.unwrap();
        assert_eq!(frames.len(), expected.len());
        for (frame, event) in frames.iter().zip(&expected) {
            assert_eq!(frame.data, **event);
        }
    }

    // The one that did not read goes on not reading until the host has to let go of it. What
    // reached it is a prefix without a gap, and it was told.
    let text = "x".repeat(32 * 1024);
    for _ in 0..250 {
        session.command(&format!("/note {text}")).await.ok(200);
    }
    let journal = session.journal().await;
    let mut raw = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(60), stuck.read_to_end(&mut raw)).await;
    let (got, lagged) = raw_events(&String::from_utf8_lossy(&raw));
    let all = ids(&journal);
    let first = all.iter().position(|seq| *seq > begin).unwrap();
    assert!(
        lagged,
        "it got {} of {} events and was not told",
        got.len(),
        expected.len()
    );
    assert_eq!(got, all[first..first + got.len()]);

    // It reconnects with the last id that it saw, and has lost nothing.
    let from = got.last().copied().unwrap_or(begin);
    let mut again = client.stream(&path, Some(from)).await.unwrap();
    let mut rest = Vec::new();
    while rest.last() != all.last() {
        rest.push(again.until(|frame| frame.id.is_some()).await.id.unwrap());
    }
    assert_eq!([got, rest].concat(), all[first..]);
}

/// S109: replay from any sequence, joined with what is live, has no gap and no duplicate.
#[tokio::test(flavor = "multi_thread")]
async fn s109_a_replay_from_every_sequence_joins_the_live_stream() {
    let host = Setup::plain().start();
    let client = host.client();
    let session = client.prompted("demo/planner", "hello").await;
    session.until_idle().await;
    for text in ["/note one", "/note two", "/note three"] {
        session.command(text).await.ok(200);
    }
    let tip = session.row().await["last_seq"].as_u64().unwrap();
    // Every stream is opened while a turn and controls write.
    session.prompt("demo:burst 2000").await;
    let streams = join_all((0..=tip).map(|from| {
        let session = session.clone();
        tokio::spawn(async move {
            let mut frames = session.events(Some(from)).await;
            let mut seen = Vec::new();
            loop {
                let frame = frames.next().await.expect("the stream goes on");
                if frame.event == "lagged" {
                    let last = frames.last().max(from);
                    assert_eq!(frame.data["last_seq"], last);
                    frames = session.events(Some(last)).await;
                    continue;
                }
                let end = frame.data["message"] == "the end";
                if frame.id.is_some() {
                    seen.push(frame.data);
                }
                if end {
                    return (from, seen);
                }
            }
        })
    }));
    let load = async {
        for number in 0..20 {
            session.command(&format!("/note {number}")).await.ok(200);
        }
        session.until_idle().await;
        session.command("/note the end").await.ok(200);
    };
    let (streams, ()) = tokio::join!(streams, load);
    let journal = session.journal().await;
    let end = journal
        .iter()
        .position(|event| {
            event["type"] == "NativeOperationResolved" && event["message"] == "the end"
        })
        .unwrap();
    for stream in streams {
        let (from, seen) = stream.unwrap();
        let expected: Vec<Value> = journal[..=end]
            .iter()
            .filter(|event| event["seq"].as_u64() > Some(from))
            .cloned()
            .collect();
        assert_eq!(seen, expected, "from {from}");
    }
}
