//! Gates of the host: what is asked and answered, and that they resolve in every state
//! (S81, S82, S87, S88, race matrix).

use crate::scenes::{
    awaiting_gate, exclusive_starting, faulted, idle, idle_control, prompt_starting, queued,
    stopping, turn_ended, turn_running,
};
use crate::support::{LOOP, Sim, code, permission, stopped};
use harness_core::command::{Answers, CommandBody};
use harness_core::event::EventBody;
use harness_core::gate::{
    AnswerSource, Choice, CloseReason, Field, FieldKind, FieldValue, GateAsk, GateReply,
    HostAnswer, HostAsk, MAX_ANSWER, Shown,
};
use harness_core::ids::{GateId, LoopId};
use harness_core::session::{Answer, Input, MAX_HOST_GATES, Record};
use serde_json::{Map, Value, json};

fn field(name: &str, kind: FieldKind) -> Field {
    Field {
        name: name.into(),
        label: name.to_uppercase(),
        description: None,
        kind,
        required: false,
        secret: false,
        default: None,
    }
}

fn choices(multiple: bool) -> FieldKind {
    let choice = |value: &str| Choice {
        value: value.into(),
        label: value.into(),
        description: None,
    };
    FieldKind::Choice {
        choices: vec![choice("left"), choice("right")],
        multiple,
    }
}

fn fields() -> Vec<Field> {
    vec![
        Field {
            required: true,
            ..field("name", FieldKind::Text {})
        },
        field(
            "port",
            FieldKind::Integer {
                min: Some(1),
                max: Some(65_535),
            },
        ),
        field("public", FieldKind::Boolean {}),
        field("way", choices(false)),
        field("tags", choices(true)),
        Field {
            secret: true,
            default: Some(Shown::Value(FieldValue::Text("s3cret-default".into()))),
            ..field("key", FieldKind::Text {})
        },
    ]
}

fn form() -> HostAsk {
    HostAsk::Form {
        message: "Where does it run?".into(),
        fields: fields(),
    }
}

fn page(url: &str) -> HostAsk {
    HostAsk::OpenUrl {
        message: "Sign in".into(),
        url: url.into(),
    }
}

fn stored(ask: &HostAsk) -> GateAsk {
    ask.gate().unwrap().0
}

fn fill(values: Value) -> GateReply {
    let Value::Object(values) = values else {
        panic!("values are an object");
    };
    GateReply::Fill(values)
}

impl Sim {
    fn open(&mut self, ask: &HostAsk) -> GateId {
        let input = Input::OpenHostGate {
            ask: stored(ask),
            loop_id: None,
        };
        match self.feed(input) {
            Answer::Asked(gate_id) => gate_id,
            other => panic!("not asked: {other:?}"),
        }
    }

    /// What its opener got.
    fn told(&self, gate: GateId) -> Option<HostAnswer> {
        self.host_gates.get(&gate).cloned()
    }

    fn resolved(&self, gate: GateId) -> (CloseReason, Option<AnswerSource>) {
        let found = self.events().find_map(|e| match &e.body {
            EventBody::GateResolved {
                gate_id,
                reason,
                source,
            } if *gate_id == gate => Some((*reason, *source)),
            _ => None,
        });
        found.expect("the gate is resolved")
    }
}

#[test]
fn s80_s88_a_host_gate_is_prepared_opened_and_answered_once() {
    let mut sim = idle().sim;
    let mark = sim.mark();
    let gate = sim.open(&form());
    assert_eq!(sim.names_since(mark), ["GatePrepared", "GateOpened"]);
    let listed = sim.session.state.gates();
    assert_eq!((listed.len(), listed[0].loop_id), (1, LOOP));
    assert_eq!(listed[0].ask.actions(), ["answer", "decline"]);
    assert_eq!(sim.session.view().open_gates, 1);
    assert!(!sim.session.state.active, "it is no work of the session");
    let mark = sim.mark();
    let answer = sim.answer(gate, fill(json!({"name": "Ada"})));
    assert_eq!(answer, Answer::Accepted);
    assert_eq!(sim.names_since(mark), ["ProvideUserInput", "GateResolved"]);
    assert_eq!(
        sim.resolved(gate),
        (CloseReason::Answered, Some(AnswerSource::Human))
    );
    let values = [("name".to_owned(), FieldValue::Text("Ada".into()))].into();
    assert_eq!(sim.told(gate), Some(HostAnswer::Filled(values)));
    assert_eq!(
        code(&sim.answer(gate, GateReply::Decline)),
        "gate_not_found"
    );
    let page = sim.open(&page("https://a.example/x"));
    sim.answer(page, GateReply::Confirm);
    assert_eq!(sim.told(page), Some(HostAnswer::Opened));
    let again = sim.open(&form());
    sim.answer(again, GateReply::Decline);
    assert_eq!(sim.told(again), Some(HostAnswer::Declined));
}

#[test]
fn s88_matrix_host_gates_resolve_in_every_state() {
    let mut held = queued().sim;
    held.crash();
    let mut compacting = idle().sim;
    compacting.harness.as_mut().unwrap().features.compaction = true;
    compacting.compact(LOOP);
    assert!(compacting.live().owner.is_some(), "it compacts");
    let states: [(&str, Sim); 11] = [
        ("idle", idle().sim),
        ("idle, held", held),
        ("queued", queued().sim),
        ("prompt starting", prompt_starting().sim),
        ("exclusive starting", exclusive_starting().sim),
        ("running", turn_running().sim),
        ("awaiting gate", awaiting_gate().sim),
        ("turn ended", turn_ended().sim),
        ("stopping", stopping().sim),
        ("idle control", idle_control().sim),
        ("compacting", compacting),
    ];
    for (name, mut sim) in states {
        let (status, owner) = (sim.status(), sim.live().owner.clone());
        let page = sim.open(&page("https://a.example"));
        let form = sim.open(&form());
        assert_eq!(sim.status(), status, "{name}: it is no work");
        assert_eq!(sim.answer(page, GateReply::Confirm), Answer::Accepted);
        assert_eq!(sim.told(page), Some(HostAnswer::Opened), "{name}");
        assert_eq!(sim.answer(form, GateReply::Decline), Answer::Accepted);
        assert_eq!(sim.told(form), Some(HostAnswer::Declined), "{name}");
        assert_eq!(sim.live().owner, owner, "{name}: what runs goes on");
        assert_eq!(sim.status(), status, "{name}");
    }
}

#[test]
fn s85_s88_a_stop_leaves_host_gates_alone() {
    let mut scene = awaiting_gate();
    let gate = scene.sim.open(&form());
    scene.sim.interrupt();
    scene.sim.done(scene.runner.unwrap(), stopped());
    assert_eq!(scene.sim.told(gate), None);
    let open = scene.sim.session.state.gates();
    assert_eq!(open.len(), 1, "the loop's is abandoned");
    assert_eq!(open[0].gate_id, gate);
    scene.sim.answer(gate, GateReply::Decline);
    assert_eq!(scene.sim.told(gate), Some(HostAnswer::Declined));
}

#[test]
fn s88_host_gates_end_with_the_session_and_are_opened_in_none_that_ends() {
    type End = fn(&mut Sim);
    let ends: [(End, &str); 2] = [
        (
            |sim| {
                let origin = sim.origin();
                sim.feed(Input::Shutdown(origin));
            },
            "session_stopped",
        ),
        (
            |sim| {
                sim.feed(Input::Close);
            },
            "host_shutting_down",
        ),
    ];
    for (end, refused) in ends {
        let mut sim = idle().sim;
        let gate = sim.open(&form());
        end(&mut sim);
        assert_eq!(sim.resolved(gate).0, CloseReason::OwnerClosed);
        let closed = HostAnswer::Closed(CloseReason::OwnerClosed);
        assert_eq!(sim.told(gate), Some(closed));
        assert_eq!(
            code(&sim.answer(gate, GateReply::Decline)),
            "gate_not_found"
        );
        let ask = stored(&form());
        let again = sim.feed(Input::OpenHostGate { ask, loop_id: None });
        assert_eq!(code(&again), refused);
    }
    let mut sim = faulted().sim;
    let ask = stored(&form());
    let again = sim.feed(Input::OpenHostGate { ask, loop_id: None });
    assert_eq!(code(&again), "session_faulted");
}

#[test]
fn s62_s88_a_fault_tells_openers_and_takes_no_answer() {
    let mut sim = turn_running().sim;
    let gate = sim.open(&form());
    sim.feed(Input::Fault("disk".into()));
    let closed = HostAnswer::Closed(CloseReason::OwnerClosed);
    assert_eq!(sim.told(gate), Some(closed));
    let refused = sim.answer(gate, GateReply::Decline);
    assert_eq!(code(&refused), "session_faulted");
}

#[test]
fn s87_s88_a_restore_closes_host_gates_as_unavailable() {
    let mut sim = idle().sim;
    let gate = sim.open(&page("https://a.example"));
    assert!(
        sim.session.state.needs_recovery(),
        "the host looks at start"
    );
    let mark = sim.mark();
    sim.crash();
    assert_eq!(
        sim.names_since(mark),
        ["RestoreStarted", "GateResolved", "RestoreDone"]
    );
    assert_eq!(sim.resolved(gate), (CloseReason::RestoreUnavailable, None));
    assert!(sim.session.state.gates().is_empty());
    assert_eq!(
        code(&sim.answer(gate, GateReply::Confirm)),
        "gate_not_found"
    );
}

#[test]
fn s86_s88_a_policy_answers_and_loses_to_a_person() {
    let mut sim = idle().sim;
    let gate = sim.open(&form());
    sim.disk_full = true;
    sim.feed(Input::GateTimeout(gate));
    assert_eq!(sim.told(gate), None, "nobody is told what is not written");
    sim.disk_full = false;
    sim.feed(Input::GateTimeout(gate));
    assert_eq!(sim.told(gate), Some(HostAnswer::Timeout));
    assert_eq!(
        sim.resolved(gate),
        (CloseReason::PolicyResponse, Some(AnswerSource::Policy))
    );
    let gate = sim.open(&form());
    sim.answer(gate, GateReply::Decline);
    assert_eq!(sim.feed(Input::GateTimeout(gate)), Answer::None);
}

#[test]
fn s82_s88_a_failed_resolve_leaves_it_answerable_and_a_failed_close_open() {
    let mut sim = idle().sim;
    let gate = sim.open(&form());
    sim.disk_full = true;
    assert_eq!(
        code(&sim.answer(gate, GateReply::Decline)),
        "store_unavailable"
    );
    assert_eq!(
        code(&sim.feed(Input::CloseHostGate(gate))),
        "store_unavailable"
    );
    assert_eq!(sim.told(gate), None);
    sim.disk_full = false;
    assert_eq!(sim.feed(Input::CloseHostGate(gate)), Answer::Bool(true));
    assert_eq!(sim.resolved(gate).0, CloseReason::Withdrawn);
    let closed = HostAnswer::Closed(CloseReason::Withdrawn);
    assert_eq!(sim.told(gate), Some(closed));
    assert_eq!(sim.feed(Input::CloseHostGate(gate)), Answer::Bool(false));
}

#[test]
fn s88_a_loop_opens_no_gate_of_the_host_nor_the_host_one_of_a_loop() {
    let mut scene = turn_running();
    let mark = scene.sim.mark();
    let asked = scene.sim.feed(Input::Ask {
        invocation: scene.runner.unwrap(),
        ask: stored(&form()),
        stored_rules: false,
    });
    assert!(
        matches!(
            asked,
            Answer::Channel(harness_core::provider::ChannelError::Denied(_))
        ),
        "{asked:?}"
    );
    for ask in [permission(&[]), crate::support::form()] {
        let refused = scene.sim.feed(Input::OpenHostGate { ask, loop_id: None });
        assert_eq!(code(&refused), "invalid_request");
    }
    assert!(scene.sim.names_since(mark).is_empty());
    // Nor is there a word for it: the kinds of loops are none that a host can ask.
    for kind in ["permission", "ask_user", "anything"] {
        let payload = json!({"message": "x", "fields": [], "url": "https://a.example"});
        let asked = json!({"kind": kind, "payload": payload});
        assert!(serde_json::from_value::<HostAsk>(asked).is_err(), "{kind}");
    }
    let asked =
        json!({"kind": "open_url", "payload": {"message": "x", "url": "https://a.example"}});
    assert!(serde_json::from_value::<HostAsk>(asked).is_ok());
}

#[test]
fn s88_open_gates_of_the_host_are_bounded() {
    let mut sim = idle().sim;
    for _ in 0..MAX_HOST_GATES {
        sim.open(&page("https://a.example"));
    }
    let ask = stored(&form());
    let more = sim.feed(Input::OpenHostGate { ask, loop_id: None });
    assert_eq!(code(&more), "capacity");
    let ask = stored(&form());
    let loop_id = Some(LoopId(uuid::Uuid::max()));
    let lost = idle().sim.feed(Input::OpenHostGate { ask, loop_id });
    assert_eq!(code(&lost), "loop_not_found");
}

#[test]
fn s81_i37_neither_address_nor_secret_is_in_any_record() {
    let mut sim = idle().sim;
    let address = "https://login.example:8443/authorize?state=s3cret-state#s3cret-part";
    let page = sim.open(&page(address));
    let form = sim.open(&form());
    sim.answer(page, GateReply::Confirm);
    let given = json!({"name": "Ada", "key": "s3cret-value"});
    sim.answer(form, fill(given));
    let Some(HostAnswer::Filled(values)) = sim.told(form) else {
        panic!("it is filled in");
    };
    assert_eq!(values["key"], FieldValue::Text("s3cret-value".into()));
    assert!(!format!("{:?}", sim.told(form)).contains("s3cret"));
    for record in &sim.journal {
        let bytes = String::from_utf8(record.encode().unwrap().bytes).unwrap();
        assert!(!bytes.contains("s3cret"), "{bytes}");
        assert!(!bytes.contains("authorize"), "{bytes}");
    }
    let answers: Vec<_> = sim
        .journal
        .iter()
        .filter_map(|r| match r {
            Record::Command(c) => match &c.body {
                CommandBody::ProvideUserInput { answer, .. } => answer.clone(),
                _ => None,
            },
            Record::Event(_) => None,
        })
        .collect();
    let [Answers::Questions(opened), Answers::Fields(filled)] = answers.as_slice() else {
        panic!("{answers:?}");
    };
    assert!(opened.is_empty());
    assert_eq!(filled["key"], Shown::REDACTED);
    assert_eq!(filled["name"], Shown::Value(FieldValue::Text("Ada".into())));
}

#[test]
fn s88_what_users_trust_is_computed() {
    let (ask, secrets) = page("HTTPS://LOGIN.Example:443/path?q=1").gate().unwrap();
    let GateAsk::OpenUrl(shown) = &ask else {
        panic!("{ask:?}");
    };
    assert_eq!(shown.title, "Open login.example");
    assert_eq!(shown.origin, "https://login.example");
    let url = secrets.url.unwrap();
    assert_eq!(
        url, "https://login.example/path?q=1",
        "what is shown is opened"
    );
    let GateAsk::Form(shown) = stored(&form()) else {
        panic!("a form");
    };
    assert_eq!(shown.title, "Fill in 6 fields, 1 of them secret");
    let key = shown.fields.iter().find(|f| f.name == "key").unwrap();
    assert_eq!(key.default, Some(Shown::REDACTED), "S117");
    // An opener has no member for them.
    let payload = json!({"message": "x", "url": "https://a.example", "title": "Your bank"});
    let asked = serde_json::from_value::<HostAsk>(json!({"kind": "open_url", "payload": payload}));
    let (ask, _) = asked.unwrap().gate().unwrap();
    assert!(!format!("{ask:?}").contains("bank"));
}

#[test]
fn s88_addresses_that_are_not_opened() {
    for (url, fits) in [
        ("https://a.example", true),
        ("http://localhost:8080/x", true),
        ("http://127.0.0.1:8080", true),
        ("http://[::1]/", true),
        ("http://a.example", false),
        ("javascript:alert(1)", false),
        ("file:///etc/passwd", false),
        ("data:text/html,x", false),
        ("https://good.example@evil.example/", false),
        ("https://user:word@a.example/", false),
        ("a.example", false),
        ("", false),
    ] {
        let refused = page(url).gate();
        assert_eq!(refused.is_ok(), fits, "{url}");
    }
    let long = format!("https://a.example/{}", "x".repeat(16 * 1024));
    assert!(page(&long).gate().is_err());
    // A host in another script is shown as it is looked up.
    let (ask, _) = page("https://аpple.example").gate().unwrap();
    let shown = serde_json::to_value(&ask).unwrap();
    assert_eq!(shown["payload"]["origin"], "https://xn--pple-43d.example");
}

#[test]
fn s88_forms_that_cannot_be_asked() {
    let ask = |fields: Vec<Field>| HostAsk::Form {
        message: "x".into(),
        fields,
    };
    let text = || field("a", FieldKind::Text {});
    let with = |default: Shown, kind: FieldKind| Field {
        default: Some(default),
        ..field("a", kind)
    };
    let number = || FieldKind::Integer {
        min: None,
        max: Some(9),
    };
    let bad: Vec<(&str, Vec<Field>)> = vec![
        ("none", vec![]),
        (
            "too many",
            (0..65)
                .map(|n| field(&n.to_string(), FieldKind::Text {}))
                .collect(),
        ),
        ("twice", vec![text(), text()]),
        ("no name", vec![field("", FieldKind::Text {})]),
        (
            "long name",
            vec![field(&"x".repeat(129), FieldKind::Text {})],
        ),
        (
            "long label",
            vec![Field {
                label: "x".repeat(5000),
                ..text()
            }],
        ),
        (
            "empty range",
            vec![field(
                "a",
                FieldKind::Integer {
                    min: Some(2),
                    max: Some(1),
                },
            )],
        ),
        (
            "no choices",
            vec![field(
                "a",
                FieldKind::Choice {
                    choices: vec![],
                    multiple: false,
                },
            )],
        ),
        (
            "redacted default",
            vec![with(Shown::REDACTED, FieldKind::Text {})],
        ),
        (
            "default of another type",
            vec![with(Shown::Value(FieldValue::Boolean(true)), number())],
        ),
        (
            "default out of range",
            vec![with(Shown::Value(FieldValue::Integer(10)), number())],
        ),
        (
            "default that is no choice",
            vec![with(
                Shown::Value(FieldValue::Text("up".into())),
                choices(false),
            )],
        ),
    ];
    for (name, fields) in bad {
        assert!(ask(fields).gate().is_err(), "{name}");
    }
    for message in [String::new(), "x".repeat(5000)] {
        let fields = vec![text()];
        assert!(HostAsk::Form { message, fields }.gate().is_err());
    }
}

#[test]
fn s82_values_are_checked_against_the_form_and_never_repeated() {
    let ask = stored(&form());
    let long = "s3cret".repeat(MAX_ANSWER);
    let table: Vec<(Value, &str)> = vec![
        (json!({}), "field `name` is missing"),
        (json!({"name": ""}), "not empty"),
        (json!({"name": 7}), "field `name` takes a text"),
        (
            json!({"name": "Ada", "port": "80"}),
            "a whole number from 1 to 65535",
        ),
        (json!({"name": "Ada", "port": 0}), "from 1 to 65535"),
        (json!({"name": "Ada", "port": 80.5}), "a whole number"),
        (json!({"name": "Ada", "public": "yes"}), "true or false"),
        (json!({"name": "Ada", "way": "up"}), "one of its choices"),
        (
            json!({"name": "Ada", "way": ["left"]}),
            "one of its choices",
        ),
        (json!({"name": "Ada", "tags": "left"}), "a list"),
        (
            json!({"name": "Ada", "tags": ["left", "left"]}),
            "at most once",
        ),
        (json!({"name": "Ada", "tags": ["s3cret"]}), "of its choices"),
        (json!({"name": "Ada", "key": {"s3cret": 1}}), "takes a text"),
        (
            json!({"name": "Ada", "nmae": "x"}),
            "`nmae` is no field of this form; it has `name`, `port`",
        ),
        (json!({"name": "Ada", "key": long}), "98304 bytes"),
        (json!({"name": null}), "takes a text"),
    ];
    for (given, words) in table {
        let refused = fill(given.clone()).check(&ask).unwrap_err().to_string();
        assert!(refused.contains(words), "{given}: {refused}");
        assert!(!refused.contains("s3cret"), "{refused}");
    }
    let all = json!({
        "name": "Ada", "port": 80, "public": false, "way": "left", "tags": ["right"], "key": "k"
    });
    assert_eq!(fill(all).check(&ask), Ok(()));
    // Values of another shape, or none at all.
    let page = stored(&page("https://a.example"));
    let question = crate::support::form();
    let lists = || GateReply::Answer(vec![vec![]]);
    for (reply, ask, words) in [
        (GateReply::Confirm, &ask, "`values` is missing"),
        (lists(), &ask, "`answers` is no field"),
        (fill(json!({"a": 1})), &page, "leave them out"),
        (lists(), &page, "leave them out"),
        (GateReply::Confirm, &question, "`values` is missing"),
        (fill(json!({"answers": 1})), &question, "list of lists"),
        (fill(json!({"answers": [], "x": 1})), &question, "`x`"),
    ] {
        let refused = reply.check(ask).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    for reply in [GateReply::ApproveOnce, GateReply::Deny(None)] {
        let refused = reply.check(&ask).unwrap_err();
        assert!(matches!(
            refused,
            harness_core::gate::ReplyError::KindMismatch { kind: "form", .. }
        ));
    }
    let empty = GateReply::Fill(Map::new()).check(&permission(&[]));
    assert!(empty.is_err());
}
