//! Loops of a session as clients handle them, and compaction (S20, S21, S34, S35, S112).

use crate::acting::feed;
use crate::actor::Msg;
use crate::host::Host;
use crate::operations::ready_harness;
use crate::requests::{Caller, LoopRequest, LoopRuntime, LoopWithModes};
use harness_core::ids::{CommandId, LoopId, SessionId};
use harness_core::provider::{LoopMode, ModelSpec};
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Input, check_model};

impl Host {
    /// The loops of a session, in order of creation, with the base mode and those that their
    /// harnesses declare.
    ///
    /// # Errors
    /// Unknown session.
    pub async fn loops(&self, id: SessionId) -> Result<Vec<LoopWithModes>, Refused> {
        let handle = self.live(id).await?;
        let snapshot = handle.call(|reply| Msg::Snapshot { reply }).await?;
        let harnesses = &self.deps().harnesses;
        let with_modes = |view: harness_core::view::LoopView| {
            let info = harnesses.get(&view.agent).and_then(|h| h.info());
            let declared = info.map(|i| i.loop_modes.clone()).unwrap_or_default();
            let modes = std::iter::once(base_mode()).chain(declared).collect();
            LoopWithModes { view, modes }
        };
        Ok(snapshot.loops.into_iter().map(with_modes).collect())
    }

    /// Begins another loop (S30). It becomes the active one by [`Host::activate_loop`] only.
    ///
    /// # Errors
    /// A harness that is not ready, a mode or model that it does not offer, a session that admits
    /// nothing.
    pub async fn create_loop(
        &self,
        id: SessionId,
        caller: Caller,
        request: LoopRequest,
    ) -> Result<LoopId, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        let (harness, info) = ready_harness(self.deps(), &request.agent)?;
        if let Some(model) = &request.model {
            let native = harness.status().readiness.map(|r| r.models);
            check_model(&info, &native.unwrap_or_default(), model)
                .map_err(Refused::InvalidModel)?;
        }
        // The id of a keyed request is derived: repeated, it is the same loop (S120).
        let loop_id = LoopId(self.command_id(&caller).0);
        let input = Input::CreateLoop {
            loop_id,
            harness_id: request.agent,
            model: request.model,
            mode: request.mode.unwrap_or_default(),
        };
        feed(&handle, &caller, input).await?;
        Ok(loop_id)
    }

    /// Makes a loop the active one (S35, S111).
    ///
    /// # Errors
    /// Unknown loop, a session that admits nothing.
    pub async fn activate_loop(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: LoopId,
    ) -> Result<(), Refused> {
        let handle = self.live(id).await?;
        feed(&handle, &caller, Input::SetActiveLoop(loop_id)).await?;
        Ok(())
    }

    /// Sets the mode of a loop from its next turn on (S20).
    ///
    /// # Errors
    /// S27.
    pub async fn set_loop_mode(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: LoopId,
        mode: String,
    ) -> Result<LoopRuntime, Refused> {
        self.change_loop(id, &caller, Input::SetLoopMode { loop_id, mode })
            .await
    }

    /// Sets model, effort or both of a loop from its next turn on (S21).
    ///
    /// # Errors
    /// S27.
    pub async fn change_inference(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: LoopId,
        model: Option<String>,
        effort: Option<String>,
    ) -> Result<LoopRuntime, Refused> {
        let native = self.native_models(id, loop_id).await?;
        let input = Input::ChangeInference {
            loop_id,
            native,
            model,
            effort,
        };
        self.change_loop(id, &caller, input).await
    }

    async fn native_models(
        &self,
        id: SessionId,
        loop_id: LoopId,
    ) -> Result<Vec<ModelSpec>, Refused> {
        let published = self.live(id).await?.published()?;
        let of = published.loops.iter().find(|l| l.id == loop_id);
        let harness = of.and_then(|l| self.deps().harnesses.get(&l.harness));
        let readiness = harness.and_then(|h| h.status().readiness);
        Ok(readiness.map(|r| r.models).unwrap_or_default())
    }

    async fn change_loop(
        &self,
        id: SessionId,
        caller: &Caller,
        input: Input,
    ) -> Result<LoopRuntime, Refused> {
        let handle = self.live(id).await?;
        match feed(&handle, caller, input).await?.answer {
            Answer::LoopRuntime { mode, runtime } => Ok(LoopRuntime { mode, runtime }),
            _ => Err(Refused::Internal),
        }
    }

    /// Asks for a compaction of a loop's conversation; of the active one's when none is named
    /// (S34, S115). What becomes of it follows as events.
    ///
    /// # Errors
    /// Unknown loop, a harness that cannot compact, a session that admits nothing.
    pub async fn compact(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
    ) -> Result<CommandId, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        let origin = self.origin(&caller);
        let command_id = origin.command_id;
        feed(&handle, &caller, Input::Compact { origin, loop_id }).await?;
        Ok(command_id)
    }
}

/// The mode of a loop that none was set for.
fn base_mode() -> LoopMode {
    LoopMode {
        name: String::new(),
        label: "Base".into(),
    }
}
