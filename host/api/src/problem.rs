//! Refusals on the wire: RFC 9457 problem documents (requirements §3, S110).
//!
//! A handler returns a [`Problem`]; the outermost layer writes the document, because only it knows
//! the request id. Internal causes, host paths and trap backtraces stay in the log.

use crate::code::Code;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use harness_core::admin::AdminError;
use harness_core::ids::SessionId;
use harness_core::operation::MAX_REASON;
use harness_core::provider::CallError;
use harness_core::refusal::Refused;
use harness_core::view::OperationResult;
use harness_journal::JournalError;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success (RFC 9457 §3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProblemDocument {
    /// `urn:harness-host:problem:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short description of the kind of problem.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened and what to do, for a person; at most 4 KiB.
    pub detail: String,
    /// Stable code.
    pub code: Code,
    /// True: nothing was executed and the unchanged request may succeed later.
    pub retryable: bool,
    /// The request's id, as in `x-request-id`.
    #[serde(default)]
    pub request_id: String,
    /// What was executed natively all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_result: Option<OperationResult>,
    /// The session that exists all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// A refused request.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    document: ProblemDocument,
    /// Extra header, e.g. the challenge of a 401.
    header: Option<(HeaderName, HeaderValue)>,
}

/// At most 4 KiB, cut between characters.
fn bounded(mut text: String) -> String {
    if text.len() > MAX_REASON {
        let mut end = MAX_REASON;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

impl Problem {
    /// A problem that the unchanged request will meet again.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let document = ProblemDocument {
            kind: format!("urn:harness-host:problem:{}", code.as_str()),
            title: code.title().into(),
            status: code.status(),
            detail: bounded(detail.into()),
            code,
            retryable: false,
            request_id: String::new(),
            operation_result: None,
            session_id: None,
        };
        Self(Box::new(Inner {
            document,
            header: None,
        }))
    }

    /// The same, with the code's remedy after the detail.
    pub(crate) fn with_remedy(code: Code, detail: impl std::fmt::Display) -> Self {
        match code.remedy() {
            "" => Self::new(code, detail.to_string()),
            remedy => Self::new(code, format!("{detail}; {remedy}")),
        }
    }

    /// For an answer of a library that refuses in its own words.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::NOT_FOUND => crate::extract::no_path(),
            StatusCode::PAYLOAD_TOO_LARGE => Self::too_large("the request is too large; send less"),
            status if status.is_client_error() => Self::invalid("the request is not valid"),
            _ => Self::internal(),
        }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(Code::PayloadTooLarge, detail)
    }

    pub(crate) fn internal() -> Self {
        Self::with_remedy(Code::Internal, "internal error")
    }

    pub(crate) fn project_not_found(id: &str) -> Self {
        Refused::ProjectNotFound(cut(id)).into()
    }

    pub(crate) fn workspace_not_found(id: &str) -> Self {
        Self::with_remedy(
            Code::WorkspaceNotFound,
            format!("no workspace `{}`", cut(id)),
        )
    }

    pub(crate) fn session_not_found(id: &str) -> Self {
        Refused::SessionNotFound(cut(id)).into()
    }

    pub(crate) fn harness_not_found(id: &str) -> Self {
        Refused::HarnessNotFound(cut(id)).into()
    }

    pub(crate) fn provider_not_found(id: &str) -> Self {
        Self::with_remedy(
            Code::ProviderNotFound,
            format!("no provider `{}` is installed", cut(id)),
        )
    }

    pub(crate) fn taken(what: &str, id: &str) -> Self {
        Self::with_remedy(
            Code::AlreadyExists,
            format!("there is a {what} `{id}` already"),
        )
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    pub(crate) fn retryable(mut self) -> Self {
        self.0.document.retryable = true;
        self
    }

    pub(crate) fn code(&self) -> Code {
        self.0.document.code
    }

    /// The session that a failed creation left behind.
    pub(crate) fn session_id(&self) -> Option<SessionId> {
        self.0.document.session_id
    }

    /// Whether something happened before it was refused: such an answer is recorded for a
    /// repeated key, any other is not (G5).
    pub(crate) fn is_outcome(&self) -> bool {
        self.0.document.operation_result.is_some() || self.0.document.session_id.is_some()
    }

    /// As it is recorded: without the id of the request that met it first.
    pub(crate) fn stored(&self) -> Bytes {
        serde_json::to_vec(&self.0.document)
            .map(Bytes::from)
            .unwrap_or_default()
    }

    /// What [`Problem::stored`] wrote.
    pub(crate) fn from_stored(bytes: &[u8]) -> Option<Self> {
        let document = serde_json::from_slice(bytes).ok()?;
        Some(Self(Box::new(Inner {
            document,
            header: None,
        })))
    }

    /// The document as it goes out.
    pub(crate) fn render(&self, request_id: &str) -> Bytes {
        let mut document = self.0.document.clone();
        document.request_id = request_id.to_owned();
        serde_json::to_vec(&document)
            .map(Bytes::from)
            .unwrap_or_default()
    }
}

fn cut(id: &str) -> String {
    id.chars().take(80).collect()
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let retryable = refused.retryable();
        let Some(code) = Code::from_name(refused.code()) else {
            tracing::error!(
                code = refused.code(),
                "a refusal without an entry in the table of codes"
            );
            return Self::internal();
        };
        let mut problem = match &refused {
            // The provider's own words, verbatim; never where its code was when it trapped.
            Refused::Provider(CallError::Refused(refusal)) => Self::new(code, refusal.to_string()),
            Refused::Provider(CallError::Trap(cause)) => {
                tracing::warn!(cause, "component trapped");
                Self::new(
                    code,
                    "the provider's component trapped and was discarded; nothing was reserved, and the next request gets a fresh instance",
                )
            }
            _ => Self::with_remedy(code, &refused),
        };
        problem.0.document.retryable = retryable;
        match refused {
            Refused::HarnessChanged { result } => {
                problem.0.document.operation_result = result.map(|r| *r)
            }
            Refused::Violation { result, .. } => {
                problem.0.document.operation_result = Some(*result)
            }
            Refused::WorkspaceLinkFailed { session_id, .. } => {
                problem.0.document.session_id = Some(session_id)
            }
            _ => {}
        }
        problem
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        match &error {
            JournalError::InvalidPage { .. }
            | JournalError::Invalid { .. }
            | JournalError::TooLarge { .. } => Self::invalid(error.to_string()),
            JournalError::Exists { .. } => Self::with_remedy(Code::AlreadyExists, &error),
            JournalError::Unavailable { .. }
            | JournalError::Ambiguous { .. }
            | JournalError::Full
            | JournalError::LeaseLost { .. } => {
                tracing::error!(%error, "the store failed");
                Self::with_remedy(Code::StoreUnavailable, "the store could not do this").retryable()
            }
            _ => {
                tracing::error!(%error, "the store failed");
                Self::internal()
            }
        }
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::NotFound(id) => Self::provider_not_found(id.as_str()),
            AdminError::Refused(reason) => Self::new(Code::ComponentRefused, reason),
            AdminError::Failed(reason) => {
                tracing::error!(reason, "an operator's request failed");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.document.status)
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        if let Some((name, value)) = self.0.header.clone() {
            response.headers_mut().insert(name, value);
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness_core::gate::{PolicyError, ReplyError};
    use harness_core::ids::CommandId;
    use harness_core::operation::OperationLimit;
    use harness_core::provider::{ChannelError, Refusal};
    use harness_core::view::OutcomeStatus;

    fn result() -> Box<OperationResult> {
        Box::new(OperationResult {
            status: OutcomeStatus::Uncertain,
            message: None,
            code: Some("provider_contract_violation".into()),
            command_id: CommandId::from(uuid::Uuid::from_u128(7)),
            run_id: None,
            params_effective: None,
        })
    }

    fn every() -> Vec<(Refused, u16)> {
        use Refused as R;
        let provider = |error| R::Provider(error);
        let no = |refusal| R::Provider(CallError::Refused(refusal));
        vec![
            (R::InvalidRequest("x".into()), 400),
            (R::InvalidParams("x".into()), 400),
            (
                R::OperationLimit(OperationLimit::Empty { field: "text" }),
                400,
            ),
            (
                R::OperationLimit(OperationLimit::TooLarge {
                    field: "text",
                    bytes: 2,
                    limit: 1,
                }),
                413,
            ),
            (R::TooLarge("x".into()), 413),
            (R::UnsupportedOperation, 400),
            (R::WorkspaceUnsupported, 400),
            (R::ProjectNotFound("p".into()), 404),
            (R::WorkspaceNotFound("w".into()), 404),
            (R::SessionNotFound("s".into()), 404),
            (R::HarnessNotFound("h".into()), 404),
            (R::LoopNotFound("l".into()), 404),
            (R::InvalidMode("m".into()), 400),
            (R::InvalidModel("m".into()), 400),
            (R::InvalidEffort("e".into()), 400),
            (R::NoChanges, 400),
            (R::LoopExited, 409),
            (R::LoopShuttingDown, 409),
            (R::CompactionUnsupported, 400),
            (R::GateNotFound, 404),
            (R::ProcessNotFound("p".into()), 404),
            (R::GateNotReady, 409),
            (
                R::Policy(PolicyError::Unsupported("suspend_session".into())),
                400,
            ),
            (R::Policy(PolicyError::Timeout), 400),
            (R::Capacity("many"), 503),
            (
                R::GateReply(ReplyError::KindMismatch {
                    kind: "permission",
                    actions: vec![],
                }),
                400,
            ),
            (
                R::GateReply(ReplyError::ActionInvalid {
                    action: "deny",
                    actions: vec![],
                }),
                400,
            ),
            (R::GateReply(ReplyError::Invalid("x".into())), 400),
            (R::GateReply(ReplyError::TooLarge { bytes: 9 }), 413),
            (
                R::StaleHarness {
                    current: "a/b".into(),
                },
                409,
            ),
            (R::StaleState, 409),
            (
                R::ProviderNotReady {
                    reason: "r".into(),
                    loading: true,
                },
                409,
            ),
            (R::WorkspaceNotReady, 409),
            (R::WorkspaceFailed("r".into()), 409),
            (R::SessionBusy("busy"), 409),
            (R::SessionStopping, 409),
            (R::SessionStopped, 409),
            (R::SessionFaulted, 409),
            (
                R::SessionTakenOver {
                    holder: "process 7 on elsewhere holds it".into(),
                },
                409,
            ),
            (
                R::LeaseHeld {
                    holder: "process 7 on elsewhere".into(),
                },
                409,
            ),
            (R::RestoreFailed("r".into()), 500),
            (R::Restoring, 409),
            (R::NoFreeSlot, 409),
            (R::NotIdle("n"), 409),
            (R::CheckpointFaulted { reason: "r".into() }, 409),
            (R::RefNotFound("r".into()), 404),
            (R::SnapshotsUnsupported("u"), 400),
            (R::SnapshotFailed("f".into()), 500),
            (R::StatusChanged("c"), 409),
            (
                R::HarnessChanged {
                    result: Some(result()),
                },
                409,
            ),
            (R::FoldingUnavailable, 409),
            (R::StoreUnavailable, 503),
            (
                R::WorkspaceLinkFailed {
                    session_id: SessionId::ZERO,
                    reason: "r".into(),
                },
                500,
            ),
            (R::CallerGone, 409),
            (R::HostShuttingDown, 503),
            (
                R::Violation {
                    reason: "r".into(),
                    result: result(),
                },
                502,
            ),
            (R::IdempotencyConflict, 409),
            (R::Internal, 500),
            (no(Refusal::Unsupported("t".into())), 400),
            (no(Refusal::InvalidOperation("t".into())), 400),
            (no(Refusal::NotAllowed("t".into())), 409),
            (no(Refusal::StaleRevision("t".into())), 409),
            (no(Refusal::Unavailable("t".into())), 503),
            (no(Refusal::Disconnected("t".into())), 503),
            (no(Refusal::Native("t".into())), 502),
            (no(Refusal::Channel(ChannelError::Closed)), 502),
            (no(Refusal::Cancelled), 409),
            (provider(CallError::Trap("/src/x.rs:1".into())), 502),
            (provider(CallError::Timeout("t".into())), 504),
            (provider(CallError::Violation("t".into())), 502),
            (provider(CallError::Lost("t".into())), 503),
        ]
    }

    #[test]
    fn s110_every_refusal_has_its_status_and_keeps_its_promise() {
        for (refused, status) in every() {
            let (code, retryable) = (refused.code(), refused.retryable());
            let problem = Problem::from(refused);
            let document = &problem.0.document;
            assert_eq!(document.status, status, "{code}");
            assert_eq!(document.code.as_str(), code);
            assert_eq!(document.retryable, retryable, "{code}");
            assert_eq!(document.kind, format!("urn:harness-host:problem:{code}"));
            assert!(!document.detail.is_empty(), "{code}");
        }
    }

    #[test]
    fn s110_a_trap_does_not_say_where_it_was() {
        let problem = Problem::from(Refused::Provider(CallError::Trap(
            "wasm backtrace: /home/x.rs".into(),
        )));
        assert!(!problem.0.document.detail.contains("/home"));
    }

    #[test]
    fn s110_a_providers_reason_is_kept_verbatim() {
        let refused = Refused::Provider(CallError::Refused(Refusal::NotAllowed(
            "Clear the goal first".into(),
        )));
        assert_eq!(
            Problem::from(refused).0.document.detail,
            "Clear the goal first"
        );
    }

    #[test]
    fn g5_only_what_happened_after_reserve_is_recorded() {
        assert!(
            Problem::from(Refused::Violation {
                reason: "r".into(),
                result: result()
            })
            .is_outcome()
        );
        assert!(
            Problem::from(Refused::HarnessChanged {
                result: Some(result())
            })
            .is_outcome()
        );
        assert!(!Problem::from(Refused::HarnessChanged { result: None }).is_outcome());
        assert!(!Problem::from(Refused::StaleState).is_outcome());
        let problem = Problem::from(Refused::Violation {
            reason: "r".into(),
            result: result(),
        });
        let again = Problem::from_stored(&problem.stored()).unwrap();
        assert_eq!(again.render("id-2"), problem.render("id-2"));
    }

    #[test]
    fn details_are_bounded() {
        let problem = Problem::invalid("é".repeat(MAX_REASON));
        assert!(problem.0.document.detail.len() <= MAX_REASON);
    }
}
