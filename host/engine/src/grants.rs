//! What an operator lets a provider do, as resolved configuration: secrets are already looked up.
//!
//! A grant is a name the guest may ask for; the guest never sees what stands behind it. What is
//! not granted is not linked (`preflight`), so nothing here is checked a second time at run time
//! except the name.

use crate::secret::Secret;
use harness_core::ids::HarnessId;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything granted to one provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Small durable state (interface `state`).
    pub state: Option<StateGrant>,
    /// Delegates (interface `delegation`).
    pub delegation: Option<DelegationGrant>,
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

/// Delegates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegationGrant {
    /// Harnesses that a delegate may run on; `None`: the provider's own alone.
    pub harnesses: Option<Vec<HarnessId>>,
}

impl DelegationGrant {
    /// Whether the provider installed as `own` may start a delegate on that harness.
    #[must_use]
    pub fn allows(&self, own: &HarnessId, harness: &HarnessId) -> bool {
        match &self.harnesses {
            None => harness == own,
            Some(named) => named.contains(harness),
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
    /// Whether it may outlive the instance that starts it (interface `background`).
    pub background: bool,
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
    /// Whether the interface of that name is granted: `state`, `process`, `background` or `http`.
    #[must_use]
    pub fn allows(&self, interface: &str) -> bool {
        match interface {
            "state" => self.state.is_some(),
            "delegation" => self.delegation.is_some(),
            "process" => !self.process.is_empty(),
            "background" => self.process.values().any(|program| program.background),
            _ => !self.http.is_empty(),
        }
    }

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
        let delegation = self.delegation.iter().map(|d| {
            let on = match &d.harnesses {
                None => "its own harness".to_owned(),
                Some(named) => {
                    let names: Vec<&str> = named.iter().map(HarnessId::as_str).collect();
                    format!("[{}]", names.join(", "))
                }
            };
            row("delegation", "", format!("start delegates on {on}"))
        });
        let process = self.process.iter().map(|(name, grant)| {
            let names: Vec<&str> = grant.env.keys().map(String::as_str).collect();
            let cwd = match &grant.cwd {
                ProcessCwd::Workspace => "the session's workspace".to_owned(),
                ProcessCwd::Path(path) => path.display().to_string(),
            };
            let background = if grant.background {
                ", also in the background"
            } else {
                ""
            };
            row(
                "process",
                name,
                format!(
                    "run {:?} in {cwd}, environment [{}]{background}",
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
        let all = state.chain(delegation).chain(process).chain(http);
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s96_a_delegate_runs_on_the_own_harness_or_on_those_named() {
        let id = |id: &str| -> HarnessId { id.parse().unwrap() };
        let (own, other) = (id("demo/planner"), id("demo/acp"));
        let bare = DelegationGrant::default();
        assert!(bare.allows(&own, &own) && !bare.allows(&own, &other));
        let named = DelegationGrant {
            harnesses: Some(vec![other.clone()]),
        };
        assert!(named.allows(&own, &other) && !named.allows(&own, &own));
    }

    #[test]
    fn grants_are_described_without_their_secrets() {
        let grants = Grants {
            state: Some(StateGrant::default()),
            delegation: Some(DelegationGrant {
                harnesses: Some(vec!["demo/acp".parse().unwrap()]),
            }),
            process: BTreeMap::from([(
                "codex".to_owned(),
                ProcessGrant {
                    command: vec!["codex".into(), "app-server".into()],
                    env: BTreeMap::from([("OPENAI_API_KEY".to_owned(), Secret::new("sk-1234"))]),
                    cwd: ProcessCwd::Workspace,
                    background: true,
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
        assert_eq!(grants.describe().len(), 4);
        assert!(shown.contains("demo/acp"), "{shown}");
        assert!(shown.contains("also in the background"), "{shown}");
        assert!(
            shown.contains("OPENAI_API_KEY") && shown.contains("authorization"),
            "{shown}"
        );
        assert!(!shown.contains("sk-1234"), "{shown}");
    }
}
