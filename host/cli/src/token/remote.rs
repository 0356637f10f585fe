//! The running host as the place of tokens: its `/v1/tokens`.

use crate::failure::{Failure, Kind};
use crate::text::printable_line;
use anyhow::{Context, anyhow};
use harness_core::ids::{ProjectId, TokenId};
use harness_journal::{Token, TokenScope};
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest wait for an answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// Largest answer that is read, in bytes.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// A client of one host.
pub(super) struct Remote {
    client: reqwest::Client,
    base: String,
    token: String,
}

#[derive(Deserialize)]
struct Row {
    id: TokenId,
    name: String,
    scopes: Vec<TokenScope>,
    projects: Vec<ProjectId>,
    token: Option<String>,
}

#[derive(Deserialize)]
struct Rows {
    items: Vec<Row>,
    next_cursor: Option<String>,
}

impl Row {
    fn into_token(self) -> Token {
        Token {
            id: self.id,
            name: self.name,
            scopes: self.scopes,
            projects: self.projects,
            created_at_ms: 0,
        }
    }
}

impl Remote {
    pub(super) fn new(base: &str, token: &str) -> Result<Self, Failure> {
        let client = reqwest::Client::builder()
            .timeout(DEADLINE)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .context("the HTTP client cannot start")?;
        Ok(Self {
            client,
            base: base.trim_end_matches('/').to_owned(),
            token: token.to_owned(),
        })
    }

    pub(super) async fn create(
        &self,
        name: &str,
        scopes: &[TokenScope],
        projects: &[ProjectId],
    ) -> Result<(Token, String), Failure> {
        let mut body = json!({"name": name, "scopes": scopes});
        if !projects.is_empty()
            && let Some(body) = body.as_object_mut()
        {
            body.insert("projects".into(), json!(projects));
        }
        let mut row: Row = self.ask(Method::POST, "/v1/tokens", Some(body)).await?;
        let secret = row
            .token
            .take()
            .ok_or_else(|| anyhow!("the host answered without the token"))?;
        Ok((row.into_token(), secret))
    }

    pub(super) async fn list(&self) -> Result<Vec<Token>, Failure> {
        let (mut tokens, mut path) = (Vec::new(), "/v1/tokens?limit=1000".to_owned());
        loop {
            let rows: Rows = self.ask(Method::GET, &path, None).await?;
            tokens.extend(rows.items.into_iter().map(Row::into_token));
            match rows.next_cursor {
                // Opaque, but a cursor that is no plain word is not one of ours.
                Some(cursor)
                    if cursor
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b)) =>
                {
                    path = format!("/v1/tokens?limit=1000&cursor={cursor}");
                }
                Some(_) => return Err(anyhow!("the host answered with a malformed cursor").into()),
                None => return Ok(tokens),
            }
        }
    }

    pub(super) async fn revoke(&self, id: TokenId) -> Result<(), Failure> {
        self.send(Method::DELETE, &format!("/v1/tokens/{id}"), None)
            .await
            .map(|_| ())
    }

    async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Failure> {
        let answer = read(self.send(method, path, body).await?).await?;
        Ok(serde_json::from_slice(&answer)
            .context("the host answered in a form this build does not know")?)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Response, Failure> {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        // The error of a request names its URL, which holds no secret.
        let response = request
            .send()
            .await
            .with_context(|| format!("the host at {} cannot be asked", self.base))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let problem: Value = serde_json::from_slice(&read(response).await?).unwrap_or_default();
        let detail = problem
            .get("detail")
            .and_then(Value::as_str)
            .unwrap_or("no reason given");
        let hint = match status {
            StatusCode::UNAUTHORIZED => "\n    remedy: HARNESS_TOKEN is not a token of this host",
            StatusCode::FORBIDDEN => "\n    remedy: use a token with the scope admin",
            _ => "",
        };
        Err(Failure::new(
            Kind::Failed,
            format_args!(
                "the host refused ({status}): {}{hint}",
                printable_line(detail)
            ),
        ))
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .context("the host's answer broke off")?
    {
        if bytes.len() + chunk.len() > MAX_ANSWER {
            return Err(anyhow!("the host's answer is larger than 4 MiB").into());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
