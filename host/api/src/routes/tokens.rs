//! API tokens, for the operator. A token is shown once, when it is made.

use crate::auth::{HostAdmin, hash_token, new_token};
use crate::blocks;
use crate::code::Code;
use crate::extract::{Asked, InPath, NoQuery, Strict};
use crate::page::{Listed, PageQuery};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use harness_core::ids::{ProjectId, TokenId};
use harness_journal::{JournalError, NewToken, Token, TokenScope};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use uuid::Uuid;

const MAX_NAME: usize = 256;
const MAX_PROJECTS: usize = 256;

/// What a token allows. Scopes do not include each other.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    /// Reading.
    Read,
    /// Prompting, operating, answering.
    Invoke,
    /// Administration.
    Admin,
}

impl From<TokenScope> for Scope {
    fn from(scope: TokenScope) -> Self {
        match scope {
            TokenScope::Read => Self::Read,
            TokenScope::Invoke => Self::Invoke,
            TokenScope::Admin => Self::Admin,
        }
    }
}

impl From<Scope> for TokenScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Read => Self::Read,
            Scope::Invoke => Self::Invoke,
            Scope::Admin => Self::Admin,
        }
    }
}

/// A token without its secret.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct TokenView {
    /// Its id.
    id: TokenId,
    /// Its name.
    name: String,
    /// What it allows.
    scopes: Vec<Scope>,
    /// Only these projects; empty for all.
    projects: Vec<ProjectId>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// The token itself; only in the answer that makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

fn view(token: Token, secret: Option<String>) -> TokenView {
    TokenView {
        id: token.id,
        name: token.name,
        scopes: token.scopes.into_iter().map(Scope::from).collect(),
        projects: token.projects,
        created_at: Timestamp::from_millisecond(token.created_at_ms)
            .unwrap_or(Timestamp::UNIX_EPOCH),
        token: secret,
    }
}

/// A token to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// For a person, 1 to 256 bytes.
    name: String,
    /// What it allows, at least one.
    scopes: BTreeSet<Scope>,
    /// Only these projects, at most 256; all when absent.
    projects: Option<BTreeSet<ProjectId>>,
}

/// Tokens, oldest first.
#[utoipa::path(get, path = "/v1/tokens", tag = "Operator", params(PageQuery),
    responses((status = 200, body = Listed<TokenView>)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    _: HostAdmin,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Listed<TokenView>>, Problem> {
    let found = state.plane().catalog().tokens(page.stored()?).await?;
    Ok(Json(Listed::from_page(found, |token| view(token, None))))
}

/// Makes a token. Its secret is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", tag = "Operator",
    request_body(content = TokenBody, example = json!({"name": "ci", "scopes": ["read", "invoke"], "projects": ["default"]})),
    responses((status = 201, body = TokenView)))]
pub(crate) async fn create(
    State(state): State<ApiState>,
    _: HostAdmin,
    _: NoQuery,
    Strict(body): Strict<TokenBody>,
) -> Result<(StatusCode, Json<TokenView>), Problem> {
    blocks::text("name", &body.name, MAX_NAME)?;
    if body.scopes.is_empty() {
        return Err(Problem::invalid(
            "`scopes` is empty; send at least one of `read`, `invoke`, `admin`",
        ));
    }
    let catalog = state.plane().catalog();
    // Absent means every project, so an empty list cannot mean it too.
    let projects: Vec<ProjectId> = match body.projects {
        None => Vec::new(),
        Some(projects) if projects.is_empty() || projects.len() > MAX_PROJECTS => {
            return Err(Problem::invalid(format!(
                "`projects` names {} projects; name 1 to {MAX_PROJECTS}, or leave it out for all",
                projects.len()
            )));
        }
        Some(projects) => projects.into_iter().collect(),
    };
    for id in &projects {
        if catalog.project(id.clone()).await?.is_none() {
            return Err(Problem::project_not_found(id.as_str()));
        }
    }
    let secret = new_token();
    let token = Token {
        id: TokenId::from(Uuid::now_v7()),
        name: body.name,
        scopes: body.scopes.into_iter().map(TokenScope::from).collect(),
        projects,
        created_at_ms: Timestamp::now().as_millisecond(),
    };
    let stored = NewToken {
        token: token.clone(),
        hash: hash_token(&secret),
    };
    let task = tokio::spawn(async move { catalog.create_token(stored).await });
    task.await.map_err(|_| Problem::internal())??;
    Ok((StatusCode::CREATED, Json(view(token, Some(secret)))))
}

/// Revokes a token at once; streams opened with it end.
#[utoipa::path(delete, path = "/v1/tokens/{token_id}", tag = "Operator",
    params(("token_id" = uuid::Uuid, Path)), responses((status = 204)))]
pub(crate) async fn revoke(
    State(state): State<ApiState>,
    _: HostAdmin,
    InPath(raw): InPath<String>,
    _: NoQuery,
) -> Result<StatusCode, Problem> {
    let missing = || Problem::with_remedy(Code::TokenNotFound, "no such token");
    let id: TokenId = raw.parse().map_err(|_| missing())?;
    let task = tokio::spawn(async move {
        let deleted = state.plane().catalog().delete_token(id).await;
        // Also when the store cannot tell: then it is asked again at the next use.
        state.tokens().revoke(id);
        deleted
    });
    match task.await.map_err(|_| Problem::internal())? {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(JournalError::NotFound { .. }) => Err(missing()),
        Err(error) => Err(error.into()),
    }
}
