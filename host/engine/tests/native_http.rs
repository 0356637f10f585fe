//! Requests as an instance makes them, against real servers on this machine's loopback.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic in a helper is a failed test"
)]

use bytes::Bytes;
use futures::StreamExt;
use harness_core::abort::{AbortHandle, AbortReason};
use harness_engine::native::IoError;
use harness_engine::native::http::{Http, HttpLimits, HttpRequest, HttpResponse, Origins};
use harness_engine::{HttpGrant, Secret};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Far beyond what anything here needs: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it never happened")
}

/// A server that records what it is asked and answers as told by path.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    /// A line each time a connection was closed by the other side.
    closed: mpsc::UnboundedReceiver<()>,
}

impl Server {
    /// `answer` maps a path to the bytes of the response; a response that should not end is one
    /// that does not carry its whole length.
    async fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (sender, closed) = mpsc::unbounded_channel();
        let (log, answer) = (seen.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, log.clone(), answer.clone(), sender.clone()));
            }
        });
        Self { port, seen, closed }
    }

    fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The heads of all requests, in lower case.
    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<String>>>,
    answer: Arc<impl Fn(&str) -> String>,
    closed: mpsc::UnboundedSender<()>,
) {
    let mut request = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut request).await {
        let Some(end) = request.windows(4).position(|end| end == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(request[..end + 4].to_vec())
            .unwrap()
            .to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let whole = end + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap());
        if request.len() < whole {
            continue;
        }
        request.drain(..whole);
        let path = head.split(' ').nth(1).unwrap().to_owned();
        log.lock().unwrap().push(head);
        let _ = stream.write_all(answer(&path).as_bytes()).await;
    }
    let _ = closed.send(());
}

fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: keep-alive\r\nX-Seen: yes\r\n\r\n{body}",
        body.len()
    )
}

fn moved(status: u16, to: &str) -> String {
    format!("HTTP/1.1 {status} Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

fn with_secret(secret: &str) -> HttpGrant {
    HttpGrant {
        headers: BTreeMap::from([(
            "authorization".to_owned(),
            Secret::new(format!("Bearer {secret}")),
        )]),
        allow_private: vec!["127.0.0.1".to_owned()],
    }
}

fn http(grants: impl IntoIterator<Item = (String, HttpGrant)>) -> Http {
    limited(grants, HttpLimits::default())
}

fn limited(grants: impl IntoIterator<Item = (String, HttpGrant)>, limits: HttpLimits) -> Http {
    Http::new(
        Arc::new(Origins::new(&grants.into_iter().collect()).unwrap()),
        limits,
    )
}

fn get(url: String) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        url,
        headers: Vec::new(),
        body: Bytes::new(),
        timeout: None,
    }
}

fn post(url: String) -> HttpRequest {
    let headers = vec![("Content-Type".to_owned(), "text/plain".to_owned())];
    HttpRequest {
        method: "POST".to_owned(),
        headers,
        body: Bytes::from_static(b"hello"),
        ..get(url)
    }
}

async fn fetch(http: &Http, request: HttpRequest) -> Result<HttpResponse, IoError> {
    soon(http.fetch(request, None)).await
}

async fn read(response: HttpResponse) -> (String, Result<(), IoError>) {
    let chunks: Vec<Bytes> = soon(response.body.collect()).await;
    (
        String::from_utf8(chunks.concat()).unwrap(),
        soon(response.done).await,
    )
}

fn denied<T: std::fmt::Debug>(result: Result<T, IoError>, because: &str) {
    assert!(
        matches!(&result, Err(IoError::Denied(why)) if why.contains(because)),
        "{because:?}: {result:?}"
    );
}

#[tokio::test]
async fn a_granted_origin_gets_the_injected_headers() {
    let server = Server::start(|_| ok("hi")).await;
    let http = http([(server.origin(), with_secret("sk-1"))]);
    let mut request = get(format!("{}/a?b=c#d", server.origin()));
    request.headers = vec![
        ("Authorization".into(), "Bearer mine".into()),
        ("X-Own".into(), "1".into()),
    ];
    let response = fetch(&http, request).await.unwrap();
    assert_eq!(response.status, 200);
    assert!(
        response.headers.contains(&("x-seen".into(), "yes".into())),
        "{:?}",
        response.headers
    );
    assert!(
        !response
            .headers
            .iter()
            .any(|(name, _)| name == "connection"),
        "{:?}",
        response.headers
    );
    assert_eq!(read(response).await, ("hi".to_owned(), Ok(())));
    let seen = server.seen().concat();
    assert!(seen.starts_with("get /a?b=c http/1.1\r\n"), "{seen}");
    assert!(
        seen.contains("authorization: bearer sk-1\r\n") && seen.contains("x-own: 1\r\n"),
        "{seen}"
    );
    assert!(
        !seen.contains("mine") && !seen.contains("referer") && !seen.contains("cookie"),
        "{seen}"
    );
}

#[tokio::test]
async fn what_is_not_granted_is_denied_before_any_connection() {
    let server = Server::start(|_| ok("")).await;
    let http = http([(server.origin(), with_secret("sk-1"))]);
    let (origin, port) = (server.origin(), server.port);
    for (url, because) in [
        (format!("https://127.0.0.1:{port}/"), "not granted"),
        ("http://127.0.0.1:1/".to_owned(), "not granted"),
        (format!("http://localhost:{port}/"), "not granted"),
        (format!("http://127.0.0.2:{port}/"), "not granted"),
        (format!("http://[::ffff:127.0.0.1]:{port}/"), "not granted"),
        (format!("http://user@127.0.0.1:{port}/"), "credentials"),
        (format!("http://u:p@127.0.0.1:{port}/"), "credentials"),
        ("file:///etc/passwd".to_owned(), "not granted"),
        ("data:,x".to_owned(), "not granted"),
        ("/relative".to_owned(), "invalid"),
        (String::new(), "invalid"),
    ] {
        denied(fetch(&http, get(url)).await, because);
    }
    for method in ["CONNECT", "TRACE", "GET x", ""] {
        denied(
            fetch(
                &http,
                HttpRequest {
                    method: method.to_owned(),
                    ..get(origin.clone())
                },
            )
            .await,
            "method",
        );
    }
    let mut request = get(origin);
    request.headers.push(("Host".into(), "elsewhere".into()));
    denied(fetch(&http, request).await, "host");
    assert!(server.seen().is_empty(), "{:?}", server.seen());
}

#[tokio::test]
async fn another_spelling_of_a_granted_address_is_the_same_origin() {
    let server = Server::start(|_| ok("")).await;
    let http = http([(server.origin(), with_secret("sk-1"))]);
    for host in [
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.1",
        "0x7f.0.0.0x1",
        "127.0.0.1.",
    ] {
        let response = fetch(&http, get(format!("http://{host}:{}/", server.port))).await;
        assert_eq!(response.unwrap().status, 200, "{host}");
    }
    assert!(
        server
            .seen()
            .iter()
            .all(|head| head.contains(&format!("host: 127.0.0.1:{}\r\n", server.port)))
    );
}

#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_refused_unless_the_grant_names_it() {
    let server = Server::start(|_| ok("")).await;
    let origin = format!("http://localhost:{}", server.port);
    let unnamed = http([(origin.clone(), HttpGrant::default())]);
    denied(fetch(&unnamed, get(origin.clone())).await, "loopback");
    let other = HttpGrant {
        allow_private: vec!["10.0.0.0/8".into(), "127.0.0.2".into()],
        ..HttpGrant::default()
    };
    denied(
        fetch(&http([(origin.clone(), other)]), get(origin.clone())).await,
        "loopback",
    );
    assert!(server.seen().is_empty());
    let named = http([(origin.clone(), with_secret("sk-1"))]);
    assert_eq!(fetch(&named, get(origin)).await.unwrap().status, 200);
}

#[tokio::test]
async fn an_unknown_host_is_not_found() {
    let origin = "http://no-such-host.invalid";
    let http = http([(origin.to_owned(), HttpGrant::default())]);
    let result = fetch(&http, get(origin.to_owned())).await;
    assert!(matches!(result, Err(IoError::NotFound(_))), "{result:?}");
}

#[tokio::test]
async fn a_redirect_to_an_origin_that_is_not_granted_is_denied() {
    let target = Server::start(|_| ok("secret place")).await;
    let to = target.origin();
    let server = Server::start(move |path| match path {
        "/port" => moved(302, &format!("{to}/")),
        "/metadata" => moved(307, "http://169.254.169.254/latest/meta-data/"),
        "/relative" => moved(301, "//169.254.169.254/latest"),
        "/decimal" => moved(308, "http://2852039166/"),
        "/file" => moved(302, "file:///etc/passwd"),
        _ => moved(302, "http://u:p@127.0.0.1/"),
    })
    .await;
    let http = http([(server.origin(), with_secret("sk-1"))]);
    for path in ["/port", "/metadata", "/relative", "/decimal", "/file"] {
        denied(
            fetch(&http, get(format!("{}{path}", server.origin()))).await,
            "not granted",
        );
    }
    denied(
        fetch(&http, get(format!("{}/user", server.origin()))).await,
        "credentials",
    );
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn a_redirect_to_another_granted_origin_carries_no_injected_header() {
    let target = Server::start(|_| ok("there")).await;
    let to = target.origin();
    let server = Server::start(move |path| match path {
        "/away" => moved(302, &format!("{to}/arrived")),
        "/near" => moved(302, "/arrived"),
        _ => ok("here"),
    })
    .await;
    let http = http([
        (server.origin(), with_secret("sk-1")),
        (target.origin(), with_secret("sk-2")),
    ]);
    let near = fetch(&http, get(format!("{}/near", server.origin())))
        .await
        .unwrap();
    assert_eq!(read(near).await.0, "here");
    assert_eq!(
        server
            .seen()
            .iter()
            .filter(|head| head.contains("sk-1"))
            .count(),
        2,
        "the same origin keeps it"
    );
    let away = fetch(&http, post(format!("{}/away", server.origin())))
        .await
        .unwrap();
    assert_eq!(read(away).await.0, "there");
    let arrived = target.seen().concat();
    assert!(
        arrived.starts_with("get /arrived"),
        "POST became GET: {arrived}"
    );
    assert!(
        !arrived.contains("authorization") && !arrived.contains("content-type"),
        "{arrived}"
    );
}

#[tokio::test]
async fn redirects_keep_or_drop_the_body_by_status_and_end() {
    let server = Server::start(|path| match path {
        "/307" => moved(307, "/kept"),
        "/303" => moved(303, "/dropped"),
        "/loop" => moved(302, "/loop"),
        _ => ok(""),
    })
    .await;
    let http = http([(server.origin(), HttpGrant::default())]);
    for path in ["/307", "/303"] {
        fetch(&http, post(format!("{}{path}", server.origin())))
            .await
            .unwrap();
    }
    let seen = server.seen().concat();
    assert!(
        seen.contains("post /kept") && seen.contains("get /dropped"),
        "{seen}"
    );
    let result = fetch(&http, get(format!("{}/loop", server.origin()))).await;
    assert!(matches!(result, Err(IoError::Limit(_))), "{result:?}");
}

#[tokio::test]
async fn a_body_that_is_too_large_ends_at_the_limit() {
    let server = Server::start(|_| ok(&"x".repeat(100_000))).await;
    let limits = HttpLimits {
        response_bytes: 99_999,
        request_bytes: 4,
        ..HttpLimits::default()
    };
    let http = limited([(server.origin(), HttpGrant::default())], limits);
    let response = fetch(&http, get(server.origin())).await.unwrap();
    let (body, end) = read(response).await;
    assert!(body.len() <= 99_999, "{}", body.len());
    assert!(matches!(end, Err(IoError::Limit(_))), "{end:?}");
    let result = fetch(&http, post(server.origin())).await;
    assert!(matches!(result, Err(IoError::Limit(_))), "{result:?}");
}

#[tokio::test]
async fn w9_a_flooding_server_waits_for_the_reader() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let (sender, mut sent) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let chunk = vec![b'x'; 64 * 1024];
        while stream.write_all(&chunk).await.is_ok() {
            let _ = sender.send(chunk.len());
        }
    });
    let limits = HttpLimits {
        response_bytes: u64::MAX,
        ..HttpLimits::default()
    };
    let http = limited([(origin.clone(), HttpGrant::default())], limits);
    let mut response = fetch(&http, get(origin)).await.unwrap();
    // Nobody reads: the server stops when the kernel's and the connection's buffers are full.
    let mut total = 0_usize;
    while let Ok(Some(length)) = tokio::time::timeout(Duration::from_millis(300), sent.recv()).await
    {
        total += length;
        assert!(total < 64 * 1024 * 1024, "it never stops");
    }
    assert!(total > 0);
    let mut read = 0;
    while read <= total {
        read += soon(response.body.next()).await.unwrap().len();
    }
    assert!(sent.recv().await.is_some(), "it goes on");
}

/// A server whose response begins and never ends.
async fn endless() -> Server {
    Server::start(|path| match path {
        "/silent" => String::new(),
        _ => "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegin".to_owned(),
    })
    .await
}

#[tokio::test]
async fn an_abort_closes_the_connection_although_nobody_reads() {
    let mut server = endless().await;
    let http = http([(server.origin(), HttpGrant::default())]);
    let abort = AbortHandle::new();
    let mut response = soon(http.fetch(get(server.origin()), Some(abort.signal())))
        .await
        .unwrap();
    assert_eq!(soon(response.body.next()).await.unwrap(), "begin");
    abort.abort(AbortReason::UserStop);
    soon(server.closed.recv()).await.unwrap();
    assert_eq!(read(response).await, (String::new(), Err(IoError::Closed)));

    let abort = AbortHandle::new();
    let request = http.fetch(
        get(format!("{}/silent", server.origin())),
        Some(abort.signal()),
    );
    let stop = async {
        while server.seen.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        abort.abort(AbortReason::UserStop);
    };
    let (result, ()) = soon(futures::future::join(request, stop)).await;
    assert!(matches!(result, Err(IoError::Closed)), "{result:?}");
    soon(server.closed.recv()).await.unwrap();
    let result = soon(http.fetch(get(server.origin()), Some(abort.signal()))).await;
    assert!(matches!(result, Err(IoError::Closed)), "{result:?}");
}

#[tokio::test]
async fn the_end_of_the_instance_and_a_dropped_body_close_the_connection() {
    let mut server = endless().await;
    let http = http([(server.origin(), HttpGrant::default())]);
    let dropped = fetch(&http, get(server.origin())).await.unwrap();
    drop(dropped.body);
    soon(server.closed.recv()).await.unwrap();
    assert_eq!(soon(dropped.done).await, Err(IoError::Closed));
    let kept = fetch(&http, get(server.origin())).await.unwrap();
    http.close();
    soon(server.closed.recv()).await.unwrap();
    assert_eq!(read(kept).await.1, Err(IoError::Closed));
    assert!(matches!(
        fetch(&http, get(server.origin())).await,
        Err(IoError::Closed)
    ));
}

#[tokio::test]
async fn time_is_bounded_for_the_head_and_when_asked_for_the_body() {
    let mut server = endless().await;
    let limits = HttpLimits {
        head_timeout: Duration::from_millis(50),
        ..HttpLimits::default()
    };
    let http = limited([(server.origin(), HttpGrant::default())], limits);
    let result = fetch(&http, get(format!("{}/silent", server.origin()))).await;
    assert!(matches!(result, Err(IoError::Limit(_))), "{result:?}");
    soon(server.closed.recv()).await.unwrap();
    let timeout = Some(Duration::from_secs(2));
    let response = fetch(
        &http,
        HttpRequest {
            timeout,
            ..get(server.origin())
        },
    )
    .await
    .unwrap();
    soon(server.closed.recv()).await.unwrap();
    let (body, end) = read(response).await;
    assert_eq!(body, "begin");
    assert!(matches!(end, Err(IoError::Limit(_))), "{end:?}");
}

#[tokio::test]
async fn requests_at_a_time_are_bounded_and_free_when_their_bodies_end() {
    let mut server = endless().await;
    let http = http([(server.origin(), HttpGrant::default())]);
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(fetch(&http, get(server.origin())).await.unwrap());
    }
    let result = fetch(&http, get(server.origin())).await;
    assert!(matches!(result, Err(IoError::Limit(_))), "{result:?}");
    drop(open.pop());
    soon(server.closed.recv()).await.unwrap();
    soon(async {
        while let Err(IoError::Limit(_)) = http.fetch(get(server.origin()), None).await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_breaks_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
            .await
            .unwrap();
    });
    let http = http([(origin.clone(), with_secret("sk-1"))]);
    let response = fetch(&http, get(origin.clone())).await.unwrap();
    let (body, end) = read(response).await;
    assert_eq!(body, "half");
    assert!(matches!(end, Err(IoError::Failed(_))), "{end:?}");
    let refused = fetch(&http, get(format!("{origin}/?key=guest-secret"))).await;
    assert!(
        matches!(&refused, Err(IoError::Failed(why)) if !why.contains("guest-secret")),
        "{refused:?}"
    );
}

/// The environment of this test sets proxies that lead nowhere: see the re-execution below.
#[tokio::test]
async fn proxies_of_the_environment_are_ignored() {
    const INNER: &str = "NATIVE_HTTP_INNER";
    if std::env::var_os(INNER).is_none() {
        // A process of its own: the environment of a running one is shared by all its tests.
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again
            .args(["--exact", "proxies_of_the_environment_are_ignored"])
            .env(INNER, "1");
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            again.env(name, "http://127.0.0.1:1");
        }
        for name in ["no_proxy", "NO_PROXY"] {
            again.env_remove(name);
        }
        let again = again.output().unwrap();
        assert!(
            again.status.success(),
            "{}",
            String::from_utf8_lossy(&again.stdout)
        );
        return;
    }
    let server = Server::start(|_| ok("direct")).await;
    let http = http([(server.origin(), HttpGrant::default())]);
    let response = fetch(&http, get(server.origin())).await.unwrap();
    assert_eq!(read(response).await.0, "direct");
}
