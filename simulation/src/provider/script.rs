//! What a provider does within its calls, and beside them.

use super::instance::{Native, SimInstance};
use crate::check::Sent;
use harness_core::content::{NewMessage, Part, Role, Usage};
use harness_core::gate::{ApprovalRequest, Choice, Question, QuestionForm};
use harness_core::operation::Execution;
use harness_core::provider::*;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Why a step of a script ends the call.
type Step = Result<(), CallError>;

fn message(text: String) -> NewMessage {
    NewMessage {
        role: Role::Assistant,
        parts: vec![Part::Text { text }],
    }
}

impl SimInstance {
    /// A little time.
    pub(super) async fn thinks(&self) {
        let (dice, calm) = (&self.life().world.dice, self.life().plan.calm);
        if !calm && dice.percent(40) {
            sleep(dice.millis(3_000)).await;
        }
    }

    /// A text that no other is like.
    pub(super) fn text(&self) -> String {
        let n = self.life().world.dice.below(u64::MAX);
        format!("said {n:x}")
    }

    /// How a call ends that goes wrong.
    fn failure(&self) -> Option<CallError> {
        let dice = &self.life().world.dice;
        if self.life().plan.calm || !dice.percent(18) {
            return None;
        }
        let text = || "as rolled".to_owned();
        Some(match dice.below(11) {
            0 => CallError::Refused(Refusal::InvalidOperation(text())),
            1 => CallError::Refused(Refusal::NotAllowed(text())),
            2 => CallError::Refused(Refusal::StaleRevision(text())),
            3 => CallError::Refused(Refusal::Unavailable(text())),
            4 => CallError::Refused(Refusal::Disconnected(text())),
            5 => CallError::Refused(Refusal::Cancelled),
            6 => CallError::Refused(Refusal::Native(text())),
            7 => CallError::Trap(text()),
            8 => CallError::Timeout(text()),
            9 => CallError::Violation(text()),
            _ => CallError::Refused(Refusal::Channel(ChannelError::Closed)),
        })
    }

    fn params(&self) -> Params {
        let dice = &self.life().world.dice;
        match dice.below(20) {
            0 => Params::from([("unknown".into(), ParamValue::Boolean(true))]),
            1..4 => Params::from([("plan".into(), ParamValue::Boolean(dice.percent(50)))]),
            _ => Params::new(),
        }
    }

    pub(super) async fn starts(&self, channel: Arc<dyn Channel>) -> Result<Started, CallError> {
        self.thinks().await;
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if self.life().world.dice.percent(30) {
            self.binds(&channel).await;
        }
        Ok(Started {
            params: self.params(),
            handle: Box::new(Native { channel }),
        })
    }

    pub(super) async fn operates(
        &self,
        execution: Execution,
        channel: Arc<dyn Channel>,
    ) -> Result<Invocation, CallError> {
        let dice = &self.life().world.dice;
        self.thinks().await;
        for _ in 0..dice.below(3) {
            self.does_something(&channel, false).await?;
        }
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let starts = match execution {
            Execution::Exclusive => dice.percent(60),
            // A control that starts a session breaks its contract.
            Execution::Control => dice.percent(3) && !self.life().plan.calm,
        };
        if starts {
            return Ok(Invocation::Started(Started {
                params: self.params(),
                handle: Box::new(Native { channel }),
            }));
        }
        Ok(Invocation::Completed(Outcome {
            message: dice.percent(50).then(|| self.text()),
            params: self.params(),
        }))
    }

    pub(super) async fn runs_turn(
        self: Arc<Self>,
        channel: Arc<dyn Channel>,
    ) -> Result<Outcome, CallError> {
        let dice = &self.life().world.dice;
        for _ in 0..dice.below(7) {
            self.does_something(&channel, true).await?;
        }
        if dice.percent(10) && !self.life().plan.calm {
            // It hangs until somebody stops it.
            std::future::pending::<()>().await;
        }
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        Ok(Outcome {
            message: None,
            params: self.params(),
        })
    }

    pub(super) async fn compacts(&self) -> Result<Compaction, CallError> {
        let dice = &self.life().world.dice;
        self.thinks().await;
        if dice.percent(20) && !self.life().plan.calm {
            sleep(dice.pause()).await;
        }
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let summary = match dice.below(10) {
            0 => Some(String::new()),
            1..4 => None,
            _ => Some(self.text()),
        };
        let usage = None;
        Ok(Compaction { summary, usage })
    }

    /// One thing of a turn, or of an operation. A host call that is rejected ends nothing: the
    /// provider goes on as it pleases.
    async fn does_something(&self, channel: &Arc<dyn Channel>, turn: bool) -> Step {
        let dice = &self.life().world.dice;
        match dice.below(15) {
            0 if self.life().plan.calm => sleep(dice.millis(500)).await,
            0 => sleep(dice.pause()).await,
            1..4 => self.says(channel, turn).await,
            4 | 5 => self.streams(channel).await,
            6 => self.asks_leave(channel).await,
            7 => self.asks(channel).await,
            8 => self.binds(channel).await,
            9 | 10 if turn => self.folds(channel).await,
            11 => channel.report_usage(Usage {
                input_tokens: dice.below(1000),
                output_tokens: dice.below(1000),
                context_used: None,
                context_size: None,
            }),
            12 => {
                self.harness.change_state();
                self.host.state_changed();
            }
            13 | 14 if turn => self.delegates(channel.delegation()).await,
            _ => drop(channel.history(5).await),
        }
        self.thinks().await;
        Ok(())
    }

    async fn says(&self, channel: &Arc<dyn Channel>, turn: bool) {
        let text = self.text();
        let kept = channel.append(message(text.clone())).await.is_ok();
        let life = self.life();
        // A control's messages come with its outcome.
        if let Some(session) = self.session().filter(|_| kept && turn && life.is_alive()) {
            let found = life.world.ledger().kept(session, &text);
            life.world.hold(found);
        }
    }

    async fn streams(&self, channel: &Arc<dyn Channel>) {
        let dice = &self.life().world.dice;
        let Ok(writer) = channel.open_message(Role::Assistant).await else {
            return;
        };
        for _ in 0..dice.below(4) {
            let text = self.text();
            let _ = channel.delta(writer, Part::Text { text }).await;
            self.thinks().await;
        }
        if dice.percent(30) {
            channel.abandon_writer(writer);
        } else {
            let _ = channel.finish(writer).await;
        }
    }

    async fn asks_leave(&self, channel: &Arc<dyn Channel>) {
        let dice = &self.life().world.dice;
        let id = self.text();
        let request = ApprovalRequest {
            title: "May it?".into(),
            tool_name: "tool".into(),
            tool_input: "{}".into(),
            tool_use_id: id.clone(),
            rules: if dice.percent(50) {
                vec!["rule".into()]
            } else {
                Vec::new()
            },
        };
        let asked = channel.request_approval(request);
        self.waits(channel, id, asked).await;
    }

    async fn asks(&self, channel: &Arc<dyn Channel>) {
        let choice = |value: &str| Choice {
            value: value.into(),
            label: value.into(),
            description: None,
        };
        let id = self.text();
        let form = QuestionForm {
            id: id.clone(),
            title: "Which?".into(),
            questions: vec![Question {
                id: "q".into(),
                label: "Which?".into(),
                description: None,
                choices: vec![choice("one"), choice("two")],
                multiple: false,
                custom: true,
                secret: self.life().world.dice.percent(30),
            }],
        };
        let asked = channel.ask(form);
        self.waits(channel, id, asked).await;
    }

    /// Waits for a person, for ever or for a while; then it withdraws, or just leaves.
    async fn waits<T>(
        &self,
        channel: &Arc<dyn Channel>,
        id: String,
        asked: impl Future<Output = Result<T, ChannelError>>,
    ) {
        let dice = &self.life().world.dice;
        let patience = match dice.below(4) {
            0 => dice.millis(5_000),
            _ => Duration::from_secs(100_000),
        };
        let withdraws = dice.percent(50);
        let mut asked = Box::pin(asked);
        tokio::select! {
            biased;
            _ = &mut asked => {}
            () = sleep(patience) => if withdraws {
                channel.withdraw(id);
                drop(asked.await);
            },
        }
    }

    async fn binds(&self, channel: &Arc<dyn Channel>) {
        let n = self.life().world.dice.below(3);
        let _ = channel.bind_native_session(format!("native-{n}")).await;
    }

    async fn folds(&self, channel: &Arc<dyn Channel>) {
        let dice = &self.life().world.dice;
        if dice.percent(50) {
            let ready = channel.input_ready();
            if tokio::time::timeout(dice.millis(2_000), ready)
                .await
                .is_err()
                && dice.percent(20)
            {
                channel.close_input();
            }
        }
        for input in channel.take_input().await.unwrap_or_default() {
            self.sends(Sent::Input, input.command_id);
        }
    }

    /// What the native side does by itself, for as long as the instance lives.
    pub(super) async fn runs(self: Arc<Self>) {
        let me = self.clone();
        tokio::select! {
            biased;
            _ = self.ending() => {}
            () = me.lives() => {}
        }
    }

    async fn lives(&self) {
        let dice = &self.life().world.dice;
        loop {
            sleep(Duration::from_millis(200 + dice.below(60_000))).await;
            self.life().goes_on().await;
            match dice.below(7) {
                5 => self.delegates(self.host.delegation()).await,
                0 | 1 => {
                    let start = if dice.percent(50) {
                        TurnStart::Running
                    } else {
                        TurnStart::Wanted
                    };
                    let turn = NativeTurn {
                        id: self.text(),
                        start,
                        reason: "goal".into(),
                        cause: None,
                    };
                    // It may lose patience, and withdraws so.
                    let announced = self.host.announce_turn(turn);
                    let _ = tokio::time::timeout(dice.millis(90_000), announced).await;
                }
                2 => {
                    let _ = self.host.append(message(self.text())).await;
                }
                3 => {
                    if let Ok(activity) = self.host.begin_activity("busy".into()) {
                        let abort = activity.abort();
                        let deaf = dice.percent(10);
                        tokio::select! {
                            biased;
                            () = sleep(dice.pause()) => {}
                            _ = abort.aborted(), if !deaf => {}
                        }
                        drop(activity);
                    }
                }
                4 => {
                    self.harness.change_state();
                    self.host.state_changed();
                }
                _ => {}
            }
        }
    }
}
