//! All providers of the host: the ports `Harnesses` and `ProviderAdmin`.

use crate::config::{ComponentSource, ProviderSpec};
use crate::engine::Engine;
use crate::load::{Facts, load, provisional};
use crate::preflight::LoadError;
use crate::provider::Provider;
use harness_core::abort::AbortReason;
use harness_core::admin::{AdminError, LogLine, ProviderAdmin, ProviderReport};
use harness_core::ids::HarnessId;
use harness_core::provider::{BoxFuture, Harness, Harnesses};
use harness_core::state_store::StateStore;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    engine: Engine,
    state: Arc<dyn StateStore>,
    // A std lock: held for a look-up or an insert, never across an await.
    providers: RwLock<BTreeMap<HarnessId, Arc<Provider>>>,
}

impl Registry {
    /// Without providers. `state` keeps what components store.
    #[must_use]
    pub fn new(engine: Engine, state: Arc<dyn StateStore>) -> Self {
        Self(Arc::new(Inner {
            engine,
            state,
            providers: RwLock::default(),
        }))
    }

    fn providers(&self) -> RwLockReadGuard<'_, BTreeMap<HarnessId, Arc<Provider>>> {
        self.0
            .providers
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn provider(&self, id: &HarnessId) -> Option<Arc<Provider>> {
        self.providers().get(id).cloned()
    }

    /// Takes a place for `id`.
    fn enter(&self, id: HarnessId, spec: &ProviderSpec) -> Result<Arc<Provider>, LoadError> {
        let mut providers = self
            .0
            .providers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if providers.contains_key(&id) {
            return Err(LoadError::Duplicate(id.to_string()));
        }
        let provider = Arc::new(Provider::loading(id.clone(), spec.clone()));
        providers.insert(id, provider.clone());
        Ok(provider)
    }

    /// Loads, checks, describes and detects a provider. It is listed as loading meanwhile when its
    /// id is configured, and as failed afterwards when it failed; without any id, a failed one is
    /// listed as `unidentified/<file>`.
    ///
    /// # Errors
    /// What kept it from being loaded. A native harness that is not found or does not fit is no
    /// error: see the report.
    pub async fn load(&self, spec: ProviderSpec) -> Result<ProviderReport, LoadError> {
        let start = Instant::now();
        let mut facts = Facts::default();
        let placed = match &spec.id {
            Some(id) => Some(self.enter(id.clone(), &spec)?),
            None => None,
        };
        let component = spec.source.name();
        let loaded = load(&self.0.engine, &spec, self.0.state.clone(), &mut facts).await;
        let loaded = loaded.and_then(|installed| {
            let provider = match &placed {
                Some(provider) => provider.clone(),
                None => self.enter(installed.id.clone(), &spec)?,
            };
            Ok((provider, installed))
        });
        let outcome = match loaded {
            Ok((provider, installed)) => {
                provider.loaded(facts, installed, start).await;
                Ok(provider.report())
            }
            Err(error) => {
                let provider =
                    placed.or_else(|| self.enter(provisional(&spec.source)?, &spec).ok());
                if let Some(provider) = provider {
                    provider.failed(facts, error.to_string());
                }
                Err(error)
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        match &outcome {
            Ok(report) => {
                tracing::info!(harness = %report.id, %component, seconds, cached = report.cached, "a provider was loaded");
            }
            Err(error) => {
                tracing::error!(%component, code = error.code(), %error, "a provider was not loaded")
            }
        }
        let outcome_label = outcome.as_ref().map_or_else(LoadError::code, |_| "ok");
        metrics::counter!("harness_provider_loads_total", "outcome" => outcome_label).increment(1);
        metrics::histogram!("harness_provider_load_seconds").record(seconds);
        outcome
    }

    /// Ends every instance of every provider, and waits until they and their processes are gone.
    pub async fn shutdown(&self) {
        let providers: Vec<_> = self.providers().values().cloned().collect();
        futures::future::join_all(
            providers
                .iter()
                .map(|provider| provider.dispose(AbortReason::Shutdown)),
        )
        .await;
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.providers().keys()).finish()
    }
}

impl Harnesses for Registry {
    fn list(&self) -> Vec<Arc<dyn Harness>> {
        self.providers()
            .values()
            .map(|provider| provider.clone() as Arc<dyn Harness>)
            .collect()
    }

    fn get(&self, id: &HarnessId) -> Option<Arc<dyn Harness>> {
        self.provider(id)
            .map(|provider| provider as Arc<dyn Harness>)
    }
}

impl ProviderAdmin for Registry {
    fn reports(&self) -> Vec<ProviderReport> {
        let providers: Vec<_> = self.providers().values().cloned().collect();
        providers.iter().map(|provider| provider.report()).collect()
    }

    fn report(&self, id: &HarnessId) -> Option<ProviderReport> {
        self.provider(id).map(|provider| provider.report())
    }

    fn install<'a>(
        &'a self,
        component: &'a str,
        sha256: &'a str,
    ) -> BoxFuture<'a, Result<ProviderReport, AdminError>> {
        Box::pin(async move {
            let mut spec = ProviderSpec::new(ComponentSource::File(component.into()));
            spec.sha256 = Some(sha256.to_owned());
            let ghost = provisional(&spec.source);
            let listed = ghost.as_ref().is_some_and(|id| self.provider(id).is_some());
            self.load(spec).await.map_err(|error| {
                // Refused means that nothing changed: unlike at start, nobody configured it.
                if let Some(id) = ghost.filter(|_| !listed) {
                    self.0
                        .providers
                        .write()
                        .unwrap_or_else(PoisonError::into_inner)
                        .remove(&id);
                }
                AdminError::Refused(error.to_string())
            })
        })
    }

    fn remove<'a>(&'a self, id: &'a HarnessId) -> BoxFuture<'a, Result<(), AdminError>> {
        Box::pin(async move {
            let removed = self
                .0
                .providers
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(id);
            let provider = removed.ok_or_else(|| AdminError::NotFound(id.clone()))?;
            provider.remove(AbortReason::Superseded).await;
            Ok(())
        })
    }

    fn release(&self, id: &HarnessId) -> Result<ProviderReport, AdminError> {
        let provider = self
            .provider(id)
            .ok_or_else(|| AdminError::NotFound(id.clone()))?;
        if let Some(installed) = provider.installed() {
            installed.health.release();
        }
        Ok(provider.report())
    }

    fn logs(&self, id: &HarnessId, limit: usize) -> Result<Vec<LogLine>, AdminError> {
        let provider = self
            .provider(id)
            .ok_or_else(|| AdminError::NotFound(id.clone()))?;
        Ok(provider
            .installed()
            .map(|installed| installed.log.newest(limit))
            .unwrap_or_default())
    }
}
