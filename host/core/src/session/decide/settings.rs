//! The one owner of a session's settings (R30, S55, PATCH).

use super::Out;
use crate::command::Cause;
use crate::configuration::Configuration;
use crate::event::EventBody;
use crate::ids::HarnessId;
use crate::ids::{LoopId, TurnId};
use crate::provider::Params;
use crate::refusal::Refused;
use crate::session::{Answer, Effect, Origin, merge_params};
use crate::view::ParamsEffective;

impl Out<'_, '_> {
    pub(super) fn settings(
        &mut self,
        origin: Origin,
        title: Option<String>,
        model: Option<Option<String>>,
        params: Option<Params>,
        agent: Option<HarnessId>,
    ) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        let agent = agent.filter(|a| *a != self.session.state.agent);
        let turn = self.live.owners().any(|o| o.turn.is_some());
        if (model.is_some() || agent.is_some()) && (turn || self.session.state.has_waiting_input())
        {
            return self.refuse(Refused::SessionBusy(
                "model and agent cannot change while a turn is live or an input is queued",
            ));
        }
        let state = &self.session.state;
        let primary = state.primary_loop();
        if agent.is_some()
            && primary.is_some_and(|l| l.running_processes().next().is_some() || l.has_notices())
        {
            return self.refuse(Refused::SessionBusy(
                "the agent cannot change while a background process of it runs; stop it first",
            ));
        }
        let title = title.filter(|t| *t != state.title);
        let model = model
            .filter(|m| *m != state.model)
            .map(Option::unwrap_or_default);
        let params = params.filter(|p| *p != state.params);
        if title.is_none() && model.is_none() && params.is_none() && agent.is_none() {
            return Answer::Accepted;
        }
        let cause = Cause::by(origin.command_id);
        let swapped = agent.clone();
        self.event(
            LoopId::ZERO,
            TurnId::ZERO,
            cause,
            EventBody::SessionParamsChanged {
                title,
                model,
                params,
                agent,
            },
        );
        if let Some(agent) = swapped {
            let epoch = self.session.state.config_epoch + 1;
            let configuration = self.configuration_with(&agent);
            self.session_event(EventBody::ConfigurationAdopted {
                epoch,
                agent,
                configuration,
            });
            let active = self.active();
            self.effect(Effect::DisposeInstance(active));
            self.effect(Effect::NotifyState(active));
        }
        Answer::Accepted
    }

    /// The adopted configuration with that harness in it; `None` where nothing new is known.
    pub(super) fn configuration_with(&self, harness: &HarnessId) -> Option<Configuration> {
        let was = self.session.state.configuration.as_ref()?;
        let now = Configuration {
            workspace_root: None,
            harnesses: [(harness.clone(), (self.cx.configuration)(harness)?)].into(),
        };
        Some(was.adopting(&now)).filter(|next| next != was)
    }

    /// Saves a settings patch of a result. `Ok(None)`: there was none.
    ///
    /// # Errors
    /// The contract violation in words (R79).
    pub(super) fn patch(
        &mut self,
        harness: &HarnessId,
        patch: &Params,
        command: crate::ids::CommandId,
        turn_goes_on: bool,
    ) -> Result<Option<ParamsEffective>, String> {
        if patch.is_empty() {
            return Ok(None);
        }
        let Some(info) = (self.cx.harness)(harness) else {
            return Err("the harness declares no parameters".into());
        };
        let merged = merge_params(&info, &self.session.state.params, patch)?;
        self.event(
            LoopId::ZERO,
            TurnId::ZERO,
            Cause::by(command),
            EventBody::SessionParamsChanged {
                title: None,
                model: None,
                params: Some(merged),
                agent: None,
            },
        );
        Ok(Some(if turn_goes_on {
            ParamsEffective::NextTurn
        } else {
            ParamsEffective::Now
        }))
    }
}
