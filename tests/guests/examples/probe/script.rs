//! Texts become scripts: steps by phase.

use harness_guest::prelude::*;
use harness_guest::refusal::{command_argument, command_name};

/// When a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In `prepare-operation`.
    Prepare,
    /// In `invoke` of a control.
    Control,
    /// In `invoke` of an exclusive.
    Exclusive,
    /// In `start-prompt`.
    Start,
    /// In `done`.
    Turn,
}

/// Steps by phase, each `word arguments`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script(Vec<(Phase, Vec<String>)>);

fn invalid<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::InvalidOperation(text.into()))
}

impl Script {
    fn one(phase: Phase, step: impl Into<String>) -> Self {
        Self(vec![(phase, vec![step.into()])])
    }

    /// `phase step; step | phase step …`
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut phases = Vec::new();
        for segment in text.split('|') {
            let segment = segment.trim();
            let (word, rest) = segment.split_once(' ').unwrap_or((segment, ""));
            let phase = match word {
                "prepare" => Phase::Prepare,
                "control" => Phase::Control,
                "exclusive" => Phase::Exclusive,
                "start" => Phase::Start,
                "turn" => Phase::Turn,
                _ => return invalid(format!("no phase {word:?}")),
            };
            phases.push((phase, split_steps(rest)));
        }
        Ok(Self(phases))
    }

    /// A turn of these steps.
    pub fn turn(steps: &str) -> Self {
        Self(vec![(Phase::Turn, split_steps(steps))])
    }

    /// What an operation means; `switch` is the value of that mode.
    pub fn of(operation: Operation, switch: u64) -> Result<Self, Error> {
        match operation {
            Operation::Command(text) => Self::of_command(&text),
            Operation::ModeAction(action) => Self::of_action(&action, switch),
        }
    }

    fn of_command(text: &str) -> Result<Self, Error> {
        let raw = command_argument(text);
        let argument = raw.trim();
        let control = |step: String| Ok(Self::one(Phase::Control, step));
        match command_name(text) {
            Some("/script") => Self::parse(argument),
            Some("/control") => control(format!("reply {argument}")),
            Some("/raw") => control(format!("raw {text}")),
            Some("/history") => control("history".to_owned()),
            Some("/context") => control("context".to_owned()),
            Some("/ask") => control("ask question".to_owned()),
            Some("/approve") => control("approve tool rule:one".to_owned()),
            Some("/params") => control(format!("params {argument}")),
            Some("/fail") => control(format!("fail {argument}")),
            Some("/reject") => Ok(Self(vec![
                (Phase::Prepare, vec![format!("fail {argument}")]),
                (Phase::Control, Vec::new()),
            ])),
            Some("/exclusive") => match argument.split_once(' ').unwrap_or((argument, "0")) {
                ("complete", ms) => Self::parse(&format!(
                    "exclusive bind native-1; sleep {ms}; reply completed"
                )),
                ("start", ms) => Self::parse(&format!(
                    "exclusive bind native-1 | turn sleep {ms}; say worked"
                )),
                _ => invalid("/exclusive complete|start [ms]"),
            },
            Some("/late-native-id") => Self::parse(&format!(
                "exclusive hold; sleep {argument}; bind-late native-late | turn sleep 60000"
            )),
            Some("/disabled") => control("reply never".to_owned()),
            _ => invalid(format!("the probe has no {text:?}")),
        }
    }

    fn of_action(action: &ModeActionOperation, switch: u64) -> Result<Self, Error> {
        let argument = action.argument.as_deref();
        match (action.mode_id.as_str(), action.action_id.as_str()) {
            ("switch", "next") => Ok(Self::one(Phase::Control, "switch-next")),
            ("switch", "set") => match argument.map(str::parse::<u64>) {
                Some(Ok(value)) => Ok(Self::one(Phase::Control, format!("switch-set {value}"))),
                _ => invalid("the switch is set to a number"),
            },
            ("switch", "confirm") => {
                Revision::check(&revision(switch), argument)?;
                Self::parse("exclusive switch-next; params flag=false | turn say confirmed")
            }
            _ => invalid("the probe has no such action"),
        }
    }

    /// `probe: script` with the phases start and turn, anything else is echoed.
    pub fn of_prompt(text: &str) -> Result<Self, Error> {
        match text.strip_prefix("probe:") {
            Some(script) => Self::parse(script),
            None => Ok(Self(vec![(Phase::Turn, vec![format!("say {text}")])])),
        }
    }

    /// The steps of one phase.
    pub fn steps(&self, phase: Phase) -> &[String] {
        self.0
            .iter()
            .find(|(at, _)| *at == phase)
            .map_or(&[], |(_, steps)| steps)
    }

    /// Whether it needs the session to itself.
    pub fn is_exclusive(&self) -> bool {
        self.0.iter().any(|(phase, _)| *phase == Phase::Exclusive)
    }

    /// Whether it has a turn.
    pub fn starts_turn(&self) -> bool {
        self.0.iter().any(|(phase, _)| *phase == Phase::Turn)
    }
}

/// The revision of the switch's value.
pub fn revision(switch: u64) -> Revision {
    Revision::native(format!("switch-{switch}"))
}

use harness_guest::Revision;

fn split_steps(text: &str) -> Vec<String> {
    text.split(';')
        .map(|step| step.trim().to_owned())
        .filter(|step| !step.is_empty())
        .collect()
}
