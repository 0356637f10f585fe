//! Who answers a gate when nobody does (S86).

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Shortest time a policy waits.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest time a policy waits.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The policy of an open gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum GatePolicy {
    /// A person has all the time there is.
    #[default]
    Wait,
    /// It closes as `policy_response` when nobody has answered by then.
    RespondOnTimeout {
        /// In milliseconds: 1 s to 24 h.
        timeout_ms: u64,
    },
}

/// A policy that a gate cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It is none that this host knows.
    #[error("the policy `{0}` is not supported; there are `wait` and `respond_on_timeout`")]
    Unsupported(String),
    /// Its time is out of range, or missing, or given where none is taken.
    #[error("`respond_on_timeout` takes a time from 1 s to 24 h, `wait` none")]
    Timeout,
}

impl GatePolicy {
    /// The policy of that name.
    ///
    /// # Errors
    /// `suspend_session`, `model_decide` and every unknown one; a time that does not fit.
    pub fn named(name: &str, timeout: Option<Duration>) -> Result<Self, PolicyError> {
        match (name, timeout) {
            ("wait", None) => Ok(Self::Wait),
            ("respond_on_timeout", Some(timeout)) => Self::after(timeout),
            ("wait" | "respond_on_timeout", _) => Err(PolicyError::Timeout),
            (other, _) => Err(PolicyError::Unsupported(other.chars().take(80).collect())),
        }
    }

    /// Answers after that time.
    ///
    /// # Errors
    /// A time out of range.
    pub fn after(timeout: Duration) -> Result<Self, PolicyError> {
        if !(SHORTEST..=LONGEST).contains(&timeout) {
            return Err(PolicyError::Timeout);
        }
        let timeout_ms = u64::try_from(timeout.as_millis()).map_err(|_| PolicyError::Timeout)?;
        Ok(Self::RespondOnTimeout { timeout_ms })
    }

    /// When it answers; never, if it waits.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Wait => None,
            Self::RespondOnTimeout { timeout_ms } => Some(Duration::from_millis(*timeout_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s86_policies_that_are_refused() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(GatePolicy::named("wait", None), Ok(GatePolicy::Wait));
        let known = GatePolicy::named("respond_on_timeout", second).unwrap();
        assert_eq!(known.timeout(), second);
        for name in ["suspend_session", "model_decide", "", "Wait", "respond"] {
            let refused = GatePolicy::named(name, second);
            assert_eq!(refused, Err(PolicyError::Unsupported(name.into())));
        }
        assert_eq!(GatePolicy::named("wait", second), Err(PolicyError::Timeout));
        let named = |timeout| GatePolicy::named("respond_on_timeout", timeout);
        assert_eq!(named(None), Err(PolicyError::Timeout));
        for (millis, fits) in [
            (999, false),
            (1000, true),
            (86_400_000, true),
            (86_400_001, false),
        ] {
            let timeout = Some(Duration::from_millis(millis));
            assert_eq!(named(timeout).is_ok(), fits, "{millis}");
        }
    }
}
