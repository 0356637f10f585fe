//! What a client sees: static facts, commands and modes.
//!
//! A pure function of the native state, so equal states give equal revisions (R1).
//! What changes with every step (`state`, `tag-text`) is kept out of the fields
//! that make up the revision.

use crate::native::{Goal, GoalStatus, Native, PlanMode};
use harness_guest::prelude::*;

/// Why `/plan` cannot be used.
pub const GOAL_ACTIVE: &str = "A goal is active: pause or clear it before planning.";
/// Why `/goal` cannot be used.
pub const PLAN_ON: &str = "Plan mode is on: leave it before setting a goal going.";

/// The parameter that follows plan mode.
pub const PLANNING: &str = "planning";

/// Static facts of the demo.
#[must_use]
pub fn info() -> HarnessInfo {
    let model = |id: &str, label: &str, efforts: &[&str]| ModelSpec {
        id: id.to_owned(),
        label: label.to_owned(),
        efforts: efforts.iter().map(|effort| (*effort).to_owned()).collect(),
    };
    HarnessInfo {
        models: vec![
            model("m1", "Demo model 1", &[]),
            model("m2", "Demo model 2", &["low", "high"]),
        ],
        params: vec![ParamSpec {
            id: PLANNING.to_owned(),
            label: "Planning".to_owned(),
            description: Some("On while plan mode is on; set by /plan.".to_owned()),
            control: ParamControl::Command,
            default_value: ParamValue::Boolean(false),
            choices: Vec::new(),
        }],
        loop_modes: vec![LoopMode {
            name: "review".to_owned(),
            label: "Review".to_owned(),
        }],
        features: Features::COMMANDS
            | Features::STATE_PUSH
            | Features::NATIVE_TURNS
            | Features::FOLDING
            | Features::COMPACTION
            | Features::DELEGATION,
        ..HarnessInfo::new("demo/planner", "Planner (demo)", env!("CARGO_PKG_VERSION"))
    }
}

/// Commands and modes.
#[must_use]
pub fn command_state(native: &Native) -> CommandState {
    let mut modes = Vec::new();
    modes.extend(native.goal.as_ref().map(goal_mode));
    modes.extend(native.plan.as_ref().map(|plan| plan_mode(native, plan)));
    CommandState {
        commands: commands(native),
        modes,
        slash_commands: true,
        note: Some("A demo: it has no model, and nothing it says was really done.".to_owned()),
    }
}

fn commands(native: &Native) -> Vec<Command> {
    let command = |name: &str, description: &str, argument_help: Option<&str>| Command {
        name: name.to_owned(),
        description: description.to_owned(),
        argument_help: argument_help.map(str::to_owned),
        composer: None,
        disabled_reason: None,
    };
    let tag = |label: &str, mode: &str, reserved: &[&str]| {
        Some(ComposerTag {
            label: label.to_owned(),
            mode_id: Some(mode.to_owned()),
            reserved_arguments: reserved.iter().map(|word| (*word).to_owned()).collect(),
        })
    };
    vec![
        Command {
            composer: tag("Goal", "goal", &["pause", "resume", "clear"]),
            disabled_reason: native.plan.as_ref().map(|_| PLAN_ON.to_owned()),
            ..command(
                "/goal",
                "Work towards an objective in autonomous steps",
                Some("<objective> | pause | resume | clear"),
            )
        },
        Command {
            composer: tag("Plan", "plan", &[]),
            disabled_reason: native.goal_active().then(|| GOAL_ACTIVE.to_owned()),
            ..command(
                "/plan",
                "Turn plan mode on, or plan an objective",
                Some("[objective]"),
            )
        },
        command("/compact", "Forget the turns of the native context", None),
        command(
            "/note",
            "Reply with the text, byte for byte",
            Some("<text>"),
        ),
        command(
            "/work",
            "Run a turn of that many seconds, one delta a second",
            Some("<seconds>"),
        ),
    ]
}

fn action(id: &str, label: &str, icon: &str) -> ModeAction {
    ModeAction {
        id: id.to_owned(),
        label: label.to_owned(),
        icon: Some(icon.to_owned()),
        argument: None,
    }
}

fn indicator(label: &str, tone: Tone) -> Option<Indicator> {
    Some(Indicator {
        label: label.to_owned(),
        tone,
    })
}

fn goal_mode(goal: &Goal) -> Mode {
    let steps = match goal.steps {
        1 => "1 step made".to_owned(),
        made => format!("{made} steps made"),
    };
    let edit = ModeAction {
        argument: Some(ActionArgument {
            label: "Objective".to_owned(),
            value: Some(goal.objective.clone()),
        }),
        ..action("edit", "Edit the objective", "pencil")
    };
    let clear = action("clear", "Clear the goal", "trash-2");
    let (state, light, actions) = match goal.status {
        GoalStatus::Active => (
            "active",
            indicator("Active", Tone::Success),
            vec![action("pause", "Pause", "pause"), edit, clear],
        ),
        GoalStatus::Paused => (
            "paused",
            indicator("Paused", Tone::Warning),
            vec![action("resume", "Resume", "play"), edit, clear],
        ),
        GoalStatus::Done => ("done", indicator("Done", Tone::Info), vec![clear]),
    };
    Mode {
        id: "goal".to_owned(),
        label: "Goal".to_owned(),
        description: goal.objective.clone(),
        state: format!("{state}, {steps}"),
        tag_text: Some(format!("Goal {state}: {steps}")),
        indicator: light,
        actions,
        close_action_id: Some("clear".to_owned()),
        confirmation: None,
    }
}

fn plan_mode(native: &Native, plan: &PlanMode) -> Mode {
    let mut actions = vec![action("close", "Leave plan mode", "x")];
    let proposal = native.proposal();
    if proposal.is_some() {
        actions.insert(0, action("approve", "Approve the plan", "check"));
    }
    let waits = plan.proposal.is_some();
    Mode {
        id: "plan".to_owned(),
        label: "Plan".to_owned(),
        description: plan.proposal.as_ref().map_or_else(
            || "Plan mode is on. /plan <objective> makes a plan.".to_owned(),
            |proposal| proposal.text.clone(),
        ),
        state: if waits { "a plan waits" } else { "on" }.to_owned(),
        tag_text: plan
            .proposal
            .as_ref()
            .map(|proposal| format!("Plan {} waits for a decision", proposal.number)),
        indicator: if waits {
            indicator("Waits for a decision", Tone::Warning)
        } else {
            indicator("On", Tone::Info)
        },
        actions,
        close_action_id: Some("close".to_owned()),
        confirmation: proposal.map(|proposal| Confirmation {
            id: proposal.revision().into(),
            title: "Carry out this plan?".to_owned(),
            action_id: "approve".to_owned(),
            cancel_label: Some("Continue planning".to_owned()),
            model: proposal.model.clone(),
        }),
    }
}
