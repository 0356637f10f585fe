//! Writing: an append is taken in whole or not at all (S65), under the lease of its opening (S66).

use super::{Content, Kept, MemoryStore, Stored, holder};
use bytes::Bytes;
use harness_core::ids::{Seq, SessionId};
use harness_journal::{
    Append, Appended, AppendedRecord, Epoch, IdempotencyScope, IdempotencyWrite, JournalError,
    Lease, NewRecord, Record, RecordKind,
};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

impl MemoryStore {
    /// Makes an append durable at once; see [`harness_journal::Journal::append`].
    ///
    /// # Errors
    /// Those of the journal.
    pub fn write(&self, append: &Append) -> Result<Appended, JournalError> {
        append.checked_bytes()?;
        let mut content = self.content();
        if append.create.is_some() && content.sessions.contains_key(&append.session) {
            return content.repeated_create(append);
        }
        // Everything that can be refused is looked at before anything is changed.
        let mut places = Vec::with_capacity(append.records.len());
        let mut new: HashMap<&str, (Seq, &NewRecord)> = HashMap::new();
        let stored = content.sessions.get(&append.session);
        let first = match (stored, &append.create) {
            (None, None) => return Err(JournalError::NotFound { what: "session" }),
            (None, Some(_)) => 2,
            (Some(stored), _) => {
                stored.check_lease(append.epoch)?;
                stored.next_seq()
            }
        };
        let mut next = first;
        for record in &append.records {
            let known = stored.and_then(|s| s.find(record)).transpose()?;
            let known = match (known, new.get(record.key.as_str())) {
                (Some(seq), _) => Some(seq),
                (None, Some((seq, earlier))) => {
                    same(earlier.fingerprint == record.fingerprint, record)?;
                    Some(*seq)
                }
                (None, None) => None,
            };
            let duplicate = known.is_some();
            let seq = known.unwrap_or(next);
            if !duplicate {
                let expected = append.expected_next.filter(|_| append.create.is_none());
                if let Some(expected) = expected.filter(|e| next == first && *e != next) {
                    return Err(JournalError::OutOfOrder { expected, next });
                }
                new.insert(&record.key, (seq, record));
                next += 1;
            }
            places.push(AppendedRecord { seq, duplicate });
        }
        let repeated = !places.is_empty() && places.iter().all(|p| p.duplicate);
        if !repeated {
            for entry in &append.idempotency {
                content.check_answer(append.session, entry)?;
            }
            content.take_in(append, &places);
        }
        let stored = content.session(append.session)?;
        Ok(Appended {
            lease: stored.lease(append.session),
            records: places,
            next_seq: stored.next_seq(),
        })
    }

    /// Takes the lease; see [`harness_journal::Journal::open`].
    ///
    /// # Errors
    /// Those of the journal.
    pub fn take(&self, session: SessionId, at_ms: i64) -> Result<Lease, JournalError> {
        let mut content = self.content();
        let stored = content.session_mut(session)?;
        stored.epoch = Epoch(stored.epoch.0 + 1);
        stored.fence_seq = stored.next_seq();
        stored.holder = Some(holder());
        stored.push(&fence(stored.epoch, at_ms));
        Ok(stored.lease(session))
    }

    /// Gives the lease back.
    pub fn give_back(&self, session: SessionId, epoch: Epoch) {
        if let Ok(stored) = self.content().session_mut(session)
            && stored.epoch == epoch
        {
            stored.holder = None;
        }
    }
}

impl Content {
    pub(super) fn session(&self, id: SessionId) -> Result<&Stored, JournalError> {
        let found = self.sessions.get(&id);
        found.ok_or(JournalError::NotFound { what: "session" })
    }

    fn session_mut(&mut self, id: SessionId) -> Result<&mut Stored, JournalError> {
        let found = self.sessions.get_mut(&id);
        found.ok_or(JournalError::NotFound { what: "session" })
    }

    /// The answer to a create whose session exists: its places, if it is the same create again.
    fn repeated_create(&self, append: &Append) -> Result<Appended, JournalError> {
        let stored = self.session(append.session)?;
        stored.check_lease(Epoch::FIRST)?;
        let mut records = Vec::new();
        for record in &append.records {
            let seq = stored.find(record).transpose()?;
            let seq = seq.ok_or_else(|| JournalError::Collision {
                key: append.session.to_string(),
            })?;
            let duplicate = true;
            records.push(AppendedRecord { seq, duplicate });
        }
        Ok(Appended {
            lease: stored.lease(append.session),
            records,
            next_seq: stored.next_seq(),
        })
    }

    fn check_answer(
        &self,
        session: SessionId,
        entry: &IdempotencyWrite,
    ) -> Result<(), JournalError> {
        let kept = self.answers.get(&(scope(session, entry), entry.command_id));
        let fits = |k: &Kept| k.body_sha256 == entry.body_sha256 && k.session == session;
        if kept.is_none_or(fits) {
            return Ok(());
        }
        Err(JournalError::Collision {
            key: entry.command_id.to_string(),
        })
    }

    /// Nothing of it can be refused any more.
    fn take_in(&mut self, append: &Append, places: &[AppendedRecord]) {
        if let (Some(create), Some(row)) = (&append.create, &append.projection) {
            let mut stored = Stored {
                created_at_ms: create.created_at_ms,
                epoch: Epoch::FIRST,
                fence_seq: 1,
                holder: Some(holder()),
                records: Vec::new(),
                places: HashMap::new(),
                row: row.clone(),
            };
            stored.push(&fence(Epoch::FIRST, create.created_at_ms));
            self.sessions.insert(append.session, stored);
        }
        if let Some(stored) = self.sessions.get_mut(&append.session) {
            let new = append.records.iter().zip(places);
            for (record, _) in new.filter(|(_, place)| !place.duplicate) {
                stored.push(record);
            }
            if let Some(row) = &append.projection {
                let project_id = stored.row.project_id.clone();
                stored.row = harness_journal::Projection {
                    project_id,
                    ..row.clone()
                };
            }
        }
        for entry in &append.idempotency {
            let key = (scope(append.session, entry), entry.command_id);
            let kept = self.answers.entry(key).or_insert_with(|| Kept {
                session: append.session,
                body_sha256: entry.body_sha256,
                response: None,
            });
            if kept.response.is_none() {
                kept.response.clone_from(&entry.response);
            }
        }
    }
}

impl Stored {
    fn lease(&self, session: SessionId) -> Lease {
        Lease {
            session,
            epoch: self.epoch,
            fence_seq: self.fence_seq,
        }
    }

    fn check_lease(&self, epoch: Epoch) -> Result<(), JournalError> {
        if self.epoch == epoch && self.holder.is_some() {
            return Ok(());
        }
        Err(JournalError::LeaseLost {
            holder: self.holder.clone(),
        })
    }

    /// Where a record with this key is; an error when it is another one.
    fn find(&self, record: &NewRecord) -> Option<Result<Seq, JournalError>> {
        let (seq, fingerprint) = *self.places.get(&record.key)?;
        let at = self.records.get(seq as usize - 1);
        let same_kind = at.is_some_and(|r| r.kind == record.kind);
        let is_same = same_kind && fingerprint == record.fingerprint;
        Some(same(is_same, record).map(|()| seq))
    }

    fn push(&mut self, record: &NewRecord) {
        let seq = self.next_seq();
        let place = (seq, record.fingerprint);
        self.places.insert(record.key.clone(), place);
        self.records.push(Record {
            seq,
            kind: record.kind,
            key: record.key.clone(),
            bytes: record.bytes.clone(),
        });
    }
}

fn same(is_same: bool, record: &NewRecord) -> Result<(), JournalError> {
    if is_same {
        return Ok(());
    }
    Err(JournalError::Collision {
        key: record.key.clone(),
    })
}

fn scope(session: SessionId, entry: &IdempotencyWrite) -> SessionId {
    match entry.scope {
        IdempotencyScope::Create => SessionId::ZERO,
        IdempotencyScope::Session => session,
    }
}

fn fence(epoch: Epoch, at_ms: i64) -> NewRecord {
    let content = serde_json::json!({"type": "Fence", "v": 1, "epoch": epoch, "at_ms": at_ms});
    let bytes = Bytes::from(content.to_string());
    NewRecord {
        kind: RecordKind::Fence,
        key: format!("fence:{epoch}"),
        fingerprint: Sha256::digest(&bytes).into(),
        bytes,
    }
}
