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
use harness_core::state_store::{StateError, StateScope};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
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
        (
            Scope::Session,
            InstanceScope::Loop {
                session, loop_id, ..
            },
        ) => StateScope::Loop(*session, *loop_id),
        (Scope::Session, InstanceScope::Draft { .. }) => {
            return Err(wit::ChannelError::Denied(
                "a draft instance has no session state".to_owned(),
            ));
        }
    };
    Ok((scope, grant.max_bytes))
}

/// One state call: the instance, the resolved scope, and its place among the pending ones. Each
/// may hold a value, so their number is bounded.
struct Call {
    shared: Arc<Shared>,
    scope: StateScope,
    limit: u64,
    _pending: OwnedSemaphorePermit,
}

fn enter<T: Send>(
    accessor: &Accessor<T, HasCtx>,
    scope: Scope,
    key: &str,
) -> Result<Call, wit::ChannelError> {
    let (shared, pending) = accessor.with(|mut a| {
        let ctx = a.get();
        (ctx.shared.clone(), ctx.state_calls.clone())
    });
    let _pending = pending.try_acquire_owned().map_err(|_| {
        let most = shared.installed.limits.pending_calls;
        wit::ChannelError::Limit(format!("{most} state calls are pending already"))
    })?;
    let (scope, limit) = resolve(&shared, scope, key)?;
    Ok(Call {
        shared,
        scope,
        limit,
        _pending,
    })
}

impl<T: Send + 'static> HostWithStore<T> for HasCtx {
    async fn get(
        accessor: &Accessor<T, Self>,
        scope: Scope,
        key: String,
    ) -> Answer<Option<Vec<u8>>> {
        let call = match enter(accessor, scope, &key) {
            Ok(call) => call,
            Err(error) => return Ok(Err(error)),
        };
        let installed = &call.shared.installed;
        let value = installed.state.get(&installed.id, &call.scope, &key).await;
        Ok(value.map_err(|error| convert::state_error(&error)))
    }

    async fn set(
        accessor: &Accessor<T, Self>,
        scope: Scope,
        key: String,
        value: Vec<u8>,
    ) -> Answer<()> {
        let call = match enter(accessor, scope, &key) {
            Ok(call) => call,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = (key.len() + value.len()) as u64;
        if bytes > call.limit {
            let error = StateError::Limit {
                bytes,
                limit: call.limit,
            };
            return Ok(Err(convert::state_error(&error)));
        }
        let installed = &call.shared.installed;
        let done = installed
            .state
            .set(&installed.id, &call.scope, &key, value, call.limit)
            .await;
        Ok(done.map_err(|error| convert::state_error(&error)))
    }

    async fn delete(accessor: &Accessor<T, Self>, scope: Scope, key: String) -> Answer<()> {
        let call = match enter(accessor, scope, &key) {
            Ok(call) => call,
            Err(error) => return Ok(Err(error)),
        };
        let installed = &call.shared.installed;
        let done = installed
            .state
            .delete(&installed.id, &call.scope, &key)
            .await;
        Ok(done.map_err(|error| convert::state_error(&error)))
    }
}
