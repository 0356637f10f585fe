//! Draft discovery: instances that belong to no session, kept per harness, project and workspace
//! for a short idle period (W7, R14).

use crate::link::DraftLink;
use dashmap::DashMap;
use harness_core::abort::AbortReason;
use harness_core::ids::{HarnessId, ProjectId, WorkspaceId};
use harness_core::provider::{CallError, DiscoveryContext, Harness, Instance, InstanceScope};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Draft instances kept at once; beyond, the one unused longest is ended.
const MAX_DRAFTS: usize = 64;

type Key = (HarnessId, ProjectId, Option<WorkspaceId>);

struct Draft {
    instance: OnceCell<Arc<dyn Instance>>,
    // A std mutex: held for a copy.
    used: Mutex<Instant>,
}

/// The draft instances of a host.
pub(crate) struct Drafts {
    kept: Arc<DashMap<Key, Arc<Draft>>>,
    idle: Duration,
}

impl Drafts {
    pub(crate) fn new(idle: Duration) -> Self {
        Self {
            kept: Arc::default(),
            idle,
        }
    }

    /// A live draft instance for this place.
    pub(crate) async fn instance(
        &self,
        harness: &Arc<dyn Harness>,
        context: &DiscoveryContext,
        workspace: Option<WorkspaceId>,
    ) -> Result<Arc<dyn Instance>, CallError> {
        let key = (
            harness.id().clone(),
            context.project_id.clone(),
            workspace.clone(),
        );
        self.make_room(&key);
        let draft = self.draft(&key);
        let scope = InstanceScope::Draft {
            project: context.project_id.clone(),
            workspace,
        };
        let link = Arc::new(DraftLink {
            context: context.clone(),
        });
        let opened = draft
            .instance
            .get_or_try_init(|| harness.open(scope.clone(), link.clone()))
            .await?;
        if opened.is_live() {
            return Ok(opened.clone());
        }
        // It ended meanwhile: a fresh one, for whoever comes next too.
        self.kept
            .remove_if(&key, |_, kept| Arc::ptr_eq(kept, &draft));
        let draft = self.draft(&key);
        Ok(draft
            .instance
            .get_or_try_init(|| harness.open(scope, link))
            .await?
            .clone())
    }

    fn draft(&self, key: &Key) -> Arc<Draft> {
        let fresh = || {
            Arc::new(Draft {
                instance: OnceCell::new(),
                used: Mutex::new(Instant::now()),
            })
        };
        let mut spawned = false;
        let draft = self
            .kept
            .entry(key.clone())
            .or_insert_with(|| {
                spawned = true;
                fresh()
            })
            .clone();
        *draft.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if spawned {
            self.watch(key.clone(), draft.clone());
        }
        draft
    }

    /// Ends a draft instance once it was not used for the idle period.
    fn watch(&self, key: Key, draft: Arc<Draft>) {
        let (kept, idle) = (self.kept.clone(), self.idle);
        tokio::spawn(async move {
            let due = || *draft.used.lock().unwrap_or_else(PoisonError::into_inner) + idle;
            loop {
                tokio::time::sleep_until(due()).await;
                // Looked at again under the entry's lock: nobody takes it up in between.
                kept.remove_if(&key, |_, entry| {
                    Arc::ptr_eq(entry, &draft) && Instant::now() >= due()
                });
                if kept.get(&key).is_none_or(|e| !Arc::ptr_eq(&e, &draft)) {
                    break;
                }
            }
            if let Some(instance) = draft.instance.get() {
                instance.dispose(AbortReason::Idle).await;
            }
        });
    }

    fn make_room(&self, key: &Key) {
        if self.kept.len() < MAX_DRAFTS || self.kept.contains_key(key) {
            return;
        }
        let oldest = self
            .kept
            .iter()
            .min_by_key(|e| {
                *e.value()
                    .used
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
            })
            .map(|e| e.key().clone());
        if let Some((_, draft)) = oldest.and_then(|key| self.kept.remove(&key))
            && let Some(instance) = draft.instance.get()
        {
            tokio::spawn(instance.dispose(AbortReason::Idle));
        }
    }

    /// Ends all of them.
    pub(crate) async fn close(&self) {
        let keys: Vec<_> = self.kept.iter().map(|e| e.key().clone()).collect();
        for key in keys {
            if let Some((_, draft)) = self.kept.remove(&key)
                && let Some(instance) = draft.instance.get()
            {
                instance.dispose(AbortReason::Shutdown).await;
            }
        }
    }
}
