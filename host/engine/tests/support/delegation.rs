//! A session's side of `delegation` that counts and bounds, and settles nothing by itself.

use harness_core::event::DeliveryState;
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::*;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

#[derive(Default)]
pub(crate) struct TestDelegation {
    /// What was asked, in order.
    pub(crate) asked: Mutex<Vec<String>>,
    /// Settles what is waited for.
    pub(crate) settle: Notify,
}

impl TestDelegation {
    fn note(&self, what: String) -> usize {
        let mut asked = self.asked.lock().unwrap();
        asked.push(what);
        asked.len()
    }
}

fn id(n: usize) -> Uuid {
    Uuid::from_u128(n as u128)
}

impl Delegation for TestDelegation {
    fn start(&self, start: DelegateStart) -> Delegated<'_, StartedDelegate> {
        Box::pin(async move {
            let n = self.note(format!("start {} {}", start.harness, start.task.background));
            if n > MAX_SPAWNS {
                return Err(DelegationError::Quota);
            }
            Ok(StartedDelegate {
                loop_id: LoopId(id(n)),
                request_id: CommandId(id(n + 1000)),
            })
        })
    }

    fn send(&self, child: LoopId, task: DelegateTask) -> Delegated<'_, CommandId> {
        Box::pin(async move {
            let n = self.note(format!("send {child} {:?}", task.parts));
            Ok(CommandId(id(n + 1000)))
        })
    }

    fn await_result(
        &self,
        request: CommandId,
        timeout: Duration,
    ) -> Delegated<'_, Option<DelegateResult>> {
        Box::pin(async move {
            self.note(format!("await {request} {timeout:?}"));
            let settled = tokio::time::timeout(timeout, self.settle.notified()).await;
            Ok(settled.ok().map(|()| DelegateResult {
                request_id: request,
                loop_id: LoopId(id(1)),
                state: DeliveryState::Failed,
                text: "half".into(),
                error: Some(("code".into(), "why".into())),
            }))
        })
    }

    fn cancel(&self, request: CommandId) -> Delegated<'_, CancelledAt> {
        Box::pin(async move {
            self.note(format!("cancel {request}"));
            Ok(CancelledAt::Queued)
        })
    }

    fn stop(&self, child: LoopId) -> Delegated<'_, bool> {
        Box::pin(async move {
            self.note(format!("stop {child}"));
            Ok(true)
        })
    }

    fn list(&self) -> Delegated<'_, Vec<DelegateInfo>> {
        Box::pin(async move {
            Ok(vec![DelegateInfo {
                loop_id: LoopId(id(1)),
                harness: "a/b".parse().unwrap(),
                closed: false,
                running: true,
                open_requests: vec![CommandId(id(2))],
            }])
        })
    }
}
