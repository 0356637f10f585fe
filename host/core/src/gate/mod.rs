//! Gates: durable questions to a person, resolved exactly once (S80-S89).
//!
//! Here is what a gate asks and what may answer it. When it opens and closes is decided by the
//! session.

mod form;
mod host;
mod policy;

pub use form::{Field, FieldKind, FieldValue, FormGate, Shown, shown};
pub use host::{HostAnswer, HostAsk, HostSecrets, UrlGate};
pub use policy::{GatePolicy, PolicyError};

use crate::ids::{GateId, LoopId, ToolExecutionId, TurnId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Largest answer string and deny message (R76, S6), in bytes.
pub const MAX_ANSWER: usize = 16 * 1024;

/// Largest request in its stored form, in bytes: an open gate is one record (S68), and listed whole.
const MAX_STORED: usize = 2 * 1024 * 1024;

/// What `approve-always` and a person decide over (R77).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApprovalRequest {
    /// What is to be approved, for a person.
    pub title: String,
    /// Native name of the tool.
    pub tool_name: String,
    /// Its arguments as JSON text.
    pub tool_input: String,
    /// Native id of the call.
    pub tool_use_id: String,
    /// What "always" would remember for this workspace; empty: not offered.
    #[serde(default)]
    pub rules: Vec<String>,
}

/// The answer to an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// This once.
    ApproveOnce,
    /// And whenever the request's rules match again.
    ApproveAlways,
    /// No, with the person's reason.
    Deny(Option<String>),
    /// Closed by a policy, without a person.
    Timeout,
}

/// One choice of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Choice {
    /// What the answer carries.
    pub value: String,
    /// What a person reads.
    pub label: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// One question of a form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Question {
    /// Unique in the form.
    pub id: String,
    /// What is asked.
    pub label: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Empty: free text.
    pub choices: Vec<Choice>,
    /// Several values may be given.
    pub multiple: bool,
    /// Text that is not a listed choice is accepted.
    pub custom: bool,
    /// The answer reaches the provider only (S81).
    pub secret: bool,
}

/// Questions asked together (R76).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuestionForm {
    /// The provider's own id of the form; `withdraw` names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Its heading.
    pub title: String,
    /// Its questions, in order.
    pub questions: Vec<Question>,
}

/// The answer to a form: one list a question, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormAnswer {
    /// An empty list was skipped.
    Submitted(Vec<Vec<String>>),
    /// The person declined.
    Dismissed,
    /// Closed by a policy, without a person.
    Timeout,
}

/// What a gate asks (S81). The first two belong to a loop, the others to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "payload", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum GateAsk {
    /// A native tool wants approval.
    Permission(ApprovalRequest),
    /// The native side asks a person.
    AskUser(QuestionForm),
    /// The host asks for values (S88).
    Form(FormGate),
    /// The host asks that a page is opened (S88).
    OpenUrl(UrlGate),
}

impl GateAsk {
    /// The wire name of the kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Permission(_) => "permission",
            Self::AskUser(_) => "ask_user",
            Self::Form(_) => "form",
            Self::OpenUrl(_) => "open_url",
        }
    }

    /// Whether the host resolves it, not a loop (S81).
    #[must_use]
    pub fn is_hosts(&self) -> bool {
        matches!(self, Self::Form(_) | Self::OpenUrl(_))
    }

    /// The provider's own id of the request, by which it withdraws it.
    #[must_use]
    pub fn provider_id(&self) -> &str {
        match self {
            Self::Permission(request) => &request.tool_use_id,
            Self::AskUser(form) => &form.id,
            Self::Form(_) | Self::OpenUrl(_) => "",
        }
    }

    /// Action words a person may answer with, in the order they are offered.
    #[must_use]
    pub fn actions(&self) -> Vec<&'static str> {
        match self {
            Self::Permission(request) if request.rules.is_empty() => vec!["approve_once", "deny"],
            Self::Permission(_) => vec!["approve_once", "approve_always_workspace", "deny"],
            Self::AskUser(_) | Self::Form(_) | Self::OpenUrl(_) => vec!["answer", "decline"],
        }
    }

    /// Checks a provider's request against the contract's bounds (W3).
    ///
    /// # Errors
    /// A sentence that names the bound.
    pub fn check(&self) -> Result<(), String> {
        let stored = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        bound("request as it is stored", stored.len(), MAX_STORED)?;
        let short = |what: &str, s: &str| bound(what, s.len(), 4 * 1024);
        match self {
            Self::Permission(request) => {
                short("approval title", &request.title)?;
                bound("tool name", request.tool_name.len(), 128)?;
                bound("tool use id", request.tool_use_id.len(), 256)?;
                bound("tool input", request.tool_input.len(), 256 * 1024)?;
                bound("number of rules", request.rules.len(), 64)?;
                if request.rules.iter().any(String::is_empty) {
                    return Err("a rule has at least 1 byte".into());
                }
                request
                    .rules
                    .iter()
                    .try_for_each(|rule| short("rule", rule))
            }
            // Their openers' requests are checked when they are made ([`HostAsk::gate`]).
            Self::Form(_) | Self::OpenUrl(_) => Ok(()),
            Self::AskUser(form) => {
                short("form title", &form.title)?;
                bound("form id", form.id.len(), 256)?;
                bound("number of questions", form.questions.len(), 64)?;
                for question in &form.questions {
                    bound("question id", question.id.len(), 128)?;
                    short("question label", &question.label)?;
                    short(
                        "question description",
                        question.description.as_deref().unwrap_or(""),
                    )?;
                    bound("number of choices", question.choices.len(), 256)?;
                    for choice in &question.choices {
                        short("choice value", &choice.value)?;
                        short("choice label", &choice.label)?;
                        short(
                            "choice description",
                            choice.description.as_deref().unwrap_or(""),
                        )?;
                    }
                }
                Ok(())
            }
        }
    }
}

fn bound(what: &str, n: usize, limit: usize) -> Result<(), String> {
    if n > limit {
        Err(format!("{what}: {n}; the limit is {limit}"))
    } else {
        Ok(())
    }
}

/// A person's answer to a gate, as it came in (before it is checked against the gate).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateReply {
    /// `approve_once`
    ApproveOnce,
    /// `approve_always_workspace`
    ApproveAlways,
    /// `deny`
    Deny(Option<String>),
    /// `answer` to questions
    Answer(Vec<Vec<String>>),
    /// `answer` to a form, by field
    Fill(Map<String, Value>),
    /// `answer` without values
    Confirm,
    /// `decline`
    Decline,
}

/// Why an answer does not fit its gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The action belongs to another kind of gate.
    #[error("this gate is of kind `{kind}`; it takes {}", .actions.join(", "))]
    KindMismatch {
        /// The gate's kind.
        kind: &'static str,
        /// What it takes.
        actions: Vec<&'static str>,
    },
    /// The action is of this kind but not offered.
    #[error("`{action}` is not offered by this gate; it takes {}", .actions.join(", "))]
    ActionInvalid {
        /// What was sent.
        action: &'static str,
        /// What it takes.
        actions: Vec<&'static str>,
    },
    /// The values break R76.
    #[error("{0}")]
    Invalid(String),
    /// A string is too long.
    #[error("one answer has {bytes} bytes; at most {MAX_ANSWER} are taken")]
    TooLarge {
        /// What was given.
        bytes: usize,
    },
}

impl GateReply {
    /// Checks the answer against what the gate asked (R76, S83).
    ///
    /// # Errors
    /// The first rule that is broken; the gate stays open.
    pub fn check(&self, ask: &GateAsk) -> Result<(), ReplyError> {
        let mismatch = || ReplyError::KindMismatch {
            kind: ask.kind(),
            actions: ask.actions(),
        };
        match (self, ask) {
            (Self::ApproveOnce, GateAsk::Permission(_))
            | (Self::Confirm, GateAsk::OpenUrl(_))
            | (Self::Decline, GateAsk::AskUser(_) | GateAsk::Form(_) | GateAsk::OpenUrl(_)) => {
                Ok(())
            }
            (Self::ApproveAlways, GateAsk::Permission(request)) => {
                if request.rules.is_empty() {
                    Err(ReplyError::ActionInvalid {
                        action: "approve_always_workspace",
                        actions: ask.actions(),
                    })
                } else {
                    Ok(())
                }
            }
            (Self::Deny(message), GateAsk::Permission(_)) => size(message.as_deref().unwrap_or("")),
            (Self::Answer(lists), GateAsk::AskUser(form)) => check_answers(lists, form),
            (Self::Fill(given), GateAsk::Form(form)) => form::values(&form.fields, given).map(drop),
            (Self::Answer(_), GateAsk::Form(form)) => {
                // Lists came under the one key that questions have.
                let named = [("answers".to_owned(), Value::Null)].into_iter().collect();
                form::values(&form.fields, &named).map(drop)
            }
            (Self::Fill(given), GateAsk::AskUser(_)) => Err(ReplyError::Invalid(
                match given.keys().find(|key| *key != "answers") {
                    Some(unknown) => format!(
                        "unknown key `{}` in `values`; a question takes `answers`",
                        unknown.chars().take(80).collect::<String>()
                    ),
                    None => "`answers` is a list of lists of texts: one list a question, in order"
                        .into(),
                },
            )),
            (Self::Confirm, GateAsk::AskUser(_)) => Err(ReplyError::Invalid(
                "`values` is missing; send `{\"answers\": [[…], …]}`, one list a question".into(),
            )),
            (Self::Confirm, GateAsk::Form(_)) => Err(ReplyError::Invalid(
                "`values` is missing; send a value for each field, by its name".into(),
            )),
            (Self::Answer(_) | Self::Fill(_), GateAsk::OpenUrl(_)) => Err(ReplyError::Invalid(
                "a page that was opened has no `values`; leave them out".into(),
            )),
            _ => Err(mismatch()),
        }
    }

    /// The values of a form as the host's waiter gets them; `None` for any other answer.
    #[must_use]
    pub fn values(&self, ask: &GateAsk) -> Option<BTreeMap<String, FieldValue>> {
        match (self, ask) {
            (Self::Fill(given), GateAsk::Form(form)) => form::values(&form.fields, given).ok(),
            _ => None,
        }
    }
}

fn size(text: &str) -> Result<(), ReplyError> {
    if text.len() > MAX_ANSWER {
        Err(ReplyError::TooLarge { bytes: text.len() })
    } else {
        Ok(())
    }
}

fn check_answers(lists: &[Vec<String>], form: &QuestionForm) -> Result<(), ReplyError> {
    if lists.len() != form.questions.len() {
        return Err(ReplyError::Invalid(format!(
            "{} lists were sent for {} questions; send one list a question, empty to skip it",
            lists.len(),
            form.questions.len()
        )));
    }
    for (values, question) in lists.iter().zip(&form.questions) {
        if values.len() > 1 && !question.multiple {
            return Err(ReplyError::Invalid(format!(
                "question `{}` takes one value",
                question.id
            )));
        }
        for value in values {
            size(value)?;
            let listed = question.choices.iter().any(|choice| choice.value == *value);
            if !listed && !question.custom && !question.choices.is_empty() {
                let given = if question.secret {
                    "what was sent".to_owned()
                } else {
                    format!("`{}`", value.chars().take(80).collect::<String>())
                };
                return Err(ReplyError::Invalid(format!(
                    "{given} is not a choice of question `{}`, which takes no text of its own",
                    question.id
                )));
            }
        }
    }
    Ok(())
}

/// Why a gate closed (S81).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CloseReason {
    /// A person answered.
    Answered,
    /// Its policy answered.
    PolicyResponse,
    /// Its turn or control ended.
    Abandoned,
    /// The provider no longer waits (N17).
    Withdrawn,
    /// The session closed.
    OwnerClosed,
    /// The process that waited is gone (S87).
    RestoreUnavailable,
}

/// Who answered (S89); stamped by the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AnswerSource {
    /// A person.
    Human,
    /// A stored rule or a timeout.
    Policy,
    /// An automatic classifier.
    Classifier,
}

/// An open gate with all that is needed to answer it (G6, S117).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gate {
    /// Its id.
    pub gate_id: GateId,
    /// What it asks.
    #[serde(flatten)]
    pub ask: GateAsk,
    /// The loop it belongs to.
    pub loop_id: LoopId,
    /// The turn it belongs to; absent for a control outside a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Host-minted id of the execution it belongs to.
    pub tool_execution_id: ToolExecutionId,
    /// When it opened.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub opened_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(rules: &[&str]) -> GateAsk {
        GateAsk::Permission(ApprovalRequest {
            title: "Run".into(),
            tool_name: "shell".into(),
            tool_input: "{}".into(),
            tool_use_id: "t1".into(),
            rules: rules.iter().map(|&r| r.into()).collect(),
        })
    }

    fn form(multiple: bool, custom: bool) -> GateAsk {
        let choice = |v: &str| Choice {
            value: v.into(),
            label: v.into(),
            description: None,
        };
        GateAsk::AskUser(QuestionForm {
            id: "f".into(),
            title: "Which".into(),
            questions: vec![Question {
                id: "q".into(),
                label: "Q".into(),
                description: None,
                choices: vec![choice("a"), choice("b")],
                multiple,
                custom,
                secret: false,
            }],
        })
    }

    fn answer(values: &[&str]) -> GateReply {
        GateReply::Answer(vec![values.iter().map(|&v| v.into()).collect()])
    }

    #[test]
    fn r77_s83_always_is_offered_only_with_rules() {
        assert_eq!(permission(&[]).actions(), ["approve_once", "deny"]);
        assert!(matches!(
            GateReply::ApproveAlways.check(&permission(&[])),
            Err(ReplyError::ActionInvalid { .. })
        ));
        assert_eq!(
            GateReply::ApproveAlways.check(&permission(&["shell:ls"])),
            Ok(())
        );
        assert_eq!(permission(&["r"]).actions().len(), 3);
    }

    #[test]
    fn r76_answers_are_one_list_a_question() {
        assert_eq!(answer(&["a"]).check(&form(false, false)), Ok(()));
        assert_eq!(answer(&[]).check(&form(false, false)), Ok(()));
        assert!(matches!(
            GateReply::Answer(vec![]).check(&form(false, false)),
            Err(ReplyError::Invalid(_))
        ));
        assert!(matches!(
            answer(&["a", "b"]).check(&form(false, false)),
            Err(ReplyError::Invalid(_))
        ));
        assert_eq!(answer(&["a", "b"]).check(&form(true, false)), Ok(()));
        assert!(matches!(
            answer(&["mine"]).check(&form(false, false)),
            Err(ReplyError::Invalid(_))
        ));
        assert_eq!(answer(&["mine"]).check(&form(false, true)), Ok(()));
        let long = "x".repeat(MAX_ANSWER + 1);
        assert!(matches!(
            answer(&[&long]).check(&form(false, true)),
            Err(ReplyError::TooLarge { .. })
        ));
    }

    #[test]
    fn s84_a_reply_of_another_kind_is_a_mismatch() {
        assert!(matches!(
            GateReply::Decline.check(&permission(&[])),
            Err(ReplyError::KindMismatch { .. })
        ));
        assert!(matches!(
            GateReply::ApproveOnce.check(&form(false, false)),
            Err(ReplyError::KindMismatch { .. })
        ));
    }
}
