//! Codes of refusals, and which of them may be tried again (requirements-operations §3, §3.1).

use harness_core::abort::AbortReason;
use harness_core::gate::ReplyError;
use harness_core::ids::{CommandId, SessionId};
use harness_core::operation::OperationLimit;
use harness_core::provider::{CallError, ChannelError, Refusal};
use harness_core::refusal::Refused as R;
use harness_core::view::{OperationResult, OutcomeStatus};

fn x() -> String {
    "x".into()
}

fn result() -> Box<OperationResult> {
    Box::new(OperationResult {
        status: OutcomeStatus::Uncertain,
        message: None,
        code: None,
        command_id: CommandId::ZERO,
        run_id: None,
        params_effective: None,
    })
}

fn table() -> Vec<(R, &'static str, bool)> {
    let gate = |e| R::GateReply(e);
    let large = OperationLimit::TooLarge {
        field: "text",
        bytes: 2,
        limit: 1,
    };
    vec![
        (R::InvalidRequest(x()), "invalid_request", false),
        (R::InvalidParams(x()), "invalid_params", false),
        (
            R::OperationLimit(OperationLimit::Empty { field: "text" }),
            "invalid_request",
            false,
        ),
        (R::OperationLimit(large), "payload_too_large", false),
        (R::TooLarge(x()), "payload_too_large", false),
        (R::UnsupportedOperation, "unsupported_operation", false),
        (R::WorkspaceUnsupported, "workspace_unsupported", false),
        (R::ProjectNotFound(x()), "project_not_found", false),
        (R::WorkspaceNotFound(x()), "workspace_not_found", false),
        (R::SessionNotFound(x()), "session_not_found", false),
        (R::HarnessNotFound(x()), "harness_not_found", false),
        (R::LoopNotFound(x()), "loop_not_found", false),
        (R::GateNotFound, "gate_not_found", false),
        (R::GateNotReady, "gate_not_ready", true),
        (
            gate(ReplyError::KindMismatch {
                kind: "permission",
                actions: vec![],
            }),
            "gate_kind_mismatch",
            false,
        ),
        (
            gate(ReplyError::ActionInvalid {
                action: "x",
                actions: vec![],
            }),
            "gate_action_invalid",
            false,
        ),
        (gate(ReplyError::Invalid(x())), "invalid_request", false),
        (
            gate(ReplyError::TooLarge { bytes: 1 }),
            "payload_too_large",
            false,
        ),
        (R::StaleHarness { current: x() }, "stale_harness", false),
        (R::StaleState, "stale_state", false),
        (
            R::ProviderNotReady {
                reason: x(),
                loading: true,
            },
            "provider_not_ready",
            true,
        ),
        (
            R::ProviderNotReady {
                reason: x(),
                loading: false,
            },
            "provider_not_ready",
            false,
        ),
        (R::WorkspaceNotReady, "workspace_not_ready", true),
        (R::WorkspaceFailed(x()), "workspace_failed", false),
        (R::SessionBusy("x"), "session_busy", true),
        (R::SessionStopping, "session_stopping", true),
        (R::SessionStopped, "session_stopped", false),
        (R::SessionFaulted, "session_faulted", false),
        (R::Restoring, "restoring", true),
        (R::NoFreeSlot, "no_free_slot", true),
        (R::StatusChanged("x"), "status_changed", true),
        (R::HarnessChanged { result: None }, "harness_changed", false),
        (R::FoldingUnavailable, "folding_unavailable", false),
        (R::StoreUnavailable, "store_unavailable", true),
        (
            R::WorkspaceLinkFailed {
                session_id: SessionId::ZERO,
                reason: x(),
            },
            "workspace_link_failed",
            false,
        ),
        (R::HostShuttingDown, "host_shutting_down", true),
        (
            R::Violation {
                reason: x(),
                result: result(),
            },
            "provider_contract_violation",
            false,
        ),
        (R::IdempotencyConflict, "idempotency_conflict", false),
        (R::Internal, "internal", false),
    ]
}

fn of_provider() -> Vec<(CallError, &'static str, bool)> {
    let refused = CallError::Refused;
    vec![
        (
            refused(Refusal::Unsupported(x())),
            "unsupported_operation",
            false,
        ),
        (
            refused(Refusal::InvalidOperation(x())),
            "invalid_argument",
            false,
        ),
        (refused(Refusal::NotAllowed(x())), "command_disabled", false),
        (refused(Refusal::StaleRevision(x())), "stale_state", false),
        (
            refused(Refusal::Unavailable(x())),
            "provider_unavailable",
            true,
        ),
        (
            refused(Refusal::Disconnected(x())),
            "provider_unavailable",
            true,
        ),
        (refused(Refusal::Native(x())), "provider_failed", false),
        (
            refused(Refusal::Channel(ChannelError::Busy)),
            "provider_failed",
            false,
        ),
        (refused(Refusal::Cancelled), "session_stopping", true),
        (CallError::Trap(x()), "provider_trap", false),
        (CallError::Timeout(x()), "provider_timeout", true),
        (
            CallError::Violation(x()),
            "provider_contract_violation",
            false,
        ),
        (
            CallError::Terminated(AbortReason::Deadline),
            "provider_unavailable",
            true,
        ),
        (CallError::Lost(x()), "provider_unavailable", true),
        (
            CallError::Unavailable {
                reason: x(),
                loading: false,
            },
            "provider_unavailable",
            true,
        ),
    ]
}

#[test]
fn s110_every_refusal_has_its_code_and_says_whether_to_try_again() {
    for (refused, code, retryable) in table() {
        assert_eq!(
            (refused.code(), refused.retryable()),
            (code, retryable),
            "{refused:?}"
        );
        assert!(!refused.to_string().is_empty(), "{code} says why");
    }
}

#[test]
fn r21_a_providers_refusal_before_reserve_is_a_problem_with_its_own_code() {
    for (error, code, retryable) in of_provider() {
        let refused = R::Provider(error.clone());
        assert_eq!(
            (refused.code(), refused.retryable()),
            (code, retryable),
            "{error:?}"
        );
    }
}

#[test]
fn r21_a_providers_reason_is_the_detail_verbatim() {
    let reason = "Clear the goal first; /goal clear";
    let refused = R::Provider(CallError::Refused(Refusal::NotAllowed(reason.into())));
    assert_eq!(refused.to_string(), reason);
}
