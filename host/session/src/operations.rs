//! An operation before its reserve: steps 2 to 6 of requirements-operations §7.1.
//!
//! Runs in the request's own task, outside the session's actor: a provider that takes long over
//! discovery or preparation delays nobody else. What was prepared and is not invoked goes back.

use crate::actor::{Msg, ReserveCall, Reserved};
use crate::deps::Deps;
use crate::handle::{Handle, Published};
use crate::requests::{Keyed, OperationRequest};
use crate::workspaces;
use harness_core::abort::AbortSignal;
use harness_core::ids::{CommandId, HarnessId};
use harness_core::operation::{CommandState, Execution};
use harness_core::provider::{CallError, Harness, HarnessInfo, Instance, Prepared, ProviderState};
use harness_core::refusal::Refused;
use harness_core::session::{Origin, Reserve};
use harness_core::view::OperationResult;
use harness_journal::IdempotencyScope;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often the command state may move on between read and reserve (step 6).
const REREADS: usize = 2;

/// An operation on its way.
pub(crate) struct Attempt {
    pub(crate) command_id: CommandId,
    pub(crate) caller: Option<String>,
    pub(crate) keyed: Option<(IdempotencyScope, Keyed)>,
    pub(crate) request: OperationRequest,
    pub(crate) gone: AbortSignal,
}

/// How an attempt ended.
pub(crate) struct Attempted {
    pub(crate) result: Result<OperationResult, Refused>,
    /// Refused before reserve: nothing is recorded.
    pub(crate) before_reserve: bool,
    /// How it was classified, if it was.
    pub(crate) execution: Option<Execution>,
}

/// The harness and what it declares, if it can be called now.
pub(crate) fn ready_harness(
    deps: &Deps,
    id: &HarnessId,
) -> Result<(Arc<dyn Harness>, Arc<HarnessInfo>), Refused> {
    let harness = deps
        .harnesses
        .get(id)
        .ok_or_else(|| Refused::HarnessNotFound(id.to_string()))?;
    let status = harness.status();
    let not_ready = |reason: Option<String>| Refused::ProviderNotReady {
        reason: reason.unwrap_or_else(|| "it is still loading".into()),
        loading: status.state == ProviderState::Loading,
    };
    if status.state != ProviderState::Ready {
        return Err(not_ready(status.reason.clone()));
    }
    let info = harness.info().ok_or_else(|| not_ready(None))?;
    Ok((harness, info))
}

/// Waits for the session's workspace and checks that its harness can use it.
pub(crate) async fn check_workspace(
    deps: &Deps,
    published: &Published,
    info: &HarnessInfo,
    wait: Duration,
) -> Result<(), Refused> {
    let stored = workspaces::by_id(deps, &published.view.workspace_id).await?;
    let ready = workspaces::ready(deps, stored, wait).await?;
    workspaces::for_harness(&ready, info).map(drop)
}

/// A provider call that failed before reserve (§3.1).
pub(crate) fn before_reserve(error: CallError) -> Refused {
    match error {
        CallError::Unavailable {
            reason,
            loading: true,
        } => Refused::ProviderNotReady {
            reason,
            loading: true,
        },
        error => Refused::Provider(error),
    }
}

/// Runs an operation to its result.
pub(crate) async fn attempt(deps: &Deps, handle: &Handle, attempt: Attempt) -> Attempted {
    let mut execution = None;
    match prepare_and_reserve(deps, handle, attempt, &mut execution).await {
        Ok((result, before_reserve)) => Attempted {
            result,
            before_reserve,
            execution,
        },
        Err(refused) => Attempted {
            result: Err(refused),
            before_reserve: true,
            execution,
        },
    }
}

async fn prepare_and_reserve(
    deps: &Deps,
    handle: &Handle,
    attempt: Attempt,
    execution: &mut Option<Execution>,
) -> Result<(Result<OperationResult, Refused>, bool), Refused> {
    let published = handle.published()?;
    attempt.request.operation.check()?;
    if let Some(refused) = published.refuses_operations() {
        return Err(refused);
    }
    if attempt
        .request
        .harness_id
        .as_ref()
        .is_some_and(|id| *id != published.active.harness)
    {
        return Err(Refused::StaleHarness {
            current: published.active.harness.to_string(),
        });
    }
    let (_, info) = ready_harness(deps, &published.active.harness)?;
    check_workspace(deps, &published, &info, deps.config.workspace_wait).await?;
    if !info.features.commands {
        return Err(Refused::UnsupportedOperation);
    }
    let instance = handle.instance().await?;
    let mut prepared: Option<Prepared> = None;
    for _ in 0..=REREADS {
        let seen = handle.published()?;
        let state_epoch = match compare(&seen, instance.as_ref(), &attempt).await {
            Ok(epoch) => epoch,
            Err(refused) => {
                if let Some(prepared) = prepared.take() {
                    instance.discard(prepared);
                }
                return Err(refused);
            }
        };
        let ready = match prepared.take() {
            Some(ready) => ready,
            None => {
                let operation = attempt.request.operation.clone();
                let context = seen.operation_context();
                let ready = instance
                    .prepare(context, operation, attempt.gone.clone())
                    .await;
                // A swap ends the instance under a preparation: the swap is the reason to tell.
                if ready.is_err() && handle.published()?.active.harness != seen.active.harness {
                    return Err(Refused::HarnessChanged { result: None });
                }
                ready.map_err(before_reserve)?
            }
        };
        *execution = Some(ready.execution);
        match reserve(handle, &seen, &instance, ready, state_epoch, &attempt).await? {
            Reserved::Reread(again) => prepared = Some(again),
            Reserved::Ended(result, before_reserve) => return Ok((result, before_reserve)),
        }
    }
    if let Some(prepared) = prepared {
        instance.discard(prepared);
    }
    Err(Refused::StaleState)
}

/// Step 4: the revision the client saw against a fresh one. Answers the notification count before
/// the read.
async fn compare(
    published: &Published,
    instance: &dyn Instance,
    attempt: &Attempt,
) -> Result<Option<u64>, Refused> {
    let Some(expected) = &attempt.request.expected_revision else {
        return Ok(None);
    };
    let read = instance
        .get_command_state(
            published.discovery_context(published.active.id),
            attempt.gone.clone(),
        )
        .await;
    let state: CommandState = read.map_err(before_reserve)?.unwrap_or_default();
    if state.revision(&published.active.harness) == *expected {
        Ok(Some(published.active.state_epoch))
    } else {
        Err(Refused::StaleState)
    }
}

async fn reserve(
    handle: &Handle,
    seen: &Published,
    instance: &Arc<dyn Instance>,
    prepared: Prepared,
    state_epoch: Option<u64>,
    attempt: &Attempt,
) -> Result<Reserved, Refused> {
    let reserve = Reserve {
        origin: Origin {
            command_id: attempt.command_id,
            caller: attempt.caller.clone(),
        },
        loop_id: seen.active.id,
        harness_id: seen.active.harness.clone(),
        operation: attempt.request.operation.clone(),
        execution: prepared.execution,
        expected_revision: attempt.request.expected_revision.clone(),
        settings_epoch: seen.settings_epoch,
        run_id: seen.run_id,
        state_epoch,
        waited: false,
    };
    let (reply, reserved) = oneshot::channel();
    let call = ReserveCall {
        reserve,
        prepared,
        instance: instance.clone(),
        gone: attempt.gone.clone(),
        keyed: attempt.keyed,
        reply,
    };
    handle
        .ordinary
        .send(Msg::Reserve(Box::new(call)))
        .await
        .map_err(|_| handle.gone())?;
    let mut reserved = reserved;
    tokio::select! {
        biased;
        answer = &mut reserved => return answer.map_err(|_| handle.gone()),
        _ = attempt.gone.aborted() => {}
    }
    // Its request is gone: the invocation is aborted, its outcome still written down (R69).
    let _ = handle
        .ordinary
        .send(Msg::CallerGone(attempt.command_id))
        .await;
    reserved.await.map_err(|_| handle.gone())
}
