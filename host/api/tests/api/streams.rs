//! Server-sent events as a client reads them (S63, S64, S106, S109).

use crate::support::*;
use axum::body::Body;
use futures::StreamExt;
use harness_api::plane::{EventFilter, Follow, Item, Loops, Start};
use harness_core::ids::LoopId;
use harness_journal::TokenScope::Read;
use harness_session::{Frame, RowChange};
use http::Method;
use http_body_util::BodyExt;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

fn frame(seq: Option<u64>, name: &'static str, loop_id: Option<Uuid>, data: &str) -> Item {
    Item::Frame(Arc::new(Frame {
        seq,
        name,
        loop_id: loop_id.map(LoopId::from),
        data: data.into(),
    }))
}

/// The whole text of a stream that ends.
async fn read(server: &Server, path: &str, items: Vec<Item>) -> String {
    *server.double.script.stream.lock().unwrap() = Some(futures::stream::iter(items).boxed());
    let response = server.send(get(path)).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    String::from_utf8(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .to_vec(),
    )
    .unwrap()
}

/// `event` and `id` of each frame.
fn outline(text: &str) -> Vec<(String, Option<String>)> {
    text.split("\n\n")
        .filter(|block| !block.is_empty())
        .map(|block| {
            let field = |name: &str| {
                block
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map(|s| s.trim().to_owned())
            };
            (field("event:").unwrap(), field("id:"))
        })
        .collect()
}

#[tokio::test]
async fn s106_frames_carry_their_name_their_data_and_an_id_only_when_enduring() {
    let server = server().await;
    let started = r#"{"v":1,"type":"TurnStarted","seq":18}"#;
    let delta = r#"{"v":1,"type":"TokenDelta","text":"line one\\nline two"}"#;
    let text = read(
        &server,
        &at("/events"),
        vec![
            snapshot(),
            frame(Some(18), "TurnStarted", Some(LOOP), started),
            frame(None, "TokenDelta", Some(LOOP), delta),
        ],
    )
    .await;
    let some = |s: &str| Some(s.to_owned());
    assert_eq!(
        outline(&text),
        [
            ("snapshot".into(), some("17")),
            ("TurnStarted".into(), some("18")),
            ("TokenDelta".into(), None)
        ]
    );
    assert!(
        text.contains(&format!("data: {started}\n")),
        "data is passed on as it came: {text}"
    );
    assert!(text.contains(&format!("data: {delta}\n")));
    let data = text
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .unwrap();
    let snapshot: Value = serde_json::from_str(data).unwrap();
    assert_eq!(snapshot["type"], "snapshot");
    assert_eq!(snapshot["session"]["id"], SESSION.to_string());
    for part in ["loops", "gates", "queued_inputs", "uncertain_operations"] {
        assert!(snapshot[part].is_array(), "{part}");
    }
}

#[tokio::test]
async fn s106_a_stream_begins_where_the_client_says() {
    let server = server().await;
    read(&server, &at("/events"), vec![]).await;
    read(&server, &at("/events?after=7"), vec![]).await;
    let mut request = get(&at("/events?after=7"));
    request
        .headers_mut()
        .insert("last-event-id", "9".parse().unwrap());
    *server.double.script.stream.lock().unwrap() = Some(futures::stream::empty().boxed());
    server.send(request).await;
    assert_eq!(
        *server.double.script.follows.lock().unwrap(),
        [Start::Now, Start::After(7), Start::After(9)].map(Follow::from),
        "and everything passes unless it says otherwise"
    );
    let mut bad = get(&at("/events"));
    bad.headers_mut()
        .insert("last-event-id", "x".parse().unwrap());
    server.refuses(bad, 400, "invalid_request").await;
}

#[tokio::test]
async fn s63_s106_a_filter_is_read_and_handed_down() {
    let server = server().await;
    let other = Uuid::from_u128(77);
    let these = |ids: &[Uuid]| Loops::These(ids.iter().copied().map(LoopId::from).collect());
    for (query, enduring, ephemeral) in [
        ("", Loops::All, Loops::All),
        ("?enduring=none&ephemeral=all", these(&[]), Loops::All),
        ("?ephemeral=none", Loops::All, these(&[])),
        (
            &format!("?enduring={other}&ephemeral={LOOP},{other}"),
            these(&[other]),
            these(&[LOOP, other]),
        ),
    ] {
        let text = read(&server, &at(&format!("/events{query}")), vec![snapshot()]).await;
        assert_eq!(outline(&text)[0].0, "snapshot", "{query}");
        let asked = server.double.script.follows.lock().unwrap().pop();
        let filter = EventFilter {
            enduring,
            ephemeral,
        };
        assert_eq!(asked.unwrap().filter, filter, "{query}");
    }
    for query in [
        "?enduring=some",
        "?ephemeral=",
        "?enduring=all,none",
        "?enduring=all&enduring=none",
        &format!("?ephemeral={LOOP},"),
    ] {
        let problem = server
            .refuses(get(&at(&format!("/events{query}"))), 400, "invalid_request")
            .await;
        let name = &query[1..query.find('=').unwrap()];
        assert!(
            problem["detail"].as_str().unwrap().contains(name),
            "{problem}"
        );
    }
    assert!(server.double.script.follows.lock().unwrap().is_empty());
}

#[tokio::test]
async fn s64_a_lagged_subscriber_is_told_and_its_stream_ends() {
    let server = server().await;
    let items = futures::stream::iter(vec![
        frame(Some(4), "TurnStarted", None, "{}"),
        Item::Lagged { last_seq: 4 },
    ]);
    *server.double.script.stream.lock().unwrap() =
        Some(items.chain(futures::stream::pending()).boxed());
    let response = server.send(get(&at("/events"))).await;
    let mut body = response.into_body().into_data_stream();
    let mut text = String::new();
    while !text.contains("lagged") || !text.ends_with("\n\n") {
        text.push_str(std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap());
    }
    let last = text
        .lines()
        .rfind(|line| line.starts_with("data:"))
        .unwrap();
    let data: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(data["last_seq"], 4);
    assert_eq!(outline(&text).last().unwrap(), &("lagged".into(), None));
}

#[tokio::test]
async fn s106_a_silent_stream_pings_every_15_seconds() {
    let server = server().await;
    let response = server.send(get(&at("/events"))).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let mut body = response.into_body().into_data_stream();
    for n in 1..=3u32 {
        let chunk = body.next().await.unwrap().unwrap();
        assert_eq!(&*chunk, b": ping\n\n");
        let gone = begun.elapsed();
        let due = Duration::from_secs(15) * n;
        assert!(
            gone >= due && gone < due + Duration::from_secs(1),
            "ping {n} after {gone:?}"
        );
    }
}

#[tokio::test]
async fn s106_streams_end_when_the_server_closes() {
    let server = server().await;
    let stream = server.send(get(&at("/events"))).await;
    let lists = server.send(get("/v1/events")).await;
    server.state.close();
    stream.into_body().collect().await.unwrap();
    lists.into_body().collect().await.unwrap();
    server
        .refuses(get("/readyz"), 503, "host_shutting_down")
        .await;
}

#[tokio::test]
async fn s108_the_list_stream_sends_sessions_within_reach() {
    let server = server().await;
    *server.double.script.lists.lock().unwrap() = [(SESSION, "default"), (FOREIGN, "other")]
        .into_iter()
        .flat_map(|(id, project)| {
            let row = session(id, project);
            let deleted = RowChange::Deleted {
                id: row.id,
                project_id: row.project_id.clone(),
            };
            [RowChange::Now(Arc::new(row)), deleted]
        })
        .collect();
    let read_all = |token: String, path: &'static str| {
        let app = &server;
        async move {
            let request = with_token(Method::GET, path, &token)
                .body(Body::empty())
                .unwrap();
            let response = app.send(request).await;
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let deleted = text
                .lines()
                .skip_while(|line| *line != "event: session_deleted")
                .nth(1);
            let project = path
                .split_once('=')
                .map_or("default", |(_, project)| project);
            let id = if project == "default" {
                SESSION
            } else {
                FOREIGN
            };
            assert_eq!(
                deleted,
                Some(&*format!(
                    r#"data: {{"id":"{id}","project_id":"{project}"}}"#
                ))
            );
            outline(&text).len()
        }
    };
    assert_eq!(read_all(ADMIN.into(), "/v1/events").await, 4);
    assert_eq!(
        read_all(ADMIN.into(), "/v1/events?project_id=other").await,
        2
    );
    let token = server.token(&[Read], &["default"]).await;
    assert_eq!(read_all(token, "/v1/events").await, 2);
}
