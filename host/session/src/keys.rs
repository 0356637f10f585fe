//! Keyed requests: whether one was answered before, and keeping what it was answered (G5, S120).
//!
//! Requests that are in flight at the same time are joined by the edge, not here.

use crate::actor::Msg;
use crate::host::Host;
use crate::requests::Keyed;
use crate::snapshots::recorded_reference;
use crate::subscription::journal_page;
use bytes::Bytes;
use harness_core::ids::{CommandId, SessionId};
use harness_core::refusal::Refused;
use harness_core::view::OperationResult;
use harness_core::workspace::WorkspaceRef;
use harness_journal::{IdempotencyScope, StoredResponse};

/// Whether a keyed request was answered before (G5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// It was not.
    Fresh,
    /// It was, with this.
    Done {
        /// HTTP status.
        status: u16,
        /// Body.
        body: Bytes,
    },
    /// Its intent is durable and its answer is not: the host was lost in between.
    Unanswered {
        /// The session it belongs to.
        session: SessionId,
        /// The outcome of the operation, if it was one and is known.
        result: Option<OperationResult>,
        /// The snapshot, if it was a checkpoint or a rewind.
        reference: Option<WorkspaceRef>,
    },
}

impl Host {
    /// Whether a keyed request was answered before. `session`: `None` for a creation.
    ///
    /// # Errors
    /// Another body under the same key, or the store failed.
    pub async fn keyed(&self, session: Option<SessionId>, key: Keyed) -> Result<KeyState, Refused> {
        let found = self
            .deps()
            .journal
            .idempotency(session, key.command_id)
            .await;
        let Some(entry) = found.map_err(|_| Refused::StoreUnavailable)? else {
            return Ok(KeyState::Fresh);
        };
        if entry.body_sha256 != key.body_sha256 {
            return Err(Refused::IdempotencyConflict);
        }
        if let Some(response) = entry.response {
            return Ok(KeyState::Done {
                status: response.status,
                body: response.body,
            });
        }
        // Restoring it first turns an intent without outcome into `uncertain` (R80).
        self.live(entry.session).await?;
        let (result, reference) = self.recorded(entry.session, key.command_id).await?;
        Ok(KeyState::Unanswered {
            session: entry.session,
            result,
            reference,
        })
    }

    /// What came of a command as the journal holds it; of several words the first.
    async fn recorded(
        &self,
        id: SessionId,
        command: CommandId,
    ) -> Result<(Option<OperationResult>, Option<WorkspaceRef>), Refused> {
        let mut from = 1;
        loop {
            let page = journal_page(
                self.deps().journal.as_ref(),
                id,
                from,
                harness_journal::MAX_PAGE,
            )
            .await?;
            let mut events = page.events.iter();
            let found = events.find_map(|data| crate::recovery::result_of(data, command));
            let mut events = page.events.iter();
            let reference = events.find_map(|data| recorded_reference(data, command));
            if found.is_some() || reference.is_some() || page.done {
                return Ok((found, reference));
            }
            from = page.next_seq;
        }
    }

    /// Keeps the answer of a keyed request.
    pub async fn answered(&self, session: SessionId, key: Keyed, status: u16, body: Bytes) {
        let scope = if key.session_id == session {
            IdempotencyScope::Create
        } else {
            IdempotencyScope::Session
        };
        let Ok(handle) = self.live(session).await else {
            return;
        };
        let response = StoredResponse { status, body };
        let _ = handle
            .call(|reply| Msg::Answered {
                scope,
                key,
                response,
                reply,
            })
            .await;
    }
}
