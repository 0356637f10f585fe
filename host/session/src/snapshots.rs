//! Snapshots of workspaces and the journals that name them: a client's verbs, what becomes of a
//! rewind that a lost process left, and which snapshots are still wanted (S98, S99, §6.1).
//!
//! A rewind is on record in the store before it changes anything, with a tag that names its session,
//! its command and the journal's length then. Whether its event follows there decides which way it
//! goes; the workspace is nobody's before that.

use crate::actor::Msg;
use crate::deps::Deps;
use crate::host::Host;
use crate::requests::Caller;
use crate::subscription::journal_page;
use crate::workplaces::{Alone, Workplace};
use harness_core::codec::decode_event;
use harness_core::event::{Event, EventBody};
use harness_core::ids::{CommandId, Seq, SessionId};
use harness_core::refusal::Refused;
use harness_core::session::Input;
use harness_core::workspace::{Recovery, SnapshotError, SnapshotStore, WorkspaceRef};
use harness_journal::{IdempotencyScope, MAX_PAGE, PageRequest, SessionFilter, WorkspaceTarget};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// First and longest pause between two tries to end a rewind that a lost process left.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

impl Host {
    /// Takes a snapshot of the session's workspace (S98, S119).
    ///
    /// # Errors
    /// A session that is not idle, or not alone in its workspace; none that is local; it failed.
    pub async fn checkpoint(&self, id: SessionId, caller: Caller) -> Result<WorkspaceRef, Refused> {
        let origin = self.origin(&caller);
        let command_id = origin.command_id;
        self.work_on_workspace(id, &caller, command_id, Input::Checkpoint(origin))
            .await
    }

    /// Makes the session's workspace what a snapshot of it says (S99, S119).
    ///
    /// # Errors
    /// As [`Host::checkpoint`]; an unknown ref. The workspace is what it was.
    pub async fn rewind(
        &self,
        id: SessionId,
        caller: Caller,
        reference: WorkspaceRef,
    ) -> Result<WorkspaceRef, Refused> {
        let origin = self.origin(&caller);
        let command_id = origin.command_id;
        let input = Input::Rewind { origin, reference };
        self.work_on_workspace(id, &caller, command_id, input).await
    }

    async fn work_on_workspace(
        &self,
        id: SessionId,
        caller: &Caller,
        command_id: CommandId,
        input: Input,
    ) -> Result<WorkspaceRef, Refused> {
        self.admit()?;
        let handle = self.live(id).await?;
        let keyed = caller.key.map(|key| (IdempotencyScope::Session, key));
        handle
            .call(|reply| Msg::OnWorkspace {
                input,
                command_id,
                keyed,
                reply,
            })
            .await?
    }

    /// Removes snapshots that no journal names any more; answers the bytes that were freed. Reads
    /// all journals: for now and then.
    ///
    /// # Errors
    /// A journal or the store of snapshots failed; nothing that is wanted is gone.
    pub async fn collect_snapshots(&self) -> Result<u64, String> {
        let Some(store) = self.deps().snapshots.clone() else {
            return Ok(0);
        };
        // What is taken while the journals are read is newer than this and kept.
        let collection = store.collect();
        let live = self.named_snapshots().await?;
        tokio::task::spawn_blocking(move || collection.run(live))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())
    }

    async fn named_snapshots(&self) -> Result<Vec<WorkspaceRef>, String> {
        let journal = &self.deps().journal;
        let mut named = std::collections::BTreeSet::new();
        let mut filter = SessionFilter {
            page: PageRequest {
                limit: MAX_PAGE,
                cursor: None,
            },
            ..SessionFilter::default()
        };
        loop {
            let page = journal.list_sessions(filter.clone()).await;
            let page = page.map_err(|error| error.to_string())?;
            for row in page.items {
                match events(self.deps(), row.session, 1, |event| {
                    named.extend(reference_of(event));
                    false
                })
                .await
                {
                    // Deleted meanwhile.
                    Ok(_) | Err(Refused::SessionNotFound(_)) => {}
                    Err(refused) => return Err(refused.to_string()),
                }
            }
            match page.next_cursor {
                Some(cursor) => filter.page.cursor = Some(cursor),
                None => return Ok(named.into_iter().collect()),
            }
        }
    }

    /// Ends every rewind that a lost process left, before anything works in its workspace.
    pub(crate) async fn settle_rewinds(&self) -> Result<(), harness_journal::JournalError> {
        let deps = self.deps();
        if deps.snapshots.is_none() {
            return Ok(());
        }
        let mut page = PageRequest {
            limit: MAX_PAGE,
            cursor: None,
        };
        loop {
            let found = deps.catalog.workspaces(Vec::new(), page.clone()).await?;
            for workspace in found.items {
                let WorkspaceTarget::Local { root_path } = workspace.target else {
                    continue;
                };
                let place = deps.workplaces.at(&root_path).await;
                // Another id of the same root is being settled.
                let Some(alone) = place.take_alone() else {
                    continue;
                };
                if let Err(error) = settle(deps, &place).await {
                    tracing::error!(workspace = %workspace.id, %error, "an unfinished rewind could not be ended; the workspace is kept closed until it can");
                    tokio::spawn(settle_until_done(deps.clone(), place, Arc::new(alone)));
                }
            }
            match found.next_cursor {
                Some(cursor) => page.cursor = Some(cursor),
                None => return Ok(()),
            }
        }
    }
}

/// What a rewind is called while it is on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) session: SessionId,
    pub(crate) command: CommandId,
    /// Its event, if there is one, is after this.
    pub(crate) after: Seq,
}

impl Tag {
    pub(crate) fn text(self) -> String {
        format!("{}/{}/{}", self.session, self.command, self.after)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let tag = Self {
            session: parts.next()?.parse().ok()?,
            command: parts.next()?.parse().ok()?,
            after: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(tag)
    }
}

/// Ends the rewind of that workspace that is on record, if one is. For who has it alone.
///
/// # Errors
/// It is still on record.
pub(crate) async fn settle(deps: &Deps, place: &Workplace) -> Result<(), SnapshotError> {
    let Some(store) = deps.snapshots.clone() else {
        return Ok(());
    };
    let root = place.root().to_owned();
    let Some(tag) = blocking(&store, root.clone(), |store, root| store.pending(root)).await? else {
        return Ok(());
    };
    let way = match Tag::parse(&tag) {
        // Not this host's: no journal says that it was done.
        None => Recovery::RollBack,
        Some(tag) => way_of(deps, tag).await?,
    };
    blocking(&store, root.clone(), move |store, root| {
        store.recover(root, way)
    })
    .await?;
    tracing::warn!(root = %root.display(), %tag, ?way, "a rewind that was left unfinished was ended");
    Ok(())
}

/// As [`settle`], as often as it takes; the workspace is kept from everybody until then.
pub(crate) async fn settle_until_done(deps: Arc<Deps>, place: Arc<Workplace>, alone: Arc<Alone>) {
    let (mut pause, longest) = AGAIN;
    loop {
        tokio::time::sleep(pause).await;
        match settle(&deps, &place).await {
            Ok(()) => break,
            Err(error) => {
                tracing::error!(root = %place.root().display(), %error, "an unfinished rewind could not be ended");
                pause = (pause * 2).min(longest);
            }
        }
    }
    drop(alone);
}

async fn way_of(deps: &Deps, tag: Tag) -> Result<Recovery, SnapshotError> {
    let is_its_event = |event: &Event| {
        let restored = matches!(event.body, EventBody::WorkspaceRestored { .. });
        restored && event.cause.command_id == Some(tag.command)
    };
    match events(deps, tag.session, tag.after + 1, |e| is_its_event(e)).await {
        Ok(true) => Ok(Recovery::Finish),
        Ok(false) | Err(Refused::SessionNotFound(_)) => Ok(Recovery::RollBack),
        Err(refused) => Err(SnapshotError::Failed {
            code: refused.code().into(),
            message: format!("the journal of session {}: {refused}", tag.session),
        }),
    }
}

/// Reads the workspace events of a journal from a sequence on, until `enough` says so; answers
/// whether it did.
async fn events(
    deps: &Deps,
    session: SessionId,
    from: Seq,
    mut enough: impl FnMut(&Event) -> bool,
) -> Result<bool, Refused> {
    let mut from = from;
    loop {
        let page = journal_page(deps.journal.as_ref(), session, from, MAX_PAGE).await?;
        let found = page.events.iter().filter_map(|data| workspace_event(data));
        if found.into_iter().any(|event| enough(&event)) {
            return Ok(true);
        }
        if page.done {
            return Ok(false);
        }
        from = page.next_seq;
    }
}

/// The event of this frame, if it is one of the workspace.
fn workspace_event(data: &str) -> Option<Event> {
    // Cheap test first: most events are others.
    if !data.contains("\"Workspace") {
        return None;
    }
    let mut value: serde_json::Map<String, serde_json::Value> = serde_json::from_str(data).ok()?;
    value.remove("seq");
    let event = decode_event(&serde_json::to_vec(&value).ok()?).ok()?;
    reference_of(&event).is_some().then_some(event)
}

/// The snapshot that an event names.
fn reference_of(event: &Event) -> Option<WorkspaceRef> {
    match &event.body {
        EventBody::WorkspaceCheckpointed { reference, .. }
        | EventBody::WorkspaceRestored { reference, .. } => Some(reference.clone()),
        _ => None,
    }
}

/// The snapshot that this frame says came of that command.
pub(crate) fn recorded_reference(data: &str, command: CommandId) -> Option<WorkspaceRef> {
    let event = workspace_event(data)?;
    let its = event.cause.command_id == Some(command);
    reference_of(&event).filter(|_| its)
}

/// A call of the store, off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    store: &Arc<dyn SnapshotStore>,
    root: PathBuf,
    call: impl FnOnce(&dyn SnapshotStore, &std::path::Path) -> Result<T, SnapshotError> + Send + 'static,
) -> Result<T, SnapshotError> {
    let store = store.clone();
    let called = tokio::task::spawn_blocking(move || call(store.as_ref(), &root)).await;
    called.unwrap_or_else(|error| {
        Err(SnapshotError::Failed {
            code: "internal".into(),
            message: if error.is_panic() {
                "the snapshot store panicked; the log has more".into()
            } else {
                "the host is shutting down".into()
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn s99_a_tag_is_read_back() {
        let tag = Tag {
            session: SessionId(Uuid::from_u128(1)),
            command: CommandId(Uuid::from_u128(2)),
            after: 77,
        };
        assert_eq!(Tag::parse(&tag.text()), Some(tag));
        assert!(tag.text().len() <= 256);
        for bad in ["", "x", "1/2/3", &format!("{}/9", tag.text())] {
            assert_eq!(Tag::parse(bad), None, "{bad:?}");
        }
    }
}
