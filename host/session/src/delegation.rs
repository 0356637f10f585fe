//! The session's side of the contract's `delegation`: the authority of one caller over the
//! delegates of its loop (S96).
//!
//! Every call becomes a message to the actor. A wait that is dropped is forgotten; what was
//! accepted stays accepted.

use crate::actor::{Awaited, Msg};
use crate::deps::Deps;
use crate::operations::ready_harness;
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::{
    CancelledAt, ChannelError, DelegateInfo, DelegateResult, DelegateStart, DelegateTask,
    Delegated, Delegation, DelegationError, StartedDelegate,
};
use harness_core::refusal::Refused;
use harness_core::session::{
    Answer, DelegateAct, DelegateAnswer, DelegateCall, Input, InvocationId, check_model,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The authority of an invocation, or of an instance by itself.
pub(crate) struct LoopDelegates {
    pub(crate) parent: LoopId,
    pub(crate) invocation: Option<InvocationId>,
    pub(crate) mailbox: mpsc::Sender<Msg>,
    pub(crate) deps: Arc<Deps>,
}

impl LoopDelegates {
    fn call(&self, act: DelegateAct) -> DelegateCall {
        DelegateCall {
            parent: self.parent,
            invocation: self.invocation,
            act,
        }
    }

    async fn ask<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<T, DelegationError>>) -> Msg,
    ) -> Result<T, DelegationError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.mailbox.send(message(reply)).await;
        sent.map_err(|_| DelegationError::Closed)?;
        answer.await.unwrap_or(Err(DelegationError::Closed))
    }

    async fn feed(&self, act: DelegateAct) -> Result<DelegateAnswer, DelegationError> {
        let input = Input::Delegate(Box::new(self.call(act)));
        let (reply, answer) = oneshot::channel();
        let sent = self.mailbox.send(Msg::Import { input, reply }).await;
        sent.map_err(|_| DelegationError::Closed)?;
        match answer.await {
            Ok(Ok(Answer::Delegate(result))) => result,
            Ok(Ok(Answer::Refused(refused))) => Err(not_recorded(&refused)),
            Ok(Err(ChannelError::Closed)) | Err(_) => Err(DelegationError::Closed),
            Ok(_) => Err(unexpected()),
        }
    }

    /// What can be told before anything is decided: whether the harness can run, and the model.
    fn check(&self, start: &DelegateStart) -> Result<(), DelegationError> {
        let (harness, info) = ready_harness(&self.deps, &start.harness).map_err(|e| match e {
            Refused::HarnessNotFound(id) => DelegationError::UnknownHarness(id),
            other => DelegationError::Unavailable(other.to_string()),
        })?;
        if let Some(model) = &start.model {
            let native = harness.status().readiness.map(|r| r.models);
            check_model(&info, &native.unwrap_or_default(), model)
                .map_err(DelegationError::Invalid)?;
        }
        Ok(())
    }
}

pub(crate) fn not_recorded(refused: &Refused) -> DelegationError {
    DelegationError::Failed(format!("nothing was recorded: {refused}"))
}

fn unexpected() -> DelegationError {
    DelegationError::Failed("the session answered something else".into())
}

impl Delegation for LoopDelegates {
    fn start(&self, start: DelegateStart) -> Delegated<'_, StartedDelegate> {
        Box::pin(async move {
            self.check(&start)?;
            match self.feed(DelegateAct::Start(start)).await? {
                DelegateAnswer::Started(started) => Ok(started),
                _ => Err(unexpected()),
            }
        })
    }

    fn send(&self, child: LoopId, task: DelegateTask) -> Delegated<'_, CommandId> {
        Box::pin(async move {
            match self.feed(DelegateAct::Send { child, task }).await? {
                DelegateAnswer::Sent(request) => Ok(request),
                _ => Err(unexpected()),
            }
        })
    }

    fn await_result(
        &self,
        request: CommandId,
        timeout: Duration,
    ) -> Delegated<'_, Option<DelegateResult>> {
        Box::pin(async move {
            let (parent, invocation) = (self.parent, self.invocation);
            let awaited = self
                .ask(|reply| Msg::Await {
                    parent,
                    invocation,
                    request,
                    reply,
                })
                .await?;
            match awaited {
                Awaited::Settled(result) => Ok(Some(*result)),
                Awaited::Later { result, guard } => {
                    match tokio::time::timeout(timeout, result).await {
                        Ok(result) => {
                            guard.disarm();
                            let result = result.unwrap_or(Err(DelegationError::Closed));
                            result.map(|r| Some(*r))
                        }
                        // The child goes on.
                        Err(_) => Ok(None),
                    }
                }
            }
        })
    }

    fn cancel(&self, request: CommandId) -> Delegated<'_, CancelledAt> {
        Box::pin(async move {
            match self.feed(DelegateAct::Cancel(request)).await? {
                DelegateAnswer::Cancelled(at) => Ok(at),
                _ => Err(unexpected()),
            }
        })
    }

    fn stop(&self, child: LoopId) -> Delegated<'_, bool> {
        Box::pin(async move {
            let call = Box::new(self.call(DelegateAct::Stop(child)));
            let ended = self.ask(|reply| Msg::StopDelegate { call, reply }).await?;
            match ended.await {
                Ok(Ok(stopped)) => Ok(stopped),
                Ok(Err(refused)) => Err(not_recorded(&refused)),
                Err(_) => Err(DelegationError::Closed),
            }
        })
    }

    fn list(&self) -> Delegated<'_, Vec<DelegateInfo>> {
        Box::pin(async move {
            match self.feed(DelegateAct::List).await? {
                DelegateAnswer::Children(children) => Ok(children),
                _ => Err(unexpected()),
            }
        })
    }
}
