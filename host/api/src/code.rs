//! The one table of problem codes: status, title and what the client can do about it.
//!
//! Clients branch on a code, people read its title. A code is never renamed or reused.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:tt, $status:literal, $title:literal, $remedy:literal;)*) => {
        /// Stable code of a problem document.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        pub enum Code {
            $(#[doc = $title] #[serde(rename = $name)] $variant,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// Its name on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// HTTP status it is answered with.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Code::$variant => $status,)* }
            }

            /// Short description of the kind of problem, the same for every occurrence.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => $title,)* }
            }

            /// What to do about it, appended to a detail that does not say so itself; may be empty.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self { $(Code::$variant => $remedy,)* }
            }

            /// The code of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Code> {
                match name { $($name => Some(Code::$variant),)* _ => None }
            }
        }
    };
}

codes! {
    InvalidRequest = "invalid_request", 400, "The request is not valid", "";
    InvalidParams = "invalid_params", 400, "Parameters or model do not fit the harness", "";
    InvalidArgument = "invalid_argument", 400, "The provider does not accept this operation", "";
    UnsupportedOperation = "unsupported_operation", 400, "The harness does not implement this", "";
    WorkspaceUnsupported = "workspace_unsupported", 400, "The workspace does not allow this", "";
    InvalidMode = "invalid_mode", 400, "Unknown loop mode", "";
    InvalidModel = "invalid_model", 400, "Unknown model", "";
    InvalidEffort = "invalid_effort", 400, "The model does not take this effort", "";
    NoChanges = "no_changes", 400, "Nothing is to be changed", "";
    CompactionUnsupported = "compaction_unsupported", 400, "The harness cannot compact", "";
    GateActionInvalid = "gate_action_invalid", 400, "The gate does not offer this action", "";
    GateKindMismatch = "gate_kind_mismatch", 400, "The action belongs to another kind of gate", "";
    PolicyUnsupported = "policy_unsupported", 400, "The gate cannot have this policy", "";
    ComponentRefused = "component_refused", 400, "The component cannot be installed", "";
    Unauthenticated = "unauthenticated", 401, "Authentication is required", "";
    Forbidden = "forbidden", 403, "The token does not allow this", "";
    OriginRefused = "origin_refused", 403, "Requests from this origin are refused", "";
    NotFound = "not_found", 404, "There is no such path", "";
    ProjectNotFound = "project_not_found", 404, "Unknown project",
        "list those this token reaches with GET /v1/projects";
    WorkspaceNotFound = "workspace_not_found", 404, "Unknown workspace",
        "list those this token reaches with GET /v1/workspaces";
    SessionNotFound = "session_not_found", 404, "Unknown session",
        "list those this token reaches with GET /v1/sessions";
    HarnessNotFound = "harness_not_found", 404, "Unknown harness",
        "list the installed ones with GET /v1/harnesses";
    LoopNotFound = "loop_not_found", 404, "Unknown loop",
        "read `active_loop_id` of the session, or leave `loop_id` out";
    RefNotFound = "ref_not_found", 404, "Unknown snapshot", "";
    GateNotFound = "gate_not_found", 404, "Unknown or resolved gate", "";
    ProcessNotFound = "process_not_found", 404, "Unknown background process",
        "list them with GET /v1/sessions/{id}/processes";
    ProviderNotFound = "provider_not_found", 404, "Unknown provider",
        "list the installed ones with GET /v1/providers";
    TokenNotFound = "token_not_found", 404, "Unknown token", "list them with GET /v1/tokens";
    MethodNotAllowed = "method_not_allowed", 405, "The path does not take this method", "";
    RequestTimeout = "request_timeout", 408, "The request did not arrive in time", "";
    LeaseHeld = "lease_held", 409, "The session is held elsewhere", "";
    Restoring = "restoring", 409, "The session is being restored", "send the same request again shortly";
    StaleHarness = "stale_harness", 409, "The session has another harness now", "";
    StaleState = "stale_state", 409, "The command state has moved on", "";
    CommandDisabled = "command_disabled", 409, "The command is disabled at present", "";
    ProviderNotReady = "provider_not_ready", 409, "The provider is not ready", "";
    WorkspaceNotReady = "workspace_not_ready", 409, "The workspace is being set up",
        "send the same request again shortly";
    WorkspaceFailed = "workspace_failed", 409, "The workspace could not be set up",
        "create another workspace and name it as `workspace_id`";
    SessionBusy = "session_busy", 409, "The session has work", "";
    LoopExited = "loop_exited", 409, "The loop is closed", "use another loop of the session";
    LoopShuttingDown = "loop_shutting_down", 409, "The loop is shutting down", "";
    SessionStopping = "session_stopping", 409, "The session is being stopped", "";
    SessionStopped = "session_stopped", 409, "The session is stopped", "";
    NotIdle = "not_idle", 409, "The workspace is in use", "";
    CheckpointFaulted = "checkpoint_faulted", 409, "A required checkpoint failed", "";
    SessionFaulted = "session_faulted", 409, "The session is faulted", "";
    NoFreeSlot = "no_free_slot", 409, "All execution slots are taken", "";
    StatusChanged = "status_changed", 409, "The session changed meanwhile", "";
    HarnessChanged = "harness_changed", 409, "The session's harness changed meanwhile",
        "read the session and its commands again";
    GateNotReady = "gate_not_ready", 409, "The gate is being resolved", "";
    FoldingUnavailable = "folding_unavailable", 409, "Nothing takes this input now", "";
    IdempotencyConflict = "idempotency_conflict", 409, "The idempotency key was used with another body", "";
    AlreadyExists = "already_exists", 409, "The id is taken", "choose another id";
    RequestWithdrawn = "request_withdrawn", 409, "The request was withdrawn", "send it again";
    PayloadTooLarge = "payload_too_large", 413, "Something in the request is too large", "";
    UnsupportedMediaType = "unsupported_media_type", 415, "The body is not JSON", "";
    HostRefused = "host_refused", 421, "Requests for this host name are refused", "";
    RestoreFailed = "restore_failed", 500, "The session could not be restored", "";
    WorkspaceLinkFailed = "workspace_link_failed", 500, "The session could not be recorded at its workspace", "";
    SnapshotFailed = "snapshot_failed", 500, "The checkpoint or rewind failed",
        "the workspace is what it was before";
    Internal = "internal", 500, "The host failed",
        "the host's log has the cause under this request_id";
    ProviderFailed = "provider_failed", 502, "The provider reported an error", "";
    ProviderTrap = "provider_trap", 502, "The provider's component trapped", "";
    ProviderContractViolation = "provider_contract_violation", 502, "The provider broke its contract", "";
    ProviderUnavailable = "provider_unavailable", 503, "The provider is not available", "";
    StoreUnavailable = "store_unavailable", 503, "The store is not available",
        "send the same request again shortly; when it stays so, the operator looks at the data directory and its disk";
    HostShuttingDown = "host_shutting_down", 503, "The host is shutting down",
        "send the same request again when it is back";
    HostNotReady = "host_not_ready", 503, "The host is not ready",
        "wait for GET /readyz to answer 200";
    Capacity = "capacity", 503, "The host is at its capacity", "send the same request again shortly";
    ProviderTimeout = "provider_timeout", 504, "The provider did not answer in time", "";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s110_names_are_unique_and_statuses_are_errors() {
        let mut seen = std::collections::HashSet::new();
        for &code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{} twice", code.as_str());
            assert!((400..600).contains(&code.status()));
            assert!(!code.title().is_empty());
            assert_eq!(Code::from_name(code.as_str()), Some(code));
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
