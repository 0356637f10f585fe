//! Who accepts a session whose configuration has drifted, and what a configuration is made of
//! (requirements-runtime §6.1 step 2).
//!
//! A decider is asked while nothing but the lease and its fence is written. An error, a panic and
//! silence beyond the bound are rejections: a session is never taken up by accident.

use crate::deps::Deps;
use harness_core::configuration::{Configuration, Drift, HarnessConfiguration};
use harness_core::ids::{HarnessId, SessionId};
use harness_core::provider::{BoxFuture, Workspace};
use harness_core::session::State;
use harness_journal::WorkspaceTarget;
use std::sync::Arc;

/// What becomes of a session that drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken up, and its configuration of now adopted.
    Accept,
    /// It is not opened.
    Reject,
}

/// Decides over sessions that drifted. Asked once an opening.
pub trait DriftDecider: Send + Sync + 'static {
    /// The verdict, within [`crate::HostConfig::drift_decider`]; later ones count as rejections.
    ///
    /// # Errors
    /// A sentence why it cannot be decided: a rejection too.
    fn decide(
        &self,
        session: SessionId,
        drift: Drift,
    ) -> BoxFuture<'static, Result<Verdict, String>>;
}

/// The same verdict for every session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Always(pub Verdict);

impl DriftDecider for Always {
    fn decide(&self, _: SessionId, _: Drift) -> BoxFuture<'static, Result<Verdict, String>> {
        Box::pin(std::future::ready(Ok(self.0)))
    }
}

/// Asks the decider.
///
/// # Errors
/// Why the session is not taken up.
pub(crate) async fn accepted(deps: &Deps, session: SessionId, drift: Drift) -> Result<(), String> {
    let remedy = "put it back, or have the operator accept it (`[sessions] drift = \"accept\"`)";
    let words = drift.to_string();
    // In a task of its own: a decider that panics rejects.
    let verdict = tokio::spawn(deps.drift.decide(session, drift));
    let why = match tokio::time::timeout(deps.config.drift_decider, verdict).await {
        Ok(Ok(Ok(Verdict::Accept))) => {
            tracing::warn!(%session, drift = words, "a session is taken up although its configuration drifted");
            return Ok(());
        }
        Ok(Ok(Ok(Verdict::Reject))) => String::new(),
        Ok(Ok(Err(error))) => format!(" (the decider failed: {error})"),
        Ok(Err(_)) => " (the decider failed)".to_owned(),
        Err(_) => " (the decider did not answer in time)".to_owned(),
    };
    Err(format!("its configuration drifted: {words}{why}; {remedy}"))
}

/// What that harness is now.
pub(crate) fn harness_configuration(deps: &Deps, id: &HarnessId) -> Option<HarnessConfiguration> {
    deps.harnesses.get(id)?.configuration()
}

/// What a session is run with now, as far as it is known.
pub(crate) fn configuration(
    deps: &Deps,
    state: &State,
    workspace: Option<&Workspace>,
) -> Configuration {
    let of = |id: &HarnessId| Some((id.clone(), harness_configuration(deps, id)?));
    Configuration {
        workspace_root: workspace.map(|w| match w {
            Workspace::Local { root_path, .. } => root_path.clone(),
            Workspace::Remote { host, path, .. } => remote(host, path),
        }),
        harnesses: state
            .loops
            .values()
            .filter_map(|l| of(&l.harness))
            .collect(),
    }
}

/// What a session on that harness and workspace begins with.
pub(crate) fn beginning(deps: &Deps, agent: &HarnessId, target: &WorkspaceTarget) -> Configuration {
    let harness = harness_configuration(deps, agent);
    Configuration {
        workspace_root: Some(match target {
            WorkspaceTarget::Local { root_path } => root_path.clone(),
            WorkspaceTarget::Remote { host, path } => remote(host, path),
        }),
        harnesses: harness.map(|h| (agent.clone(), h)).into_iter().collect(),
    }
}

fn remote(host: &str, path: &str) -> String {
    format!("{host}:{path}")
}

/// Rejects what drifted.
pub(crate) fn default_decider() -> Arc<dyn DriftDecider> {
    Arc::new(Always(Verdict::Reject))
}
