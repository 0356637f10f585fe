//! The journal's port over the store.

use super::page::{checked, page};
use super::{MemoryStore, Scope, Stored};
use harness_core::ids::{CommandId, Seq, SessionId};
use harness_journal::{
    Append, Appended, BoxFuture, Epoch, IdempotencyEntry, Journal, JournalError, Lease, Page,
    RecordPage, SessionFilter, SessionRow, Tail,
};

/// Bytes after which a page of records ends.
const PAGE_BYTES: usize = 8 << 20;
/// Most projects of a filter.
pub(super) const MAX_FILTER: usize = 1000;

impl Stored {
    fn session_row(&self, session: SessionId) -> SessionRow {
        SessionRow {
            session,
            created_at_ms: self.created_at_ms,
            projection: self.row.clone(),
        }
    }

    fn page(&self, from: Seq, limit: usize) -> RecordPage {
        let mut found = RecordPage {
            records: Vec::new(),
            next: None,
        };
        let mut bytes = 0;
        let skip = usize::try_from(from.max(1) - 1).unwrap_or(usize::MAX);
        for record in self.records.iter().skip(skip) {
            if found.records.len() == limit || bytes >= PAGE_BYTES {
                found.next = Some(record.seq);
                break;
            }
            bytes += record.bytes.len();
            found.records.push(record.clone());
        }
        found
    }
}

impl Journal for MemoryStore {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, JournalError>> {
        Box::pin(async move { self.write(&append) })
    }

    fn open(&self, session: SessionId, at_ms: i64) -> BoxFuture<'_, Result<Lease, JournalError>> {
        Box::pin(async move { self.take(session, at_ms) })
    }

    fn release(&self, session: SessionId, epoch: Epoch) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            self.give_back(session, epoch);
            Ok(())
        })
    }

    fn read(
        &self,
        session: SessionId,
        from: Seq,
        limit: usize,
    ) -> BoxFuture<'_, Result<RecordPage, JournalError>> {
        Box::pin(async move {
            let limit = checked(limit)?;
            Ok(self.content().session(session)?.page(from, limit))
        })
    }

    fn tail(&self, session: SessionId) -> BoxFuture<'_, Result<Tail, JournalError>> {
        Box::pin(async move {
            let content = self.content();
            let stored = content.session(session)?;
            Ok(Tail {
                next_seq: stored.next_seq(),
                epoch: stored.epoch,
            })
        })
    }

    fn delete(&self, session: SessionId) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let mut content = self.content();
            content.session(session)?;
            content.sessions.remove(&session);
            content.answers.retain(|_, kept| kept.session != session);
            let of = |scope: &Scope| matches!(scope, Scope::Loop(id, _) if *id == session);
            content.state.retain(|place, _| !of(&place.scope));
            Ok(())
        })
    }

    fn list_sessions(
        &self,
        filter: SessionFilter,
    ) -> BoxFuture<'_, Result<Page<SessionRow>, JournalError>> {
        Box::pin(async move {
            if filter.projects.len() > MAX_FILTER {
                return Err(JournalError::TooLarge {
                    what: "the list of projects",
                    size: filter.projects.len() as u64,
                    limit: MAX_FILTER as u64,
                });
            }
            let content = self.content();
            let wanted = |s: &Stored| {
                let project = &s.row.project_id;
                (filter.projects.is_empty() || filter.projects.contains(project))
                    && filter.status.as_ref().is_none_or(|is| *is == s.row.status)
            };
            let sessions = content.sessions.iter().filter(|(_, s)| wanted(s));
            // Newest first: what sorts last by time and id comes first.
            let mut rows: Vec<_> = sessions
                .map(|(id, s)| {
                    let place = (!(s.created_at_ms as u64), !id.0.as_u128());
                    let row = s.session_row(*id);
                    (format!("{:016x}{:032x}", place.0, place.1), row)
                })
                .collect();
            rows.sort_by(|(one, _), (other, _)| one.cmp(other));
            let cursor = filter.page.cursor.as_deref();
            page('s', rows.into_iter(), filter.page.limit, cursor)
        })
    }

    fn projection(
        &self,
        session: SessionId,
    ) -> BoxFuture<'_, Result<Option<SessionRow>, JournalError>> {
        Box::pin(async move {
            let content = self.content();
            let stored = content.sessions.get(&session);
            Ok(stored.map(|s| s.session_row(session)))
        })
    }

    fn sessions_needing_recovery(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SessionId>, JournalError>> {
        Box::pin(async move {
            let limit = checked(limit)?;
            let content = self.content();
            let open = content
                .sessions
                .iter()
                .filter(|(id, s)| s.row.needs_recovery && after.is_none_or(|after| **id > after));
            Ok(open.map(|(id, _)| *id).take(limit).collect())
        })
    }

    fn idempotency(
        &self,
        session: Option<SessionId>,
        command: CommandId,
    ) -> BoxFuture<'_, Result<Option<IdempotencyEntry>, JournalError>> {
        Box::pin(async move {
            let scope = session.unwrap_or(SessionId::ZERO);
            let content = self.content();
            let kept = content.answers.get(&(scope, command));
            Ok(kept.map(|k| IdempotencyEntry {
                session: k.session,
                body_sha256: k.body_sha256,
                response: k.response.clone(),
            }))
        })
    }
}
