//! The programs of one instance: named by its grants, counted, and ended together.

use super::running::Life;
use super::{Process, Supervisor, resolve};
use crate::grants::ProcessGrant;
use crate::native::IoError;
use harness_core::abort::AbortSignal;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Bounds of one instance's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Programs that may live at a time, those that are being ended included. Default 4.
    pub processes: u32,
    /// Bytes that may wait for one program's standard input. Default 8 MiB; also the largest write.
    pub stdin_bytes: usize,
    /// Writes that may wait for one program's standard input. Default 64.
    pub stdin_writes: usize,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self {
            processes: 4,
            stdin_bytes: 8 * 1024 * 1024,
            stdin_writes: 64,
        }
    }
}

/// The programs an instance may start and those it has started. Clones share both.
#[derive(Clone)]
pub struct Processes {
    supervisor: Supervisor,
    grants: Arc<BTreeMap<String, ProcessGrant>>,
    limits: ProcessLimits,
    /// One permit a program, given back when its last descendant is reaped.
    slots: Arc<Semaphore>,
    ended: CancellationToken,
}

impl Processes {
    /// None started yet.
    #[must_use]
    pub fn new(
        supervisor: Supervisor,
        grants: Arc<BTreeMap<String, ProcessGrant>>,
        limits: ProcessLimits,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(
            usize::try_from(limits.processes).unwrap_or(usize::MAX),
        ));
        Self {
            supervisor,
            grants,
            limits,
            slots,
            ended: CancellationToken::new(),
        }
    }

    /// Starts the program granted under `name`. `workspace` is the root of the session's own local
    /// workspace: the caller has checked that it is. With `abort` the program ends when that fires.
    /// Dropping the future ends what was started.
    ///
    /// # Errors
    /// [`IoError::Denied`] without such a grant or without the workspace it runs in,
    /// [`IoError::NotFound`] without the program or directory, [`IoError::Limit`] when all slots are
    /// taken, [`IoError::Closed`] after the abort or [`Self::close`], else [`IoError::Failed`].
    pub async fn spawn(
        &self,
        name: &str,
        workspace: Option<&Path>,
        abort: Option<AbortSignal>,
    ) -> Result<Process, IoError> {
        let grant = self.grants.get(name).cloned();
        let grant =
            grant.ok_or_else(|| IoError::Denied(format!("program {name:?} is not granted")))?;
        if self.ended.is_cancelled() || abort.as_ref().is_some_and(|abort| abort.reason().is_some())
        {
            return Err(IoError::Closed);
        }
        let slot = self.slots.clone().try_acquire_owned().map_err(|_| {
            IoError::Limit(format!(
                "at most {} programs at a time, ending ones included",
                self.limits.processes
            ))
        })?;
        let life = Life {
            abort: abort.clone(),
            instance: self.ended.clone(),
            slot,
        };
        let (supervisor, limits) = (self.supervisor.clone(), self.limits);
        let (name, workspace) = (name.to_owned(), workspace.map(Path::to_path_buf));
        // A task of its own: a start that nobody awaits any more still ends what it started before
        // it gives its slot back.
        let start = tokio::spawn(async move {
            let launch = tokio::task::spawn_blocking(move || {
                resolve::launch(&name, &grant, workspace.as_deref())
            })
            .await
            .map_err(|error| IoError::Failed(error.to_string()))??;
            Process::start(supervisor, launch, limits, life).await
        });
        let aborted = async {
            match abort {
                Some(abort) => drop(abort.aborted().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            started = start => started.map_err(|error| IoError::Failed(error.to_string()))?,
            () = aborted => Err(IoError::Closed),
            () = self.ended.cancelled() => Err(IoError::Closed),
        }
    }

    /// Ends all programs and starts no more. Returns at once.
    pub fn close(&self) {
        self.ended.cancel();
    }

    /// Resolves when no descendant of any program is left, so that the next instance may start
    /// (N3). Call [`Self::close`] before.
    pub async fn reaped(&self) {
        // All permits together: every program has given its slot back.
        drop(self.slots.acquire_many(self.limits.processes).await);
    }

    /// Programs that live now, those that are being ended included.
    #[must_use]
    pub fn live(&self) -> usize {
        let total = usize::try_from(self.limits.processes).unwrap_or(usize::MAX);
        total.saturating_sub(self.slots.available_permits())
    }
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Processes({} of {})", self.live(), self.limits.processes)
    }
}
