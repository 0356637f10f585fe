//! Which `Host` and `Origin` a request may carry: the guard against DNS rebinding and cross-site
//! requests.
//!
//! A browser cannot be kept from sending a request to a loopback address, but it tells the truth
//! about where the page came from. Not here: authentication, which every route under `/v1` needs
//! all the same.

use crate::code::Code;
use crate::problem::Problem;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Uri};
use std::net::SocketAddr;

/// Accepted host names and origins.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Lower-case authorities. One without a port is accepted with any port.
    hosts: Vec<String>,
    /// Lower-case foreign origins that may call, e.g. `https://console.example.com`.
    origins: Vec<String>,
    /// Whether the listener is reached on the scheme's default port.
    default_port: bool,
}

impl Policy {
    /// The names under which a listener is reached: `localhost`, `127.0.0.1`, `[::1]` and its own
    /// address, each with its port.
    #[must_use]
    pub fn for_listener(address: SocketAddr) -> Self {
        let port = address.port();
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"]
            .iter()
            .map(|name| format!("{name}:{port}"))
            .collect();
        if !address.ip().is_unspecified() {
            hosts.push(address.to_string());
        }
        Self {
            hosts,
            origins: Vec::new(),
            default_port: matches!(port, 80 | 443),
        }
    }

    /// Also accepts these authorities, `name` (any port) or `name:port`.
    #[must_use]
    pub fn with_hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.hosts
            .extend(hosts.into_iter().map(|host| host.to_ascii_lowercase()));
        self
    }

    /// Also lets pages of these origins call (and opens CORS for them).
    #[must_use]
    pub fn with_origins(mut self, origins: impl IntoIterator<Item = String>) -> Self {
        self.origins.extend(
            origins
                .into_iter()
                .map(|o| o.trim_end_matches('/').to_ascii_lowercase()),
        );
        self
    }

    /// Foreign origins that may call.
    pub(crate) fn origins(&self) -> &[String] {
        &self.origins
    }

    fn accepts(&self, authority: &str) -> bool {
        let is = |listed: &str, given: &str| listed.eq_ignore_ascii_case(given);
        let name = without_port(authority);
        self.hosts.iter().any(|listed| {
            is(listed, authority)
                || is(listed, name)
                || (self.default_port && name == authority && is(without_port(listed), name))
        })
    }

    /// Checks one request.
    ///
    /// # Errors
    /// `host_refused` or `origin_refused`.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        // HTTP/2 carries the authority in the URI.
        let mut hosts = headers.get_all(HOST).iter();
        let (first, second) = (hosts.next(), hosts.next());
        let host = match first {
            Some(value) if second.is_none() => value.to_str().ok(),
            Some(_) => None,
            None => uri.authority().map(http::uri::Authority::as_str),
        };
        let Some(host) = host.filter(|host| self.accepts(host)) else {
            return Err(Problem::new(
                Code::HostRefused,
                "the `Host` header is not a name of this server; use the address it prints at start, or have the operator add the name to its configuration",
            ));
        };
        let Some(origin) = headers.get(ORIGIN) else {
            return Ok(());
        };
        let origin = origin.to_str().unwrap_or("");
        let own = origin.split_once("://").is_some_and(|(scheme, authority)| {
            matches!(scheme, "http" | "https") && authority.eq_ignore_ascii_case(host)
        });
        if own
            || self
                .origins
                .iter()
                .any(|listed| listed.eq_ignore_ascii_case(origin))
        {
            return Ok(());
        }
        Err(Problem::new(
            Code::OriginRefused,
            "pages of this origin may not call the server; open the console from the server itself, or have the operator add the origin to its configuration",
        ))
    }
}

/// `name` of `name:port`, with the brackets of an IPv6 address kept.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => {
            if name.starts_with('[') == name.ends_with(']') {
                name
            } else {
                authority
            }
        }
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(policy: &Policy, host: &str, origin: Option<&str>) -> &'static str {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        match policy.check(&Uri::from_static("/v1/sessions"), &headers) {
            Ok(()) => "ok",
            Err(problem) => problem.code().as_str(),
        }
    }

    #[test]
    fn s110_hosts_and_origins_as_a_truth_table() {
        let loopback = Policy::for_listener("127.0.0.1:7717".parse().unwrap());
        let wide = Policy::for_listener("0.0.0.0:80".parse().unwrap())
            .with_hosts(["Api.Example.com".into(), "[2001:db8::1]".into()])
            .with_origins(["https://console.example.com/".into()]);
        for (policy, host, origin, expected) in [
            (&loopback, "127.0.0.1:7717", None, "ok"),
            (&loopback, "LOCALHOST:7717", None, "ok"),
            (&loopback, "[::1]:7717", None, "ok"),
            (&loopback, "localhost", None, "host_refused"),
            (&loopback, "localhost:80", None, "host_refused"),
            (&loopback, "evil.example:7717", None, "host_refused"),
            (
                &loopback,
                "localhost:7717",
                Some("http://localhost:7717"),
                "ok",
            ),
            (
                &loopback,
                "localhost:7717",
                Some("http://127.0.0.1:7717"),
                "origin_refused",
            ),
            (
                &loopback,
                "localhost:7717",
                Some("http://evil.example"),
                "origin_refused",
            ),
            (
                &loopback,
                "localhost:7717",
                Some("http://localhost:7717.evil.example"),
                "origin_refused",
            ),
            (&loopback, "localhost:7717", Some("null"), "origin_refused"),
            (
                &loopback,
                "localhost:7717",
                Some("file://localhost:7717"),
                "origin_refused",
            ),
            (&wide, "localhost", None, "ok"),
            (&wide, "api.example.com", None, "ok"),
            (
                &wide,
                "api.example.com:8443",
                Some("https://api.example.com:8443"),
                "ok",
            ),
            (&wide, "[2001:db8::1]:99", None, "ok"),
            (&wide, "0.0.0.0", None, "host_refused"),
            (
                &wide,
                "api.example.com",
                Some("https://console.example.com"),
                "ok",
            ),
            (
                &wide,
                "api.example.com",
                Some("http://console.example.com"),
                "origin_refused",
            ),
        ] {
            assert_eq!(verdict(policy, host, origin), expected, "{host} {origin:?}");
        }
    }

    #[test]
    fn s110_two_host_headers_and_none_are_refused() {
        let policy = Policy::for_listener("127.0.0.1:7717".parse().unwrap());
        let mut headers = HeaderMap::new();
        assert!(policy.check(&Uri::from_static("/"), &headers).is_err());
        assert!(
            policy
                .check(&Uri::from_static("http://localhost:7717/"), &headers)
                .is_ok()
        );
        headers.append(HOST, "localhost:7717".parse().unwrap());
        headers.append(HOST, "localhost:7717".parse().unwrap());
        assert!(policy.check(&Uri::from_static("/"), &headers).is_err());
    }
}
