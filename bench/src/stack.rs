//! The whole host in this process: store, engine, sessions and HTTP, as `harness serve` plugs them
//! together.

use crate::client::Client;
use anyhow::{Context, Result, bail};
use harness_api::{ApiParts, ApiState, Policy};
use harness_engine::{
    ComponentSource, DelegationGrant, Engine, EngineConfig, Grants, HostKey, ProcessCwd,
    ProcessGrant, ProviderSpec, Registry, StateGrant,
};
use harness_journal::{SqliteOptions, SqliteStore};
use harness_session::{Host, HostConfig, Parts};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TOKEN: &str = "benchmark-token-benchmark-token";

/// A running host.
pub(crate) struct Stack {
    pub(crate) address: SocketAddr,
    pub(crate) host: Host,
    pub(crate) store: SqliteStore,
    pub(crate) registry: Registry,
    pub(crate) dir: tempfile::TempDir,
}

/// The planner with the grants it asks for.
pub(crate) fn planner() -> ProviderSpec {
    let path = harness_test_guests::PROVIDER_PLANNER.into();
    let mut spec = ProviderSpec::new(ComponentSource::File(path));
    let sleep = ProcessGrant {
        command: vec!["sleep".into(), "1".into()],
        env: BTreeMap::new(),
        cwd: ProcessCwd::Workspace,
        background: true,
    };
    spec.grants = Grants {
        state: Some(StateGrant::default()),
        delegation: Some(DelegationGrant::default()),
        process: BTreeMap::from([("sleep".into(), sleep)]),
        ..Grants::default()
    };
    spec
}

impl Stack {
    pub(crate) async fn start(config: HostConfig) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let store = SqliteStore::open(&SqliteOptions::new(dir.path()))?;
        let engine = Engine::new(EngineConfig::new(
            Some(dir.path().join("cache")),
            HostKey::new([7; 32]),
        ))?;
        let registry = Registry::new(engine, Arc::new(store.clone()));
        registry.load(planner()).await?;
        let port = Arc::new(store.clone());
        let host = Host::new(Parts::new(
            port.clone(),
            port,
            Arc::new(registry.clone()),
            config,
        ));
        host.recover(dir.path().join("workspace")).await?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = ApiState::new(ApiParts {
            plane: Arc::new(host.clone()),
            providers: Arc::new(registry.clone()),
            policy: Policy::for_listener(address),
            bootstrap: Some(harness_api::hash_token(TOKEN)),
            metrics: None,
            workspace_roots: Vec::new(),
            join_trace: None,
            max_body: None,
            ping: None,
        });
        let router = harness_api::router(state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let stack = Self {
            address,
            host,
            store,
            registry,
            dir,
        };
        stack.wait_for_workspace().await?;
        Ok(stack)
    }

    async fn wait_for_workspace(&self) -> Result<()> {
        let mut client = self.client().await?;
        for _ in 0..200 {
            let (_, body) = client.request("GET", "/v1/workspaces/default", "").await?;
            let workspace: Value = serde_json::from_slice(&body)?;
            if workspace.pointer("/state").is_some_and(|s| s == "ready") {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("the workspace is not ready")
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        Client::connect(self.address, TOKEN).await
    }

    /// A new session whose first act is a control.
    pub(crate) async fn session(&self, client: &mut Client) -> Result<String> {
        let body = json!({
            "project_id": "default", "title": "bench", "agent": "demo/planner",
            "operation": {"kind": "command", "text": "/note hello"}
        });
        let (status, body) = client
            .request("POST", "/v1/sessions", &body.to_string())
            .await?;
        let created: Value = serde_json::from_slice(&body)?;
        if status != 201
            || created
                .pointer("/operation_result/status")
                .is_none_or(|s| s != "completed")
        {
            bail!("creation answered {status}: {created}");
        }
        Ok(created
            .get("id")
            .and_then(Value::as_str)
            .context("no id")?
            .to_owned())
    }

    /// One durable control operation.
    pub(crate) async fn note(&self, client: &mut Client, session: &str) -> Result<()> {
        let path = format!("/v1/sessions/{session}/harness-commands");
        let body = r#"{"operation":{"kind":"command","text":"/note hello"}}"#;
        let (status, answer) = client.request("POST", &path, body).await?;
        if status != 200 || !answer.windows(11).any(|w| w == b"\"completed\"") {
            bail!(
                "a control answered {status}: {}",
                String::from_utf8_lossy(&answer)
            );
        }
        Ok(())
    }
}
