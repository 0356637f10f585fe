//! One harness and one operator's port, as far as the routes read them.

use futures::FutureExt;
use harness_core::admin::{AdminError, LogLine, ProviderAdmin, ProviderReport};
use harness_core::ids::HarnessId;
use harness_core::provider::{
    BoxFuture, CallError, Compatibility, Harness, HarnessInfo, HarnessStatus, Harnesses, Instance,
    InstanceHost, InstanceScope, ModelSpec, ProviderState, Readiness, WorkspaceNeed,
};
use std::sync::Arc;

pub(super) struct OneHarness(pub(super) Arc<Planner>);

impl Harnesses for OneHarness {
    fn list(&self) -> Vec<Arc<dyn Harness>> {
        vec![self.0.clone()]
    }
    fn get(&self, id: &HarnessId) -> Option<Arc<dyn Harness>> {
        (*id == self.0.0).then(|| self.0.clone() as Arc<dyn Harness>)
    }
}

pub(super) struct Planner(pub(super) HarnessId);

impl Harness for Planner {
    fn id(&self) -> &HarnessId {
        &self.0
    }
    fn info(&self) -> Option<Arc<HarnessInfo>> {
        Some(Arc::new(HarnessInfo {
            id: self.0.clone(),
            label: "Planner".into(),
            version: "0.1.0".into(),
            models: vec![ModelSpec {
                id: "m1".into(),
                label: "M1".into(),
                efforts: vec![],
            }],
            loop_modes: vec![],
            params: vec![],
            workspace: WorkspaceNeed::None,
            timeout: harness_core::provider::TimeoutStrategy::Activity,
            features: Default::default(),
        }))
    }
    fn status(&self) -> HarnessStatus {
        HarnessStatus {
            state: ProviderState::Incompatible,
            reason: None,
            readiness: Some(Readiness {
                native_version: Some("9".into()),
                compatibility: Compatibility::Incompatible("too new".into()),
                models: vec![],
            }),
        }
    }
    fn open(
        &self,
        _: InstanceScope,
        _: Arc<dyn InstanceHost>,
    ) -> BoxFuture<'_, Result<Arc<dyn Instance>, CallError>> {
        futures::future::ready(Err(CallError::Lost("the double has no instances".into()))).boxed()
    }
}

pub(crate) struct Operator;

fn report() -> ProviderReport {
    ProviderReport {
        id: "demo/planner".parse().unwrap(),
        label: Some("Planner".into()),
        version: None,
        state: ProviderState::Ready,
        reason: None,
        component: "embedded".into(),
        sha256: "0".repeat(64),
        contract: None,
        grants: vec![],
        limits: vec![],
        load_ms: None,
        cached: false,
        instances: 0,
        restarts: 0,
        recent_failures: 0,
        last_failure: None,
    }
}

impl ProviderAdmin for Operator {
    fn reports(&self) -> Vec<ProviderReport> {
        vec![report()]
    }
    fn report(&self, id: &HarnessId) -> Option<ProviderReport> {
        (id.as_str() == "demo/planner").then(report)
    }
    fn install<'a>(
        &'a self,
        component: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<ProviderReport, AdminError>> {
        async move {
            match component {
                "/disk" => Err(AdminError::Failed("/secret/path: I/O error".into())),
                c if c.ends_with(".wasm") => Ok(report()),
                _ => Err(AdminError::Refused(
                    "not a component; build it for wasm32-wasip2".into(),
                )),
            }
        }
        .boxed()
    }
    fn remove<'a>(&'a self, id: &'a HarnessId) -> BoxFuture<'a, Result<(), AdminError>> {
        async move {
            self.report(id)
                .map(|_| ())
                .ok_or_else(|| AdminError::NotFound(id.clone()))
        }
        .boxed()
    }
    fn release(&self, id: &HarnessId) -> Result<ProviderReport, AdminError> {
        self.report(id)
            .ok_or_else(|| AdminError::NotFound(id.clone()))
    }
    fn logs(&self, id: &HarnessId, limit: usize) -> Result<Vec<LogLine>, AdminError> {
        self.report(id)
            .ok_or_else(|| AdminError::NotFound(id.clone()))?;
        let line = LogLine {
            at: "2026-01-02T03:04:05Z".parse().unwrap(),
            level: "info".into(),
            text: "hi".into(),
        };
        Ok(vec![line; limit.min(2)])
    }
}
