//! What a native command or mode action means.
//!
//! Three steps, as in the contract: [`parse`] tells a control from an exclusive
//! and refuses what is not valid, `check` refuses what the native state forbids,
//! `perform` does it and checks again, because time has passed.

use crate::goal::Driver;
use crate::native::{GoalStatus, Native, PlanMode};
use crate::store::Store;
use crate::turn::Turn;
use crate::view::{GOAL_ACTIVE, PLAN_ON, PLANNING};
use harness_guest::limits::{OUTCOME_BYTES, TEXT_BYTES};
use harness_guest::prelude::*;
use harness_guest::refusal::{command_argument, command_name};

/// May run beside a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Stop making steps.
    PauseGoal,
    /// Forget the goal.
    ClearGoal,
    /// Change the objective.
    EditGoal(String),
    /// Turn plan mode on.
    EnterPlan,
    /// Turn plan mode off and drop the proposal.
    LeavePlan,
    /// Forget the turns so far.
    Compact,
    /// Reply with the text.
    Note(String),
}

/// Has the session to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusive {
    /// Set a goal going.
    SetGoal(String),
    /// Set the paused goal going again.
    ResumeGoal,
    /// Plan an objective in a turn.
    Plan(String),
    /// Carry out the plan of this revision in a turn.
    Approve(String),
    /// A turn of so many seconds.
    Work(u32),
}

/// Reads an operation.
///
/// # Errors
///
/// `InvalidOperation` for what this harness does not know.
pub fn parse(operation: Operation) -> Result<Prepared<Control, Exclusive>, Error> {
    match operation {
        Operation::Command(text) => parse_command(&text),
        Operation::ModeAction(action) => parse_action(action),
    }
}

fn invalid<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::InvalidOperation(text.into()))
}

fn parse_command(text: &str) -> Result<Prepared<Control, Exclusive>, Error> {
    let raw = command_argument(text);
    let argument = raw.trim();
    Ok(match command_name(text) {
        Some("/goal") => match argument {
            "" => return invalid("/goal needs an objective, or one of pause, resume, clear"),
            "pause" => Prepared::Control(Control::PauseGoal),
            "resume" => Prepared::Exclusive(Exclusive::ResumeGoal),
            "clear" => Prepared::Control(Control::ClearGoal),
            objective => Prepared::Exclusive(Exclusive::SetGoal(bounded(objective)?)),
        },
        Some("/plan") => match argument {
            "" => Prepared::Control(Control::EnterPlan),
            objective => Prepared::Exclusive(Exclusive::Plan(bounded(objective)?)),
        },
        Some("/compact") if argument.is_empty() => Prepared::Control(Control::Compact),
        Some("/compact") => return invalid("/compact takes no argument"),
        Some("/note") if raw.is_empty() => return invalid("/note needs a text"),
        Some("/note") if raw.len() > OUTCOME_BYTES => {
            return invalid(format!("a note has at most {OUTCOME_BYTES} bytes"));
        }
        Some("/note") => Prepared::Control(Control::Note(raw.to_owned())),
        Some("/work") => match argument.parse() {
            Ok(seconds @ 1..=3_600) => Prepared::Exclusive(Exclusive::Work(seconds)),
            _ => return invalid("/work needs a number of seconds from 1 to 3600"),
        },
        Some(name) => {
            let name = harness_guest::limits::shorten(name, 64);
            return invalid(format!(
                "this demo has no {name}; it has /goal, /plan, /compact, /note and /work"
            ));
        }
        None => return invalid("a native command begins with a slash and a name"),
    })
}

fn parse_action(operation: ModeActionOperation) -> Result<Prepared<Control, Exclusive>, Error> {
    let (mode, action) = (operation.mode_id.as_str(), operation.action_id.as_str());
    let takes_argument = matches!((mode, action), ("goal", "edit") | ("plan", "approve"));
    if operation.argument.is_some() && !takes_argument {
        return invalid(format!("the action {action:?} takes no argument"));
    }
    Ok(match (mode, action) {
        ("goal", "pause") => Prepared::Control(Control::PauseGoal),
        ("goal", "resume") => Prepared::Exclusive(Exclusive::ResumeGoal),
        ("goal", "clear") => Prepared::Control(Control::ClearGoal),
        ("goal", "edit") => {
            let argument = operation.argument.unwrap_or_default();
            match argument.trim() {
                "" => return invalid("the objective must not be blank"),
                objective => Prepared::Control(Control::EditGoal(bounded(objective)?)),
            }
        }
        ("plan", "close") => Prepared::Control(Control::LeavePlan),
        ("plan", "approve") => match operation.argument {
            Some(revision) => Prepared::Exclusive(Exclusive::Approve(revision)),
            None => return invalid("the approval needs the revision of the plan as its argument"),
        },
        _ => {
            let name = harness_guest::limits::shorten(&format!("{mode}/{action}"), 128);
            return invalid(format!("this demo has no mode action {name}"));
        }
    })
}

/// An objective is shown in many places, so it is kept short.
fn bounded(objective: &str) -> Result<String, Error> {
    if objective.len() > TEXT_BYTES {
        return invalid(format!("an objective has at most {TEXT_BYTES} bytes"));
    }
    Ok(objective.to_owned())
}

fn not_allowed<T>(text: &str) -> Result<T, Error> {
    Err(Error::NotAllowed(text.to_owned()))
}

impl Control {
    /// Whether the native state allows it.
    ///
    /// # Errors
    ///
    /// `NotAllowed`.
    pub fn check(&self, native: &Native) -> Result<(), Error> {
        let status = native.goal.as_ref().map(|goal| goal.status);
        match self {
            Self::PauseGoal if status != Some(GoalStatus::Active) => {
                not_allowed("no goal is active")
            }
            Self::ClearGoal if status.is_none() => not_allowed("there is no goal"),
            Self::EditGoal(_) if matches!(status, None | Some(GoalStatus::Done)) => {
                not_allowed("there is no goal to edit")
            }
            Self::EnterPlan if native.goal_active() => not_allowed(GOAL_ACTIVE),
            Self::LeavePlan if native.plan.is_none() => not_allowed("plan mode is off"),
            _ => Ok(()),
        }
    }

    /// Performs it.
    ///
    /// # Errors
    ///
    /// A refusal, or the failure of the conversation or the durable state.
    pub async fn perform(
        self,
        store: &Store,
        driver: &Driver,
        channel: &Channel,
    ) -> Result<Outcome, Error> {
        let _whole = channel.hold();
        let outcome = store
            .change(|native| {
                self.check(native)?;
                Ok(self.apply(native))
            })
            .await?;
        driver.follow(store).await?;
        if let Some(reply) = &outcome.message {
            channel.say(reply.clone()).await?;
        }
        Ok(outcome)
    }

    fn apply(&self, native: &mut Native) -> Outcome {
        match self {
            Self::PauseGoal => {
                native.pause();
                Outcome::reply("The goal is paused.")
            }
            Self::ClearGoal => {
                native.goal = None;
                Outcome::reply("The goal is cleared.")
            }
            Self::EditGoal(objective) => {
                if let Some(goal) = &mut native.goal {
                    goal.objective.clone_from(objective);
                }
                Outcome::reply("The objective is changed.")
            }
            Self::EnterPlan => {
                native.plan.get_or_insert_with(PlanMode::default);
                Outcome::reply("Plan mode is on.").with(Param::boolean(PLANNING, true))
            }
            Self::LeavePlan => {
                native.plan = None;
                Outcome::reply("Plan mode is off.").with(Param::boolean(PLANNING, false))
            }
            Self::Compact => {
                let turns = std::mem::take(&mut native.context_turns);
                Outcome::reply(format!(
                    "Compacted: {turns} turns of context forgotten (demo)."
                ))
            }
            Self::Note(text) => Outcome::reply(text.clone()),
        }
    }
}

impl Exclusive {
    /// Whether the native state allows it.
    ///
    /// # Errors
    ///
    /// `NotAllowed`, or `StaleRevision` for an approval of what is no longer
    /// proposed (R111).
    pub fn check(&self, native: &Native) -> Result<(), Error> {
        match self {
            Self::SetGoal(_) | Self::ResumeGoal if native.plan.is_some() => not_allowed(PLAN_ON),
            Self::ResumeGoal => match native.goal.as_ref().map(|goal| goal.status) {
                Some(GoalStatus::Paused) => Ok(()),
                Some(GoalStatus::Active) => not_allowed("the goal is active already"),
                Some(GoalStatus::Done) | None => not_allowed("there is no paused goal"),
            },
            Self::Plan(_) if native.goal_active() => not_allowed(GOAL_ACTIVE),
            Self::Approve(_) if native.goal_active() => not_allowed(GOAL_ACTIVE),
            Self::Approve(revision) => match native.proposal() {
                Some(proposal) => proposal.revision().check(Some(revision)),
                None => Err(Error::StaleRevision(
                    "no plan waits for a decision any more".to_owned(),
                )),
            },
            Self::SetGoal(_) | Self::Plan(_) | Self::Work(_) => Ok(()),
        }
    }

    /// Performs it, up to the point where a turn goes on.
    ///
    /// # Errors
    ///
    /// A refusal, or the failure of the durable state.
    pub async fn perform(
        self,
        store: &Store,
        driver: &Driver,
        channel: &Channel,
    ) -> Result<Invocation<Turn>, Error> {
        let _whole = channel.hold();
        let planning = |on: bool| vec![Param::boolean(PLANNING, on)];
        Ok(match &self {
            Self::SetGoal(objective) => {
                let objective = objective.clone();
                self.change(store, |native| native.set_goal(objective))
                    .await?;
                driver.set_going(store, channel).await?;
                Invocation::Completed(Outcome::reply("The goal is set; its steps follow."))
            }
            Self::ResumeGoal => {
                self.change(store, |native| {
                    native.resume();
                })
                .await?;
                driver.set_going(store, channel).await?;
                Invocation::Completed(Outcome::reply("The goal is resumed; its steps follow."))
            }
            Self::Plan(objective) => {
                self.change(store, |native| native.plan = Some(PlanMode::default()))
                    .await?;
                Invocation::Started {
                    turn: Turn::Plan(objective.clone()),
                    params: planning(true),
                }
            }
            Self::Approve(_) => {
                let proposal = store
                    .change(|native| {
                        self.check(native)?;
                        Ok(native.plan.take().and_then(|plan| plan.proposal))
                    })
                    .await?;
                Invocation::Started {
                    turn: Turn::Approved(proposal.map(|plan| plan.text).unwrap_or_default()),
                    params: planning(false),
                }
            }
            Self::Work(seconds) => Invocation::started(Turn::Work(*seconds)),
        })
    }

    async fn change(&self, store: &Store, change: impl FnOnce(&mut Native)) -> Result<(), Error> {
        store
            .change(|native| {
                self.check(native)?;
                change(native);
                Ok(())
            })
            .await
    }
}
