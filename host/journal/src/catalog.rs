//! What the host keeps besides sessions: projects, workspaces, tokens, permission rules and a few
//! named values. Same store, same durability as the journal.

use crate::error::JournalError;
use crate::journal::BoxFuture;
use crate::page::{Page, PageRequest};
use bytes::Bytes;
use harness_core::ids::{HarnessId, ProjectId, TokenId, WorkspaceId};
use serde::{Deserialize, Serialize};

/// Scope that owns workspaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// Its name, 1 to 256 bytes.
    pub name: String,
    /// Where its sessions work unless they say otherwise.
    pub default_workspace_id: Option<WorkspaceId>,
}

/// Where sessions work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// Its id.
    pub id: WorkspaceId,
    /// Its project.
    pub project_id: ProjectId,
    /// Where it is.
    pub target: WorkspaceTarget,
    /// Whether it can be used.
    pub state: WorkspaceState,
}

/// Where a workspace is; each text at most 4 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum WorkspaceTarget {
    /// A directory of this machine.
    Local {
        /// Absolute path.
        root_path: String,
    },
    /// A directory of another machine.
    Remote {
        /// The machine.
        host: String,
        /// Path there.
        path: String,
    },
}

/// Whether a workspace can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceState {
    /// Being set up.
    Initializing,
    /// Usable.
    Ready,
    /// Setting it up failed.
    Failed,
}

/// SHA-256 of a token; the token itself is never stored.
pub type TokenHash = [u8; 32];

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// Reading.
    Read,
    /// Prompting, operating, answering.
    Invoke,
    /// Administration.
    Admin,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// Its name, 1 to 256 bytes.
    pub name: String,
    /// What it allows.
    pub scopes: Vec<TokenScope>,
    /// Only these projects; empty for all. At most 256.
    pub projects: Vec<ProjectId>,
    /// When it was created, Unix time in milliseconds.
    pub created_at_ms: i64,
}

/// A token to be stored.
#[derive(Clone, PartialEq, Eq)]
pub struct NewToken {
    /// What is listed.
    pub token: Token,
    /// What it is looked up by; unique.
    pub hash: TokenHash,
}

/// Permission stored by `approve_always_workspace` (S83).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PermissionRule {
    /// The harness that asked.
    pub harness_id: HarnessId,
    /// Where it holds.
    pub workspace_id: WorkspaceId,
    /// The rule in the harness's own words, 1 B to 4 KiB.
    pub rule: String,
}

/// Durable things besides sessions. Every write is durable when it returns.
///
/// All methods may also fail with `Unavailable`, and writes with `Ambiguous` and `Full`.
pub trait Catalog: Send + Sync + 'static {
    /// Stores a project. With `workspace` both are stored, or neither.
    ///
    /// # Errors
    /// `Exists`, `Invalid`, `TooLarge`.
    fn create_project(
        &self,
        project: Project,
        workspace: Option<Workspace>,
    ) -> BoxFuture<'_, Result<(), JournalError>>;

    /// One project.
    fn project(&self, id: ProjectId) -> BoxFuture<'_, Result<Option<Project>, JournalError>>;

    /// Projects by id.
    ///
    /// # Errors
    /// `InvalidPage`.
    fn projects(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Project>, JournalError>>;

    /// Stores a workspace.
    ///
    /// # Errors
    /// `NotFound` (its project), `Exists`, `Invalid`, `TooLarge`.
    fn create_workspace(&self, workspace: Workspace) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Changes the state of a workspace.
    ///
    /// # Errors
    /// `NotFound`.
    fn set_workspace_state(
        &self,
        id: WorkspaceId,
        state: WorkspaceState,
    ) -> BoxFuture<'_, Result<(), JournalError>>;

    /// One workspace.
    fn workspace(&self, id: WorkspaceId) -> BoxFuture<'_, Result<Option<Workspace>, JournalError>>;

    /// Workspaces by id; of these projects, or of all when empty (at most 1000).
    ///
    /// # Errors
    /// `InvalidPage`, `TooLarge`.
    fn workspaces(
        &self,
        projects: Vec<ProjectId>,
        page: PageRequest,
    ) -> BoxFuture<'_, Result<Page<Workspace>, JournalError>>;

    /// Stores a token.
    ///
    /// # Errors
    /// `Exists` (id or hash), `Invalid`, `TooLarge`.
    fn create_token(&self, token: NewToken) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Tokens, oldest first.
    ///
    /// # Errors
    /// `InvalidPage`.
    fn tokens(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Token>, JournalError>>;

    /// Removes a token.
    ///
    /// # Errors
    /// `NotFound`.
    fn delete_token(&self, id: TokenId) -> BoxFuture<'_, Result<(), JournalError>>;

    /// The token with this hash.
    fn token_by_hash(&self, hash: TokenHash) -> BoxFuture<'_, Result<Option<Token>, JournalError>>;

    /// Stores rules, all or none; one that is there already stays (S83). At most 256.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`.
    fn store_rules(&self, rules: Vec<PermissionRule>) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Whether every one of these rules is stored; `false` for none at all. At most 256.
    ///
    /// # Errors
    /// `TooLarge`.
    fn rules_stored(&self, rules: Vec<PermissionRule>)
    -> BoxFuture<'_, Result<bool, JournalError>>;

    /// A named value of the host.
    fn meta(&self, name: &str) -> BoxFuture<'_, Result<Option<Bytes>, JournalError>>;

    /// Stores a named value unless one is there, and answers the one that is there then.
    /// Name 1 to 64 bytes, value at most 64 KiB.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`.
    fn meta_or_insert(
        &self,
        name: &str,
        value: Bytes,
    ) -> BoxFuture<'_, Result<Bytes, JournalError>>;

    /// Stores a named value over what is there.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`.
    fn set_meta(&self, name: &str, value: Bytes) -> BoxFuture<'_, Result<(), JournalError>>;
}
