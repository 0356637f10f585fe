//! Making a decision durable, then showing it (S61, S62).

use super::Actor;
use crate::requests::{Frame, Keyed};
use bytes::Bytes;
use harness_core::codec::event_frame;
use harness_core::event::{Event, EventBody, Scope};
use harness_core::ids::Seq;
use harness_core::refusal::Refused;
use harness_core::session::{Input, Live, Record, State};
use harness_journal::{
    Append, IdempotencyScope, IdempotencyWrite, JournalError, NewRecord, NewSession, Projection,
    RecordKind, StoredResponse,
};
use std::sync::Arc;

impl Actor {
    /// Appends the records, takes them in and shows them. Nothing has happened when it fails.
    pub(super) async fn append(
        &mut self,
        records: Vec<Record>,
        live: Live,
        refusable: bool,
        keyed: Vec<(IdempotencyScope, Keyed)>,
    ) -> Result<(), Refused> {
        let birth = self.birth.as_ref().map(|b| b.records.clone());
        let first = self.session.state.last_seq + 1;
        #[cfg(feature = "planted-faults")]
        self.show_early(&records, first);
        let outcome = match self.session.preview(&records, first) {
            Ok(next) => self
                .store(birth.as_deref().unwrap_or(&[]), &records, &next, keyed)
                .await
                .map(|b| (next, b)),
            Err(contradiction) => {
                tracing::error!(session = %self.id, %contradiction, "a decision contradicts its session");
                Err(Failed::Definite(contradiction.to_string()))
            }
        };
        match outcome {
            Ok((next, encoded)) => {
                self.birth = None;
                self.session.commit(&records, next, live);
                self.show(&records, &encoded, first);
                #[cfg(feature = "planted-faults")]
                self.hand_back_again(&records).await;
                Ok(())
            }
            Err(Failed::LeaseLost(holder)) => Err(self.taken_over(holder)),
            Err(failed) => {
                let (definite, reason) = match failed {
                    Failed::Definite(reason) => (true, reason),
                    Failed::Ambiguous(reason) | Failed::LeaseLost(reason) => (false, reason),
                };
                self.unsure |= !definite;
                tracing::error!(session = %self.id, %reason, definite, "an append failed");
                metrics::counter!("harness_append_failures_total").increment(1);
                if !(refusable && definite) {
                    self.own.push_back(Input::Fault(reason));
                }
                Err(Refused::StoreUnavailable)
            }
        }
    }

    /// Another holder has the session: nothing more is written here (S66). While it ends anyway,
    /// that is no error.
    fn taken_over(&mut self, holder: String) -> Refused {
        let live = &self.session.live;
        if live.closing || live.shutdown.is_some() || self.session.state.stopped {
            tracing::debug!(session = %self.id, holder, "the lease was lost while the session ended");
        } else {
            tracing::error!(session = %self.id, holder, "the lease of the session is lost");
        }
        metrics::counter!("harness_leases_lost_total").increment(1);
        let refused = Refused::SessionTakenOver {
            holder: holder.clone(),
        };
        self.own.push_back(Input::LeaseLost(holder));
        refused
    }

    async fn store(
        &mut self,
        birth: &[Record],
        records: &[Record],
        next: &State,
        keyed: Vec<(IdempotencyScope, Keyed)>,
    ) -> Result<Vec<Bytes>, Failed> {
        let mut new = Vec::with_capacity(birth.len() + records.len());
        for record in birth.iter().chain(records) {
            let encoded = record
                .encode()
                .map_err(|e| Failed::Definite(e.to_string()))?;
            new.push(NewRecord {
                kind: kind_of(record),
                key: record.key(),
                fingerprint: encoded.fingerprint,
                bytes: encoded.bytes.into(),
            });
        }
        let encoded = new
            .iter()
            .skip(birth.len())
            .map(|r| r.bytes.clone())
            .collect();
        let idempotency = keyed
            .into_iter()
            .map(|(scope, key)| intent(scope, key))
            .collect();
        let create = self.birth.is_some().then(|| NewSession {
            created_at_ms: next.created_at.as_millisecond(),
        });
        let append = Append {
            session: self.id,
            epoch: self.epoch,
            expected_next: create.is_none().then_some(self.session.state.last_seq + 1),
            create,
            records: new,
            projection: Some(projection(next).map_err(Failed::Definite)?),
            idempotency,
        };
        let begun = std::time::Instant::now();
        let appended = self.deps.journal.append(append).await;
        metrics::histogram!("harness_append_seconds").record(begun.elapsed().as_secs_f64());
        match appended {
            Ok(_) => Ok(encoded),
            Err(JournalError::Ambiguous { reason }) => Err(Failed::Ambiguous(reason)),
            // Another opening writes this session: this actor must not go on.
            Err(JournalError::LeaseLost { holder }) => Err(Failed::LeaseLost(holder.map_or_else(
                || "its lease was given back".to_owned(),
                |holder| format!("{holder} holds it"),
            ))),
            Err(error @ JournalError::OutOfOrder { .. }) => {
                Err(Failed::Ambiguous(error.to_string()))
            }
            Err(error) => Err(Failed::Definite(error.to_string())),
        }
    }

    /// Hands committed events to subscribers.
    pub(crate) fn show(&mut self, records: &[Record], encoded: &[Bytes], first: Seq) {
        if self.fanout.is_empty() {
            return;
        }
        for ((record, bytes), seq) in records.iter().zip(encoded).zip(first..) {
            let Some(event) = record.public_event() else {
                continue;
            };
            match event_frame(bytes, seq) {
                Ok(data) => self
                    .fanout
                    .publish(&Arc::new(frame(event, Some(seq), data))),
                Err(error) => {
                    tracing::error!(session = %self.id, %error, "a stored event has no frame")
                }
            }
        }
    }

    /// Shows an ephemeral event. After `SessionStopped` nothing is shown (S94): a notification that
    /// was due then is none any more.
    pub(super) fn publish_ephemeral(&mut self, event: &Event) {
        if self.fanout.is_empty() || self.session.state.stopped {
            return;
        }
        if let Ok(data) = harness_core::codec::encode_ephemeral(event) {
            self.fanout.publish(&Arc::new(frame(event, None, data)));
        }
    }

    /// Keeps the answer of a keyed request (G5). A failure costs the exact bytes, not the effect.
    pub(super) async fn keep_answer(
        &mut self,
        scope: IdempotencyScope,
        key: Keyed,
        response: StoredResponse,
    ) {
        if self.birth.is_some() {
            return;
        }
        let write = IdempotencyWrite {
            response: Some(response),
            ..intent(scope, key)
        };
        let append = Append {
            session: self.id,
            epoch: self.epoch,
            expected_next: None,
            create: None,
            records: Vec::new(),
            projection: None,
            idempotency: vec![write],
        };
        if let Err(error) = self.deps.journal.append(append).await {
            tracing::warn!(session = %self.id, %error, "the answer of a keyed request was not kept");
        }
    }
}

/// An append that failed.
enum Failed {
    /// Nothing was written.
    Definite(String),
    /// The store cannot tell.
    Ambiguous(String),
    /// Nothing was written, and nothing will be: another holder has the session; who.
    LeaseLost(String),
}

fn intent(scope: IdempotencyScope, key: Keyed) -> IdempotencyWrite {
    IdempotencyWrite {
        scope,
        command_id: key.command_id,
        body_sha256: key.body_sha256,
        response: None,
    }
}

fn kind_of(record: &Record) -> RecordKind {
    match record {
        Record::Command(_) => RecordKind::Command,
        Record::Event(Event {
            body: EventBody::GatePrepared { .. },
            ..
        }) => RecordKind::GatePrepared,
        Record::Event(_) => RecordKind::Event,
    }
}

pub(super) fn projection(state: &State) -> Result<Projection, String> {
    let view = state.view();
    let body = serde_json::to_vec(&view).map_err(|e| e.to_string())?;
    Ok(Projection {
        project_id: state.project_id.clone(),
        status: view.status.as_str().into(),
        updated_at_ms: state.updated_at.as_millisecond(),
        body: body.into(),
        needs_recovery: state.needs_recovery() || state.active,
    })
}

fn frame(event: &Event, seq: Option<Seq>, data: String) -> Frame {
    let meta = event.body.meta();
    Frame {
        seq,
        name: meta.name,
        loop_id: (meta.scope == Scope::Loop).then_some(event.loop_id),
        data: data.into(),
    }
}
