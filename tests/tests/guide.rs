//! The API guide's examples, run exactly as they are printed (G1, S38).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failed test"
)]

use harness_tests::{Setup, TOKEN, blocks, missing, run_blocks, values};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread")]
async fn g1_s38_the_api_guide_works_as_printed() {
    if missing(&["bash", "curl", "jq"]) {
        return;
    }
    let blocks = blocks("docs/api-guide.md", None, "sh");
    let host = Setup::plain().start();
    let outputs = run_blocks(&host, &blocks, &[("ADMIN", TOKEN)]).await;
    let [
        token,
        _,
        discover,
        create,
        follow,
        prompt,
        operate,
        gates,
        stop,
        begun,
        set,
        folded,
        stopped,
        compacted,
        delegated,
        snapped,
        shut,
        filtered,
        session,
    ] = &outputs[..]
    else {
        panic!("the guide has other examples now: {outputs:#?}");
    };

    assert_eq!(
        values(shut)[..2],
        [
            json!({"stopped": true, "expired_phases": []}),
            json!({"status": "stopped"})
        ]
    );
    assert_ne!(values(shut)[2]["status"], "stopped");

    let delegate = &values(delegated)[1];
    assert_eq!(
        (&delegate["agent"], &delegate["state"]),
        (&json!("demo/planner"), &json!("open"))
    );

    let (reference, answers) = snapped.trim().split_once('\n').unwrap();
    assert!(reference.starts_with("v1:sha256:"), "{reference}");
    let answers = values(answers);
    assert_eq!(answers[0], json!({"ref": reference}));
    let events: Vec<_> = answers[1..].iter().map(|e| &e["type"]).collect();
    assert_eq!(events, ["WorkspaceCheckpointed", "WorkspaceRestored"]);

    let token = &values(token)[0];
    assert_eq!(
        (&token["name"], &token["projects"]),
        (&json!("ci"), &json!(["default"]))
    );
    assert!(
        token["token"].as_str().unwrap().starts_with("hh_"),
        "{token}"
    );

    let found = values(discover);
    assert_eq!(found[0], json!({"id": "demo/planner", "state": "ready"}));
    assert_eq!(found[1]["harnessId"], "demo/planner");
    assert!(
        found[1]["commands"]
            .as_array()
            .unwrap()
            .contains(&json!("/note"))
    );

    assert!(uuid::Uuid::parse_str(session.trim()).is_ok(), "{session}");
    assert_eq!(create.trim(), session.trim());
    assert_eq!(follow.lines().next(), Some("event: snapshot"));
    assert!(values(prompt)[0]["command_id"].is_string(), "{prompt}");
    let result = &values(operate)[0];
    assert_eq!(
        (&result["status"], &result["message"]),
        (&json!("completed"), &json!(" ship it")),
        "byte for byte"
    );

    let gates = values(gates);
    let [asked, listed, approved, questioned, answered, again] = &gates[..] else {
        panic!("{gates:#?}");
    };
    assert!(asked["command_id"].is_string() && questioned["command_id"].is_string());
    assert_eq!(listed["kind"], "permission");
    assert_eq!(approved["delivery"], "acknowledged");
    assert_eq!(answered["delivery"], "acknowledged");
    assert_eq!(again["code"], "gate_not_found");

    assert_eq!(values(stop)[1], json!({"interrupted": true}));
    loops(begun, set, folded);
    let interrupted = json!({"interrupted": true});
    assert_eq!(
        values(stopped)[2..],
        [interrupted.clone(), json!([true, false]), interrupted]
    );
    let summary = values(compacted)[0][0].as_str().unwrap().to_owned();
    assert!(summary.starts_with("Summary of the demo"), "{summary}");
    assert_eq!(
        filtered.lines().collect::<Vec<_>>(),
        [
            "event: TurnStarted",
            "event: TurnDone",
            "event: TurnStarted",
            "event: TurnFoldedInto",
            "event: TurnDone",
            "event: TurnStarted",
            "event: TurnInterrupted",
        ],
        "of the one loop"
    );
}

/// The outputs of the examples about loops and folding.
fn loops(begun: &str, set: &str, folded: &str) {
    let begun = values(begun);
    let [_, roles, active, first, second] = &begun[..] else {
        panic!("{begun:#?}");
    };
    assert_eq!(roles, &json!(["user", "assistant"]));
    assert_eq!(active["active_loop_id"], second["loop_id"]);
    assert_eq!(
        (&first["model"], &second["model"]),
        (&json!(null), &json!("m2"))
    );
    assert_eq!(second["modes"][1]["name"], "review");

    let set = values(set);
    assert_eq!(
        (&set[0]["mode"], &set[0]["effective"]),
        (&json!("review"), &json!("next_turn"))
    );
    assert_eq!(
        (&set[1]["mode"], &set[1]["model"]),
        (&json!("review"), &json!("m1"))
    );
    assert_eq!(set[2]["code"], "invalid_mode");

    let folded = values(folded);
    let said = folded[2].as_array().unwrap();
    let at = said.iter().position(|text| text == "Shorter.").unwrap();
    assert_eq!(said[at + 1], "Taken up: “Shorter.”.");
    assert_eq!(folded[3]["code"], "folding_unavailable");
}

/// What the guide says of requests that are no HTTP/1.1.
#[tokio::test(flavor = "multi_thread")]
async fn g1_the_http_parser_answers_with_a_status_alone() {
    let host = Setup::plain().start();
    let address = host.url().trim_start_matches("http://").to_owned();
    let headers = "x: y\r\n".repeat(101);
    for (head, status) in [
        ("NOT HTTP\r\n\r\n".to_owned(), "400"),
        (
            format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(70_000)),
            "414",
        ),
        (format!("GET / HTTP/1.1\r\n{headers}\r\n"), "431"),
    ] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n\r\n"), "no body: {answer}");
    }
}
