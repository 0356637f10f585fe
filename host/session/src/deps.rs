//! What every session shares: stores, harnesses, slots, settings, and who is told of changes.

use crate::config::HostConfig;
use crate::directory::Directory;
use crate::drift::DriftDecider;
use crate::observer::SessionObserver;
use crate::requests::RowChange;
use crate::slots::Slots;
use crate::surroundings::Surroundings;
use crate::unrestorable::Unrestorable;
use crate::workplaces::Workplaces;
use dashmap::DashMap;
use harness_core::ids::WorkspaceId;
use harness_core::provider::Harnesses;
use harness_core::workspace::SnapshotStore;
use harness_journal::{Catalog, Journal, Workspace};
use std::sync::Arc;
use tokio::sync::broadcast;

/// Shared by all actors of a host.
pub(crate) struct Deps {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) harnesses: Arc<dyn Harnesses>,
    /// Live sessions.
    pub(crate) directory: Directory,
    /// Workspaces known to be ready.
    pub(crate) workspaces: DashMap<WorkspaceId, Workspace>,
    /// Who is in which workspace.
    pub(crate) workplaces: Workplaces,
    /// Snapshots of workspaces; `None`: this host keeps none.
    pub(crate) snapshots: Option<Arc<dyn SnapshotStore>>,
    pub(crate) slots: Slots,
    pub(crate) config: HostConfig,
    pub(crate) observer: Arc<dyn SessionObserver>,
    /// Accepts sessions that drifted.
    pub(crate) drift: Arc<dyn DriftDecider>,
    /// Sessions that could not be restored.
    pub(crate) unrestorable: Unrestorable,
    pub(crate) surroundings: Arc<dyn Surroundings>,
    #[cfg(feature = "planted-faults")]
    pub(crate) planted: Option<crate::planted::Planted>,
    /// Rows as they change, for list streams. A slow list reader skips rows; it has no replay.
    pub(crate) rows: broadcast::Sender<RowChange>,
}
