//! The plain data of the contract, in domain types (see `wit/harness.wit`, interface `types`).

use crate::content::{Part, Usage};
use crate::ids::{CommandId, HarnessId, LoopId, ProjectId, SessionId, WorkspaceId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Value of a session parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ParamValue {
    /// On or off.
    Boolean(bool),
    /// Text or a choice's value.
    Text(String),
}

/// Session parameters by id.
pub type Params = BTreeMap<String, ParamValue>;

/// Who owns the composer control of a parameter (R13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ParamControl {
    /// The composer shows a picker.
    Inline,
    /// A native command changes it; the picker is hidden.
    Command,
}

/// One allowed value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParamChoice {
    /// What is stored.
    pub value: String,
    /// What a person reads.
    pub label: String,
}

/// Schema of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParamSpec {
    /// Its id.
    pub id: String,
    /// For a person.
    pub label: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who owns its control.
    pub control: ParamControl,
    /// Value of a new session.
    pub default: ParamValue,
    /// Empty for a boolean or free text.
    pub choices: Vec<ParamChoice>,
}

/// A model the harness offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelSpec {
    /// Its id.
    pub id: String,
    /// For a person.
    pub label: String,
    /// Efforts it takes.
    pub efforts: Vec<String>,
}

/// A host-owned setting of a loop; not a native mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoopMode {
    /// Its name.
    pub name: String,
    /// For a person.
    pub label: String,
}

/// What kind of workspace a harness needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum WorkspaceNeed {
    /// None; it receives none.
    None,
    /// Any.
    Any,
    /// One on this host.
    Local,
}

/// Who ends a turn that falls silent (R28).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutStrategy {
    /// The host, after its inactivity bound.
    Activity,
    /// Nobody but the provider.
    Provider,
}

/// What a provider declares it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Features {
    /// Discovery and preparation answer.
    pub commands: bool,
    /// It notifies whenever command state changes.
    pub state_push: bool,
    /// A turn takes folded input.
    pub folding: bool,
    /// `compact` is implemented.
    pub compaction: bool,
    /// It offers the host's external tools.
    pub external_tools: bool,
    /// It starts and addresses delegate loops.
    pub delegation: bool,
    /// The native side begins turns by itself.
    pub native_turns: bool,
}

/// Static facts of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HarnessInfo {
    /// The id it is installed under.
    pub id: HarnessId,
    /// For a person.
    pub label: String,
    /// Version of the provider.
    pub version: String,
    /// Models known statically.
    pub models: Vec<ModelSpec>,
    /// Host-owned loop modes it knows.
    pub loop_modes: Vec<LoopMode>,
    /// Parameter schema.
    pub params: Vec<ParamSpec>,
    /// Workspace it needs.
    pub workspace: WorkspaceNeed,
    /// Who ends a silent turn.
    pub timeout: TimeoutStrategy,
    /// What it can do.
    pub features: Features,
}

/// How a native version fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Compatibility {
    /// Tested.
    Supported,
    /// Not tested; works as far as is known (G8).
    Untested,
    /// Does not fit; the reason.
    Incompatible(String),
}

/// What `detect` found natively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// Version of the native harness.
    pub native_version: Option<String>,
    /// How it fits.
    pub compatibility: Compatibility,
    /// Models known only natively; not empty, they replace those of [`HarnessInfo`].
    pub models: Vec<ModelSpec>,
}

/// Life of an installed provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ProviderState {
    /// Compiling, checking or detecting.
    Loading,
    /// Works.
    Ready,
    /// `detect` found a native harness that does not fit.
    Incompatible,
    /// Could not be loaded.
    Failed,
    /// Failed too often; waits to be released.
    Quarantined,
}

/// Where a harness stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessStatus {
    /// Its state.
    pub state: ProviderState,
    /// Why, unless ready.
    pub reason: Option<String>,
    /// What detection found, once it ran.
    pub readiness: Option<Readiness>,
}

/// Where a session works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Workspace {
    /// A directory on this host.
    Local {
        /// Its id.
        id: WorkspaceId,
        /// Absolute path.
        root_path: String,
    },
    /// Somewhere else; never yields a working directory (R78).
    Remote {
        /// Its id.
        id: WorkspaceId,
        /// Host name.
        host: String,
        /// Path there.
        path: String,
    },
}

/// Input of discovery and of the link (R15). Ids are absent before a conversation exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryContext {
    /// The project.
    pub project_id: ProjectId,
    /// The session, once there is one.
    pub session_id: Option<SessionId>,
    /// The native conversation, once there is one.
    pub native_session_id: Option<String>,
    /// Where it works.
    pub workspace: Option<Workspace>,
    /// Selected model.
    pub model: Option<String>,
    /// Selected effort.
    pub effort: Option<String>,
    /// Host-owned loop mode.
    pub loop_mode: Option<String>,
    /// Effective parameters.
    pub params: Params,
}

/// Input of preparation and invocation (R22): always a real session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationContext {
    /// The project.
    pub project_id: ProjectId,
    /// The session.
    pub session_id: SessionId,
    /// The loop.
    pub loop_id: LoopId,
    /// The native conversation, once there is one.
    pub native_session_id: Option<String>,
    /// Where it works.
    pub workspace: Option<Workspace>,
    /// Selected model.
    pub model: Option<String>,
    /// Selected effort.
    pub effort: Option<String>,
    /// Host-owned loop mode.
    pub loop_mode: Option<String>,
    /// Stored parameters.
    pub params: Params,
}

/// What a completed operation or turn reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Native reply for the caller, at most 64 KiB.
    pub message: Option<String>,
    /// Parameters to set through the settings owner (R30).
    pub params: Params,
}

/// What `compact` returned (S95).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compaction {
    /// Replaces the saved history before the call.
    pub summary: Option<String>,
    /// Tokens used.
    pub usage: Option<Usage>,
}

/// Where an input came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputOrigin {
    /// A person.
    User,
    /// A delegate; the id of the request.
    Delegate(String),
    /// A background process; its id.
    Process(String),
}

/// Literal text for a provider, never to be read as a native command (R10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptInput {
    /// The host command that brought it.
    pub command_id: CommandId,
    /// Where it came from.
    pub origin: InputOrigin,
    /// What it says.
    pub parts: Vec<Part>,
}

/// Whether an announced turn runs already (N6, N8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TurnStart {
    /// The native side runs it. Never refused for want of a slot.
    Running,
    /// The provider would begin it; the announcement waits for a slot.
    Wanted,
}

/// A turn that the native side begins by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeTurn {
    /// Native id, 1 to 256 bytes; comes back in `adopt-turn`.
    pub id: String,
    /// Whether it runs.
    pub start: TurnStart,
    /// Short, 1 to 128 bytes ("goal", "schedule").
    pub reason: String,
    /// Host command that set it going, as the provider quotes it.
    pub cause: Option<String>,
}
