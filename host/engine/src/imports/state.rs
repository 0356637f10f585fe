//! `state`: small durable state of the provider, if granted.
//!
//! A scope is always the instance's own (N19): the guest names a kind, never an id.

use super::Answer;
use crate::bindings::harness::provider::state::{Host, HostWithStore, Scope};
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::instance::ctx::{Ctx, HasCtx};
use crate::instance::shared::Shared;
use harness_core::provider::InstanceScope;
use harness_core::state_store::StateScope;
use std::sync::Arc;
use wasmtime::component::Accessor;

/// Largest key, in bytes.
const MAX_KEY: usize = 512;

impl Host for Ctx {}

fn resolve(
    shared: &Shared,
    scope: Scope,
    key: &str,
) -> Result<(StateScope, u64), wit::ChannelError> {
    if key.is_empty() || key.len() > MAX_KEY {
        let bytes = key.len();
        return Err(wit::ChannelError::Limit(format!(
            "a key has {bytes} bytes; 1 to {MAX_KEY} are expected"
        )));
    }
    let Some(grant) = shared.installed.grants.state else {
        return Err(wit::ChannelError::Denied(
            "`state` is not granted".to_owned(),
        ));
    };
    let scope = match (scope, &shared.scope) {
        (Scope::Provider, _) => StateScope::Provider,
        (
            Scope::Project,
            InstanceScope::Draft { project, .. } | InstanceScope::Loop { project, .. },
        ) => StateScope::Project(project.clone()),
        (Scope::Session, InstanceScope::Loop { session, .. }) => StateScope::Session(*session),
        (Scope::Session, InstanceScope::Draft { .. }) => {
            return Err(wit::ChannelError::Denied(
                "a draft instance has no session state".to_owned(),
            ));
        }
    };
    Ok((scope, grant.max_bytes))
}

fn shared<T: Send>(accessor: &Accessor<T, HasCtx>) -> Arc<Shared> {
    accessor.with(|mut a| a.get().shared.clone())
}

impl<T: Send + 'static> HostWithStore<T> for HasCtx {
    async fn get(
        accessor: &Accessor<T, Self>,
        scope: Scope,
        key: String,
    ) -> Answer<Option<Vec<u8>>> {
        let shared = shared(accessor);
        let (scope, _) = match resolve(&shared, scope, &key) {
            Ok(resolved) => resolved,
            Err(error) => return Ok(Err(error)),
        };
        let installed = &shared.installed;
        let value = installed.state.get(&installed.id, &scope, &key).await;
        Ok(value.map_err(|error| convert::state_error(&error)))
    }

    async fn set(
        accessor: &Accessor<T, Self>,
        scope: Scope,
        key: String,
        value: Vec<u8>,
    ) -> Answer<()> {
        let shared = shared(accessor);
        let (scope, limit) = match resolve(&shared, scope, &key) {
            Ok(resolved) => resolved,
            Err(error) => return Ok(Err(error)),
        };
        let installed = &shared.installed;
        let done = installed
            .state
            .set(&installed.id, &scope, &key, value, limit)
            .await;
        Ok(done.map_err(|error| convert::state_error(&error)))
    }

    async fn delete(accessor: &Accessor<T, Self>, scope: Scope, key: String) -> Answer<()> {
        let shared = shared(accessor);
        let (scope, _) = match resolve(&shared, scope, &key) {
            Ok(resolved) => resolved,
            Err(error) => return Ok(Err(error)),
        };
        let installed = &shared.installed;
        let done = installed.state.delete(&installed.id, &scope, &key).await;
        Ok(done.map_err(|error| convert::state_error(&error)))
    }
}
