//! Calls that carry a channel: what starts an invocation, and `done`.

use super::call::{Call, Watched};
use super::clock::{Bound, CallClock};
use super::handles::{PreparedHandle, StartedHandle};
use super::invocation::Invocation;
use super::job::Job;
use super::shared::Shared;
use crate::bindings::exports::harness::provider::provider as out;
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::imports::channel::ChannelHandle;
use harness_core::ids::CommandId;
use harness_core::provider::{
    CallError, Channel, Compaction, Invocation as Invoked, Outcome, Prepared, PromptInput, Started,
    TimeoutStrategy,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use wasmtime::component::{Resource, ResourceAny};

fn invocation(shared: &Arc<Shared>, channel: Arc<dyn Channel>) -> Arc<Invocation> {
    let limits = &shared.installed.limits;
    let abort = shared.abort(channel.abort());
    let span = tracing::Span::current();
    Arc::new(Invocation::new(
        channel,
        abort,
        limits.pending_calls,
        limits.turn_output,
        span,
    ))
}

/// Ends an invocation on every way out of a call, unless the call started a turn.
struct Guard(Option<Arc<Invocation>>);

impl Guard {
    fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(invocation) = self.0.take() {
            invocation.finish();
        }
    }
}

/// What the guest answered to `invoke`, with its session in safe hands already.
enum Answer {
    Completed(wit::Outcome),
    Started(StartedHandle, Vec<wit::Param>),
}

pub(crate) fn invoke(
    shared: Arc<Shared>,
    prepared: Prepared,
    command_id: CommandId,
    channel: Arc<dyn Channel>,
) -> Watched<Result<Invoked, CallError>> {
    let invocation = invocation(&shared, channel);
    Watched::new(
        &shared.clone(),
        "invoke",
        invocation.abort.clone(),
        async move {
            let mut guard = Guard(Some(invocation.clone()));
            let handle = PreparedHandle::claim(prepared.handle, &shared)?;
            if !shared.is_live() {
                return Err(shared.lost());
            }
            let Some(resource) = handle.take() else {
                return Err(shared.lost());
            };
            let (reply, answer) = oneshot::channel();
            let (own, lent) = (shared.clone(), invocation.clone());
            invocation.clock.restart();
            shared.send(Job::call(move |accessor, guest| {
                Box::pin(async move {
                    let handle =
                        accessor.with(|mut a| a.get().table.push(ChannelHandle(lent.clone())))?;
                    lent.entered();
                    let answer = guest
                        .call_invoke(accessor, resource, command_id.to_string(), handle)
                        .await?;
                    let answer = answer.map(|answer| match answer {
                        out::Invocation::Completed(outcome) => Answer::Completed(outcome),
                        out::Invocation::Started(started) => Answer::Started(
                            StartedHandle::new(&own, started.session, lent),
                            started.params,
                        ),
                    });
                    let _ = reply.send(answer);
                    Ok(())
                })
            }));
            let bound = Bound::Deadline(shared.installed.limits.invoke_deadline);
            let (abort, clock) = (&invocation.abort, &invocation.clock);
            let call = Call {
                shared: &shared,
                name: "invoke",
                abort,
                clock,
                bound,
            };
            let (answer, aborted) = call.watch(answer).await?;
            match answer.map_err(|error| convert::refusal(error, aborted, false))? {
                Answer::Completed(outcome) => Ok(Invoked::Completed(
                    convert::outcome(outcome).map_err(CallError::Violation)?,
                )),
                Answer::Started(handle, params) => {
                    // A malformed patch drops the handle, which stops the turn (W4).
                    guard.keep();
                    let params = convert::params_from(params).map_err(CallError::Violation)?;
                    Ok(Invoked::Started(Started {
                        params,
                        handle: Box::new(handle),
                    }))
                }
            }
        },
    )
}

/// What starts a turn without a prepared operation.
pub(crate) enum Start {
    Prompt(PromptInput),
    Adopt {
        native_turn_id: String,
        command_id: CommandId,
    },
}

pub(crate) fn begin(
    shared: Arc<Shared>,
    start: Start,
    channel: Arc<dyn Channel>,
) -> Watched<Result<Started, CallError>> {
    let invocation = invocation(&shared, channel);
    let name = match &start {
        Start::Prompt(_) => "start-prompt",
        Start::Adopt { .. } => "adopt-turn",
    };
    Watched::new(
        &shared.clone(),
        name,
        invocation.abort.clone(),
        async move {
            let mut guard = Guard(Some(invocation.clone()));
            if !shared.is_live() {
                return Err(shared.lost());
            }
            let (reply, answer) = oneshot::channel();
            let (own, lent) = (shared.clone(), invocation.clone());
            invocation.clock.restart();
            shared.send(Job::call(move |accessor, guest| {
                Box::pin(async move {
                    let handle: Resource<ChannelHandle> =
                        accessor.with(|mut a| a.get().table.push(ChannelHandle(lent.clone())))?;
                    lent.entered();
                    let answer = match start {
                        Start::Prompt(input) => {
                            guest
                                .call_start_prompt(accessor, convert::input(input), handle)
                                .await?
                        }
                        Start::Adopt {
                            native_turn_id,
                            command_id,
                        } => {
                            guest
                                .call_adopt_turn(
                                    accessor,
                                    native_turn_id,
                                    command_id.to_string(),
                                    handle,
                                )
                                .await?
                        }
                    };
                    let _ =
                        reply.send(answer.map(|session| StartedHandle::new(&own, session, lent)));
                    Ok(())
                })
            }));
            let bound = Bound::Deadline(shared.installed.limits.invoke_deadline);
            let (abort, clock) = (&invocation.abort, &invocation.clock);
            let (answer, aborted) = Call {
                shared: &shared,
                name,
                abort,
                clock,
                bound,
            }
            .watch(answer)
            .await?;
            let handle = answer.map_err(|error| convert::refusal(error, aborted, false))?;
            guard.keep();
            Ok(Started {
                params: Default::default(),
                handle: Box::new(handle),
            })
        },
    )
}

pub(crate) fn done(shared: Arc<Shared>, started: Started) -> Watched<Result<Outcome, CallError>> {
    let claimed = StartedHandle::claim(started.handle, &shared);
    let abort = match &claimed {
        Ok(handle) => handle.invocation.abort.clone(),
        Err(_) => shared.abort(harness_core::abort::AbortSignal::never()),
    };
    Watched::new(&shared.clone(), "done", abort, async move {
        let mut handle = claimed?;
        let Some(session) = handle.session() else {
            return Err(shared.lost());
        };
        let invocation = handle.invocation.clone();
        run(&shared, session, &invocation).await
    })
}

/// Runs a started turn to its end; the invocation is over then.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    session: ResourceAny,
    invocation: &Arc<Invocation>,
) -> Result<Outcome, CallError> {
    let _guard = Guard(Some(invocation.clone()));
    let (reply, answer) = oneshot::channel();
    invocation.clock.restart();
    shared.send(Job::call(move |accessor, guest| {
        Box::pin(async move {
            let _ = reply.send(guest.call_done(accessor, session).await?);
            Ok(())
        })
    }));
    let bound = match shared.installed.timeout() {
        TimeoutStrategy::Activity => Bound::Silence(shared.installed.limits.inactivity),
        TimeoutStrategy::Provider => Bound::Unbounded,
    };
    let (abort, clock) = (&invocation.abort, &invocation.clock);
    let (answer, aborted) = Call {
        shared,
        name: "done",
        abort,
        clock,
        bound,
    }
    .watch(answer)
    .await?;
    let outcome = answer.map_err(|error| convert::refusal(error, aborted, true))?;
    convert::outcome(outcome).map_err(CallError::Violation)
}

pub(crate) fn compact(
    shared: Arc<Shared>,
    command_id: CommandId,
    channel: Arc<dyn Channel>,
) -> Watched<Result<Compaction, CallError>> {
    let invocation = invocation(&shared, channel);
    Watched::new(
        &shared.clone(),
        "compact",
        invocation.abort.clone(),
        async move {
            let _guard = Guard(Some(invocation.clone()));
            if !shared.is_live() {
                return Err(shared.lost());
            }
            let (reply, answer) = oneshot::channel();
            let lent = invocation.clone();
            invocation.clock.restart();
            shared.send(Job::call(move |accessor, guest| {
                Box::pin(async move {
                    let handle =
                        accessor.with(|mut a| a.get().table.push(ChannelHandle(lent.clone())))?;
                    lent.entered();
                    let _ = reply.send(
                        guest
                            .call_compact(accessor, command_id.to_string(), handle)
                            .await?,
                    );
                    Ok(())
                })
            }));
            let bound = Bound::Deadline(shared.installed.limits.compact_deadline);
            let (abort, clock) = (&invocation.abort, &invocation.clock);
            let (answer, aborted) = Call {
                shared: &shared,
                name: "compact",
                abort,
                clock,
                bound,
            }
            .watch(answer)
            .await?;
            let compaction = answer.map_err(|error| convert::refusal(error, aborted, false))?;
            convert::compaction(compaction).map_err(CallError::Violation)
        },
    )
}

/// A request without a channel: detection, discovery, preparation.
pub(crate) fn deadline(limit: Duration) -> (CallClock, Bound) {
    (CallClock::new(), Bound::Deadline(limit))
}
