//! Values that providers return and ask for, in the shapes tests need.

use harness_core::gate::{ApprovalRequest, Choice, GateAsk, Question, QuestionForm};
use harness_core::provider::{CallError, Outcome, ParamValue, Params, Refusal};
use harness_core::session::{Answer, Invoked};
use harness_core::workspace::{SnapshotError, WorkspaceRef};

/// The refusal's code of an answer; `""` when it is none.
pub(crate) fn code(answer: &Answer) -> &'static str {
    match answer {
        Answer::Refused(refused) => refused.code(),
        _ => "",
    }
}

/// A patch of the one declared parameter.
pub(crate) fn patch(mode: &str) -> Params {
    [("mode".to_owned(), ParamValue::Text(mode.into()))].into()
}

pub(crate) fn outcome(message: &str) -> Outcome {
    Outcome {
        message: Some(message.into()),
        params: Params::new(),
    }
}

pub(crate) fn completed() -> Result<Invoked, CallError> {
    Ok(Invoked::Completed(Outcome::default()))
}

pub(crate) fn refused<T>(refusal: Refusal) -> Result<T, CallError> {
    Err(CallError::Refused(refusal))
}

/// What a component answers that heeds its abort.
pub(crate) fn stopped<T>() -> Result<T, CallError> {
    refused(Refusal::Cancelled)
}

pub(crate) fn permission(rules: &[&str]) -> GateAsk {
    GateAsk::Permission(ApprovalRequest {
        title: "Run ls".into(),
        tool_name: "shell".into(),
        tool_input: "{}".into(),
        tool_use_id: "call-1".into(),
        rules: rules.iter().map(|&r| r.into()).collect(),
    })
}

/// A question with two choices and a secret one with free text.
pub(crate) fn form() -> GateAsk {
    let choice = |v: &str| Choice {
        value: v.into(),
        label: v.into(),
        description: None,
    };
    let question = |id: &str, choices, secret| Question {
        id: id.into(),
        label: id.into(),
        description: None,
        choices,
        multiple: false,
        custom: false,
        secret,
    };
    GateAsk::AskUser(QuestionForm {
        id: "form-1".into(),
        title: "Which".into(),
        questions: vec![
            question("way", vec![choice("left"), choice("right")], false),
            question("key", Vec::new(), true),
        ],
    })
}

/// A completed outcome with a settings patch.
pub(crate) fn with_patch(mode: &str) -> Outcome {
    Outcome {
        message: None,
        params: patch(mode),
    }
}

/// The ref of a tree.
pub(crate) fn reference(tree: u8) -> WorkspaceRef {
    let hex = format!("{tree:02x}").repeat(32);
    format!("v1:sha256:{hex}").parse().unwrap()
}

/// What a snapshot store says when it has no room.
pub(crate) fn full() -> SnapshotError {
    SnapshotError::Failed {
        code: "disk_full".into(),
        message: "writing a pack: no space is left".into(),
    }
}
