//! Approvals and questions.

use crate::bindings::harness::provider::types as wit;
use harness_core::content::MAX_WRITE_BYTES;
use harness_core::gate::{
    ApprovalDecision, ApprovalRequest, Choice, FormAnswer, Question, QuestionForm,
};
use harness_core::provider::ChannelError;

/// What a provider wants approved.
pub(crate) fn approval_request(request: wit::ApprovalRequest) -> ApprovalRequest {
    ApprovalRequest {
        title: request.title,
        tool_name: request.tool_name,
        tool_input: request.input_json,
        tool_use_id: request.tool_use_id,
        rules: request.rules,
    }
}

/// The answer to an approval.
pub(crate) fn approval_decision(decision: ApprovalDecision) -> wit::ApprovalDecision {
    match decision {
        ApprovalDecision::ApproveOnce => wit::ApprovalDecision::ApproveOnce,
        ApprovalDecision::ApproveAlways => wit::ApprovalDecision::ApproveAlways,
        ApprovalDecision::Deny(reason) => wit::ApprovalDecision::Deny(reason),
        ApprovalDecision::Timeout => wit::ApprovalDecision::Timeout,
    }
}

/// What a provider asks.
///
/// # Errors
/// `Limit` beyond 1 MiB in all, the bound of one write (W3).
pub(crate) fn question_form(form: wit::QuestionForm) -> Result<QuestionForm, ChannelError> {
    let bytes = size(&form);
    if bytes > MAX_WRITE_BYTES {
        return Err(ChannelError::Limit(format!(
            "a form has {bytes} bytes; the limit is {MAX_WRITE_BYTES}"
        )));
    }
    Ok(QuestionForm {
        id: form.id,
        title: form.title,
        questions: form
            .questions
            .into_iter()
            .map(|q| Question {
                id: q.id,
                label: q.label,
                description: q.description,
                choices: q
                    .choices
                    .into_iter()
                    .map(|c| Choice {
                        value: c.value,
                        label: c.label,
                        description: c.description,
                    })
                    .collect(),
                multiple: q.multiple,
                custom: q.custom,
                secret: q.secret,
            })
            .collect(),
    })
}

fn size(form: &wit::QuestionForm) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let choice = |c: &wit::Choice| c.value.len() + c.label.len() + optional(&c.description);
    let question = |q: &wit::Question| {
        q.id.len()
            + q.label.len()
            + optional(&q.description)
            + q.choices.iter().map(choice).sum::<usize>()
    };
    form.id.len() + form.title.len() + form.questions.iter().map(question).sum::<usize>()
}

/// The answer to a form.
pub(crate) fn form_answer(answer: FormAnswer) -> wit::FormAnswer {
    match answer {
        FormAnswer::Submitted(lists) => wit::FormAnswer::Submitted(lists),
        FormAnswer::Dismissed => wit::FormAnswer::Dismissed,
        FormAnswer::Timeout => wit::FormAnswer::Timeout,
    }
}
