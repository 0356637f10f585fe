//! Taking a session up from its journal: lease, fence, replay, verdict, repairs (§6.1).
//!
//! The lease is taken first and given back last: whatever else is bound on the way is dropped
//! before it, so that a restore that fails releases in reverse order. Until the verdict over a
//! configuration that drifted nothing but the fence is written, and without `RestoreDone` there is
//! no session.

use super::Actor;
use super::load::{Lanes, assemble, fold_record};
use crate::deps::Deps;
use crate::drift;
use harness_core::event::{Event, EventBody, Failure};
use harness_core::ids::{EventId, LoopId, SessionId, TurnId};
use harness_core::refusal::Refused;
use harness_core::session::{Input, Record, Session};
use harness_journal::{Append, Epoch, JournalError, Lease, NewRecord, RecordKind};
use std::sync::Arc;

/// Records read at a time.
const PAGE: usize = 1000;

/// The actor of a session that is in the journal.
///
/// # Errors
/// Unknown id, a lease that another holder has, a store that fails, a session that cannot be
/// restored; whatever was taken is given back.
pub(super) async fn restore(
    deps: Arc<Deps>,
    id: SessionId,
    lanes: Lanes,
) -> Result<Actor, Refused> {
    let lease = open(&deps, id).await?;
    let mut session = None;
    match take_up(&deps, id, lease, lanes, &mut session).await {
        Ok(actor) => Ok(actor),
        Err(refused) => {
            give_up(&deps, id, lease.epoch, session, &refused).await;
            Err(refused)
        }
    }
}

/// Takes the lease; its fence is the first append of the opening (S66).
async fn open(deps: &Deps, id: SessionId) -> Result<Lease, Refused> {
    let now = deps.surroundings.now().as_millisecond();
    match deps.journal.open(id, now).await {
        Ok(lease) => Ok(lease),
        Err(JournalError::NotFound { .. }) => Err(Refused::SessionNotFound(id.to_string())),
        Err(JournalError::LeaseLost { holder }) => Err(Refused::LeaseHeld {
            holder: holder.map_or_else(|| "its holder is not known".into(), |h| h.to_string()),
        }),
        Err(error) => {
            tracing::error!(session = %id, %error, "the session's journal could not be opened");
            Err(Refused::StoreUnavailable)
        }
    }
}

/// Everything after the lease. `read` is what was read of the session, for the record of a failure.
async fn take_up(
    deps: &Arc<Deps>,
    id: SessionId,
    lease: Lease,
    lanes: Lanes,
    read: &mut Option<Session>,
) -> Result<Actor, Refused> {
    let session = replay(deps, id).await?;
    let session = read.insert(session).clone();
    let workspace = super::load::workspace_of(deps, &session).await?;
    let now = drift::configuration(deps, &session.state, workspace.as_ref());
    let drifted = session.state.drift(&now);
    if !drifted.is_empty() {
        let accepted = drift::accepted(deps, id, drifted).await;
        accepted.map_err(Refused::RestoreFailed)?;
    }
    let mut actor = assemble(
        deps.clone(),
        id,
        session,
        lease.epoch,
        None,
        workspace,
        lanes,
    )
    .await;
    let (lost, now) = (actor.lost_delegates(), Some(Box::new(now)));
    let decision = actor.decide(Input::Restore { lost, now });
    if decision.records.is_empty() {
        // A checkpoint may be owed, and notifications may have to be brought again (S72).
        actor.session.live = decision.live;
    } else {
        let repaired = actor.append(decision.records, decision.live, false, Vec::new());
        repaired.await.map_err(|refused| match refused {
            // Nobody has the session here yet who could have lost it.
            Refused::SessionTakenOver { holder } => Refused::LeaseHeld { holder },
            other => other,
        })?;
        actor.own.clear();
    }
    #[cfg(feature = "planted-faults")]
    actor.lose_held();
    Ok(actor)
}

/// Notes the failure, best-effort, and gives the lease back.
async fn give_up(
    deps: &Deps,
    id: SessionId,
    epoch: Epoch,
    session: Option<Session>,
    refused: &Refused,
) {
    metrics::counter!("harness_restore_failures_total").increment(1);
    if let Err(error) = note(deps, id, epoch, session, refused).await {
        tracing::debug!(session = %id, %error, "a failed restore was not noted");
    }
    if let Err(error) = deps.journal.release(id, epoch).await {
        tracing::debug!(session = %id, %error, "the lease was not given back");
    }
}

async fn note(
    deps: &Deps,
    id: SessionId,
    epoch: Epoch,
    session: Option<Session>,
    refused: &Refused,
) -> Result<(), String> {
    let error = Failure {
        code: refused.code().to_owned(),
        message: bounded(refused.to_string()),
    };
    let record = Record::Event(Event {
        id: EventId(deps.surroundings.id()),
        session_id: id,
        loop_id: LoopId::ZERO,
        turn_id: TurnId::ZERO,
        at: deps.surroundings.now(),
        cause: Default::default(),
        body: EventBody::RestoreErrored { error },
    });
    let encoded = record.encode().map_err(|e| e.to_string())?;
    let new = NewRecord {
        kind: RecordKind::Event,
        key: record.key(),
        fingerprint: encoded.fingerprint,
        bytes: encoded.bytes.into(),
    };
    let append = |session: Option<&Session>| {
        // Of a session that could not be read the row stays as it is.
        let (mut projection, mut expected_next) = (None, None);
        if let Some(session) = session {
            let first = session.state.last_seq + 1;
            let next = session.preview(std::slice::from_ref(&record), first);
            projection = Some(super::append::projection(
                &next.map_err(|e| e.to_string())?,
            )?);
            expected_next = Some(first);
        }
        Ok::<_, String>(Append {
            session: id,
            epoch,
            expected_next,
            create: None,
            records: vec![new.clone()],
            projection,
            idempotency: Vec::new(),
        })
    };
    let mut noted = deps.journal.append(append(session.as_ref())?).await;
    if matches!(noted, Err(JournalError::OutOfOrder { .. })) {
        // Repairs that nobody knew to be written are: the row has to tell of them too.
        let read = replay(deps, id).await.map_err(|e| e.to_string())?;
        noted = deps.journal.append(append(Some(&read))?).await;
    }
    noted.map(drop).map_err(|e| e.to_string())
}

/// Error texts in stored events have at most 4 KiB.
fn bounded(mut text: String) -> String {
    let mut end = text.len().min(4096);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Reads every record up to the fence.
async fn replay(deps: &Deps, id: SessionId) -> Result<Session, Refused> {
    let read = |from| {
        let journal = deps.journal.clone();
        async move { journal.read(id, from, PAGE).await }
    };
    let mut session: Option<Session> = None;
    let mut next = Some(tokio::spawn(read(1)));
    while let Some(reading) = next {
        let page = match reading.await.map_err(|e| unreadable(id, &e))? {
            Ok(page) => page,
            Err(error @ JournalError::Unavailable { .. }) => {
                tracing::error!(session = %id, %error, "the session's journal could not be read");
                return Err(Refused::StoreUnavailable);
            }
            Err(error) => return Err(unreadable(id, &error)),
        };
        // The next page is read while this one is folded.
        next = page.next.map(|from| tokio::spawn(read(from)));
        for stored in page.records {
            fold_record(&mut session, &stored).map_err(|what| unreadable(id, &what))?;
        }
    }
    session.ok_or_else(|| unreadable(id, &"the journal holds no session"))
}

/// What is wrong stays in the log: it may quote the journal.
fn unreadable(id: SessionId, what: &dyn std::fmt::Display) -> Refused {
    tracing::error!(session = %id, reason = %what, "the session could not be restored");
    Refused::RestoreFailed(
        "its journal cannot be read; the host's log has the cause, a backup the session".into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s68_a_stored_error_text_is_bounded_between_characters() {
        assert_eq!(bounded("short".into()), "short");
        let long = bounded("é".repeat(4096));
        assert!(long.len() <= 4096 && long.ends_with('é'));
    }
}
