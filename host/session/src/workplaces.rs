//! Who is in a workspace: sessions that work there, or one that has it alone (S99).
//!
//! Sessions share a workspace by its root, whatever ids lead to it. A checkpoint or rewind has it
//! alone; while one does, nothing starts there. Nobody is made to leave, and who waits to have it
//! alone keeps nobody out.
//!
//! Invariant: a guard is given back when it is dropped, so an actor that ends in any way leaves.

use dashmap::DashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

type Places = DashMap<PathBuf, Weak<Workplace>>;

/// The workspaces of a host in which somebody is, or was lately.
#[derive(Default)]
pub(crate) struct Workplaces {
    places: Arc<Places>,
}

/// One workspace.
pub(crate) struct Workplace {
    root: PathBuf,
    /// State and its change in one: modified under the channel's own short lock.
    state: watch::Sender<Occupancy>,
    places: Arc<Places>,
}

#[derive(Debug, Default)]
struct Occupancy {
    /// Sessions that work there.
    working: usize,
    /// One has it alone.
    alone: bool,
}

/// A session works there.
pub(crate) struct Inside(Arc<Workplace>);

/// A session has it alone.
pub(crate) struct Alone(Arc<Workplace>);

/// Tells when somebody comes or leaves.
pub(crate) struct Comings(watch::Receiver<Occupancy>);

impl Workplaces {
    /// The workspace at that root.
    pub(crate) async fn at(&self, root: &str) -> Arc<Workplace> {
        let root = match tokio::fs::canonicalize(root).await {
            Ok(root) => root,
            // It is gone; what begins there finds out.
            Err(_) => PathBuf::from(root),
        };
        let mut entry = self.places.entry(root.clone()).or_default();
        if let Some(place) = entry.upgrade() {
            return place;
        }
        let place = Arc::new(Workplace {
            root,
            state: watch::Sender::default(),
            places: self.places.clone(),
        });
        *entry = Arc::downgrade(&place);
        place
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        self.places
            .remove_if(&self.root, |_, place| place.strong_count() == 0);
    }
}

impl Workplace {
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// From now on.
    pub(crate) fn comings(&self) -> Comings {
        Comings(self.state.subscribe())
    }

    /// Begins to work there, unless somebody has it alone.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Inside> {
        let entered = self.state.send_if_modified(|now| {
            now.working += usize::from(!now.alone);
            !now.alone
        });
        entered.then(|| Inside(self.clone()))
    }

    /// Has it alone, unless somebody is there, or in a workspace inside or around it.
    pub(crate) fn take_alone(self: &Arc<Self>) -> Option<Alone> {
        if self.is_around_others() {
            return None;
        }
        let taken = self.state.send_if_modified(|now| {
            let free = now.working == 0 && !now.alone;
            now.alone |= free;
            free
        });
        taken.then(|| Alone(self.clone()))
    }

    /// Whether somebody is in another workspace that holds this one or is held by it.
    fn is_around_others(&self) -> bool {
        self.places.iter().any(|entry| {
            let (root, place) = entry.pair();
            let nested = root.starts_with(&self.root) || self.root.starts_with(root);
            nested
                && *root != self.root
                && place.upgrade().is_some_and(|place| {
                    let now = place.state.borrow();
                    now.alone || now.working > 0
                })
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.state.send_modify(|now| now.working -= 1);
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.state.send_modify(|now| now.alone = false);
    }
}

impl Comings {
    /// Waits for the next one.
    pub(crate) async fn next(mut self) {
        // The place is held by who waits: its channel does not close before.
        let _ = self.0.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn at(places: &Workplaces, root: &Path) -> Arc<Workplace> {
        places.at(root.to_str().unwrap()).await
    }

    #[tokio::test]
    async fn s99_many_work_there_or_one_has_it_alone() {
        let (places, dir) = (Workplaces::default(), tempfile::tempdir().unwrap());
        let place = at(&places, dir.path()).await;
        let (one, other) = (place.enter().unwrap(), place.enter().unwrap());
        assert!(place.take_alone().is_none());
        drop(one);
        assert!(place.take_alone().is_none());
        drop(other);
        let alone = place.take_alone().unwrap();
        assert!(place.enter().is_none() && place.take_alone().is_none());
        drop(alone);
        assert!(place.enter().is_some());
    }

    #[tokio::test]
    async fn s99_a_root_is_one_workspace_whatever_leads_to_it() {
        let (places, dir) = (Workplaces::default(), tempfile::tempdir().unwrap());
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink(&root, dir.path().join("link")).unwrap();
        let place = at(&places, &root).await;
        let _inside = place.enter().unwrap();
        let link = at(&places, &dir.path().join("link")).await;
        assert!(Arc::ptr_eq(&place, &link));
        let around = at(&places, dir.path()).await;
        assert!(around.take_alone().is_none(), "work goes on inside of it");
        let beside = at(&places, &dir.path().join("beside")).await;
        assert!(beside.take_alone().is_some());
    }

    #[tokio::test]
    async fn a_workspace_nobody_is_in_is_forgotten() {
        let (places, dir) = (Workplaces::default(), tempfile::tempdir().unwrap());
        let place = at(&places, dir.path()).await;
        assert_eq!(places.places.len(), 1);
        drop(place);
        assert_eq!(places.places.len(), 0);
    }

    #[tokio::test]
    async fn s99_who_waits_is_told_when_it_is_free() {
        let (places, dir) = (Workplaces::default(), tempfile::tempdir().unwrap());
        let place = at(&places, dir.path()).await;
        let alone = place.take_alone().unwrap();
        let comings = place.comings();
        assert!(place.enter().is_none());
        drop(alone);
        comings.next().await;
        assert!(place.enter().is_some());
    }
}
