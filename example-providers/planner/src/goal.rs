//! The autonomous steps of a goal.
//!
//! The driver lives in `run`. While a goal is active it announces one step after
//! the other as a native turn, and an activity is open, so that a Stop reaches the
//! goal between two steps too. Invariants: at most one step is announced or runs;
//! after a Stop, of a step or between steps, the goal is paused (N12, N13);
//! nothing is announced that the state does not call active.

use crate::native::Native;
use crate::settings::settings;
use crate::store::Store;
use futures::future::{Either, select};
use harness_guest::prelude::*;
use harness_guest::task::sleep;
use std::pin::pin;

/// Makes the steps of the active goal.
#[derive(Default)]
pub struct Driver {
    link: Shared<Option<Link>>,
    activity: Watch<Option<Activity>>,
    step: Watch<StepState>,
    /// Host command that set the goal going.
    cause: Shared<Option<String>>,
}

/// The one step that is announced or runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum StepState {
    #[default]
    None,
    Announced(StepId),
    Running,
    /// Its turn ended; whether it came to its own end.
    Ended {
        whole: bool,
    },
}

/// Names a step for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StepId {
    goal: u32,
    run: u32,
    number: u32,
}

impl StepId {
    fn turn_id(self) -> String {
        format!("goal-{}-run-{}-step-{}", self.goal, self.run, self.number)
    }

    fn of(native: &Native) -> Option<Self> {
        native.active_goal().map(|goal| Self {
            goal: goal.number,
            run: goal.run,
            number: goal.steps + 1,
        })
    }
}

/// A step whose turn the host gave us. Tells the driver how it ended, also when
/// it is dropped by an abort.
#[derive(Debug)]
pub struct Step {
    id: StepId,
    state: Watch<StepState>,
    whole: bool,
}

impl Step {
    /// Which goal it belongs to.
    #[must_use]
    pub fn goal(&self) -> u32 {
        self.id.goal
    }

    /// Which step of the goal it is, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.id.number
    }

    /// Whether the goal still wants exactly this step.
    #[must_use]
    pub fn belongs_to(&self, native: &Native) -> bool {
        StepId::of(native) == Some(self.id)
    }

    /// It came to its own end.
    pub fn finished(mut self) {
        self.whole = true;
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let whole = self.whole;
        self.state
            .change(|state| *state = StepState::Ended { whole });
    }
}

impl Driver {
    /// The life of the instance: waits for an active goal and makes its steps.
    ///
    /// # Errors
    ///
    /// When the state is not available.
    pub async fn run(&self, link: Link, store: &Store) -> Result<(), Error> {
        self.link.replace(Some(link.clone()));
        loop {
            store
                .until(|native| native.goal_active().then_some(()))
                .await?;
            let over = pin!(store.until(|native| (!native.goal_active()).then_some(())));
            match select(pin!(self.steps(&link, store)), over).await {
                // The steps ended by themselves: that pauses the goal.
                Either::Left((ended, _)) => {
                    log_pause(&ended);
                    store.change(|native| Ok(native.pause())).await?;
                }
                Either::Right((over, _)) => over?,
            }
            self.follow(store).await?;
        }
    }

    /// Announces steps until something ends them, and says what.
    async fn steps(&self, link: &Link, store: &Store) -> String {
        let stopped = pin!(self.stopped());
        let steps = pin!(async {
            loop {
                sleep(settings().goal_gap).await;
                if let Err(reason) = self.step(link, store).await {
                    return reason;
                }
            }
        });
        match select(stopped, steps).await {
            Either::Left((reason, _)) | Either::Right((reason, _)) => reason,
        }
    }

    /// One step, from its announcement to its end.
    async fn step(&self, link: &Link, store: &Store) -> Result<(), String> {
        let id = store
            .until(|native| Some(StepId::of(native)))
            .await
            .map_err(|error| format!("{error:?}"))?
            .ok_or("the goal is over")?;
        self.step.change(|step| *step = StepState::Announced(id));
        let turn = NativeTurn {
            id: id.turn_id(),
            start: TurnStart::Wanted,
            reason: "goal".to_owned(),
            cause: self.cause.get(),
        };
        match link.announce_turn(turn).await {
            Ok(()) => {}
            // The session was quicker; the same step is wanted again later.
            Err(ChannelError::Busy) => return Ok(()),
            Err(error) => return Err(format!("the host refused a step: {error:?}")),
        }
        let whole = self
            .step
            .until(|step| match step {
                StepState::Ended { whole } => Some(*whole),
                _ => None,
            })
            .await;
        if whole {
            Ok(())
        } else {
            Err("a step was interrupted".to_owned())
        }
    }

    /// Resolves when a Stop reaches the goal.
    async fn stopped(&self) -> String {
        let abort = self
            .activity
            .until(|activity| activity.as_ref().map(Activity::abort))
            .await;
        format!("stopped: {:?}", abort.wait().await)
    }

    /// The step of an announced native turn.
    ///
    /// # Errors
    ///
    /// `InvalidOperation` for a turn that was not announced.
    pub fn adopt(&self, turn_id: &str) -> Result<Step, Error> {
        let id = self.step.change(|step| match step {
            StepState::Announced(id) if id.turn_id() == turn_id => {
                let id = *id;
                *step = StepState::Running;
                Some(id)
            }
            _ => None,
        });
        match id {
            Some(id) => Ok(Step {
                id,
                state: self.step.clone(),
                whole: false,
            }),
            None => Err(Error::InvalidOperation(
                "this step was not announced".to_owned(),
            )),
        }
    }

    /// After the goal was set going: opens the activity before the caller is
    /// answered, so that there is no moment in which a Stop would miss the goal.
    ///
    /// # Errors
    ///
    /// Why the host refuses the activity; the goal is paused then.
    pub async fn set_going(&self, store: &Store, channel: &Channel) -> Result<(), Error> {
        self.cause.replace(Some(channel.command_id().to_owned()));
        if self.activity.read(Option::is_some) {
            // A goal in place of an active one: the driver watches this activity.
            return Ok(());
        }
        let begun = match self.link.get() {
            Some(link) => link.begin_activity("goal"),
            None => Err(ChannelError::Closed),
        };
        match begun {
            Ok(activity) => {
                self.activity.change(|open| *open = Some(activity));
                Ok(())
            }
            Err(error) => {
                store.change(|native| Ok(native.pause())).await?;
                Err(error.into())
            }
        }
    }

    /// Closes the activity when no goal is active.
    ///
    /// # Errors
    ///
    /// When the state is not available.
    pub async fn follow(&self, store: &Store) -> Result<(), Error> {
        if !store.native().await?.goal_active() {
            self.activity.change(|open| *open = None);
        }
        Ok(())
    }
}

fn log_pause(reason: &str) {
    harness_guest::telemetry::log(LogLevel::Info, &format!("the goal is paused: {reason}"));
}
