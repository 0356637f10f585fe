//! What a running provider tells its session without waiting for an answer.
//!
//! The contract's synchronous imports return at once, so they cannot wait for room in the actor's
//! mailbox. They set marks here and wake the actor. Every mark is a set or a latest value, so that
//! no number of calls makes it grow.

use harness_core::abort::{AbortHandle, AbortReason};
use harness_core::content::Usage;
use harness_core::ids::GateId;
use harness_core::provider::{ChannelError, WriterId};
use harness_core::session::{InvocationId, LinkId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Activities an instance may hold open (N5).
const MAX_ACTIVITIES: usize = 8;
/// Withdrawals remembered between two looks of the actor; more open gates cannot be.
const MAX_WITHDRAWALS: usize = 256;

/// What a provider's call waits for until it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    /// A gate.
    Gate(GateId),
    /// An announcement.
    Announcement(LinkId),
    /// A delegate's result.
    Await(LinkId),
}

/// Takes back what a call waited for when the call is dropped, be it before the call even learned
/// what it waits for (N17).
pub(crate) struct Guard {
    signals: Arc<Signals>,
    pending: Option<Pending>,
}

impl Guard {
    pub(crate) fn new(signals: Arc<Signals>, pending: Pending) -> Self {
        Self {
            signals,
            pending: Some(pending),
        }
    }

    /// It was answered.
    pub(crate) fn disarm(mut self) {
        self.pending = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        match self.pending {
            Some(Pending::Gate(id)) => self.signals.mark(|m| {
                m.unasked.insert(id);
            }),
            Some(Pending::Announcement(id)) => self.signals.mark(|m| {
                m.unannounced.insert(id);
            }),
            Some(Pending::Await(id)) => self.signals.mark(|m| {
                m.unawaited.insert(id);
            }),
            None => {}
        }
    }
}

/// The board of one loop.
#[derive(Default)]
pub(crate) struct Signals {
    /// The actor's, which all its boards share.
    wake: Arc<Notify>,
    // A std mutex: held for a few instructions, never across an await.
    marks: Mutex<Marks>,
}

/// What was marked since the last look.
#[derive(Default)]
pub(crate) struct Marks {
    /// Something was marked.
    any: bool,
    pub(crate) entered: BTreeSet<InvocationId>,
    pub(crate) usage: BTreeMap<InvocationId, Usage>,
    pub(crate) abandoned: BTreeSet<(InvocationId, WriterId)>,
    pub(crate) withdrawn: BTreeSet<(InvocationId, String)>,
    pub(crate) unasked: BTreeSet<GateId>,
    pub(crate) unannounced: BTreeSet<LinkId>,
    pub(crate) unawaited: BTreeSet<LinkId>,
    /// Announcements that their rate holds back now.
    pub(crate) paced: usize,
    pub(crate) state_changed: bool,
    pub(crate) activities_changed: bool,
    activities: BTreeMap<LinkId, (String, AbortHandle)>,
    last_activity: LinkId,
}

/// An announcement that its rate holds back; counted until it is dropped.
pub(crate) struct PacedTurn<'a>(&'a Signals);

impl Drop for PacedTurn<'_> {
    fn drop(&mut self) {
        self.0.mark(|m| m.paced -= 1);
    }
}

impl Signals {
    pub(crate) fn new(wake: Arc<Notify>) -> Self {
        Self {
            wake,
            ..Self::default()
        }
    }

    /// Counts an announcement that its rate holds back, so that a Stop finds it (N12).
    pub(crate) fn pace_turn(&self) -> PacedTurn<'_> {
        self.mark(|m| m.paced += 1);
        PacedTurn(self)
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a mark and wakes the actor.
    pub(crate) fn mark(&self, set: impl FnOnce(&mut Marks)) {
        {
            let mut marks = self.marks();
            marks.any = true;
            set(&mut marks);
        }
        self.wake.notify_one();
    }

    /// The provider withdraws a request.
    pub(crate) fn withdraw(&self, invocation: InvocationId, id: String) {
        self.mark(|m| {
            if m.withdrawn.len() < MAX_WITHDRAWALS && id.len() <= 256 {
                m.withdrawn.insert((invocation, id));
            }
        });
    }

    /// Takes the marks, if there are any; the open activities stay.
    pub(crate) fn take(&self) -> Option<Marks> {
        let mut marks = self.marks();
        if !std::mem::take(&mut marks.any) {
            return None;
        }
        let taken = std::mem::take(&mut *marks);
        marks.activities = taken.activities.clone();
        marks.last_activity = taken.last_activity;
        marks.paced = taken.paced;
        Some(taken)
    }

    /// Opens an activity.
    pub(crate) fn begin_activity(
        &self,
        label: String,
    ) -> Result<(LinkId, AbortHandle), ChannelError> {
        if !(1..=128).contains(&label.len()) {
            return Err(ChannelError::Limit(
                "an activity label has 1 to 128 bytes".into(),
            ));
        }
        let abort = AbortHandle::new();
        let id = {
            let mut marks = self.marks();
            if marks.activities.len() >= MAX_ACTIVITIES {
                return Err(ChannelError::Limit(format!(
                    "{MAX_ACTIVITIES} activities are open"
                )));
            }
            marks.last_activity += 1;
            let id = marks.last_activity;
            marks.activities.insert(id, (label, abort.clone()));
            marks.any = true;
            marks.activities_changed = true;
            id
        };
        self.wake.notify_one();
        Ok((id, abort))
    }

    /// An activity's handle dropped.
    pub(crate) fn end_activity(&self, id: LinkId) {
        self.mark(|m| {
            m.activities.remove(&id);
            m.activities_changed = true;
        });
    }

    /// Fires the signal of every open activity, and tells which these are.
    pub(crate) fn abort_activities(&self, reason: AbortReason) -> Vec<LinkId> {
        let open: Vec<_> = self
            .marks()
            .activities
            .iter()
            .map(|(id, (_, abort))| (*id, abort.clone()))
            .collect();
        for (_, abort) in &open {
            abort.abort(reason);
        }
        open.into_iter().map(|(id, _)| id).collect()
    }

    /// Open activities with their labels.
    pub(crate) fn activities(&self) -> BTreeMap<LinkId, String> {
        self.marks()
            .activities
            .iter()
            .map(|(id, (label, _))| (*id, label.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n5_at_most_eight_activities_with_short_labels() {
        let signals = Signals::default();
        let ids: Vec<_> = (0..MAX_ACTIVITIES)
            .map(|_| signals.begin_activity("goal".into()).unwrap().0)
            .collect();
        assert!(matches!(
            signals.begin_activity("goal".into()),
            Err(ChannelError::Limit(_))
        ));
        signals.end_activity(ids[0]);
        assert!(signals.begin_activity("goal".into()).is_ok());
        assert!(matches!(
            signals.begin_activity("x".repeat(129)),
            Err(ChannelError::Limit(_))
        ));
        signals.abort_activities(AbortReason::UserStop);
        assert_eq!(signals.activities().len(), MAX_ACTIVITIES);
    }

    #[test]
    fn w9_marks_do_not_grow_with_calls() {
        let signals = Signals::default();
        for n in 0..10_000 {
            signals.withdraw(1, format!("w{n}"));
            signals.mark(|m| m.state_changed = true);
        }
        let marks = signals.take().unwrap();
        assert_eq!(marks.withdrawn.len(), MAX_WITHDRAWALS);
        assert!(marks.state_changed && signals.take().is_none());
    }
}
