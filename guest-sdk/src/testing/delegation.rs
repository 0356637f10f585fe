//! Double of the interface `delegation`: what a provider asked of its delegates is
//! kept, and the test says what came of it.

use super::doubles::host;
use super::executor;
use super::signal::Signal;
use super::world::current;
use crate::delegation::{
    CancelledAt, Delegate, DelegateResult, DelegationError, ResultState, Start, StartedDelegate,
    Task,
};
use crate::types::AbortReason;
use futures::future::{Either, select};
use std::pin::pin;
use std::time::Duration;

/// A task that a delegate was told.
#[derive(Clone, Debug)]
pub struct DelegateRequest {
    /// Its id.
    pub request_id: String,
    /// The delegate.
    pub loop_id: String,
    /// The delegate's harness, unless it is the provider's own.
    pub harness_id: Option<String>,
    /// What it was told.
    pub task: Task,
    pub(crate) result: Signal<DelegateResult>,
}

/// What the world knows of delegates.
#[derive(Debug, Default)]
pub(crate) struct Delegation {
    pub(crate) requests: Vec<DelegateRequest>,
    pub(crate) failure: Option<DelegationError>,
    last: u64,
}

impl Delegation {
    fn next(&mut self, kind: &str) -> String {
        self.last += 1;
        format!("{kind}-{}", self.last)
    }

    fn add(&mut self, loop_id: String, harness_id: Option<String>, task: Task) -> String {
        let request_id = self.next("request");
        self.requests.push(DelegateRequest {
            request_id: request_id.clone(),
            loop_id,
            harness_id,
            task,
            result: Signal::default(),
        });
        request_id
    }

    fn of(&self, request_id: &str) -> Result<DelegateRequest, DelegationError> {
        let mut requests = self.requests.iter();
        let found = requests.find(|r| r.request_id == request_id);
        found.cloned().ok_or(DelegationError::NotParent)
    }

    fn check(&self, loop_id: &str) -> Result<Option<String>, DelegationError> {
        let mut requests = self.requests.iter();
        let found = requests.find(|r| r.loop_id == loop_id);
        let found = found.ok_or(DelegationError::NotParent)?;
        Ok(found.harness_id.clone())
    }
}

/// A result as the host makes it.
pub(crate) fn result_of(
    request: &DelegateRequest,
    state: ResultState,
    text: &str,
) -> DelegateResult {
    DelegateResult {
        request_id: request.request_id.clone(),
        loop_id: request.loop_id.clone(),
        state,
        text: text.to_owned(),
        failure: None,
    }
}

#[derive(Debug)]
enum Caller {
    Channel(host::ChannelLife),
    Link(Signal<AbortReason>),
}

#[derive(Debug)]
pub(crate) struct Delegates(Caller);

impl Delegates {
    pub(crate) fn of_channel(channel: &host::Channel) -> Self {
        Self(Caller::Channel(channel.life.clone()))
    }

    pub(crate) fn of_link(link: &host::Link) -> Self {
        Self(Caller::Link(link.abort.clone()))
    }

    fn check(&self) -> Result<(), DelegationError> {
        match &self.0 {
            Caller::Channel(life) => life.check().map_err(|error| match error {
                crate::types::ChannelError::Stopped => DelegationError::Stopped,
                _ => DelegationError::Closed,
            })?,
            Caller::Link(abort) => {
                if abort.get().is_some() || current().borrow().draft {
                    return Err(DelegationError::Closed);
                }
            }
        }
        match current().borrow().delegation.failure.clone() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn abort(&self) -> (Signal<AbortReason>, DelegationError) {
        match &self.0 {
            Caller::Channel(life) => (life.abort.clone(), DelegationError::Stopped),
            Caller::Link(abort) => (abort.clone(), DelegationError::Closed),
        }
    }

    pub(crate) async fn start(&self, start: Start) -> Result<StartedDelegate, DelegationError> {
        self.check()?;
        let world = current();
        let delegation = &mut world.borrow_mut().delegation;
        let loop_id = delegation.next("delegate");
        let request_id = delegation.add(loop_id.clone(), start.harness_id, start.task);
        Ok(StartedDelegate {
            loop_id,
            request_id,
        })
    }

    pub(crate) async fn send(
        &self,
        loop_id: String,
        task: Task,
    ) -> Result<String, DelegationError> {
        self.check()?;
        let world = current();
        let delegation = &mut world.borrow_mut().delegation;
        let harness_id = delegation.check(&loop_id)?;
        Ok(delegation.add(loop_id, harness_id, task))
    }

    pub(crate) async fn await_result(
        &self,
        request_id: String,
        timeout_ms: u32,
    ) -> Result<Option<DelegateResult>, DelegationError> {
        self.check()?;
        let request = current().borrow().delegation.of(&request_id)?;
        let (abort, ended) = self.abort();
        let late = pin!(executor::sleep_ms(timeout_ms));
        let settled = pin!(request.result.wait());
        let first = select(settled, late);
        match select(first, pin!(abort.wait())).await {
            Either::Left((Either::Left((result, _)), _)) => Ok(Some(result)),
            Either::Left((Either::Right(_), _)) => Ok(None),
            Either::Right(_) => Err(ended),
        }
    }

    pub(crate) async fn cancel(&self, request_id: String) -> Result<CancelledAt, DelegationError> {
        self.check()?;
        let request = current().borrow().delegation.of(&request_id)?;
        if request.result.get().is_some() {
            return Ok(CancelledAt::Noop);
        }
        let cancelled = result_of(&request, ResultState::Cancelled, "");
        request.result.set(cancelled);
        Ok(CancelledAt::Active)
    }

    pub(crate) async fn stop(&self, loop_id: String) -> Result<bool, DelegationError> {
        self.check()?;
        current().borrow().delegation.check(&loop_id)?;
        let requests = current().borrow().delegation.requests.clone();
        let of = requests.into_iter().filter(|r| r.loop_id == loop_id);
        let open: Vec<_> = of.filter(|r| r.result.get().is_none()).collect();
        for request in &open {
            let stopped = result_of(request, ResultState::Interrupted, "");
            request.result.set(stopped);
        }
        // As long as a native side takes to notice.
        executor::sleep_ms(u32::try_from(Duration::from_secs(1).as_millis()).unwrap_or(0)).await;
        Ok(!open.is_empty())
    }

    pub(crate) async fn children(&self) -> Result<Vec<Delegate>, DelegationError> {
        self.check()?;
        let world = current();
        let requests = &world.borrow().delegation.requests;
        let mut children: Vec<Delegate> = Vec::new();
        for request in requests {
            let open = request.result.get().is_none();
            let id = open.then(|| request.request_id.clone());
            match children.iter_mut().find(|c| c.loop_id == request.loop_id) {
                Some(child) => {
                    child.running |= open;
                    child.open_requests.extend(id);
                }
                None => children.push(Delegate {
                    loop_id: request.loop_id.clone(),
                    harness_id: request
                        .harness_id
                        .clone()
                        .unwrap_or_else(|| "own".to_owned()),
                    closed: false,
                    running: open,
                    open_requests: id.into_iter().collect(),
                }),
            }
        }
        Ok(children)
    }
}
