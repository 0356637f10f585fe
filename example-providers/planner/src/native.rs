//! The native state of one session and the rules it obeys.
//!
//! Pure data: no call of the contract is made here. Invariants: a goal that was
//! active when its instance ended is read back as paused, so nothing ever starts
//! by itself after a restart (N4); a goal is active only while plan mode is off,
//! and a proposal exists only in plan mode (R16).

use harness_guest::Revision;
use serde::{Deserialize, Serialize};

/// All that the demo remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Native {
    /// The goal, if one was set.
    pub goal: Option<Goal>,
    /// Plan mode, if it is on.
    pub plan: Option<PlanMode>,
    /// How many goals there were: names their steps.
    pub goals: u32,
    /// How many plans were proposed: names their revisions.
    pub plans: u32,
    /// Turns since the context was compacted.
    pub context_turns: u32,
}

/// An objective and how far its steps got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    /// Which goal of the session this is, from 1.
    pub number: u32,
    /// What it is about.
    pub objective: String,
    /// Whether steps are being made.
    pub status: GoalStatus,
    /// How often it was set going, from 1: an interrupted step is made again under
    /// another name.
    pub run: u32,
    /// Steps that are done.
    pub steps: u32,
}

/// Whether steps are being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalStatus {
    /// Steps are announced one after the other.
    Active,
    /// Nothing happens until it is resumed.
    Paused,
    /// All steps were made.
    Done,
}

/// Plan mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanMode {
    /// The plan that waits for a decision.
    pub proposal: Option<Proposal>,
}

/// A plan that waits for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Which proposal of the session this is, from 1.
    pub number: u32,
    /// What it is about.
    pub objective: String,
    /// The whole plan.
    pub text: String,
    /// The model that the session used for it, when one was chosen.
    pub model: Option<String>,
}

impl Proposal {
    /// What an approval must name.
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision::of([self.number.to_string().as_str(), &self.text])
    }
}

impl Native {
    /// What is read back after the instance was lost.
    #[must_use]
    pub fn restored(mut self) -> Self {
        self.pause();
        self
    }

    /// Whether a goal makes steps.
    #[must_use]
    pub fn goal_active(&self) -> bool {
        self.active_goal().is_some()
    }

    /// The goal that makes steps.
    #[must_use]
    pub fn active_goal(&self) -> Option<&Goal> {
        self.goal
            .as_ref()
            .filter(|goal| goal.status == GoalStatus::Active)
    }

    /// The proposal that waits, unless a goal is active (R16).
    #[must_use]
    pub fn proposal(&self) -> Option<&Proposal> {
        let plan = self.plan.as_ref().filter(|_| !self.goal_active())?;
        plan.proposal.as_ref()
    }

    /// Sets a goal going, in place of a former one.
    pub fn set_goal(&mut self, objective: String) {
        self.goals += 1;
        self.goal = Some(Goal {
            number: self.goals,
            objective,
            status: GoalStatus::Active,
            run: 1,
            steps: 0,
        });
    }

    /// Pauses an active goal; whether there was one.
    pub fn pause(&mut self) -> bool {
        self.turn_goal(GoalStatus::Active, GoalStatus::Paused)
    }

    /// Sets a paused goal going again; whether there was one.
    pub fn resume(&mut self) -> bool {
        let resumed = self.turn_goal(GoalStatus::Paused, GoalStatus::Active);
        if let Some(goal) = self.goal.as_mut().filter(|_| resumed) {
            goal.run += 1;
        }
        resumed
    }

    fn turn_goal(&mut self, from: GoalStatus, to: GoalStatus) -> bool {
        match &mut self.goal {
            Some(goal) if goal.status == from => {
                goal.status = to;
                true
            }
            _ => false,
        }
    }

    /// Writes down that the step was made. Nothing when the goal has changed since.
    pub fn step_made(&mut self, number: u32, step: u32, of: u32) {
        if let Some(goal) = &mut self.goal
            && goal.number == number
            && goal.steps + 1 == step
        {
            goal.steps = step;
            if goal.steps >= of {
                goal.status = GoalStatus::Done;
            }
        }
    }

    /// Publishes a plan for decision.
    pub fn propose(&mut self, objective: String, text: String, model: Option<String>) {
        self.plans += 1;
        self.plan = Some(PlanMode {
            proposal: Some(Proposal {
                number: self.plans,
                objective,
                text,
                model,
            }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{GoalStatus, Native};

    #[test]
    fn n4_an_active_goal_is_read_back_as_paused() {
        let mut native = Native::default();
        native.set_goal("tidy up".to_owned());
        assert!(native.goal_active());
        let restored = native.clone().restored();
        assert_eq!(restored.goal.as_ref().unwrap().status, GoalStatus::Paused);
        assert_eq!(restored.clone().restored(), restored);
    }

    #[test]
    fn only_the_current_goal_counts_its_steps() {
        let mut native = Native::default();
        native.set_goal("one".to_owned());
        native.step_made(1, 1, 2);
        native.set_goal("two".to_owned());
        native.step_made(1, 2, 2);
        assert_eq!(native.goal.as_ref().unwrap().steps, 0);
        native.step_made(2, 1, 2);
        native.step_made(2, 1, 2);
        assert_eq!(native.goal.as_ref().unwrap().steps, 1);
        native.step_made(2, 2, 2);
        assert_eq!(native.goal.as_ref().unwrap().status, GoalStatus::Done);
    }

    #[test]
    fn r16_a_proposal_hides_while_a_goal_is_active() {
        let mut native = Native::default();
        native.propose("x".to_owned(), "1. x".to_owned(), None);
        assert!(native.proposal().is_some());
        native.set_goal("y".to_owned());
        assert!(native.proposal().is_none());
    }

    #[test]
    fn r111_equal_plans_of_two_proposals_have_two_revisions() {
        let mut native = Native::default();
        native.propose("x".to_owned(), "1. x".to_owned(), None);
        let first = native.proposal().unwrap().revision();
        native.propose("x".to_owned(), "1. x".to_owned(), None);
        assert_ne!(native.proposal().unwrap().revision(), first);
    }
}
