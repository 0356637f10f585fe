//! Calls about delegates that are answered later: a result, the end of a stop (S92, S96).

use super::{Actor, Awaited};
use crate::delegation::not_recorded;
use crate::signals::{Guard, Pending};
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::{DelegateResult, DelegationError};
use harness_core::refusal::Refused;
use harness_core::session::{
    Answer, DelegateAct, DelegateAnswer, DelegateCall, Input, InvocationId, LinkId,
};
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// A result, or why there is none.
pub(super) type ResultOf = Result<Box<DelegateResult>, DelegationError>;
/// What a stop answers when it has ended.
pub(crate) type Ended = oneshot::Receiver<Result<bool, Refused>>;

/// Who waits for results.
#[derive(Default)]
pub(super) struct Waits {
    pub(super) by_id: BTreeMap<LinkId, oneshot::Sender<ResultOf>>,
    last: LinkId,
}

impl Actor {
    pub(super) async fn await_result(
        &mut self,
        parent: LoopId,
        invocation: Option<InvocationId>,
        request: CommandId,
        reply: oneshot::Sender<Result<Awaited, DelegationError>>,
    ) {
        self.waits.last += 1;
        let id = self.waits.last;
        let (sender, result) = oneshot::channel();
        // Before it is decided: the answer may come with the decisions that follow it.
        self.waits.by_id.insert(id, sender);
        let act = DelegateAct::Await { id, request };
        let call = DelegateCall {
            parent,
            invocation,
            act,
        };
        let answer = match self.feed(Input::Delegate(Box::new(call)), None).await {
            Answer::Delegate(Ok(DelegateAnswer::Awaiting)) => {
                let signals = self.seat(parent).signals.clone();
                let guard = Guard::new(signals, Pending::Await(id));
                Ok(Awaited::Later { result, guard })
            }
            other => {
                self.waits.by_id.remove(&id);
                match other {
                    Answer::Delegate(Ok(DelegateAnswer::Settled(result))) => {
                        Ok(Awaited::Settled(result))
                    }
                    Answer::Delegate(Err(error)) => Err(error),
                    Answer::Refused(refused) => Err(not_recorded(&refused)),
                    _ => Err(DelegationError::Closed),
                }
            }
        };
        let _ = reply.send(answer);
    }

    pub(super) fn answer_await(&mut self, id: LinkId, result: ResultOf) {
        if let Some(waiter) = self.waits.by_id.remove(&id) {
            let _ = waiter.send(result);
        }
    }

    pub(super) async fn unawait(&mut self, id: LinkId) {
        self.waits.by_id.remove(&id);
        if self.session.live.awaits.contains_key(&id) {
            self.feed(Input::Unawait(id), None).await;
        }
    }

    /// Answered when the child is idle (S92).
    pub(super) async fn stop_delegate(
        &mut self,
        call: Box<DelegateCall>,
        reply: oneshot::Sender<Result<Ended, DelegationError>>,
    ) {
        let (waiter, ended) = oneshot::channel();
        let answer = match self.feed(Input::Delegate(call), None).await {
            Answer::Delegate(Err(error)) => Err(error),
            Answer::Delegate(Ok(_)) => Err(DelegationError::Closed),
            answer => {
                self.answer_stop(answer, waiter);
                Ok(ended)
            }
        };
        let _ = reply.send(answer);
    }

    /// Delegates whose harness is not installed any more (S77).
    pub(super) fn lost_delegates(&self) -> Vec<LoopId> {
        let loops = self.session.state.loops.values();
        let lost = loops.filter(|l| {
            l.parent.is_some() && !l.closed && self.deps.harnesses.get(&l.harness).is_none()
        });
        lost.map(|l| l.id).collect()
    }
}
