//! Identifiers, one type per thing, so that a session id cannot be handed over as a loop id.
//!
//! Minted ids are UUIDv7 and come from an [`Ids`] source that is an input of every decision:
//! this crate neither reads a clock nor draws randomness. Ids derived from an idempotency key
//! are UUIDv8 (S120).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// Source of fresh ids. Live hosts draw UUIDv7s, tests count.
pub trait Ids: Send {
    /// The next id, or `None` when none can be minted (S40: `internal`).
    fn mint(&mut self) -> Option<Uuid>;
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "openapi", schema(value_type = uuid::Uuid))]
        pub struct $name(pub Uuid);

        impl $name {
            /// The nil id; on the wire it is written by omission (§0 "zero id").
            pub const ZERO: Self = Self(Uuid::nil());

            /// Whether this is the nil id.
            #[must_use]
            pub fn is_zero(&self) -> bool {
                self.0.is_nil()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(s).map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }
    };
}

uuid_id!(
    /// A host conversation: one journal, one row.
    SessionId
);
uuid_id!(
    /// One conversation thread inside a session.
    LoopId
);
uuid_id!(
    /// One exclusive run of a loop.
    TurnId
);
uuid_id!(
    /// Correlation and idempotency id of a durable command (S12: never zero).
    CommandId
);
uuid_id!(
    /// Identity of an enduring event, minted when it is created (S61).
    EventId
);
uuid_id!(
    /// A durable question to a person.
    GateId
);
uuid_id!(
    /// Host-minted id of the execution a gate belongs to (gate route).
    ToolExecutionId
);
uuid_id!(
    /// A message of the conversation; stable through stream, checkpoint and restart (R74).
    MessageId
);
uuid_id!(
    /// Minted by every reserve that changes a session's status.
    RunId
);
uuid_id!(
    /// An API token.
    TokenId
);

/// Journal sequence number: 1 for the first record of a session, without gaps (S65).
pub type Seq = u64;

/// Why a name is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not a valid {what}: {rule}")]
pub struct InvalidId {
    /// Which kind of id was expected.
    pub what: &'static str,
    /// What was given, cut to 80 characters.
    pub value: String,
    /// The rule in words.
    pub rule: &'static str,
}

/// True for `[a-z0-9][a-z0-9-]{0,62}`.
fn is_slug(s: &str) -> bool {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = s.as_bytes();
    bytes.len() <= 63
        && bytes.first().copied().is_some_and(ok)
        && bytes.iter().all(|b| ok(*b) || *b == b'-')
}

fn cut(s: &str) -> String {
    s.chars().take(80).collect()
}

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        pub struct $name(String);

        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(s: &str) -> Result<Self, InvalidId> {
                let check: fn(&str) -> bool = $check;
                if check(s) {
                    Ok(Self(s.to_owned()))
                } else {
                    Err(InvalidId { what: $what, value: cut(s), rule: $rule })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(s: String) -> Result<Self, InvalidId> {
                s.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

string_id!(
    /// Scope that owns workspaces and enabled harnesses.
    ProjectId, "project id", "it matches [a-z0-9][a-z0-9-]{0,62}", is_slug
);
string_id!(
    /// Where a session works.
    WorkspaceId, "workspace id", "it matches [a-z0-9][a-z0-9-]{0,62}", is_slug
);
string_id!(
    /// Qualified harness id `publisher/name`; opaque to clients.
    HarnessId, "harness id", "it is `publisher/name`, each part matching [a-z0-9][a-z0-9-]{0,62}",
    |s| s.split_once('/').is_some_and(|(p, n)| is_slug(p) && is_slug(n))
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harness_ids_have_two_slugs() {
        for good in ["demo/planner", "a/b", "openai/codex-2"] {
            assert_eq!(good.parse::<HarnessId>().unwrap().as_str(), good);
        }
        for bad in [
            "", "demo", "demo/", "/x", "Demo/x", "a/b/c", "-a/b", "a/b c",
        ] {
            assert!(bad.parse::<HarnessId>().is_err(), "{bad:?} must be refused");
        }
        assert!(
            format!("{}/x", "a".repeat(64))
                .parse::<HarnessId>()
                .is_err()
        );
    }

    #[test]
    fn slugs_are_checked_when_deserialised() {
        assert!(serde_json::from_str::<ProjectId>("\"default\"").is_ok());
        let error = serde_json::from_str::<ProjectId>("\"De fault\"")
            .unwrap_err()
            .to_string();
        assert!(error.contains("project id"), "{error}");
    }
}
