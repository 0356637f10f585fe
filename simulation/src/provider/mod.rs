//! Harnesses that behave as real ones do, good and bad: slow, failing, trapping, deaf to their
//! abort, asking, streaming, folding, beginning turns of their own.

mod delegating;
mod instance;
mod script;

pub(crate) use instance::SimInstance;

use crate::life::Life;
use harness_core::ids::HarnessId;
use harness_core::operation::{CommandState, NativeCommand};
use harness_core::provider::{
    BoxFuture, CallError, Features, Harness, HarnessInfo, HarnessStatus, Harnesses, Instance,
    InstanceHost, InstanceScope, LoopMode, ModelSpec, ParamControl, ParamSpec, ParamValue,
    ProviderState, TimeoutStrategy, WorkspaceNeed,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::sleep;

/// The two harnesses: one that can do everything, one that can do little.
pub(crate) const HARNESSES: [&str; 2] = ["sim/able", "sim/plain"];

/// Installed harnesses of one process.
pub(crate) struct Shelf(Vec<Arc<SimHarness>>);

impl Shelf {
    /// Both, in this process.
    #[must_use]
    pub(crate) fn new(life: &Arc<Life>) -> Self {
        let ids = HARNESSES.iter().filter_map(|id| id.parse().ok());
        Self(ids.map(|id| SimHarness::new(id, life.clone())).collect())
    }
}

impl Harnesses for Shelf {
    fn list(&self) -> Vec<Arc<dyn Harness>> {
        self.0
            .iter()
            .map(|h| h.clone() as Arc<dyn Harness>)
            .collect()
    }

    fn get(&self, id: &HarnessId) -> Option<Arc<dyn Harness>> {
        let found = self.0.iter().find(|h| h.id == *id);
        found.map(|h| h.clone() as Arc<dyn Harness>)
    }
}

/// One harness.
pub(crate) struct SimHarness {
    id: HarnessId,
    info: Arc<HarnessInfo>,
    life: Arc<Life>,
    /// Counts changes of its command state.
    version: AtomicU64,
}

impl SimHarness {
    fn new(id: HarnessId, life: Arc<Life>) -> Arc<Self> {
        let info = Arc::new(info(&id));
        Arc::new(Self {
            id,
            info,
            life,
            version: AtomicU64::new(0),
        })
    }

    pub(crate) fn state(&self) -> CommandState {
        let version = self.version.load(Ordering::Relaxed);
        CommandState {
            slash_commands: true,
            commands: vec![NativeCommand {
                name: format!("v{version}"),
                description: String::new(),
                argument_help: None,
                composer: None,
                disabled_reason: None,
            }],
            ..CommandState::default()
        }
    }

    pub(crate) fn change_state(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }
}

fn info(id: &HarnessId) -> HarnessInfo {
    let able = id.as_str() == "sim/able";
    let mode = |name: &str| LoopMode {
        name: name.into(),
        label: name.into(),
    };
    HarnessInfo {
        id: id.clone(),
        label: id.to_string(),
        version: "1".into(),
        models: vec![ModelSpec {
            id: "big".into(),
            label: "Big".into(),
            efforts: vec!["low".into(), "high".into()],
        }],
        loop_modes: if able {
            vec![mode("plan"), mode("build")]
        } else {
            Vec::new()
        },
        params: vec![ParamSpec {
            id: "plan".into(),
            label: "Plan".into(),
            description: None,
            control: ParamControl::Inline,
            default: ParamValue::Boolean(false),
            choices: Vec::new(),
        }],
        workspace: WorkspaceNeed::Any,
        timeout: TimeoutStrategy::Activity,
        features: Features {
            commands: true,
            state_push: true,
            folding: able,
            compaction: able,
            native_turns: able,
            delegation: able,
            ..Features::default()
        },
    }
}

impl Harness for SimHarness {
    fn id(&self) -> &HarnessId {
        &self.id
    }

    fn info(&self) -> Option<Arc<HarnessInfo>> {
        Some(self.info.clone())
    }

    fn status(&self) -> HarnessStatus {
        HarnessStatus {
            state: ProviderState::Ready,
            reason: None,
            readiness: None,
        }
    }

    fn open(
        &self,
        scope: InstanceScope,
        host: Arc<dyn InstanceHost>,
    ) -> BoxFuture<'_, Result<Arc<dyn Instance>, CallError>> {
        Box::pin(async move {
            let life = &self.life;
            life.goes_on().await;
            let (dice, calm) = (&life.world.dice, life.plan.calm);
            if dice.percent(50) && !calm {
                sleep(dice.pause()).await;
            }
            if dice.percent(3) && !calm {
                return Err(CallError::Unavailable {
                    reason: "it backs off".into(),
                    loading: false,
                });
            }
            let me = Self {
                id: self.id.clone(),
                info: self.info.clone(),
                life: life.clone(),
                version: AtomicU64::new(self.version.load(Ordering::Relaxed)),
            };
            let instance = SimInstance::new(Arc::new(me), scope, host);
            if self.info.features.native_turns && !calm {
                tokio::spawn(instance.clone().runs());
            }
            Ok(instance as Arc<dyn Instance>)
        })
    }
}
