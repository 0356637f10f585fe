//! One instance, with what the engine promises of it: every call returns, an aborted one within
//! the drain bound, and one that is deaf to its abort is ended with its instance.

use super::SimHarness;
use crate::check::Sent;
use crate::latch::Latch;
use crate::life::Life;
use harness_core::abort::{AbortReason, AbortSignal};
use harness_core::ids::{CommandId, SessionId};
use harness_core::operation::{CommandState, Execution, Operation};
use harness_core::provider::*;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// The drain bound of the engine, and what it takes beyond it.
const DRAIN: Duration = Duration::from_millis(5_250);

/// One instance.
pub(crate) struct SimInstance {
    pub(super) harness: Arc<SimHarness>,
    scope: InstanceScope,
    pub(super) host: Arc<dyn InstanceHost>,
    /// It is being consumed: its calls end with this.
    ending: Latch<CallError>,
    /// It is gone.
    gone: Arc<Latch<()>>,
    me: Weak<Self>,
}

/// What a started turn holds.
pub(super) struct Native {
    pub(super) channel: Arc<dyn Channel>,
}

impl SimInstance {
    pub(super) fn new(
        harness: Arc<SimHarness>,
        scope: InstanceScope,
        host: Arc<dyn InstanceHost>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            harness,
            scope,
            host,
            ending: Latch::default(),
            gone: Arc::default(),
            me: me.clone(),
        })
    }

    pub(super) fn life(&self) -> &Arc<Life> {
        &self.harness.life
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        match &self.scope {
            InstanceScope::Loop { session, .. } => Some(*session),
            InstanceScope::Draft { .. } => None,
        }
    }

    /// It ends by itself: calls under way end with this.
    pub(super) fn dies(&self, error: CallError) {
        self.ending.set(error);
        self.gone.set(());
    }

    pub(super) async fn ending(&self) -> CallError {
        self.ending.wait().await
    }

    /// A call of an export: it begins, works until it is done, aborted or lost, and returns.
    pub(super) async fn call<T>(
        &self,
        abort: AbortSignal,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let life = self.life();
        if !self.is_live() {
            return Err(CallError::Lost("the instance has ended".into()));
        }
        life.goes_on().await;
        let (dice, calm) = (&life.world.dice, life.plan.calm);
        let deaf = dice.percent(5) && !calm;
        let mut work = Box::pin(work);
        let returned = tokio::select! {
            biased;
            error = self.ending() => Err(error),
            done = &mut work => done,
            reason = abort.aborted() => {
                // Its host calls are rejected; it has the drain bound to return.
                let rest = if deaf { DRAIN } else { dice.millis(400) };
                let late = !deaf && dice.percent(30);
                tokio::select! {
                    biased;
                    error = self.ending() => Err(error),
                    done = &mut work, if late => done,
                    () = sleep(rest) => {
                        if deaf {
                            self.dies(CallError::Lost("deaf to its abort".into()));
                            Err(CallError::Terminated(reason))
                        } else {
                            Err(CallError::Refused(Refusal::Cancelled))
                        }
                    }
                }
            }
        };
        if let Err(error) = &returned {
            life.world.note(format_args!("a call ended: {error}"));
            if let CallError::Trap(_) = error {
                self.dies(CallError::Lost("it trapped".into()));
            }
        }
        life.goes_on().await;
        returned
    }

    /// Something native is about to be done: it must be durable, and never have been done.
    pub(super) fn sends(&self, what: Sent, command: CommandId) {
        let (Some(session), world) = (self.session(), &self.life().world) else {
            return;
        };
        if self.life().is_alive() {
            world.note(format_args!("sent {what:?} {command}"));
            let found = world.ledger().sent(session, what, command);
            world.hold(found);
        }
    }

    fn arc(&self) -> Result<Arc<Self>, CallError> {
        let me = self.me.upgrade();
        me.ok_or_else(|| CallError::Lost("the instance is gone".into()))
    }
}

impl Instance for SimInstance {
    fn is_live(&self) -> bool {
        self.ending.get().is_none()
    }

    fn ended(&self) -> BoxFuture<'static, InstanceEnd> {
        let gone = self.gone.clone();
        Box::pin(async move {
            gone.wait().await;
            InstanceEnd {
                clean: true,
                disconnected: false,
                reason: "ended".into(),
            }
        })
    }

    fn detect(
        &self,
        _: DiscoveryContext,
        _: AbortSignal,
    ) -> BoxFuture<'_, Result<Readiness, CallError>> {
        Box::pin(async {
            Ok(Readiness {
                native_version: None,
                compatibility: Compatibility::Supported,
                models: Vec::new(),
            })
        })
    }

    fn get_command_state(
        &self,
        _: DiscoveryContext,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Option<CommandState>, CallError>> {
        Box::pin(async move {
            let read = async {
                self.thinks().await;
                Ok(Some(self.harness.state()))
            };
            self.call(abort, read).await
        })
    }

    fn prepare(
        &self,
        _: OperationContext,
        operation: Operation,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Prepared, CallError>> {
        Box::pin(async move {
            let text = match operation {
                Operation::Command { text } => text,
                Operation::ModeAction { action_id, .. } => action_id,
            };
            let prepare = async {
                self.thinks().await;
                if text.starts_with("/refused") {
                    return Err(CallError::Refused(Refusal::NotAllowed("not now".into())));
                }
                let execution = if text.starts_with("/x") {
                    Execution::Exclusive
                } else {
                    Execution::Control
                };
                Ok(Prepared {
                    execution,
                    handle: Box::new(execution),
                })
            };
            self.call(abort, prepare).await
        })
    }

    fn discard(&self, _: Prepared) {}

    fn invoke(
        &self,
        prepared: Prepared,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Invocation, CallError>> {
        Box::pin(async move {
            self.sends(Sent::Operation, command_id);
            channel.entered();
            let abort = channel.abort();
            self.call(abort, self.operates(prepared.execution, channel))
                .await
        })
    }

    fn start_prompt(
        &self,
        input: PromptInput,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>> {
        Box::pin(async move {
            self.sends(Sent::Input, input.command_id);
            channel.entered();
            let abort = channel.abort();
            self.call(abort, self.starts(channel)).await
        })
    }

    fn adopt_turn(
        &self,
        _: String,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>> {
        Box::pin(async move {
            self.sends(Sent::Adoption, command_id);
            channel.entered();
            let abort = channel.abort();
            self.call(abort, self.starts(channel)).await
        })
    }

    fn done(&self, started: Started) -> BoxFuture<'_, Result<Outcome, CallError>> {
        Box::pin(async move {
            let Ok(native) = started.handle.downcast::<Native>() else {
                return Err(CallError::Lost("not a turn of this provider".into()));
            };
            let abort = native.channel.abort();
            self.call(abort, self.arc()?.runs_turn(native.channel))
                .await
        })
    }

    fn compact(
        &self,
        _: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Compaction, CallError>> {
        Box::pin(async move {
            channel.entered();
            let abort = channel.abort();
            self.call(abort, self.compacts()).await
        })
    }

    fn dispose(&self, reason: AbortReason) -> BoxFuture<'static, InstanceEnd> {
        let error = CallError::Terminated(reason);
        self.ending.set(error.clone());
        let (ended, me) = (self.ended(), self.me.upgrade());
        let dice = &self.life().world.dice;
        let rest = if self.life().plan.calm {
            Duration::ZERO
        } else {
            dice.millis(300)
        };
        Box::pin(async move {
            sleep(rest).await;
            if let Some(me) = me {
                me.dies(error);
            }
            ended.await
        })
    }
}
