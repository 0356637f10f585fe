//! Running what changes something, whoever waits for it (G5, R69).
//!
//! The work is a task of its own: a client that leaves drops the waiting side only, whose guard
//! fires the request's abort signal. Requests with the same idempotency key that are under way
//! together share one task, and the signal fires when the last of them has left.
//!
//! Not here: what an abort does to an operation. After it was started the plane ignores the signal.

use crate::auth::Grant;
use crate::code::Code;
use crate::idempotency::RawKey;
use crate::plane::{KeyState, Plane};
use crate::problem::Problem;
use crate::state::ApiState;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use harness_core::abort::{AbortHandle, AbortReason, AbortSignal};
use harness_core::ids::{CommandId, SessionId};
use harness_core::refusal::Refused;
use harness_core::view::{OperationResult, SessionView};
use harness_core::workspace::WorkspaceRef;
use harness_session::{Caller, Keyed};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tracing::Instrument;

/// What a request that changed something is answered with.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    status: u16,
    body: Bytes,
    /// The session it created, where the record of the answer goes.
    session: Option<SessionId>,
}

impl Done {
    /// A JSON answer.
    pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Result<Self, Refused> {
        match serde_json::to_vec(body) {
            Ok(body) => Ok(Self {
                status: status.as_u16(),
                body: body.into(),
                session: None,
            }),
            Err(error) => {
                tracing::error!(%error, "an answer could not be written");
                Err(Refused::Internal)
            }
        }
    }

    /// The answer to a creation.
    pub(crate) fn created(session: SessionId, body: &impl Serialize) -> Result<Self, Refused> {
        Ok(Self {
            session: Some(session),
            ..Self::json(StatusCode::CREATED, body)?
        })
    }

    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

type Outcome = Result<Done, Problem>;

/// A request that was cut off after its intent was durable and before its answer was.
pub(crate) struct Cut {
    /// Its session as it is now.
    pub(crate) session: SessionView,
    /// The intent.
    pub(crate) command_id: CommandId,
    /// What became of it, when it was an operation.
    pub(crate) result: Option<OperationResult>,
    /// The snapshot, when it was a checkpoint or a rewind.
    pub(crate) reference: Option<WorkspaceRef>,
}

/// What a repeat of such a request is answered with.
pub(crate) type Again = fn(Cut) -> Result<Done, Refused>;

/// For requests that take no key.
pub(crate) fn never_again(_: Cut) -> Result<Done, Refused> {
    Err(Refused::Internal)
}

/// The requests that wait for one task.
struct Waiters {
    count: AtomicUsize,
    settled: AtomicBool,
    abort: AbortHandle,
}

impl Waiters {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            count: AtomicUsize::new(0),
            settled: AtomicBool::new(false),
            abort: AbortHandle::new(),
        })
    }

    fn join(self: &Arc<Self>) -> Waiting {
        self.count.fetch_add(1, Ordering::AcqRel);
        Waiting(self.clone())
    }

    fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }
}

/// One waiting request; the last to go before the end fires the abort signal.
struct Waiting(Arc<Waiters>);

impl Drop for Waiting {
    fn drop(&mut self) {
        let last = self.0.count.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && !self.0.settled.load(Ordering::Acquire) {
            self.0.abort.abort(AbortReason::CallerGone);
        }
    }
}

struct Flight {
    body_sha256: [u8; 32],
    waiters: Arc<Waiters>,
    outcome: watch::Receiver<Option<Outcome>>,
}

/// Keyed requests under way.
#[derive(Default)]
pub(crate) struct Flights {
    /// A std mutex: held for one lookup or insert, never across an await. One entry a running
    /// request, so as bounded as the requests are.
    running: Mutex<HashMap<CommandId, Flight>>,
}

/// Takes the flight off the list however its task ends.
struct Landing {
    state: ApiState,
    id: CommandId,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.state.flights().lock().remove(&self.id);
    }
}

impl Flights {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<CommandId, Flight>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As [`perform`], for a change of one session that ends whether or not its caller waits, answered
/// with what it gives.
pub(crate) async fn change_session<T, F, W>(
    state: &ApiState,
    grant: &Grant,
    session: SessionId,
    key: Option<RawKey>,
    status: StatusCode,
    again: Again,
    work: F,
) -> Result<Response, Problem>
where
    T: Serialize,
    F: FnOnce(Arc<dyn Plane>, Caller) -> W + Send + 'static,
    W: Future<Output = Result<T, Refused>> + Send + 'static,
{
    let work = move |plane, caller, _| {
        let given = work(plane, caller);
        async move { Done::json(status, &given.await?) }
    };
    perform(state, grant, Some(session), key, again, work).await
}

/// Answers the repeat of a change that is in the journal and whose answer is nowhere.
pub(crate) fn answer_lost(_: Cut) -> Result<Done, Refused> {
    Err(Refused::StatusChanged(
        "the change was made and its answer was lost with the host; read the session's loops and status",
    ))
}

/// Runs `work` once for all requests that are the same intent, and answers this one.
///
/// `session` is the session the request is addressed to; `None` for a creation. `again` answers
/// the repeat of a request whose own answer was lost with the process.
pub(crate) async fn perform<F, W>(
    state: &ApiState,
    grant: &Grant,
    session: Option<SessionId>,
    key: Option<RawKey>,
    again: Again,
    work: F,
) -> Result<Response, Problem>
where
    F: FnOnce(Arc<dyn Plane>, Caller, AbortSignal) -> W + Send + 'static,
    W: Future<Output = Result<Done, Refused>> + Send + 'static,
{
    let mut caller = grant.caller();
    let (waiting, mut outcome) = match key {
        None => {
            let waiters = Waiters::new();
            let waiting = waiters.join();
            let running = work(state.plane().clone(), caller, waiters.abort.signal());
            let run = async move { running.await.map_err(Problem::from) };
            (waiting, launch(waiters, run, ()))
        }
        Some(raw) => {
            let key = raw.derive(grant.identity());
            caller.key = Some(key);
            // Found or begun under one lock, so that two equal requests never both begin.
            let mut running = state.flights().lock();
            if let Some(flight) = running.get(&key.command_id) {
                if flight.body_sha256 != key.body_sha256 {
                    return Err(Refused::IdempotencyConflict.into());
                }
                (flight.waiters.join(), flight.outcome.clone())
            } else {
                let waiters = Waiters::new();
                let waiting = waiters.join();
                let landing = Landing {
                    state: state.clone(),
                    id: key.command_id,
                };
                let plane = state.plane().clone();
                let begun = work(plane.clone(), caller, waiters.abort.signal());
                let outcome = launch(
                    waiters.clone(),
                    recorded(plane, session, key, again, begun),
                    landing,
                );
                running.insert(
                    key.command_id,
                    Flight {
                        body_sha256: key.body_sha256,
                        waiters,
                        outcome: outcome.clone(),
                    },
                );
                (waiting, outcome)
            }
        }
    };
    let answer = outcome
        .wait_for(Option::is_some)
        .await
        .map(|found| found.clone());
    drop(waiting);
    match answer {
        Ok(Some(result)) => result.map(Done::into_response),
        // The task panicked.
        Ok(None) | Err(_) => Err(Problem::internal()),
    }
}

/// Starts the task; `landing` is dropped when its outcome is known.
fn launch<L: Send + 'static>(
    waiters: Arc<Waiters>,
    run: impl Future<Output = Outcome> + Send + 'static,
    landing: L,
) -> watch::Receiver<Option<Outcome>> {
    let (tell, outcome) = watch::channel(None);
    let task = async move {
        // Moved in first, so that a panic drops it too.
        let landing = landing;
        let result = run.await;
        waiters.settle();
        drop(landing);
        let _ = tell.send(Some(result));
    };
    tokio::spawn(task.in_current_span());
    outcome
}

/// The stored answer, or that of `work`, which is stored before it is given.
async fn recorded(
    plane: Arc<dyn Plane>,
    session: Option<SessionId>,
    key: Keyed,
    again: Again,
    work: impl Future<Output = Result<Done, Refused>>,
) -> Outcome {
    let outcome = match plane.keyed(session, key).await? {
        KeyState::Fresh => work.await.map_err(Problem::from),
        KeyState::Done { status, body } => return replay(status, body),
        KeyState::Unanswered {
            session,
            result,
            reference,
        } => {
            let session = plane.session(session).await?;
            again(Cut {
                session,
                command_id: key.command_id,
                result,
                reference,
            })
            .map_err(Problem::from)
        }
    };
    let (record, made) = match &outcome {
        Ok(done) => (Some((done.status, done.body.clone())), done.session),
        Err(problem) if problem.is_outcome() => (
            Some((problem.code().status(), problem.stored())),
            problem.session_id(),
        ),
        Err(_) => (None, None),
    };
    if let (Some((status, body)), Some(session)) = (record, session.or(made)) {
        plane.answered(session, key, status, body).await;
    }
    outcome
}

fn replay(status: u16, body: Bytes) -> Outcome {
    if status < 400 {
        return Ok(Done {
            status,
            body,
            session: None,
        });
    }
    Err(Problem::from_stored(&body).unwrap_or_else(|| {
        tracing::error!(status, "a recorded problem cannot be read");
        Problem::with_remedy(Code::Internal, "the recorded answer cannot be read")
    }))
}
