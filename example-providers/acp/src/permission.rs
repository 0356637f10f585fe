//! Permissions: an agent's options, a person's decision, and the option chosen.
//!
//! | Decision | Options, in this order |
//! |---|---|
//! | approve once | `allow_once` |
//! | approve always | `allow_always`, else `allow_once` |
//! | deny | `reject_once`, else `reject_always` |
//! | closed by a policy | as deny |
//!
//! A decision is never widened: with nothing but `allow_always` on offer,
//! approving once answers with a rejection and says so. Where no option fits, the
//! answer is `cancelled`.

use crate::content::{tool_input, tool_name};
use crate::protocol::{PermissionOption, PermissionRequest};
use harness_guest::limits::shorten;
use harness_guest::types::{ApprovalDecision, ApprovalRequest};
use serde_json::{Value, json};

/// Bytes of a rule; a longer one is not offered, because cut it would match more
/// than what was approved.
const RULE_BYTES: usize = 1024;

/// What a person is asked. `gate` is unique among the open ones.
pub(crate) fn approval(request: &PermissionRequest, gate: String) -> ApprovalRequest {
    let call = &request.tool_call;
    ApprovalRequest {
        tool_use_id: gate,
        tool_name: shorten(call.kind.as_deref().unwrap_or("tool"), 128),
        input_json: tool_input(call),
        title: tool_name(call),
        rules: rules(request),
    }
}

/// What approving always would remember: this kind of call with this very input.
/// Without an input a title says too little to be remembered.
fn rules(request: &PermissionRequest) -> Vec<String> {
    let call = &request.tool_call;
    let offered = request
        .options
        .iter()
        .any(|option| option.kind == "allow_always");
    let Some(input) = call.raw_input.as_ref().filter(|input| !input.is_null()) else {
        return Vec::new();
    };
    let rule = format!("{}:{input}", call.kind.as_deref().unwrap_or("tool"));
    if offered && rule.len() <= RULE_BYTES {
        vec![rule]
    } else {
        Vec::new()
    }
}

/// The answer to the agent, and a remark when the decision could not be expressed.
pub(crate) fn outcome(
    options: &[PermissionOption],
    decision: &ApprovalDecision,
) -> (Value, Option<&'static str>) {
    let find = |kinds: &[&str]| {
        kinds
            .iter()
            .find_map(|kind| options.iter().find(|option| option.kind == *kind))
    };
    let (chosen, remark) = match decision {
        ApprovalDecision::ApproveOnce => match find(&["allow_once"]) {
            Some(option) => (Some(option), None),
            None => (
                find(&["reject_once", "reject_always"]),
                Some("The agent offers no approval for one time only; it was answered no."),
            ),
        },
        ApprovalDecision::ApproveAlways => (find(&["allow_always", "allow_once"]), None),
        ApprovalDecision::Deny(_) | ApprovalDecision::Timeout => {
            (find(&["reject_once", "reject_always"]), None)
        }
    };
    let answer = chosen.map_or_else(
        cancelled,
        |option| json!({"outcome": {"outcome": "selected", "optionId": option.option_id}}),
    );
    (answer, remark)
}

/// The answer to a permission that nobody decides any more.
pub(crate) fn cancelled() -> Value {
    json!({"outcome": {"outcome": "cancelled"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(kinds: &[&str]) -> Vec<PermissionOption> {
        kinds
            .iter()
            .map(|kind| PermissionOption {
                option_id: format!("id-{kind}"),
                kind: (*kind).to_owned(),
            })
            .collect()
    }

    fn check(kinds: &[&str], decision: ApprovalDecision, expected: Option<&str>) {
        let (answer, _) = outcome(&options(kinds), &decision);
        let expected = expected.map_or_else(
            cancelled,
            |kind| json!({"outcome": {"outcome": "selected", "optionId": format!("id-{kind}")}}),
        );
        assert_eq!(answer, expected, "{kinds:?} {decision:?}");
    }

    #[test]
    fn each_decision_chooses_the_option_of_its_kind() {
        use ApprovalDecision::{ApproveAlways, ApproveOnce, Deny, Timeout};
        let all = ["reject_always", "allow_always", "reject_once", "allow_once"];
        check(&all, ApproveOnce, Some("allow_once"));
        check(&all, ApproveAlways, Some("allow_always"));
        check(&all, Deny(None), Some("reject_once"));
        check(&all, Timeout, Some("reject_once"));
        check(&["allow_once"], ApproveAlways, Some("allow_once"));
        check(&["reject_always"], Deny(None), Some("reject_always"));
        check(&["allow_once"], Deny(None), None);
        check(&[], ApproveOnce, None);
        check(&["made_up"], ApproveOnce, None);
    }

    #[test]
    fn an_approval_is_never_widened() {
        check(
            &["allow_always", "reject_once"],
            ApprovalDecision::ApproveOnce,
            Some("reject_once"),
        );
        let (_, remark) = outcome(&options(&["allow_always"]), &ApprovalDecision::ApproveOnce);
        assert!(remark.is_some());
    }

    #[test]
    fn r77_always_is_offered_for_exactly_this_input() {
        let request = |options: Value, input: Value| -> PermissionRequest {
            serde_json::from_value(json!({
                "sessionId": "s", "options": options,
                "toolCall": {"toolCallId": "1", "kind": "execute", "title": "Run", "rawInput": input},
            }))
            .expect("a request")
        };
        let always = json!([{"optionId": "a", "name": "A", "kind": "allow_always"}]);
        let once = json!([{"optionId": "a", "name": "A", "kind": "allow_once"}]);
        let rules = |options: &Value, input: Value| {
            approval(&request(options.clone(), input), "g".into()).rules
        };
        assert_eq!(
            rules(&always, json!({"c": "ls"})),
            [r#"execute:{"c":"ls"}"#]
        );
        assert!(rules(&once, json!({"c": "ls"})).is_empty());
        assert!(rules(&always, Value::Null).is_empty());
        assert!(
            rules(&always, json!("x".repeat(2000))).is_empty(),
            "cut it would match more"
        );
    }
}
