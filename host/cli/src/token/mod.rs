//! `harness token`: on a data directory that nobody holds, directly; while a host runs on it,
//! through that host's HTTP API.
//!
//! Invariant: a token's secret is printed once, on standard output and alone, and is stored as a
//! hash only.

mod remote;

use crate::args::{Scope, TokenCommand, TokenStoreArgs};
use crate::data_dir::DataDir;
use crate::failure::{Failure, Kind};
use crate::text::printable_line;
use anyhow::Context;
use harness_core::ids::{ProjectId, TokenId};
use harness_journal::{
    Catalog, JournalError, NewToken, PageRequest, SqliteOptions, SqliteStore, Token, TokenScope,
};
use remote::Remote;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs one of the commands.
///
/// # Errors
/// The store or the running host refuses.
pub(crate) fn run(command: &TokenCommand) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    runtime.block_on(async {
        match command {
            TokenCommand::Create {
                name,
                scopes,
                projects,
                store,
            } => {
                let tokens = Tokens::open(store)?;
                let (token, secret) = tokens.create(name, &scopes_of(scopes), projects).await?;
                eprintln!(
                    "created token {} ({}); it is shown this once:",
                    token.id,
                    printable_line(&token.name)
                );
                println!("{secret}");
            }
            TokenCommand::List { store } => {
                print!("{}", table(&Tokens::open(store)?.list().await?))
            }
            TokenCommand::Revoke { id, store } => {
                Tokens::open(store)?.revoke(*id).await?;
                eprintln!("revoked token {id}");
            }
        }
        Ok(())
    })
}

/// Where tokens are kept.
enum Tokens {
    /// A data directory that this process holds now.
    Store(DataDir, SqliteStore),
    /// The host that holds it.
    Host(Remote),
}

impl Tokens {
    fn open(args: &TokenStoreArgs) -> Result<Self, Failure> {
        if let (Some(url), Some(token)) = (&args.url, &args.token) {
            return Ok(Self::Host(Remote::new(url, token)?));
        }
        let dir = DataDir::existing(args.data.data_dir.as_deref())?;
        let error = match SqliteStore::open(&SqliteOptions::new(dir.path())) {
            Ok(store) => return Ok(Self::Store(dir, store)),
            Err(error) => error,
        };
        let JournalError::Locked { holder } = &error else {
            return Err(Failure::store(dir.path(), &error));
        };
        let url = args
            .url
            .clone()
            .or_else(|| dir.read_address().map(|address| address.url));
        match (&args.token, &url) {
            (Some(token), Some(url)) => Ok(Self::Host(Remote::new(url, token)?)),
            (token, url) => {
                let holder = holder
                    .as_ref()
                    .map_or_else(|| "another process".to_owned(), ToString::to_string);
                let at = url.as_deref().unwrap_or("URL");
                let remedy = if token.is_none() {
                    format!(
                        "set HARNESS_TOKEN to an admin token, so that the running host is asked ({at}/v1/tokens), or stop it"
                    )
                } else {
                    "give --url, so that the running host is asked, or stop it".to_owned()
                };
                Err(Failure::new(
                    Kind::DataDirectoryHeld,
                    format_args!(
                        "{} is in use by {holder}\n    remedy: {remedy}",
                        dir.path().display()
                    ),
                ))
            }
        }
    }

    async fn create(
        &self,
        name: &str,
        scopes: &[TokenScope],
        projects: &[ProjectId],
    ) -> Result<(Token, String), Failure> {
        match self {
            Self::Host(host) => host.create(name, scopes, projects).await,
            Self::Store(dir, store) => {
                let failed = |error| Failure::store(dir.path(), &error);
                for id in projects {
                    if store.project(id.clone()).await.map_err(failed)?.is_none() {
                        return Err(Failure::new(
                            Kind::Failed,
                            format_args!(
                                "there is no project `{id}`\n    remedy: make it first, with POST /v1/projects of a running host, or leave --project out"
                            ),
                        ));
                    }
                }
                create(store, name, scopes, projects).await.map_err(failed)
            }
        }
    }

    async fn list(&self) -> Result<Vec<Token>, Failure> {
        let (dir, store) = match self {
            Self::Host(host) => return host.list().await,
            Self::Store(dir, store) => (dir, store),
        };
        let (mut tokens, mut cursor) = (Vec::new(), None);
        loop {
            let page = store
                .tokens(PageRequest {
                    limit: 1000,
                    cursor,
                })
                .await;
            let page = page.map_err(|error| Failure::store(dir.path(), &error))?;
            tokens.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tokens);
            }
        }
    }

    async fn revoke(&self, id: TokenId) -> Result<(), Failure> {
        match self {
            Self::Host(host) => host.revoke(id).await,
            Self::Store(dir, store) => store
                .delete_token(id)
                .await
                .map_err(|error| Failure::store(dir.path(), &error)),
        }
    }
}

/// Stores a fresh token and answers it with its secret.
///
/// # Errors
/// As [`Catalog::create_token`].
pub(crate) async fn create(
    catalog: &dyn Catalog,
    name: &str,
    scopes: &[TokenScope],
    projects: &[ProjectId],
) -> Result<(Token, String), JournalError> {
    let text = harness_api::new_token();
    let token = Token {
        id: TokenId(uuid::Uuid::now_v7()),
        name: name.to_owned(),
        scopes: scopes.to_vec(),
        projects: projects.to_vec(),
        created_at_ms: now_ms(),
    };
    let hash = harness_api::hash_token(&text);
    catalog
        .create_token(NewToken {
            token: token.clone(),
            hash,
        })
        .await?;
    Ok((token, text))
}

/// Unix time in milliseconds.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn scopes_of(asked: &[Scope]) -> Vec<TokenScope> {
    let mut scopes: Vec<TokenScope> = asked
        .iter()
        .map(|scope| match scope {
            Scope::Read => TokenScope::Read,
            Scope::Invoke => TokenScope::Invoke,
            Scope::Admin => TokenScope::Admin,
        })
        .collect();
    if scopes.is_empty() {
        scopes = vec![TokenScope::Read, TokenScope::Invoke];
    }
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}

fn scope_word(scope: TokenScope) -> &'static str {
    match scope {
        TokenScope::Read => "read",
        TokenScope::Invoke => "invoke",
        TokenScope::Admin => "admin",
    }
}

fn table(tokens: &[Token]) -> String {
    let mut text = format!(
        "{:<36}  {:<20}  {:<17}  {}\n",
        "ID", "NAME", "SCOPES", "PROJECTS"
    );
    for token in tokens {
        let scopes: Vec<&str> = token
            .scopes
            .iter()
            .map(|scope| scope_word(*scope))
            .collect();
        let projects: Vec<&str> = token.projects.iter().map(ProjectId::as_str).collect();
        let projects = if projects.is_empty() {
            "all".to_owned()
        } else {
            projects.join(",")
        };
        text.push_str(&format!(
            "{:<36}  {:<20}  {:<17}  {projects}\n",
            token.id.to_string(),
            printable_line(&token.name),
            scopes.join(",")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_scopes_and_projects_and_steers_no_terminal() {
        let token = Token {
            id: TokenId::ZERO,
            name: "ci\u{1b}[2J".into(),
            scopes: scopes_of(&[Scope::Invoke, Scope::Read, Scope::Read]),
            projects: vec!["alpha".parse().unwrap()],
            created_at_ms: 0,
        };
        let shown = table(&[token]);
        assert!(
            shown.contains("read,invoke") && shown.contains("alpha"),
            "{shown}"
        );
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        assert_eq!(scopes_of(&[]), [TokenScope::Read, TokenScope::Invoke]);
    }
}
