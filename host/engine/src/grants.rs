//! What an operator lets a provider do, as resolved configuration: secrets are already looked up.
//!
//! A grant is a name the guest may ask for; the guest never sees what stands behind it. What is
//! not granted is not linked (`preflight`), so nothing here is checked a second time at run time
//! except the name.

use crate::secret::Secret;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything granted to one provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Small durable state (interface `state`).
    pub state: Option<StateGrant>,
    /// Programs by the name the guest asks for (interface `process`).
    pub process: BTreeMap<String, ProcessGrant>,
    /// Origins, e.g. `https://api.openai.com` (interface `http`).
    pub http: BTreeMap<String, HttpGrant>,
}

/// Durable state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateGrant {
    /// Bytes of keys and values in one scope. Default 1 MiB.
    pub max_bytes: u64,
}

impl Default for StateGrant {
    fn default() -> Self {
        Self {
            max_bytes: 1024 * 1024,
        }
    }
}

/// One program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessGrant {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// The whole environment of the program: nothing is inherited.
    pub env: BTreeMap<String, Secret>,
    /// Where it starts.
    pub cwd: ProcessCwd,
}

/// Working directory of a granted program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProcessCwd {
    /// The root path of the session's local workspace; without one, spawning is refused.
    #[default]
    Workspace,
    /// A fixed directory.
    Path(PathBuf),
}

/// One origin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpGrant {
    /// Headers the host adds; they replace what the guest sends under the same name.
    pub headers: BTreeMap<String, Secret>,
    /// Addresses (`10.0.0.5`) and networks (`10.0.0.0/8`) in otherwise refused ranges (loopback,
    /// link-local, private, metadata) that this origin may resolve to. Empty: none.
    pub allow_private: Vec<String>,
}

impl Grants {
    /// One line a grant, in words, for reports. Secrets are named, never shown.
    #[must_use]
    pub fn describe(&self) -> Vec<harness_core::admin::Grant> {
        let row = |interface: &str, name: &str, allows: String| harness_core::admin::Grant {
            interface: interface.to_owned(),
            name: name.to_owned(),
            allows,
        };
        let state = self
            .state
            .iter()
            .map(|s| row("state", "", format!("{} bytes per scope", s.max_bytes)));
        let process = self.process.iter().map(|(name, grant)| {
            let names: Vec<&str> = grant.env.keys().map(String::as_str).collect();
            let cwd = match &grant.cwd {
                ProcessCwd::Workspace => "the session's workspace".to_owned(),
                ProcessCwd::Path(path) => path.display().to_string(),
            };
            row(
                "process",
                name,
                format!(
                    "run {:?} in {cwd}, environment [{}]",
                    grant.command,
                    names.join(", ")
                ),
            )
        });
        let http = self.http.iter().map(|(origin, grant)| {
            let names: Vec<&str> = grant.headers.keys().map(String::as_str).collect();
            let private = if grant.allow_private.is_empty() {
                String::new()
            } else {
                format!(", private addresses {}", grant.allow_private.join(", "))
            };
            row(
                "http",
                origin,
                format!("requests, adding headers [{}]{private}", names.join(", ")),
            )
        });
        state.chain(process).chain(http).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_described_without_their_secrets() {
        let grants = Grants {
            state: Some(StateGrant::default()),
            process: BTreeMap::from([(
                "codex".to_owned(),
                ProcessGrant {
                    command: vec!["codex".into(), "app-server".into()],
                    env: BTreeMap::from([("OPENAI_API_KEY".to_owned(), Secret::new("sk-1234"))]),
                    cwd: ProcessCwd::Workspace,
                },
            )]),
            http: BTreeMap::from([(
                "https://api.example.com".to_owned(),
                HttpGrant {
                    headers: BTreeMap::from([(
                        "authorization".to_owned(),
                        Secret::new("Bearer sk-1234"),
                    )]),
                    allow_private: vec![],
                },
            )]),
        };
        let shown = format!("{:?} {grants:?}", grants.describe());
        assert_eq!(grants.describe().len(), 3);
        assert!(
            shown.contains("OPENAI_API_KEY") && shown.contains("authorization"),
            "{shown}"
        );
        assert!(!shown.contains("sk-1234"), "{shown}");
    }
}
