//! Where sessions work: resolved from the catalogue, set up in the background (R78).

use crate::deps::Deps;
use harness_core::ids::{ProjectId, WorkspaceId};
use harness_core::provider::{HarnessInfo, Workspace, WorkspaceNeed};
use harness_core::refusal::Refused;
use harness_journal::{self as journal, WorkspaceState, WorkspaceTarget};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// How often an initialising workspace is looked at.
const POLL: Duration = Duration::from_millis(50);

/// The workspace of a request: the selected one, or the project's default.
pub(crate) async fn select(
    deps: &Deps,
    project: &ProjectId,
    selected: Option<&WorkspaceId>,
) -> Result<journal::Workspace, Refused> {
    let unavailable = |_| Refused::StoreUnavailable;
    let stored = deps
        .catalog
        .project(project.clone())
        .await
        .map_err(unavailable)?;
    let stored = stored.ok_or_else(|| Refused::ProjectNotFound(project.to_string()))?;
    let id = selected
        .cloned()
        .or(stored.default_workspace_id)
        .ok_or_else(|| {
            Refused::InvalidRequest(
                "the project has no default workspace; name one in `workspace_id`".into(),
            )
        })?;
    let workspace = by_id(deps, &id).await?;
    if workspace.project_id == *project {
        Ok(workspace)
    } else {
        Err(Refused::WorkspaceNotFound(id.to_string()))
    }
}

/// A workspace by id. A ready one stays ready, so it is read from the store once.
pub(crate) async fn by_id(deps: &Deps, id: &WorkspaceId) -> Result<journal::Workspace, Refused> {
    if let Some(known) = deps.workspaces.get(id) {
        return Ok(known.clone());
    }
    let stored = deps
        .catalog
        .workspace(id.clone())
        .await
        .map_err(|_| Refused::StoreUnavailable)?;
    let stored = stored.ok_or_else(|| Refused::WorkspaceNotFound(id.to_string()))?;
    if stored.state == WorkspaceState::Ready {
        deps.workspaces.insert(id.clone(), stored.clone());
    }
    Ok(stored)
}

/// Waits for a workspace to be set up, at most `wait`.
pub(crate) async fn ready(
    deps: &Deps,
    mut workspace: journal::Workspace,
    wait: Duration,
) -> Result<journal::Workspace, Refused> {
    let deadline = Instant::now() + wait;
    loop {
        match workspace.state {
            WorkspaceState::Ready => return Ok(workspace),
            WorkspaceState::Failed => {
                return Err(Refused::WorkspaceFailed(format!(
                    "`{}` is not a directory that can be written to; create another workspace",
                    workspace.id
                )));
            }
            WorkspaceState::Initializing if Instant::now() >= deadline => {
                return Err(Refused::WorkspaceNotReady);
            }
            WorkspaceState::Initializing => tokio::time::sleep(POLL).await,
        }
        workspace = by_id(deps, &workspace.id.clone()).await?;
    }
}

/// The workspace as the harness sees it.
pub(crate) fn for_harness(
    workspace: &journal::Workspace,
    info: &HarnessInfo,
) -> Result<Option<Workspace>, Refused> {
    match (&workspace.target, info.workspace) {
        (_, WorkspaceNeed::None) => Ok(None),
        (WorkspaceTarget::Remote { .. }, WorkspaceNeed::Local) => {
            Err(Refused::WorkspaceUnsupported)
        }
        (WorkspaceTarget::Remote { host, path }, WorkspaceNeed::Any) => {
            Ok(Some(Workspace::Remote {
                id: workspace.id.clone(),
                host: host.clone(),
                path: path.clone(),
            }))
        }
        (WorkspaceTarget::Local { root_path }, _) => Ok(Some(Workspace::Local {
            id: workspace.id.clone(),
            root_path: root_path.clone(),
        })),
    }
}

/// Records a session at its workspace: the directory must still be there (R52).
pub(crate) async fn link(workspace: &journal::Workspace) -> Result<(), String> {
    let WorkspaceTarget::Local { root_path } = &workspace.target else {
        return Ok(());
    };
    match tokio::fs::metadata(root_path).await {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err("its root is not a directory".into()),
        Err(error) => Err(format!("its root cannot be reached ({})", error.kind())),
    }
}

/// Creates a missing local directory and checks that it can be written to.
pub(crate) async fn set_up(root: &Path) -> Result<(), String> {
    if !root.is_absolute() {
        return Err("`root_path` must be absolute".into());
    }
    let root = root.to_owned();
    let probe = move || -> std::io::Result<()> {
        std::fs::create_dir_all(&root)?;
        let name = root.join(format!(".harness-probe-{}", uuid::Uuid::now_v7()));
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&name)?;
        std::fs::remove_file(name)
    };
    match tokio::task::spawn_blocking(probe).await {
        Ok(result) => result.map_err(|e| e.kind().to_string()),
        Err(_) => Err("the check was cut off".into()),
    }
}
