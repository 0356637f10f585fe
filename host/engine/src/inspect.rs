//! Looking at a component without installing it: what it wants, what it says, what is wrong.
//!
//! `describe` is run, in an instance of its own and under the limits it would have; `run` never is
//! (N1).

use crate::config::{ComponentSource, ProviderSpec};
use crate::engine::Engine;
use crate::grants::{DelegationGrant, Grants, HttpGrant, ProcessCwd, ProcessGrant, StateGrant};
use crate::installed::Linked;
use crate::limits::Limits;
use crate::load::{check, describe};
use crate::preflight::{LoadError, Offer, Preflight};
use bytes::Bytes;
use harness_core::provider::{BoxFuture, HarnessInfo};
use harness_core::state_store::{StateError, StateScope, StateStore};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What is known of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectReport {
    /// Size in bytes.
    pub bytes: usize,
    /// SHA-256, lower-case hex.
    pub sha256: String,
    /// Wanted and offered; `None` when the component cannot be read at all.
    pub preflight: Option<Preflight>,
    /// What it says of itself, when it could be asked.
    pub info: Option<HarnessInfo>,
    /// Everything that would keep it from being loaded.
    pub problems: Vec<LoadError>,
}

impl fmt::Display for InspectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "size       {} bytes", self.bytes)?;
        writeln!(f, "sha256     {}", self.sha256)?;
        if let Some(info) = &self.info {
            writeln!(f, "id         {}", info.id)?;
            writeln!(f, "label      {}", info.label)?;
            writeln!(f, "version    {}", info.version)?;
        }
        if let Some(preflight) = &self.preflight {
            for export in &preflight.exports {
                writeln!(f, "exports    {export}")?;
            }
            write!(f, "{preflight}")?;
        }
        let listed = self
            .preflight
            .as_ref()
            .map_or(0, |preflight| preflight.problems.len());
        for problem in self.problems.iter().skip(listed) {
            writeln!(f, "problem: {problem}")?;
        }
        if self.problems.is_empty() {
            writeln!(f, "it can be loaded")?;
        }
        Ok(())
    }
}

impl Engine {
    /// Inspects a component that would be installed with `limits`. With `grants`, they are compared
    /// with what it imports.
    pub async fn inspect(
        &self,
        bytes: Bytes,
        grants: Option<&Grants>,
        limits: &Limits,
    ) -> InspectReport {
        let mut report = InspectReport {
            bytes: bytes.len(),
            sha256: String::new(),
            preflight: None,
            info: None,
            problems: vec![],
        };
        let (sha256, preflight) = match check(bytes.clone(), grants.cloned(), limits.memory).await {
            Ok(checked) => checked,
            Err(error) => {
                report.problems.push(error);
                return report;
            }
        };
        report.sha256 = hex::encode(sha256);
        let preflight = match preflight {
            Ok(preflight) => preflight,
            Err(error) => {
                report.problems.push(error);
                return report;
            }
        };
        report.problems.extend(preflight.problems.iter().cloned());
        let mut spec = ProviderSpec::new(ComponentSource::Bytes {
            name: "inspected".to_owned(),
            bytes: bytes.clone(),
        });
        spec.limits = limits.clone();
        spec.grants = grants
            .cloned()
            .unwrap_or_else(|| whatever_it_wants(&preflight));
        report.preflight = Some(preflight);
        if report.problems.is_empty() {
            match self.ask(bytes, sha256, &spec).await {
                Ok(info) => report.info = Some(info),
                Err(error) => report.problems.push(error),
            }
        }
        report
    }

    async fn ask(
        &self,
        bytes: Bytes,
        sha256: [u8; 32],
        spec: &ProviderSpec,
    ) -> Result<HarnessInfo, LoadError> {
        let code = self
            .code(bytes, sha256, spec.limits.compile)
            .await
            .map_err(LoadError::Compile)?;
        let linked = Linked::new(self, &code.component, &spec.grants)?;
        let described = describe(self, linked, spec, Arc::new(NoState)).await?;
        Ok(described.info)
    }
}

/// Grants that link every import and reach nothing: only `describe` runs, which cannot wait for
/// anything and so cannot use them.
fn whatever_it_wants(preflight: &Preflight) -> Grants {
    let wants = |interface: &str| {
        preflight.imports.iter().any(|row| {
            matches!(row.offer, Offer::NeedsGrant(_))
                && row.wanted.contains(&format!("/{interface}@"))
        })
    };
    let nothing = ProcessGrant {
        command: vec!["/nonexistent".into()],
        env: BTreeMap::new(),
        cwd: ProcessCwd::Workspace,
        background: wants("background"),
    };
    Grants {
        state: wants("state").then(StateGrant::default),
        delegation: wants("delegation").then(DelegationGrant::default),
        process: (wants("process") || wants("background"))
            .then(|| ("inspected".to_owned(), nothing))
            .into_iter()
            .collect(),
        http: wants("http")
            .then(|| ("https://inspected.invalid".to_owned(), HttpGrant::default()))
            .into_iter()
            .collect(),
    }
}

/// Keeps nothing.
struct NoState;

fn none<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, StateError>> {
    Box::pin(std::future::ready(Err(StateError::Failed(
        "there is no state while a component is inspected".to_owned(),
    ))))
}

impl StateStore for NoState {
    fn get<'a>(
        &'a self,
        _: &'a harness_core::ids::HarnessId,
        _: &'a StateScope,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StateError>> {
        none()
    }

    fn set<'a>(
        &'a self,
        _: &'a harness_core::ids::HarnessId,
        _: &'a StateScope,
        _: &'a str,
        _: Vec<u8>,
        _: u64,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        none()
    }

    fn delete<'a>(
        &'a self,
        _: &'a harness_core::ids::HarnessId,
        _: &'a StateScope,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        none()
    }
}
