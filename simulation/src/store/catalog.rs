//! Projects, workspaces, tokens, rules and named values.

use super::MemoryStore;
use super::page::page;
use super::sessions::MAX_FILTER;
use bytes::Bytes;
use harness_core::ids::{ProjectId, TokenId, WorkspaceId};
use harness_journal::{
    BoxFuture, Catalog, JournalError, NewToken, Page, PageRequest, PermissionRule, Project, Token,
    TokenHash, Workspace, WorkspaceState,
};

type Answer<'a, T> = BoxFuture<'a, Result<T, JournalError>>;

/// A text of 1 to `limit` bytes.
fn text(what: &'static str, text: &str, limit: usize) -> Result<(), JournalError> {
    if text.is_empty() {
        let rule = "it is not empty";
        return Err(JournalError::Invalid { what, rule });
    }
    bound(what, text.len(), limit)
}

fn bound(what: &'static str, size: usize, limit: usize) -> Result<(), JournalError> {
    if size <= limit {
        return Ok(());
    }
    Err(JournalError::TooLarge {
        what,
        size: size as u64,
        limit: limit as u64,
    })
}

impl MemoryStore {
    fn add_workspace(&self, workspace: Workspace) -> Result<(), JournalError> {
        let mut content = self.content();
        if !content.projects.contains_key(&workspace.project_id) {
            return Err(JournalError::NotFound { what: "project" });
        }
        if content.workspaces.contains_key(&workspace.id) {
            return Err(JournalError::Exists { what: "workspace" });
        }
        content.workspaces.insert(workspace.id.clone(), workspace);
        Ok(())
    }
}

impl Catalog for MemoryStore {
    fn create_project(&self, project: Project, workspace: Option<Workspace>) -> Answer<'_, ()> {
        Box::pin(async move {
            text("a project's name", &project.name, 256)?;
            let id = project.id.clone();
            {
                let mut content = self.content();
                if content.projects.contains_key(&id) {
                    return Err(JournalError::Exists { what: "project" });
                }
                content.projects.insert(id.clone(), project);
            }
            let stored = workspace.map_or(Ok(()), |w| self.add_workspace(w));
            if stored.is_err() {
                self.content().projects.remove(&id);
            }
            stored
        })
    }

    fn project(&self, id: ProjectId) -> Answer<'_, Option<Project>> {
        Box::pin(async move { Ok(self.content().projects.get(&id).cloned()) })
    }

    fn projects(&self, request: PageRequest) -> Answer<'_, Page<Project>> {
        Box::pin(async move {
            let content = self.content();
            let all = content.projects.values();
            let named = all.map(|p| (p.id.to_string(), p.clone()));
            page('p', named, request.limit, request.cursor.as_deref())
        })
    }

    fn create_workspace(&self, workspace: Workspace) -> Answer<'_, ()> {
        Box::pin(async move { self.add_workspace(workspace) })
    }

    fn set_workspace_state(&self, id: WorkspaceId, state: WorkspaceState) -> Answer<'_, ()> {
        Box::pin(async move {
            let mut content = self.content();
            let found = content.workspaces.get_mut(&id);
            found
                .ok_or(JournalError::NotFound { what: "workspace" })?
                .state = state;
            Ok(())
        })
    }

    fn workspace(&self, id: WorkspaceId) -> Answer<'_, Option<Workspace>> {
        Box::pin(async move { Ok(self.content().workspaces.get(&id).cloned()) })
    }

    fn workspaces(
        &self,
        projects: Vec<ProjectId>,
        request: PageRequest,
    ) -> Answer<'_, Page<Workspace>> {
        Box::pin(async move {
            bound("the list of projects", projects.len(), MAX_FILTER)?;
            let content = self.content();
            let of = |w: &&Workspace| projects.is_empty() || projects.contains(&w.project_id);
            let all = content.workspaces.values().filter(of);
            let named = all.map(|w| (w.id.to_string(), w.clone()));
            page('w', named, request.limit, request.cursor.as_deref())
        })
    }

    fn create_token(&self, new: NewToken) -> Answer<'_, ()> {
        Box::pin(async move {
            text("a token's name", &new.token.name, 256)?;
            let mut content = self.content();
            let taken = |t: &NewToken| t.token.id == new.token.id || t.hash == new.hash;
            if content.tokens.values().any(taken) {
                return Err(JournalError::Exists { what: "token" });
            }
            content
                .tokens
                .insert((new.token.created_at_ms, new.token.id), new);
            Ok(())
        })
    }

    fn tokens(&self, request: PageRequest) -> Answer<'_, Page<Token>> {
        Box::pin(async move {
            let content = self.content();
            let named = content.tokens.iter().map(|((at, id), t)| {
                // As unsigned numbers in the order of the signed ones.
                let at = (*at as u64) ^ (1 << 63);
                (format!("{at:016x}{:032x}", id.0.as_u128()), t.token.clone())
            });
            page('t', named, request.limit, request.cursor.as_deref())
        })
    }

    fn delete_token(&self, id: TokenId) -> Answer<'_, ()> {
        Box::pin(async move {
            let mut content = self.content();
            let before = content.tokens.len();
            content.tokens.retain(|(_, known), _| *known != id);
            if content.tokens.len() == before {
                return Err(JournalError::NotFound { what: "token" });
            }
            Ok(())
        })
    }

    fn token_by_hash(&self, hash: TokenHash) -> Answer<'_, Option<Token>> {
        Box::pin(async move {
            let content = self.content();
            let found = content.tokens.values().find(|t| t.hash == hash);
            Ok(found.map(|t| t.token.clone()))
        })
    }

    fn store_rules(&self, rules: Vec<PermissionRule>) -> Answer<'_, ()> {
        Box::pin(async move {
            bound("a list of rules", rules.len(), 256)?;
            for rule in &rules {
                text("a rule", &rule.rule, 4 << 10)?;
            }
            self.content().rules.extend(rules);
            Ok(())
        })
    }

    fn rules_stored(&self, rules: Vec<PermissionRule>) -> Answer<'_, bool> {
        Box::pin(async move {
            bound("a list of rules", rules.len(), 256)?;
            let content = self.content();
            Ok(!rules.is_empty() && rules.iter().all(|r| content.rules.contains(r)))
        })
    }

    fn meta(&self, name: &str) -> Answer<'_, Option<Bytes>> {
        let found = self.content().named.get(name).cloned();
        Box::pin(async move { Ok(found) })
    }

    fn meta_or_insert(&self, name: &str, value: Bytes) -> Answer<'_, Bytes> {
        let name = name.to_owned();
        Box::pin(async move {
            text("a name", &name, 64)?;
            bound("a named value", value.len(), 64 << 10)?;
            Ok(self.content().named.entry(name).or_insert(value).clone())
        })
    }

    fn set_meta(&self, name: &str, value: Bytes) -> Answer<'_, ()> {
        let name = name.to_owned();
        Box::pin(async move {
            text("a name", &name, 64)?;
            bound("a named value", value.len(), 64 << 10)?;
            self.content().named.insert(name, value);
            Ok(())
        })
    }
}
