//! The durable state of providers.

use super::{MemoryStore, Place, Scope};
use harness_core::ids::HarnessId;
use harness_core::provider::BoxFuture;
use harness_core::state_store::{StateError, StateScope, StateStore};

impl Place {
    fn new(provider: &HarnessId, scope: &StateScope, key: &str) -> Self {
        let scope = match scope {
            StateScope::Provider => Scope::Provider,
            StateScope::Project(id) => Scope::Project(id.clone()),
            StateScope::Loop(session, of) => Scope::Loop(*session, *of),
        };
        Self {
            provider: provider.clone(),
            scope,
            key: key.to_owned(),
        }
    }
}

impl StateStore for MemoryStore {
    fn get<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StateError>> {
        let place = Place::new(provider, scope, key);
        Box::pin(async move { Ok(self.content().state.get(&place).cloned()) })
    }

    fn set<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
        value: Vec<u8>,
        limit: u64,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        let place = Place::new(provider, scope, key);
        Box::pin(async move {
            let mut content = self.content();
            if let Scope::Loop(session, _) = &place.scope
                && !content.sessions.contains_key(session)
            {
                return Err(StateError::Gone);
            }
            let beside = |(at, _): &(&Place, &Vec<u8>)| {
                at.provider == place.provider && at.scope == place.scope && at.key != place.key
            };
            let others = content.state.iter().filter(beside);
            let others: usize = others.map(|(at, v)| at.key.len() + v.len()).sum();
            let bytes = (others + place.key.len() + value.len()) as u64;
            if bytes > limit {
                return Err(StateError::Limit { bytes, limit });
            }
            content.state.insert(place, value);
            Ok(())
        })
    }

    fn delete<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        let place = Place::new(provider, scope, key);
        Box::pin(async move {
            self.content().state.remove(&place);
            Ok(())
        })
    }
}
