//! Who asks and what the token allows.
//!
//! A token is read from the catalogue when it is first used and then kept in memory by its hash
//! until the route that revokes it says so: the store is held by this process alone. Scopes are
//! independent of each other; a token may be limited to projects, and what lies outside is
//! answered as if it did not exist.
//!
//! Invariant: a token itself is never stored, logged or compared, only its SHA-256.

use crate::code::Code;
use crate::problem::Problem;
use crate::state::ApiState;
use axum::extract::FromRequestParts;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use harness_core::abort::{AbortHandle, AbortReason, AbortSignal};
use harness_core::ids::{ProjectId, SessionId, TokenId};
use harness_journal::{Catalog, JournalError, TokenHash, TokenScope};
use harness_session::Caller;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock};
use subtle::ConstantTimeEq;

/// Longest token that is looked at, in bytes.
const MAX_TOKEN: usize = 512;

/// What a token is stored and looked up by.
#[must_use]
pub fn hash_token(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// A fresh token: 256 random bits as text.
#[must_use]
pub fn new_token() -> String {
    let bytes: [u8; 32] = rand::random();
    format!("hh_{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// What an authenticated caller may do.
#[derive(Debug)]
pub(crate) struct Grant {
    identity: String,
    scopes: Vec<TokenScope>,
    /// Empty: all.
    projects: BTreeSet<ProjectId>,
    hash: TokenHash,
    /// Ends streams that were opened with it.
    revoked: AbortHandle,
}

/// Tokens that were used, by hash.
pub(crate) struct Tokens {
    catalog: Arc<dyn Catalog>,
    /// A std lock: held for one lookup or one insert, never across an await. It holds tokens of
    /// the catalogue only, so strangers cannot make it grow.
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    grants: HashMap<TokenHash, Arc<Grant>>,
    /// Counts revocations: what was read from the store before one is not kept after it.
    revocations: u64,
}

impl Tokens {
    /// `bootstrap` is a token that is not in the catalogue and may do everything.
    pub(crate) fn new(catalog: Arc<dyn Catalog>, bootstrap: Option<TokenHash>) -> Self {
        let mut known = Known::default();
        if let Some(hash) = bootstrap {
            let grant = Grant {
                identity: "bootstrap".into(),
                scopes: vec![TokenScope::Read, TokenScope::Invoke, TokenScope::Admin],
                projects: BTreeSet::new(),
                hash,
                revoked: AbortHandle::new(),
            };
            known.grants.insert(hash, Arc::new(grant));
        }
        Self {
            catalog,
            known: RwLock::new(known),
        }
    }

    /// Shuts a token out and ends its streams.
    pub(crate) fn revoke(&self, id: TokenId) {
        let identity = identity(id);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.revocations += 1;
        known.grants.retain(|_, grant| {
            let keep = grant.identity != identity;
            if !keep {
                grant.revoked.abort(AbortReason::Superseded);
            }
            keep
        });
    }

    async fn find(&self, token: &str) -> Result<Option<Arc<Grant>>, JournalError> {
        let hash = hash_token(token);
        let before = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(grant) = known.grants.get(&hash) {
                return Ok(bool::from(grant.hash.ct_eq(&hash)).then(|| grant.clone()));
            }
            known.revocations
        };
        let Some(token) = self.catalog.token_by_hash(hash).await? else {
            return Ok(None);
        };
        let grant = Arc::new(Grant {
            identity: identity(token.id),
            scopes: token.scopes,
            projects: token.projects.into_iter().collect(),
            hash,
            revoked: AbortHandle::new(),
        });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.revocations != before {
            // Revoked meanwhile, perhaps this one: the client authenticates anew.
            return Ok(None);
        }
        Ok(Some(known.grants.entry(hash).or_insert(grant).clone()))
    }
}

fn identity(id: TokenId) -> String {
    format!("token:{id}")
}

impl Grant {
    /// Whether ids of that project are within reach.
    pub(crate) fn sees(&self, project: &ProjectId) -> bool {
        self.projects.is_empty() || self.projects.contains(project)
    }

    /// The projects it is limited to; empty for all.
    pub(crate) fn projects(&self) -> &BTreeSet<ProjectId> {
        &self.projects
    }

    /// Fires when the token is revoked.
    pub(crate) fn revoked(&self) -> AbortSignal {
        self.revoked.signal()
    }

    /// Whether it has the scope.
    pub(crate) fn has(&self, scope: TokenScope) -> bool {
        self.scopes.contains(&scope)
    }

    /// As recorded with what it does.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// As the plane is told.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            identity: Some(self.identity.clone()),
            key: None,
        }
    }

    /// The id in a path, when a session of that id is within reach.
    pub(crate) async fn session(&self, state: &ApiState, raw: &str) -> Result<SessionId, Problem> {
        let id: SessionId = raw.parse().map_err(|_| Problem::session_not_found(raw))?;
        if !self.projects.is_empty() {
            let session = state.plane().session(id).await?;
            if !self.sees(&session.project_id) {
                return Err(Problem::session_not_found(raw));
            }
        }
        Ok(id)
    }

    /// Refuses a project out of reach as if it did not exist.
    pub(crate) fn reach(&self, id: &ProjectId) -> Result<(), Problem> {
        if self.sees(id) {
            Ok(())
        } else {
            Err(Problem::project_not_found(id.as_str()))
        }
    }

    /// A project that a query filters by, when it exists and is within reach.
    pub(crate) async fn project(
        &self,
        state: &ApiState,
        id: ProjectId,
    ) -> Result<ProjectId, Problem> {
        if self.sees(&id) && state.plane().catalog().project(id.clone()).await?.is_some() {
            Ok(id)
        } else {
            Err(Problem::project_not_found(id.as_str()))
        }
    }
}

/// The scope a route needs.
pub(crate) trait Need: Send + Sync + 'static {
    const SCOPE: TokenScope;
    const WORD: &'static str;
}

/// Reading.
pub(crate) struct Read;
/// Prompting, operating, answering.
pub(crate) struct Invoke;
/// Administration of the projects the token is limited to.
pub(crate) struct Admin;

impl Need for Read {
    const SCOPE: TokenScope = TokenScope::Read;
    const WORD: &'static str = "read";
}
impl Need for Invoke {
    const SCOPE: TokenScope = TokenScope::Invoke;
    const WORD: &'static str = "invoke";
}
impl Need for Admin {
    const SCOPE: TokenScope = TokenScope::Admin;
    const WORD: &'static str = "admin";
}

/// An authenticated caller with the scope `S`. It stands first in a handler's arguments, so
/// nothing else of a request is looked at before it.
pub(crate) struct Access<S> {
    grant: Arc<Grant>,
    scope: PhantomData<S>,
}

impl<S> Access<S> {
    pub(crate) fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }
}

impl<S> std::ops::Deref for Access<S> {
    type Target = Grant;
    fn deref(&self) -> &Grant {
        &self.grant
    }
}

impl<S: Need> FromRequestParts<ApiState> for Access<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let grant = authenticate(&parts.headers, state.tokens()).await?;
        if !grant.has(S::SCOPE) {
            return Err(Problem::new(
                Code::Forbidden,
                format!(
                    "the token lacks the scope `{}`; use one that has it",
                    S::WORD
                ),
            ));
        }
        Ok(Self {
            grant,
            scope: PhantomData,
        })
    }
}

/// An administrator of the whole host: a token that is limited to projects is refused.
pub(crate) struct HostAdmin;

impl FromRequestParts<ApiState> for HostAdmin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let access = Access::<Admin>::from_request_parts(parts, state).await?;
        if access.projects.is_empty() {
            Ok(Self)
        } else {
            Err(Problem::new(
                Code::Forbidden,
                "the token is limited to projects and this concerns the whole host; use one without that limit",
            ))
        }
    }
}

async fn authenticate(headers: &HeaderMap, tokens: &Tokens) -> Result<Arc<Grant>, Problem> {
    let refused = |detail: &str| {
        Problem::new(Code::Unauthenticated, detail).header(
            WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"harness\""),
        )
    };
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return Err(refused("send one header `Authorization: Bearer <token>`"));
    };
    let token = value
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty() && token.len() <= MAX_TOKEN)
        .ok_or_else(|| refused("the header is not of the form `Authorization: Bearer <token>`"))?;
    tokens
        .find(token)
        .await?
        .ok_or_else(|| refused("the token is unknown or was revoked; have the operator create one with `harness token create`"))
}
