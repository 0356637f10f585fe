//! Workspaces: where sessions work.

use crate::auth::{Access, Admin, Read};
use crate::blocks;
use crate::extract::{Asked, InPath, NoQuery, Strict};
use crate::page::{self, Listed};
use crate::problem::Problem;
use crate::roots;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use harness_core::ids::{ProjectId, WorkspaceId};
use harness_journal::{Workspace, WorkspaceState, WorkspaceTarget};
use http::StatusCode;
use serde::{Deserialize, Serialize};

const MAX_TEXT: usize = 4096;

/// Where a workspace is.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Target {
    /// A directory of the host's machine; made when it is missing.
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

impl Target {
    pub(crate) fn checked(self, field: &str) -> Result<WorkspaceTarget, Problem> {
        match self {
            Self::Local { root_path } => {
                blocks::text(&format!("{field}.root_path"), &root_path, MAX_TEXT)?;
                if !std::path::Path::new(&root_path).is_absolute() || root_path.contains('\0') {
                    return Err(Problem::invalid(format!(
                        "`{field}.root_path` is not an absolute path; send one"
                    )));
                }
                Ok(WorkspaceTarget::Local { root_path })
            }
            Self::Remote { host, path } => {
                blocks::text(&format!("{field}.host"), &host, MAX_TEXT)?;
                blocks::text(&format!("{field}.path"), &path, MAX_TEXT)?;
                Ok(WorkspaceTarget::Remote { host, path })
            }
        }
    }
}

/// Whether a workspace can be used.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SetUp {
    /// Being set up.
    Initializing,
    /// Usable.
    Ready,
    /// Setting it up failed.
    Failed,
}

/// A workspace.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct WorkspaceView {
    /// Its id.
    id: WorkspaceId,
    /// Its project.
    project_id: ProjectId,
    /// Where it is.
    target: Target,
    /// Whether it can be used.
    state: SetUp,
}

impl From<Workspace> for WorkspaceView {
    fn from(workspace: Workspace) -> Self {
        Self {
            id: workspace.id,
            project_id: workspace.project_id,
            target: match workspace.target {
                WorkspaceTarget::Local { root_path } => Target::Local { root_path },
                WorkspaceTarget::Remote { host, path } => Target::Remote { host, path },
            },
            state: match workspace.state {
                WorkspaceState::Initializing => SetUp::Initializing,
                WorkspaceState::Ready => SetUp::Ready,
                WorkspaceState::Failed => SetUp::Failed,
            },
        }
    }
}

/// A workspace to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWorkspace {
    /// Its id, `[a-z0-9][a-z0-9-]{0,62}`, unique in the host.
    id: WorkspaceId,
    /// Its project.
    project_id: ProjectId,
    /// Where it is.
    target: Target,
}

/// Which workspaces.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspacesQuery {
    /// Only those of this project.
    project_id: Option<ProjectId>,
    /// Most items, 1 to 1000; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the page before, unchanged.
    cursor: Option<String>,
}

/// Workspaces within the token's reach, by id.
#[utoipa::path(get, path = "/v1/workspaces", tag = "Workspaces", params(WorkspacesQuery),
    responses((status = 200, body = Listed<WorkspaceView>)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    access: Access<Read>,
    Asked(query): Asked<WorkspacesQuery>,
) -> Result<Json<Listed<WorkspaceView>>, Problem> {
    let request = page::request(query.limit, query.cursor)?;
    let projects = match query.project_id {
        Some(id) => vec![access.project(&state, id).await?],
        None => access.projects().iter().cloned().collect(),
    };
    let found = state
        .plane()
        .catalog()
        .workspaces(projects, request)
        .await?;
    Ok(Json(Listed::from_page(found, WorkspaceView::from)))
}

/// One workspace.
#[utoipa::path(get, path = "/v1/workspaces/{workspace_id}", tag = "Workspaces",
    params(("workspace_id" = String, Path)), responses((status = 200, body = WorkspaceView)))]
pub(crate) async fn show(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    _: NoQuery,
) -> Result<Json<WorkspaceView>, Problem> {
    let missing = || Problem::workspace_not_found(&raw);
    let id: WorkspaceId = raw.parse().map_err(|_| missing())?;
    let found = state.plane().catalog().workspace(id).await?;
    let workspace = found
        .filter(|workspace| access.sees(&workspace.project_id))
        .ok_or_else(missing)?;
    Ok(Json(workspace.into()))
}

/// Makes a workspace. It is set up in the background: follow its `state`.
#[utoipa::path(post, path = "/v1/workspaces", tag = "Workspaces",
    request_body(content = NewWorkspace, example = json!({
        "id": "shop-hotfix", "project_id": "default", "target": {"kind": "local", "root_path": "/srv/shop-hotfix"}
    })),
    responses((status = 201, body = WorkspaceView)))]
pub(crate) async fn create(
    State(state): State<ApiState>,
    access: Access<Admin>,
    _: NoQuery,
    Strict(new): Strict<NewWorkspace>,
) -> Result<(StatusCode, Json<WorkspaceView>), Problem> {
    let target = new.target.checked("target")?;
    let project_id = access.project(&state, new.project_id).await?;
    if let WorkspaceTarget::Local { root_path } = &target
        && !access.projects().is_empty()
    {
        let (state, asked) = (state.clone(), root_path.clone());
        let check = move || roots::check(state.workspace_roots(), asked.as_ref());
        let checked = tokio::task::spawn_blocking(check).await;
        checked.map_err(|_| Problem::internal())??;
    }
    let workspace = Workspace {
        id: new.id,
        project_id,
        target,
        state: WorkspaceState::Initializing,
    };
    if state
        .plane()
        .catalog()
        .workspace(workspace.id.clone())
        .await?
        .is_some()
    {
        return Err(Problem::taken("workspace", workspace.id.as_str()));
    }
    let plane = state.plane().clone();
    let task = tokio::spawn(async move { plane.create_workspace(workspace).await });
    let workspace = task.await.map_err(|_| Problem::internal())??;
    Ok((StatusCode::CREATED, Json(workspace.into())))
}
