//! The configuration as it is written: the shape of the file and nothing else.
//!
//! Values keep their place in the file ([`Spanned`]), so that the second stage can name the line
//! of whatever it refuses.

use super::units::{WrittenDuration, WrittenSize};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;

/// Texts by name, each with its place.
pub(super) type Named<T> = BTreeMap<Spanned<String>, T>;

/// A whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Written {
    pub(super) server: Server,
    pub(super) slots: Slots,
    pub(super) sessions: Sessions,
    pub(super) gates: Gates,
    pub(super) workspace: Workspace,
    pub(super) engine: Engine,
    pub(super) limits: Limits,
    pub(super) secrets: Named<Secret>,
    pub(super) provider: Vec<Provider>,
}

/// `[server]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Server {
    pub(super) listen: Option<Spanned<String>>,
    pub(super) allowed_hosts: Vec<Spanned<String>>,
    pub(super) allowed_origins: Vec<Spanned<String>>,
    pub(super) behind_proxy: bool,
    pub(super) tls: Option<Tls>,
}

/// `[server.tls]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    pub(super) cert: Spanned<String>,
    pub(super) key: Spanned<String>,
}

/// `[slots]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Slots {
    pub(super) total: Option<Spanned<i64>>,
}

/// `[sessions]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Sessions {
    pub(super) instance_idle: Option<Spanned<WrittenDuration>>,
    pub(super) park_after: Option<Spanned<WrittenDuration>>,
    pub(super) draft_idle: Option<Spanned<WrittenDuration>>,
    pub(super) inbox: Option<Spanned<i64>>,
    pub(super) background_processes: Option<Spanned<i64>>,
    pub(super) native_turns: Option<bool>,
    pub(super) native_turns_per_minute: Option<Spanned<i64>>,
    pub(super) link_messages_per_second: Option<Spanned<i64>>,
    pub(super) drift: Option<Spanned<String>>,
    pub(super) shutdown: Option<Spanned<WrittenDuration>>,
}

/// `[gates]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Gates {
    pub(super) permission: GatePolicy,
    pub(super) ask_user: GatePolicy,
}

/// `[gates.permission]` and `[gates.ask_user]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GatePolicy {
    pub(super) timeout: Option<Spanned<WrittenDuration>>,
}

/// `[workspace]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Workspace {
    pub(super) root: Option<Spanned<String>>,
    pub(super) roots: Vec<Spanned<String>>,
    pub(super) wait: Option<Spanned<WrittenDuration>>,
    pub(super) checkpoint: Option<Spanned<String>>,
}

/// `[engine]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Engine {
    pub(super) compiles: Option<Spanned<i64>>,
    pub(super) instances: Option<Spanned<i64>>,
}

/// `[secrets.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Secret {
    pub(super) env: Option<Spanned<String>>,
    pub(super) file: Option<Spanned<String>>,
}

/// `[[provider]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Provider {
    #[serde(default)]
    pub(super) id: Option<Spanned<String>>,
    pub(super) component: Spanned<String>,
    #[serde(default)]
    pub(super) sha256: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) config: BTreeMap<String, Setting>,
    #[serde(default)]
    pub(super) grants: Grants,
    #[serde(default)]
    pub(super) limits: Limits,
}

/// `[provider.grants]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Grants {
    pub(super) state: Option<StateGrant>,
    pub(super) delegation: Option<DelegationGrant>,
    pub(super) process: Named<ProcessGrant>,
    pub(super) http: Named<HttpGrant>,
}

/// `[provider.grants.state]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StateGrant {
    pub(super) max_bytes: Option<Spanned<WrittenSize>>,
}

/// `[provider.grants.delegation]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DelegationGrant {
    pub(super) harnesses: Option<Vec<Spanned<String>>>,
}

/// `[provider.grants.process.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessGrant {
    pub(super) command: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) env: Named<Value>,
    #[serde(default)]
    pub(super) cwd: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) background: bool,
}

/// `[provider.grants.http."ORIGIN"]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HttpGrant {
    pub(super) headers: Named<Value>,
    pub(super) allow_private: Vec<Spanned<String>>,
}

/// `[provider.limits]`, and `[limits]` for all providers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    pub(super) memory: Option<Spanned<WrittenSize>>,
    pub(super) component_size: Option<Spanned<WrittenSize>>,
    pub(super) compile: Option<Spanned<WrittenDuration>>,
    pub(super) describe_deadline: Option<Spanned<WrittenDuration>>,
    pub(super) discover_deadline: Option<Spanned<WrittenDuration>>,
    pub(super) detect_deadline: Option<Spanned<WrittenDuration>>,
    pub(super) prepare_deadline: Option<Spanned<WrittenDuration>>,
    pub(super) discard_deadline: Option<Spanned<WrittenDuration>>,
    pub(super) invoke_deadline: Option<Spanned<WrittenDuration>>,
    pub(super) compact_deadline: Option<Spanned<WrittenDuration>>,
    pub(super) drain: Option<Spanned<WrittenDuration>>,
    pub(super) inactivity: Option<Spanned<WrittenDuration>>,
    pub(super) activity: Option<Spanned<WrittenDuration>>,
    pub(super) cpu_slice: Option<Spanned<WrittenDuration>>,
    pub(super) cpu_rate: Option<Spanned<f64>>,
    pub(super) cpu_burst: Option<Spanned<WrittenDuration>>,
    pub(super) log_rate: Option<Spanned<WrittenSize>>,
    pub(super) processes: Option<Spanned<i64>>,
    pub(super) background_output: Option<Spanned<WrittenSize>>,
    pub(super) http_body: Option<Spanned<WrittenSize>>,
    pub(super) http_concurrent: Option<Spanned<i64>>,
    pub(super) turn_output: Option<Spanned<WrittenSize>>,
    pub(super) pending_calls: Option<Spanned<i64>>,
    pub(super) handles: Option<Spanned<i64>>,
    pub(super) failures: Option<Spanned<i64>>,
    pub(super) failure_window: Option<Spanned<WrittenDuration>>,
    pub(super) backoff: Option<Spanned<WrittenDuration>>,
    pub(super) backoff_max: Option<Spanned<WrittenDuration>>,
    pub(super) healthy: Option<Spanned<WrittenDuration>>,
}

/// A setting shown to a component: a text, a number or a truth value, handed on as text.
#[derive(Debug, Clone)]
pub(super) struct Setting(pub(super) String);

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Setting;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number or a truth value; secrets go into grants, never here")
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Setting, E> {
                Ok(Setting(v.to_owned()))
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<Setting, E> {
                Ok(Setting(v.to_string()))
            }
            fn visit_f64<E: Error>(self, v: f64) -> Result<Setting, E> {
                Ok(Setting(v.to_string()))
            }
            fn visit_bool<E: Error>(self, v: bool) -> Result<Setting, E> {
                Ok(Setting(v.to_string()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// The value of an environment variable or a header: written out, or a secret by name.
#[derive(Debug)]
pub(super) enum Value {
    /// As it stands.
    Plain(String),
    /// `{ secret = "NAME", prefix = "…" }`.
    Secret(SecretUse),
}

/// Use of a secret.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretUse {
    pub(super) secret: Spanned<String>,
    #[serde(default)]
    pub(super) prefix: String,
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrSecret;
        impl<'de> Visitor<'de> for TextOrSecret {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or { secret = \"NAME\" }")
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Value, E> {
                Ok(Value::Plain(v.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
                SecretUse::deserialize(MapAccessDeserializer::new(map)).map(Value::Secret)
            }
        }
        deserializer.deserialize_any(TextOrSecret)
    }
}
