//! What a session is run with besides its settings, and how it has drifted when the session is
//! taken up again (requirements-runtime §6.1 step 2).
//!
//! A session remembers the configuration that was adopted last. At restore it is compared with what
//! the host has now: another workspace root, or another harness under the same id, is a drift that
//! somebody has to accept; everything else is adopted. What is not known now (a harness that is not
//! installed) is no change.

use crate::ids::HarnessId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What a harness is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HarnessConfiguration {
    /// The id that its component declares, whatever it is installed as.
    pub declares: HarnessId,
    /// Version of the provider.
    pub version: String,
    /// Version of the contract that its component was built against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// Names of the loop modes it declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loop_modes: Vec<String>,
}

/// What a session is run with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Configuration {
    /// Where it works: the directory of a local workspace, `host:path` of a remote one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_root: Option<String>,
    /// Its harnesses, by the id they are installed under.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, HarnessConfiguration>))]
    pub harnesses: BTreeMap<HarnessId, HarnessConfiguration>,
}

/// One warn-level difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drifted {
    /// Another harness is installed under the id.
    Harness {
        /// The id it is installed under.
        installed_as: HarnessId,
        /// What its component declared.
        was: HarnessId,
        /// What it declares now.
        is: HarnessId,
    },
    /// The session's workspace is somewhere else.
    Workspace {
        /// Where it was.
        was: String,
        /// Where it is now.
        is: String,
    },
}

impl fmt::Display for Drifted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Harness {
                installed_as,
                was,
                is,
            } => write!(
                f,
                "what is installed as `{installed_as}` is the harness `{is}` now, not `{was}`"
            ),
            Self::Workspace { was, is } => {
                write!(f, "the workspace is at `{is}` now, not at `{was}`")
            }
        }
    }
}

/// Every warn-level difference; somebody has to accept it before the session is taken up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift(pub Vec<Drifted>);

impl Drift {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, drifted) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            drifted.fmt(f)?;
        }
        Ok(())
    }
}

impl Configuration {
    /// The warn-level differences of what is now from this baseline.
    #[must_use]
    pub fn drift(&self, now: &Self) -> Drift {
        let mut found = Vec::new();
        for (id, is) in &now.harnesses {
            if let Some(was) = self.harnesses.get(id).filter(|w| w.declares != is.declares) {
                found.push(Drifted::Harness {
                    installed_as: id.clone(),
                    was: was.declares.clone(),
                    is: is.declares.clone(),
                });
            }
        }
        if let (Some(was), Some(is)) = (&self.workspace_root, &now.workspace_root)
            && was != is
        {
            found.push(Drifted::Workspace {
                was: was.clone(),
                is: is.clone(),
            });
        }
        Drift(found)
    }

    /// This baseline with everything that is known now.
    #[must_use]
    pub fn adopting(&self, now: &Self) -> Self {
        let mut next = self.clone();
        if now.workspace_root.is_some() {
            next.workspace_root.clone_from(&now.workspace_root);
        }
        for (id, harness) in &now.harnesses {
            next.harnesses.insert(id.clone(), harness.clone());
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harness(declares: &str, version: &str) -> HarnessConfiguration {
        HarnessConfiguration {
            declares: declares.parse().unwrap(),
            version: version.into(),
            contract: Some("0.1.0".into()),
            loop_modes: vec!["review".into()],
        }
    }

    fn configuration(root: Option<&str>, harnesses: &[(&str, &str, &str)]) -> Configuration {
        Configuration {
            workspace_root: root.map(str::to_owned),
            harnesses: harnesses
                .iter()
                .map(|(id, declares, version)| (id.parse().unwrap(), harness(declares, version)))
                .collect(),
        }
    }

    #[test]
    fn i39_what_is_drift_and_what_is_adopted() {
        let was = configuration(Some("/work"), &[("a/one", "a/one", "1")]);
        let table = [
            // The same.
            (was.clone(), "", false),
            // Another version, other modes, another contract: adopted.
            (
                configuration(Some("/work"), &[("a/one", "a/one", "2")]),
                "",
                true,
            ),
            // A harness that was not known: adopted.
            (
                configuration(Some("/work"), &[("a/two", "a/two", "1")]),
                "",
                true,
            ),
            // What is not known now is no change.
            (configuration(None, &[]), "", false),
            (
                configuration(Some("/work"), &[("a/one", "b/other", "1")]),
                "what is installed as `a/one` is the harness `b/other` now, not `a/one`",
                true,
            ),
            (
                configuration(Some("/else"), &[("a/one", "a/one", "1")]),
                "the workspace is at `/else` now, not at `/work`",
                true,
            ),
        ];
        for (now, drift, changed) in table {
            assert_eq!(was.drift(&now).to_string(), drift, "{now:?}");
            assert_eq!(was.drift(&now).is_empty(), drift.is_empty());
            assert_eq!(was.adopting(&now) != was, changed, "{now:?}");
        }
        let both = configuration(Some("/else"), &[("a/one", "b/other", "1")]);
        assert_eq!(was.drift(&both).0.len(), 2);
        assert!(was.drift(&both).to_string().contains("; "));
    }

    #[test]
    fn every_other_member_is_adopted_too() {
        let was = configuration(None, &[("a/one", "a/one", "1")]);
        for change in [
            (|h: &mut HarnessConfiguration| h.contract = None) as fn(&mut HarnessConfiguration),
            |h| h.loop_modes.clear(),
            |h| h.version = "9".into(),
        ] {
            let mut now = was.clone();
            now.harnesses.values_mut().for_each(change);
            assert!(was.drift(&now).is_empty());
            assert_eq!(was.adopting(&now), now);
        }
    }
}
