//! The port's view of a live instance.

use super::abort::CallAbort;
use super::call::{Call, Watched, watch_plain};
use super::handles::PreparedHandle;
use super::job::Job;
use super::shared::Shared;
use super::turn::{self, Start};
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::imports::request::{DiscoveryHandle, PreparationHandle};
use harness_core::abort::{AbortReason, AbortSignal};
use harness_core::ids::CommandId;
use harness_core::operation::{CommandState, Operation};
use harness_core::provider::{
    BoxFuture, CallError, Channel, Compaction, DiscoveryContext, Instance, InstanceEnd, Invocation,
    OperationContext, Outcome, Prepared, PromptInput, Readiness, Started,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A live instance. Dropping it ends the instance.
pub(crate) struct Live(Arc<Shared>);

/// Marks a request as over on every way out of its call.
struct Over(CallAbort);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl Live {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Makes and watches one call without a channel.
    fn request<R, T>(
        &self,
        name: &'static str,
        limit: Duration,
        abort: AbortSignal,
        job: impl FnOnce(CallAbort, oneshot::Sender<Result<R, wit::Error>>) -> Job + Send + 'static,
        finish: impl AsyncFinish<R, T>,
    ) -> Watched<Result<T, CallError>>
    where
        R: Send + 'static,
        T: Send + 'static,
    {
        let shared = self.0.clone();
        let abort = shared.abort(abort);
        Watched::new(&self.0, name, abort.clone(), async move {
            let _over = Over(abort.clone());
            if !shared.is_live() {
                return Err(shared.lost());
            }
            let (reply, answer) = oneshot::channel();
            let (clock, bound) = turn::deadline(limit);
            shared.send(job(abort.clone(), reply));
            let call = Call {
                shared: &shared,
                name,
                abort: &abort,
                clock: &clock,
                bound,
            };
            let (answer, aborted) = call.watch(answer).await?;
            let answer = answer.map_err(|error| convert::refusal(error, aborted, false))?;
            finish.finish(answer, &shared).await
        })
    }
}

/// What makes a domain value of an answer, outside the driver.
trait AsyncFinish<R, T>: Send + 'static {
    fn finish(
        self,
        answer: R,
        shared: &Arc<Shared>,
    ) -> impl Future<Output = Result<T, CallError>> + Send;
}

/// Converts in place.
struct Convert<F>(F);

impl<R: Send, T: Send, F: FnOnce(R) -> Result<T, String> + Send + 'static> AsyncFinish<R, T>
    for Convert<F>
{
    async fn finish(self, answer: R, _: &Arc<Shared>) -> Result<T, CallError> {
        (self.0)(answer).map_err(CallError::Violation)
    }
}

/// Asks how a prepared operation runs.
struct Classify;

impl AsyncFinish<PreparedHandle, Prepared> for Classify {
    async fn finish(
        self,
        handle: PreparedHandle,
        shared: &Arc<Shared>,
    ) -> Result<Prepared, CallError> {
        let Some(resource) = handle.resource() else {
            return Err(shared.lost());
        };
        let (reply, answer) = oneshot::channel();
        shared.send(Job::call(move |accessor, guest| {
            Box::pin(async move {
                let _ = reply.send(guest.call_execution(accessor, resource).await?);
                Ok(())
            })
        }));
        let limit = shared.installed.limits.discard_deadline;
        let execution = watch_plain(shared, "execution", limit, answer).await?;
        Ok(Prepared {
            execution: convert::execution(execution),
            handle: Box::new(handle),
        })
    }
}

impl Instance for Live {
    fn is_live(&self) -> bool {
        self.0.is_live()
    }

    fn ended(&self) -> BoxFuture<'static, InstanceEnd> {
        let shared = self.0.clone();
        Box::pin(async move { shared.ended().await })
    }

    fn detect(
        &self,
        context: DiscoveryContext,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Readiness, CallError>> {
        let limit = self.0.installed.limits.detect_deadline;
        Box::pin(self.request(
            "detect",
            limit,
            abort,
            |abort, reply| {
                Job::call(move |accessor, guest| {
                    Box::pin(async move {
                        let request = DiscoveryHandle { context, abort };
                        let request = accessor.with(|mut a| a.get().table.push(request))?;
                        let _ = reply.send(guest.call_detect(accessor, request).await?);
                        Ok(())
                    })
                })
            },
            Convert(convert::readiness),
        ))
    }

    fn get_command_state(
        &self,
        context: DiscoveryContext,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Option<CommandState>, CallError>> {
        let limit = self.0.installed.limits.discover_deadline;
        Box::pin(self.request(
            "get-command-state",
            limit,
            abort,
            |abort, reply| {
                Job::call(move |accessor, guest| {
                    Box::pin(async move {
                        let request = DiscoveryHandle { context, abort };
                        let request = accessor.with(|mut a| a.get().table.push(request))?;
                        let _ = reply.send(guest.call_get_command_state(accessor, request).await?);
                        Ok(())
                    })
                })
            },
            // Checked here and not in the driver: a state may have 4 MiB.
            Convert(|state: Option<wit::CommandState>| {
                let state = state.map(convert::command_state);
                if let Some(state) = &state {
                    state.check()?;
                }
                Ok(state)
            }),
        ))
    }

    fn prepare(
        &self,
        context: OperationContext,
        operation: Operation,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Prepared, CallError>> {
        let limit = self.0.installed.limits.prepare_deadline;
        let own = self.0.clone();
        Box::pin(self.request(
            "prepare-operation",
            limit,
            abort,
            move |abort, reply| {
                Job::call(move |accessor, guest| {
                    Box::pin(async move {
                        let request = PreparationHandle { context, abort };
                        let request = accessor.with(|mut a| a.get().table.push(request))?;
                        let operation = convert::operation(operation);
                        let answer = guest
                            .call_prepare_operation(accessor, request, operation)
                            .await?;
                        let _ =
                            reply.send(answer.map(|resource| PreparedHandle::new(&own, resource)));
                        Ok(())
                    })
                })
            },
            Classify,
        ))
    }

    fn discard(&self, prepared: Prepared) {
        // Its handle passes itself back.
        drop(prepared);
    }

    fn invoke(
        &self,
        prepared: Prepared,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Invocation, CallError>> {
        Box::pin(turn::invoke(self.0.clone(), prepared, command_id, channel))
    }

    fn start_prompt(
        &self,
        input: PromptInput,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>> {
        Box::pin(turn::begin(self.0.clone(), Start::Prompt(input), channel))
    }

    fn adopt_turn(
        &self,
        native_turn_id: String,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>> {
        Box::pin(turn::begin(
            self.0.clone(),
            Start::Adopt {
                native_turn_id,
                command_id,
            },
            channel,
        ))
    }

    fn done(&self, started: Started) -> BoxFuture<'_, Result<Outcome, CallError>> {
        Box::pin(turn::done(self.0.clone(), started))
    }

    fn compact(
        &self,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Compaction, CallError>> {
        Box::pin(turn::compact(self.0.clone(), command_id, channel))
    }

    fn dispose(&self, reason: AbortReason) -> BoxFuture<'static, InstanceEnd> {
        self.0.close(reason);
        let shared = self.0.clone();
        Box::pin(async move { shared.ended().await })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.close(AbortReason::OwnerStopped);
    }
}
