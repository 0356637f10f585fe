//! What the host itself asks a person: a form, or to open a page (S88).
//!
//! What users trust (a title, the origin of a page) is computed here from what is asked; there is
//! no way to give it. The address of a page is in no stored or shown gate.

use super::form::{self, Field, FieldValue, FormGate};
use super::{CloseReason, GateAsk};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use url::Url;

/// Longest message of an opener, in bytes.
const MAX_MESSAGE: usize = 4 * 1024;
/// Longest address, in bytes.
const MAX_URL: usize = 16 * 1024;

/// What the host asks. The kinds of gates that belong to loops are not among them.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", content = "payload", rename_all = "snake_case")]
pub enum HostAsk {
    /// Values for fields.
    Form {
        /// What it is for.
        message: String,
        /// Its fields.
        fields: Vec<Field>,
    },
    /// That somebody opens a page, e.g. to sign in there.
    OpenUrl {
        /// What it is for.
        message: String,
        /// Its address: `https`, or `http` on this machine.
        url: String,
    },
}

impl fmt::Debug for HostAsk {
    /// Neither addresses nor defaults, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form { .. } => "HostAsk::Form",
            Self::OpenUrl { .. } => "HostAsk::OpenUrl",
        })
    }
}

/// A page that waits to be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UrlGate {
    /// Computed from the address, never given by the opener (S88).
    pub title: String,
    /// Scheme, host and port of the address.
    pub origin: String,
    /// What it is for, in the opener's words.
    pub message: String,
}

/// What is only in memory of an open host gate.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HostSecrets {
    /// The address of the page.
    pub url: Option<String>,
    /// Values of fields that are left out.
    pub defaults: BTreeMap<String, FieldValue>,
}

impl HostAsk {
    /// The gate as it is stored and shown, and what is kept in memory beside it.
    ///
    /// # Errors
    /// A sentence that names the rule that is broken.
    pub fn gate(&self) -> Result<(GateAsk, HostSecrets), String> {
        let (Self::Form { message, .. } | Self::OpenUrl { message, .. }) = self;
        if message.is_empty() || message.len() > MAX_MESSAGE {
            return Err(format!("the message has 1 to {MAX_MESSAGE} bytes"));
        }
        let (ask, secrets) = match self {
            Self::Form { fields, .. } => {
                form::check(fields)?;
                let ask = GateAsk::Form(FormGate {
                    title: form::title(fields),
                    message: message.clone(),
                    fields: form::redacted(fields),
                });
                let defaults = fields.iter().filter_map(|f| match &f.default {
                    Some(form::Shown::Value(value)) => Some((f.name.clone(), value.clone())),
                    _ => None,
                });
                let secrets = HostSecrets {
                    url: None,
                    defaults: defaults.collect(),
                };
                (ask, secrets)
            }
            Self::OpenUrl { url, .. } => {
                let url = page(url)?;
                let origin = url.origin().ascii_serialization();
                let ask = GateAsk::OpenUrl(UrlGate {
                    title: format!("Open {}", url.host_str().unwrap_or_default()),
                    origin,
                    message: message.clone(),
                });
                let secrets = HostSecrets {
                    url: Some(url.into()),
                    defaults: BTreeMap::new(),
                };
                (ask, secrets)
            }
        };
        ask.check()?;
        Ok((ask, secrets))
    }
}

/// An address that shows where it leads.
fn page(text: &str) -> Result<Url, String> {
    if text.len() > MAX_URL {
        return Err(format!("the address has more than {MAX_URL} bytes"));
    }
    let url = Url::parse(text).map_err(|e| format!("the address cannot be read: {e}"))?;
    let local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if url.scheme() != "https" && !(url.scheme() == "http" && local) {
        return Err("the address is neither `https` nor on this machine".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the address holds a name or password, which hides where it leads".into());
    }
    Ok(url)
}

/// What the opener of a host gate gets, once.
#[derive(Clone, PartialEq, Eq)]
pub enum HostAnswer {
    /// The form's values, defaults included.
    Filled(BTreeMap<String, FieldValue>),
    /// The page was opened.
    Opened,
    /// The person declined.
    Declined,
    /// Nobody answered in time; its policy did.
    Timeout,
    /// Nobody will answer.
    Closed(CloseReason),
}

impl fmt::Debug for HostAnswer {
    /// Names only: values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filled(values) => f.debug_tuple("Filled").field(&values.keys()).finish(),
            Self::Opened => f.write_str("Opened"),
            Self::Declined => f.write_str("Declined"),
            Self::Timeout => f.write_str("Timeout"),
            Self::Closed(reason) => f.debug_tuple("Closed").field(reason).finish(),
        }
    }
}
