//! The session's side of an instance that has no session: while it is described and detected.

use harness_core::content::NewMessage;
use harness_core::ids::ProjectId;
use harness_core::provider::{
    Activity, BoxFuture, ChannelError, DiscoveryContext, InstanceHost, InstanceScope, NativeTurn,
    Params, Workspace,
};
use std::path::Path;

/// Answers `closed` to everything (N6).
pub(crate) struct NoSession {
    project: ProjectId,
    workspace: Option<Workspace>,
}

impl NoSession {
    /// Of that project.
    pub(crate) fn new(project: ProjectId) -> Self {
        Self {
            project,
            workspace: None,
        }
    }

    /// In the project's workspace `default`, which is that directory.
    pub(crate) fn in_default_workspace(mut self, root: &Path) -> Self {
        let id = "default".parse().ok();
        let root_path = root.to_str().map(str::to_owned);
        self.workspace = id
            .zip(root_path)
            .map(|(id, root_path)| Workspace::Local { id, root_path });
        self
    }

    /// Its scope.
    pub(crate) fn scope(&self) -> InstanceScope {
        InstanceScope::Draft {
            project: self.project.clone(),
            workspace: None,
        }
    }
}

impl InstanceHost for NoSession {
    fn context(&self) -> DiscoveryContext {
        DiscoveryContext {
            project_id: self.project.clone(),
            session_id: None,
            native_session_id: None,
            workspace: self.workspace.clone(),
            model: None,
            effort: None,
            loop_mode: None,
            params: Params::new(),
        }
    }

    fn announce_turn(&self, _: NativeTurn) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(std::future::ready(Err(ChannelError::Closed)))
    }

    fn append(&self, _: NewMessage) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(std::future::ready(Err(ChannelError::Closed)))
    }

    fn begin_activity(&self, _: String) -> Result<Box<dyn Activity>, ChannelError> {
        Err(ChannelError::Closed)
    }

    fn state_changed(&self) {}
}
