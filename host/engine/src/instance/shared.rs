//! What the driver task, the calls and the handles of one instance share.
//!
//! Invariants: the cause of the end is set once; `gone` is raised right after it, so that no call
//! waits for a store that is still being dropped; `ended` is raised last, when the store and its
//! process groups are gone (N3).

use super::abort::CallAbort;
use super::end::EndCause;
use super::job::Job;
use crate::flag::Flag;
use crate::installed::Installed;
use harness_core::abort::{AbortHandle, AbortReason, AbortSignal};
use harness_core::provider::{CallError, InstanceEnd, InstanceScope};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// See the module.
pub(crate) struct Shared {
    /// Number of this instance in this process, for logs.
    pub(crate) number: u64,
    /// The provider it belongs to.
    pub(crate) installed: Arc<Installed>,
    /// Whom it serves.
    pub(crate) scope: InstanceScope,
    /// Where futures that outlive their caller go.
    pub(crate) runtime: Handle,
    // Unbounded: its only senders are calls of the session, which are few and awaited, and
    // handles, of which each sends once.
    jobs: mpsc::UnboundedSender<Job>,
    closing: AbortHandle,
    refusing: AtomicBool,
    outstanding: AtomicUsize,
    cause: OnceLock<EndCause>,
    gone: Flag,
    end: OnceLock<InstanceEnd>,
    ended: Flag,
}

impl Shared {
    /// A new instance's, with the receiving side for its driver.
    pub(crate) fn new(
        number: u64,
        installed: Arc<Installed>,
        scope: InstanceScope,
        runtime: Handle,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Job>) {
        let (jobs, receiver) = mpsc::unbounded_channel();
        let shared = Self {
            number,
            installed,
            scope,
            runtime,
            jobs,
            closing: AbortHandle::new(),
            refusing: AtomicBool::new(false),
            outstanding: AtomicUsize::new(0),
            cause: OnceLock::new(),
            gone: Flag::default(),
            end: OnceLock::new(),
            ended: Flag::default(),
        };
        (Arc::new(shared), receiver)
    }

    /// Hands work to the driver; when the driver is gone the job is dropped.
    pub(crate) fn send(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    /// Why it is asked to end.
    pub(crate) fn closing_reason(&self) -> Option<AbortReason> {
        self.closing.reason()
    }

    /// An abort that also fires when the instance ends.
    pub(crate) fn abort(&self, outer: AbortSignal) -> CallAbort {
        CallAbort::new(outer, self.closing.signal())
    }

    /// Whether new calls may be made.
    pub(crate) fn is_live(&self) -> bool {
        !self.gone.is_raised()
            && !self.refusing.load(Ordering::Acquire)
            && self.closing.reason().is_none()
    }

    /// No new calls (N2).
    pub(crate) fn refuse(&self) {
        self.refusing.store(true, Ordering::Release);
    }

    /// Whether the driver may leave as soon as nothing is in flight.
    pub(crate) fn may_leave(&self) -> bool {
        let leaving = self.refusing.load(Ordering::Acquire) || self.closing.reason().is_some();
        leaving && self.outstanding.load(Ordering::Acquire) == 0
    }

    /// A started turn is held outside the driver: it must be passed to `done` before the end.
    pub(crate) fn lend(&self) {
        self.outstanding.fetch_add(1, Ordering::AcqRel);
    }

    /// It came back.
    pub(crate) fn give_back(&self) {
        self.outstanding.fetch_sub(1, Ordering::AcqRel);
        self.send(Job::Wake);
    }

    /// Ends the instance now; only the first cause counts.
    pub(crate) fn kill(&self, cause: EndCause) {
        let _ = self.cause.set(cause);
        self.gone.raise();
    }

    /// Asks the instance to end: every call is aborted, and what is not back within the drain
    /// bound is terminated. Idempotent.
    pub(crate) fn close(self: &Arc<Self>, reason: AbortReason) {
        if self.closing.reason().is_some() || self.gone.is_raised() {
            return;
        }
        self.closing.abort(reason);
        self.send(Job::Wake);
        self.kill_after_drain(EndCause::Terminated(reason));
    }

    /// Ends the instance with `cause` unless it has ended within the drain bound.
    pub(crate) fn kill_after_drain(self: &Arc<Self>, cause: EndCause) {
        let shared = self.clone();
        let drain = self.installed.limits.drain;
        self.runtime.spawn(async move {
            if tokio::time::timeout(drain, shared.gone.wait())
                .await
                .is_err()
            {
                shared.kill(cause);
            }
        });
    }

    /// Resolves as soon as the instance is being consumed.
    pub(crate) async fn gone(&self) -> EndCause {
        self.gone.wait().await;
        self.cause
            .get()
            .cloned()
            .unwrap_or(EndCause::Disposed(AbortReason::OwnerStopped))
    }

    /// The error of a call that is made when no new calls are taken.
    pub(crate) fn lost(&self) -> CallError {
        match self.cause.get() {
            Some(cause) => CallError::Lost(cause.to_string()),
            None => CallError::Lost("the instance is ending".to_owned()),
        }
    }

    /// The store and the process groups are gone.
    pub(crate) fn finish(&self) {
        self.gone.raise();
        let cause = self
            .cause
            .get()
            .cloned()
            .unwrap_or(EndCause::Disposed(AbortReason::OwnerStopped));
        let _ = self.end.set(cause.end());
        self.ended.raise();
    }

    /// Resolves when the store and the process groups are gone.
    pub(crate) async fn ended(&self) -> InstanceEnd {
        self.ended.wait().await;
        self.end.get().cloned().unwrap_or(InstanceEnd {
            clean: false,
            disconnected: false,
            reason: "ended".to_owned(),
        })
    }

    /// The session served, for logs.
    pub(crate) fn session(&self) -> String {
        match &self.scope {
            InstanceScope::Draft { project, .. } => format!("draft of {project}"),
            InstanceScope::Loop { session, .. } => session.to_string(),
        }
    }
}
