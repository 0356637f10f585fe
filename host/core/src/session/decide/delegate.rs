//! Delegates: loops that a loop starts and owns, and what it tells them (S72, S76, S91, S96).
//!
//! Who asks is the loop that the calling instance serves; only it addresses its children. Intent,
//! acceptance and, for a new child, its `LoopStarted` are one append: a failed one leaves neither
//! loop nor request, and gives the quota back. Taking requests back and stopping children are in
//! [`super::recall`], what becomes of a request in [`super::hand_back`].

use super::Out;
use super::loops::{MAX_LOOPS, check_mode};
use crate::command::{Cause, CommandBody, DeliveryPhase};
use crate::content::Block;
use crate::event::{EventBody, Runtime};
use crate::ids::{CommandId, LoopId, TurnId};
use crate::provider::{
    DelegateInfo, DelegateStart, DelegateTask, DelegationError, MAX_AWAITS, MAX_DEPTH,
    MAX_HAND_BACKS, MAX_SPAWNS, StartedDelegate,
};
use crate::session::{
    Answer, Await, DelegateAct, DelegateAnswer, DelegateCall, DelegateRequest, Effect,
    InvocationId, LinkId, LoopState, RequestStage,
};

/// How a delegation call ends.
pub(super) type Delegated = Result<DelegateAnswer, DelegationError>;

/// A message on its way to a child.
struct Sending {
    parent: LoopId,
    invocation: Option<InvocationId>,
    child: LoopId,
    request: CommandId,
    blocks: Vec<Block>,
    background: bool,
    fold: bool,
}

impl Out<'_, '_> {
    pub(super) fn delegate(&mut self, call: DelegateCall) -> Answer {
        let DelegateCall {
            parent,
            invocation,
            act,
        } = call;
        if let Err(error) = self.may_delegate(parent, invocation) {
            return Answer::Delegate(Err(error));
        }
        let result = match act {
            DelegateAct::Start(start) => self.start_delegate(parent, invocation, start),
            DelegateAct::Send { child, task } => {
                self.send_to_delegate(parent, invocation, child, &task)
            }
            DelegateAct::Await { id, request } => self.await_delegate(parent, id, request),
            DelegateAct::Cancel(request) => self.cancel_request(parent, request),
            DelegateAct::Stop(child) => match self.stop_delegate(parent, child) {
                Ok(answer) => return answer,
                Err(error) => Err(error),
            },
            DelegateAct::List => Ok(DelegateAnswer::Children(self.delegates_of(parent))),
        };
        Answer::Delegate(result)
    }

    /// Whether that caller has authority at all. The end of a session takes it back (S94).
    fn may_delegate(
        &self,
        parent: LoopId,
        invocation: Option<InvocationId>,
    ) -> Result<(), DelegationError> {
        if self.live.faulted.is_some() {
            return Err(DelegationError::Failed("the session is faulted".into()));
        }
        match invocation.map(|id| self.live.invocation(id)) {
            Some(None) => return Err(DelegationError::Closed),
            Some(Some(i)) if i.aborted.is_some() => return Err(DelegationError::Stopped),
            _ => {}
        }
        if self.is_leaving() {
            return Err(DelegationError::Stopping);
        }
        if self.loop_state(parent).is_none_or(|l| l.closed) {
            return Err(DelegationError::Closed);
        }
        let info = self.harness_of(parent);
        if !info.is_some_and(|h| h.features.delegation) {
            return Err(DelegationError::Denied(
                "the provider does not declare the feature `delegation`".into(),
            ));
        }
        Ok(())
    }

    fn start_delegate(
        &mut self,
        parent: LoopId,
        invocation: Option<InvocationId>,
        start: DelegateStart,
    ) -> Delegated {
        if self.live.is_marked(parent) {
            return Err(DelegationError::Stopping);
        }
        let state = &self.session.state;
        if state.depth(parent) >= MAX_DEPTH {
            return Err(DelegationError::Depth);
        }
        if state.spawned() >= MAX_SPAWNS || state.loops.len() >= MAX_LOOPS {
            return Err(DelegationError::Quota);
        }
        let DelegateStart {
            harness,
            model,
            mode,
            task,
        } = start;
        let info = (self.cx.harness)(&harness);
        let info = info.ok_or_else(|| DelegationError::UnknownHarness(harness.to_string()))?;
        check_mode(&info, &mode).map_err(|e| DelegationError::Invalid(e.to_string()))?;
        let blocks = task.blocks()?;
        self.check_hand_backs(parent, &task)?;
        let (Some(child), Some(request)) = (self.cx.ids.mint(), self.cx.ids.mint()) else {
            return Err(no_id());
        };
        let (loop_id, request_id) = (LoopId(child), CommandId(request));
        self.loop_event(
            loop_id,
            EventBody::LoopStarted {
                harness_id: harness.clone(),
                parent_loop_id: Some(parent),
                model: model.clone(),
            },
        );
        if !mode.is_empty() {
            let runtime = Runtime {
                model,
                effort: None,
            };
            self.loop_event(
                loop_id,
                EventBody::LoopModeChanged {
                    previous: String::new(),
                    mode,
                    runtime,
                },
            );
        }
        self.adopt_harness(&harness);
        self.accept(Sending {
            parent,
            invocation,
            child: loop_id,
            request: request_id,
            blocks,
            background: task.background,
            // A child that runs nothing has no turn to fold into.
            fold: false,
        });
        Ok(DelegateAnswer::Started(StartedDelegate {
            loop_id,
            request_id,
        }))
    }

    fn send_to_delegate(
        &mut self,
        parent: LoopId,
        invocation: Option<InvocationId>,
        child: LoopId,
        task: &DelegateTask,
    ) -> Delegated {
        let of = self.child_of(parent, child)?;
        if of.closed {
            return Err(DelegationError::Exited);
        }
        if self.live.is_marked(parent) || self.live.is_marked(child) {
            return Err(DelegationError::Stopping);
        }
        if of.inbox.len() >= self.cx.inbox {
            return Err(DelegationError::QueueFull);
        }
        let blocks = task.blocks()?;
        self.check_hand_backs(parent, task)?;
        let request = CommandId(self.cx.ids.mint().ok_or_else(no_id)?);
        self.accept(Sending {
            parent,
            invocation,
            child,
            request,
            blocks,
            background: task.background,
            fold: task.fold,
        });
        Ok(DelegateAnswer::Sent(request))
    }

    /// Intent, acceptance, then the queue: the order of S96.
    fn accept(&mut self, sending: Sending) {
        let Sending {
            parent,
            invocation,
            child,
            request,
            blocks,
            background,
            fold,
        } = sending;
        let led = invocation.and_then(|id| self.live.invocation(id));
        let cause = Cause {
            command_id: led.map(|i| i.command_id),
            loop_id: Some(parent),
            agency: None,
        };
        let phase = (background || fold).then_some(DeliveryPhase::Intent);
        let intent = CommandBody::UserInput {
            blocks,
            no_fold: !fold,
            fold_only: false,
            target_loop_id: child,
            background_hand_back: background,
            delegate_delivery_phase: phase,
        };
        self.machine_command(request, cause, intent);
        let route = Cause::from_loop(request, parent);
        self.event(
            child,
            TurnId::ZERO,
            route,
            EventBody::DelegateRequestAccepted {
                parent_loop_id: parent,
                background_hand_back: background,
            },
        );
        let waits = self.live.of(child).owner.is_some()
            || self.loop_state(child).is_some_and(|l| !l.inbox.is_empty());
        if fold && waits && !self.turn_takes_input(child) {
            self.queue_instead(child, request, parent);
        }
        if waits {
            self.event(child, TurnId::ZERO, route, EventBody::InputQueued {});
        }
    }

    /// Hand-backs wait in their parent's inbox whatever is in it (S41): what may come is bounded
    /// before it is asked for.
    fn check_hand_backs(&self, parent: LoopId, task: &DelegateTask) -> Result<(), DelegationError> {
        let state = &self.session.state;
        let owed = |l: &LoopState| l.requests.values().filter(|r| r.owes_hand_back()).count();
        let coming: usize = state.children(parent).map(owed).sum();
        let of = state.loops.get(&parent);
        let there = of.map_or(0, |l| l.inbox.iter().filter(|w| w.from.is_some()).count());
        if task.background && coming + there >= MAX_HAND_BACKS {
            return Err(DelegationError::Limit(format!(
                "{MAX_HAND_BACKS} results are on their way to the loop"
            )));
        }
        Ok(())
    }

    fn await_delegate(&mut self, parent: LoopId, id: LinkId, request: CommandId) -> Delegated {
        let (child, of) = self.request_of(parent, request)?;
        if let RequestStage::Settled(end) = &of.stage {
            let result = self.result_of(child, request, end);
            return Ok(DelegateAnswer::Settled(Box::new(result)));
        }
        if self.live.awaits.len() >= MAX_AWAITS {
            return Err(DelegationError::Limit(format!(
                "{MAX_AWAITS} calls wait for results"
            )));
        }
        self.live.awaits.insert(id, Await { parent, request });
        Ok(DelegateAnswer::Awaiting)
    }

    fn delegates_of(&self, parent: LoopId) -> Vec<DelegateInfo> {
        let info = |l: &LoopState| {
            let open = l.requests.iter().filter(|(_, r)| r.is_open());
            DelegateInfo {
                loop_id: l.id,
                harness: l.harness.clone(),
                closed: l.closed,
                running: self.live.of(l.id).owner.is_some(),
                open_requests: open.map(|(id, _)| *id).collect(),
            }
        };
        self.session.state.children(parent).map(info).collect()
    }

    /// A child of that parent. To anybody else it does not exist.
    pub(super) fn child_of(
        &self,
        parent: LoopId,
        child: LoopId,
    ) -> Result<&LoopState, DelegationError> {
        let of = self.loop_state(child);
        let own = of.filter(|l| l.parent == Some(parent));
        own.ok_or(DelegationError::NotParent)
    }

    /// A request of that parent, with the child it went to.
    pub(super) fn request_of(
        &self,
        parent: LoopId,
        request: CommandId,
    ) -> Result<(LoopId, &DelegateRequest), DelegationError> {
        let state = &self.session.state;
        let found = state
            .children(parent)
            .find_map(|l| Some((l.id, l.requests.get(&request)?)));
        found
            .filter(|(_, r)| !r.is_intent())
            .ok_or(DelegationError::NotParent)
    }

    /// Ends the waits that a loop makes.
    pub(super) fn end_awaits(&mut self, parent: Option<LoopId>, error: &DelegationError) {
        let of = |a: &Await| parent.is_none_or(|p| p == a.parent);
        let (gone, stay) = std::mem::take(&mut self.live.awaits)
            .into_iter()
            .partition(|(_, a)| of(a));
        self.live.awaits = stay;
        let gone: std::collections::BTreeMap<LinkId, Await> = gone;
        for id in gone.into_keys() {
            let result = Err(error.clone());
            self.effect(Effect::AnswerAwait { id, result });
        }
    }

    /// A loop that waits for a delegate does nothing meanwhile: one delegate at a time may run in
    /// its place, so that a full pool does not keep both from going on. The pool is overdrawn by
    /// it until that run ends.
    pub(super) fn borrow_slot(&mut self, loop_id: LoopId) -> bool {
        let of = self.loop_state(loop_id);
        let Some((parent, next)) = of.and_then(|l| Some((l.parent?, l.next_input()?))) else {
            return false;
        };
        let mut awaits = self.live.awaits.values();
        let awaited = awaits.any(|a| a.parent == parent && a.request == next.command_id);
        let mut siblings = self.session.state.children(parent);
        let lent = siblings.any(|l| self.live.of(l.id).overdrawn);
        if !awaited || lent || !self.live.of(parent).slot {
            return false;
        }
        self.install_slot(loop_id);
        self.live.of_mut(loop_id).overdrawn = true;
        self.effect(Effect::OverdrawSlot(loop_id));
        true
    }
}

fn no_id() -> DelegationError {
    DelegationError::Failed("no id could be made".into())
}
