//! What a client asks for: prompts, operations, stops, answers, settings (S37, R42, R44, R45, S103).

use crate::actor::{Fed, Msg, ProcessMsg};
use crate::deps::Deps;
use crate::handle::Handle;
use crate::host::Host;
use crate::operations::{Attempt, attempt, ready_harness};
use crate::requests::{
    Caller, Delivery, GateAnswer, InputRequest, Keyed, OperationRequest, RowChange,
    SettingsRequest, ShutDown,
};
use harness_core::abort::AbortSignal;
use harness_core::gate::{Gate, GateAsk, GateReply};
use harness_core::ids::{CommandId, LoopId, SessionId};
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Input, Origin, check_model, effective_params, merge_params};
use harness_core::view::{OperationResult, SessionView};
use harness_journal::{IdempotencyScope, PermissionRule};
use std::sync::Arc;

impl Host {
    /// Runs a native operation (R42). `gone` fires when its caller has left.
    ///
    /// # Errors
    /// §6 R42.
    pub async fn invoke(
        &self,
        id: SessionId,
        caller: Caller,
        request: OperationRequest,
        gone: AbortSignal,
    ) -> Result<OperationResult, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        let keyed = caller.key.map(|key| (IdempotencyScope::Session, key));
        let command_id = self.command_id(&caller);
        let caller = caller.identity;
        attempt(
            self.deps(),
            &handle,
            Attempt {
                command_id,
                caller,
                keyed,
                request,
                gone,
            },
        )
        .await
        .result
    }

    /// Accepts a prompt (S103).
    ///
    /// # Errors
    /// Refused by §9 S103; nothing was recorded.
    pub async fn submit(
        &self,
        id: SessionId,
        caller: Caller,
        request: InputRequest,
    ) -> Result<CommandId, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        let origin = self.origin(&caller);
        let command_id = origin.command_id;
        let InputRequest {
            blocks,
            loop_id,
            no_fold,
            fold_only,
        } = request;
        let input = Input::Submit {
            origin,
            blocks,
            loop_id,
            no_fold,
            fold_only,
        };
        feed(&handle, &caller, input).await?;
        Ok(command_id)
    }

    /// Takes a queued or held input back (S113).
    ///
    /// # Errors
    /// The session is faulted, or nothing could be recorded.
    pub async fn retract(
        &self,
        id: SessionId,
        caller: Caller,
        target: CommandId,
    ) -> Result<bool, Refused> {
        let handle = self.live(id).await?;
        match feed(
            &handle,
            &caller,
            Input::Retract {
                origin: self.origin(&caller),
                target,
            },
        )
        .await?
        .answer
        {
            Answer::Bool(retracted) => Ok(retracted),
            _ => Err(Refused::Internal),
        }
    }

    /// Releases held inputs (S114); all of them when `targets` is empty.
    ///
    /// # Errors
    /// Unknown loop; as [`Host::retract`].
    pub async fn release(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
        targets: Vec<CommandId>,
    ) -> Result<Vec<CommandId>, Refused> {
        let handle = self.live(id).await?;
        let input = Input::Release {
            origin: self.origin(&caller),
            loop_id,
            targets,
        };
        match feed(&handle, &caller, input).await?.answer {
            Answer::Released(ids) => Ok(ids),
            _ => Err(Refused::Internal),
        }
    }

    /// Stops what runs; answers when it has ended (R67).
    ///
    /// # Errors
    /// Unknown session or loop.
    pub async fn interrupt(
        &self,
        id: SessionId,
        caller: Caller,
        loop_id: Option<LoopId>,
    ) -> Result<bool, Refused> {
        let handle = self.live(id).await?;
        let origin = self.origin(&caller);
        handle
            .urgent(|reply| Msg::Interrupt {
                origin,
                loop_id,
                reply,
            })
            .await?
    }

    /// Ends a background process; its end is told like any other. Nothing happens when it has
    /// ended already.
    ///
    /// # Errors
    /// Unknown session or process.
    pub async fn stop_process(&self, id: SessionId, process_handle: String) -> Result<(), Refused> {
        let unknown = Refused::ProcessNotFound(process_handle.clone());
        let handle = self.live(id).await?;
        let stopped = handle.call(|reply| {
            Msg::Process(ProcessMsg::Stop {
                loop_id: None,
                handle: process_handle,
                reply,
            })
        });
        stopped.await?.map_err(|_| unknown)
    }

    /// Answers a gate (R44, R45). Rules of "always" are stored first (S83).
    ///
    /// # Errors
    /// §6 R44; the gate stays open unless it was answered.
    pub async fn answer(
        &self,
        id: SessionId,
        caller: Caller,
        answer: GateAnswer,
    ) -> Result<Delivery, Refused> {
        let handle = self.live(id).await?;
        if matches!(answer.reply, GateReply::ApproveAlways) {
            // In a task of its own: what is claimed is answered or given back, whoever leaves.
            let always = approve_always(self.deps().clone(), handle, caller, answer);
            let always = tokio::spawn(always).await;
            return always.unwrap_or(Err(Refused::Internal));
        }
        let input = Input::Answer {
            origin: self.origin(&caller),
            gate_id: answer.gate_id,
            reply: answer.reply,
        };
        Ok(feed(&handle, &caller, input).await?.delivery)
    }

    /// Changes settings.
    ///
    /// # Errors
    /// Values that fail the harness's schema, a busy session, or nothing could be recorded.
    pub async fn patch(
        &self,
        id: SessionId,
        caller: Caller,
        request: SettingsRequest,
    ) -> Result<SessionView, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        let published = handle.published()?;
        if let Some(title) = &request.title {
            check_title(title)?;
        }
        let agent = request
            .agent
            .unwrap_or_else(|| published.view.agent.clone());
        let swapped = agent != published.view.agent;
        let params = if swapped || request.params.is_some() || request.model.is_some() {
            let (harness, info) = ready_harness(self.deps(), &agent)?;
            if let Some(Some(model)) = &request.model {
                let native = harness
                    .status()
                    .readiness
                    .map(|r| r.models)
                    .unwrap_or_default();
                check_model(&info, &native, model).map_err(Refused::InvalidParams)?;
            }
            let given = request.params.unwrap_or_default();
            let merged = if swapped {
                effective_params(&info, &given)
            } else {
                merge_params(&info, &published.view.params, &given)
            };
            Some(merged.map_err(Refused::InvalidParams)?)
        } else {
            None
        };
        let input = Input::Settings {
            origin: self.origin(&caller),
            title: request.title,
            // Another harness does not know the old one's model.
            model: request.model.or(swapped.then_some(None)),
            params,
            agent: Some(agent),
        };
        feed(&handle, &caller, input).await?;
        self.session(id).await
    }

    /// Shuts a session down; every caller gets the result of the one teardown (S94, S118).
    ///
    /// # Errors
    /// Unknown session; `session_faulted` when nothing could be written down.
    pub async fn shutdown_session(
        &self,
        id: SessionId,
        caller: Caller,
    ) -> Result<ShutDown, Refused> {
        let handle = self.live(id).await?;
        let origin = self.origin(&caller);
        handle
            .urgent(|reply| Msg::Shutdown { origin, reply })
            .await?
    }

    /// Takes a session up: one that was shut down becomes usable again, any other is made live
    /// (S102). Concurrent calls join one restore.
    ///
    /// # Errors
    /// Unknown session, or it could not be restored.
    pub async fn restore(&self, id: SessionId, caller: Caller) -> Result<SessionView, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        feed(&handle, &caller, Input::Reopen(None)).await?;
        self.session(id).await
    }

    /// Deletes a session with its journal; refused while it is live.
    ///
    /// # Errors
    /// Unknown id, a live session, or the store failed.
    pub async fn delete(&self, id: SessionId) -> Result<(), Refused> {
        match self.live(id).await {
            Ok(handle) => handle.call(|reply| Msg::Delete { reply }).await?,
            // Nobody can have it open.
            Err(Refused::RestoreFailed(_)) => self.delete_unopened(id).await,
            Err(refused) => Err(refused),
        }
    }

    async fn delete_unopened(&self, id: SessionId) -> Result<(), Refused> {
        let row = self.session(id).await?;
        self.deps().journal.delete(id).await.map_err(|error| {
            tracing::error!(session = %id, %error, "the session was not deleted");
            Refused::StoreUnavailable
        })?;
        self.deps().unrestorable.forget(id);
        let project_id = row.project_id;
        let _ = self.deps().rows.send(RowChange::Deleted { id, project_id });
        Ok(())
    }
}

/// Claims the gate, stores the rules, answers. Nobody else answers meanwhile, and a store that
/// fails leaves the gate open and the tool waiting (S80, S83).
async fn approve_always(
    deps: Arc<Deps>,
    handle: Arc<Handle>,
    caller: Caller,
    answer: GateAnswer,
) -> Result<Delivery, Refused> {
    let GateAnswer { gate_id: id, reply } = answer;
    let claim = Input::ClaimGate {
        gate_id: id,
        reply: reply.clone(),
    };
    let Answer::Claimed(gate) = feed_keyed(&handle, None, claim).await?.answer else {
        return Err(Refused::Internal);
    };
    let gate_id = gate.gate_id;
    let answered = match store_rules(&deps, &handle, *gate).await {
        Ok(()) => {
            let origin = deps.origin(&caller);
            let input = Input::AnswerClaimed {
                origin,
                gate_id,
                reply,
            };
            feed(&handle, &caller, input).await.map(|fed| fed.delivery)
        }
        Err(refused) => Err(refused),
    };
    if answered.is_err() {
        let _ = feed_keyed(&handle, None, Input::UnclaimGate(gate_id)).await;
    }
    answered
}

async fn store_rules(deps: &Deps, handle: &Handle, gate: Gate) -> Result<(), Refused> {
    let GateAsk::Permission(request) = gate.ask else {
        return Ok(());
    };
    let published = handle.published()?;
    let of = published.loops.iter().find(|l| l.id == gate.loop_id);
    let harness_id = of.map_or_else(|| published.view.agent.clone(), |l| l.harness.clone());
    let rule = |rule: String| PermissionRule {
        harness_id: harness_id.clone(),
        workspace_id: published.view.workspace_id.clone(),
        rule,
    };
    let rules = request.rules.into_iter().map(rule).collect();
    let stored = deps.catalog.store_rules(rules).await;
    stored.map_err(|error| {
        tracing::error!(%error, "the rules of an approval were not stored");
        Refused::StoreUnavailable
    })
}

pub(crate) async fn feed(handle: &Handle, caller: &Caller, input: Input) -> Result<Fed, Refused> {
    let keyed = caller.key.map(|key| (IdempotencyScope::Session, key));
    feed_keyed(handle, keyed, input).await
}

pub(crate) async fn feed_keyed(
    handle: &Handle,
    keyed: Option<(IdempotencyScope, Keyed)>,
    input: Input,
) -> Result<Fed, Refused> {
    let fed = handle
        .call(|reply| Msg::Feed {
            input,
            keyed,
            reply,
        })
        .await?;
    match fed.answer {
        Answer::Refused(refused) => Err(*refused),
        _ => Ok(fed),
    }
}

impl Deps {
    /// The id of what a caller wants: derived when it can be repeated, else a fresh one.
    pub(crate) fn command_id(&self, caller: &Caller) -> CommandId {
        let fresh = || CommandId(self.surroundings.id());
        caller.key.map_or_else(fresh, |key| key.command_id)
    }

    /// What a caller wants, and who it is.
    pub(crate) fn origin(&self, caller: &Caller) -> Origin {
        Origin {
            command_id: self.command_id(caller),
            caller: caller.identity.clone(),
        }
    }
}

impl Host {
    pub(crate) fn command_id(&self, caller: &Caller) -> CommandId {
        self.deps().command_id(caller)
    }

    pub(crate) fn origin(&self, caller: &Caller) -> Origin {
        self.deps().origin(caller)
    }
}

/// A title has 1 to 1024 bytes.
pub(crate) fn check_title(title: &str) -> Result<(), Refused> {
    if title.is_empty() || title.len() > 1024 {
        return Err(Refused::InvalidRequest(
            "`title` has 1 to 1024 bytes".into(),
        ));
    }
    Ok(())
}
