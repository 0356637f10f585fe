//! The name resolver inside the client's own connector: what it does not hand out is not
//! connected to, however often a name changes its answer.

use super::address::AddressPolicy;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::sync::Arc;

/// Why a name gave no address to connect to.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    /// Every address of it is refused.
    #[error("{host} resolves to {why}, which its grant does not name")]
    Refused {
        /// The name.
        host: String,
        /// The kind of address.
        why: &'static str,
    },
    /// It has none.
    #[error("{host} cannot be resolved: {reason}")]
    Unknown {
        /// The name.
        host: String,
        /// The resolver's words.
        reason: String,
    },
}

/// Resolves through the system and hands out allowed addresses only.
pub(super) struct CheckedResolver(pub(super) Arc<AddressPolicy>);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, host) = (self.0.clone(), name.as_str().to_owned());
        Box::pin(async move {
            // Port 0: the connector puts the origin's.
            let found = tokio::net::lookup_host((host.as_str(), 0)).await;
            let found = found.map_err(|error| ResolveError::Unknown {
                host: host.clone(),
                reason: error.to_string(),
            })?;
            let mut refused = None;
            let mut allowed = Vec::new();
            for address in found {
                match policy.check(address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(why) => refused = Some(why),
                }
            }
            if allowed.is_empty() {
                return Err(match refused {
                    Some(why) => ResolveError::Refused { host, why },
                    None => ResolveError::Unknown {
                        host,
                        reason: "no address".to_owned(),
                    },
                }
                .into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}
