//! New sessions, and discovery before there is one (R40, R43, R47-R53, S101).

use crate::acting::{check_title, feed_keyed};
use crate::actor::{Actor, Source};
use crate::drift::beginning;
use crate::handle::Handle;
use crate::host::Host;
use crate::operations::{Attempt, Attempted, attempt, before_reserve, ready_harness};
use crate::reading::{no_commands, view_of};
use crate::requests::{
    Caller, CommandStateView, CreateRequest, Created, DraftRequest, First, OperationRequest,
};
use crate::workspaces;
use harness_core::abort::AbortSignal;
use harness_core::command::Cause;
use harness_core::event::{Event, EventBody};
use harness_core::ids::{EventId, LoopId, SessionId, TurnId};
use harness_core::operation::Execution;
use harness_core::provider::{DiscoveryContext, Harness, HarnessInfo, Params};
use harness_core::refusal::Refused;
use harness_core::session::{Input, Origin, check_model, effective_params};
use harness_core::view::{OperationResult, OutcomeStatus};
use harness_journal::{IdempotencyScope, Workspace};
use std::sync::Arc;
use std::time::Duration;

/// A draft resolved against catalogue and harness; the same for discovery and creation (R40, I1).
struct Resolved {
    harness: Arc<dyn Harness>,
    info: Arc<HarnessInfo>,
    workspace: Workspace,
    params: Params,
}

impl Host {
    async fn resolve(&self, draft: &DraftRequest, wait: Duration) -> Result<Resolved, Refused> {
        let deps = self.deps();
        let workspace =
            workspaces::select(deps, &draft.project_id, draft.workspace_id.as_ref()).await?;
        let (harness, info) = ready_harness(deps, &draft.agent)?;
        workspaces::for_harness(&workspace, &info)?;
        let workspace = workspaces::ready(deps, workspace, wait).await?;
        let params = effective_params(&info, &draft.params).map_err(Refused::InvalidParams)?;
        if let Some(model) = &draft.model {
            let native = harness
                .status()
                .readiness
                .map(|r| r.models)
                .unwrap_or_default();
            check_model(&info, &native, model).map_err(Refused::InvalidParams)?;
        }
        Ok(Resolved {
            harness,
            info,
            workspace,
            params,
        })
    }

    /// Command state before a session exists; leaves no trace (R14, R40).
    ///
    /// # Errors
    /// §6 R40.
    pub async fn draft_command_state(
        &self,
        draft: DraftRequest,
    ) -> Result<CommandStateView, Refused> {
        self.admit()?;
        let resolved = self.resolve(&draft, Duration::ZERO).await?;
        if !resolved.info.features.commands {
            return Ok(no_commands(draft.agent, self.deps().surroundings.now()));
        }
        let context = DiscoveryContext {
            project_id: draft.project_id,
            session_id: None,
            native_session_id: None,
            workspace: workspaces::for_harness(&resolved.workspace, &resolved.info)?,
            model: draft.model,
            effort: None,
            loop_mode: None,
            params: resolved.params,
        };
        let workspace_id = Some(resolved.workspace.id.clone());
        let drafts = &self.inner.drafts;
        let instance = drafts
            .instance(&resolved.harness, &context, workspace_id)
            .await
            .map_err(before_reserve)?;
        let state = instance
            .get_command_state(context, AbortSignal::never())
            .await
            .map_err(before_reserve)?;
        Ok(view_of(
            draft.agent,
            state,
            resolved.info.features.state_push,
            self.deps().surroundings.now(),
        ))
    }

    /// Creates a session with its first prompt or operation. The row comes with the first append,
    /// so that no never-used row is ever left behind (R47, R50).
    ///
    /// # Errors
    /// §6 R43. A first operation that meets a problem leaves a failed row and is no error (R50).
    pub async fn create(
        &self,
        caller: Caller,
        request: CreateRequest,
        gone: AbortSignal,
    ) -> Result<Created, Refused> {
        self.admit()?;
        check_title(&request.title)?;
        if let First::Operation { operation, .. } = &request.first {
            operation.check()?;
        }
        let resolved = self
            .resolve(&request.draft, self.deps().config.workspace_wait)
            .await?;
        let id = caller.key.map_or_else(
            || SessionId(self.deps().surroundings.id()),
            |key| key.session_id,
        );
        let handle = self.begin(id, &request, &resolved);
        handle.ready().await?;
        let linked = workspaces::link(&resolved.workspace).await;
        let created = match request.first {
            First::Prompt(blocks) => match linked {
                Ok(()) => self.first_prompt(&handle, &caller, blocks).await,
                Err(reason) => Err(Refused::WorkspaceLinkFailed {
                    session_id: id,
                    reason,
                }),
            },
            First::Operation {
                operation,
                expected_revision,
            } => {
                // R53: a first operation always carries its own harness.
                let harness_id = Some(request.draft.agent);
                let request = OperationRequest {
                    operation,
                    harness_id,
                    expected_revision,
                };
                self.first_operation(&handle, &caller, id, request, linked, gone)
                    .await
            }
        };
        if created.is_err() && !handle.published()?.born {
            self.deps().directory.forget(id, &Arc::downgrade(&handle));
        }
        created
    }

    fn begin(&self, id: SessionId, request: &CreateRequest, resolved: &Resolved) -> Arc<Handle> {
        let surroundings = &self.deps().surroundings;
        let at = surroundings.now();
        let event = |loop_id, body| Event {
            id: EventId(surroundings.id()),
            session_id: id,
            loop_id,
            turn_id: TurnId::ZERO,
            at,
            cause: Cause::default(),
            body,
        };
        let draft = &request.draft;
        let target = &resolved.workspace.target;
        let configuration = beginning(self.deps(), &draft.agent, target);
        let started = event(
            LoopId::ZERO,
            EventBody::SessionStarted {
                project_id: draft.project_id.clone(),
                title: request.title.clone(),
                agent: draft.agent.clone(),
                model: draft.model.clone(),
                params: resolved.params.clone(),
                workspace_id: resolved.workspace.id.clone(),
                configuration: Some(configuration),
            },
        );
        let harness_id = draft.agent.clone();
        let loop_started = event(
            LoopId(surroundings.id()),
            EventBody::LoopStarted {
                harness_id,
                parent_loop_id: None,
                model: None,
            },
        );
        let source = Source::New {
            id,
            started: Box::new(started),
            loop_started: Box::new(loop_started),
        };
        let deps = self.deps();
        deps.directory
            .get_or_spawn(id, || Actor::spawn(deps.clone(), source))
    }

    async fn first_prompt(
        &self,
        handle: &Handle,
        caller: &Caller,
        blocks: Vec<harness_core::content::Block>,
    ) -> Result<Created, Refused> {
        let origin = self.origin(caller);
        let command_id = origin.command_id;
        let keyed = caller.key.map(|key| (IdempotencyScope::Create, key));
        let input = Input::Submit {
            origin,
            blocks,
            loop_id: None,
            no_fold: false,
            fold_only: false,
        };
        feed_keyed(handle, keyed, input).await?;
        let session = (*handle.published()?.view).clone();
        Ok(Created {
            session,
            command_id,
            operation_result: None,
        })
    }

    async fn first_operation(
        &self,
        handle: &Handle,
        caller: &Caller,
        id: SessionId,
        request: OperationRequest,
        linked: Result<(), String>,
        gone: AbortSignal,
    ) -> Result<Created, Refused> {
        // One intent has one id, however it ends.
        let origin = self.origin(caller);
        let command_id = origin.command_id;
        let operation = request.operation.clone();
        if let Err(reason) = linked {
            let refused = Refused::WorkspaceLinkFailed {
                session_id: id,
                reason,
            };
            self.reject_first(handle, caller, origin, operation, None, &refused)
                .await?;
            return Err(refused);
        }
        let keyed = caller.key.map(|key| (IdempotencyScope::Create, key));
        let attempt_of = Attempt {
            command_id,
            caller: caller.identity.clone(),
            keyed,
            request,
            gone,
        };
        let Attempted {
            result,
            before_reserve,
            execution,
        } = attempt(self.deps(), handle, attempt_of).await;
        let result = match result {
            Ok(result) => result,
            Err(refused) if before_reserve => {
                self.reject_first(handle, caller, origin, operation, execution, &refused)
                    .await?
            }
            Err(refused) => after_reserve(refused)?,
        };
        let session = (*handle.published()?.view).clone();
        Ok(Created {
            session,
            command_id,
            operation_result: Some(result),
        })
    }

    /// R50: the row stays, failed, and says why.
    async fn reject_first(
        &self,
        handle: &Handle,
        caller: &Caller,
        origin: Origin,
        operation: harness_core::operation::Operation,
        execution: Option<Execution>,
        refused: &Refused,
    ) -> Result<OperationResult, Refused> {
        // What the host itself cannot record or no longer admits leaves no row.
        if matches!(
            refused,
            Refused::StoreUnavailable | Refused::HostShuttingDown | Refused::CallerGone
        ) {
            return Err(refused.clone());
        }
        let (code, message) = (refused.code().to_owned(), refused.to_string());
        let command_id = origin.command_id;
        let input = Input::RejectFirst {
            origin,
            operation,
            execution,
            code: code.clone(),
            message: message.clone(),
        };
        let keyed = caller.key.map(|key| (IdempotencyScope::Create, key));
        feed_keyed(handle, keyed, input).await?;
        Ok(OperationResult {
            status: OutcomeStatus::Rejected,
            message: Some(message),
            code: Some(code),
            command_id,
            run_id: None,
            params_effective: None,
        })
    }
}

/// In a creation everything after the row exists is 201: the problem's result is the answer.
fn after_reserve(refused: Refused) -> Result<OperationResult, Refused> {
    match refused {
        Refused::Violation { result, .. }
        | Refused::HarnessChanged {
            result: Some(result),
        } => Ok(*result),
        other => Err(other),
    }
}
