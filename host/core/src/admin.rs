//! Port for the operator's view of installed providers (`/v1/providers`).
//!
//! The engine implements it, the API serves it; grants and limits come from configuration only.

use crate::ids::HarnessId;
use crate::provider::{BoxFuture, ProviderState};
use jiff::Timestamp;
use serde::Serialize;

/// One installed component as an operator sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProviderReport {
    /// Qualified id it is installed under.
    pub id: HarnessId,
    /// Label of the harness, once described.
    pub label: Option<String>,
    /// Version of the provider, once described.
    pub version: Option<String>,
    /// State.
    pub state: ProviderState,
    /// Why, unless ready.
    pub reason: Option<String>,
    /// File it came from; `embedded` for the built-in demo.
    pub component: String,
    /// SHA-256 of the component, lower-case hex.
    pub sha256: String,
    /// Contract version it was built against.
    pub contract: Option<String>,
    /// Grants by interface, in words; secrets are named, never shown.
    pub grants: Vec<Grant>,
    /// Limits in force, by name with their unit.
    pub limits: Vec<(String, String)>,
    /// Time from reading the file to ready, in milliseconds.
    pub load_ms: Option<u64>,
    /// Whether its code came from the compile cache.
    pub cached: bool,
    /// Live instances.
    pub instances: usize,
    /// Abnormal ends since the host started.
    pub restarts: u64,
    /// Abnormal ends inside the present quarantine window.
    pub recent_failures: u32,
    /// What ended an instance abnormally last.
    pub last_failure: Option<String>,
}

/// One thing a provider was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// Interface: `state`, `process` or `http`.
    pub interface: String,
    /// Program name or origin; empty for `state`.
    pub name: String,
    /// What it allows, in words.
    pub allows: String,
}

/// One line a component wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogLine {
    /// When.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// `trace` to `error`.
    pub level: String,
    /// The text, control characters removed.
    pub text: String,
}

/// Why an operator's request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// No provider of that id.
    #[error("no provider `{0}` is installed")]
    NotFound(HarnessId),
    /// The request cannot be met; says what to do.
    #[error("{0}")]
    Refused(String),
    /// The host failed.
    #[error("{0}")]
    Failed(String),
}

/// Operator's port.
pub trait ProviderAdmin: Send + Sync + 'static {
    /// Every installed provider.
    fn reports(&self) -> Vec<ProviderReport>;
    /// One of them.
    fn report(&self, id: &HarnessId) -> Option<ProviderReport>;
    /// Installs the component file after checking its digest (lower-case hex SHA-256).
    fn install<'a>(
        &'a self,
        component: &'a str,
        sha256: &'a str,
    ) -> BoxFuture<'a, Result<ProviderReport, AdminError>>;
    /// Removes a provider; its instances are disposed.
    fn remove<'a>(&'a self, id: &'a HarnessId) -> BoxFuture<'a, Result<(), AdminError>>;
    /// Ends a quarantine.
    ///
    /// # Errors
    /// `NotFound`.
    fn release(&self, id: &HarnessId) -> Result<ProviderReport, AdminError>;
    /// The newest `limit` log lines, oldest first.
    ///
    /// # Errors
    /// `NotFound`.
    fn logs(&self, id: &HarnessId, limit: usize) -> Result<Vec<LogLine>, AdminError>;
}
