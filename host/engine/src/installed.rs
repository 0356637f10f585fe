//! One loaded component under the id it is installed as: what all its instances share.

use crate::bindings::HarnessProviderPre;
use crate::config::ProviderSpec;
use crate::convert;
use crate::engine::Engine;
use crate::exports::Exports;
use crate::grants::{Grants, ProcessGrant};
use crate::imports::{self, Native};
use crate::instance::ctx::Ctx;
use crate::instance::end::EndCause;
use crate::instance::shared::Shared;
use crate::limits::Limits;
use crate::log::ProviderLog;
use crate::native::http::{Http, HttpLimits, Origins};
use crate::native::process::{Backgrounds, ProcessLimits, Processes};
use crate::preflight::LoadError;
use crate::supervise::Health;
use harness_core::ids::HarnessId;
use harness_core::operation::MAX_REASON;
use harness_core::provider::{HarnessInfo, TimeoutStrategy};
use harness_core::state_store::StateStore;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;
use wasmtime::component::Component;

/// See the module.
pub(crate) struct Installed {
    pub(crate) id: HarnessId,
    pub(crate) engine: Engine,
    pub(crate) config: Vec<(String, String)>,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    pub(crate) log: Arc<ProviderLog>,
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) health: Health,
    pub(crate) pre: HarnessProviderPre<Ctx>,
    pub(crate) exports: Arc<Exports>,
    info: OnceLock<Arc<HarnessInfo>>,
    programs: Arc<BTreeMap<String, ProcessGrant>>,
    /// Programs of all its sessions that outlive an instance.
    pub(crate) backgrounds: Option<Backgrounds>,
    origins: Option<Arc<Origins>>,
    // A std mutex: held for one insert, remove or copy, never across an await.
    live: Mutex<HashMap<u64, Weak<Shared>>>,
}

/// A component linked with exactly its grants.
#[derive(Clone)]
pub(crate) struct Linked {
    pre: HarnessProviderPre<Ctx>,
    exports: Arc<Exports>,
    origins: Option<Arc<Origins>>,
}

impl Linked {
    /// Links it.
    ///
    /// # Errors
    /// A grant that makes no sense, or types that do not fit the contract.
    pub(crate) fn new(
        engine: &Engine,
        component: &Component,
        grants: &Grants,
    ) -> Result<Self, LoadError> {
        for (name, program) in &grants.process {
            if program.command.first().is_none_or(String::is_empty) {
                return Err(LoadError::InvalidGrant(format!(
                    "program `{name}` has an empty `command`"
                )));
            }
        }
        let origins = if grants.http.is_empty() {
            None
        } else {
            Some(Arc::new(
                Origins::new(&grants.http).map_err(|e| LoadError::InvalidGrant(e.to_string()))?,
            ))
        };
        let mismatch = |error: wasmtime::Error| LoadError::Mismatch(format!("{error:#}"));
        let linker = imports::linker(engine.wasmtime(), grants).map_err(mismatch)?;
        let pre = linker
            .instantiate_pre(component)
            .and_then(HarnessProviderPre::new)
            .map_err(mismatch)?;
        let exports = Arc::new(Exports::of(component).map_err(mismatch)?);
        Ok(Self {
            pre,
            exports,
            origins,
        })
    }
}

impl Installed {
    /// The linked component under `id`.
    pub(crate) fn new(
        engine: &Engine,
        linked: Linked,
        spec: &ProviderSpec,
        id: HarnessId,
        state: Arc<dyn StateStore>,
    ) -> Self {
        let limits = spec.limits.clone();
        let programs = Arc::new(spec.grants.process.clone());
        let backgrounds = spec.grants.allows("background").then(|| {
            Backgrounds::new(
                engine.supervisor(),
                programs.clone(),
                limits.background_output,
            )
        });
        Self {
            log: Arc::new(ProviderLog::new(id.clone(), limits.log_rate)),
            id,
            engine: engine.clone(),
            config: spec.config.clone(),
            state,
            health: Health::new(&limits),
            limits,
            pre: linked.pre,
            exports: linked.exports,
            info: OnceLock::new(),
            programs,
            backgrounds,
            origins: linked.origins,
            grants: spec.grants.clone(),
            live: Mutex::default(),
        }
    }

    /// What the component says of itself, once described.
    pub(crate) fn info(&self) -> Option<Arc<HarnessInfo>> {
        self.info.get().cloned()
    }

    pub(crate) fn described(&self, info: HarnessInfo) {
        let _ = self.info.set(Arc::new(info));
    }

    /// Who ends a silent turn (R28).
    pub(crate) fn timeout(&self) -> TimeoutStrategy {
        self.info
            .get()
            .map_or(TimeoutStrategy::Activity, |info| info.timeout)
    }

    /// Granted programs and origins for a fresh instance.
    pub(crate) fn native(&self) -> Native {
        let limits = &self.limits;
        let processes = (!self.programs.is_empty()).then(|| {
            let bounds = ProcessLimits {
                processes: u32::try_from(limits.processes).unwrap_or(u32::MAX),
                ..ProcessLimits::default()
            };
            Processes::new(self.engine.supervisor(), self.programs.clone(), bounds)
        });
        let http = self.origins.clone().map(|origins| {
            let bounds = HttpLimits {
                concurrent: limits.http_concurrent,
                response_bytes: limits.http_body,
                ..HttpLimits::default()
            };
            Http::new(origins, bounds)
        });
        Native {
            processes,
            backgrounds: self.backgrounds.clone(),
            http,
        }
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Weak<Shared>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new instance.
    pub(crate) fn track(&self, shared: &Arc<Shared>) {
        self.live().insert(shared.number, Arc::downgrade(shared));
        metrics::gauge!("harness_instances", "harness" => self.id.to_string()).increment(1.0);
    }

    /// Instances that live now.
    pub(crate) fn instances(&self) -> Vec<Arc<Shared>> {
        self.live().values().filter_map(Weak::upgrade).collect()
    }

    /// An instance and its processes are gone.
    pub(crate) fn instance_ended(&self, shared: &Shared, cause: &EndCause) {
        self.live().remove(&shared.number);
        let harness = self.id.to_string();
        metrics::gauge!("harness_instances", "harness" => harness.clone()).decrement(1.0);
        metrics::counter!("harness_instance_ends_total", "harness" => harness.clone(), "cause" => cause.label())
            .increment(1);
        if !cause.is_failure() {
            return;
        }
        metrics::counter!("harness_instance_restarts_total", "harness" => harness).increment(1);
        let why = convert::cut(cause.to_string(), MAX_REASON);
        tracing::warn!(
            harness = %self.id, session = shared.session(), instance = shared.number, cause = cause.label(), %why,
            "a provider instance failed"
        );
        if self.health.failed(Instant::now(), &why, rand::random()) {
            tracing::error!(harness = %self.id, %why, "the provider is quarantined until it is released");
        }
    }
}
