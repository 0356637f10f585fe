//! JSON-RPC against an in-memory process.

use super::*;
use crate::connection::Options;
use crate::connection::tests::{Fake, FakeTransport};
use crate::testing::{block_on, run_until_stalled, spawn};

#[derive(Clone, Default)]
struct Recorder {
    heard: Shared<Vec<String>>,
    faults: Shared<Vec<Fault>>,
    requests: Shared<Vec<Request>>,
}

impl Peer for Recorder {
    fn open(&self) -> LocalBoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn notification(&self, method: &str, params: Value) {
        self.heard
            .with(|heard| heard.push(format!("{method} {params}")));
    }

    fn request(&self, request: Request) {
        if request.method == "known" {
            self.requests.with(|requests| requests.push(request));
        } else {
            request.unknown();
        }
    }

    fn fault(&self, fault: &Fault) {
        self.faults.with(|faults| faults.push(fault.clone()));
    }

    fn closed(&self, _: &ConnectionError) {}
}

fn rig(line_bytes: usize) -> (Rpc, Recorder, Fake) {
    let transport = FakeTransport::default();
    let options = Options {
        line_bytes,
        ..Options::default()
    };
    let connection = Connection::new(transport.clone(), options);
    let (rpc, recorder) = (Rpc::new(connection.clone()), Recorder::default());
    let protocol = rpc.protocol(recorder.clone());
    let running = connection.clone();
    spawn(async move {
        let _ = running.run(std::future::pending::<()>(), &protocol).await;
    });
    block_on(async move { connection.ready().await }).expect("ready");
    (rpc, recorder, transport.take())
}

type Answer = Shared<Option<Result<Value, RpcError>>>;

fn call(rpc: &Rpc, method: &'static str) -> Answer {
    let answer: Answer = Shared::new(None);
    let (rpc, slot) = (rpc.clone(), answer.clone());
    spawn(async move {
        let result = rpc.call(method, &json!({"x": 1})).await;
        slot.replace(Some(result));
    });
    run_until_stalled();
    answer
}

#[test]
fn a_call_gets_the_answer_with_its_id() {
    let (rpc, _, process) = rig(1024);
    let (one, two) = (call(&rpc, "one"), call(&rpc, "two"));
    assert_eq!(
        process.written(),
        [
            r#"{"id":1,"jsonrpc":"2.0","method":"one","params":{"x":1}}"#,
            r#"{"id":2,"jsonrpc":"2.0","method":"two","params":{"x":1}}"#,
        ]
    );
    process
        .say("{\"id\":2,\"result\":\"b\"}\n{\"id\":1,\"error\":{\"code\":5,\"message\":\"no\"}}\n");
    assert_eq!(two.get(), Some(Ok(json!("b"))));
    assert_eq!(
        one.get().and_then(Result::err).and_then(|e| e.code()),
        Some(5)
    );
}

#[test]
fn a_second_answer_is_ignored_and_reported() {
    let (rpc, recorder, process) = rig(1024);
    let answer = call(&rpc, "one");
    process.say("{\"id\":1,\"result\":1}\n{\"id\":1,\"result\":2}\n{\"id\":\"x\",\"result\":3}\n");
    assert_eq!(answer.get(), Some(Ok(json!(1))));
    assert_eq!(
        recorder.faults.get(),
        [
            Fault::UnknownAnswer("1".into()),
            Fault::UnknownAnswer("\"x\"".into())
        ]
    );
}

#[test]
fn a_dropped_call_is_sent_and_its_answer_goes_to_the_orphan_hook() {
    let (rpc, _, process) = rig(1024);
    let orphan: Answer = Shared::new(None);
    let (caller, slot) = (rpc.clone(), orphan.clone());
    block_on(async move {
        let call = caller.call_or("turn/start", &Value::Null, move |result| {
            slot.replace(Some(result));
        });
        let mut call = std::pin::pin!(call);
        // Polled once, then dropped.
        assert!(futures::poll!(&mut call).is_pending());
    });
    assert_eq!(process.written().len(), 1);
    process.say("{\"id\":1,\"result\":\"turn-7\"}\n");
    assert_eq!(orphan.get(), Some(Ok(json!("turn-7"))));
}

#[test]
fn answers_and_notifications_keep_their_order() {
    let (rpc, recorder, process) = rig(1024);
    let heard = recorder.heard.clone();
    rpc.send("prompt", &Value::Null, move |_| {
        heard.with(|heard| heard.push("answer".into()));
    })
    .expect("sent");
    process.say("{\"method\":\"a\",\"params\":1}\n{\"id\":1,\"result\":0}\n{\"method\":\"b\"}\n");
    assert_eq!(recorder.heard.get(), ["a 1", "answer", "b null"]);
}

#[test]
fn noise_is_reported_and_skipped() {
    let (_, recorder, process) = rig(1024);
    process.say("Loading ...\n\n   \n[1]\n{\"method\":\"m\"}\n");
    assert_eq!(recorder.heard.get(), ["m null"]);
    assert_eq!(recorder.faults.with(|faults| faults.len()), 2);
}

#[test]
fn every_request_is_answered_once() {
    let (_, recorder, process) = rig(1024);
    process.say("{\"id\":1,\"method\":\"fs/read\"}\n{\"id\":\"a\",\"method\":\"known\"}\n{\"id\":2,\"method\":\"known\"}\n");
    let mut requests = recorder.requests.with(std::mem::take).into_iter();
    requests
        .next()
        .expect("the first")
        .responder
        .answer(&json!({"ok": true}));
    drop(requests);
    let answers: Vec<Value> = process
        .written()
        .iter()
        .map(|line| serde_json::from_str(line).expect("json"))
        .collect();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0]["error"]["code"], codes::METHOD_NOT_FOUND);
    assert_eq!(
        answers[1],
        json!({"jsonrpc": "2.0", "id": "a", "result": {"ok": true}})
    );
    assert_eq!(
        (&answers[2]["id"], &answers[2]["error"]["code"]),
        (&json!(2), &json!(codes::INTERNAL_ERROR))
    );
}

#[test]
fn open_requests_are_bounded() {
    let (_, recorder, process) = rig(1024);
    for id in 0..1_000 {
        process.say(format!("{{\"id\":{id},\"method\":\"known\"}}\n"));
    }
    assert_eq!(
        recorder.requests.with(|requests| requests.len()),
        OPEN_REQUESTS
    );
    assert_eq!(process.written().len(), 1_000 - OPEN_REQUESTS);
    // Answered ones make room.
    recorder.requests.with(std::mem::take);
    process.say("{\"id\":5000,\"method\":\"known\"}\n");
    assert_eq!(recorder.requests.with(|requests| requests.len()), 1);
}

#[test]
fn an_answer_beyond_the_bound_fails_its_call() {
    let (rpc, recorder, process) = rig(1024);
    let answer = call(&rpc, "big");
    process.say(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"{}\"}}\n",
        "x".repeat(5_000)
    ));
    assert!(matches!(
        answer.get(),
        Some(Err(RpcError::Oversize { limit: 1024, .. }))
    ));
    assert!(matches!(&recorder.faults.get()[..],
        [Fault::Oversize { call: Some(method), .. }] if method == "big"));
}

#[test]
fn the_end_fails_every_waiter() {
    let (rpc, _, mut process) = rig(1024);
    let calls: Vec<_> = (0..10).map(|_| call(&rpc, "m")).collect();
    process.exit.take().map(|exit| exit.send(1));
    drop(process);
    crate::testing::advance(std::time::Duration::from_secs(1));
    for answer in calls {
        assert!(matches!(
            answer.get(),
            Some(Err(RpcError::Connection(ConnectionError::Disconnected(_))))
        ));
    }
    assert!(matches!(
        block_on(async move { rpc.call("m", &Value::Null).await }),
        Err(RpcError::Connection(_))
    ));
}
