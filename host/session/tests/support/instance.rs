//! One scripted instance: its calls wait in the probe's inboxes, and end with it.

use super::probe::{Call, Inbox, Native, Probe, prepared};
use harness_core::abort::{AbortReason, AbortSignal};
use harness_core::ids::CommandId;
use harness_core::operation::{CommandState, Operation};
use harness_core::provider::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{oneshot, watch};

#[derive(Clone, PartialEq)]
enum Life {
    Live,
    /// Being consumed: its calls end with this.
    Ending(CallError),
    Gone(CallError),
}

/// One scripted instance.
pub struct ProbeInstance {
    pub probe: Arc<Probe>,
    pub scope: InstanceScope,
    /// What the session lends to its `run`.
    pub host: Arc<dyn InstanceHost>,
    life: watch::Sender<Life>,
    pub disposals: Mutex<Vec<AbortReason>>,
    activities: Mutex<BTreeMap<String, Box<dyn Activity>>>,
}

impl ProbeInstance {
    pub fn new(probe: Arc<Probe>, scope: InstanceScope, host: Arc<dyn InstanceHost>) -> Self {
        Self {
            probe,
            scope,
            host,
            life: watch::channel(Life::Live).0,
            disposals: Mutex::default(),
            activities: Mutex::default(),
        }
    }

    /// It ends by itself: calls under way end with this.
    pub fn dies(&self, error: CallError) {
        self.activities.lock().unwrap().clear();
        self.life.send_replace(Life::Gone(error));
    }

    /// Its processes are reaped (see [`Probe::hold_end`]).
    pub fn reap(&self) {
        self.dies(CallError::Lost("reaped".into()));
    }

    pub fn begin_activity(&self, label: &str) -> AbortSignal {
        let activity = self.host.begin_activity(label.into()).unwrap();
        let signal = activity.abort();
        self.activities
            .lock()
            .unwrap()
            .insert(label.into(), activity);
        signal
    }

    pub fn end_activity(&self, label: &str) {
        let ended = self.activities.lock().unwrap().remove(label);
        assert!(ended.is_some(), "no activity {label}");
    }

    /// Announces a native turn in the background.
    pub fn announce(
        &self,
        id: &str,
        start: TurnStart,
    ) -> tokio::task::JoinHandle<Result<(), ChannelError>> {
        let (host, turn) = (
            self.host.clone(),
            NativeTurn {
                id: id.into(),
                start,
                reason: "goal".into(),
                cause: None,
            },
        );
        tokio::spawn(async move { host.announce_turn(turn).await })
    }

    async fn ending(&self) -> CallError {
        let mut life = self.life.subscribe();
        let ended = life.wait_for(|l| *l != Life::Live).await.unwrap();
        match &*ended {
            Life::Ending(error) | Life::Gone(error) => error.clone(),
            Life::Live => unreachable!(),
        }
    }

    pub async fn held<T>(
        self: &Arc<Self>,
        inbox: &Inbox<T>,
        text: String,
        command: Option<CommandId>,
        channel: Option<Arc<dyn Channel>>,
        abort: AbortSignal,
    ) -> Result<T, CallError> {
        if !self.is_live() {
            return Err(CallError::Lost("the instance has ended".into()));
        }
        let (answer, mut answered) = oneshot::channel();
        let deaf = self.probe.ignore_aborts.load(Ordering::SeqCst);
        let deaf = Arc::new(AtomicBool::new(deaf));
        inbox.calls_seen.fetch_add(1, Ordering::SeqCst);
        if let Some(channel) = &channel
            && !self.probe.hold_entered.load(Ordering::SeqCst)
        {
            channel.entered();
        }
        let _ = inbox.sender.send(Call {
            text,
            command: command.unwrap_or(CommandId::ZERO),
            instance: self.clone(),
            from: channel,
            deaf: deaf.clone(),
            answer,
        });
        let mut answer = Box::pin(async move {
            match (&mut answered).await {
                Ok(result) => result,
                Err(_) => std::future::pending().await,
            }
        });
        tokio::select! {
            biased;
            result = &mut answer => return result,
            error = self.ending() => return Err(error),
            _ = abort.aborted() => {}
        }
        if !deaf.load(Ordering::SeqCst) {
            return Err(CallError::Refused(Refusal::Cancelled));
        }
        tokio::select! {
            biased;
            result = &mut answer => result,
            error = self.ending() => Err(error),
        }
    }

    fn arc(&self) -> Arc<Self> {
        let instances = self.probe.instances.lock().unwrap();
        let me = instances.iter().find(|i| std::ptr::eq(i.as_ref(), self));
        me.unwrap().clone()
    }
}

impl Instance for ProbeInstance {
    fn is_live(&self) -> bool {
        *self.life.borrow() == Life::Live
    }

    fn ended(&self) -> BoxFuture<'static, InstanceEnd> {
        let mut life = self.life.subscribe();
        Box::pin(async move {
            let _ = life.wait_for(|l| matches!(l, Life::Gone(_))).await;
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
        context: DiscoveryContext,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Option<CommandState>, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            me.probe.discovered.lock().unwrap().push(context);
            if me.probe.hold_discovery.load(Ordering::SeqCst) {
                let inbox = &me.probe.discoveries;
                return me.held(inbox, String::new(), None, None, abort).await;
            }
            let state = me.probe.state.lock().unwrap().clone();
            if me.is_live() {
                Ok(Some(state))
            } else {
                Err(CallError::Lost("the instance has ended".into()))
            }
        })
    }

    fn prepare(
        &self,
        context: OperationContext,
        operation: Operation,
        abort: AbortSignal,
    ) -> BoxFuture<'_, Result<Prepared, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let text = match &operation {
                Operation::Command { text } => text.clone(),
                Operation::ModeAction { action_id, .. } => action_id.clone(),
            };
            let recorded = (context, operation);
            me.probe.prepared.lock().unwrap().push(recorded);
            if me.probe.hold_preparation.load(Ordering::SeqCst) {
                let inbox = &me.probe.preparations;
                return me.held(inbox, text, None, None, abort).await;
            }
            if me.is_live() {
                Ok(prepared(&text))
            } else {
                Err(CallError::Lost("the instance has ended".into()))
            }
        })
    }

    fn discard(&self, _: Prepared) {
        self.probe.discards.fetch_add(1, Ordering::SeqCst);
    }

    fn invoke(
        &self,
        prepared: Prepared,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Invocation, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let text = *prepared.handle.downcast::<String>().unwrap();
            let abort = channel.abort();
            me.held(
                &me.probe.invokes,
                text,
                Some(command_id),
                Some(channel),
                abort,
            )
            .await
        })
    }

    fn start_prompt(
        &self,
        input: PromptInput,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            me.probe.inputs.lock().unwrap().push(input.clone());
            let text = format!("{:?}", input.parts);
            let (command, abort) = (input.command_id, channel.abort());
            me.held(&me.probe.prompts, text, Some(command), Some(channel), abort)
                .await
        })
    }

    fn adopt_turn(
        &self,
        native_turn_id: String,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Started, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let abort = channel.abort();
            let (inbox, command) = (&me.probe.adoptions, Some(command_id));
            me.held(inbox, native_turn_id, command, Some(channel), abort)
                .await
        })
    }

    fn done(&self, started: Started) -> BoxFuture<'_, Result<Outcome, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let native = *started.handle.downcast::<Native>().unwrap();
            let abort = native.channel.abort();
            let (inbox, command) = (&me.probe.dones, Some(native.command));
            me.held(inbox, String::new(), command, Some(native.channel), abort)
                .await
        })
    }

    fn compact(
        &self,
        command_id: CommandId,
        channel: Arc<dyn Channel>,
    ) -> BoxFuture<'_, Result<Compaction, CallError>> {
        let me = self.arc();
        Box::pin(async move {
            let abort = channel.abort();
            let (inbox, command) = (&me.probe.compactions, Some(command_id));
            me.held(inbox, String::new(), command, Some(channel), abort)
                .await
        })
    }

    fn dispose(&self, reason: AbortReason) -> BoxFuture<'static, InstanceEnd> {
        self.disposals.lock().unwrap().push(reason);
        let error = CallError::Terminated(reason);
        self.life.send_modify(|life| {
            if *life == Life::Live {
                *life = Life::Ending(error.clone());
            }
        });
        if !self.probe.hold_end.load(Ordering::SeqCst) {
            self.dies(error);
        }
        self.ended()
    }
}
