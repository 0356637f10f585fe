//! Gates of the host over HTTP: a real session layer, whose gate host the test holds
//! (S82, S88, S105, S117).

use crate::support::*;
use harness_core::abort::AbortSignal;
use harness_core::gate::{Choice, Field, FieldKind, FieldValue, HostAnswer, HostAsk, Shown};
use harness_core::ids::{HarnessId, SessionId};
use harness_core::provider::{
    BoxFuture, CallError, Harness, HarnessInfo, HarnessStatus, Harnesses, Instance, InstanceHost,
    InstanceScope, ProviderState, TimeoutStrategy, WorkspaceNeed,
};
use harness_journal::{Catalog, Workspace, WorkspaceState, WorkspaceTarget};
use harness_session::{
    Caller, CreateRequest, DraftRequest, First, GateHost, Host, HostConfig, HostGate, Parts,
};
use serde_json::{Value, json};
use std::sync::Arc;

const ADDRESS: &str = "https://login.example/authorize?state=s3cret";

/// A harness that can be chosen and has no instance.
struct OneHarness;

impl Harnesses for OneHarness {
    fn list(&self) -> Vec<Arc<dyn Harness>> {
        vec![Arc::new(Chosen("demo/planner".parse().unwrap()))]
    }
    fn get(&self, id: &HarnessId) -> Option<Arc<dyn Harness>> {
        self.list().into_iter().find(|h| h.id() == id)
    }
}

struct Chosen(HarnessId);

impl Harness for Chosen {
    fn id(&self) -> &HarnessId {
        &self.0
    }
    fn info(&self) -> Option<Arc<HarnessInfo>> {
        Some(Arc::new(HarnessInfo {
            id: self.0.clone(),
            label: "Planner".into(),
            version: "0.1.0".into(),
            models: vec![],
            loop_modes: vec![],
            params: vec![],
            workspace: WorkspaceNeed::Any,
            timeout: TimeoutStrategy::Activity,
            features: Default::default(),
        }))
    }
    fn status(&self) -> HarnessStatus {
        HarnessStatus {
            state: ProviderState::Ready,
            reason: None,
            readiness: None,
        }
    }
    fn open(
        &self,
        _: InstanceScope,
        _: Arc<dyn InstanceHost>,
    ) -> BoxFuture<'_, Result<Arc<dyn Instance>, CallError>> {
        Box::pin(std::future::ready(Err(CallError::Lost("none".into()))))
    }
}

struct Asked {
    server: Server,
    gates: GateHost,
    session: SessionId,
}

async fn asked() -> Asked {
    let mut server = server().await;
    let parts = Parts::new(
        server.store.clone(),
        server.store.clone(),
        Arc::new(OneHarness),
        HostConfig::default(),
    );
    let (host, gates) = Host::with_gate_host(parts);
    let project = "default".parse().unwrap();
    let workspace = Workspace {
        id: "main".parse().unwrap(),
        project_id: project,
        target: WorkspaceTarget::Remote {
            host: "h".into(),
            path: "/p".into(),
        },
        state: WorkspaceState::Ready,
    };
    server.store.create_workspace(workspace).await.unwrap();
    server.serve(Arc::new(host.clone()));
    let session = new_session(&host).await;
    Asked {
        server,
        gates,
        session,
    }
}

async fn new_session(host: &Host) -> SessionId {
    let request = CreateRequest {
        draft: DraftRequest {
            project_id: "default".parse().unwrap(),
            agent: "demo/planner".parse().unwrap(),
            workspace_id: Some("main".parse().unwrap()),
            model: None,
            params: Default::default(),
        },
        title: "Asked".into(),
        first: First::Prompt(vec![harness_core::content::Block::Text {
            text: "x".into(),
        }]),
    };
    let created = host.create(Caller::default(), request, AbortSignal::never());
    created.await.unwrap().session.id
}

impl Asked {
    fn at(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.session)
    }

    async fn open(&self, ask: HostAsk) -> (Value, harness_core::ids::GateId) {
        let gate = self
            .gates
            .open_host_gate(self.session, HostGate::waiting(ask))
            .await
            .unwrap();
        let (status, list) = self.server.get(&self.at("/gates")).await;
        assert_eq!(status, 200);
        let same = |g: &&Value| g["gate_id"] == gate.to_string();
        let listed = list["items"].as_array().unwrap().iter().find(same);
        (listed.unwrap().clone(), gate)
    }
}

fn form() -> HostAsk {
    let field = |name: &str, kind: FieldKind| Field {
        name: name.into(),
        label: name.into(),
        description: None,
        kind,
        required: false,
        secret: false,
        default: None,
    };
    let choice = |value: &str| Choice {
        value: value.into(),
        label: value.into(),
        description: None,
    };
    let range = FieldKind::Integer {
        min: Some(1),
        max: Some(65_535),
    };
    let ways = FieldKind::Choice {
        choices: vec![choice("left"), choice("right")],
        multiple: true,
    };
    let default = Some(Shown::Value(FieldValue::Text("s3cret".into())));
    HostAsk::Form {
        message: "Where does it run?".into(),
        fields: vec![
            Field {
                required: true,
                ..field("name", FieldKind::Text {})
            },
            field("port", range),
            field("ways", ways),
            Field {
                secret: true,
                default,
                ..field("key", FieldKind::Text {})
            },
        ],
    }
}

#[tokio::test]
async fn s88_s117_a_page_to_open_is_listed_and_answered() {
    let asked = asked().await;
    let ask = HostAsk::OpenUrl {
        message: "Sign in".into(),
        url: ADDRESS.into(),
    };
    let (listed, gate) = asked.open(ask).await;
    assert_eq!(listed["kind"], "open_url");
    assert_eq!(listed["url"], ADDRESS);
    assert_eq!(listed["actions"], json!(["answer", "decline"]));
    assert_eq!(listed["policy"], json!({"kind": "wait"}));
    assert_eq!(
        listed["payload"],
        json!({"title": "Open login.example", "origin": "https://login.example", "message": "Sign in"})
    );
    let path = asked.at(&format!("/gates/{gate}"));
    let values = json!({"action": "answer", "values": {"opened": true}});
    asked
        .server
        .refuses(post(&path, values), 400, "invalid_request")
        .await;
    asked
        .server
        .refuses(
            post(&path, json!({"action": "approve_once"})),
            400,
            "gate_kind_mismatch",
        )
        .await;
    let (status, body) = asked.server.post(&path, json!({"action": "answer"})).await;
    assert_eq!(
        (status.as_u16(), body),
        (202, json!({"delivery": "acknowledged"}))
    );
    asked
        .server
        .refuses(
            post(&path, json!({"action": "decline"})),
            404,
            "gate_not_found",
        )
        .await;
    let answer = asked.gates.await_gate_answer(gate).await.unwrap();
    assert_eq!(answer, HostAnswer::Opened);
    // The journal, which clients page, never had it.
    let (_, journal) = asked.server.get(&asked.at("/journal")).await;
    assert!(journal.to_string().contains("GateOpened"));
    assert!(!journal.to_string().contains("s3cret"));
}

#[tokio::test]
async fn s82_s105_values_of_a_form_are_checked_with_clear_errors() {
    let asked = asked().await;
    let (listed, gate) = asked.open(form()).await;
    assert_eq!(
        listed["payload"]["title"],
        "Fill in 4 fields, 1 of them secret"
    );
    let fields = &listed["payload"]["fields"];
    assert_eq!(
        fields[1],
        json!({"name": "port", "label": "port", "type": "integer", "min": 1, "max": 65535, "required": false, "secret": false})
    );
    assert_eq!(fields[2]["type"], "choice");
    assert_eq!(fields[3]["default"], json!({"redacted": true}));
    let path = asked.at(&format!("/gates/{gate}"));
    let answer = |values: Value| post(&path, json!({"action": "answer", "values": values}));
    let long = "x".repeat(16 * 1024 + 1);
    for (values, status, code, words) in [
        (json!({}), 400, "invalid_request", "`name` is missing"),
        (
            json!({"name": "Ada", "port": "80"}),
            400,
            "invalid_request",
            "from 1 to 65535",
        ),
        (
            json!({"name": "Ada", "ways": ["up"]}),
            400,
            "invalid_request",
            "its choices",
        ),
        (
            json!({"name": "Ada", "prot": 1}),
            400,
            "invalid_request",
            "`prot` is no field",
        ),
        (
            json!({"answers": [["Ada"]]}),
            400,
            "invalid_request",
            "`answers` is no field",
        ),
        (json!({"name": long}), 413, "payload_too_large", "16385"),
    ] {
        let problem = asked.server.refuses(answer(values), status, code).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{detail}");
    }
    let none = post(&path, json!({"action": "answer"}));
    asked.server.refuses(none, 400, "invalid_request").await;
    let values = json!({"name": "Ada", "port": 8080, "ways": ["right"]});
    let (status, _) = asked
        .server
        .post(&path, json!({"action": "answer", "values": values}))
        .await;
    assert_eq!(status, 202);
    let HostAnswer::Filled(values) = asked.gates.await_gate_answer(gate).await.unwrap() else {
        panic!("it is filled in");
    };
    assert_eq!(values["port"], FieldValue::Integer(8080));
    assert_eq!(values["ways"], FieldValue::Choices(vec!["right".into()]));
    assert_eq!(values["key"], FieldValue::Text("s3cret".into()));
}
