//! Projects: the scope that owns workspaces and sessions.

use super::workspaces::Target;
use crate::auth::{Access, HostAdmin, Read};
use crate::blocks;
use crate::extract::{Asked, InPath, NoQuery, Strict};
use crate::page::{Listed, PageQuery};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use harness_core::ids::{ProjectId, WorkspaceId};
use harness_journal::{Project, Workspace, WorkspaceState};
use http::StatusCode;
use serde::{Deserialize, Serialize};

const MAX_NAME: usize = 256;

/// A project.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct ProjectView {
    /// Its id.
    id: ProjectId,
    /// Its name.
    name: String,
    /// Where its sessions work unless they say otherwise.
    default_workspace_id: Option<WorkspaceId>,
}

impl From<Project> for ProjectView {
    fn from(project: Project) -> Self {
        Self {
            id: project.id,
            name: project.name,
            default_workspace_id: project.default_workspace_id,
        }
    }
}

/// A project to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewProject {
    /// Its id, `[a-z0-9][a-z0-9-]{0,62}`.
    id: ProjectId,
    /// Its name, 1 to 256 bytes; the id when absent.
    name: Option<String>,
    /// Its default workspace, made with it.
    default_workspace: Option<DefaultWorkspace>,
}

/// The default workspace of a project to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefaultWorkspace {
    /// Its id.
    id: WorkspaceId,
    /// Where it is.
    target: Target,
}

/// Projects within the token's reach, by id.
#[utoipa::path(get, path = "/v1/projects", tag = "Projects", params(PageQuery),
    responses((status = 200, body = Listed<ProjectView>)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    access: Access<Read>,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Listed<ProjectView>>, Problem> {
    let catalog = state.plane().catalog();
    if access.projects().is_empty() {
        let page = catalog.projects(page.stored()?).await?;
        return Ok(Json(Listed::from_page(page, ProjectView::from)));
    }
    // A token names at most 256 projects.
    let mut items = Vec::new();
    for id in access.projects() {
        items.extend(catalog.project(id.clone()).await?.map(ProjectView::from));
    }
    page.of(items, |project: &ProjectView| project.id.to_string())
        .map(Json)
}

/// One project.
#[utoipa::path(get, path = "/v1/projects/{project_id}", tag = "Projects",
    params(("project_id" = String, Path)), responses((status = 200, body = ProjectView)))]
pub(crate) async fn show(
    State(state): State<ApiState>,
    access: Access<Read>,
    InPath(raw): InPath<String>,
    _: NoQuery,
) -> Result<Json<ProjectView>, Problem> {
    let missing = || Problem::project_not_found(&raw);
    let id: ProjectId = raw.parse().map_err(|_| missing())?;
    if !access.sees(&id) {
        return Err(missing());
    }
    let project = state
        .plane()
        .catalog()
        .project(id)
        .await?
        .ok_or_else(missing)?;
    Ok(Json(project.into()))
}

/// Makes a project, with its default workspace when one is given.
#[utoipa::path(post, path = "/v1/projects", tag = "Projects",
    request_body(content = NewProject, example = json!({
        "id": "shop", "name": "Web shop",
        "default_workspace": {"id": "shop-main", "target": {"kind": "local", "root_path": "/srv/shop"}}
    })),
    responses((status = 201, body = ProjectView)))]
pub(crate) async fn create(
    State(state): State<ApiState>,
    _: HostAdmin,
    _: NoQuery,
    Strict(new): Strict<NewProject>,
) -> Result<(StatusCode, Json<ProjectView>), Problem> {
    let name = new.name.unwrap_or_else(|| new.id.to_string());
    blocks::text("name", &name, MAX_NAME)?;
    let workspace = match new.default_workspace {
        None => None,
        Some(workspace) => Some(Workspace {
            id: workspace.id,
            project_id: new.id.clone(),
            target: workspace.target.checked("default_workspace.target")?,
            state: WorkspaceState::Initializing,
        }),
    };
    let project = Project {
        id: new.id,
        name,
        default_workspace_id: workspace.as_ref().map(|w| w.id.clone()),
    };
    let catalog = state.plane().catalog();
    if catalog.project(project.id.clone()).await?.is_some() {
        return Err(Problem::taken("project", project.id.as_str()));
    }
    if let Some(workspace) = &workspace
        && catalog.workspace(workspace.id.clone()).await?.is_some()
    {
        return Err(Problem::taken("workspace", workspace.id.as_str()));
    }
    let plane = state.plane().clone();
    let task = tokio::spawn(async move { plane.create_project(project, workspace).await });
    let project = task.await.map_err(|_| Problem::internal())??;
    Ok((StatusCode::CREATED, Json(project.into())))
}
