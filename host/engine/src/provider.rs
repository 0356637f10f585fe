//! One provider of the host, from the start of its load to its removal: the port's `Harness`.

use crate::config::ProviderSpec;
use crate::draft::NoSession;
use crate::installed::Installed;
use crate::instance::{Live, start};
use crate::load::{Facts, default_project};
use crate::supervise::Admission;
use harness_core::abort::{AbortReason, AbortSignal};
use harness_core::admin::ProviderReport;
use harness_core::configuration::HarnessConfiguration;
use harness_core::ids::HarnessId;
use harness_core::provider::{
    BoxFuture, CallError, Compatibility, Harness, HarnessInfo, HarnessStatus, Instance,
    InstanceHost, InstanceScope, ProviderState, Readiness, WorkspaceNeed,
};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// Longest wait of an `open` for a provider that restarts. Beyond it, the answer is that it is
/// unavailable, which a client may repeat.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether an instance may be opened.
enum Admitted {
    Now(Arc<Installed>),
    /// It restarts after that time.
    Later(Duration),
    No(CallError),
}

/// See the module.
pub(crate) struct Provider {
    id: HarnessId,
    spec: ProviderSpec,
    // A std lock: held for a clone or a store, never across an await. Read far more than written.
    stage: RwLock<Stage>,
}

/// How far a provider came.
struct Stage {
    facts: Facts,
    load_time: Option<Duration>,
    reached: Reached,
}

#[derive(Clone)]
enum Reached {
    Loading,
    Failed(String),
    /// Loaded, and detection may have run.
    Loaded {
        installed: Arc<Installed>,
        detected: Option<Result<Readiness, String>>,
    },
    Removed,
}

impl Provider {
    /// One whose load has just begun.
    pub(crate) fn loading(id: HarnessId, spec: ProviderSpec) -> Self {
        let stage = Stage {
            facts: Facts::default(),
            load_time: None,
            reached: Reached::Loading,
        };
        Self {
            id,
            spec,
            stage: RwLock::new(stage),
        }
    }

    fn stage(&self) -> RwLockReadGuard<'_, Stage> {
        self.stage.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn reached(&self) -> Reached {
        self.stage().reached.clone()
    }

    fn reach(&self, change: impl FnOnce(&mut Stage)) {
        let mut stage = self.stage.write().unwrap_or_else(PoisonError::into_inner);
        if !matches!(stage.reached, Reached::Removed) {
            change(&mut stage);
        }
    }

    /// The load failed.
    pub(crate) fn failed(&self, facts: Facts, reason: String) {
        self.reach(|stage| {
            stage.facts = facts;
            stage.reached = Reached::Failed(reason);
        });
    }

    /// The load succeeded. Detects before the provider is called ready (G8).
    pub(crate) async fn loaded(&self, facts: Facts, installed: Arc<Installed>, since: Instant) {
        let detected = detect(&installed).await;
        if let Err(why) = &detected {
            tracing::warn!(harness = %self.id, %why, "the native harness could not be detected");
        }
        self.reach(|stage| {
            stage.facts = facts;
            stage.load_time = Some(since.elapsed());
            stage.reached = Reached::Loaded {
                installed,
                detected: Some(detected),
            };
        });
    }

    /// Disposes every instance and takes no more.
    pub(crate) async fn remove(&self, reason: AbortReason) {
        let installed = match self.reached() {
            Reached::Loaded { installed, .. } => Some(installed),
            _ => None,
        };
        self.reach(|stage| stage.reached = Reached::Removed);
        if let Some(installed) = installed {
            dispose(&installed, reason).await;
        }
    }

    /// Disposes every instance.
    pub(crate) async fn dispose(&self, reason: AbortReason) {
        if let Reached::Loaded { installed, .. } = self.reached() {
            dispose(&installed, reason).await;
        }
    }

    /// Its loaded component.
    pub(crate) fn installed(&self) -> Option<Arc<Installed>> {
        match self.reached() {
            Reached::Loaded { installed, .. } => Some(installed),
            _ => None,
        }
    }

    /// As an operator sees it.
    pub(crate) fn report(&self) -> ProviderReport {
        let status = self.status();
        let info = self.info();
        let installed = self.installed();
        let stage = self.stage();
        ProviderReport {
            id: self.id.clone(),
            label: info.as_ref().map(|info| info.label.clone()),
            version: info.as_ref().map(|info| info.version.clone()),
            state: status.state,
            reason: status.reason,
            component: self.spec.source.name(),
            sha256: stage.facts.sha256.clone(),
            contract: stage.facts.contract.clone(),
            grants: self.spec.grants.describe(),
            limits: self.spec.limits.describe(),
            load_ms: stage
                .load_time
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            cached: stage.facts.cached,
            instances: installed.as_ref().map_or(0, |i| i.instances().len()),
            restarts: installed.as_ref().map_or(0, |i| i.health.restarts()),
            recent_failures: installed.as_ref().map_or(0, |i| i.health.recent()),
            last_failure: installed.as_ref().and_then(|i| i.health.last_failure()),
        }
    }

    /// Waits out a restart that is near, so that what one session's instance did is no refusal for
    /// the others (W1); all else is answered at once.
    async fn admitted(&self) -> Result<Arc<Installed>, CallError> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let wait = match self.admit() {
                Admitted::Now(installed) => return Ok(installed),
                Admitted::Later(wait) => wait,
                Admitted::No(error) => return Err(error),
            };
            // Looked at again afterwards: it may have failed once more, or be removed.
            let until = tokio::time::Instant::now() + wait;
            if until > end {
                return Err(CallError::Unavailable {
                    reason: format!("it restarts in {} ms after a failure", wait.as_millis()),
                    loading: false,
                });
            }
            tokio::time::sleep_until(until).await;
        }
    }

    /// Whether an instance may be opened now.
    fn admit(&self) -> Admitted {
        let no = |reason: String, loading| Admitted::No(CallError::Unavailable { reason, loading });
        match self.reached() {
            Reached::Loading => no("it is being loaded".to_owned(), true),
            Reached::Failed(reason) => no(reason, false),
            Reached::Removed => no("it was removed".to_owned(), false),
            Reached::Loaded {
                installed,
                detected,
            } => {
                if let Some(Ok(Readiness {
                    compatibility: Compatibility::Incompatible(reason),
                    ..
                })) = detected
                {
                    return no(reason, false);
                }
                match installed.health.admit(Instant::now()) {
                    Admission::Yes => Admitted::Now(installed),
                    Admission::Wait(time) => Admitted::Later(time),
                    Admission::Quarantined(why) => no(format!("it is quarantined: {why}"), false),
                }
            }
        }
    }
}

/// Looks for the native harness in a draft instance of the default project.
async fn detect(installed: &Arc<Installed>) -> Result<Readiness, String> {
    let project = default_project().ok_or_else(|| "no project".to_owned())?;
    // One that needs no workspace gets none (R78).
    let placed = installed
        .info()
        .is_some_and(|info| info.workspace != WorkspaceNeed::None);
    let host = match installed.engine.detect_in() {
        Some(root) if placed => NoSession::new(project).in_default_workspace(root),
        _ => NoSession::new(project),
    };
    let (scope, context) = (host.scope(), host.context());
    let live = open(installed.clone(), scope, Arc::new(host)).map_err(|e| e.to_string())?;
    let readiness = live.detect(context, AbortSignal::never()).await;
    live.dispose(AbortReason::Idle).await;
    readiness.map_err(|e| e.to_string())
}

fn open(
    installed: Arc<Installed>,
    scope: InstanceScope,
    host: Arc<dyn InstanceHost>,
) -> Result<Live, CallError> {
    let permit = installed
        .engine
        .instance_permit()
        .ok_or_else(|| CallError::Unavailable {
            reason: "the host's bound of live instances is reached".to_owned(),
            loading: false,
        })?;
    Ok(start(installed, permit, scope, host))
}

async fn dispose(installed: &Installed, reason: AbortReason) {
    if let Some(backgrounds) = &installed.backgrounds {
        backgrounds.close();
    }
    let instances = installed.instances();
    for shared in &instances {
        shared.close(reason);
    }
    for shared in instances {
        shared.ended().await;
    }
}

impl Harness for Provider {
    fn id(&self) -> &HarnessId {
        &self.id
    }

    fn info(&self) -> Option<Arc<HarnessInfo>> {
        self.installed().and_then(|installed| installed.info())
    }

    fn configuration(&self) -> Option<HarnessConfiguration> {
        let info = self.info()?;
        let stage = self.stage();
        Some(HarnessConfiguration {
            declares: stage
                .facts
                .declares
                .clone()
                .unwrap_or_else(|| info.id.clone()),
            version: info.version.clone(),
            contract: stage.facts.contract.clone(),
            loop_modes: info.loop_modes.iter().map(|m| m.name.clone()).collect(),
        })
    }

    fn status(&self) -> HarnessStatus {
        let status = |state, reason, readiness| HarnessStatus {
            state,
            reason,
            readiness,
        };
        match self.reached() {
            Reached::Loading => status(
                ProviderState::Loading,
                Some("it is being loaded".to_owned()),
                None,
            ),
            Reached::Failed(reason) => status(ProviderState::Failed, Some(reason), None),
            Reached::Removed => status(
                ProviderState::Failed,
                Some("it was removed".to_owned()),
                None,
            ),
            Reached::Loaded {
                installed,
                detected,
            } => {
                let (readiness, undetected) = match detected {
                    Some(Ok(readiness)) => (Some(readiness), None),
                    Some(Err(why)) => (None, Some(format!("detection: {why}"))),
                    None => (None, None),
                };
                if let Admission::Quarantined(why) = installed.health.admit(Instant::now()) {
                    return status(ProviderState::Quarantined, Some(why), readiness);
                }
                match &readiness {
                    Some(Readiness {
                        compatibility: Compatibility::Incompatible(reason),
                        ..
                    }) => status(ProviderState::Incompatible, Some(reason.clone()), readiness),
                    _ => status(ProviderState::Ready, undetected, readiness),
                }
            }
        }
    }

    fn open(
        &self,
        scope: InstanceScope,
        host: Arc<dyn InstanceHost>,
    ) -> BoxFuture<'_, Result<Arc<dyn Instance>, CallError>> {
        Box::pin(async move {
            let installed = self.admitted().await?;
            let live: Arc<dyn Instance> = Arc::new(open(installed, scope, host)?);
            Ok(live)
        })
    }
}
