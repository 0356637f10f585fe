//! Loops beside the one a session begins with, which of them is active, and what each uses for its
//! next turn (S20, S21, S25-S27, S35).
//!
//! Every change here is a live command: validated, appended, applied, acknowledged. A refusal
//! applies nothing. A running turn keeps what it started with, because its context was made then.

use super::Out;
use super::prompt::addressed;
use crate::command::Cause;
use crate::event::{EventBody, Runtime};
use crate::ids::{HarnessId, LoopId, TurnId};
use crate::provider::{HarnessInfo, ModelSpec};
use crate::refusal::Refused;
use crate::session::{Answer, Effect, LoopState, check_effort, check_model};
use std::sync::Arc;

/// Loops that a session may have, delegates included.
pub const MAX_LOOPS: usize = 128;

impl Out<'_, '_> {
    pub(super) fn create_loop(
        &mut self,
        loop_id: LoopId,
        harness_id: HarnessId,
        model: Option<String>,
        mode: String,
    ) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        if self.session.state.loops.len() >= MAX_LOOPS {
            return self.refuse(Refused::InvalidRequest(format!(
                "a session has at most {MAX_LOOPS} loops"
            )));
        }
        let Some(info) = (self.cx.harness)(&harness_id) else {
            return self.refuse(Refused::HarnessNotFound(harness_id.to_string()));
        };
        if let Err(refused) = check_mode(&info, &mode) {
            return self.refuse(refused);
        }
        let runtime = Runtime {
            model: model.clone(),
            effort: None,
        };
        self.loop_event(
            loop_id,
            EventBody::LoopStarted {
                harness_id: harness_id.clone(),
                parent_loop_id: None,
                model,
            },
        );
        if !mode.is_empty() {
            self.loop_event(
                loop_id,
                EventBody::LoopModeChanged {
                    previous: String::new(),
                    mode,
                    runtime,
                },
            );
        }
        self.adopt_harness(&harness_id);
        Answer::Accepted
    }

    /// A harness that the session did not have: restores are compared with what it is now.
    pub(super) fn adopt_harness(&mut self, id: &HarnessId) {
        let known = self.session.state.configuration.as_ref();
        if known.is_none_or(|c| c.harnesses.contains_key(id)) {
            return;
        }
        if let Some(configuration) = self.configuration_with(id) {
            self.session_event(self.adopts(configuration));
        }
    }

    pub(super) fn set_active_loop(&mut self, loop_id: LoopId) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        let Some(of) = self.loop_state(loop_id) else {
            return self.refuse(Refused::LoopNotFound(loop_id.to_string()));
        };
        if let Some(refused) = addressed(of) {
            return self.refuse(refused);
        }
        let previous = self.active();
        if previous != loop_id {
            self.session_event(EventBody::ActiveLoopChanged {
                active_loop_id: loop_id,
                previous_loop_id: previous,
            });
            // Another harness answers from now on.
            self.effect(Effect::NotifyState(loop_id));
        }
        Answer::Accepted
    }

    pub(super) fn set_loop_mode(&mut self, loop_id: LoopId, mode: String) -> Answer {
        let (of, info) = match self.changeable(loop_id) {
            Ok(found) => found,
            Err(refused) => return self.refuse(refused),
        };
        if let Err(refused) = check_mode(&info, &mode) {
            return self.refuse(refused);
        }
        let mut next = of.clone();
        next.inference = Runtime::default();
        let runtime = self.session.state.runtime_of(&next);
        if of.mode != mode {
            self.loop_event(
                loop_id,
                EventBody::LoopModeChanged {
                    previous: of.mode.clone(),
                    mode: mode.clone(),
                    runtime: runtime.clone(),
                },
            );
            return Answer::LoopRuntime { mode, runtime };
        }
        let runtime = self.session.state.runtime_of(of);
        Answer::LoopRuntime { mode, runtime }
    }

    pub(super) fn change_inference(
        &mut self,
        loop_id: LoopId,
        native: &[ModelSpec],
        model: Option<String>,
        effort: Option<String>,
    ) -> Answer {
        let (of, info) = match self.changeable(loop_id) {
            Ok(found) => found,
            Err(refused) => return self.refuse(refused),
        };
        if model.is_none() && effort.is_none() {
            return self.refuse(Refused::NoChanges);
        }
        let now = self.session.state.runtime_of(of);
        if let Some(model) = &model
            && let Err(reason) = check_model(&info, native, model)
        {
            return self.refuse(Refused::InvalidModel(reason));
        }
        // Another model does not take the old one's effort.
        let kept = now.effort.filter(|_| model.is_none());
        let runtime = Runtime {
            model: model.or(now.model),
            effort: effort.or(kept),
        };
        if let Some(effort) = &runtime.effort
            && let Err(reason) = check_effort(&info, native, runtime.model.as_deref(), effort)
        {
            return self.refuse(Refused::InvalidEffort(reason));
        }
        let mode = of.mode.clone();
        self.loop_event(
            loop_id,
            EventBody::LoopInferenceChanged {
                runtime: runtime.clone(),
            },
        );
        Answer::LoopRuntime { mode, runtime }
    }

    /// A loop whose settings can be changed, with what its harness declares.
    fn changeable(&self, loop_id: LoopId) -> Result<(&LoopState, Arc<HarnessInfo>), Refused> {
        if let Some(fault) = &self.live.faulted {
            return Err(fault.refused());
        }
        if self.closed().is_some() {
            return Err(Refused::LoopShuttingDown);
        }
        let session = self.session;
        let of = session.state.loops.get(&loop_id);
        let of = of.ok_or_else(|| Refused::LoopNotFound(loop_id.to_string()))?;
        if of.closed {
            return Err(Refused::LoopExited);
        }
        let info = (self.cx.harness)(&of.harness);
        let info = info.ok_or_else(|| Refused::HarnessNotFound(of.harness.to_string()))?;
        Ok((of, info))
    }

    pub(super) fn loop_event(&mut self, loop_id: LoopId, body: EventBody) {
        self.event(loop_id, TurnId::ZERO, Cause::default(), body);
    }
}

pub(super) fn check_mode(info: &HarnessInfo, mode: &str) -> Result<(), Refused> {
    if mode.is_empty() || info.loop_modes.iter().any(|m| m.name == mode) {
        return Ok(());
    }
    let known: Vec<_> = info.loop_modes.iter().map(|m| m.name.as_str()).collect();
    Err(Refused::InvalidMode(format!(
        "no loop mode `{mode}`; the harness declares: {} and the base mode, the empty name",
        known.join(", ")
    )))
}
