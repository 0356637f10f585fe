//! Projects, workspaces, tokens, permission rules and named values.

use super::failure::failed;
use super::session::check_filter;
use super::{SqliteStore, row};
use crate::append::bound;
use crate::catalog::{
    Catalog, NewToken, PermissionRule, Project, Token, TokenHash, Workspace, WorkspaceState,
    WorkspaceTarget,
};
use crate::error::JournalError;
use crate::journal::BoxFuture;
use crate::page::{Page, PageRequest, checked_limit, decode_cursor, encode_cursor};
use bytes::Bytes;
use harness_core::ids::{ProjectId, TokenId, WorkspaceId};
use rusqlite::{Connection, Row, params};

const MAX_NAME: usize = 256;
const MAX_TEXT: usize = 4 << 10;
const MAX_RULES: usize = 256;
const MAX_TOKEN_PROJECTS: usize = 256;
const MAX_META_NAME: usize = 64;
const MAX_META: usize = 64 << 10;

/// First bytes of the lists' cursors.
const PROJECTS: u8 = b'p';
const WORKSPACES: u8 = b'w';
const TOKENS: u8 = b't';

type Answer<'a, T> = BoxFuture<'a, Result<T, JournalError>>;

impl Catalog for SqliteStore {
    fn create_project(&self, project: Project, workspace: Option<Workspace>) -> Answer<'_, ()> {
        Box::pin(async move {
            text("a project's name", &project.name, MAX_NAME)?;
            if let Some(workspace) = &workspace {
                check_workspace(workspace)?;
            }
            self.write(0, move |c| {
                let written = c
                    .prepare_cached(
                        "INSERT INTO project (id, name, default_workspace_id) VALUES (?1, ?2, ?3)
                         ON CONFLICT DO NOTHING",
                    )
                    .and_then(|mut insert| {
                        insert.execute(params![
                            project.id.as_str(),
                            project.name,
                            project
                                .default_workspace_id
                                .as_ref()
                                .map(WorkspaceId::as_str),
                        ])
                    })
                    .map_err(failed)?;
                created(written, "project")?;
                workspace
                    .as_ref()
                    .map_or(Ok(()), |workspace| insert_workspace(c, workspace))
            })
            .await
        })
    }

    fn project(&self, id: ProjectId) -> Answer<'_, Option<Project>> {
        Box::pin(self.query(move |c| {
            let mut query = c
                .prepare_cached("SELECT id, name, default_workspace_id FROM project WHERE id = ?1")
                .map_err(failed)?;
            row::first(query.query([id.as_str()]).map_err(failed)?, project)
        }))
    }

    fn projects(&self, page: PageRequest) -> Answer<'_, Page<Project>> {
        Box::pin(self.query(move |c| {
            let limit = checked_limit(page.limit)?;
            let after = text_position(PROJECTS, page.cursor.as_deref())?;
            let mut query = c
                .prepare_cached(
                    "SELECT id, name, default_workspace_id FROM project
                     WHERE id > ?1 ORDER BY id LIMIT ?2",
                )
                .map_err(failed)?;
            let rows = query
                .query(params![after, limit as i64 + 1])
                .map_err(failed)?;
            let items = row::collect(rows, project)?;
            Ok(paged(items, limit, PROJECTS, |item| {
                item.id.as_str().as_bytes().to_vec()
            }))
        }))
    }

    fn create_workspace(&self, workspace: Workspace) -> Answer<'_, ()> {
        Box::pin(async move {
            check_workspace(&workspace)?;
            self.write(0, move |c| insert_workspace(c, &workspace))
                .await
        })
    }

    fn set_workspace_state(&self, id: WorkspaceId, state: WorkspaceState) -> Answer<'_, ()> {
        Box::pin(self.write(0, move |c| {
            let written = c
                .prepare_cached("UPDATE workspace SET state = ?2 WHERE id = ?1")
                .and_then(|mut update| update.execute(params![id.as_str(), state_name(state)]))
                .map_err(failed)?;
            found(written, "workspace")
        }))
    }

    fn workspace(&self, id: WorkspaceId) -> Answer<'_, Option<Workspace>> {
        Box::pin(self.query(move |c| {
            let mut query = c
                .prepare_cached("SELECT id, project_id, target, state FROM workspace WHERE id = ?1")
                .map_err(failed)?;
            row::first(query.query([id.as_str()]).map_err(failed)?, workspace)
        }))
    }

    fn workspaces(
        &self,
        projects: Vec<ProjectId>,
        page: PageRequest,
    ) -> Answer<'_, Page<Workspace>> {
        Box::pin(self.query(move |c| {
            let limit = checked_limit(page.limit)?;
            check_filter(projects.len())?;
            let after = text_position(WORKSPACES, page.cursor.as_deref())?;
            let any = projects.is_empty();
            let projects = row::to_json(&projects)?;
            let mut query = c
                .prepare_cached(
                    "SELECT id, project_id, target, state FROM workspace
                     WHERE id > ?1 AND (?2 OR project_id IN (SELECT value FROM json_each(?3)))
                     ORDER BY id LIMIT ?4",
                )
                .map_err(failed)?;
            let rows = query
                .query(params![after, any, projects, limit as i64 + 1])
                .map_err(failed)?;
            let items = row::collect(rows, workspace)?;
            Ok(paged(items, limit, WORKSPACES, |item| {
                item.id.as_str().as_bytes().to_vec()
            }))
        }))
    }

    fn create_token(&self, new: NewToken) -> Answer<'_, ()> {
        Box::pin(async move {
            text("a token's name", &new.token.name, MAX_NAME)?;
            bound(
                "a token's projects",
                new.token.projects.len(),
                MAX_TOKEN_PROJECTS,
            )?;
            bound("a token's scopes", new.token.scopes.len(), 3)?;
            let scopes = row::to_json(&new.token.scopes)?;
            let projects = row::to_json(&new.token.projects)?;
            self.write(0, move |c| {
                let written = c
                    .prepare_cached(
                        "INSERT INTO token (id, hash, created_at_ms, name, scopes, projects)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
                    )
                    .and_then(|mut insert| {
                        insert.execute(params![
                            new.token.id.0.as_bytes(),
                            new.hash,
                            new.token.created_at_ms,
                            new.token.name,
                            scopes,
                            projects,
                        ])
                    })
                    .map_err(failed)?;
                created(written, "token")
            })
            .await
        })
    }

    fn tokens(&self, page: PageRequest) -> Answer<'_, Page<Token>> {
        Box::pin(self.query(move |c| {
            let limit = checked_limit(page.limit)?;
            let (after_ms, after_id) = match &page.cursor {
                Some(cursor) => token_position(cursor)?,
                None => (i64::MIN, [0; 16]),
            };
            let mut query = c
                .prepare_cached(
                    "SELECT id, name, scopes, projects, created_at_ms FROM token
                     WHERE (created_at_ms, id) > (?1, ?2) ORDER BY created_at_ms, id LIMIT ?3",
                )
                .map_err(failed)?;
            let rows = query
                .query(params![after_ms, after_id, limit as i64 + 1])
                .map_err(failed)?;
            let items = row::collect(rows, token)?;
            Ok(paged(items, limit, TOKENS, |item| {
                let mut position = item.created_at_ms.to_be_bytes().to_vec();
                position.extend_from_slice(item.id.0.as_bytes());
                position
            }))
        }))
    }

    fn delete_token(&self, id: TokenId) -> Answer<'_, ()> {
        Box::pin(self.write(0, move |c| {
            let written = c
                .prepare_cached("DELETE FROM token WHERE id = ?1")
                .and_then(|mut delete| delete.execute([id.0.as_bytes()]))
                .map_err(failed)?;
            found(written, "token")
        }))
    }

    fn token_by_hash(&self, hash: TokenHash) -> Answer<'_, Option<Token>> {
        Box::pin(self.query(move |c| {
            let mut query = c
                .prepare_cached(
                    "SELECT id, name, scopes, projects, created_at_ms FROM token WHERE hash = ?1",
                )
                .map_err(failed)?;
            row::first(query.query([hash]).map_err(failed)?, token)
        }))
    }

    fn store_rules(&self, rules: Vec<PermissionRule>) -> Answer<'_, ()> {
        Box::pin(async move {
            bound("a list of rules", rules.len(), MAX_RULES)?;
            for rule in &rules {
                text("a permission rule", &rule.rule, MAX_TEXT)?;
            }
            self.write(rules.len() * MAX_TEXT, move |c| {
                let mut insert = c
                    .prepare_cached(
                        "INSERT INTO permission_rule (harness_id, workspace_id, rule)
                         VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                    )
                    .map_err(failed)?;
                for rule in &rules {
                    insert.execute(rule_params(rule)).map_err(failed)?;
                }
                Ok(())
            })
            .await
        })
    }

    fn rules_stored(&self, rules: Vec<PermissionRule>) -> Answer<'_, bool> {
        Box::pin(self.query(move |c| {
            bound("a list of rules", rules.len(), MAX_RULES)?;
            let mut query = c
                .prepare_cached(
                    "SELECT 1 FROM permission_rule
                     WHERE harness_id = ?1 AND workspace_id = ?2 AND rule = ?3",
                )
                .map_err(failed)?;
            for rule in &rules {
                if !query.exists(rule_params(rule)).map_err(failed)? {
                    return Ok(false);
                }
            }
            Ok(!rules.is_empty())
        }))
    }

    fn meta(&self, name: &str) -> Answer<'_, Option<Bytes>> {
        let name = name.to_owned();
        Box::pin(self.query(move |c| meta(c, &name)))
    }

    fn meta_or_insert(&self, name: &str, value: Bytes) -> Answer<'_, Bytes> {
        let name = name.to_owned();
        Box::pin(async move {
            check_meta(&name, &value)?;
            self.write(value.len(), move |c| {
                if let Some(there) = meta(c, &name)? {
                    return Ok(there);
                }
                set_meta(c, &name, &value)?;
                Ok(value.clone())
            })
            .await
        })
    }

    fn set_meta(&self, name: &str, value: Bytes) -> Answer<'_, ()> {
        let name = name.to_owned();
        Box::pin(async move {
            check_meta(&name, &value)?;
            self.write(value.len(), move |c| set_meta(c, &name, &value))
                .await
        })
    }
}

fn text(what: &'static str, value: &str, limit: usize) -> Result<(), JournalError> {
    if value.is_empty() {
        return Err(JournalError::Invalid {
            what,
            rule: "it is not empty",
        });
    }
    bound(what, value.len(), limit)
}

fn check_workspace(workspace: &Workspace) -> Result<(), JournalError> {
    match &workspace.target {
        WorkspaceTarget::Local { root_path } => text("a workspace's path", root_path, MAX_TEXT),
        WorkspaceTarget::Remote { host, path } => {
            text("a workspace's host", host, MAX_TEXT)?;
            text("a workspace's path", path, MAX_TEXT)
        }
    }
}

fn check_meta(name: &str, value: &[u8]) -> Result<(), JournalError> {
    text("a named value's name", name, MAX_META_NAME)?;
    bound("a named value", value.len(), MAX_META)
}

fn created(written: usize, what: &'static str) -> Result<(), JournalError> {
    if written == 0 {
        Err(JournalError::Exists { what })
    } else {
        Ok(())
    }
}

fn found(written: usize, what: &'static str) -> Result<(), JournalError> {
    if written == 0 {
        Err(JournalError::NotFound { what })
    } else {
        Ok(())
    }
}

fn insert_workspace(connection: &Connection, workspace: &Workspace) -> Result<(), JournalError> {
    let project = workspace.project_id.as_str();
    let known = connection
        .prepare_cached("SELECT 1 FROM project WHERE id = ?1")
        .and_then(|mut query| query.exists([project]))
        .map_err(failed)?;
    if !known {
        return Err(JournalError::NotFound { what: "project" });
    }
    let target = row::to_json(&workspace.target)?;
    let written = connection
        .prepare_cached(
            "INSERT INTO workspace (id, project_id, target, state) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO NOTHING",
        )
        .and_then(|mut insert| {
            insert.execute(params![
                workspace.id.as_str(),
                project,
                target,
                state_name(workspace.state)
            ])
        })
        .map_err(failed)?;
    created(written, "workspace")
}

fn meta(connection: &Connection, name: &str) -> Result<Option<Bytes>, JournalError> {
    let mut query = connection
        .prepare_cached("SELECT value FROM meta WHERE name = ?1")
        .map_err(failed)?;
    let rows = query.query([name]).map_err(failed)?;
    row::first(rows, |row| {
        row.get(0)
            .map(|value: Vec<u8>| Bytes::from(value))
            .map_err(failed)
    })
}

fn set_meta(connection: &Connection, name: &str, value: &[u8]) -> Result<(), JournalError> {
    connection
        .prepare_cached(
            "INSERT INTO meta (name, value) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET value = excluded.value",
        )
        .and_then(|mut upsert| upsert.execute(params![name, value]))
        .map(drop)
        .map_err(failed)
}

fn project(row: &Row<'_>) -> Result<Project, JournalError> {
    let default: Option<String> = row.get(2).map_err(failed)?;
    Ok(Project {
        id: row::parsed(row, 0)?,
        name: row.get(1).map_err(failed)?,
        default_workspace_id: default
            .map(|id| id.parse())
            .transpose()
            .map_err(|error| super::failure::corrupt(format!("a project: {error}")))?,
    })
}

fn workspace(row: &Row<'_>) -> Result<Workspace, JournalError> {
    let state: String = row.get(3).map_err(failed)?;
    Ok(Workspace {
        id: row::parsed(row, 0)?,
        project_id: row::parsed(row, 1)?,
        target: row::json(row, 2)?,
        state: match state.as_str() {
            "initializing" => WorkspaceState::Initializing,
            "ready" => WorkspaceState::Ready,
            "failed" => WorkspaceState::Failed,
            other => {
                return Err(super::failure::corrupt(format!(
                    "workspace state `{other}`"
                )));
            }
        },
    })
}

fn state_name(state: WorkspaceState) -> &'static str {
    match state {
        WorkspaceState::Initializing => "initializing",
        WorkspaceState::Ready => "ready",
        WorkspaceState::Failed => "failed",
    }
}

fn token(row: &Row<'_>) -> Result<Token, JournalError> {
    Ok(Token {
        id: TokenId(row::uuid(row, 0)?),
        name: row.get(1).map_err(failed)?,
        scopes: row::json(row, 2)?,
        projects: row::json(row, 3)?,
        created_at_ms: row.get(4).map_err(failed)?,
    })
}

fn rule_params(rule: &PermissionRule) -> [&str; 3] {
    [
        rule.harness_id.as_str(),
        rule.workspace_id.as_str(),
        &rule.rule,
    ]
}

/// Cuts the item that was read beyond the page, and says where the next page begins.
fn paged<T>(
    mut items: Vec<T>,
    limit: usize,
    list: u8,
    position: impl Fn(&T) -> Vec<u8>,
) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items
        .last()
        .filter(|_| more)
        .map(|last| encode_cursor(list, &position(last)));
    Page { items, next_cursor }
}

fn text_position(list: u8, cursor: Option<&str>) -> Result<String, JournalError> {
    let Some(cursor) = cursor else {
        return Ok(String::new());
    };
    String::from_utf8(decode_cursor(list, cursor)?).map_err(|_| crate::page::bad_cursor())
}

fn token_position(cursor: &str) -> Result<(i64, [u8; 16]), JournalError> {
    let bytes = decode_cursor(TOKENS, cursor)?;
    crate::page::time_and_id(&bytes)
}
