//! What a client reads: rows, snapshots, the conversation, the journal, command state (S37, S107, S108).
//!
//! A live session is read from what its actor published; a parked one from its row.

use crate::actor::{Msg, ProcessMsg};
use crate::handle::Handle;
use crate::host::Host;
use crate::operations::{before_reserve, check_workspace, ready_harness};
use crate::requests::{CommandStateRead, CommandStateView, OpenGate, RowChange};
use crate::subscription::{Follow, JournalPage, Subscription, journal_page};
use harness_core::abort::AbortSignal;
use harness_core::content::Message;
use harness_core::ids::{HarnessId, LoopId, Seq, SessionId};
use harness_core::operation::CommandState;
use harness_core::refusal::Refused;
use harness_core::view::{ProcessView, QueuedInput, SessionView, Snapshot};
use harness_journal::{JournalError, Page, PageRequest, SessionFilter};
use jiff::Timestamp;
use std::sync::Arc;
use tokio::sync::broadcast;

impl Host {
    /// One session. A parked one is read from its row.
    ///
    /// # Errors
    /// Unknown id, or the store failed.
    pub async fn session(&self, id: SessionId) -> Result<SessionView, Refused> {
        if let Some(handle) = self.deps().directory.get(id)
            && let Ok(published) = handle.published()
            && published.born
        {
            return Ok((*published.view).clone());
        }
        let row = self
            .deps()
            .journal
            .projection(id)
            .await
            .map_err(|_| Refused::StoreUnavailable)?;
        let row = row.ok_or_else(|| Refused::SessionNotFound(id.to_string()))?;
        serde_json::from_slice(&row.projection.body).map_err(|_| Refused::Internal)
    }

    /// Sessions, newest first; live ones as they are now.
    ///
    /// # Errors
    /// A bad limit or cursor, or the store failed.
    pub async fn sessions(&self, filter: SessionFilter) -> Result<Page<SessionView>, Refused> {
        let page = self
            .deps()
            .journal
            .list_sessions(filter)
            .await
            .map_err(|e| page_refused(&e))?;
        let mut items = Vec::with_capacity(page.items.len());
        for row in page.items {
            let live = self
                .deps()
                .directory
                .get(row.session)
                .and_then(|h| h.published().ok());
            match live.filter(|p| p.born) {
                Some(published) => items.push((*published.view).clone()),
                None => items.push(
                    serde_json::from_slice(&row.projection.body).map_err(|_| Refused::Internal)?,
                ),
            }
        }
        Ok(Page {
            items,
            next_cursor: page.next_cursor,
        })
    }

    /// Everything a client needs to begin following a session.
    ///
    /// # Errors
    /// Unknown id, or the session could not be read.
    pub async fn snapshot(&self, id: SessionId) -> Result<Snapshot, Refused> {
        self.live(id)
            .await?
            .call(|reply| Msg::Snapshot { reply })
            .await
    }

    /// Queued and held inputs, in order.
    ///
    /// # Errors
    /// As [`Host::snapshot`].
    pub async fn queue(&self, id: SessionId) -> Result<Vec<QueuedInput>, Refused> {
        Ok(self.snapshot(id).await?.queued_inputs)
    }

    /// Open gates, oldest first.
    ///
    /// # Errors
    /// As [`Host::snapshot`].
    pub async fn gates(&self, id: SessionId) -> Result<Vec<OpenGate>, Refused> {
        self.live(id)
            .await?
            .call(|reply| Msg::Gates { reply })
            .await
    }

    /// Background processes of all loops: those that run, and the newest that ended.
    ///
    /// # Errors
    /// As [`Host::snapshot`].
    pub async fn processes(&self, id: SessionId) -> Result<Vec<ProcessView>, Refused> {
        let handle = self.live(id).await?;
        let known = handle
            .call(|reply| {
                Msg::Process(ProcessMsg::List {
                    loop_id: None,
                    reply,
                })
            })
            .await?;
        Ok(known.into_iter().map(|info| info.process).collect())
    }

    /// The saved conversation of a loop, of the active one when none is named, oldest first.
    ///
    /// # Errors
    /// A bad limit or cursor, an unknown loop; as [`Host::snapshot`].
    pub async fn messages(
        &self,
        id: SessionId,
        loop_id: Option<LoopId>,
        page: PageRequest,
    ) -> Result<Page<Message>, Refused> {
        if !(1..=harness_journal::MAX_PAGE).contains(&page.limit) {
            return Err(Refused::InvalidRequest("`limit` is 1 to 1000".into()));
        }
        let from = match &page.cursor {
            None => 0,
            Some(cursor) => cursor.parse::<usize>().map_err(|_| {
                Refused::InvalidRequest(
                    "`cursor` is the `next_cursor` of the same list, unchanged".into(),
                )
            })?,
        };
        let handle = self.live(id).await?;
        let limit = page.limit + 1;
        let mut items = handle
            .call(|reply| Msg::Messages {
                loop_id,
                from,
                limit,
                reply,
            })
            .await??;
        let more = items.len() > page.limit;
        items.truncate(page.limit);
        Ok(Page {
            next_cursor: more.then(|| (from + items.len()).to_string()),
            items,
        })
    }

    /// A page of the journal: public events from a sequence on. `limit`: 1 to 1000.
    ///
    /// # Errors
    /// A bad limit, unknown id, or the store failed.
    pub async fn journal(
        &self,
        id: SessionId,
        from: Seq,
        limit: usize,
    ) -> Result<JournalPage, Refused> {
        if !(1..=harness_journal::MAX_PAGE).contains(&limit) {
            return Err(Refused::InvalidRequest("`limit` is 1 to 1000".into()));
        }
        journal_page(self.deps().journal.as_ref(), id, from, limit).await
    }

    /// Follows a session: all of it from a [`Start`](crate::Start), or what a [`Follow`] says.
    ///
    /// # Errors
    /// As [`Host::snapshot`].
    pub async fn subscribe(
        &self,
        id: SessionId,
        follow: impl Into<Follow>,
    ) -> Result<Subscription, Refused> {
        let follow = follow.into();
        let filter = follow.filter.clone();
        let handle = self.live(id).await?;
        let (feed, snapshot) = handle
            .call(|reply| Msg::Subscribe { filter, reply })
            .await?;
        Ok(Subscription::new(
            id,
            self.deps().journal.clone(),
            handle,
            feed,
            snapshot,
            follow,
        ))
    }

    /// Rows as they change; who is slow misses some.
    #[must_use]
    pub fn rows(&self) -> broadcast::Receiver<RowChange> {
        self.deps().rows.subscribe()
    }

    /// Command state, read live from the provider (R41), for all who ask meanwhile at once.
    ///
    /// # Errors
    /// §6 R41.
    pub async fn command_state(&self, id: SessionId) -> Result<Arc<CommandStateRead>, Refused> {
        let handle = self.live(id).await?;
        let read = || async {
            let view = self.read_command_state(&handle).await?;
            Ok(Arc::new(view.into()))
        };
        handle.reads.join(read).await
    }

    async fn read_command_state(&self, handle: &Handle) -> Result<CommandStateView, Refused> {
        let published = handle.published()?;
        let (_, info) = ready_harness(self.deps(), &published.active.harness)?;
        check_workspace(self.deps(), &published, &info, std::time::Duration::ZERO).await?;
        if !info.features.commands {
            return Ok(no_commands(
                published.active.harness.clone(),
                self.deps().surroundings.now(),
            ));
        }
        let instance = handle.instance().await?;
        let published = handle.published()?;
        let context = published.discovery_context(published.active.id);
        let state = instance
            .get_command_state(context, AbortSignal::never())
            .await
            .map_err(before_reserve)?;
        Ok(view_of(
            published.active.harness.clone(),
            state,
            info.features.state_push,
            self.deps().surroundings.now(),
        ))
    }
}

/// R8: a provider without discovery.
pub(crate) fn no_commands(harness_id: HarnessId, as_of: Timestamp) -> CommandStateView {
    view_of(harness_id, None, false, as_of)
}

pub(crate) fn view_of(
    harness_id: HarnessId,
    state: Option<CommandState>,
    push: bool,
    as_of: Timestamp,
) -> CommandStateView {
    let state = state.unwrap_or_default();
    CommandStateView {
        revision: state.revision(&harness_id),
        as_of,
        push,
        state,
        harness_id,
    }
}

fn page_refused(error: &JournalError) -> Refused {
    match error {
        JournalError::InvalidPage { .. } | JournalError::TooLarge { .. } => {
            Refused::InvalidRequest(error.to_string())
        }
        _ => Refused::StoreUnavailable,
    }
}
