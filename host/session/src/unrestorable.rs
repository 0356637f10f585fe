//! Sessions that could not be restored, for a while: each attempt writes to their journal, and
//! nothing that a client repeats may make it grow without bound.

use dashmap::DashMap;
use harness_core::ids::SessionId;
use harness_core::refusal::Refused;
use std::time::Duration;
use tokio::time::Instant;

/// Sessions remembered at a time.
const MAX: usize = 1024;

/// Why sessions could not be restored, until they are tried again.
#[derive(Default)]
pub(crate) struct Unrestorable {
    // A sharded map: looked up by every request for a session that is not live.
    failed: DashMap<SessionId, (Instant, Refused)>,
}

impl Unrestorable {
    /// Whether it may be tried.
    ///
    /// # Errors
    /// Why it could not be restored a moment ago.
    pub(crate) fn check(&self, id: SessionId) -> Result<(), Refused> {
        if self.failed.is_empty() {
            return Ok(());
        }
        let fresh = |_: &SessionId, (until, _): &(Instant, Refused)| Instant::now() >= *until;
        if self.failed.remove_if(&id, fresh).is_some() {
            return Ok(());
        }
        match self.failed.get(&id) {
            Some(entry) => Err(entry.1.clone()),
            None => Ok(()),
        }
    }

    /// Keeps a failed restore for that long; any other refusal may be over at once.
    pub(crate) fn remember(&self, id: SessionId, refused: &Refused, again: Duration) {
        if !matches!(refused, Refused::RestoreFailed(_)) || self.failed.contains_key(&id) {
            return;
        }
        if self.failed.len() >= MAX {
            let now = Instant::now();
            self.failed.retain(|_, (until, _)| now < *until);
        }
        if self.failed.len() < MAX {
            let until = Instant::now() + again;
            self.failed.insert(id, (until, refused.clone()));
        }
    }

    /// It is gone.
    pub(crate) fn forget(&self, id: SessionId) {
        self.failed.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[tokio::test(start_paused = true)]
    async fn a_failed_restore_is_remembered_for_its_time_and_within_a_bound() {
        let known = Unrestorable::default();
        let id = |n: u128| SessionId(Uuid::from_u128(n));
        let failed = Refused::RestoreFailed("drift".into());
        let again = Duration::from_secs(10);
        known.remember(id(1), &failed, again);
        known.remember(id(2), &Refused::StoreUnavailable, again);
        assert_eq!(known.check(id(1)), Err(failed.clone()));
        assert_eq!(known.check(id(2)), Ok(()));
        tokio::time::advance(again).await;
        assert_eq!(known.check(id(1)), Ok(()), "tried again");
        for n in 0..2 * MAX as u128 {
            known.remember(id(n), &failed, again);
        }
        assert_eq!(known.failed.len(), MAX);
        known.forget(id(0));
        assert_eq!(known.check(id(0)), Ok(()));
    }
}
