//! State of providers in memory.

use harness_core::ids::HarnessId;
use harness_core::provider::BoxFuture;
use harness_core::state_store::{StateError, StateScope, StateStore};
use std::collections::HashMap;
use std::sync::Mutex;

type Key = (HarnessId, StateScope, String);

#[derive(Default)]
pub(crate) struct MemoryState(pub(crate) Mutex<HashMap<Key, Vec<u8>>>);

impl StateStore for MemoryState {
    fn get<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StateError>> {
        let value = self
            .0
            .lock()
            .unwrap()
            .get(&(provider.clone(), scope.clone(), key.to_owned()))
            .cloned();
        Box::pin(std::future::ready(Ok(value)))
    }

    fn set<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
        value: Vec<u8>,
        limit: u64,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        let bytes = (key.len() + value.len()) as u64;
        let result = if bytes > limit {
            Err(StateError::Limit { bytes, limit })
        } else {
            self.0
                .lock()
                .unwrap()
                .insert((provider.clone(), scope.clone(), key.to_owned()), value);
            Ok(())
        };
        Box::pin(std::future::ready(result))
    }

    fn delete<'a>(
        &'a self,
        provider: &'a HarnessId,
        scope: &'a StateScope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        self.0
            .lock()
            .unwrap()
            .remove(&(provider.clone(), scope.clone(), key.to_owned()));
        Box::pin(std::future::ready(Ok(())))
    }
}
