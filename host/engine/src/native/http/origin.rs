//! The granted origins of one provider, each with a client of its own.
//!
//! One client an origin: its connections were made under that grant's address policy, and none is
//! ever used for another.

use super::address::AddressPolicy;
use super::headers;
use super::resolver::CheckedResolver;
use crate::grants::HttpGrant;
use http::HeaderMap;
use reqwest::Url;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take to be made, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A grant that cannot be used as written: a configuration error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("http grant {origin:?}: {problem}")]
pub struct GrantError {
    /// The origin as written.
    pub origin: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The granted origins of one provider. Build it once a provider: it loads the system's root
/// certificates and keeps connections.
pub struct Origins(BTreeMap<String, Origin>);

/// One granted origin.
pub(super) struct Origin {
    /// Connects under this grant's address policy.
    pub(super) client: reqwest::Client,
    /// What the host adds.
    pub(super) headers: HeaderMap,
    policy: Arc<AddressPolicy>,
}

impl Origins {
    /// Checks the grants and prepares their clients. Reads certificate files: call it off the async
    /// threads.
    ///
    /// # Errors
    /// [`GrantError`] for what is no origin, two spellings of one origin, an invalid header or
    /// network, or unusable root certificates.
    pub fn new(grants: &BTreeMap<String, HttpGrant>) -> Result<Self, GrantError> {
        let mut origins = BTreeMap::new();
        for (text, grant) in grants {
            let error = |problem: String| GrantError {
                origin: text.clone(),
                problem,
            };
            let url = parse_origin(text).map_err(error)?;
            let origin = Origin::new(&url, grant).map_err(error)?;
            if origins.insert(key(&url), origin).is_some() {
                return Err(error("the same origin is granted twice".to_owned()));
            }
        }
        Ok(Self(origins))
    }

    /// The grant of the URL's origin.
    pub(super) fn get(&self, url: &Url) -> Option<&Origin> {
        self.0.get(&key(url))
    }
}

impl Origin {
    fn new(url: &Url, grant: &HttpGrant) -> Result<Self, String> {
        let mut policy = AddressPolicy::parse(&grant.allow_private)?;
        if let Some(address) = literal(url) {
            policy.name(address);
        }
        let policy = Arc::new(policy);
        let mut client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .dns_resolver(Arc::new(CheckedResolver(policy.clone())));
        if url.scheme() == "http" {
            // No TLS will be spoken: a host without root certificates can use it.
            client = client.tls_certs_only([]);
        }
        let client = client
            .build()
            .map_err(|error| format!("no client: {error}"))?;
        Ok(Self {
            client,
            headers: headers::injected(&grant.headers)?,
            policy,
        })
    }

    /// Checks a host that is an address: the connector resolves only names.
    pub(super) fn check_literal(&self, url: &Url) -> Result<(), &'static str> {
        literal(url).map_or(Ok(()), |address| self.policy.check(address))
    }
}

/// Scheme, host and port in one spelling; the default port is left out.
pub(super) fn key(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The host, when it is an address. URL parsing has already read decimal, octal, hexadecimal and
/// shortened spellings of IPv4 as what they are.
fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

fn parse_origin(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("only http and https are possible".to_owned());
    }
    let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    if !bare || !url.username().is_empty() || url.password().is_some() {
        return Err("an origin is scheme, host and port, and nothing else".to_owned());
    }
    Ok(url)
}

impl std::fmt::Debug for Origins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(origins: &[&str]) -> Result<Vec<String>, GrantError> {
        let grants = origins
            .iter()
            .map(|origin| ((*origin).to_owned(), HttpGrant::default()))
            .collect();
        Origins::new(&grants).map(|origins| origins.0.into_keys().collect())
    }

    #[test]
    fn an_origin_has_one_spelling() {
        assert_eq!(
            check(&[
                "HTTP://Example.com:80",
                "http://example.com:8080/",
                "http://0x7f.1/"
            ]),
            Ok(vec![
                "http://127.0.0.1".into(),
                "http://example.com".into(),
                "http://example.com:8080".into()
            ])
        );
    }

    #[test]
    fn what_is_no_origin_is_a_configuration_error() {
        for bad in [
            "example.com",
            "ftp://example.com",
            "http://a/b",
            "http://a/?q",
            "http://u@a",
            "http://u:p@a",
            "",
        ] {
            let error = check(&[bad]).unwrap_err();
            assert_eq!(error.origin, bad);
        }
        assert!(
            check(&["http://a", "http://a:80"])
                .unwrap_err()
                .problem
                .contains("twice")
        );
    }
}
